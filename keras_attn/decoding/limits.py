"""The longest and the shortest length of a hypothesis, row by row."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.decoding.options import is_fixed


class Limits(NamedTuple):
    """Limits in tokens, the end token counted; integers if all rows agree."""

    longest: Any  # an integer or (B,)
    shortest: Any  # an integer or (B,), at most the longest

    @classmethod
    def of(cls, search, search_input):
        """Returns the limits from the search's options and the input.

        Args:
            search: The `Search`.
            search_input: The `SearchInput`: options of the request and
                lengths of the sources.
        """
        longest = search.option("max_length", search_input)
        shortest = search.option("min_length", search_input)
        if search.max_per_source is not None:
            limit = _per_source("max_per_source", search, search_input)
            longest = tf.clip_by_value(limit, 1, longest)
        if search.min_per_source is not None:
            limit = _per_source("min_per_source", search, search_input)
            shortest = tf.maximum(limit, shortest)
        if not (is_fixed(shortest) and (is_fixed(longest) or shortest == 1)):
            shortest = tf.minimum(shortest, longest)
        return cls(longest, shortest)


def _per_source(name, search, search_input):
    """Returns `a * source + b`, rounded down, of shape `(B,)`."""
    pair = getattr(search, name)
    if search_input.source_lengths is None:
        raise ValueError(
            f"`{name}` needs the lengths of the sources. Received: "
            f"{name}={pair!r} and a `SearchInput` without "
            "`source_lengths`. Pass the lengths, or use `max_length` and "
            "`min_length`, which need no source."
        )
    a, b = pair
    limit = a * tf.cast(search_input.source_lengths, tf.float32) + b
    # The small addend makes 1.1 * 10 give 11 even if float32 rounds it down.
    return tf.cast(tf.floor(limit + 1e-3), tf.int32)
