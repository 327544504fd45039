"""Options of a search: what they may be, and which may come with a request."""

import math
import numbers
from typing import NamedTuple

import tensorflow as tf

LARGEST = tf.float32.max  # finite: a range up to it refuses infinity and NaN
OWN = -1  # where every row has a number: the search's own


def check_common(search):
    """Refuses what no search can do with the options that all have."""
    require_integers(search, "max_length", "min_length", "no_repeat_ngram")
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
    for name in ("max_per_source", "min_per_source"):
        _check_per_source(search, name)
    if search.no_repeat_ngram < 0:
        raise ValueError(
            "`no_repeat_ngram` is the length of the n-grams that may not come "
            "twice, and at least 0. Received: no_repeat_ngram="
            f"{search.no_repeat_ngram!r}. 0 lets all of them come again."
        )
    require_number(search, "repetition_penalty")
    if search.repetition_penalty < 1:
        raise ValueError(
            "`repetition_penalty` divides positive logits of tokens that came "
            "already, and must be at least 1. Received: repetition_penalty="
            f"{search.repetition_penalty!r}. 1.0 changes nothing, 1.2 is the "
            "paper's."
        )


def _check_per_source(search, name):
    pair = getattr(search, name)
    if pair is None:
        return
    if isinstance(pair, list):  # as JSON has it
        pair = tuple(pair)
        object.__setattr__(search, name, pair)
    if not (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(_is_number(x) for x in pair)
        and pair[0] > 0
    ):
        absolute = name.replace("per_source", "length")
        raise ValueError(
            f"`{name}` must be a pair (a, b) of numbers with a > 0, for a "
            "limit of a * source length + b tokens. Received: "
            f"{name}={pair!r}. A limit that does not depend on the source is "
            f"`{absolute}`."
        )


def require_integers(search, *names):
    for name in names:
        value = getattr(search, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(
                f"`{name}` must be an integer. Received: {name}={value!r}"
            )


def require_number(search, name):
    value = getattr(search, name)
    if not _is_number(value):
        raise ValueError(
            f"`{name}` must be a finite number. Received: {name}={value!r}"
        )


def _is_number(value):
    return (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def option(search, task, name):
    """The search's own, or a `(B,)` tensor that came with the request."""
    if task.options and name in task.options:
        return tf.cast(task.options[name], search.request_options[name])
    return getattr(search, name)


def is_fixed(value):
    """Whether an option or limit is one number, known before the graph."""
    return not tf.is_tensor(value)


def check_names(search, options):
    """Refuses options that this search does not take with a request."""
    known = search.request_options
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"{search} takes these options with a request: {sorted(known)}. "
            f"Received: {unknown}. What it does not take is fixed by the "
            "search itself."
        )


class Range(NamedTuple):
    """What an option may be in a row."""

    low: float
    high: float = LARGEST
    above: bool = False  # whether `low` itself is out of range

    def __str__(self):
        if self.high == LARGEST:
            least = "above" if self.above else "at least"
            return f"{least} {self.low} and finite"
        if self.above:
            return f"above {self.low} and at most {self.high}"
        return f"between {self.low} and {self.high}"

    def holds(self, value):
        """Whether each number is in the range, which NaN never is."""
        low = value > self.low if self.above else value >= self.low
        return low & (tf.cast(value, tf.float32) <= self.high)


def check_ranges(search, options):
    """Returns the options as tensors that fail where out of range."""
    check_names(search, options)
    ranges = search.option_ranges
    return {
        name: _in_range(name, value, search.request_options[name], ranges[name])
        for name, value in options.items()
    }


def _in_range(name, value, dtype, allowed):
    value = tf.convert_to_tensor(value, dtype)
    check = tf.debugging.Assert(
        tf.reduce_all(allowed.holds(value)),
        [f"`{name}` must be {allowed} in every row. Received: {name}=", value],
        summarize=16,
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(value)


def refused(search, options):
    """Says what is wrong with the options of each row.

    Args:
        search: The search.
        options: Dictionary of tensors `(batch,)`, in which `OWN` stands for
            the search's own.

    Returns:
        List of strings `(batch,)`, one for each option, "" where all is well.
    """
    errors = []
    for name, value in options.items():
        allowed = search.option_ranges[name]
        received = [
            f"`{name}` must be {allowed}. Received: {name}=",
            # As short as they can be written, not with six digits.
            tf.strings.as_string(value, shortest=value.dtype.is_floating),
            f". {OWN} stands for the search's own, {getattr(search, name)}.",
        ]
        fine = (value == OWN) | allowed.holds(value)
        errors.append(tf.where(fine, "", tf.strings.join(received)))
    return errors


def with_own(search, options, bad):
    """The search's own options where none was asked for, or a row is bad."""
    options = {
        name: tf.where(
            (value == OWN) | bad,
            tf.cast(getattr(search, name), value.dtype),
            value,
        )
        for name, value in options.items()
    }
    return search.check_options(options)
