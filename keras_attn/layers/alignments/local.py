"""Luong's local attention: each query looks only at positions in a window.

The window is chosen before anything is scored. So a query needs `2D + 1`
scores, however long the source is.
"""

import keras
from keras import layers
from keras import ops

from keras_attn.arguments import positive
from keras_attn.backend import reshape
from keras_attn.layers.alignments.alignment import Alignment
from keras_attn.layers.alignments.alignment import Window
from keras_attn.layers.alignments.softmax import masked_softmax


class _Local(Alignment):
    """The base of both local alignments: the window `[p - D, p + D]`."""

    def __init__(self, window, **kwargs):
        super().__init__(**kwargs)
        self.window = positive(window, "window")
        self.window_width = 2 * self.window + 1

    def _inside(self, allowed, distance):
        """Returns which slots are within `D` of `p` and allowed (booleans)."""
        inside = ops.abs(distance) <= self.window
        return inside if allowed is None else ops.logical_and(inside, allowed)

    def _distance(self, window):
        """Returns `s - p` for each slot: `(batch, target, window)`."""
        position = ops.expand_dims(window.first, -1) + ops.arange(
            self.window_width, dtype="int32"
        )
        center = ops.expand_dims(window.center, -1)
        return ops.cast(position, "float32") - center

    def get_config(self):
        return {**super().get_config(), "window": self.window}


@keras.saving.register_keras_serializable("keras_attn")
class LocalMonotonicAlignment(_Local):
    """Luong's local-m: query `t` looks around position `t`.

    It assumes that source and target are aligned one to one: `p = t`. The
    weights are a softmax over the source positions from `p - D` to `p + D`. If
    `p` is more than `D` positions past the end of the source, the weights are
    zero.

    Args:
        window: The paper's `D`, the number of positions on either side of
            `p`.

    Call arguments:
        scores: Tensor of shape `(batch, target, 2 * window + 1)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.
        window: Result of `choose()`.

    Output shape:
        The shape of the scores, float32: non-negative weights that sum to
        one, or a row of zeros where nothing is allowed.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025),
          section 3.2

    Example:
        >>> attention = keras_attn.Attention(
        ...     keras_attn.DotScore(), keras_attn.LocalMonotonicAlignment(1))
        >>> _, weights = attention(
        ...     np.zeros((1, 1, 4)), np.zeros((1, 6, 4)),
        ...     return_attention_scores=True)
        >>> weights.numpy().tolist()  # the first query, at the source's edge
        [[[0.5, 0.5, 0.0, 0.0, 0.0, 0.0]]]
    """

    def choose(self, query, position, begin, length):
        center = begin + position
        return Window(center - self.window, ops.cast(center, "float32"))

    def call(self, scores, allowed=None, window=None):
        inside = self._inside(allowed, self._distance(window))
        return masked_softmax(ops.cast(scores, "float32"), inside)


@keras.saving.register_keras_serializable("keras_attn")
class LocalPredictiveAlignment(_Local):
    """Luong's local-p: each query predicts where to look.

    It predicts the real number `p = S · sigmoid(v · tanh(W h))`, where `h` is
    the query and `S` the length of the source without padding. The weights
    are a softmax over the positions `s` from `p - D` to `p + D`, each times
    `exp(-(s - p)² / 2σ²)` with `σ = D / 2`. So they sum to at most one. The
    prediction of `p` learns only through this Gaussian, because the first
    position of the window is an integer, which has no gradient.

    Args:
        window: The paper's `D`, the number of positions on either side of
            `p`.
        units: Width of the hidden layer, the number of rows of `W`. Defaults
            to the width of the query.

    Call arguments:
        scores: Tensor of shape `(batch, target, 2 * window + 1)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.
        window: Result of `choose()`.

    Output shape:
        The shape of the scores, float32: non-negative weights that sum to at
        most one, or a row of zeros where nothing is allowed.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), equations
          9 and 10

    Example:
        >>> attention = keras_attn.Attention(
        ...     keras_attn.DotScore(), keras_attn.LocalPredictiveAlignment(2))
        >>> _, weights = attention(
        ...     np.zeros((1, 1, 4)), np.zeros((1, 8, 4)),
        ...     return_attention_scores=True)
        >>> print(weights.numpy().round(2))  # aimed at 8 · sigmoid(0)
        [[[0.   0.   0.03 0.12 0.2  0.12 0.03 0.  ]]]
    """

    def __init__(self, window, units=None, **kwargs):
        super().__init__(window, **kwargs)
        self.units = None if units is None else positive(units, "units")

    def build(self, scores_shape, query_shape):
        # float32: in half precision positions beyond 256 are off by more than
        # one token.
        self.hidden = layers.Dense(
            self.units or query_shape[-1],
            activation="tanh",
            use_bias=False,
            dtype="float32",
        )
        self.share = layers.Dense(
            1, activation="sigmoid", use_bias=False, dtype="float32"
        )
        self.hidden.build((None, query_shape[-1]))
        self.share.build((None, self.hidden.units))

    def choose(self, query, position, begin, length):
        # As a matrix: inside a loop, XLA cannot compile the gradient of a
        # product of a tensor with three axes.
        rows = ops.reshape(query, (-1, query.shape[-1]))
        share = reshape(self.share(self.hidden(rows)), ops.shape(query)[:2])
        begin, length = (ops.cast(x, "float32") for x in (begin, length))
        center = begin + length * share
        first = ops.ceil(ops.stop_gradient(center) - self.window)
        return Window(ops.cast(first, "int32"), center)

    def call(self, scores, allowed=None, window=None):
        distance = self._distance(window)
        inside = self._inside(allowed, distance)
        weights = masked_softmax(ops.cast(scores, "float32"), inside)
        return weights * ops.exp(-2 * ops.square(distance / self.window))

    def get_config(self):
        return {**super().get_config(), "units": self.units}
