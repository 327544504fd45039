"""Hard attention: each query looks at one position, drawn in training.

A draw has no gradient. `HardAlignment` uses the gradient of the softmax, which
is biased but needs no other model. `ReinforceAlignment` returns the
probability of the draw, from which `ReinforceModel` estimates the gradient
without bias.
"""

import keras
from keras import ops

from keras_attn.backend import never_empty
from keras_attn.layers.alignments.alignment import Alignment
from keras_attn.layers.alignments.alignment import Sample
from keras_attn.layers.alignments.softmax import check_temperature
from keras_attn.layers.alignments.softmax import masked_softmax


@keras.saving.register_keras_serializable("keras_attn")
class HardAlignment(Alignment):
    """Hard attention by straight-through Gumbel softmax.

    In training a position is drawn with the softmax's probabilities: Gumbel
    noise is added to the scores, and the highest wins. Its weight is one, but
    the gradient is that of the softmax over the noisy scores. Outside
    training the position with the highest score is taken, the first one in a
    tie.

    Args:
        temperature: Positive number that divides the noisy scores in the
            softmax used for the gradient. The lower it is, the lower the
            bias of the gradient and the higher its variance. Defaults to
            `1.0`.
        seed: Integer that seeds the draws, or `None`.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.
        draws: Result of `draw()` in training, else `()`.

    Output shape:
        `(batch, target, source)`, float32: a single one over the source, or
        a row of zeros where nothing is allowed.

    Reference:
        - [Jang et al., 2017](https://arxiv.org/abs/1611.01144), section 2.2

    Example:
        >>> align = keras_attn.HardAlignment()
        >>> align(np.array([[[1.0, 3.0, 2.0]]])).numpy().tolist()
        [[[0.0, 1.0, 0.0]]]
    """

    def __init__(self, temperature=1.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.temperature = check_temperature(temperature)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def draw(self, shape):
        return (_gumbel(shape, self.seed_generator),)

    def call(self, scores, allowed=None, draws=()):
        scores = ops.cast(scores, "float32")
        if not draws:
            return _best(scores, allowed)
        scores = scores + draws[0]
        soft = masked_softmax(scores / self.temperature, allowed)
        # The difference is zero and carries the softmax's gradient.
        return _best(scores, allowed) + (soft - ops.stop_gradient(soft))

    def get_config(self):
        return {
            **super().get_config(),
            "temperature": self.temperature,
            "seed": self.seed,
        }


@keras.saving.register_keras_serializable("keras_attn")
class ReinforceAlignment(Alignment):
    """Hard attention that learns from a reward, for a `ReinforceModel`.

    In training a position is drawn with the softmax's probabilities. Its
    weight is one and has no gradient. A share of the sentences gets the
    softmax instead, which is the expected value of the draws and has a
    gradient. Outside training the position with the highest score is taken.

    Args:
        soft_share: Probability, from 0 to 1, that a sentence gets the
            softmax. Defaults to `0.5`, the paper's choice.
        seed: Integer that seeds the draws, or `None`.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.
        draws: Result of `draw()` in training, else `()`.

    Output:
        A `Sample`. `weights` has shape `(batch, target, source)`.
        `log_probability`, of shape `(batch, target)`, is that of the position
        taken; it is zero for sentences that got the softmax. `entropy`, of
        shape `(batch, target)`, is that of the softmax. Both are in nats and
        float32. A query that may look nowhere has zeros in all three.

    Reference:
        - [Xu et al., 2015](https://arxiv.org/abs/1502.03044), section 4.1

    Example:
        >>> align = keras_attn.ReinforceAlignment()
        >>> sample = align(np.array([[[0.0, np.log(3.0)]]]))
        >>> sample.weights.numpy().tolist()
        [[[0.0, 1.0]]]
        >>> np.exp(sample.log_probability).round(4).tolist()
        [[0.75]]
    """

    samples = True

    def __init__(self, soft_share=0.5, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= soft_share <= 1:
            raise ValueError(
                "`soft_share` is a probability, from 0 to 1. Received: "
                f"soft_share={soft_share!r}. Pass `0.5`, the paper's choice, "
                "or `0.0` to always draw."
            )
        self.soft_share = soft_share
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def draw(self, shape):
        # One number per sentence, repeated for each of its queries.
        sentence = (shape[0],) + (1,) * (len(shape) - 1)
        uniform = keras.random.uniform(sentence, seed=self.seed_generator)
        is_soft = ops.broadcast_to(uniform < self.soft_share, (*shape[:-1], 1))
        return _gumbel(shape, self.seed_generator), is_soft

    def call(self, scores, allowed=None, draws=()):
        scores = ops.cast(scores, "float32")
        probabilities = masked_softmax(scores, allowed)
        logarithms = _masked_log_softmax(scores, allowed)
        entropy = -ops.sum(probabilities * logarithms, axis=-1)
        taken = _best(scores + draws[0] if draws else scores, allowed)
        log_probability = ops.sum(taken * logarithms, axis=-1)
        if not draws:
            return Sample(taken, log_probability, entropy)
        is_soft = draws[1]  # (batch, target, 1)
        return Sample(
            ops.where(is_soft, probabilities, taken),
            ops.where(ops.squeeze(is_soft, -1), 0.0, log_probability),
            entropy,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "soft_share": self.soft_share,
            "seed": self.seed,
        }


def _best(scores, allowed):
    """Returns ones at the highest scores, the first in a tie; else zeros."""
    if allowed is not None:
        scores = ops.where(allowed, scores, -1e9)
    best = ops.expand_dims(ops.argmax(never_empty(scores, -1), axis=-1), -1)
    is_best = ops.arange(ops.shape(scores)[-1], dtype=best.dtype) == best
    if allowed is not None:
        is_best = ops.logical_and(is_best, allowed)
    return ops.cast(is_best, "float32")


def _masked_log_softmax(scores, allowed):
    """Returns log-probabilities, zero at positions that are not allowed.

    Not minus infinity, because its product with a zero weight would be NaN.
    """
    if allowed is None:
        return ops.log_softmax(scores)
    logarithms = ops.log_softmax(ops.where(allowed, scores, -1e9))
    return ops.where(allowed, logarithms, 0.0)


def _gumbel(shape, seed_generator):
    uniform = keras.random.uniform(
        shape, minval=1e-20, dtype="float32", seed=seed_generator
    )
    return -ops.log(-ops.log(uniform))
