"""
Title: An attention score of your own
Date created: 2026/11/21
Description: A mechanism in ten lines: trained, decoded, exported and served.

How well does a query match a key? keras_attn has the papers' answers; this
program adds one that it lacks. It trains a decoder with it to read numbers
aloud ("1984" becomes "one thousand nine hundred eighty four"), decodes with
beam search, exports, starts a server, asks it, and draws what was attended to.
The class `DiagonalScore` is all there is to write; the rest is as ever.

    python examples/your_own_score.py           # all of it, in about a minute

It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`.
"""

import argparse
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

# Before TensorFlow starts: its notes on this machine's hardware are no errors.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402
from keras import ops  # noqa: E402

import keras_attn  # noqa: E402

"""
## The score

A score is one number for each pair of a query and a key. Where source and
target tell the same things in the same order, keys near the diagonal are the
likely ones. So we take Luong's general score and lower it by the distance
from the diagonal, as Press et al. (2022) do in self-attention ("ALiBi",
https://arxiv.org/abs/2108.12409). How much a step away costs is learned, and
so is the diagonal's slope: how far the source moves on with each token.

`call` names `position`, the number of each query in the target, and so is
given it: by the layer, by the decoder in training, and in every step of a
search. `build` adds weights as in any Keras layer.
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
## The task

Numbers up to a million, drawn at random, and how they are said.
"""

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def say(number: int) -> str:
    for size, name in (1000, "thousand"), (100, "hundred"):
        if number >= size:
            head, rest = divmod(number, size)
            return f"{say(head)} {name}" + (f" {say(rest)}" if rest else "")
    if number < 20:
        return ONES[number]
    tens, rest = divmod(number, 10)
    return TENS[tens] + (f" {ONES[rest]}" if rest else "")


def draw_numbers(count: int, seed: int) -> list[int]:
    # As many short ones as long ones: the exponent is drawn evenly.
    random = np.random.default_rng(seed)
    return [int(x) for x in 10 ** random.uniform(0, 6, count)]


"""
## The model

The score goes into an `Attention`, and that into the decoder. All the rest
is as with any other mechanism.
"""


def build_model(digits, words, units: int = 96):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory, *states = layers.Bidirectional(
        layers.GRU(units // 2, return_sequences=True, return_state=True)
    )(layers.Embedding(digits.size, 16, mask_zero=True)(source))
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(units),
        keras_attn.Attention(DiagonalScore()),
        order="post",
        name="decoder",
    )
    decoded = decoder(
        layers.Embedding(words.size, 32, mask_zero=True)(target),
        memory,
        initial_state=layers.Concatenate()(states),
    )
    return keras.Model([source, target], layers.Dense(words.size)(decoded))


def train(numbers: list[int], epochs: int, seed: int):
    keras.utils.set_random_seed(seed)
    lines = [str(number) for number in numbers]
    said = [say(number) for number in numbers]
    digits = keras_attn.Text("0123456789", split="characters")
    words = keras_attn.Text(
        [*ONES, *TENS[2:], "hundred", "thousand"], split="whitespace"
    )
    data = keras_attn.pairs(
        lines, said, digits, words, batch_size=128, buckets=4, seed=seed
    )
    rate = keras.optimizers.schedules.CosineDecay(4e-3, epochs * len(data))
    model = build_model(digits, words)
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=1.0),
        loss=keras_attn.SequenceCrossentropy(),
    )
    keras_attn.check(model, data)  # mistakes show now, not after training
    # `pairs` shuffles.
    model.fit(data, epochs=epochs, shuffle=False, verbose=2)
    search = keras_attn.BeamSearch(4, num_hypotheses=2, max_length=16)
    return keras_attn.Translator(model, digits, words, search=search)


def share_right(translator, numbers: list[int]) -> float:
    found = translator([str(number) for number in numbers]).text
    right = [say(x) == text for x, text in zip(numbers, found, strict=True)]
    return sum(right) / len(right)


"""
## Export and server

The export holds the score's operations like all others. The server has never
heard of `DiagonalScore`, and TensorFlow Serving has not either.
"""


@contextmanager
def running_server(folder: Path):
    """Serves the export on a free port, and yields the address."""
    command = [
        *(sys.executable, "-m", "keras_attn_serving"),
        f"--model_base_path={folder}",
        "--model_name=numbers",
        "--port=0",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        ready = server.stdout.readline()  # "serving model ... at HOST:PORT"
        if not ready:
            raise SystemExit("The server did not start; it says why above.")
        yield ready.split()[-1]
    finally:
        server.terminate()
        server.wait()


def ask(address: str, numbers: list[int]):
    from keras_attn_serving import Client

    with Client(address, model="numbers") as client:
        answer = client.predict([str(number) for number in numbers])
    for number, text, score in zip(
        numbers, answer["text"], answer["score"], strict=True
    ):
        verdict = "right" if text == say(number) else "wrong"
        print(f"  {number:>6}  {text}  ({score:.2f}, {verdict})")


"""
## All of it
"""

ASKED = [7, 42, 365, 1984, 20_026, 123_456]


def main(arguments: list[str] | None = None):
    options = parse(arguments)
    held_out = [*draw_numbers(300, options.seed + 1), *ASKED]
    held_out = {x for x in held_out if x >= 100}  # the smallest it must know
    drawn = draw_numbers(options.numbers, options.seed)
    translator = train(
        [number for number in drawn if number not in held_out],
        options.epochs,
        options.seed,
    )
    share = share_right(translator, sorted(held_out))
    print(f"Of {len(held_out)} numbers held out, {share:.1%} are said right.")
    score = translator.model.get_layer("decoder").attention.score
    print(
        f"With each word the diagonal moves on by {float(score.pace):.2f} "
        f"digits; a digit away from it costs {float(score.cost):.2f}."
    )

    folder = options.output / "models" / "numbers"
    print(f"Exported to {translator.export(folder)}. The server says:")
    with running_server(folder) as address:
        ask(address, ASKED)

    picture = options.output / "attention.png"
    result = translator([str(ASKED[-1])])[0]
    keras_attn.plot_attention(result).savefig(picture)
    print(f"What it attended to is drawn in {picture}.")


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Trains, exports, serves and queries a decoder whose "
        "attention has a score of its own.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--epochs", type=int, default=4, help="passes over the numbers")
    add("--numbers", type=int, default=20_000, help="numbers to train on")
    add("--seed", type=int, default=1, help="seed of data and weights")
    add(
        "--output",
        type=Path,
        default=Path("build/your_own_score"),
        help="folder of the export and the picture",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
