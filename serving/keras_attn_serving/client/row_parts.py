"""Splits a request by its rows, and joins the answers in order.

Servers limit the rows of a request: the development server to 128,
TensorFlow Serving with batching to its `max_batch_size`.
"""

import re
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np

from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import ServingError

# How the two servers name their limit.
_LIMITS = (
    re.compile(r"may have at most (\d+) rows"),
    re.compile(r"larger than maximum input batch size (\d+)"),
)
# How servers and clients say that a request or its answer is too large.
_TOO_LARGE = re.compile(
    r"larger than max \(|"
    r"^A request may have at most \d+ (?:bytes|values|lists)|"
    r"^Input .* may have at most \d+ bytes|"
    r"may have at most \d+ bytes together|"
    r"may have at most \d+ elements|"
    r"^An answer may have at most \d+ "
)
_PADDED = re.compile(
    "source_tokens|tokens|token_scores|alignments|encoded_.*|state_.*"
)


def number_of_rows(arrays: Mapping[str, np.ndarray]) -> int | None:
    """Returns the rows of a request, `None` if it cannot be split."""
    rows = {len(array) if array.ndim else None for array in arrays.values()}
    return rows.pop() if len(rows) == 1 else None


async def run(
    one: Callable[[dict[str, np.ndarray]], Awaitable[Result]],
    arrays: Mapping[str, np.ndarray],
    most: int,
) -> Result:
    """Sends a request in parts, one after the other.

    Args:
        one: Sends a part.
        arrays: All rows.
        most: The most rows of a part. If a part is refused as too large, it and
            the parts after it are made smaller.
    """
    rows, done = number_of_rows(arrays) or 0, 0
    results, counts = [], []
    while done < rows:
        part = {name: x[done : done + most] for name, x in arrays.items()}
        try:
            results.append(await one(part))
        except ServingError as error:
            fewer = rows_allowed(error, number_of_rows(part))
            if fewer is None:
                raise
            most = fewer
        else:
            counts.append(min(most, rows - done))
            done += most
    return joined(results, counts)


def rows_allowed(error: ServingError, rows: int | None) -> int | None:
    """Returns the number of rows to send after a request was too large.

    Args:
        error: The refusal.
        rows: The rows of the request.

    Returns:
        Fewer than `rows`; `None` if the request cannot be split, or was refused
        for another reason.
    """
    if rows is None or rows < 2:
        return None
    if error.code == grpc.StatusCode.INVALID_ARGUMENT:
        for limit in _LIMITS:
            if found := limit.search(error.message):
                return min(int(found[1]), rows - 1) or None
    return rows // 2 if is_too_large(error) else None


def is_too_large(error: ServingError) -> bool:
    """Returns whether a request or its answer was refused for its size."""
    refused = (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
    return error.code in refused and bool(_TOO_LARGE.search(error.message))


def joined(results: Sequence[Result], rows: Sequence[int]) -> Result:
    """Returns the answers to the parts of a request as one.

    The padding of an export's alignments, tokens and states may be wider in
    one part than in another. All parts get the widest padding then.

    Args:
        results: The answer to each part.
        rows: The rows of each part.

    Raises:
        ValueError: If an output does not have a row for each row of its part,
            or the sizes of an output that has no padding differ between the
            parts.
    """
    last = results[-1]
    if len(results) == 1:
        return last
    outputs = {}
    for name in last:
        values = [_rows_of(x[name]) for x in results]
        found = [x.shape[:1] for x in values]
        if found != [(count,) for count in rows]:
            raise ValueError(
                "The answers to the parts of a call must have a row for each "
                f"row sent, to be joined. Received: the output {name!r} of "
                f"shapes {[x.shape for x in values]} for {list(rows)} rows. "
                "Send fewer rows per call, or leave the output out: "
                "`outputs=[...]`."
            )
        outputs[name] = _joined(name, values)
        if isinstance(last[name], list):
            outputs[name] = outputs[name].tolist()
    return Result(outputs, last.model, last.version, last.signature)


def _rows_of(value: Any) -> np.ndarray:
    texts = isinstance(value, list | str | bytes)
    return np.array(value, dtype=object) if texts else value


def _joined(name: str, values: list[np.ndarray]) -> np.ndarray:
    shapes = [x.shape[1:] for x in values]
    if len(set(shapes)) > 1:
        if not _PADDED.fullmatch(name):
            raise ValueError(
                "The answers to the parts of a call must have outputs of the "
                f"same size to be joined. Received: {name!r} of shapes "
                f"{sorted(set(shapes))} a row. Send fewer rows per call, or "
                "leave the output out: `outputs=[...]`."
            )
        widest = np.max(shapes, axis=0)
        values = [_padded(x, widest) for x in values]
    return np.concatenate(values)


def _padded(array, widest):
    missing = widest - array.shape[1:]
    zero = "" if array.dtype == object else array.dtype.type(0)
    return np.pad(
        array, [(0, 0), *((0, x) for x in missing)], constant_values=zero
    )
