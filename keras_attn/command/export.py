"""`keras-attn export`: from a directory to a SavedModel, without Python.

The command `keras-attn` is of keras-attn-serving, which finds this by the
entry point `keras_attn.commands`.
"""

import argparse
import json
import pathlib
import sys

from keras_attn.decoding.translator import Translator

_PROGRAM = "keras-attn export"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status.

    It is 0 if all went well, and 2 for wrong arguments or files.
    """
    flags = parser().parse_args(arguments)
    try:
        translator = _translator(flags)
        path = translator.export(
            flags.base_path,
            signatures="all" if "all" in flags.signatures else flags.signatures,
            jit_compile=flags.jit_compile,
            weights=flags.weights,
        )
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the arguments."""
    result = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Exports a model of Hugging Face, or a translator that "
        "`Translator.save` wrote, for TensorFlow Serving. Prints the path of "
        "the version.",
        allow_abbrev=False,
    )
    result.add_argument(
        "directory", metavar="DIRECTORY", help="the model or translator"
    )
    result.add_argument(
        "base_path",
        metavar="BASE_PATH",
        help="directory of the versions, the server's --model_base_path",
    )
    for side in ("source", "target"):
        result.add_argument(
            f"--{side}",
            metavar="LANGUAGE",
            help=f"language of the {side}, for a model of several",
        )
    result.add_argument(
        "--dtype", help="dtype policy of the model's layers, such as bfloat16"
    )
    result.add_argument(
        "--search",
        nargs="+",
        action="extend",
        type=_field,
        metavar="NAME=VALUE",
        help="fields that replace those of generation_config.json, such as "
        "num_beams=1",
    )
    result.add_argument(
        "--special_tokens",
        action="store_true",
        help="let sources spell special tokens, such as </s>",
    )
    result.add_argument(
        "--signatures",
        nargs="+",
        default=[],
        metavar="NAME",
        help="further signatures: options, score, step or all",
    )
    result.add_argument(
        "--jit_compile",
        action="store_true",
        help="let XLA compile the search for a few sizes; the server needs "
        "--xla_cpu_compilation_enabled or --xla_gpu_compilation_enabled",
    )
    result.add_argument(
        "--weights",
        default="float32",
        choices=["float32", "bfloat16", "int8"],
        help="how matrices are stored (default: %(default)s)",
    )
    return result


def _field(text):
    """Returns the name and the value of a field."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        raise argparse.ArgumentTypeError(
            f"a field needs a value as in JSON, such as num_beams=1, got {text}"
        ) from None


def _each_once(fields):
    found = dict(fields)
    if len(found) < len(fields):
        names = [x for x, _ in fields]
        twice = sorted({x for x in names if names.count(x) > 1})
        raise ValueError(
            "--search takes each field once. Received: "
            f"{', '.join(twice)} more than once. Leave one of its values."
        )
    return found


def _translator(flags):
    names = "source", "target", "dtype", "special_tokens", "search"
    given = {name: getattr(flags, name) for name in names}
    given = {name: x for name, x in given.items() if x not in (None, False)}
    if "search" in given:
        given["search"] = _each_once(given["search"])
    path = pathlib.Path(flags.directory)
    if path.is_dir() and not (path / "config.json").is_file():
        if given:
            raise ValueError(
                f"{', '.join(f'--{x}' for x in given)} are for models of "
                f"Hugging Face. Received: {path}, which has no `config.json`. "
                "Leave them out for a translator that was saved."
            )
        return Translator.load(path)
    return Translator.from_hugging_face(path, **given)


if __name__ == "__main__":
    sys.exit(main())
