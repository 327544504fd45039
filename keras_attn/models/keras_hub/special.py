"""The special tokens of a model of KerasHub, and those around its texts."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_attn.models.keras_hub.models import SOURCE
from keras_attn.models.keras_hub.models import TARGET
from keras_attn.text.special_tokens import SpecialTokens

_PROBE = "a"


def special_tokens(tokenizer, kind, around) -> SpecialTokens:
    """Returns the special tokens of a tokenizer.

    Args:
        tokenizer: KerasHub's tokenizer.
        kind: Its `TokenizerAdapter`.
        around: Dictionary with `start`, `end` and `pad`, and with
            `source_start` and `source_end` if the model reads text.
    """
    end, unknown = around["end"], kind.unknown
    framing = {*around["start"], *around.get("source_start", ())}
    framing |= {*around.get("source_end", ())}
    # Special tokens that are nowhere in a text or around it.
    named = {*getattr(tokenizer, "special_token_ids", ())}
    named |= {*(getattr(tokenizer, "language_tokens", None) or {}).values()}
    named &= {*kind.ids.values()}
    named -= {*framing, around["pad"], end, unknown}
    # Nor are ids without a token, such as some of Whisper's.
    holes = {*range(max(kind.ids.values()) + 1)} - {*kind.ids.values()}
    holes -= {*framing, around["pad"], end, unknown}
    # Some tokenizers pad with the end token or the unknown one, but padding
    # needs an id of its own. The start token of a target serves as well, or one
    # of `named` or `holes`, because no text contains them.
    not_padding = {end, unknown, *around.get("source_start", ())}
    not_padding |= {*around.get("source_end", ())}
    ids = around["pad"], *around["start"], *sorted(named), *sorted(holes)
    pad = next((x for x in ids if x not in not_padding), None)
    if pad is None:
        raise ValueError(
            "`from_keras_hub` needs an id for padding that neither ends a "
            f"text nor is unknown. Received: {type(tokenizer).__name__} with "
            f"{around}, whose unknown token is {unknown}. Pass "
            "`SpecialTokens` to read and write ids."
        )
    if unknown in {pad, end, *framing}:
        unknown = -1
    prompt_tokens = tuple(sorted({*named, *holes} - {pad}))
    return SpecialTokens(
        **around | {"pad": pad}, unknown=unknown, prompt_tokens=prompt_tokens
    )


def by_tokenizer(tokenizer) -> dict[str, Any]:
    """Returns the ids of start, end and padding that a tokenizer names."""
    found: dict[str, Any] = {}
    for name, known in {
        "start": ("start_token_id", "bos_token_id"),
        "end": ("end_token_id", "eos_token_id"),
        "pad": ("pad_token_id",),
    }.items():
        ids = [getattr(tokenizer, x, None) for x in known]
        found[name] = next((x for x in ids if x is not None), None)
        if found[name] is None:
            raise ValueError(
                f"`from_keras_hub` needs the id of the {name} token. "
                f"Received: {type(tokenizer).__name__}, which has none of "
                f"{list(known)}. Pass a preprocessor of KerasHub, or "
                "`SpecialTokens` to read and write ids."
            )
    return found | {"start": (found["start"],)}


def by_preprocessor(preprocessor, tokenizer) -> tuple[dict, dict]:
    """Returns the tokens a preprocessor puts around texts, and its lengths.

    A short text is preprocessed to find them, because each preprocessor has its
    own code.
    """
    if not hasattr(preprocessor, "decoder_sequence_length"):
        raise ValueError(
            "`preprocessor` must be that of an encoder-decoder, a "
            "`Seq2SeqLMPreprocessor`. Received: a "
            f"{type(preprocessor).__name__}. Pass its tokenizer, if the model "
            "was trained with it."
        )
    probe = [_PROBE]
    reads_sound = getattr(preprocessor, "audio_converter", None) is not None
    given: dict = {"encoder_text": probe, "decoder_text": probe}
    if reads_sound:
        sound = np.zeros((1, 16_000, 1), "float32")
        given = {"audio": sound, "text": probe}
    found = preprocessor.generate_preprocess(given)
    tokens = _row(tokenizer(probe))
    start, _ = _around(tokens, found, TARGET, "decoder_padding_mask")
    around = {"start": start}
    lengths = {"target_length": preprocessor.decoder_sequence_length}
    if not reads_sound:
        before, after = _around(tokens, found, SOURCE, "encoder_padding_mask")
        around |= {"source_start": before, "source_end": after}
        lengths["source_length"] = preprocessor.encoder_sequence_length
    return around, lengths


def _around(tokens, found, name, mask) -> tuple[tuple, tuple]:
    """Returns the ids before and after the tokens of a text."""
    pairs = zip(_row(found[name]), _row(found[mask]), strict=True)
    ids = [x for x, is_real in pairs if is_real]
    size = len(tokens)
    for i in range(len(ids) - size + 1):
        if ids[i : i + size] == tokens:
            return tuple(ids[:i]), tuple(ids[i + size :])
    raise ValueError(
        "A preprocessor puts special tokens around the tokens of a text. "
        f"Received: one that turns the tokens {tokens} into {ids}. Pass the "
        "tokenizer, or `SpecialTokens` to read and write ids."
    )


def _row(batch) -> list[int]:
    """Returns the only row of a batch, which may be ragged."""
    if hasattr(batch, "to_list"):
        return [int(x) for x in batch.to_list()[0]]
    (row,) = keras.ops.convert_to_numpy(batch)
    return [int(x) for x in row]


def prompted(special, prompt, ids) -> SpecialTokens:
    """Returns special tokens with a prompt after the start."""
    if isinstance(prompt, str) or not isinstance(prompt, Iterable):
        raise ValueError(
            "`prompt` must be a list of tokens. Received: "
            f"prompt={prompt!r}. For one token pass a list of one."
        )
    prompt = list(prompt)
    may_come = {*special.non_text_ids, *special.prompt_tokens}
    named = {name: i for name, i in ids.items() if i in may_come}
    missing = [x for x in prompt if not isinstance(x, str) or x not in named]
    if missing:
        raise ValueError(
            "`prompt` must be special tokens, which stand for no text. "
            f"Received: {missing}, of which the model has none; it has "
            f"{[*named]!r:.300}. Text with which a target begins is a prefix, "
            "`translator(sources, prefixes=[...])`."
        )
    start = (*special.start, *(ids[x] for x in prompt))
    rest = tuple(x for x in special.prompt_tokens if x not in start)
    return dataclasses.replace(special, start=start, prompt_tokens=rest)
