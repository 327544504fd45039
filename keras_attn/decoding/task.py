"""`Task` and `Hypotheses`, the input and the output of every search."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

# The log-probability of an impossible hypothesis. It is finite, since the
# difference of two infinities is NaN, and far below any real sum.
IMPOSSIBLE = -1e9
POSSIBLE = IMPOSSIBLE / 2  # log-probabilities above this are possible
NEVER = 2 * IMPOSSIBLE  # the penalty of a forbidden token


def gather(structure, index):
    """Gathers the items `index (B, N)` of axis 1 of every tensor."""
    return tf.nest.map_structure(
        lambda x: None if x is None else tf.gather(x, index, batch_dims=1),
        structure,
    )


class Hypotheses(NamedTuple):
    """The sequences that a search found, best first.

    `N` is the search's `num_hypotheses`. If it found fewer, the missing ones
    have length 0, a score of minus infinity, and are not finished.
    """

    tokens: tf.Tensor  # (batch, N, time), int32, zero past the length
    lengths: tf.Tensor  # (batch, N), int32, the end token counted
    scores: tf.Tensor  # (batch, N), float32
    finished: tf.Tensor  # (batch, N), False where cut
    alignments: tf.Tensor  # (batch, N, time, source), float32


class Task(NamedTuple):
    """The input of a search: a step function, its state and the request.

    `step(tokens (batch, beams), state)` returns logits `(batch, beams,
    vocabulary)`, alignments `(batch, beams, source)` and the new state.
    `start(beams)` returns the first state: None, or a structure of tensors
    whose first two axes are batch and beams. `reorder(state, parents)`
    gathers the states of the beams' parents `(batch, beams)`.

    A state may have buffers `(batch, beams, ..., time, dim)` with a place for
    each step, and `start(beams)` makes places for all. With `buffers`, which
    returns a list of a state's buffers, they start small: `start(beams, n)`
    makes places for `n` steps, and with 0 each step adds a place. Where the
    shapes in a loop have to stay, there is also `widened(state, n)`, which adds
    places for `n` steps.

    If `records_end` is set, recorded arrays stop at the loop's last step, and a
    search pads them. That is so in ONNX, where a loop stacks what its steps
    return. TensorFlow has a place for each step from the beginning.

    Rows that are done leave the batch if there is `over`. Of `given`, a
    structure of tensors, batch first, `over(given)` makes the same task, also
    of some of the rows. Such a task has `buffers`.
    """

    step: Callable
    start: Callable
    batch: Any  # number of sources, an integer or a scalar tensor
    start_token: int
    end_token: int
    forbidden: tuple = ()  # ids that no hypothesis may contain
    source_mask: Any = None  # (batch, source), or None where all are real
    source_lengths: Any = None  # (batch,), int32, the end token counted
    prefix: Any = None  # (batch, P) ids that hypotheses begin with, padded
    seed: Any = None  # (batch,), int32, for the random draws of a row
    options: Any = None  # name -> (batch,) tensor, replaces the search's own
    reorder: Callable = gather
    padding: int = 0  # the id that pads prefixes
    buffers: Callable | None = None
    widened: Callable | None = None
    given: Any = None
    over: Callable | None = None
    records_end: bool = False


def log_normalizer(logits):
    """Returns log-sum-exp over the last axis, of logits not all -inf."""
    peak = tf.reduce_max(logits, axis=-1, keepdims=True)
    total = tf.reduce_sum(tf.exp(logits - peak), axis=-1)
    return peak[..., 0] + tf.math.log(total)


def zero_past(alignments, lengths):
    """Returns `(B, N, T, S)` with zeros past the lengths `(B, N)`."""
    real = tf.sequence_mask(lengths, alignments.shape[2])
    return tf.where(real[..., None], alignments, 0.0)
