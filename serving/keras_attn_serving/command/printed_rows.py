"""The rows of an answer, as `keras-attn query` prints them."""

import json
import math
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_attn_serving.wire.results import Alignment
from keras_attn_serving.wire.results import Result


def of_result(result: Result) -> list[dict[str, Any]]:
    """Returns the outputs of each row by name."""
    names, columns = list(result), list(result.values())
    return [
        dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
    ]


def of_alignments(alignments: Iterable[Alignment]) -> list[dict[str, Any]]:
    """Returns the results of `align` for each text, without padding."""
    return [each._asdict() for each in alignments]


def failure(row: Mapping[str, Any]) -> str:
    """Returns why a row was not answered, "" if it was."""
    error = row.get("error", "")
    if isinstance(error, str) and error:
        return error
    score = np.reshape(row.get("score", row.get("scores", 0.0)), -1)
    if score.size and score[0] == -np.inf:
        return "the model could not answer it"
    return ""


def as_text(row: Mapping[str, Any]) -> str:
    """Returns a row's text, or its texts with tabs between them.

    The text of an empty source is empty: text that a model makes up for it is
    left out.

    Raises:
        ValueError: If the row has neither.
    """
    found = row.get("text", row.get("texts"))
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list):
        raise ValueError(
            "Plain lines need a signature with the output `text` or `texts`. "
            f"Received: {sorted(row)}. Add --json, which prints all outputs."
        )
    if row.get("empty"):
        return ""
    # One line each, whatever a model writes.
    return "\t".join(" ".join(x.splitlines()) for x in found if x)


def as_json(row: Mapping[str, Any]) -> str:
    """Returns a row as JSON; numbers that are not finite are `null`."""
    values = {name: _plain(value) for name, value in row.items()}
    return json.dumps(values, ensure_ascii=False)


def _plain(value):
    if isinstance(value, np.ndarray):
        value = list(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, np.floating):
        value = float(str(value))  # with the digits of its own dtype
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.item() if isinstance(value, np.generic) else value
