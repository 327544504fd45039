"""Scores that multiply query and key."""

import math

import keras
from keras import ops

from keras_attn.layers.scores.score import Score
from keras_attn.layers.scores.score import clone
from keras_attn.layers.scores.score import linear
from keras_attn.layers.scores.score import positive_number


@keras.saving.register_keras_serializable("keras_attn")
class DotScore(Score):
    """Luong's "dot" score, `query · key`. It has no weights.

    Call arguments:
        query: Tensor of shape `(batch, target, dim)`.
        keys: Tensor of shape `(batch, source, dim)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.

    Raises:
        ValueError: If query and key differ in width.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.1

    Example:
        >>> attention = keras_attn.Attention(keras_attn.DotScore())
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 4))).shape
        TensorShape([1, 2, 4])
    """

    def build(self, query_shape, key_shape):
        _require_equal_width(self, query_shape, key_shape)

    def call(self, query, keys):
        return dot(query, keys)


@keras.saving.register_keras_serializable("keras_attn")
class ScaledDotScore(Score):
    """The Transformer's score, `scale * query · key`.

    The scale `1 / sqrt(dim)` keeps the softmax from saturating: the dot
    product of two vectors of independent unit-variance numbers has variance
    `dim`. The scale is fixed or learned.

    Args:
        learned_scale: Whether the scale is one learned number, which starts
            at `1 / sqrt(dim)`.

    Call arguments:
        query: Tensor of shape `(batch, target, dim)`.
        keys: Tensor of shape `(batch, source, dim)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.

    Raises:
        ValueError: If query and key differ in width.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), equation 1

    Example:
        >>> attention = keras_attn.Attention(keras_attn.ScaledDotScore())
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 4))).shape
        TensorShape([1, 2, 4])
    """

    def __init__(self, learned_scale=False, **kwargs):
        super().__init__(**kwargs)
        self.learned_scale = learned_scale

    def build(self, query_shape, key_shape):
        _require_equal_width(self, query_shape, key_shape)
        self.scale = query_shape[-1] ** -0.5
        if self.learned_scale:
            self.scale = self.add_weight(
                name="scale",
                shape=(),
                initializer=keras.initializers.Constant(self.scale),
            )

    def call(self, query, keys):
        # The query is scaled first: in float16 the raw products overflow.
        return dot(query * self.scale, keys)

    def get_config(self):
        return {**super().get_config(), "learned_scale": self.learned_scale}


@keras.saving.register_keras_serializable("keras_attn")
class CosineScore(Score):
    """Content-based addressing, `sharpness * cos(query, key)`.

    Only the directions of query and key count, not their lengths. A cosine is
    at most one, so a softmax over cosines alone would be almost flat. The
    learned sharpness (the paper's key strength beta) scales the cosines. A
    softplus keeps it positive. The keys are normalized once per source
    sentence.

    The paper's controller emits a sharpness at each step. Here all queries
    share one learned number.

    Args:
        initial_sharpness: Sharpness before training, a positive number.

    Call arguments:
        query: Tensor of shape `(batch, target, dim)`.
        keys: Result of `project()`, of shape `(batch, source, dim)`: vectors
            of length one.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized. A
        vector of zeros scores zero.

    Raises:
        ValueError: If query and key differ in width.

    Reference:
        - [Graves et al., 2014](https://arxiv.org/abs/1410.5401), equations 5
          and 6

    Example:
        >>> attention = keras_attn.Attention(keras_attn.CosineScore())
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 4))).shape
        TensorShape([1, 2, 4])
    """

    def __init__(self, initial_sharpness=1.0, **kwargs):
        super().__init__(**kwargs)
        self.initial_sharpness = positive_number(
            initial_sharpness, "initial_sharpness", "1.0"
        )

    def build(self, query_shape, key_shape):
        _require_equal_width(self, query_shape, key_shape)
        # The inverse of softplus, in a form that does not overflow.
        before_softplus = self.initial_sharpness + math.log(
            -math.expm1(-self.initial_sharpness)
        )
        self.sharpness = self.add_weight(
            name="sharpness",
            shape=(),
            initializer=keras.initializers.Constant(before_softplus),
        )

    def project(self, key):
        return _direction(key)

    def call(self, query, keys):
        return dot(_direction(query) * ops.softplus(self.sharpness), keys)

    def get_config(self):
        return {
            **super().get_config(),
            "initial_sharpness": self.initial_sharpness,
        }


@keras.saving.register_keras_serializable("keras_attn")
class GeneralScore(Score):
    """Luong's "general" score, `query · W · key`.

    Query and key may differ in width. `W` projects the keys to the width of
    the query once per source sentence, so a decoding step needs only dot
    products.

    Args:
        kernel_initializer: Initializer of `W`. Defaults to
            `"glorot_uniform"`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, query_dim)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.1

    Example:
        >>> attention = keras_attn.Attention(keras_attn.GeneralScore())
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
        TensorShape([1, 2, 6])
    """

    def __init__(self, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=(key_shape[-1], query_shape[-1]),
            initializer=clone(self.kernel_initializer),
        )

    def project(self, key):
        return linear(key, self.kernel)

    def call(self, query, keys):
        return dot(query, keys)

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
        }


def dot(query, keys):
    """Returns `query · key` for every pair: `(batch, target, source)`."""
    return ops.matmul(query, ops.swapaxes(keys, 1, 2))


def _direction(x):
    """Divides `x` by its length, or by 0.001 if the length is smaller.

    So a vector of zeros stays zero, and its gradient is finite. The squares
    are computed in float32, because they would overflow in float16.
    """
    exact = ops.cast(x, "float32")
    square = ops.sum(ops.square(exact), axis=-1, keepdims=True)
    return ops.cast(exact * ops.rsqrt(ops.maximum(square, 1e-6)), x.dtype)


def _require_equal_width(score, query_shape, key_shape):
    if query_shape[-1] != key_shape[-1]:
        raise ValueError(
            f"{type(score).__name__} takes the dot product of query and key, "
            "so their last dimensions must be equal. Received: "
            f"query_shape={query_shape}, key_shape={key_shape}. To compare "
            "vectors of different widths use `GeneralScore()` or "
            "`AdditiveScore(units)`, which learn a projection."
        )
