"""Rules that force a token or forbid sequences of them."""

import keras
import tensorflow as tf

from keras_attn.decoding.hypotheses import NEVER
from keras_attn.decoding.rules import Rule


@keras.saving.register_keras_serializable("keras_attn")
class ForcedToken(Rule):
    """Only one token can come at a place, with the probability 1.

    Args:
        place: Number of tokens before it.
        token: Its id.

    Example:
        >>> rule = keras_attn.decoding.ForcedToken(place=0, token=7)
        >>> search = keras_attn.GreedySearch(rules=[rule])
    """

    before_softmax = True

    def __init__(self, place, token):
        self.place, self.token = int(place), int(token)

    def apply(self, logits, written, state):
        size = logits.shape[-1] or tf.shape(logits)[-1]
        others = tf.one_hot(self.token, size, 0.0, NEVER)
        # Not `tf.cond`, behind which ONNX knows no shapes.
        here = tf.cast(written.time == self.place, logits.dtype)
        return logits + here * tf.cast(others, logits.dtype)

    def get_config(self):
        return {"place": self.place, "token": self.token}


@keras.saving.register_keras_serializable("keras_attn")
class ForbiddenSequences(Rule):
    """No hypothesis has any of these sequences of tokens.

    Args:
        sequences: Lists of ids; one of a single id forbids this token.
        first: Ids that are forbidden as the first token alone.
        begun: Ids before the first token, in which a sequence may begin.

    Example:
        >>> rule = keras_attn.decoding.ForbiddenSequences([[5], [8, 9]])
        >>> search = keras_attn.BeamSearch(4, rules=[rule])
    """

    def __init__(self, sequences=(), first=(), begun=()):
        self.sequences = [[int(x) for x in one] for one in sequences]
        self.first = [int(x) for x in first]
        self.begun = [int(x) for x in begun]
        self.needs_tokens = any(len(x) > 1 for x in self.sequences)

    def penalties(self, time):
        begins = tf.cast(tf.equal(time, 0), tf.float32)
        always = [(x[0], NEVER) for x in self.sequences if len(x) == 1]
        return [*always, *((x, NEVER * begins) for x in self.first)]

    def apply(self, logits, written, state):
        if not self.needs_tokens:
            return logits
        size, more = logits.shape[-1] or tf.shape(logits)[-1], len(self.begun)
        tokens = tf.pad(written.tokens, [[0, 0], [0, 0], [more, 0]])
        if more:
            numbers = tf.range(tf.shape(tokens)[-1])
            start = tf.pad(self.begun, [[0, tf.size(numbers) - more]])
            tokens = tf.where(numbers < more, start, tokens)
        time = written.time + more
        for *before, last in self.sequences:
            count = len(before)
            if not count:
                continue
            places = tf.maximum(time - count + tf.range(count), 0)
            recent = tf.gather(tokens, places, axis=2)
            come = tf.reduce_all(recent == before, axis=-1) & (time >= count)
            cost = tf.where(come, NEVER, 0.0)[..., None]
            logits += cost * tf.one_hot(last, size)
        return logits

    def get_config(self):
        return {
            "sequences": self.sequences,
            "first": self.first,
            "begun": self.begun,
        }
