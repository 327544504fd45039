"""Writes and reads a `Text`: vocabulary, options and splitter files."""

import json
import pathlib
import shutil
from collections.abc import Mapping

import keras
import tensorflow as tf

from keras_attn.text import built_in
from keras_attn.text import byte_pair as byte_pair  # Keras then knows its class
from keras_attn.text import integer_ids as integer_ids
from keras_attn.text import keras_vocabulary as keras_vocabulary
from keras_attn.text import subwords as subwords
from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.splitter import Splitter
from keras_attn.text.vocabulary import fits_lines

_LINES = ("", "to be or not to be", "Hello, world!", "été 日本語 12")


def write(text, path: pathlib.Path) -> None:
    """Writes a text's vocabulary, and its options and files beside it.

    Args:
        text: `Text`.
        path: Path of the vocabulary file.
    """
    options = {
        "split": text.split,
        "lowercase": text.lowercase,
        "max_length": text.max_length,
        "too_long": text.too_long,
        "normalization": text.normalization,
    }
    files = {}
    if isinstance(text.split, Splitter):
        part = keras.saving.serialize_keras_object(text.splitter)
        for argument in text.splitter.assets:
            if part["config"][argument] is not None:
                files[argument] = part["config"][argument]
                part["config"][argument] = None
        options["split"] = part
        options["split_files"] = {
            argument: f"{path.name}.split.{argument}" for argument in files
        }
        _require_readable(text, part, files)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_vocabulary(text, path)
    for argument, file in files.items():
        copy = path.with_name(options["split_files"][argument])
        if not copy.exists() or not copy.samefile(file):
            shutil.copyfile(file, copy)
    _options_path(path).write_text(json.dumps(options, indent=2) + "\n")


def write_vocabulary(text, path: pathlib.Path) -> None:
    """Writes a line for each id, `token<TAB>count`."""
    content = "".join(line + "\n" for line in lines(text))
    path.write_text(content, encoding="utf-8", newline="")


def lines(text) -> list[str]:
    """Returns the lines of a text's vocabulary file.

    If a token has a line break or a tab, all tokens are escaped as JSON. Only
    a splitter with its own tokens has such tokens; loading takes its tokens
    from the splitter.
    """
    tokens = text.tokens
    if not fits_lines(tokens):
        tokens = [json.dumps(token, ensure_ascii=False) for token in tokens]
    counted = zip(text.tokens, tokens, strict=True)
    return [f"{shown}\t{text.counts.get(t, 0)}" for t, shown in counted]


def counts(lines) -> dict[str, int]:
    """Returns the counts of a vocabulary's tokens, but the special ones."""
    pairs = [line.rsplit("\t", 1) for line in lines]
    found = {token: int(count) for token, count in pairs}
    for token in SPECIAL_TOKENS:
        del found[token]
    return found


def read(path: pathlib.Path, custom_objects) -> tuple[list[str], dict]:
    """Returns the vocabulary's lines, and the options of a `Text`."""
    if not path.exists() or not _options_path(path).exists():
        raise FileNotFoundError(
            f"`Text.load` needs the vocabulary {path} and its options "
            f"{_options_path(path)}. Received: a path for which one of these "
            "is missing. `Text.save(path)` writes both."
        )
    with open(path, encoding="utf-8", newline="\n") as file:
        found = file.read().split("\n")[:-1]
    options = json.loads(_options_path(path).read_text())
    files = {
        argument: beside(path, name, _options_path(path))
        for argument, name in options.pop("split_files", {}).items()
    }
    if isinstance(options["split"], dict):
        _require_files(path, files)
        own = _options_path(path)
        _require_no_paths(options["split"], custom_objects, own)
        options["split"] = _part(
            options["split"], files, custom_objects, f"The text {path}"
        )
    # Files without the option are from versions that always used NFKC.
    return found, {"normalization": "NFKC"} | options


def beside(path: pathlib.Path, name, source: pathlib.Path) -> pathlib.Path:
    """Returns the path of a file in the same directory as another.

    A saved text may come from a stranger, so loading it must not read files
    of other directories. Symbolic links are followed, since caches use them.

    Args:
        path: Path of the other file.
        name: Name of the file.
        source: File that contains the name, for messages.

    Raises:
        ValueError: If the name is not a plain file name.
    """
    is_name = isinstance(name, str) and name not in ("", ".", "..")
    if not is_name or pathlib.PurePath(name).name != name:
        raise ValueError(
            f"{source} may name only files that lie beside it, without a "
            f"directory. Received: {name!r}. `save()` did not write this "
            "file; do not load it unless you know where it is from."
        )
    return path.with_name(name)


