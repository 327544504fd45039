"""
Title: Translating with a pretrained model of Hugging Face
Date created: 2026/11/26
Description: From a downloaded directory to translations, BLEU and a server.

Thousands of translators are on Hugging Face's hub. `from_hugging_face` reads
one from its directory, without PyTorch and without transformers. This program
translates lines with it and reports the speed, compares them with references,
draws what the model attended to, exports it and queries a server.

    hf download Helsinki-NLP/opus-mt-en-fr --local-dir opus-mt-en-fr
    python examples/pretrained.py opus-mt-en-fr
    python examples/pretrained.py opus-mt-en-fr --lines my.en \\
        --references my.fr --picture attention.png
    python examples/pretrained.py opus-mt-en-fr --export models/en-fr --serve

For a multilingual model, name both languages as its tokenizer does:

    python examples/pretrained.py nllb --source eng_Latn --target fra_Latn

It needs keras-attn with its extras `examples` and `hugging-face`, and
keras-attn-serving with its extra `server`. What all examples share is in
`common/`.
"""

import argparse
import sys
import time
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes
import keras
from common import bleu
from common import sentences

import keras_attn

"""
## The translator

The directory says how to search: with how many beams, which length penalty,
which tokens are forced or forbidden. `--beams` changes the first of these and
keeps the others.
"""


def load(options):
    search = None  # that of the directory
    if options.beams is not None:
        search = {"num_beams": options.beams, "num_return_sequences": 1}
    return keras_attn.Translator.from_hugging_face(
        options.directory, search, options.source, options.target
    )


"""
## Translating

A translator takes any number of lines at once. Here it gets a batch at a time,
so that a bar can move. Batches have lines of about the same length, the longest
first: if the memory does not suffice, that shows at once.
"""


def translate(translator, lines: list[str], batch_size: int) -> list[str]:
    """Translates lines, and prints how long it took."""
    translator(lines[:1])  # makes the graph
    order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    found = [""] * len(lines)
    bar = keras.utils.Progbar(len(lines), unit_name="line")
    started = time.monotonic()
    for begin in range(0, len(lines), batch_size):
        batch = order[begin : begin + batch_size]
        texts = translator([lines[i] for i in batch], batch_size).text
        for i, text in zip(batch, texts, strict=True):
            found[i] = text
        bar.add(len(batch))
    seconds = time.monotonic() - started
    rate = len(lines) / seconds
    print(f"{seconds:.1f} s, {rate:.1f} sentences per second.")
    return found


def read(path: Path | None) -> list[str]:
    """Reads lines of a file, or of the standard input for `-`."""
    if path is None:
        return [*sentences.SHOWN]
    if str(path) == "-":
        return [line.rstrip("\r\n") for line in sys.stdin]
    return sentences.lines_of(path)


"""
## The picture, the export and the server
"""


def draw(translator, line: str, picture: Path):
    result = translator([line])[0]
    keras_attn.plot_attention(result, words=True).savefig(picture)
    print(f"What it attended to in the first line is drawn in {picture}.")


def serve(folder: Path, line: str):
    print("The server says:")
    (answer,) = common.serving.ask(folder, [line])["text"]
    print(f"  {line}\n  -> {answer}")


"""
## All steps in turn
"""


def main(arguments: list[str] | None = None):
    options = parse(arguments)
    lines = read(options.lines)
    references = read(options.references) if options.references else lines
    if not lines or len(references) != len(lines):
        raise SystemExit(
            f"There are {len(lines)} lines and {len(references)} references. "
            "One line is needed, and for each its reference."
        )
    translator = load(options)
    found = translate(translator, lines, options.batch_size)
    if options.references:
        score, signature = bleu.bleu(found, references)
        print(f"BLEU {score:.2f}   {signature}")
    if options.output:
        options.output.write_text("\n".join(found) + "\n", encoding="utf-8")
    else:
        for line, translation in zip(lines, found, strict=True):
            print(f"  {line}\n  -> {translation}")
    if options.picture:
        draw(translator, lines[0], options.picture)
    if options.export:
        print(f"Exported to {translator.export(options.export)}.")
    if options.serve:
        serve(options.export, lines[0])


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Translates with an encoder-decoder of Hugging Face."
    )
    add, positive = parser.add_argument, common.command_line.positive
    add("directory", type=Path, help="what `hf download` has fetched")
    for side in "source", "target":
        add(f"--{side}", metavar="LANGUAGE", help="for a model of several")
    for name, text in {
        "--lines": "lines to translate, - for the standard input; else a few "
        "of LibreOffice's help",
        "--references": "their translations, for BLEU",
        "--output": "where translations are written; else they are printed",
        "--picture": "where the attention to the first line is drawn",
    }.items():
        add(name, type=Path, metavar="FILE", help=text)
    add("--beams", type=positive, help="in place of what the directory says")
    add("--batch_size", type=positive, default=32, help="lines at once")
    add("--export", type=Path, metavar="BASE_PATH", help="where to export")
    add("--serve", action="store_true", help="ask a server of the export")
    options = parser.parse_args(arguments)
    if options.serve and not options.export:
        parser.error("--serve needs --export, the folder that is served")
    sys.stdout.reconfigure(line_buffering=True)  # progress, through pipes too
    return options


if __name__ == "__main__":
    main()
