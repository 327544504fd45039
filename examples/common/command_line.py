"""Command lines of the programs."""

import argparse
import sys
from pathlib import Path

import keras_attn
from common import going_on
from common import prepared


def parse(
    arguments,
    description: str,
    output: str,
    add_options=None,
    attentions=(),
    **numbers,
):
    """Reads the options of a program that does one thing.

    Args:
        arguments: List of strings, or `None` for those of this process.
        description: What the program does, for `--help`.
        output: Default of `--output`.
        add_options: Function that gets the parser, to add further options.
        attentions: Names for `--rows`, of a program that compares them.
        **numbers: For each option that is a positive integer, its default and
            its help.
    """
    parser = _Parser(description=description)
    for name, (default, text) in numbers.items():
        parser.add_argument(
            f"--{name}", type=positive, default=default, help=text
        )
    if attentions:
        parser.add_argument(
            "--rows",
            nargs="+",
            choices=attentions,
            default=argparse.SUPPRESS,
            metavar="NAME",
            help=f"attentions to train, of {', '.join(map(repr, attentions))} "
            "(default: all)",
        )
        parser.set_defaults(rows=list(attentions))
    if add_options is not None:
        add_options(parser)
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of data and weights"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(output),
        metavar="DIR",
        help="folder of what the program makes",
    )
    sys.stdout.reconfigure(line_buffering=True)  # progress, through pipes too
    return _parse(parser, parser, arguments)


def run(commands, presets, attentions, arguments) -> int:
    """Reads the command line of `pronounce.py`, and runs the command.

    Args:
        commands: Functions, each named as its command. The options are its
            arguments, and it may return an exit status.
        presets: Names for `--preset`.
        attentions: Names for `--attention`.
        arguments: List of strings, or `None` for those of this process.
    """
    parser = _Parser(
        description="Learns to pronounce English words, then exports, serves "
        "and queries what it learned."
    )
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for function in commands:
        text, add_options = _COMMANDS[function.__name__]
        command = parsers.add_parser(
            function.__name__, help=text, description=text
        )
        command.set_defaults(command=function)
        command.add_argument(
            "--output",
            type=Path,
            default=Path("build/pronounce"),
            metavar="DIR",
            help="folder of the trained model, its export and its picture",
        )
        add_options(command.add_argument, presets, attentions)
    function = parser.parse_args(arguments).command
    command = parsers.choices[function.__name__]
    options = vars(_parse(parser, command, arguments))
    del options["command"]
    sys.stdout.reconfigure(line_buffering=True)  # progress, through pipes too
    try:
        return function(**options) or 0
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        going_on.print_rest(options["output"])
        return 130  # as shells have it


def load(folder: Path):
    """Loads the trained `Translator`, or ends the program if there is none."""
    if not folder.exists():
        raise SystemExit(
            f"There is no trained model in {folder}. Run `train` first, with "
            "the same `--output`."
        )
    return keras_attn.Translator.load(folder)


def _parse(parser, command, arguments):
    """Parses, with the options given to `prepare` as defaults of a command."""
    options = parser.parse_args(arguments)
    if getattr(options, "prepared", None):
        command.set_defaults(**prepared.options_of(options.prepared))
        options = parser.parse_args(arguments)
    return options


class _Parser(argparse.ArgumentParser):
    """Adds its default to the help of each option that has one."""

    def add_argument(self, *names, **settings):
        if settings.get("default") not in (None, argparse.SUPPRESS):
            text = settings.get("help", "")
            settings["help"] = f"{text} (default: %(default)s)".strip()
        return super().add_argument(*names, **settings)


def positive(text: str) -> int:
    """Reads an integer that is at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


# The options of the commands, besides `--output`.


def _training(add, presets, attentions):
    add(
        "--preset",
        choices=presets,
        default="demo",
        help="size of the model and length of the training",
    )
    add("--attention", choices=attentions, default="bahdanau")
    add("--beams", type=positive, default=5, help="width of the beam search")
    add("--seed", type=int, default=1)
    add(
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
        add(name, type=positive, metavar="N", help=text)


def _training_or_prepared(add, presets, attentions):
    _training(add, presets, attentions)
    add_prepared(add)


def add_prepared(add, required: bool = False):
    """Adds the option for batches that `prepare` wrote."""
    add(
        "--prepared",
        type=Path,
        required=required,
        metavar="DIR",
        help="use the batches that `prepare` wrote, and the options that it "
        "was given, unless others are given here",
    )


def add_models(add):
    """Adds the option for trained models."""
    add(
        "--models",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="models that `train --prepared` saved; several are an ensemble "
        "(default: model.keras in the folder of `--output`)",
    )


def _scoring(add, *_):
    add_prepared(add, required=True)
    add_models(add)


def _serving(add, *_):
    add(
        "--port",
        type=int,
        default=8500,
        help="port for gRPC, 0 for any free one",
    )


def _querying(add, *_):
    add("word", nargs="+", help="words to pronounce")
    add(
        "--server",
        default="localhost:8500",
        metavar="HOST:PORT",
        help="the server's gRPC address",
    )


def _plotting(add, *_):
    add("word", help="word to pronounce")
    add(
        "--picture",
        type=Path,
        metavar="FILE",
        help="PNG, PDF or SVG to write (default: attention.png in the folder)",
    )


def _nothing(*_):
    pass


# What each command does, and the function that adds its options.
_COMMANDS = {
    "train": ("Train, evaluate and save a model.", _training_or_prepared),
    "prepare": ("Write batches for `train --prepared`.", _training),
    "score": ("Evaluate and save what `train --prepared` trained.", _scoring),
    "demo": ("Train, export, serve, query and plot.", _training),
    "export": ("Export the model as a SavedModel.", _nothing),
    "serve": ("Serve the export.", _serving),
    "query": ("Query a running server.", _querying),
    "plot": ("Draw the attention to a word.", _plotting),
}
