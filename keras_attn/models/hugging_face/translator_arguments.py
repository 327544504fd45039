"""`arguments_of`: what a `Translator` is made of, from a directory."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_attn.decoding import Search
from keras_attn.models.hugging_face.architecture import build
from keras_attn.models.hugging_face.architecture import configuration_of
from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.generation import Generation
from keras_attn.models.hugging_face.texts import Framing
from keras_attn.models.hugging_face.texts import Texts
from keras_attn.models.hugging_face.tokenizer.files import read
from keras_attn.models.hugging_face.weights import Checkpoint


def arguments_of(
    directory,
    search: Search | Mapping[str, Any] | None,
    source: str | None,
    target: str | None,
    ids: bool,
    dtype: Any,
    special_tokens: bool,
) -> dict[str, Any]:
    """Returns arguments of `Translator`; see `from_hugging_face`."""
    files = Directory(directory)
    configuration = configuration_of(files.configuration)
    given = search if isinstance(search, Mapping) else None
    generation = Generation.of(files, given)
    start = generation.start
    configuration = dataclasses.replace(
        configuration,
        end=generation.end(configuration.end),
        start=configuration.start if start is None else start,
    )
    _require_ids(configuration)
    if ids and special_tokens:
        raise ValueError(
            "`special_tokens` is for texts that the tokenizer splits. "
            "Received: special_tokens=True and ids=True. Leave out one."
        )
    sides = None if ids else _sides(files, configuration)
    framing = Framing(files, configuration.family, sides)
    forced = generation.forced_start
    frame = framing.frame(configuration, forced, source, target)
    sizes = configuration.source_size, configuration.target_size
    if sides is None:
        texts = Texts.as_numbers(frame, configuration.family, sizes)
    else:
        # A source of Marian names the language of the target.
        named = target if configuration.family == "marian" else source
        told = named is not None, target is not None
        texts = Texts.of(sides, frame, told, special_tokens)
    checkpoint = Checkpoint(files)
    model = build(configuration, checkpoint, dtype)
    begun = texts.special.start
    longest = configuration.longest
    if search is None or given is not None:
        can_write = None if longest is None else longest - len(begun) + 1
        search = generation.search(begun, configuration.end, can_write)
    return {
        "model": model,
        "source_text": texts.source_text(longest),
        "target_text": texts.target_text(longest),
        "search": search,
    }


def _require_ids(configuration):
    """Refuses ids of special tokens that are none of the model's."""
    size = configuration.target_size
    for name in ("pad", "start", "end"):
        found = getattr(configuration, name)
        if found is not None and found >= size:
            raise ValueError(
                f"The ids of padding, start and end in `config.json` must be "
                f"below `vocab_size`. Received: {found} for {name}, and {size} "
                "ids."
            )


def _sides(files, configuration):
    """Returns the tokens of source and target, as many as the model has ids."""
    source, target = read(files, configuration.family)
    return (
        source.of_size(configuration.source_size),
        target.of_size(configuration.target_size),
    )
