"""
Title: Pronouncing English words with attention
Date created: 2026/11/21
Description: Letters to phonemes on CMUdict: train, export, serve, query, plot.

How is "neighborhood" said? This program learns it from a dictionary: its model
reads the letters of a word and writes phonemes, one at a time, attending at
each step to the letters that matter for the next sound. It then goes all the
way to production: the trained model, with its beam search, becomes one
SavedModel that takes strings and gives strings, a server hosts that, and a
client asks it.

    python examples/pronounce.py demo            # all of it, in a few minutes

or a step at a time:

    python examples/pronounce.py train
    python examples/pronounce.py export
    python examples/pronounce.py serve           # leave it running
    python examples/pronounce.py query neighborhood pneumonia
    python examples/pronounce.py plot neighborhood

It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`.
"""

import argparse
import gzip
import hashlib
import lzma
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# Before TensorFlow starts: its notes on this machine's hardware are no errors.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
from keras import layers  # noqa: E402

import keras_attn  # noqa: E402

DICTIONARY = Path(__file__).parent / "data" / "cmudict.dict.xz"

"""
## Data

The CMU Pronouncing Dictionary gives 125,000 words of letters and apostrophes,
one in fifteen with more than one pronunciation. A line of it looks like this:

    tomato(2) T AH0 M AA1 T OW2

We leave the digits away, which mark the stress of vowels, as the papers on
this task do. Two pronunciations that differ in stress alone become one.
"""


class Split(NamedTuple):
    """Words with their pronunciations, for three purposes."""

    train: dict[str, list[str]]
    validation: dict[str, list[str]]
    test: dict[str, list[str]]


def read_dictionary(path: Path = DICTIONARY) -> dict[str, list[str]]:
    pronunciations = {}
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry, *phonemes = line.split("#")[0].split()
            word = entry.split("(")[0]
            if re.fullmatch("[a-z']+", word):
                add(pronunciations, word, phonemes)
    return pronunciations


def add(pronunciations, word, phonemes):
    pronunciation = " ".join(phoneme.rstrip("012") for phoneme in phonemes)
    known = pronunciations.setdefault(word, [])
    if pronunciation not in known:
        known.append(pronunciation)


"""
Which words are held out follows from the words themselves, by a hash: the same
on every machine, whatever the order of the file, and a word that is added one
day moves no other. Five in a hundred are for the test, one for watching
progress. All pronunciations of a word stay together.
"""


def split_by_hash(pronunciations: dict[str, list[str]]) -> Split:
    split = Split({}, {}, {})
    # Sorted by hash, so that any number of first words is a fair sample.
    for word in sorted(pronunciations, key=hash_of):
        percent = hash_of(word) % 100
        part = 2 if percent < 5 else 1 if percent < 6 else 0
        split[part][word] = pronunciations[word]
    return split


