"""Rules that force a token, forbid sequences, or renormalize over the rest."""

from collections.abc import Iterable
from numbers import Integral

import keras
import tensorflow as tf

from keras_attn.decoding.hypotheses import NEVER
from keras_attn.decoding.rules import Rule


@keras.saving.register_keras_serializable("keras_attn")
class ForcedToken(Rule):
    """Forces a token at one position, with probability 1.

    Args:
        place: Position of the token: the number of tokens before it.
        token: Id of the token.

    Raises:
        ValueError: If an argument is not an integer of at least 0.

    Example:
        >>> rule = keras_attn.decoding.ForcedToken(place=0, token=7)
        >>> search = keras_attn.GreedySearch(rules=[rule])
    """

    before_softmax = True

    def __init__(self, place, token):
        require_whole("ForcedToken", "place", place)
        require_whole("ForcedToken", "token", token)
        self.place, self.token = int(place), int(token)

    def apply(self, logits, written, state):
        size = logits.shape[-1] or tf.shape(logits)[-1]
        _require_below(size, [self.token], self)
        others = tf.one_hot(self.token, size, 0.0, NEVER)
        # Not `tf.cond`, since ONNX loses the shapes of its results.
        here = tf.cast(written.time == self.place, logits.dtype)
        return logits + here * tf.cast(others, logits.dtype)

    def require_beside(self, rules):
        for other in rules:
            if isinstance(other, ForcedToken):
                against = other.place == self.place
                against &= other.token != self.token
            elif isinstance(other, ForbiddenSequences):
                first = other.first if self.place == 0 else []
                against = [self.token] in other.sequences
                against |= self.token in first
            else:
                against = False
            if against:
                raise ValueError(
                    "Rules must leave a token at each place. Received: "
                    f"{self} and {other!r:.200}, which conflict. Leave out one."
                )

    def get_config(self):
        return {"place": self.place, "token": self.token}


@keras.saving.register_keras_serializable("keras_attn")
class ForbiddenSequences(Rule):
    """Forbids sequences of tokens.

    Args:
        sequences: Lists of ids. A list with a single id forbids this token.
        first: Ids that are forbidden only as the first token.
        begun: Ids that precede the first token; a forbidden sequence may begin
            among them.

    Raises:
        ValueError: If an id is not an integer of at least 0, or a sequence is
            empty.

    Example:
        >>> rule = keras_attn.decoding.ForbiddenSequences([[5], [8, 9]])
        >>> search = keras_attn.BeamSearch(4, rules=[rule])
    """

    def __init__(self, sequences=(), first=(), begun=()):
        self.sequences = _several(sequences, _ids)
        self.first, self.begun = _ids(first), _ids(begun)
        if not all(self.sequences):
            raise ValueError(
                "A sequence that `ForbiddenSequences` forbids must have an id "
                f"at least. Received: {self.sequences!r:.200}. Leave out empty "
                "sequences."
            )
        self.needs_tokens = any(len(x) > 1 for x in self.sequences)

    def penalties(self, time):
        begins = tf.cast(tf.equal(time, 0), tf.float32)
        always = [(x[0], NEVER) for x in self.sequences if len(x) == 1]
        return [*always, *((x, NEVER * begins) for x in self.first)]

    def apply(self, logits, written, state):
        if not self.needs_tokens:
            return logits
        size, more = logits.shape[-1] or tf.shape(logits)[-1], len(self.begun)
        _require_below(size, [x for one in self.sequences for x in one], self)
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


@keras.saving.register_keras_serializable("keras_attn")
class Renormalized(Rule):
    """Renormalizes over the tokens that earlier rules allow.

    Without it a forbidden token keeps its probability, which the others lack.
    The rules of a request, such as those of its terms, come later.

    Example:
        >>> from keras_attn.decoding import ForbiddenSequences, Renormalized
        >>> rules = [ForbiddenSequences([[7]]), Renormalized()]
        >>> search = keras_attn.GreedySearch(rules=rules)
    """

    needs_penalties = normalizes = True
    may_exhaust = False


def _several(given, read):
    """Reads each item of an iterable; refuses anything else."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ValueError(
            "`ForbiddenSequences` takes a list of sequences, each a list of "
            f"ids, and lists of ids as `first` and `begun`. Received: "
            f"{given!r:.200}. Write `[[5]]` to forbid the token 5."
        )
    return [read(x) for x in given]


def _ids(given):
    found = _several(given, lambda x: x)
    for x in found:
        require_whole("ForbiddenSequences", "an id", x)
    return [int(x) for x in found]


def require_whole(rule, name, x):
    whole = isinstance(x, Integral) and not isinstance(x, bool)
    if not whole or x < 0:
        raise ValueError(
            f"In `{rule}` {name} must be an integer of at least 0. Received: "
            f"{x!r:.100}"
        )


def _require_below(size, ids, rule):
    """Refuses ids outside of a vocabulary of `size` ids."""
    if isinstance(size, int) and max(ids, default=0) >= size:
        raise ValueError(
            f"`{type(rule).__name__}` must name ids of the vocabulary. "
            f"Received: {max(ids)}, and a vocabulary of {size} ids."
        )
