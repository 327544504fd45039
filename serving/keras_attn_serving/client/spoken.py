"""Requests and answers of the signature `words`."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import Transcript
from keras_attn_serving.wire.results import Word

NAME = "words"


def request(
    sounds: Sequence[Any],
    prefixes: Sequence[str | None] | None,
    signatures: Mapping[str, Signature],
) -> dict[str, np.ndarray]:
    """Returns the inputs of `words` for sounds of any lengths.

    Args:
        sounds: A 1D array of floating-point samples for each sound.
        prefixes: A string or `None` for each sound; or `None` for no prefixes.
        signatures: Those of the model.

    Raises:
        ValueError: If the model has no such signature, a sound is not a 1D
            array of floating-point numbers, or the prefixes do not fit.
    """
    if NAME not in signatures:
        raise ValueError(
            f"`words` needs the signature `{NAME}`. Received: a model with "
            f"{list(signatures)}. Export a translator of speech by "
            f"`translator.export(directory, signatures=['{NAME}'])`."
        )
    wanted = signatures[NAME].inputs
    (name,) = {*wanted} - {"prefix", "lengths"}
    rows = [_samples(x) for x in sounds]
    longest = max(map(len, rows), default=0)
    batch = np.zeros((len(rows), longest), wanted[name].dtype)
    for row, samples in zip(batch, rows, strict=True):
        row[: len(samples)] = samples
    texts: list = [None] * len(rows) if prefixes is None else [*prefixes]
    if (
        isinstance(prefixes, str | bytes)
        or len(texts) != len(rows)
        or not all(x is None or isinstance(x, str) for x in texts)
    ):
        raise ValueError(
            "`prefixes` must be a list with a string, or None, for each sound. "
            f"Received: prefixes={prefixes!r:.80} for {len(rows)} sound(s)."
        )
    texts = [x or "" for x in texts]
    arrays = {name: batch, "prefix": np.array(texts, object)}
    if "lengths" in wanted:
        arrays["lengths"] = np.array([len(x) for x in rows], "int32")
    return arrays


def _samples(sound):
    array = np.asarray(sound)
    if array.ndim != 1 or array.dtype.kind != "f":
        raise ValueError(
            "A sound must be an array of samples, floating-point numbers from "
            f"-1 to 1. Received: an array of {array.dtype}, shape "
            f"{array.shape}. For one sound pass a list of one; for several "
            "channels pass their mean, `sound.mean(axis=channels)`; divide "
            "samples of 16 bits by 32768."
        )
    return array


def transcripts(result: Result) -> list[Transcript]:
    """Returns the rows of an answer, without padding."""
    return [
        Transcript(
            result["text"][i],
            float(result["score"][i]),
            [
                Word(text, float(start), float(end), float(probability))
                for text, start, end, probability in zip(
                    result["words"][i][:count],
                    result["starts"][i],
                    result["ends"][i],
                    result["probabilities"][i],
                    strict=False,
                )
            ],
            float(result["no_speech"][i]),
            result["prompt"][i],
            bool(result["truncated"][i]),
            bool(result["empty"][i]),
            # Exports of keras-attn 0.4 and later.
            bool(result["finished"][i]) if "finished" in result else None,
        )
        for i, count in enumerate(result["word_count"])
    ]
