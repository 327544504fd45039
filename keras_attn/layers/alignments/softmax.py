"""Global attention: every unmasked position gets some weight."""

import math

import keras
from keras import ops

from keras_attn.layers.alignments.alignment import Alignment


@keras.saving.register_keras_serializable("keras_attn")
class SoftmaxAlignment(Alignment):
    """Global attention: a softmax over all positions that are not masked.

    Args:
        temperature: Positive number that divides the scores. A number below
            1 sharpens the weights; it is `1 / β` of Chorowski et al.
            Defaults to `1.0`.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.

    Output shape:
        `(batch, target, source)`, float32: non-negative weights that sum to
        one over the source, or a row of zeros where nothing is allowed.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473),
          equation 6
        - [Chorowski et al., 2015](https://arxiv.org/abs/1506.07503),
          section 2.3, for sharpening

    Example:
        >>> align = keras_attn.SoftmaxAlignment()
        >>> align(np.zeros((1, 1, 4), "float32")).numpy().tolist()
        [[[0.25, 0.25, 0.25, 0.25]]]
    """

    def __init__(self, temperature=1.0, **kwargs):
        super().__init__(**kwargs)
        self.temperature = check_temperature(temperature)

    def call(self, scores, allowed=None):
        scores = ops.cast(scores, "float32") / self.temperature
        return masked_softmax(scores, allowed)

    def get_config(self):
        return {**super().get_config(), "temperature": self.temperature}


@keras.saving.register_keras_serializable("keras_attn")
class SigmoidAlignment(Alignment):
    """Chorowski's smoothing: `sigmoid(e)` divided by its sum.

    Unlike the exponential of a softmax, a sigmoid is bounded. So one high
    score cannot take all the weight: several frames of speech can share it.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.

    Output shape:
        `(batch, target, source)`, float32: non-negative weights that sum to
        one over the source, or a row of zeros where nothing is allowed.

    Reference:
        - [Chorowski et al., 2015](https://arxiv.org/abs/1506.07503),
          section 2.3, for smoothing

    Example:
        >>> align = keras_attn.SigmoidAlignment()
        >>> align(np.array([[[0.0, 0.0, 50.0]]])).numpy().tolist()
        [[[0.25, 0.25, 0.5]]]
    """

    def call(self, scores, allowed=None):
        # In log space, because the sigmoids of scores far below zero would
        # sum to zero.
        scores = ops.log_sigmoid(ops.cast(scores, "float32"))
        return masked_softmax(scores, allowed)


def masked_softmax(scores, allowed=None):
    """Returns the softmax of float32 scores, zero where not allowed."""
    if allowed is None:
        return _softmax(scores)
    # The fill is finite, because a softmax over a row of -inf is NaN.
    weights = _softmax(ops.where(allowed, scores, -1e9))
    return ops.where(allowed, weights, 0.0)


def _softmax(scores):
    if scores.shape[-1] == 1:
        # `ops.softmax` warns if there is one position, but a source may be
        # that short.
        return ops.exp(ops.log_softmax(scores))
    return ops.softmax(scores)


def check_temperature(temperature):
    if not (0 < temperature < math.inf):
        raise ValueError(
            "`temperature` divides the scores, so it must be above 0 and "
            f"finite. Received: temperature={temperature!r}. Pass a number "
            "below 1 to sharpen the weights, above 1 to smooth them."
        )
    return temperature
