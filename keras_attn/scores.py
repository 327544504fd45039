"""How well a query matches each key: one small class a mechanism.

A score compares every query with every key and says nothing about
normalisation: that is an alignment's business (`alignments.py`). To add a
mechanism, subclass `Score` and write `call`; it then works as a layer, in
the decoder, in beam search, in the export and in the plots.
"""

import keras
from keras import ops


class Score(keras.layers.Layer):
    """Base class of all scores; subclasses write `call`, often `build`.

    A score is a part of an `Attention` and is not called by itself: that
    builds it for queries and keys of known width, calls `project()` once per
    source and `call()` once per step. So whatever depends on the key alone
    belongs in `project()`.

    Attributes:
        uses_history: Whether `call` reads its `history` argument. Where no
            part of an attention does, none is kept.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project(key)`, of shape `(batch, source, dim)`.
        history: `History` of the alignments so far; only a score that sets
            `uses_history` is given it, and takes it.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalised.
    """

    uses_history = False

    def build(self, query_shape, key_shape):
        """Creates the weights for queries and keys of these shapes."""

    def project(self, key):
        """Carries keys `(batch, source, key_dim)` into the score's space."""
        return key

    def compute_mask(self, inputs, previous_mask):
        """None: `Attention` minds the masks, scores carry none."""


@keras.saving.register_keras_serializable("keras_attn")
class AdditiveScore(Score):
    """Bahdanau's score, `v · tanh(W query + U key)`.

    The keys' part is computed once per source sentence. The comparison
    itself builds a tensor of shape `(batch, target, source, units)`.

    Args:
        units: Width of the space in which query and key are added.
        kernel_initializer: Initializer of `W`, `U` and `v`. Defaults to
            `"glorot_uniform"`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, units)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalised.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473),
          appendix A.1.2

    Example:

    >>> attention = keras_attn.Attention(keras_attn.AdditiveScore(8))
    >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
    TensorShape([1, 2, 6])
    """

    def __init__(self, units, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.units = _positive(units, "units")
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        # An initializer draws the same again, so each weight gets its own.
        self.query_kernel = self.add_weight(
            name="query_kernel",
            shape=(query_shape[-1], self.units),
            initializer=_clone(self.kernel_initializer),
        )
        self.key_kernel = self.add_weight(
            name="key_kernel",
            shape=(key_shape[-1], self.units),
            initializer=_clone(self.kernel_initializer),
        )
        self.v = self.add_weight(
            name="v",
            shape=(self.units, 1),
            initializer=_clone(self.kernel_initializer),
        )

    def project(self, key):
        return _linear(key, self.key_kernel)

    def call(self, query, keys):
        return _additive(_linear(query, self.query_kernel), keys, self.v)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
        }


@keras.saving.register_keras_serializable("keras_attn")
class ConcatScore(Score):
    """Luong's "concat" score, `v · tanh(W [query; key])`.

    One matrix `W` meets query and key laid end to end. Its rows for the key
    are applied once per source sentence, so a decoding step costs the same
    as with `AdditiveScore`, from which it differs only in how the one
    matrix is initialised.

    Args:
        units: Width of the hidden layer.
        kernel_initializer: Initializer of `W` and `v`. Defaults to
            `"glorot_uniform"`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, units)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalised.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), equation 8

    Example:

    >>> attention = keras_attn.Attention(keras_attn.ConcatScore(8))
    >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
    TensorShape([1, 2, 6])
    """

    def __init__(self, units, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.units = _positive(units, "units")
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        self.query_dim = query_shape[-1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(query_shape[-1] + key_shape[-1], self.units),
            initializer=_clone(self.kernel_initializer),
        )
        self.v = self.add_weight(
            name="v",
            shape=(self.units, 1),
            initializer=_clone(self.kernel_initializer),
        )

    def project(self, key):
        return _linear(key, self.kernel[self.query_dim :])

    def call(self, query, keys):
        query = _linear(query, self.kernel[: self.query_dim])
        return _additive(query, keys, self.v)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
        }


