"""From scores to weights: how a query's attention is spread over the source.

An alignment turns the scores of one query into weights over the source
positions and gives masked positions none. Weights are float32 whatever the
dtype policy: a softmax in half precision loses the tail.
"""

import keras
from keras import ops


class Alignment(keras.layers.Layer):
    """Base class of all alignments; subclasses write `call`.

    Attributes:
        uses_history: Whether `call` reads its `history` argument. Where no
            part of an attention does, none is kept.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, True where a
            query may look; `None` where it may look everywhere.
        history: `History` of the alignments so far; only an alignment that
            sets `uses_history` is given it, and takes it.

    Output shape:
        `(batch, target, source)`, float32. A row that may look nowhere is
        all zeros.
    """

    uses_history = False

    def __init__(self, **kwargs):
        # No autocast: scores and history keep the precision they come in.
        super().__init__(autocast=False, **kwargs)

    def build(self, scores_shape):
        """Creates the weights for scores of this shape."""


@keras.saving.register_keras_serializable("keras_attn")
class SoftmaxAlignment(Alignment):
    """Global attention: a softmax over all positions that are not masked.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.

    Output shape:
        `(batch, target, source)`, float32: non-negative weights that sum to
        one over the source, or a row of zeros where nothing is allowed.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473),
          equation 6

    Example:

    >>> align = keras_attn.SoftmaxAlignment()
    >>> align(np.zeros((1, 1, 4), "float32")).numpy().tolist()
    [[[0.25, 0.25, 0.25, 0.25]]]
    """

    def call(self, scores, allowed=None):
        scores = ops.cast(scores, "float32")
        if allowed is None:
            return _softmax(scores)
        # The fill is finite: a softmax over a row of -inf would be NaN.
        weights = _softmax(ops.where(allowed, scores, -1e9))
        return ops.where(allowed, weights, 0.0)


def _softmax(scores):
    if scores.shape[-1] == 1:
        # `ops.softmax` warns here, but a source may well be one token long.
        return ops.exp(ops.log_softmax(scores))
    return ops.softmax(scores)
