"""`StepModel`: the interface by which a search runs a model step by step."""

from typing import Any

import tensorflow as tf

from keras_attn import structures
from keras_attn.arguments import lacking
from keras_attn.decoding.hypotheses import gather


class StepModel:
    """A model on the sources of a batch, which a search runs step by step.

    This is all that a search needs of a model. A subclass writes `start` and
    `step`, and `take_rows` if rows that are done are to leave a batch (see
    `LoopPolicy`). Rows must not depend on each other.

    A state is None, or a structure of tensors whose first two axes are batch
    and beams. It may have *caches* of results of earlier steps, `(batch, beams,
    ..., time, dim)`, with a place for each step. Caches for the longest output
    would make short outputs as slow as long ones. So a model may list its
    caches in `caches`; the argument `places` of `start` then sets their initial
    number of places.

    Attributes:
        rows: Number of sources, an integer or a scalar tensor.
    """

    rows: Any

    def start(self, beams: int, places: int | None = None) -> Any:
        """Returns the state before the first step.

        Args:
            beams: Number of hypotheses for each source.
            places: Number of places of each cache. With 0, every step adds a
                place. Defaults to `None`: a place for each step of the longest
                output.
        """
        raise lacking(self, "start", "the state before the first step")

    def step(self, tokens, state) -> tuple:
        """Reads the last tokens of all hypotheses.

        Args:
            tokens: Ids `(batch, beams)`.
            state: The state returned by `start()` or by the previous step.

        Returns:
            Logits `(batch, beams, vocabulary)` of the next token, alignments
            `(batch, beams, source)`, float32, and the new state.
        """
        raise lacking(self, "step", "logits, alignments and the new state")

    def reorder(self, state, parents) -> Any:
        """Returns the state with each beam replaced by its parent.

        Args:
            state: The state.
            parents: Index of each new beam's parent, `(batch, beams)`.
        """
        return gather(state, parents)

    def caches(self, state) -> list:
        """Returns the caches in a state whose places `start` can set."""
        return []

    def widened(self, state, places: int) -> Any:
        """Returns a state whose caches have `places` more places."""
        return state

    def take_rows(self, rows) -> "StepModel":
        """Returns the model on the sources with these indices, `(rows,)`."""
        raise lacking(self, "take_rows", "the model on some of its sources")


def rows_of(structure, rows, count):
    """Gathers rows of all tensors in a structure, except scalars.

    Args:
        structure: Structure of tensors and None, batch first.
        rows: Indices `(rows,)`, in ascending order.
        count: Number of rows of the tensors. If all rows are taken, nothing
            is copied.
    """
    tensors = structures.flatten(structure)
    taken = tf.cond(
        tf.size(rows) < count,
        lambda: [tf.gather(x, rows) if len(x.shape) else x for x in tensors],
        lambda: [tf.identity(x) for x in tensors],
    )
    return structures.pack(structure, taken)
