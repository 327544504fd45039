"""Small translators with seeded weights, one for each shape of a model.

`MAKERS` read `LINES` and return the same every time. `OTHERS` sample, or read
the arrays of `sources(name)`.

They are not trained, so their outputs mean nothing. But the outputs vary in
length and some are cut, as the tests need. Each is made in about a second.
"""

import functools

import keras
import numpy as np
from keras import layers

import keras_attn

SOURCE = keras_attn.Text("abcdeé", split="characters")
TARGET = keras_attn.Text(
    ["AA", "B", "K", "D", "EH", "ñ"], split="whitespace", max_length=20
)
WORDS = keras_attn.Text(
    ["abc", "dead", "bad", "cab"],
    split="whitespace",
    lowercase=True,
    max_length=30,
    too_long="error",
)
LINES = ["abc", "", "dead", "é?é", "edcbaabcde", "b", "bad cab", "aaaaa"]


class Toys:
    """`toys["pre"]` is a `Translator`; its models are made once."""

    def __init__(self):
        self._made = {}

    def __getitem__(self, name):
        if name not in self._made:
            self._made[name] = (MAKERS | OTHERS)[name]()
        return self._made[name]


def model(decoder, encoder=None, seed=24, source_text=SOURCE):
    """Returns an encoder, a decoder and logits, with large weights."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(source_text.size, 8, mask_zero=True)(source)
    memory, states = (encoder or gru_encoder)(memory)
    embedded = layers.Embedding(TARGET.size, 6, mask_zero=True)(target)
    hidden = decoder(embedded, memory, initial_state=states)
    logits = layers.Dense(TARGET.size)(hidden)
    made = keras.Model([source, target], logits)
    speak_up(made, seed)
    return made


def speak_up(made, seed):
    """Enlarges a model's weights; the seeds are chosen for varied texts."""
    random = np.random.default_rng(seed)
    made.set_weights(
        [
            random.normal(scale=0.9, size=x.shape).astype(x.dtype)
            for x in made.get_weights()
        ]
    )


def gru_encoder(memory):
    memory, forward, backward = layers.Bidirectional(
        layers.GRU(4, return_sequences=True, return_state=True)
    )(memory)
    return memory, layers.Concatenate()([forward, backward])


def lstm_encoder(memory):
    memory, h, c = layers.LSTM(8, return_sequences=True, return_state=True)(
        memory
    )
    return memory, [h, c]


def no_state(memory):
    return memory, None


def pre():
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    search = keras_attn.BeamSearch(
        4, num_hypotheses=3, length_penalty=0.6, max_length=12
    )
    return keras_attn.Translator(model(decoder, seed=9), SOURCE, TARGET, search)


def greedy():
    search = keras_attn.GreedySearch(max_length=10)
    return keras_attn.Translator(_pre_model(), SOURCE, TARGET, search)


def feeding():
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(8), keras_attn.LuongAttention("general"), order="post"
    )
    search = keras_attn.BeamSearch(
        3, num_hypotheses=2, early_stopping="never", max_length=9
    )
    return keras_attn.Translator(
        model(decoder, lstm_encoder, seed=12), SOURCE, TARGET, search
    )


def stack():
    decoder = keras_attn.AttentionDecoder(
        [layers.GRUCell(5), layers.LSTMCell(8)],
        keras_attn.ScaledDotAttention(),
        order="post",
        input_feeding=False,
        emit="concatenated",
    )
    search = keras_attn.BeamSearch(2, max_length=8, early_stopping=True)
    return keras_attn.Translator(
        model(decoder, no_state, seed=0), SOURCE, TARGET, search
    )


def words():
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.LuongAttention("concat", 6), order="post"
    )
    search = keras_attn.BeamSearch(
        4,
        num_hypotheses=2,
        length_penalty=1.0,
        max_length=6,
        min_per_source=(0.5, 1),
        no_repeat_ngram=2,
        groups=2,
        diversity=0.4,
    )
    return keras_attn.Translator(
        model(decoder, seed=2, source_text=WORDS), WORDS, TARGET, search
    )