@keras.saving.register_keras_serializable("keras_attn")
class DotScore(Score):
    """Luong's "dot" score, `query · key`. It has no weights.

    Call arguments:
        query: Tensor of shape `(batch, target, dim)`.
        keys: Tensor of shape `(batch, source, dim)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalised.

    Raises:
        ValueError: If query and key differ in width.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), equation 8

    Example:

    >>> attention = keras_attn.Attention(keras_attn.DotScore())
    >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 4))).shape
    TensorShape([1, 2, 4])
    """

    def build(self, query_shape, key_shape):
        _require_equal_width(self, query_shape, key_shape)

    def call(self, query, keys):
        return _dot(query, keys)


@keras.saving.register_keras_serializable("keras_attn")
class ScaledDotScore(Score):
    """The Transformer's score, `query · key / sqrt(dim)`. It has no weights.

    The scale keeps the softmax from saturating: the dot product of two
    vectors of independent unit-variance numbers has variance `dim`.

    Call arguments:
        query: Tensor of shape `(batch, target, dim)`.
        keys: Tensor of shape `(batch, source, dim)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalised.

    Raises:
        ValueError: If query and key differ in width.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), equation 1

    Example:

    >>> attention = keras_attn.Attention(keras_attn.ScaledDotScore())
    >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 4))).shape
    TensorShape([1, 2, 4])
    """

    def build(self, query_shape, key_shape):
        _require_equal_width(self, query_shape, key_shape)

    def call(self, query, keys):
        # The query is scaled first: in float16 the raw products overflow.
        return _dot(query * query.shape[-1] ** -0.5, keys)


@keras.saving.register_keras_serializable("keras_attn")
class GeneralScore(Score):
    """Luong's "general" score, `query · W · key`.

    Query and key may differ in width: `W` carries the keys into the query's
    space once per source sentence, so a decoding step costs one dot product.

    Args:
        kernel_initializer: Initializer of `W`. Defaults to
            `"glorot_uniform"`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, query_dim)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalised.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), equation 8

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
            initializer=_clone(self.kernel_initializer),
        )

    def project(self, key):
        return _linear(key, self.kernel)

    def call(self, query, keys):
        return _dot(query, keys)

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
        }


def _dot(query, keys):
    return ops.matmul(query, ops.swapaxes(keys, 1, 2))


def _additive(query, keys, v):
    """`v · tanh(query + key)` for every pair; `v` has shape `(units, 1)`.

    A matrix product with `v` is 1.5 times faster than multiply and sum.
    """
    hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(keys, 1))
    scores = ops.matmul(ops.reshape(hidden, (-1, v.shape[0])), v)
    return ops.reshape(scores, (-1, _length(query), _length(keys)))


def _linear(inputs, kernel):
    """`(batch, length, dim)` times `(dim, units)` as one matrix product."""
    if inputs.shape[-1] != kernel.shape[0]:
        raise ValueError(
            f"This score was built for vectors of width {kernel.shape[0]}. "
            f"Received: a tensor of shape {tuple(inputs.shape)}. An attention "
            "has weights for one width of queries and one of keys; make "
            "another for another width."
        )
    flat = ops.matmul(ops.reshape(inputs, (-1, kernel.shape[0])), kernel)
    return ops.reshape(flat, (-1, _length(inputs), kernel.shape[1]))


def _length(x):
    """Size of axis 1: a number where it is known, else a tensor."""
    return ops.shape(x)[1]


def _clone(initializer):
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


def _positive(value, name):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={value!r}"
        )
    return value


def _require_equal_width(score, query_shape, key_shape):
    if query_shape[-1] != key_shape[-1]:
        raise ValueError(
            f"{type(score).__name__} takes the dot product of query and key, "
            "so their last dimensions must be equal. Received: "
            f"query_shape={query_shape}, key_shape={key_shape}. To compare "
            "vectors of different width use `GeneralScore()` or "
            "`AdditiveScore(units)`, which learn a projection."
        )
