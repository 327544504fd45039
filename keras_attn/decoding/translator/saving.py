"""Saves a `Translator` in a directory: models, vocabularies, options."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import keras

from keras_attn.decoding import Search
from keras_attn.decoding import output_sets as output_sets  # rules to load
from keras_attn.decoding import phrases as phrases  # rules to load
from keras_attn.decoding.language_prompt import LanguagePrompt
from keras_attn.decoding.phrases.glossary import Glossary
from keras_attn.decoding.shortlist import Shortlist
from keras_attn.decoding.translator import model_files
from keras_attn.decoding.word_times import WordTimes
from keras_attn.decoding.xla_sizes import XLASizes
from keras_attn.text.files import beside
from keras_attn.text.files import files_of_sources
from keras_attn.text.text import Text

_OPTIONS = "translator.json"
_SHORTLIST = "shortlist.npz"
_GLOSSARY = "glossary.json"
_OURS = "keras_attn>"  # Keras's prefix of the names of our searches


def save(translator, directory: pathlib.Path) -> None:
    """Writes a translator's files; they replace old ones once all are written.

    Args:
        translator: The `Translator`.
        directory: The directory, created if missing.
    """
    search, search_options = _written(translator.search)
    names = ["model.keras"]
    if len(translator.models) > 1:
        count = range(1, len(translator.models) + 1)
        names = [f"model-{i}.keras" for i in count]
    texts = translator.source_text
    source_text: bool | list = True
    if isinstance(texts, Mapping):
        source_text = list(texts)
    elif texts is None:
        source_text = False
    options = {
        "models": names,
        "source_text": source_text,
        "search": search,
        "search_options": search_options,
        "jit_compile": _written_sizes(translator.jit_compile),
        "forbidden": translator.forbidden,
        "replace_unknown": translator.replace_unknown,
        "shortlist": translator.shortlist is not None,
        "recompute": translator.recompute,
        "word_times": _fields(translator.word_times),
        "language_prompt": _fields(translator.language_prompt),
        "glossary": translator.glossary is not None,
    }
    sources, target = translator.pipeline.examples
    with _complete_or_not_at_all(directory) as unfinished:
        for name, model in zip(names, translator.models, strict=True):
            model_files.write(model, unfinished / name)
            model_files.require_readable(
                model, unfinished / name, [*sources, target]
            )
        translator.target_text.save(unfinished / "target.txt")
        if translator.shortlist is not None:
            translator.shortlist.save(unfinished / _SHORTLIST)
        if translator.glossary is not None:
            written = json.dumps(
                translator.glossary.get_config(), ensure_ascii=False, indent=1
            )
            path = unfinished / _GLOSSARY
            path.write_text(written + "\n", encoding="utf-8")
        for file, text in files_of_sources(texts).items():
            text.save(unfinished / file)
        path = unfinished / _OPTIONS
        path.write_text(json.dumps(options, indent=2) + "\n")


@contextlib.contextmanager
def _complete_or_not_at_all(directory):
    """Yields a folder whose files are moved to the directory at the end.

    If an error is raised, no file is moved. Other files in the directory stay.
    """
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    # A folder within the directory is on the same disk, so files are renamed.
    unfinished = pathlib.Path(
        tempfile.mkdtemp(prefix=".unfinished-", dir=directory)
    )
    try:
        yield unfinished
        written = {x.name for x in unfinished.iterdir()}
        # The options are moved last, since they name the other files.
        for name in sorted(written, key=lambda x: x == _OPTIONS):
            os.replace(unfinished / name, directory / name)
        for path in directory.iterdir():
            if _is_named_by_us(path.name) and path.name not in written:
                path.unlink()
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if is_new and not any(directory.iterdir()):
            directory.rmdir()


def _is_named_by_us(name):
    """Returns whether `save` writes files of this name for some translators.

    These are models, whose number varies, and the files of a `Splitter`.
    """
    return re.fullmatch(
        r"model(-[0-9]+)?\.keras"
        r"|(source(-[0-9]+)?|target)\.txt\.split\..*"
        r"|source-[0-9]+\.txt(\.json)?"
        r"|shortlist\.npz|glossary\.json",
        name,
    )


def path_of(directory, exists=False) -> pathlib.Path:
    """Returns a caller's directory as a path.

    Args:
        directory: The caller's argument.
        exists: Whether the directory must exist already, to be loaded.

    Raises:
        ValueError: If it is not a path, or the path of a file.
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise ValueError(
            "`directory` must be the path of a directory. Received: "
            f"directory={directory!r:.80}. Pass a string or a `pathlib.Path`."
        )
    path = pathlib.Path(directory)
    if path.is_file():
        raise ValueError(
            "`directory` must be the path of a directory. Received: the path "
            f"of a file, {path}."
            + (
                " Pass the directory that `Translator.save(directory)` wrote; "
                "`keras.saving.load_model(path)` reads a single model."
                if exists
                else " Pass another path; the directory is created."
            )
        )
    return path


