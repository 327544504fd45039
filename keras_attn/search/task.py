"""What a search takes, what it gives, and what all searches share."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

# Stands for the log-probability of the impossible. Finite, since the
# difference of two infinities is NaN, and far below any real sum.
IMPOSSIBLE = -1e9


class Hypotheses(NamedTuple):
    """The sequences that a search found, best first.

    `N` is the number of hypotheses asked for. One that does not exist has
    length 0, a score of minus infinity and is not finished.
    """

    tokens: tf.Tensor  # (batch, N, time), int32, zero past the length
    lengths: tf.Tensor  # (batch, N), int32, the end token counted
    scores: tf.Tensor  # (batch, N), float32
    finished: tf.Tensor  # (batch, N), False where cut at the maximum length
    alignments: tf.Tensor  # (batch, N, time, source), float32


class Task(NamedTuple):
    """What a search works on.

    `step(tokens (batch, beams), state)` returns logits `(batch, beams,
    vocabulary)`, alignments `(batch, beams, source)` and the new state.
    `start(beams)` returns the first state, a structure of tensors whose
    first two axes are batch and beams.
    """

    step: Callable
    start: Callable
    batch: Any  # number of sources, an integer or a scalar tensor
    start_token: int
    end_token: int
    forbidden: tuple = ()  # ids that no hypothesis may contain
    source_mask: Any = None  # (batch, source), or None where all are real
    source_lengths: Any = None  # (batch,), int32, the end token counted
    prefix: Any = None  # (batch, P) ids that hypotheses begin with, 0 pads
    seed: Any = None  # (batch,), int32, of which a row's draws are made
    options: Any = None  # name -> (batch,) tensor, instead of the search's


def loop(condition, body, state, max_length):
    """A while loop over one named state.

    It takes at least one step, also for a batch without rows: a buffer that
    nothing was written to does not know its shape.
    """
    (state,) = tf.while_loop(
        lambda state: (state.time == 0) | condition(state),
        lambda state: (body(state),),
        (state,),
        maximum_iterations=max_length,
    )
    return state


def banned(task, min_length, time):
    """Tokens that may not come now, and what that costs them."""
    never = 2 * IMPOSSIBLE
    pairs = [(token, never) for token in task.forbidden]
    if min_length > 1:
        early = tf.cast(time + 1 < min_length, tf.float32)
        pairs.append((task.end_token, early * never))
    return pairs


def zero_past(alignments, lengths):
    """Zeroes `(B, N, T, S)` past the lengths `(B, N)`."""
    real = tf.sequence_mask(lengths, alignments.shape[2])
    return tf.where(real[..., None], alignments, 0.0)


def check_lengths(search):
    """Refuses lengths that no hypothesis can have."""
    require_integers(search, "max_length", "min_length")
    if search.max_length < 1:
        raise ValueError(
            "`max_length` counts tokens, the end token too, and must be at "
            f"least 1. Received: max_length={search.max_length!r}"
        )
    if not 1 <= search.min_length <= search.max_length:
        raise ValueError(
            "`min_length` must be between 1 and `max_length`. Received: "
            f"min_length={search.min_length!r}, "
            f"max_length={search.max_length!r}"
        )


def require_integers(search, *names):
    for name in names:
        value = getattr(search, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(
                f"`{name}` must be an integer. Received: {name}={value!r}"
            )
