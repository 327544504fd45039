"""The rules on the next token: forbidden, too early, repeated or forced.

Forbidden tokens are skipped; the others keep the model's log-probability,
without renormalizing. Only the repetition penalty changes log-probabilities.
"""

import tensorflow as tf

from keras_attn.decoding.candidates import size_of
from keras_attn.decoding.options import is_fixed
from keras_attn.decoding.task import NEVER
from keras_attn.decoding.task import log_normalizer


class Rules:
    """The rules of one run of a search.

    Args:
        search: The search, for its options.
        task: The `Task`, for its forbidden tokens and its prefix.
        limits: The `Limits`, for the minimum length.

    Attributes:
        need_history: Whether `apply` needs the tokens so far.
        forces: Whether there is a prefix, which forces tokens.
        may_exhaust: Whether the rules can forbid all tokens at once.
    """

    def __init__(self, search, task, limits):
        self._end, self._forbidden = task.end_token, task.forbidden
        self._ngram = search.no_repeat_ngram
        self._penalty = search.repetition_penalty
        self._shortest = limits.shortest
        self._prefix, self._padding = None, task.padding
        if task.prefix is not None and task.prefix.shape[1] != 0:
            self._prefix = tf.cast(task.prefix, tf.int32)
        at_once = is_fixed(limits.shortest) and limits.shortest == 1
        self.need_history = self._ngram > 0 or self._penalty != 1
        self.forces = self._prefix is not None
        self.may_exhaust = (
            self._ngram > 0
            or self.forces
            or not at_once
            or task.end_token in task.forbidden
        )

    def banned(self, time):
        """Returns `(id, penalty)` pairs of tokens forbidden in every row."""
        pairs = [(token, NEVER) for token in self._forbidden]
        if is_fixed(self._shortest) and self._shortest > 1:
            pairs.append((self._end, self._early(time)))
        return pairs

    def apply(self, logits, history, time):
        """Applies the rules that depend on the row or the hypothesis.

        Args:
            logits: float32 tensor of shape `(batch, beams, vocabulary)`.
            history: Tokens so far `(batch, beams, max_length)`, or None if
                `need_history` is False.
            time: Number of tokens so far.

        Returns:
            The logits that the softmax normalizes over, and the masked
            logits to choose by, or None where these are the same.
        """
        if self._penalty != 1:
            logits = self._penalise(logits, history, time)
        allowed = None
        if not is_fixed(self._shortest):
            is_end = tf.one_hot(self._end, size_of(logits))
            allowed = logits + self._early(time)[:, None, None] * is_end
        if self._ngram:
            allowed = self._ban_repeats(
                logits if allowed is None else allowed, history, time
            )
        return logits, allowed

    def forced(self, logits, time):
        """Returns the prefix's token of every row.

        Args:
            logits: The model's own, before any rule.
            time: Number of tokens so far.

        Returns:
            Whether each row has a token here, `(batch,)`, this token, and the
            log-probability that each beam gives it, `(batch, beams)`.
        """
        tokens = tf.shape(self._prefix)[1]

        def by_prefix():
            token = tf.gather(self._prefix, time, axis=1)
            logit = tf.gather(
                tf.transpose(logits, [0, 2, 1]), token, batch_dims=1
            )
            return token, logit - log_normalizer(logits)

        def free():
            none = tf.fill(tf.shape(self._prefix)[:1], self._padding)
            return none, tf.zeros_like(logits[..., 0])

        token, logp = tf.cond(time < tokens, by_prefix, free)
        return token != self._padding, token, logp

    def _early(self, time):
        """Returns the end token's penalty, `NEVER` before the minimum."""
        return NEVER * tf.cast(time + 1 < self._shortest, tf.float32)

    def _penalise(self, logits, history, time):
        """Divides the past tokens' positive logits, multiplies negative."""
        logit = tf.gather(logits, history, batch_dims=2)  # (B, K, T)
        positive = logit > 0
        penalised = tf.where(
            positive, logit / self._penalty, logit * self._penalty
        )
        come = tf.range(history.shape[-1]) < time
        penalised = tf.where(come, penalised, float("inf"))
        return _at_most(logits, history, penalised)

    def _ban_repeats(self, logits, history, time):
        """Bans tokens that would complete an n-gram for the second time."""
        before, length = self._ngram - 1, history.shape[-1]
        starts = length - before  # positions where an n-gram may start
        if starts <= 0:
            return logits
        # The last n - 1 tokens; indices are clipped while there are fewer.
        last = tf.gather(
            history, tf.maximum(time - before + tf.range(before), 0), axis=2
        )
        seen = tf.range(starts) + before < time
        for i in range(before):
            seen &= history[..., i : i + starts] == last[..., i : i + 1]
        cost = tf.where(seen, NEVER, float("inf"))
        cost = tf.broadcast_to(cost, tf.shape(history[..., before:]))
        return _at_most(logits, history[..., before:], cost)


def _at_most(logits, tokens, bounds):
    """Lowers the logits `(B, K, V)` of tokens to at most their bounds.

    Tokens and bounds are `(B, K, N)`. Where a token occurs several times, the
    smallest bound counts, so the result does not depend on their order.
    """
    batch, beams, vocabulary = tf.unstack(tf.shape(logits))
    row = tf.reshape(tf.range(batch * beams), [batch, beams, 1])
    index = tf.reshape(row * vocabulary + tokens, [-1, 1])
    flat = tf.tensor_scatter_nd_min(
        tf.reshape(logits, [-1]), index, tf.reshape(bounds, [-1])
    )
    return tf.reshape(flat, tf.shape(logits))
