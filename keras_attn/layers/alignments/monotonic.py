"""Monotonic attention: a query looks where the last one did, or further on.

It models a walk along the source, which starts where the last query stopped. At
each position the walk stops with a probability `p`, and the position where it
stops gets the weight one. If the walk passes the end, all weights are zero.
Training uses the expected weights, which have a gradient.
"""

import keras
from keras import ops

from keras_attn.backend import cumulative_logsumexp
from keras_attn.backend import custom_gradient
from keras_attn.layers.alignments.alignment import Alignment

_SMALLEST = 1e-37  # near the smallest float32 that is not flushed to zero
_BELOW_ONE = -16.6  # log of 2⁻²⁴, the least `1 - p` that float32 resolves


@keras.saving.register_keras_serializable("keras_attn")
class MonotonicAlignment(Alignment):
    """Monotonic attention: at or after the position of the last query.

    At each position the walk stops with the probability `p = sigmoid(e + r +
    noise)`, where `r` is a learned scalar. The weights of the query `i` are
    the probabilities `α` that the walk stops at each position `j`:

        q[i, j] = (1 - p[i, j-1]) · q[i, j-1] + α[i-1, j]
        α[i, j] = p[i, j] · q[i, j]

    The first query's walk starts at the first position. The weights sum to
    less than one: the rest is the probability of walking off the end. They
    are not renormalized, because hard decoding may walk off the end too.

    With several heads each head has its own walk (Ma et al., 2020), but all
    heads share `r`.

    The paper trains with the expected weights and decodes with the hard
    process: `hard_inference=True`. The two agree if the probabilities are
    close to 0 or 1. Noise in training makes the model learn such
    probabilities.

    Args:
        mode: How to compute the weights. Defaults to `"recursive"`.
            - `"recursive"`: the recurrence above, exact, in a number of
              steps that grows with the logarithm of the source's length.
            - `"parallel"`: its closed form, in one step. It adds logarithms,
              which loses precision on long sources: for a walk over 400
              positions with probabilities near 0 and 1, weights are off by
              0.001.
            - `"hard"`: the hard process. The weight is one at the first
              position with `p >= 0.5` that is not before the position of the
              last query. If there is none, all weights are zero, and so are
              those of all later queries. This mode has no gradient.
        noise: Standard deviation of the normal noise that is added to the
            scores in training. Defaults to `0.0`; the paper uses `1.0`.
        initial_bias: Initial value of `r`. Defaults to `-1.0`: while the
            scores are near zero, each query moves on by about 3 positions.
            The longer the sources, the lower it should be.
        hard_inference: Whether to use the mode `"hard"` outside training.
            Defaults to `False`.
        seed: Integer that seeds the noise, or `None`.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`. The
            walk skips positions that are not allowed.
        history: `History` of the alignments so far.
        draws: Result of `draw()` in training, else `()`.
        training: Whether the model trains.

    Output shape:
        `(batch, target, source)`, float32: non-negative weights that sum to
        at most one over the source.

    Reference:
        - [Raffel et al., 2017](https://arxiv.org/abs/1704.00784), equations
          11 to 14, algorithm 1
        - [Ma et al., 2020](https://arxiv.org/abs/1909.12406), section 2.2,
          for several heads

    Example:
        >>> attention = keras_attn.Attention(
        ...     keras_attn.DotScore(),
        ...     keras_attn.MonotonicAlignment(initial_bias=0.0))
        >>> _, weights = attention(
        ...     np.zeros((1, 2, 4)), np.zeros((1, 3, 4)),
        ...     return_attention_scores=True)
        >>> weights.numpy().tolist()  # p = 1/2 everywhere
        [[[0.5, 0.25, 0.125], [0.25, 0.25, 0.1875]]]
    """

    def __init__(
        self,
        mode="recursive",
        noise=0.0,
        initial_bias=-1.0,
        hard_inference=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if mode not in ("recursive", "parallel", "hard"):
            raise ValueError(
                '`mode` must be "recursive", "parallel" or "hard". Received: '
                f"mode={mode!r}. Leave it out for the exact recurrence."
            )
        if noise < 0:
            raise ValueError(
                "`noise` is a standard deviation, at least 0. Received: "
                f"noise={noise!r}. Pass for example `noise=1.0`."
            )
        if mode == "hard" and (noise or hard_inference):
            raise ValueError(
                'The mode "hard" has no gradient, so `noise` and '
                "`hard_inference` would have no effect. Received: "
                f"noise={noise!r}, hard_inference={hard_inference!r}. To "
                'train, pass `mode="recursive"` with them.'
            )
        self.mode = mode
        self.noise = noise
        self.initial_bias = initial_bias
        self.hard_inference = hard_inference
        self.seed = seed
        if noise:
            self.seed_generator = keras.random.SeedGenerator(seed)
        elif seed is not None:
            raise ValueError(
                "`seed` seeds the noise, and there is none. Received: "
                f"seed={seed!r}, noise={noise!r}. Pass for example "
                "`noise=1.0`, or leave `seed` out."
            )

    def build(self, scores_shape, query_shape):
        self.bias = self.add_weight(
            name="bias",
            shape=(),
            initializer=keras.initializers.Constant(self.initial_bias),
        )

    def draw(self, shape):
        if not self.noise:
            return ()
        noise = keras.random.normal(
            shape, stddev=self.noise, dtype="float32", seed=self.seed_generator
        )
        return (noise,)

    def call(self, scores, allowed=None, history=(), draws=(), training=False):
        energy = ops.cast(scores, "float32") + ops.cast(self.bias, "float32")
        if draws:
            energy = energy + draws[0]
        if allowed is None:
            allowed = ops.ones_like(energy, dtype="bool")
        else:
            allowed = ops.broadcast_to(allowed, ops.shape(energy))
        previous = _where_it_stands(history, allowed)
        if self.mode == "hard" or (self.hard_inference and not training):
            return _hard(energy, allowed, previous)
        if self.mode == "parallel":
            return _parallel(energy, allowed, previous)
        return _recursive(energy, allowed, previous)

    def get_config(self):
        return {
            **super().get_config(),
            "mode": self.mode,
            "noise": self.noise,
            "initial_bias": self.initial_bias,
            "hard_inference": self.hard_inference,
            "seed": self.seed,
        }


def _where_it_stands(history, allowed):
    """Returns the last alignments, or one at the first allowed position."""
    is_first_step = ops.expand_dims(history.step == 0, -1)
    first = ops.cast(_first(allowed), "float32")
    return ops.where(is_first_step, first, history.previous)


def _first(condition):
    """Returns True at the first position where the condition holds."""
    number = ops.cumsum(ops.cast(condition, "int32"), axis=-1)
    return ops.logical_and(condition, number == 1)


def _hard(energy, allowed, previous):
    # The last weights may be soft. The walk then starts where their cumulative
    # sum reaches one half.
    reached = ops.cumsum(previous, axis=-1) >= 0.5
    stops = ops.logical_and(energy >= 0, ops.logical_and(allowed, reached))
    return ops.cast(_first(stops), "float32")


def _recursive(energy, allowed, previous):
    stop = ops.where(allowed, ops.sigmoid(energy), 0.0)
    # `1 - p` of the position before. Subtracting would lose precision.
    go_on = _later(ops.where(allowed, ops.sigmoid(-energy), 1.0), 1)
    return stop * _linear_recurrence(go_on, previous)


def _parallel(energy, allowed, previous):
    log_stop = ops.where(allowed, ops.log_sigmoid(energy), -1e9)
    log_go_on = ops.where(allowed, ops.log_sigmoid(-energy), 0.0)
    log_go_on = ops.maximum(log_go_on, _BELOW_ONE)
    # The log-probability of walking from the first position to each.
    log_path = ops.cumsum(log_go_on, axis=-1) - log_go_on
    log_previous = ops.log(ops.maximum(previous, _SMALLEST))
    reached = log_path + cumulative_logsumexp(log_previous - log_path)
    return ops.exp(log_stop + reached)


@custom_gradient
def _linear_recurrence(factor, added):
    """Returns `y[j] = factor[j] · y[j-1] + added[j]` along the last axis.

    Its gradient is the same kind of recurrence, run backwards. XLA cannot
    derive the gradient of a loop whose length it does not know.
    """
    y = _run_recurrence(factor, added)

    def gradient(*args, upstream=None):
        (upstream,) = args if upstream is None else (upstream,)
        of_added = ops.flip(
            _run_recurrence(
                _later(ops.flip(factor, axis=-1), 1),
                ops.flip(upstream, axis=-1),
            ),
            axis=-1,
        )
        return of_added * _later(y, 1), of_added

    return y, gradient


def _run_recurrence(factor, added):
    """Runs the recurrence, doubling the terms that each `y[j]` sums."""
    source = ops.shape(added)[-1]

    def double(terms, factor, added):
        # `added` is the sum of the last `terms` terms. `factor` multiplies
        # the sum of the terms before these.
        return (
            2 * terms,
            factor * _later(factor, terms),
            added + factor * _later(added, terms),
        )

    *_, y = ops.while_loop(
        lambda terms, *_: terms < source,
        double,
        (ops.convert_to_tensor(1, "int32"), factor, added),
    )
    return y


def _later(x, steps):
    """Shifts the last axis to later positions, with zeros in front."""
    position = ops.arange(ops.shape(x)[-1], dtype="int32")
    moved = ops.take(x, ops.maximum(position - steps, 0), axis=-1)
    return ops.where(position >= steps, moved, 0.0)
