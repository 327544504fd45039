"""Moves of an alignment from one source position to the next.

A transition is a distribution `A_t(s' | s)` over the positions of a step,
given the position of the step before. Probabilities are kept as logarithms. The
logarithm of zero is the finite number `NEVER`, because infinities make
gradients NaN.
"""

import keras
from keras import layers
from keras import ops

from keras_attn.layers.attention.heads import apply_to_rows

# Stands for log 0. Its exponential is 0, and sums of it stay finite.
NEVER = -1e30


class Transition(keras.layers.Layer):
    """Base class of transitions.

    Args:
        monotonic: Whether no position before the last one is possible. The
            others are renormalized.
    """

    def __init__(self, monotonic, **kwargs):
        super().__init__(**kwargs)
        self.monotonic = monotonic

    def build(self, hidden_shape, memory_shape):
        """Creates the weights for hidden states and memories."""
        raise NotImplementedError

    def project(self, memory, mask):
        """Computes what is the same in all steps, once per source.

        Args:
            memory: Tensor of shape `(batch, source, dim)`.
            mask: Boolean tensor `(batch, source)`, or `None`.

        Returns:
            Tensor of shape `(batch, source, any)`.
        """
        raise NotImplementedError

    def ask(self, hidden, projected):
        """Computes all that does not depend on the last position.

        It does so for any number of steps at once.

        Args:
            hidden: Tensor of shape `(batch, steps, dim)`.
            projected: Result of `project()`.

        Returns:
            Tensor of shape `(batch, steps, any)`, float32 or wider.
        """
        raise NotImplementedError

    def move(self, alpha, asked, projected, mask):
        """Returns `logsumexp_s(alpha(s) + A(s' | s))`.

        Args:
            alpha: Log-probabilities of the last positions, `(batch, steps,
                source)`.
            asked: Result of `ask()`.
            projected: Result of `project()`.
            mask: Boolean tensor `(batch, source)`, or `None`.

        Returns:
            Log-probabilities of the next positions, `(batch, steps, source)`.
        """
        raise NotImplementedError


class ZerothOrder(Transition):
    """Chooses a position by its content: `softmax_s'(h_t K m_s')`.

    The last position matters only if the transition is monotonic.

    References:
        - [Wu et al., 2018](https://arxiv.org/abs/1808.10024), section 3
        - [Wu and Cotterell, 2019](https://arxiv.org/abs/1905.06319), section
          3.1, for monotonic transitions
    """

    def build(self, hidden_shape, memory_shape):
        self.dense = layers.Dense(
            hidden_shape[-1],
            use_bias=False,
            dtype=self.dtype_policy,
            name="keys",
        )
        self.dense.build((None, memory_shape[-1]))

    def project(self, memory, mask):
        return apply_to_rows(self.dense, memory)

    def ask(self, hidden, projected):
        scores = ops.einsum("btd,bsd->bts", hidden, projected)
        return wide(scores)

    def move(self, alpha, asked, projected, mask):
        scores = _where(mask, asked)
        if not self.monotonic:
            return ops.log_softmax(scores)  # alpha sums to one
        position = ops.arange(ops.shape(scores)[-1], dtype="int32")
        ahead = ops.expand_dims(position, 1) <= position  # (from, to)
        scores = ops.where(ahead, ops.expand_dims(scores, 2), NEVER)
        moves = ops.log_softmax(scores)  # (batch, steps, from, to)
        return ops.logsumexp(ops.expand_dims(alpha, -1) + moves, axis=2)


class FirstOrder(Transition):
    """Moves by a few positions: a softmax over offsets, of `U [h_t; m_s]`.

    `U` has a row for each offset. Offsets that lead out of the source or to
    padding are excluded, and the others are renormalized. The paper applies a
    matrix to `m_s` first; here `U` contains the product with that matrix.

    Args:
        window: The largest offset in either direction.
        monotonic: Whether negative offsets are excluded too.

    Reference:
        - [Wu and Cotterell, 2019](https://arxiv.org/abs/1905.06319), section
          3.2
    """

    def __init__(self, window, monotonic, **kwargs):
        super().__init__(monotonic, **kwargs)
        self.window = window
        self.offsets = range(0 if monotonic else -window, window + 1)

    def build(self, hidden_shape, memory_shape):
        def dense(name, **options):
            return layers.Dense(
                len(self.offsets),
                dtype=self.dtype_policy,
                name=name,
                **options,
            )

        self.of_hidden = dense("of_hidden", use_bias=False)
        self.of_memory = dense("of_memory")
        self.of_hidden.build((None, hidden_shape[-1]))
        self.of_memory.build((None, memory_shape[-1]))

    def project(self, memory, mask):
        if mask is None:
            mask = ops.ones(ops.shape(memory)[:2], dtype="bool")
        real = ops.cast(mask, "int32")
        lands = ops.stack(
            [self._shifted(real, -offset, 0) for offset in self.offsets], -1
        )
        scores = wide(apply_to_rows(self.of_memory, memory))
        return ops.where(lands == 1, scores, NEVER)

    def ask(self, hidden, projected):
        return wide(apply_to_rows(self.of_hidden, hidden))

    def move(self, alpha, asked, projected, mask):
        scores = ops.expand_dims(asked, 2) + ops.expand_dims(projected, 1)
        leaving = ops.expand_dims(alpha, -1) + ops.log_softmax(scores)
        arriving = [
            self._shifted(leaving[..., i], offset, NEVER)
            for i, offset in enumerate(self.offsets)
        ]
        return ops.logsumexp(ops.stack(arriving, -1), axis=-1)

    def _shifted(self, x, offset, fill):
        """Moves entries along the last axis by an offset."""
        n = self.window
        none = [(0, 0)] * (len(x.shape) - 1)
        padded = ops.pad(x, [*none, (n, n)], constant_values=fill)
        # As many entries as before, from `n - offset` on.
        return padded[..., n - offset : (-n - offset) or None]


def wide(x):
    """Casts half precision to float32; keeps float32 and float64."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def _where(mask, x):
    return x if mask is None else ops.where(ops.expand_dims(mask, 1), x, NEVER)
