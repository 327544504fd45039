"""Greedy search in the client, one token at a time.

The signatures `encode`, `step` and `strings` of an export run the steps of a
model one by one. The server keeps no state between them: the client sends the
encoded source and the decoder's state with each token.
"""

from collections.abc import AsyncGenerator
from collections.abc import Awaitable
from collections.abc import Mapping
from typing import Any
from typing import Protocol

import numpy as np

from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import RowError
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import Token

_END = 2  # the end token, where an older export does not name it
_REPLACED = "\N{REPLACEMENT CHARACTER}"


class Run(Protocol):
    """Runs a signature, always of the same version."""

    def __call__(
        self, inputs: Mapping[str, Any], signature: str
    ) -> Awaitable[Result]: ...


def require_steps(signatures: Mapping[str, Signature]) -> None:
    """Raises `ValueError` unless a model has the signatures of its steps."""
    if not {"encode", "step", "strings"} <= signatures.keys():
        raise ValueError(
            "`stream` needs the signatures `encode`, `step` and `strings`. "
            f"Received: a model with {list(signatures)}. Export it by "
            '`translator.export(directory, signatures=["step"])`.'
        )


def longest(signatures: Mapping[str, Signature]) -> int | None:
    """Returns the most tokens of a text, `None` if an export does not say."""
    try:
        shape = signatures["ids"].outputs["ids"].shape
    except KeyError:
        return None
    return shape[-1] if shape else None


async def stream(
    run: Run,
    signatures: Mapping[str, Signature],
    inputs: Mapping[str, np.ndarray],
    max_length: int | None,
) -> AsyncGenerator[Token, None]:
    """Yields the most probable token of each step, the end token last.

    Args:
        run: Runs a signature.
        signatures: Those of the model.
        inputs: The inputs of `encode`, with one row.
        max_length: The most tokens, including the end token; `None` for no
            limit.

    Raises:
        RowError: If the server cannot answer.
    """
    taken = signatures["step"].inputs
    answer = _checked(await run(inputs, "encode"))
    source = int(answer["source_length"][0])
    end = int(answer.get("end", [_END])[0])
    carried = {name: answer[name] for name in taken}
    ids: list[int] = []
    text = ""
    while max_length is None or len(ids) < max_length:
        answer = _checked(await run(carried, "step"))
        scores = answer["log_probabilities"][0, 0]
        best = int(np.argmax(scores))
        ids.append(best)
        last = best == end or len(ids) == max_length
        added = await _added(run, ids, text, last)
        text += added
        alignment = answer["alignments"][0, 0, :source]
        yield Token(added, best, float(scores[best]), alignment)
        if last:
            return
        carried |= {name: answer[name] for name in taken if name in answer}
        carried["tokens"] = np.array([[best]], "int32")


async def _added(run, ids, before, last):
    """Returns what the last token adds to the text before it."""
    given = {
        "ids": np.array([ids], "int32"),
        "lengths": np.array([len(ids)], "int32"),
    }
    (text,) = _checked(await run(given, "strings"))["text"]
    if not last:
        # The rest of a character may come with the next token.
        text = text.rstrip(_REPLACED)
    if not text.startswith(before):
        raise ValueError(
            "A stream yields what each token adds to the text, so a token may "
            f"not change the text before it. Received: {before!r:.200}, which "
            f"a token changed to {text!r:.200}. Use `predict`, which returns "
            "whole texts."
        )
    return text[len(before) :]


def _checked(result: Result) -> Result:
    error = np.array(result.get("error", "")).reshape(-1)[0]
    if error:
        raise RowError({0: str(error)}, result)
    return result
