"""Scores that add query and key inside a tanh."""

import keras
from keras import ops

from keras_attn.arguments import positive
from keras_attn.layers.scores.blockwise import additive
from keras_attn.layers.scores.blockwise import check_block_size
from keras_attn.layers.scores.score import Score
from keras_attn.layers.scores.score import clone
from keras_attn.layers.scores.score import linear


@keras.saving.register_keras_serializable("keras_attn")
class AdditiveScore(Score):
    """Bahdanau's score, `v · tanh(W query + U key + b)`.

    `U key` is computed once per source sentence. The sums inside the tanh are
    `(batch, target, source, units)` numbers. If these are many, only a block
    of them is held in memory at a time.

    With weight normalization `v` is replaced by `g * v / |v|`. Then the
    learned number `g` alone decides how sharp the attention can become.

    Args:
        units: Width of the space in which query and key are added.
        use_bias: Whether there is a bias `b`, which starts at zero. The
            paper has none.
        normalize: Whether `v` is normalized. `g` starts at `sqrt(1 /
            units)`. With `use_bias=True` as well, this is the score of TF
            Addons' `BahdanauAttention(units, normalize=True)`.
        kernel_initializer: Initializer of `W`, `U` and `v`. Defaults to
            `"glorot_uniform"`.
        block_size: How many queries of a sentence are compared with its keys
            at once, a positive integer. `"all"` compares the whole batch at
            once. Defaults to `None`: the whole batch while that is small,
            else as many queries as fit in a processor's cache. The scores
            are the same.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, units)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473),
          appendix A.1.2
        - [Salimans and Kingma, 2016](https://arxiv.org/abs/1602.07868),
          equation 2, for the normalization

    Example:
        >>> attention = keras_attn.Attention(keras_attn.AdditiveScore(8))
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
        TensorShape([1, 2, 6])
    """

    # Blocks need a score that compares queries and keys alone.
    _can_split = True

    def __init__(
        self,
        units,
        use_bias=False,
        normalize=False,
        kernel_initializer="glorot_uniform",
        block_size=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if block_size is not None and not self._can_split:
            raise ValueError(
                "Blocks are for scores that compare only the query and the "
                f"keys. {type(self).__name__} adds a term as large as the "
                "tensor that blocks avoid. Received: "
                f"block_size={block_size!r}. Leave it out, or use "
                "`AdditiveScore(units)`."
            )
        self.units = positive(units, "units")
        self.use_bias = use_bias
        self.normalize = normalize
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.block_size = check_block_size(block_size)

    def build(self, query_shape, key_shape):
        # An initializer draws the same numbers each time, so each weight gets
        # a copy with another seed.
        self.query_kernel = self.add_weight(
            name="query_kernel",
            shape=(query_shape[-1], self.units),
            initializer=clone(self.kernel_initializer),
        )
        self.key_kernel = self.add_weight(
            name="key_kernel",
            shape=(key_shape[-1], self.units),
            initializer=clone(self.kernel_initializer),
        )
        self.v = self.add_weight(
            name="v",
            shape=(self.units, 1),
            initializer=clone(self.kernel_initializer),
        )
        self.bias = self.g = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.units,), initializer="zeros"
            )
        if self.normalize:
            self.g = self.add_weight(
                name="g",
                shape=(),
                initializer=keras.initializers.Constant(self.units**-0.5),
            )

    def project(self, key):
        return linear(key, self.key_kernel, self.bias)

    def call(self, query, keys):
        return self.compare(query, keys)

    def compare(self, query, keys, extra=None):
        """Scores with one more term inside the tanh, for subclasses.

        Args:
            query: Tensor of shape `(batch, target, query_dim)`.
            keys: Result of `project()`, of shape `(batch, source, units)`.
            extra: Tensor of shape `(batch, target, source, units)`.
        """
        v = self.v if self.g is None else self.g * _direction(self.v)
        query = linear(query, self.query_kernel)
        return additive(query, keys, v, extra, self.block_size)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "normalize": self.normalize,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "block_size": self.block_size,
        }


@keras.saving.register_keras_serializable("keras_attn")
class ConcatScore(Score):
    """Luong's "concat" score, `v · tanh(W [query; key] + b)`.

    One matrix `W` multiplies the concatenation of query and key. Its rows for
    the key are applied once per source sentence, so a decoding step costs the
    same as with `AdditiveScore`. The two scores differ only in the initial
    values of the matrices.

    Args:
        units: Width of the hidden layer.
        use_bias: Whether there is a bias `b`, which starts at zero. The
            paper has none.
        kernel_initializer: Initializer of `W` and `v`. Defaults to
            `"glorot_uniform"`.
        block_size: How many queries of a sentence are compared with its keys
            at once, a positive integer. `"all"` compares the whole batch at
            once. Defaults to `None`: the whole batch while that is small,
            else as many queries as fit in a processor's cache. The scores
            are the same.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, units)`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.1

    Example:
        >>> attention = keras_attn.Attention(keras_attn.ConcatScore(8))
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
        TensorShape([1, 2, 6])
    """

    def __init__(
        self,
        units,
        use_bias=False,
        kernel_initializer="glorot_uniform",
        block_size=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = positive(units, "units")
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.block_size = check_block_size(block_size)

    def build(self, query_shape, key_shape):
        self.query_dim = query_shape[-1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(query_shape[-1] + key_shape[-1], self.units),
            initializer=clone(self.kernel_initializer),
        )
        self.v = self.add_weight(
            name="v",
            shape=(self.units, 1),
            initializer=clone(self.kernel_initializer),
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.units,), initializer="zeros"
            )

    def project(self, key):
        return linear(key, self.kernel[self.query_dim :], self.bias)

    def call(self, query, keys):
        query = linear(query, self.kernel[: self.query_dim])
        return additive(query, keys, self.v, block_size=self.block_size)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "block_size": self.block_size,
        }


def _direction(v):
    """Divides `v` by its length; zeros stay zeros."""
    exact = ops.cast(v, "float32")
    square = ops.sum(ops.square(exact))
    return ops.cast(exact * ops.rsqrt(ops.maximum(square, 1e-12)), v.dtype)