def transformer():
    """Keras's own layers: a Transformer whose decoder begins with a GRU."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(SOURCE.size, 8, mask_zero=True)(source)
    memory = keras_attn.PositionEmbedding(40)(memory)
    x = layers.LayerNormalization()(memory)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    memory = layers.Add()([memory, x])
    x = layers.Embedding(TARGET.size, 8, mask_zero=True)(target)
    x = keras_attn.SinePositionEncoding()(x)
    x = layers.GRU(8, return_sequences=True)(x)
    own = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization()(layers.Add()([x, own]))
    x = layers.Add()([x, layers.MultiHeadAttention(4, 2)(x, memory)])
    logits = layers.Dense(TARGET.size)(layers.LayerNormalization()(x))
    made = keras.Model([source, target], logits)
    speak_up(made, seed=77)
    search = keras_attn.BeamSearch(3, num_hypotheses=2, max_length=9)
    return keras_attn.Translator(made, SOURCE, TARGET, search)


def compiled():
    return keras_attn.Translator(
        _pre_model(),
        SOURCE,
        TARGET,
        keras_attn.BeamSearch(3, num_hypotheses=2, max_length=7),
        jit_compile=True,
    )


def ensemble():
    """Two models that attend in different ways."""
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(8), keras_attn.LuongAttention("general"), order="post"
    )
    models = [_pre_model(), model(decoder, lstm_encoder, seed=12)]
    search = keras_attn.BeamSearch(3, num_hypotheses=2, max_length=9)
    return keras_attn.Translator(models, SOURCE, TARGET, search)


def sampling():
    search = keras_attn.Sampling(
        max_length=12, num_hypotheses=2, repetition_penalty=1.2
    )
    return keras_attn.Translator(_pre_model(), SOURCE, TARGET, search)


def spectra():
    """Returns a model of frames; frames of zeros are padding."""
    source = keras.Input((None, 3), name="frames")
    memory = layers.Masking()(source)
    memory, states = gru_encoder(memory)
    return keras_attn.Translator(
        _model_of([source], memory, states, seed=3),
        None,
        TARGET,
        keras_attn.BeamSearch(3, num_hypotheses=2, max_length=8),
    )


def images():
    """Returns a model of images of a fixed size, with numbers beside them."""
    image = keras.Input((6, 4, 1), dtype="uint8", name="image")
    style = keras.Input((2,), name="style")
    memory = layers.Rescaling(1 / 128)(image)
    memory = layers.Conv2D(5, 3, strides=2, padding="same")(memory)
    memory = layers.Reshape((6, 5))(memory)  # 3 x 2 places
    state = layers.Dense(8)(style)
    return keras_attn.Translator(
        _model_of([image, style], memory, state, seed=6),
        None,
        TARGET,
        keras_attn.GreedySearch(max_length=7),
    )


def _model_of(sources, memory, states, seed):
    target = keras.Input((None,), dtype="int32", name="target")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(
        layers.Embedding(TARGET.size, 6, mask_zero=True)(target),
        memory,
        initial_state=states,
    )
    made = keras.Model([*sources, target], layers.Dense(TARGET.size)(hidden))
    speak_up(made, seed)
    return made


def sources(name):
    """Returns the sources that a toy reads."""
    random = np.random.default_rng(1)
    if name == "spectra":
        frames = random.normal(size=(4, 7, 3)).astype("float32")
        for row, length in enumerate([7, 3, 5, 1]):
            frames[row, length:] = 0
        return frames
    if name == "images":
        image = random.integers(0, 256, (4, 6, 4, 1), "uint8")
        return image, random.normal(size=(4, 2)).astype("float32")
    return LINES


@functools.cache
def _pre_model():
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    return model(decoder)


MAKERS = {
    "pre": pre,
    "greedy": greedy,
    "feeding": feeding,
    "stack": stack,
    "words": words,
    "transformer": transformer,
    "compiled": compiled,
}
OTHERS = {
    "ensemble": ensemble,
    "sampling": sampling,
    "spectra": spectra,
    "images": images,
}