def _require_no_paths(stored, custom_objects, source):
    """Raises if a serialised splitter contains the path of a file.

    The files of a splitter are saved beside the vocabulary, without their
    paths. So no config of this package's splitters contains a string, except
    for the arguments in `words`.
    """
    parts = stored if isinstance(stored, list) else ()
    if isinstance(stored, dict):
        parts = stored.values()
        for argument, value in _paths_in(stored, custom_objects or {}):
            raise ValueError(
                f"{source} may name files in `split_files` alone. Received: "
                f"{argument}={value!r:.100} of {stored['class_name']!r}. "
                "`save()` did not write this file; do not load it unless you "
                "know where it is from."
            )
    for part in parts:
        _require_no_paths(part, custom_objects, source)


def _paths_in(stored, custom_objects):
    """Yields the arguments of a serialised object that may be paths."""
    config, name = stored.get("config"), stored.get("class_name")
    if not isinstance(config, dict) or not isinstance(name, str):
        return
    registered = stored.get("registered_name") or name
    kind = keras.saving.get_registered_object(registered, custom_objects)
    kind = kind or custom_objects.get(name)
    assets = getattr(kind, "assets", ())
    words = getattr(kind, "words", ())  # strings that are no paths
    is_ours = any(
        str(x).startswith("keras_attn")
        for x in (registered, stored.get("module"))
    )
    for argument, value in config.items():
        may_be = argument in assets or (is_ours and argument not in words)
        if isinstance(value, str) and may_be:
            yield argument, value


def _part(stored, files, custom_objects, whose) -> Splitter:
    """Makes a splitter from its config and the paths of its files."""
    paths = {argument: str(file) for argument, file in files.items()}
    name = stored["class_name"]
    found = stored | {"config": stored["config"] | paths}
    try:
        part = keras.saving.deserialize_keras_object(found, custom_objects)
    except TypeError as error:
        if "Could not locate class" not in str(error):
            raise
        raise ValueError(
            f"{whose} needs the class of its splitter. Received: "
            f"{name!r}, which Keras does not know here. Pass the class, "
            f"`load(path, custom_objects={{{name!r}: {name}}})`, or register "
            "it, `@keras.saving.register_keras_serializable()`, in a module "
            "that is imported first."
        ) from error
    return built_in.get(part)


def _require_files(path, files):
    missing = [str(file) for file in files.values() if not file.exists()]
    if missing:
        raise FileNotFoundError(
            f"`Text.load` needs the files that `Text.save` wrote beside "
            f"{path}. Missing: {missing}. Copy them too."
        )


def _require_readable(text, part, files):
    """Raises if loading would make a different splitter, or fail."""
    kind = type(text.splitter)
    try:
        stored = json.loads(json.dumps(part))
        again = _part(stored, files, {kind.__name__: kind}, "It")
        again = type(text)(
            None
            if again.tokens is not None
            else text.tokens[len(SPECIAL_TOKENS) :],
            again,
            **{x: getattr(text, x) for x in ("lowercase", "normalization")},
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The text could be saved, but not loaded again, so nothing was "
            f"written. Received, when loading it on trial: {error!s:.500} Does "
            f"`{kind.__name__}.get_config()` return all arguments of the "
            "constructor, as values that JSON can hold?"
        ) from error
    lines = tf.constant([*_LINES, " ".join(text.tokens[4:104])])
    found, expected = (x.uncut_ids(lines).to_list() for x in (again, text))
    same = again.tokens == text.tokens and found == expected
    if not same:
        raise ValueError(
            "The text that would be loaded splits differently, so nothing was "
            f"written. Received: {part['config']!r:.300} from "
            f"`{kind.__name__}.get_config()`. Does it return all arguments of "
            "the constructor?"
        )


def files_of_sources(texts) -> dict:
    """Returns a translator's source texts by the names of their files.

    Args:
        texts: A `Text`, several by the names of inputs, or `None`.
    """
    if texts is None:
        return {}
    if not isinstance(texts, Mapping):
        return {"source.txt": texts}
    numbered = enumerate(texts.values(), start=1)
    return {f"source-{i}.txt": text for i, text in numbered}


def _options_path(path):
    return path.with_name(path.name + ".json")
