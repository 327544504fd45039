"""A `Translator` in a directory: models, vocabularies, options."""

import dataclasses
import json
import pathlib

import keras

from keras_attn.search import BeamSearch
from keras_attn.search import GreedySearch
from keras_attn.search import Sampling
from keras_attn.text import Text

_SEARCHES = {x.__name__: x for x in (BeamSearch, GreedySearch, Sampling)}


def save(translator, directory: pathlib.Path) -> None:
    """Writes a translator."""
    search = translator.search
    if type(search) not in _SEARCHES.values():
        raise ValueError(
            f"`save` keeps {', '.join(f'`{x}`' for x in _SEARCHES)}. Received "
            f"a search of your own, {type(search).__name__}. Save the models "
            "and the texts, and join them with your search in code."
        )
    directory.mkdir(parents=True, exist_ok=True)
    names = ["model.keras"]
    if len(translator.models) > 1:
        count = range(1, len(translator.models) + 1)
        names = [f"model-{i}.keras" for i in count]
    for name, model in zip(names, translator.models, strict=True):
        model.save(directory / name)
    translator.target_text.save(directory / "target.txt")
    if translator.source_text is not None:
        translator.source_text.save(directory / "source.txt")
    options = {
        "models": names,
        "source_text": translator.source_text is not None,
        "search": type(search).__name__,
        "search_options": dataclasses.asdict(search),
        "jit_compile": translator.jit_compile,
        "forbidden": translator.forbidden,
        "replace_unknown": translator.replace_unknown,
    }
    path = directory / "translator.json"
    path.write_text(json.dumps(options, indent=2) + "\n")


def load(directory: pathlib.Path) -> dict:
    """Reads the arguments that make the same translator again."""
    path = directory / "translator.json"
    if not path.exists():
        raise FileNotFoundError(
            f"There is no saved translator in {directory}: {path.name} "
            "is missing. `Translator.save(directory)` writes one."
        )
    options = json.loads(path.read_text())
    names = options.pop("models", ["model.keras"])
    models = [keras.saving.load_model(directory / name) for name in names]
    search = _SEARCHES[options.pop("search")]
    source_text = None
    if options.pop("source_text", True):
        source_text = Text.load(directory / "source.txt")
    return options | {
        "model": models if len(models) > 1 else models[0],
        "source_text": source_text,
        "target_text": Text.load(directory / "target.txt"),
        "search": search(**options.pop("search_options")),
    }
