"""`PairedTimestamps`: a transcript whose parts are between timestamps."""

import keras
import tensorflow as tf

from keras_attn.decoding.hypotheses import NEVER
from keras_attn.decoding.rules import Rule
from keras_attn.decoding.token_rules import require_whole


@keras.saving.register_keras_serializable("keras_attn")
class PairedTimestamps(Rule):
    """Puts every part of a text between two timestamps.

    Timestamps are the last tokens of the vocabulary, in order of time. An
    output begins with a timestamp, then the text of a part follows. A second
    timestamp ends the part. After it the output ends, or another timestamp,
    which is not earlier, begins the next part. If all timestamps together are
    more probable than any other token, a timestamp is chosen. These are the
    rules of Whisper (Radford et al., 2022, section 2.3, and OpenAI's code).

    Args:
        first: Id of the first timestamp.
        end: Id of the token that ends an output. All smaller ids are text.
        latest: Index of the latest timestamp with which an output may begin,
            0 for the first one. Defaults to `None`: any.

    References:
        - [Radford et al., 2022](https://arxiv.org/abs/2212.04356)

    Raises:
        ValueError: If an argument is not an integer of at least 0, or `first`
            is not above `end`.

    Example:
        >>> rule = keras_attn.decoding.PairedTimestamps(50364, end=50257)
        >>> search = keras_attn.GreedySearch(rules=[rule])
    """

    needs_penalties = True

    def __init__(self, first, end, latest=None):
        for name, x in (("first", first), ("end", end), ("latest", latest)):
            if x is not None or name != "latest":
                require_whole("PairedTimestamps", name, x)
        if first <= end:
            raise ValueError(
                "In `PairedTimestamps` the timestamps must follow the end "
                f"token. Received: first={first}, end={end}. Pass the id of "
                "the first timestamp as `first`, above `end`."
            )
        self.first, self.end = int(first), int(end)
        self.latest = None if latest is None else int(latest)

    def start(self, batch, beams):
        # The last timestamp so far, and whether each of the last two tokens is
        # a timestamp. This first state lets the next token begin a part.
        none = tf.fill([batch, beams], self.first - 1)
        false = tf.zeros([batch, beams], tf.bool)
        return none, ~false, false

    def apply(self, logits, written, state):
        size = logits.shape[-1] or tf.shape(logits)[-1]
        if isinstance(size, int) and self.first >= size:
            raise ValueError(
                "`PairedTimestamps` must name ids of the vocabulary. "
                f"Received: first={self.first}, and a vocabulary of {size} ids."
            )
        latest, is_stamp, was_stamp = state
        ids = tf.range(size)
        stamps = ids >= self.first
        # A second timestamp may repeat the first; all others are later.
        begins = is_stamp & ~was_stamp
        least = latest + tf.where(begins, 0, 1)
        never = stamps & (ids < least[..., None])
        never |= stamps & (is_stamp & was_stamp)[..., None]
        never |= (ids < self.end) & begins[..., None]
        at_first = tf.equal(written.time, 0)
        never |= at_first & ~stamps
        if self.latest is not None:
            never |= at_first & (ids > self.first + self.latest)
        logits = tf.where(never, logits + NEVER, logits)
        together = tf.reduce_logsumexp(logits[..., self.first :], axis=-1)
        others = tf.reduce_max(logits[..., : self.first], axis=-1)
        stamp_comes = (together > others)[..., None]
        return tf.where(stamp_comes & ~stamps, logits + NEVER, logits)

    def update(self, tokens, state):
        latest, is_stamp, _ = state
        now = tokens >= self.first
        return tf.where(now, tokens, latest), now, is_stamp

    def get_config(self):
        return {"first": self.first, "end": self.end, "latest": self.latest}
