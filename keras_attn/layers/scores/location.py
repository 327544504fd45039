"""Scores that depend on the number of a source position.

Luong's score depends only on the query and the position. Chorowski's score is
Bahdanau's with one more term, computed from the past alignments.
"""

import keras
from keras import ops

from keras_attn.arguments import positive
from keras_attn.backend import require
from keras_attn.layers.scores.additive import AdditiveScore
from keras_attn.layers.scores.dot import dot
from keras_attn.layers.scores.score import Score
from keras_attn.layers.scores.score import clone
from keras_attn.layers.scores.score import linear


@keras.saving.register_keras_serializable("keras_attn")
class LocationScore(Score):
    """Luong's "location" score, `W query`: one number per source position.

    The score of a source position `s` depends on its number, not on its
    content: it is the dot product of the query with column `s` of `W`. The
    columns serve as keys, so an alignment's window picks the right ones.

    Args:
        max_source: Length of the longest source.
        kernel_initializer: Initializer of `W`. Defaults to
            `"glorot_uniform"`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, query_dim)`:
            the first columns of `W`, for each source.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.

    Raises:
        ValueError: If a source is longer than `max_source`. If its length is
            known only when the graph runs, TensorFlow raises an
            `InvalidArgumentError` then. XLA cannot raise, so the scores
            beyond `max_source` are NaN.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.1

    Example:
        >>> attention = keras_attn.Attention(keras_attn.LocationScore(10))
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
        TensorShape([1, 2, 6])
    """

    by_position = True

    def __init__(
        self, max_source, kernel_initializer="glorot_uniform", **kwargs
    ):
        super().__init__(**kwargs)
        self.max_source = positive(max_source, "max_source")
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        if key_shape[1] is not None:
            self._require_weights_for(key_shape[1])
        self.kernel = self.add_weight(
            name="kernel",
            shape=(query_shape[-1], self.max_source),
            initializer=clone(self.kernel_initializer),
        )

    def project(self, key):
        batch, source = ops.shape(key)[:2]
        self._require_weights_for(source)
        position = ops.arange(source, dtype="int32")
        columns = ops.take(
            self.kernel, ops.minimum(position, self.max_source - 1), axis=1
        )
        # XLA drops the check above, so a longer source scores NaN.
        columns = ops.where(position < self.max_source, columns, float("nan"))
        keys = ops.expand_dims(ops.transpose(columns), 0)
        return ops.broadcast_to(keys, (batch, source, keys.shape[-1]))

    def call(self, query, keys):
        return dot(query, keys)

    def _require_weights_for(self, source):
        known = f" of {source}" if isinstance(source, int) else ""
        require(
            source <= self.max_source,
            f"LocationScore has weights for {self.max_source} source "
            "positions, so a source must not be longer. Received: a longer "
            f"source{known}. Train with a larger `max_source`, or cut the "
            "sources.",
        )

    def get_config(self):
        return {
            **super().get_config(),
            "max_source": self.max_source,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
        }


@keras.saving.register_keras_serializable("keras_attn")
class LocationSensitiveScore(AdditiveScore):
    """Chorowski's score, `v · tanh(W query + V key + U f + b)`.

    `f` is the result of a convolution of the last alignments, at each source
    position. So attention can move on from where it was, and it can
    distinguish positions with similar content. An attention with this score
    processes one target position after another.

    For the paper's sharpened softmax use the alignment
    `SoftmaxAlignment(temperature=0.5)`, and for its smoothing
    `SigmoidAlignment()`.

    Args:
        units: Width of the space in which the terms are added.
        filters: Number of filters of the convolution, the width of `f`.
        kernel_size: Number of source positions that a filter sees. It must
            be odd: a filter sees as many positions before as after. Beyond
            the ends of the source it sees zeros. The paper uses 201, for
            speech frames.
        cumulative: Whether the convolution sees two channels, the last
            alignments and the sum of all so far, as is common in speech
            synthesis. Otherwise it sees the last alignments only, as in the
            paper.
        use_bias: Whether there is a bias `b`, which starts at zero.
        normalize: Whether `v` is normalized: see `AdditiveScore`.
        kernel_initializer: Initializer of all weights but the bias. Defaults
            to `"glorot_uniform"`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, units)`.
        history: `History` of the alignments so far, each `(batch, target,
            source)`. A score that computes in half precision rounds them,
            but their sum is kept in float32.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.

    Reference:
        - [Chorowski et al., 2015](https://arxiv.org/abs/1506.07503),
          equations 8 and 9
        - [Shen et al., 2018](https://arxiv.org/abs/1712.05884), section 2.2,
          for the sum of alignments

    Example:
        >>> score = keras_attn.LocationSensitiveScore(
        ...     8, filters=4, kernel_size=5)
        >>> attention = keras_attn.Attention(score)
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
        TensorShape([1, 2, 6])
    """

    _can_split = False

    def __init__(
        self,
        units,
        filters=10,
        kernel_size=31,
        cumulative=True,
        use_bias=True,
        normalize=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(
            units,
            use_bias=use_bias,
            normalize=normalize,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )
        self.filters = positive(filters, "filters")
        if positive(kernel_size, "kernel_size") % 2 == 0:
            raise ValueError(
                "`kernel_size` must be odd: a filter looks as far ahead as "
                f"back. Received: kernel_size={kernel_size}. Pass for example "
                f"`kernel_size={kernel_size + 1}`."
            )
        self.kernel_size = kernel_size
        self.cumulative = cumulative

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        channels = 2 if self.cumulative else 1
        self.convolution_kernel = self.add_weight(
            name="convolution_kernel",
            shape=(self.kernel_size, channels, self.filters),
            initializer=clone(self.kernel_initializer),
        )
        self.location_kernel = self.add_weight(
            name="location_kernel",
            shape=(self.filters, self.units),
            initializer=clone(self.kernel_initializer),
        )

    def call(self, query, keys, history):
        extra = linear(self._features(history), self.location_kernel)
        return self.compare(query, keys, extra)

    def _features(self, history):
        """Returns the convolution: `(batch, target, source, filters)`."""
        alignments = [history.previous]
        if self.cumulative:
            alignments.append(history.total)
        channels = ops.stack(alignments, axis=-1)
        batch, target, source, count = ops.shape(channels)
        features = ops.conv(
            ops.reshape(channels, (batch * target, source, count)),
            self.convolution_kernel,
            padding="same",
            data_format="channels_last",
        )
        return ops.reshape(features, (batch, target, source, self.filters))

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "cumulative": self.cumulative,
        }
