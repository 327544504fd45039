"""Rules of what may come next: forbidden, too early, repeated or forced.

None of them changes what a token counts, but for the repetition penalty: a
token that may come has the model's own log-probability, and what the others
would have had is nobody's.
"""

import tensorflow as tf

from keras_attn.search.options import is_fixed
from keras_attn.search.task import NEVER
from keras_attn.search.task import log_normaliser


class Rules:
    """The rules of one run of a search.

    Args:
        search: The search, for its options.
        task: The `Task`, for its forbidden tokens and its prefix.
        limits: `Limits`, for the fewest tokens.

    Attributes:
        need_history: Whether `apply` asks for the tokens so far.
        may_exhaust: Whether all tokens may be ruled out at once.
    """

    def __init__(self, search, task, limits):
        self._end, self._forbidden = task.end_token, task.forbidden
        self._ngram = search.no_repeat_ngram
        self._penalty = search.repetition_penalty
        self._shortest = limits.shortest
        self._prefix = None
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
        """`(id, penalty)` pairs of tokens that may not come in any row."""
        pairs = [(token, NEVER) for token in self._forbidden]
        if is_fixed(self._shortest) and self._shortest > 1:
            pairs.append((self._end, self._early(time)))
        return pairs

    def apply(self, logits, history, time):
        """Penalises and bans what depends on the row or the hypothesis.

        Args:
            logits: float32 tensor of shape `(batch, beams, vocabulary)`.
            history: Tokens so far `(batch, beams, max_length)`, or None if
                `need_history` is False.
            time: How many tokens there are so far.

        Returns:
            Logits to normalise by, and logits to choose by, or None where
            they are the same.
        """
        if self._penalty != 1:
            logits = self._penalise(logits, history, time)
        allowed = None
        if not is_fixed(self._shortest):
            is_end = tf.one_hot(self._end, logits.shape[-1])
            allowed = logits + self._early(time)[:, None, None] * is_end
        if self._ngram:
            allowed = self._ban_repeats(
                logits if allowed is None else allowed, history, time
            )
        return logits, allowed

    def forced(self, logits, time):
        """The prefix's token of every row.

        Args:
            logits: The model's own, before any rule.
            time: How many tokens there are so far.

        Returns:
            Tokens `(batch,)`, 0 where the row may choose, and what each
            beam's log-probability of it is, `(batch, beams)`.
        """

        def by_prefix():
            token = tf.gather(self._prefix, time, axis=1)
            logit = tf.gather(
                tf.transpose(logits, [0, 2, 1]), token, batch_dims=1
            )
            return token, logit - log_normaliser(logits)

        def free():
            return tf.zeros_like(self._prefix[:, 0]), tf.zeros_like(
                logits[..., 0]
            )

        return tf.cond(time < tf.shape(self._prefix)[1], by_prefix, free)

    def _early(self, time):
        """What the end token costs while it is too early for it."""
        return NEVER * tf.cast(time + 1 < self._shortest, tf.float32)

    def _penalise(self, logits, history, time):
        """Divides positive logits of tokens so far, multiplies negative."""
        logit = tf.gather(logits, history, batch_dims=2)  # (B, K, T)
        positive = logit > 0
        penalised = tf.where(
            positive, logit / self._penalty, logit * self._penalty
        )
        come = tf.range(history.shape[-1]) < time
        penalised = tf.where(come, penalised, float("inf"))
        return _at_most(logits, history, penalised)

    def _ban_repeats(self, logits, history, time):
        """Bans what would complete an n-gram that came before."""
        before, length = self._ngram - 1, history.shape[-1]
        starts = length - before  # (B, K, starts): n-grams that may be there
        if starts <= 0:
            return logits
        # The last n - 1 tokens; at the very beginning there are not so many.
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
    """Lowers logits `(B, K, V)` of tokens `(B, K, N)` to `(B, K, N)`.

    It is the same whichever of equal tokens comes first.
    """
    batch, beams, vocabulary = tf.unstack(tf.shape(logits))
    row = tf.reshape(tf.range(batch * beams), [batch, beams, 1])
    index = tf.reshape(row * vocabulary + tokens, [-1, 1])
    flat = tf.tensor_scatter_nd_min(
        tf.reshape(logits, [-1]), index, tf.reshape(bounds, [-1])
    )
    return tf.reshape(flat, tf.shape(logits))
