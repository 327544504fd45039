"""Losses on alignments, which influence where a model attends.

An `Attention` with a `regularizer` adds this loss to the model's loss, both
as a layer by itself and inside an `AttentionDecoder`.
"""

import keras
from keras import ops


class _Regularizer:
    """Base class of the regularizers; holds their weight."""

    def __init__(self, weight):
        is_number = isinstance(weight, (int, float)) and weight is not True
        if not is_number or not weight > 0:
            raise ValueError(
                f"`weight` of a `{type(self).__name__}` must be above 0. "
                f"Received: weight={weight!r}. For no such loss use "
                "`regularizer=None`."
            )
        self.weight = weight

    def get_config(self):
        return {"weight": self.weight}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable("keras_attn")
class DoublyStochastic(_Regularizer):
    """Penalises source positions whose total attention weight is not 1.

    The loss of a sentence is `Σ_s (1 - Σ_t a[t, s])²` over its real
    positions. The loss of a batch is the mean over its sentences, times
    `weight`.

    Args:
        weight: The paper's `λ`, above 0.

    Call arguments:
        alignments: Tensor of shape `(batch, target, source)`.
        query_mask: Boolean tensor of shape `(batch, target)`, True = real,
            or `None`.
        value_mask: Boolean tensor of shape `(batch, source)`, True = real,
            or `None`.

    Output:
        A float32 scalar.

    Reference:
        - [Xu et al., 2015](https://arxiv.org/abs/1502.03044), equation 14

    Example:
        >>> loss = keras_attn.DoublyStochastic(1.0)
        >>> twice_and_never = np.array([[[1.0, 0.0], [1.0, 0.0]]])
        >>> float(loss(twice_and_never))
        2.0
    """

    def __call__(self, alignments, query_mask=None, value_mask=None):
        alignments = _real_queries(alignments, query_mask)
        missing = 1 - ops.sum(alignments, axis=1)  # (batch, source)
        if value_mask is not None:
            missing = ops.where(value_mask, missing, 0.0)
        by_sentence = ops.sum(ops.square(missing), axis=-1)
        return self.weight * ops.mean(by_sentence)


@keras.saving.register_keras_serializable("keras_attn")
class CoverageLoss(_Regularizer):
    """Penalises queries that attend where earlier queries have attended.

    The loss of a query is `Σ_s min(a[t, s], c[t, s])`, where `c` is the sum
    of the alignments of all earlier queries. The loss of a batch is the mean
    over its real queries, times `weight`. The loss of a query is at most 1,
    and that of a sentence's first query is 0.

    Args:
        weight: The paper's `λ`, above 0. The paper uses `1.0`, and adds the
            loss only after training without it.

    Call arguments:
        alignments: Tensor of shape `(batch, target, source)`.
        query_mask: Boolean tensor of shape `(batch, target)`, True = real,
            or `None`.
        value_mask: Boolean tensor of shape `(batch, source)`, True = real,
            or `None`.

    Output:
        A float32 scalar.

    Reference:
        - [See et al., 2017](https://arxiv.org/abs/1704.04368), equation 12

    Example:
        >>> loss = keras_attn.CoverageLoss(1.0)
        >>> twice_and_never = np.array([[[1.0, 0.0], [1.0, 0.0]]])
        >>> float(loss(twice_and_never))  # the second query looks there again
        0.5
    """

    def __call__(self, alignments, query_mask=None, value_mask=None):
        alignments = _real_queries(alignments, query_mask)
        if value_mask is not None:
            alignments = ops.where(
                ops.expand_dims(value_mask, 1), alignments, 0.0
            )
        coverage = ops.cumsum(alignments, axis=1) - alignments
        # A masked query has zero alignments, so it adds nothing.
        total = ops.sum(ops.minimum(alignments, coverage))
        if query_mask is None:
            queries = ops.ones_like(alignments[:, :, 0])
        else:
            queries = ops.cast(query_mask, "float32")
        return self.weight * total / ops.maximum(ops.sum(queries), 1.0)


def _real_queries(alignments, query_mask):
    """Returns float32 alignments, zero for queries that are padding."""
    alignments = ops.cast(alignments, "float32")
    if query_mask is None:
        return alignments
    return ops.where(ops.expand_dims(query_mask, -1), alignments, 0.0)
