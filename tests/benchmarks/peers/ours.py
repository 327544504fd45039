"""keras_attn: the net as a functional model, trained and decoded as it is.

The variant "xla" compiles the train step and the searches.
"""

import keras
import numpy as np
import tensorflow as tf
import workloads
from keras import layers

import keras_attn
from keras_attn.text.special_tokens import SPECIAL_TOKENS
from peers.plain_keras import KerasPeer


def build(workload, arrays):
    w = workload
    lstm = w.cell == "lstm"
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embed_source = layers.Embedding(w.source_size, w.embedding, mask_zero=True)
    embed_target = layers.Embedding(w.target_size, w.embedding, mask_zero=True)
    cell = layers.LSTMCell if lstm else keras_attn.GRUCell
    encoder = layers.Bidirectional(
        layers.RNN(cell(w.encoder), return_sequences=True, return_state=True)
    )
    decoder = keras_attn.AttentionDecoder(
        cell(w.units),
        keras_attn.BahdanauAttention(w.attention),
        order="post",
    )
    output_layer = layers.Dense(w.target_size)

    memory, *states = encoder(embed_source(source))
    count = len(states) // 2
    states = [
        layers.Concatenate()([states[i], states[count + i]])
        for i in range(count)
    ]
    hidden = decoder(embed_target(target), memory, initial_state=states)
    model = keras.Model([source, target], output_layer(hidden))

    def of_cell(name):
        return [arrays[f"{name}/{x}"] for x in ("kernel", "recurrent", "bias")]

    score = decoder.attention.score
    embed_source.set_weights([arrays["source_embedding"]])
    embed_target.set_weights([arrays["target_embedding"]])
    encoder.set_weights([*of_cell("forward"), *of_cell("backward")])
    decoder.cell.set_weights(of_cell("cell"))
    score.query_kernel.assign(arrays["query_kernel"])
    score.key_kernel.assign(arrays["memory_kernel"])
    score.v.assign(arrays["score_vector"][:, None])
    decoder.attentional.set_weights([arrays["vector_kernel"]])
    output_layer.set_weights([arrays["output_kernel"], arrays["output_bias"]])
    return model


def text(size):
    """A `Text` of so many ids, the special ones counted."""
    words = [f"w{i}" for i in range(size - len(SPECIAL_TOKENS))]
    return keras_attn.Text.from_lines(words, split="whitespace")


def export(workload, folder, **options):
    """Exports the net with its beam search; returns texts to translate."""
    model = build(workload, workloads.weights(workload))
    texts = text(workload.source_size), text(workload.target_size)
    search = keras_attn.BeamSearch(
        workload.width, max_length=workload.target_length
    )
    keras_attn.Translator(model, *texts, search).export(folder, **options)
    tokens = np.array(texts[0].tokens)
    ids = workloads.batch(workload, 32)[0]
    # One less, since the text itself adds the end token.
    return [" ".join(row) for row in tokens[ids[:, 1:]]]


class Peer(KerasPeer):
    def __init__(self, workload, threads, variant=""):
        super().__init__(workload, threads)
        self.xla = variant == "xla"
        self.net = build(workload, self.arrays)
        self.net.compile(
            "adam",
            loss=keras_attn.SequenceCrossentropy(),
            jit_compile=self.xla,
        )
        self.texts = text(workload.source_size), text(workload.target_size)

    def greedy(self, size):
        length = self.workload.target_length
        return self.search(keras_attn.GreedySearch(max_length=length), size)

    def beam(self, size):
        width = self.workload.width
        search = keras_attn.BeamSearch(
            width,
            num_hypotheses=width,
            max_length=self.workload.target_length,
        )
        return self.search(search, size)

    def search(self, search, size):
        translator = keras_attn.Translator(
            self.net, *self.texts, search, jit_compile=self.xla
        )

        def run(source):
            found = translator.decode_ids(source)
            tokens = found.tokens
            if search.num_hypotheses == 1:
                tokens = tokens[:, 0]
            return tokens, found.scores, found.alignments

        return self.decode(tf.function(run, jit_compile=self.xla), size)