def load(
    directory: pathlib.Path, custom_objects=None, safe_mode: bool = True
) -> dict:
    """Returns the constructor's arguments of a saved translator."""
    if custom_objects is not None and not isinstance(custom_objects, Mapping):
        raise ValueError(
            "`custom_objects` must be a dictionary from names to classes, "
            f"{{'MyLayer': MyLayer}}. Received: {custom_objects!r:.200}. Pass "
            "such a dictionary, or None."
        )
    path = directory / _OPTIONS
    if not path.exists():
        _refuse_directory(directory)
    options = json.loads(path.read_text())
    names = options.pop("models", ["model.keras"])
    files = [beside(path, name, path) for name in names]
    models = [model_files.read(x, custom_objects, safe_mode) for x in files]
    search = _class_of_search(options.pop("search"), custom_objects or {})
    shortlist = None
    if options.pop("shortlist", False):
        shortlist = Shortlist.load(directory / _SHORTLIST)
    glossary = None
    if options.pop("glossary", False):
        content = (directory / _GLOSSARY).read_text(encoding="utf-8")
        glossary = Glossary(**json.loads(content))
    named = options.pop("source_text", True)
    source_text: Any = None
    if isinstance(named, list):
        source_text = {
            name: Text.load(directory / f"source-{i}.txt", custom_objects)
            for i, name in enumerate(named, start=1)
        }
    elif named:
        source_text = Text.load(directory / "source.txt", custom_objects)
    with keras.saving.custom_object_scope(custom_objects or {}):
        made = search.from_config(options.pop("search_options"))
    if isinstance(options.get("jit_compile"), dict):
        options["jit_compile"] = XLASizes(**options["jit_compile"])
    for name, kind in (
        ("word_times", WordTimes),
        ("language_prompt", LanguagePrompt),
    ):
        if options.get(name):
            options[name] = kind(**options[name])
    return options | {
        "model": models if len(models) > 1 else models[0],
        "source_text": source_text,
        "shortlist": shortlist,
        "glossary": glossary,
        "target_text": Text.load(directory / "target.txt", custom_objects),
        "search": made,
    }


def _written_sizes(jit_compile):
    """Returns the argument `jit_compile` as a value for JSON."""
    if isinstance(jit_compile, XLASizes):
        return dataclasses.asdict(jit_compile)
    return jit_compile


def _fields(given):
    """Returns a dataclass as a dictionary for JSON, None for None."""
    return None if given is None else dataclasses.asdict(given)


def _written(search: Search) -> tuple[str, dict]:
    """Returns the name of a search's class, and its options for JSON."""
    kind = type(search)
    name = keras.saving.get_registered_name(kind).removeprefix(_OURS)
    if _registered(name) not in (kind, None):
        raise ValueError(
            "The class of a search needs a name of its own, by which loading "
            f"finds it. Received: {search!r}, whose name {name!r} is that of "
            "another class. Register it under your own package name with "
            "`keras.saving.register_keras_serializable(package)`."
        )
    try:
        options = json.loads(json.dumps(search.get_config()))
        kinds = {type(x).__name__: type(x) for x in search.rules}
        with keras.saving.custom_object_scope(kinds):
            again = kind.from_config(options)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "A search is saved as the JSON of its options, which must make "
            f"the same search again. Received: {search!r}, for which "
            f"{type(error).__name__} was raised: {error}. Write "
            "`get_config()` and `from_config()` so that JSON can hold the "
            "options."
        ) from error
    if again != search:
        raise ValueError(
            "A search is saved as the JSON of its options, which must make "
            f"the same search again. Received: {search!r}, which became "
            f"{again!r}. Write `get_config()` and `from_config()` so that "
            "they agree."
        )
    return name, options


def _class_of_search(name: str, custom_objects: Mapping) -> type[Search]:
    """Returns the class of a saved search."""
    short = name.rpartition(">")[2]
    found = custom_objects.get(name) or custom_objects.get(short)
    found = found or _registered(name)
    if found is None:
        raise ValueError(
            f"The search of this translator is a {short!r}, a class that must "
            "be known here. Received: custom_objects with "
            f"{sorted(custom_objects)}. Import the module that registers it "
            f"with Keras, or pass `custom_objects={{{short!r}: {short}}}`."
        )
    return found


def _registered(name):
    """Returns the class that Keras knows by this name, or None."""
    known = keras.saving.get_registered_object
    return known(name) or known(_OURS + name)


def _refuse_directory(directory):
    """Raises an error that says why a directory holds no saved translator."""
    if not directory.is_dir():
        raise FileNotFoundError(
            "`Translator.load(directory)` reads the directory that "
            "`Translator.save(directory)` wrote. Received: a path without "
            f"one. There is no directory {directory}."
        )
    export = directory / "saved_model.pb"
    versions = sorted(directory.glob("[0-9]*/saved_model.pb"))
    if export.exists() or versions:
        base = directory.resolve().parent if export.exists() else directory
        version = directory if export.exists() else versions[-1].parent
        raise ValueError(
            "`Translator.load` needs the models that `Translator.save` "
            f"writes. Received: {directory} holds an export of "
            "`Translator.export()`, a graph to be served. Serve it, `python "
            f"-m keras_attn_serving --model_base_path={base} "
            "--model_name=NAME`, or load its signatures, "
            f"`tf.saved_model.load({str(version)!r}).signatures`. To load a "
            "translator, call `Translator.save(directory)` too when you "
            "export."
        )
    raise FileNotFoundError(
        f"There is no saved translator in {directory}: {_OPTIONS} is missing. "
        "Received: a directory that holds "
        f"{sorted(x.name for x in directory.iterdir())[:8]}. "
        "`Translator.save(directory)` writes one."
    )