def hash_of(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")


"""
The papers use another split of an older edition, 12,000 words for the test.
Whoever has its files can compare with them: `--split DIR`.
"""


def read_split(folder: Path) -> Split:
    def read(name):
        pronunciations = {}
        with gzip.open(folder / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                word, phonemes = line.rstrip("\n").lower().split("\t")
                add(pronunciations, word, phonemes.upper().split())
        return dict(sorted(pronunciations.items(), key=lambda w: hash_of(w[0])))

    train, test = read("train.tsv.gz"), read("test.tsv.gz")
    listed = (folder / "dev-words.seed0.txt").read_text(encoding="utf-8")
    held_out = set(listed.lower().split())
    validation = {w: p for w, p in train.items() if w in held_out}
    train = {w: p for w, p in train.items() if w not in held_out}
    return Split(train, validation, test)


"""
## The model

An ordinary functional Keras model. The encoder reads the letters in both
directions; `AttentionDecoder` runs an LSTM cell over the phonemes that came
before, with a memory of the encoder's outputs to attend to; a `Dense` layer
says how likely each phoneme is next. For training that is all, and for
decoding there is no second model to write.
"""


class Preset(NamedTuple):
    """What to train, and how well that does."""

    units: int
    embedding: int
    dropout: float
    batch_size: int
    epochs: int
    promise: tuple[float, float] | None = None  # percent WER, PER, at most


PRESETS = {
    "small": Preset(128, 32, 0.1, 64, 3),
    "demo": Preset(256, 64, 0.1, 96, 4, promise=(36.0, 9.0)),
    "large": Preset(384, 96, 0.3, 64, 15),
}

# Each with its paper's place for attention: before the cell's step, so that
# the context enters the cell, or after it.
ATTENTIONS = {
    "bahdanau": ("pre", lambda u: keras_attn.BahdanauAttention(u)),
    "luong-dot": ("post", lambda u: keras_attn.LuongAttention("dot")),
    "luong-general": ("post", lambda u: keras_attn.LuongAttention("general")),
    "luong-concat": (
        "post",
        lambda u: keras_attn.LuongAttention("concat", units=u),
    ),
    "scaled-dot": ("post", lambda u: keras_attn.ScaledDotAttention()),
}


def build_model(letters, phonemes, preset: Preset, attention: str):
    units, size, dropout = preset.units, preset.embedding, preset.dropout
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")

    # Letters, read in both directions. The last states of both start off the
    # decoder.
    embedded = layers.Embedding(letters.size, size, mask_zero=True)(source)
    encoder = layers.Bidirectional(
        layers.LSTM(units // 2, return_sequences=True, return_state=True)
    )
    memory, *states = encoder(layers.Dropout(dropout)(embedded))
    hidden, carry = states[0::2], states[1::2]
    start = [
        layers.Dense(units, activation="tanh")(layers.Concatenate()(both))
        for both in (hidden, carry)
    ]

    # Phonemes, each from those before it and the letters attended to.
    order, make = ATTENTIONS[attention]
    embedded = layers.Embedding(phonemes.size, size, mask_zero=True)(target)
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(units), make(units), order=order
    )
    decoded = decoder(
        layers.Dropout(dropout)(embedded),
        layers.Dropout(dropout)(memory),
        initial_state=start,
    )
    logits = layers.Dense(phonemes.size)(layers.Dropout(dropout)(decoded))
    return keras.Model([source, target], logits)


"""
## Training

`Text` turns words into ids and ids into words, `pairs` makes batches of words
of about the same length, and the loss leaves out the padding. The learning rate
climbs for 200 steps before it falls along a cosine: without that an unlucky
start can cost an epoch.
"""


LONGEST = 40  # phonemes to decode; the dictionary's longest word has 28


def train(split: Split, preset: Preset, attention: str, beams: int, seed: int):
    keras.utils.set_random_seed(seed)
    words = [w for w, several in split.train.items() for _ in several]
    spoken = [one for several in split.train.values() for one in several]
    letters = keras_attn.Text.from_lines(
        words, split="characters", lowercase=True
    )
    phonemes = keras_attn.Text.from_lines(spoken, split="whitespace")

    model = build_model(letters, phonemes, preset, attention)
    steps = preset.epochs * math.ceil(len(words) / preset.batch_size)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=2e-3, warmup_steps=min(200, steps // 4)
    )
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=5.0),
        loss=keras_attn.SequenceCrossentropy(),
    )
    print(
        f"Training on {len(split.train):,} words with {attention} attention, "
        f"{model.count_params():,} parameters, {preset.epochs} epochs."
    )
    greedy = keras_attn.Translator(
        model, letters, phonemes, search=keras_attn.GreedySearch(LONGEST)
    )
    data = keras_attn.pairs(
        words,
        spoken,
        letters,
        phonemes,
        batch_size=preset.batch_size,
        seed=seed,
    )
    keras_attn.check(model, data)  # mistakes show now, not after training
    model.fit(
        data,
        epochs=preset.epochs,
        shuffle=False,  # as `pairs` does that
        callbacks=[Progress(greedy, first(split.validation, 500))],
        verbose=1 if sys.stdout.isatty() else 0,
    )
    search = keras_attn.BeamSearch(
        beams, num_hypotheses=min(beams, 3), max_length=LONGEST
    )
    return keras_attn.Translator(model, letters, phonemes, search=search)


class Progress(keras.callbacks.Callback):
    """Prints a line an epoch: loss, error rate on words held out, time."""

    def __init__(self, translator, held_out: dict[str, list[str]]):
        super().__init__()
        self.translator = translator
        self.held_out = held_out

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        rates = score(self.translator, self.held_out)
        print(
            f"epoch {epoch + 1}/{self.params['epochs']}   "
            f"loss {logs['loss']:.4f}   "
            f"validation phoneme error rate {rates.token:.1%}   "
            f"{time.monotonic() - self.start:.0f} s"
        )


def first(pronunciations: dict[str, list[str]], number: int):
    return dict(list(pronunciations.items())[:number])


