"""
Title: A trained model of yours, decoded and served as it is
Date created: 2026/11/26
Description: Plain Keras trained it; keras_attn searches, exports and serves it.

`tutorial.py` trains a Transformer as tutorials write it, in a process of its
own, without keras_attn. This program loads the saved model, gives it to a
`Translator`, compares the outputs with those of the tutorial's own loop, and
serves it: strings in, strings out.

    python examples/adopt.py

It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes
import keras
import tutorial  # Keras then knows the classes of its layers
from keras import layers

import keras_attn

"""
## The texts

A `Text` has the ids of the tutorial's `TextVectorization`, and splits as it
does. Targets begin and end with two of its words.
"""


def vectorizations(folder: Path):
    """Returns the tutorial's layers, from the vocabularies that it wrote."""
    words = json.loads((folder / "vocabularies.json").read_text())
    return [
        layers.TextVectorization(
            standardize="lower", split=split, vocabulary=x[2:]
        )
        for split, x in zip(["character", "whitespace"], words, strict=True)
    ]


def adopt(model, source, target):
    source_text = keras_attn.Text.from_text_vectorization(source)
    target_text = keras_attn.Text.from_text_vectorization(
        target, start="[start]", end="[end]"
    )
    search = keras_attn.GreedySearch(max_length=tutorial.LENGTH - 1)
    return keras_attn.Translator(model, source_text, target_text, search)


"""
## The same, and how long it takes
"""


def compare(model, texts, translator, lines):
    """Prints how many outputs are those of the tutorial's loop, and times."""
    translator(lines)  # traces the graph
    start = time.perf_counter()
    ours = translator(lines).text
    between = time.perf_counter()
    theirs = [tutorial.decode(model, *texts, line) for line in lines]
    end = time.perf_counter()
    same = sum(
        x.replace(" ", "") == y for x, y in zip(ours, theirs, strict=True)
    )
    print(
        f"\nOf {len(lines)} outputs, {same} are those of the tutorial's loop."
    )
    print(f"The loop took {end - between:.2f} s, the translator "
          f"{between - start:.3f} s.")  # fmt: skip
    return ours


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Serves a Transformer that plain Keras trained.",
        output="build/adopt",
        epochs=(4, "passes over the dates"),
        days=(12_000, "dates to train on"),
    )
    program = Path(__file__).with_name("tutorial.py")
    command = [sys.executable, program, options.output]
    subprocess.run(
        [*command, str(options.days), str(options.epochs)], check=True
    )
    model = keras.saving.load_model(options.output / "model.keras")
    texts = vectorizations(options.output)
    translator = adopt(model, *texts)

    lines, dates = map(list, zip(*tutorial.draw(50, seed=1), strict=True))
    found = compare(model, texts, translator, lines)
    right = sum(
        x.replace(" ", "") == y for x, y in zip(found, dates, strict=True)
    )
    print(f"Of {len(lines)} dates held out, {right} are read right.")

    folder = options.output / "models/dates"
    print(f"Exported to {translator.export(folder)}. The server says:")
    answers = common.serving.ask(folder, lines[:4])["text"]
    for line, answer in zip(lines, answers, strict=False):
        print(f"  {line:30} {answer}")


if __name__ == "__main__":
    main()
