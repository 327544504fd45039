"""A `Translator` in a directory: models, vocabularies, options."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Mapping

import keras

from keras_attn.search import Search
from keras_attn.text import Text
from keras_attn.translator import model_files

_OPTIONS = "translator.json"
_OURS = "keras_attn>"  # what Keras writes before the names of our searches


def save(translator, directory: pathlib.Path) -> None:
    """Writes a translator."""
    search, search_options = _written(translator.search)
    names = ["model.keras"]
    if len(translator.models) > 1:
        count = range(1, len(translator.models) + 1)
        names = [f"model-{i}.keras" for i in count]
    options = {
        "models": names,
        "source_text": translator.source_text is not None,
        "search": search,
        "search_options": search_options,
        "jit_compile": translator.jit_compile,
        "forbidden": translator.forbidden,
        "replace_unknown": translator.replace_unknown,
    }
    sources, target = translator.pipeline.examples
    with _complete_or_not_at_all(directory) as unfinished:
        for name, model in zip(names, translator.models, strict=True):
            model_files.write(model, unfinished / name)
            model_files.require_readable(
                model, unfinished / name, [*sources, target]
            )
        translator.target_text.save(unfinished / "target.txt")
        if translator.source_text is not None:
            translator.source_text.save(unfinished / "source.txt")
        path = unfinished / _OPTIONS
        path.write_text(json.dumps(options, indent=2) + "\n")


@contextlib.contextmanager
def _complete_or_not_at_all(directory):
    """A folder whose files take the place of those in the directory.

    They do when all are written; what else is in the directory stays.
    """
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    # Within it, so that renaming moves no file to another disk.
    unfinished = pathlib.Path(
        tempfile.mkdtemp(prefix=".unfinished-", dir=directory)
    )
    try:
        yield unfinished
        written = {x.name for x in unfinished.iterdir()}
        # The options last: they name the other files.
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
    """Whether a file is a model of an ensemble, or belongs to a `Splitter`."""
    return re.fullmatch(
        r"model(-[0-9]+)?\.keras|(source|target)\.txt\.split\..*", name
    )


def path_of(directory, exists=False) -> pathlib.Path:
    """A directory as a path.

    Args:
        directory: What the caller gave.
        exists: Whether it is there already.

    Raises:
        ValueError: If it is no path, or that of a file.
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise ValueError(
            "`directory` must be the path of a directory. Received: "
            f"directory={directory!r:.80}"
        )
    path = pathlib.Path(directory)
    if path.is_file():
        raise ValueError(
            "`directory` must be the path of a directory. Received: that of "
            f"a file, {path}."
            + (
                " What `Translator.save(directory)` wrote is loaded as a "
                "whole; `keras.saving.load_model(path)` reads a model alone."
                if exists
                else " Pass another, which is made."
            )
        )
    return path


def load(directory: pathlib.Path, custom_objects=None) -> dict:
    """Reads the arguments that make the same translator again."""
    if custom_objects is not None and not isinstance(custom_objects, Mapping):
        raise ValueError(
            "`custom_objects` must be a dictionary of classes by their names, "
            f"{{'MyLayer': MyLayer}}. Received: {custom_objects!r:.200}"
        )
    path = directory / _OPTIONS
    if not path.exists():
        _refuse_directory(directory)
    options = json.loads(path.read_text())
    names = options.pop("models", ["model.keras"])
    models = [model_files.read(directory / x, custom_objects) for x in names]
    search = _class_of_search(options.pop("search"), custom_objects or {})
    source_text = None
    if options.pop("source_text", True):
        source_text = Text.load(directory / "source.txt", custom_objects)
    return options | {
        "model": models if len(models) > 1 else models[0],
        "source_text": source_text,
        "target_text": Text.load(directory / "target.txt", custom_objects),
        "search": search.from_config(options.pop("search_options")),
    }


def _written(search: Search) -> tuple[str, dict]:
    """The name of a search's class, and its options as JSON has them."""
    kind = type(search)
    name = keras.saving.get_registered_name(kind).removeprefix(_OURS)
    if _registered(name) not in (kind, None):
        raise ValueError(
            "The class of a search is found again by its name. Received: "
            f"{search!r}, whose name {name!r} is that of another class. "
            "Register it under a package of your own, by "
            "`keras.saving.register_keras_serializable(package)`."
        )
    try:
        options = json.loads(json.dumps(search.get_config()))
        again = kind.from_config(options)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "The options of a search are saved as JSON, of which it must be "
            f"made again. Received: {search!r}. Write its `get_config()` and "
            f"`from_config()` so that it is. {type(error).__name__}: {error}"
        ) from error
    if again != search:
        raise ValueError(
            "The options of a search are saved as JSON, of which it must be "
            f"made again. Received: {search!r}, of which became {again!r}. "
            "Write its `get_config()` and `from_config()` so that they agree."
        )
    return name, options


def _class_of_search(name: str, custom_objects: Mapping) -> type[Search]:
    """The class of a search that was saved."""
    short = name.rpartition(">")[2]
    found = custom_objects.get(name) or custom_objects.get(short)
    found = found or _registered(name)
    if found is None:
        raise ValueError(
            f"The search of this translator is a {short!r}, a class that is "
            "not known here. Import the module that registers it with Keras, "
            f"or pass `custom_objects={{{short!r}: {short}}}`. Received: "
            f"custom_objects with {sorted(custom_objects)}."
        )
    return found


def _registered(name):
    """The class of this name that Keras knows; None if it knows none."""
    known = keras.saving.get_registered_object
    return known(name) or known(_OURS + name)


def _refuse_directory(directory):
    """Says what is in a directory without a saved translator."""
    if not directory.is_dir():
        raise FileNotFoundError(
            f"There is no directory {directory}. `Translator.save(directory)` "
            "writes what `Translator.load(directory)` reads."
        )
    export = directory / "saved_model.pb"
    versions = sorted(directory.glob("[0-9]*/saved_model.pb"))
    if export.exists() or versions:
        base = directory.resolve().parent if export.exists() else directory
        version = directory if export.exists() else versions[-1].parent
        raise ValueError(
            f"{directory} holds an export, the work of `Translator.export()`: "
            "a graph to be served, without the model that `Translator.load` "
            "needs. Serve it, `python -m keras_attn_serving "
            f"--model_base_path={base} --model_name=NAME`, or load its "
            f"signatures, `tf.saved_model.load({str(version)!r}).signatures`. "
            "To load a translator, keep `Translator.save(directory)` beside "
            "the export."
        )
    raise FileNotFoundError(
        f"There is no saved translator in {directory}: {_OPTIONS} is missing. "
        "`Translator.save(directory)` writes one. Received a directory that "
        f"holds {sorted(x.name for x in directory.iterdir())[:8]}."
    )
