"""`arguments_of`: the arguments of a `Translator`, from a directory."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from keras_attn.decoding import Search
from keras_attn.models.hugging_face.architecture import WhisperConfiguration
from keras_attn.models.hugging_face.architecture import build
from keras_attn.models.hugging_face.architecture import configuration_of
from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.generation import Generation
from keras_attn.models.hugging_face.prompts import Prompts
from keras_attn.models.hugging_face.sound import sound_of
from keras_attn.models.hugging_face.sound import word_times_of
from keras_attn.models.hugging_face.texts import Frame
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
    # Sources end as the tokenizer ends them, even if a search ends with another
    # token.
    start, source_end = generation.start, configuration.end
    configuration = dataclasses.replace(
        configuration,
        end=generation.end(configuration.end),
        start=configuration.start if start is None else start,
    )
    _require_ids(configuration, generation.forced_start)
    if ids and special_tokens:
        raise ValueError(
            "`special_tokens` is for texts that the tokenizer splits. "
            "Received: special_tokens=True and ids=True. Leave out one."
        )
    asked = _Asked(source, target, ids, special_tokens, source_end)
    more: dict[str, Any] = {}
    prompt = timestamps = None
    reads_sound = isinstance(configuration, WhisperConfiguration)
    if isinstance(configuration, WhisperConfiguration):
        sound = sound_of(files, configuration)
        configuration = dataclasses.replace(configuration, sound=sound)
        fields = generation.of_speech()
        texts, prompts = _transcripts(
            files, configuration, generation, fields, asked
        )
        prompt, timestamps = prompts.found(source), prompts.timestamps
        more["language_prompt"] = prompt
        more["word_times"] = word_times_of(fields, configuration, prompts)
    else:
        texts = _texts(files, configuration, generation, asked)
    checkpoint = Checkpoint(files)
    model = build(configuration, checkpoint, dtype)
    begun = texts.special.start
    longest = configuration.longest
    if search is None or given is not None:
        read_first = len(begun) + (0 if prompt is None else prompt.length)
        can_write = None if longest is None else longest - read_first + 1
        search = generation.search(
            begun,
            configuration.end,
            can_write,
            prompt_length=read_first if reads_sound else None,
            timestamps=timestamps,
        )
    return {
        "model": model,
        "source_text": None if reads_sound else texts.source_text(longest),
        "target_text": texts.target_text(longest),
        "search": search,
        **more,
    }


class _Asked(NamedTuple):
    """Arguments of `from_hugging_face` on texts, and one of `config.json`."""

    source: str | None
    target: str | None
    ids: bool
    special_tokens: bool
    source_end: int  # id of the end of a source of text


def _texts(files, configuration, generation, asked):
    """Returns the `Texts` of a model that reads text."""
    sides = None if asked.ids else _sides(files, configuration)
    framing = Framing(files, configuration.family, sides)
    forced = generation.forced_start
    frame = framing.frame(
        configuration, asked.source_end, forced, asked.source, asked.target
    )
    sizes = configuration.source_size, configuration.target_size
    if sides is None:
        return Texts.as_numbers(frame, configuration.family, sizes)
    # A source of Marian names the language of the target.
    is_marian = configuration.family == "marian"
    named = asked.target if is_marian else asked.source
    told = named is not None, asked.target is not None
    return Texts.of(sides, frame, told, asked.special_tokens)


def _transcripts(files, configuration, generation, fields, asked):
    """Returns the `Texts` of a model that reads sound, and its `Prompts`."""
    if asked.special_tokens:
        raise ValueError(
            "`special_tokens` is for sources of text. Received: "
            "special_tokens=True and a model of speech. Leave it out."
        )
    if generation.forced_start is not None:
        raise ValueError(
            "The texts of a model of speech begin with its prompt. Received: "
            f"forced_bos_token_id={generation.forced_start}, in "
            "`generation_config.json` or `search`. Remove it; `source` and "
            "`target` choose the prompt."
        )
    size = configuration.target_size
    sides = None if asked.ids else _sides(files, configuration)
    known = sides[0].ids if sides else None
    prompts = Prompts(fields, known, size)
    after = prompts.after_start(asked.source, asked.target)
    start, end = configuration.start, configuration.end
    frame = Frame(configuration.pad, end, (start, *after), (), (end,))
    if sides is None:
        numbers = Texts.as_numbers(frame, configuration.family, (size, size))
        return numbers, prompts
    if prompts.timestamps is not None:
        side = sides[0].with_times(prompts.timestamps)
        sides = side, side
    return Texts.of(sides, frame, (False, False), False), prompts


def _require_ids(configuration, forced):
    """Refuses ids of special tokens that the model does not have."""
    size = configuration.target_size
    found = {x: getattr(configuration, x) for x in ("pad", "start", "end")}
    for name, i in (found | {"first token": forced}).items():
        if i is not None and i >= size:
            raise ValueError(
                "The ids of padding, start, end and first token, in "
                "`config.json`, `generation_config.json` or `search`, must be "
                f"below `vocab_size`. Received: {i} for {name}, and {size} "
                "ids."
            )
    if configuration.pad == configuration.end:
        raise ValueError(
            "Padding and the end of a text must be different tokens. Received: "
            f"the id {configuration.end} for both, by `config.json`, "
            "`generation_config.json` or `search`."
        )


def _sides(files, configuration):
    """Returns the tokens of source and target, as many as the model has ids."""
    source, target = read(files, configuration.family)
    _require_padding(source, configuration)
    sizes = configuration.source_size, configuration.target_size
    if source is target and len({*sizes}) == 1:
        source = source.of_size(sizes[0])
        return source, source  # whose splitter is made once
    return source.of_size(sizes[0]), target.of_size(sizes[1])


def _require_padding(source, configuration):
    """Refuses padding whose id is another token in sources."""
    found = source.ids.get("<pad>", configuration.pad)
    if found != configuration.pad and configuration.family != "whisper":
        raise ValueError(
            "Padding must have one id in source and target. Received: "
            f"pad_token_id={configuration.pad} in `config.json`, and {found} "
            "for <pad> in the source's vocabulary."
        )
