"""The distribution of the next token, given the source position."""

import keras
from keras import layers
from keras import ops

from keras_attn.layers.attention.heads import apply_to_rows
from keras_attn.layers.marginal.mixture import mixture
from keras_attn.layers.marginal.mixture import spoken
from keras_attn.layers.marginal.transitions import wide


class Emission(keras.layers.Layer):
    """Computes `e_t(s, .) = log_softmax(O tanh(W [h_t; m_s] + b) + c)`.

    `W` is split into a part for `h_t` and a part for `m_s`, so each vector is
    multiplied only once.

    Args:
        units: Width of the tanh layer, or `None` for the widths of `h_t` and
            `m_s` together.
        vocabulary: Number of tokens.

    Reference:
        - [Wu et al., 2018](https://arxiv.org/abs/1808.10024), section 3
    """

    def __init__(self, units, vocabulary, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.vocabulary = vocabulary

    def build(self, hidden_shape, memory_shape):
        widths = hidden_shape[-1], memory_shape[-1]
        units = self.units or sum(widths)

        def dense(name, **options):
            return layers.Dense(
                units, dtype=self.dtype_policy, name=name, **options
            )

        self.of_hidden = dense("of_hidden", use_bias=False)
        self.of_memory = dense("of_memory")
        self.of_hidden.build((None, widths[0]))
        self.of_memory.build((None, widths[1]))
        self.kernel = self.add_weight(
            name="kernel",
            shape=(units, self.vocabulary),
            initializer="glorot_uniform",
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.vocabulary,), initializer="zeros"
        )

    @property
    def width(self):
        """Width of the tanh layer."""
        return self.kernel.shape[0]

    def keys(self, memory):
        """Projects a memory: `(batch, source, dim)` to `(..., units)`."""
        return apply_to_rows(self.of_memory, memory)

    def query(self, hidden):
        """Projects hidden states: `(batch, steps, dim)` to `(..., units)`."""
        return apply_to_rows(self.of_hidden, hidden)

    def columns(self, ids):
        """Looks up rows of `O`: `(batch, steps)` to `(..., units)`."""
        return ops.take(ops.transpose(self._cast(self.kernel)), ids, axis=0)

    def mixture(self, weights, query, keys):
        """Mixes the distributions of all positions; see `mixture`."""
        kernel, bias = self._cast(self.kernel), self._cast(self.bias)
        return mixture(weights, query, keys, kernel, bias)

    def spoken(self, query, keys, columns):
        """Scores a token at every position, up to a shared constant.

        Args:
            query: Result of `query()`, of the step that wrote the token.
            keys: Result of `keys()`.
            columns: Result of `columns()` of the token.

        Returns:
            Tensor of shape `(batch, steps, source)`, float32 or wider: the
            token's logit without its bias, which is the same at every
            position.
        """
        return wide(spoken(query, keys, columns))

    def _cast(self, weight):
        return ops.cast(ops.convert_to_tensor(weight), self.compute_dtype)
