"""`arguments_of`: what a `Translator` is made of, from a directory."""

import dataclasses
from typing import Any

from keras_attn.decoding import Search
from keras_attn.models.hugging_face.configuration import Configuration
from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.generation import Generation
from keras_attn.models.hugging_face.model import build
from keras_attn.models.hugging_face.texts import Framing
from keras_attn.models.hugging_face.texts import Texts
from keras_attn.models.hugging_face.tokenizer_files import read
from keras_attn.models.hugging_face.weights import Checkpoint


def arguments_of(
    directory,
    search: Search | None,
    source: str | None,
    target: str | None,
    ids: bool,
    dtype: Any,
) -> dict[str, Any]:
    """Returns arguments of `Translator`; see `from_hugging_face`."""
    files = Directory(directory)
    configuration = Configuration.of(files.configuration)
    generation = Generation.of(files)
    start = generation.start
    configuration = dataclasses.replace(
        configuration,
        end=generation.end(configuration.end),
        start=configuration.start if start is None else start,
    )
    texts = _texts(files, configuration, generation, source, target, ids)
    checkpoint = Checkpoint(files)
    model = build(configuration, checkpoint, dtype)
    begun = texts.special.start
    longest = configuration.longest
    if search is None:
        can_write = None if longest is None else longest - len(begun) + 1
        search = generation.search(begun, configuration.end, can_write)
    return {
        "model": model,
        "source_text": texts.source_text(longest),
        "target_text": texts.target_text(longest),
        "search": search,
    }


def _texts(files, configuration, generation, source, target, ids):
    family, sides = configuration.family, None
    sizes = configuration.source_size, configuration.target_size
    if not ids:
        sides = tuple(
            side.of_size(size)
            for side, size in zip(read(files, family), sizes, strict=True)
        )
    frame = Framing(files, family, sides).frame(
        configuration.pad,
        configuration.start,
        configuration.end,
        configuration.begin,
        generation.forced_start,
        source,
        target,
    )
    if sides is None:
        return Texts.as_numbers(frame, family, sizes)
    told = target is not None or family != "marian", target is not None
    if family != "marian":
        told = source is not None, target is not None
    return Texts.of(sides, frame, told)
