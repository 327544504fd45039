"""
Title: An attention score of your own
Date created: 2026/11/21
Description: A mechanism in ten lines: trained, decoded, exported and served.

keras_attn has the scores of the papers. This program adds one, `DiagonalScore`,
and trains a decoder with it to read numbers aloud: "1984" becomes "one thousand
nine hundred eighty four". Then it exports, serves, queries and draws.

    python examples/your_own_score.py           # all of it, in about a minute

It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`. What all examples share is in `common/`.
"""

import common  # before Keras, as it silences TensorFlow's notes
import keras
from keras import layers
from keras import ops

import keras_attn

"""
## The score

A score is one number for each pair of a query and a key. Where source and
target say the same things in the same order, the right key is near the
diagonal. So we lower Luong's general score by the distance from the diagonal,
as Press et al. (2022) do in self-attention (https://arxiv.org/abs/2108.12409).
Two weights are learned: the cost of a step away from the diagonal, and the
pace, by which the source moves on with each token. As `call` has an argument
`position`, it is given the number of each query in the target.
"""


@keras.saving.register_keras_serializable("your_own_score")
class DiagonalScore(keras_attn.GeneralScore):
    """`query · W · key - cost · |source position - pace · position|`."""

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        self.cost = self.add_weight(name="cost", initializer="ones")
        self.pace = self.add_weight(name="pace", initializer="ones")

    def call(self, query, keys, position):
        place = ops.cast(ops.arange(ops.shape(keys)[1]), query.dtype)
        aim = self.pace * ops.cast(position, query.dtype)
        distance = ops.abs(place - ops.expand_dims(aim, -1))
        return super().call(query, keys) - self.cost * distance


"""
## Model and training

The score goes into an `Attention`, and that goes into the decoder.
"""


def train(numbers, epochs: int, seed: int, units: int = 96):
    keras.utils.set_random_seed(seed)
    digits = keras_attn.Text("0123456789", split="characters")
    words = keras_attn.Text(common.numbers.WORDS, split="whitespace")
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedded = layers.Embedding(digits.size, 16, mask_zero=True)(source)
    gru = layers.GRU(units // 2, return_sequences=True, return_state=True)
    memory, *last = layers.Bidirectional(gru)(embedded)
    attention = keras_attn.Attention(DiagonalScore())
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(units), attention, order="post"
    )
    embedded = layers.Embedding(words.size, 32, mask_zero=True)(target)
    hidden = decoder(embedded, memory, initial_state=layers.Concatenate()(last))
    model = keras.Model([source, target], layers.Dense(words.size)(hidden))
    lines = [str(x) for x in numbers], [common.numbers.say(x) for x in numbers]
    data = keras_attn.pairs(
        *lines, digits, words, batch_size=128, buckets=4, seed=seed
    )
    rate = keras.optimizers.schedules.CosineDecay(4e-3, epochs * len(data))
    adam = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(adam, loss=keras_attn.SequenceCrossentropy())
    keras_attn.check(model, data)  # mistakes show now, not after training
    model.fit(data, epochs=epochs, verbose=2, shuffle=False)  # `pairs` shuffles
    search = keras_attn.BeamSearch(4, num_hypotheses=2, max_length=16)
    return keras_attn.Translator(model, digits, words, search), attention.score


"""
## Export, server, client and picture

The export holds the operations of the score, so no server needs its class.
"""


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Trains and serves a decoder whose attention has a score of its own.",
        output="build/your_own_score",
        epochs=(4, "passes over the numbers"),
        numbers=(20_000, "numbers to train on"),
    )
    numbers, held_out = common.numbers.draw(options.numbers, options.seed)
    translator, score = train(numbers, options.epochs, options.seed)
    common.numbers.evaluate(translator, held_out)
    print(
        f"With each word the diagonal moves on by {float(score.pace):.2f} "
        f"digits; a digit away from it costs {float(score.cost):.2f}."
    )
    folder, shown = options.output / "models/numbers", common.numbers.SHOWN
    print(f"Exported to {translator.export(folder)}. The server says:")
    answer = common.serving.ask(folder, [str(number) for number in shown])
    common.numbers.print_answers(shown, answer)
    result = translator([str(shown[-1])])[0]
    keras_attn.plot_attention(result).savefig(options.output / "attention.png")
    print(f"What it attended to is drawn in {options.output}/attention.png.")


if __name__ == "__main__":
    main()