"""
## Evaluation

A word is right if the model gives any of its pronunciations. Where it gives
none, the nearest one says how many phonemes are wrong.

For comparison: on this dictionary, with another sample of words held out,
CMUSphinx reports a word error rate of 33.9 % for its n-gram model and about
31 % for its large LSTM. On the published split the n-gram has 24.4 %, and Yao
and Zweig (2015) have 23.6 % with a phoneme error rate of 5.5 %. Numbers of one
split say nothing about the other.
"""


def score(translator, pronunciations: dict[str, list[str]]):
    hypotheses = translator(list(pronunciations)).text
    return keras_attn.error_rates(
        [hypothesis.split() for hypothesis in hypotheses],
        [
            [one.split() for one in several]
            for several in pronunciations.values()
        ],
    )


# Chosen by hand among the words our split holds out, to be about as hard as
# the rest. The last one is drawn.
SHOWN = (
    "straightaway",
    "schwichtenberg",
    "pneumonia",
    "serendipity",
    "neighborhood",
)


def show(translator, pronunciations: dict[str, list[str]]):
    words = list(SHOWN)
    if not set(words) <= set(pronunciations):
        words = list(pronunciations)[: len(SHOWN)]
    print("\nWords it has never seen:")
    for word, result in zip(words, translator(words), strict=True):
        wanted = pronunciations[word]
        verdict = "as in" if result.text in wanted else "but in"
        print(
            f"  {word:14} {result.text:32} {result.score:7.3f}   {verdict} the "
            f"dictionary: {', '.join(wanted)}"
        )


"""
## Export, server, client

An export is a folder of numbered versions, each a SavedModel with the
vocabularies and the beam search inside. TensorFlow Serving takes it as it is;
for development, keras-attn-serving has a server with the same protocol and the
same flags.
"""


def server_command(export: Path, port: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "keras_attn_serving",
        f"--model_base_path={export}",
        "--model_name=pronounce",
        f"--port={port}",
    ]


@contextmanager
def running_server(export: Path):
    """Runs the server, and yields its address once it answers."""
    server = subprocess.Popen(
        server_command(export, port=0), stdout=subprocess.PIPE, text=True
    )
    try:
        ready = server.stdout.readline()  # "serving model ... at HOST:PORT"
        if not ready:
            raise SystemExit("The server did not start; it says why above.")
        print(ready, end="")
        yield ready.split()[-1]
    finally:
        server.terminate()
        server.wait()


def query(address: str, words: Iterable[str]):
    """Asks the server. This part needs no TensorFlow."""
    from keras_attn_serving import Client

    with Client(address, model="pronounce") as client:
        result = client.predict(list(words), signature="nbest")
    for word, texts, scores in zip(
        words, result["texts"], result["scores"], strict=True
    ):
        print(f"  {word}")
        for text, value in zip(texts, scores, strict=True):
            if value > float("-inf"):  # else there were fewer
                print(f"    {value:7.3f}  {text}")


"""
## The picture

Every result knows what the model attended to, so that the picture shows the
very decoding that was returned.
"""


def plot(translator, word: str, path: Path):
    result = translator([word])[0]
    keras_attn.plot_attention(result).savefig(path)
    print(f"{word}: {result.text}. Its attention is drawn in {path}.")


"""
## Commands
"""


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    sys.stdout.reconfigure(line_buffering=True)  # progress, through pipes too
    return options.command(options) or 0


def train_command(options) -> int:
    started = time.monotonic()
    preset, split = prepare(options)
    translator = train(
        split, preset, options.attention, options.beams, options.seed
    )
    seconds = time.monotonic() - started
    rates = score(translator, split.test)
    word, phoneme = 100 * rates.sequence, 100 * rates.token
    name = f"split in {options.split}" if options.split else "our own split"
    print(
        f"\nTrained in {seconds:.0f} s. On {len(split.test):,} words held out "
        f"({name}), beam {options.beams}:\n"
        f"  word error rate {word:.2f} %, phoneme error rate {phoneme:.2f} %"
    )
    show(translator, split.test)
    options.output.mkdir(parents=True, exist_ok=True)
    translator.save(options.output / "translator")
    print(f"\nSaved in {options.output / 'translator'}.")
    return judge(word, phoneme, preset.promise)


def prepare(options) -> tuple[Preset, Split]:
    preset = PRESETS[options.preset]
    changes = {"units": options.units, "epochs": options.epochs}
    changes = {name: value for name, value in changes.items() if value}
    if options.split:
        split = read_split(options.split)
    else:
        split = split_by_hash(read_dictionary())
    if options.words:
        split = Split(*(first(part, options.words) for part in split))
    as_promised = options.attention == "bahdanau" and not (
        changes or options.words or options.split
    )
    if not as_promised:
        changes["promise"] = None
    return preset._replace(**changes), split


