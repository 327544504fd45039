"""`StepModel`: a model as a search runs it, a token at a time."""

from typing import Any

import tensorflow as tf

from keras_attn import structures
from keras_attn.arguments import lacking
from keras_attn.decoding.hypotheses import gather


class StepModel:
    """A model on the sources of a batch, which a search runs step by step.

    A search needs no more of a model than this. A subclass writes `start` and
    `step`, and `take_rows` if rows that are done shall leave a batch (see
    `LoopPolicy`). Rows do not depend on each other.

    A state is None, or a structure of tensors whose first two axes are batch
    and beams. It may have *caches* of what earlier steps computed,
    `(batch, beams, ..., time, dim)`, with a place for each step. A cache for
    the longest output would make short outputs as slow as long ones. So a
    model that lists its caches in `caches` starts with the number of places
    that `start` asks for.

    Attributes:
        rows: Number of sources, an integer or a scalar tensor.
    """

    rows: Any

    def start(self, beams: int, places: int | None = None) -> Any:
        """Returns the state before the first step.

        Args:
            beams: Number of hypotheses for each source.
            places: Number of places of each cache: with 0 every step adds one.
                Defaults to one for each step of the longest output.
        """
        raise lacking(self, "start", "the state before the first step")

    def step(self, tokens, state) -> tuple:
        """Reads the last tokens of all hypotheses.

        Args:
            tokens: Ids `(batch, beams)`.
            state: Result of `start()` or of the last step.

        Returns:
            Logits `(batch, beams, vocabulary)` of the next token, alignments
            `(batch, beams, source)`, float32, and the new state.
        """
        raise lacking(self, "step", "logits, alignments and the new state")

    def reorder(self, state, parents) -> Any:
        """Gathers the states of the beams' parents `(batch, beams)`."""
        return gather(state, parents)

    def caches(self, state) -> list:
        """Returns the caches of a state, whose places `start` can choose."""
        return []

    def widened(self, state, places: int) -> Any:
        """Returns a state whose caches have more places."""
        return state

    def take_rows(self, rows) -> "StepModel":
        """Returns the same model on some sources, by indices `(rows,)`."""
        raise lacking(self, "take_rows", "the model on some of its sources")


def rows_of(structure, rows, count):
    """Gathers rows of all tensors but scalars; returns a structure.

    Args:
        structure: Structure of tensors and None, batch first.
        rows: Indices `(rows,)`, in rising order.
        count: Number of rows of the tensors. If all are taken, none is
            copied.
    """
    tensors = structures.flatten(structure)
    taken = tf.cond(
        tf.size(rows) < count,
        lambda: [tf.gather(x, rows) if len(x.shape) else x for x in tensors],
        lambda: [tf.identity(x) for x in tensors],
    )
    return structures.pack(structure, taken)
