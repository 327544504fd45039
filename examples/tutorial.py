"""
Title: A Transformer as tutorials write it
Date created: 2026/11/26
Description: Trained by plain Keras, without keras_attn; for `adopt.py`.

This program does not use keras_attn. The layers, the texts and the loop that
decodes are written as in Keras's own example of a translating Transformer, and
in thousands of notebooks: custom layers around `MultiHeadAttention`, a causal
mask made from the shape, `TextVectorization` with "[start]" and "[end]", a
softmax at the end.

    python examples/tutorial.py FOLDER

trains it to read dates for a minute, and writes `model.keras` and the two
vocabularies into a folder.
"""

import datetime
import json
import random
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from keras import ops

FORMATS = "%d %B %Y", "%A, %d %B %Y", "%b %d, %Y", "%d/%m/%Y", "%B %d %Y"
LENGTH = 32  # tokens of a row
WIDTH, HEADS = 64, 4


def draw(count: int, seed: int):
    """Returns pairs such as `("3 May 1951", "1951-05-03")`."""
    chosen = random.Random(seed)
    first = datetime.date(1950, 1, 1)
    for _ in range(count):
        day = first + datetime.timedelta(chosen.randrange(36_500))
        yield day.strftime(chosen.choice(FORMATS)), day.isoformat()


"""
## The layers
"""


@keras.saving.register_keras_serializable("tutorial")
class PositionalEmbedding(layers.Layer):
    def __init__(self, sequence_length, vocab_size, embed_dim, **kwargs):
        super().__init__(**kwargs)
        self.sequence_length = sequence_length
        self.vocab_size = vocab_size
        self.embed_dim = embed_dim
        self.token_embeddings = layers.Embedding(vocab_size, embed_dim)
        self.position_embeddings = layers.Embedding(sequence_length, embed_dim)

    def call(self, inputs):
        positions = ops.arange(0, ops.shape(inputs)[-1], 1)
        return self.token_embeddings(inputs) + self.position_embeddings(
            positions
        )

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 0)

    def get_config(self):
        names = "sequence_length", "vocab_size", "embed_dim"
        return super().get_config() | {x: getattr(self, x) for x in names}


@keras.saving.register_keras_serializable("tutorial")
class TransformerBlock(layers.Layer):
    """An encoder's block, or a decoder's, which attends to the encoder too."""

    def __init__(self, embed_dim, num_heads, decodes, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.decodes = decodes
        size = embed_dim // num_heads
        self.attention = layers.MultiHeadAttention(num_heads, size)
        self.cross = layers.MultiHeadAttention(num_heads, size)
        self.dense = keras.Sequential(
            [layers.Dense(2 * embed_dim, "relu"), layers.Dense(embed_dim)]
        )
        self.norms = [layers.LayerNormalization() for _ in range(3)]
        self.supports_masking = True

    def call(self, inputs, mask=None):
        x, memory = inputs if self.decodes else (inputs, None)
        masks = mask if self.decodes else [mask]
        own = ops.cast(masks[0][:, None, :], "int32")
        if self.decodes:
            own = ops.minimum(own, self.causal_mask(x))
        x = self.norms[0](x + self.attention(x, x, attention_mask=own))
        if self.decodes:
            other = ops.cast(masks[1][:, None, :], "int32")
            y = self.cross(x, memory, attention_mask=other)
            x = self.norms[1](x + y)
        return self.norms[2](x + self.dense(x))

    def compute_mask(self, inputs, mask=None):
        return mask[0] if self.decodes else mask

    def causal_mask(self, x):
        length = ops.shape(x)[1]
        i = ops.arange(length)[:, None]
        mask = ops.cast(i >= ops.arange(length), "int32")
        return ops.reshape(mask, (1, length, length))

    def get_config(self):
        names = "embed_dim", "num_heads", "decodes"
        return super().get_config() | {x: getattr(self, x) for x in names}


def build(source_size: int, target_size: int):
    source = keras.Input((None,), dtype="int64", name="encoder_inputs")
    x = PositionalEmbedding(LENGTH, source_size, WIDTH)(source)
    memory = TransformerBlock(WIDTH, HEADS, decodes=False)(x)
    target = keras.Input((None,), dtype="int64", name="decoder_inputs")
    x = PositionalEmbedding(LENGTH, target_size, WIDTH)(target)
    x = TransformerBlock(WIDTH, HEADS, decodes=True)([x, memory])
    x = layers.Dropout(0.1)(x)
    output = layers.Dense(target_size, activation="softmax")(x)
    return keras.Model([source, target], output, name="transformer")


"""
## The texts and the training
"""


def vectorization(lines, split):
    layer = layers.TextVectorization(standardize="lower", split=split)
    layer.adapt(lines)
    return layer


def vectorizations(pairs):
    sources, targets = zip(*pairs, strict=True)
    return vectorization(list(sources), "character"), vectorization(
        [wrapped(x) for x in targets], "whitespace"
    )


def wrapped(date):
    """ "1951-05-03" -> "[start] 1 9 5 1 - 0 5 - 0 3 [end]"."""
    return f"[start] {' '.join(date)} [end]"


def train(folder: Path, count: int, epochs: int):
    keras.utils.set_random_seed(0)
    pairs = list(draw(count, seed=0))
    source, target = vectorizations(pairs)
    sources = source(tf.constant([x for x, _ in pairs]))
    targets = target(tf.constant([wrapped(y) for _, y in pairs]))
    model = build(source.vocabulary_size(), target.vocabulary_size())
    model.compile(
        keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy"
    )
    data = [sources, targets[:, :-1]]
    model.fit(data, targets[:, 1:], batch_size=64, epochs=epochs, verbose=2)
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "model.keras")
    words = [source.get_vocabulary(), target.get_vocabulary()]
    (folder / "vocabularies.json").write_text(json.dumps(words))


"""
## The loop that decodes

At each step the whole model runs again on all that was written, outside of any
graph, for one line after another.
"""


def decode(model, source, target, line: str) -> str:
    words = target.get_vocabulary()
    written = "[start]"
    ids = source(tf.constant([line]))
    for i in range(LENGTH - 1):
        given = target(tf.constant([written]))
        probabilities = model([ids, given], training=False)
        word = words[int(np.argmax(probabilities[0, i]))]
        if word == "[end]":
            break
        written += " " + word
    return written.removeprefix("[start]").replace(" ", "")


if __name__ == "__main__":
    output, count, epochs = [*sys.argv[1:], "12000", "4"][:3]
    train(Path(output), int(count), int(epochs))