def judge(word: float, phoneme: float, promise) -> int:
    if promise is None:
        return 0
    limits = (
        f"word error rate <= {promise[0]} %, phoneme error rate <= "
        f"{promise[1]} %"
    )
    if word <= promise[0] and phoneme <= promise[1]:
        print(f"As promised: {limits}.")
        return 0
    print(f"NOT AS PROMISED: {limits}.", file=sys.stderr)
    return 1


def export_command(options):
    path = load(options).export(export_folder(options))
    print(f"Exported to {path}.")


def export_folder(options) -> Path:
    # A folder of models, as servers like it: one named after the model.
    return options.output / "models" / "pronounce"


def serve_command(options):
    command = server_command(export_folder(options), options.port)
    os.execv(sys.executable, command)  # this process becomes the server


def query_command(options):
    from keras_attn_serving import ServingError

    try:
        query(options.server, options.word)
    except ServingError as error:
        raise SystemExit(str(error)) from None


def plot_command(options):
    path = options.picture or options.output / "attention.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    plot(load(options), options.word, path)


def load(options):
    folder = options.output / "translator"
    if not folder.exists():
        raise SystemExit(
            f"There is no trained model in {folder}. Run `train` first, with "
            "the same `--output`."
        )
    return keras_attn.Translator.load(folder)


def demo_command(options) -> int:
    started = time.monotonic()
    failed = train_command(options)
    export_command(options)
    print("\nAsking the server:")
    with running_server(export_folder(options)) as address:
        query(address, SHOWN)
    plot(load(options), SHOWN[-1], options.output / "attention.png")
    print(f"All done in {time.monotonic() - started:.0f} s.")
    run = f"{sys.executable} {sys.argv[0]}"
    print(f"\nTo go on:\n  {run} serve\n  {run} query YOUR WORDS")
    return failed


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Learns to pronounce English words, then exports, serves "
        "and queries what it learned.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add_command(name, function, text):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(command=function)
        command.add_argument(
            "--output",
            type=Path,
            default=Path("build/pronounce"),
            metavar="DIR",
            help="folder of the trained model, its export and its picture "
            "(default: %(default)s)",
        )
        return command

    for name, function, text in (
        ("train", train_command, "Train, evaluate and save a model."),
        ("demo", demo_command, "Train, export, serve, query and plot."),
    ):
        command = add_command(name, function, text)
        add_training_options(command)
    add_command("export", export_command, "Export the model as a SavedModel.")
    command = add_command("serve", serve_command, "Serve the export.")
    command.add_argument(
        "--port",
        type=int,
        default=8500,
        help="port for gRPC, 0 for any free one (default: %(default)s)",
    )
    command = add_command("query", query_command, "Query a running server.")
    command.add_argument("word", nargs="+", help="words to pronounce")
    command.add_argument(
        "--server",
        default="localhost:8500",
        metavar="HOST:PORT",
        help="the server's gRPC address (default: %(default)s)",
    )
    command = add_command("plot", plot_command, "Draw the attention to a word.")
    command.add_argument("word", help="word to pronounce")
    command.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        help="PNG, PDF or SVG to write (default: attention.png in the folder)",
    )
    return parser.parse_args(arguments)


def add_training_options(command):
    command.add_argument(
        "--preset",
        choices=PRESETS,
        default="demo",
        help="size of the model and length of the training (default: "
        "%(default)s)",
    )
    command.add_argument(
        "--attention",
        choices=ATTENTIONS,
        default="bahdanau",
        help="(default: %(default)s)",
    )
    command.add_argument(
        "--beams",
        type=positive,
        default=5,
        help="width of the beam search (default: %(default)s)",
    )
    command.add_argument(
        "--seed", type=int, default=1, help="(default: %(default)s)"
    )
    command.add_argument(
        "--split",
        type=Path,
        metavar="DIR",
        help="use the published split: a folder with train.tsv.gz, "
        "test.tsv.gz and dev-words.seed0.txt",
    )
    for name, text in (
        ("--epochs", "train for another number of epochs than the preset's"),
        ("--units", "width of the model in place of the preset's"),
        ("--words", "use only so many words, for a quick trial"),
    ):
        command.add_argument(name, type=positive, metavar="N", help=text)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
