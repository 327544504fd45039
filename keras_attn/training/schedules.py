"""Schedules that Keras lacks."""

import math

import keras
from keras import ops

from keras_attn import arguments


@keras.saving.register_keras_serializable("keras_attn")
class InverseSquareRootDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Warms up linearly, then decays by the inverse square root.

    The learning rate of update `t`, which counts from 1, is

    `warmup_target * min(t / warmup_steps, sqrt(warmup_steps / t))`

    It rises to `warmup_target` in `warmup_steps` updates and is half of that
    after four times as many. Unlike Keras's `CosineDecay`, which also has a
    warm-up, it does not need the total number of updates. For the paper's
    rate of a model of width `units`, pass
    `warmup_target=(units * warmup_steps) ** -0.5`.

    Args:
        warmup_target: Float, the highest learning rate.
        warmup_steps: Number of updates until the highest rate. Defaults to
            `4000`, as in the paper.
        name: Name scope of the operations.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), equation 3

    Example:
        >>> rate = keras_attn.InverseSquareRootDecay(1e-3, warmup_steps=100)
        >>> [round(float(rate(step)), 6) for step in (0, 99, 399)]
        [1e-05, 0.001, 0.0005]
        >>> optimizer = keras.optimizers.Adam(rate)
    """

    def __init__(
        self, warmup_target, warmup_steps=4000, name="InverseSquareRootDecay"
    ):
        super().__init__()
        if not isinstance(warmup_target, (int, float)) or warmup_target <= 0:
            raise ValueError(
                "`warmup_target` is the highest learning rate, a number above "
                f"0. Received: warmup_target={warmup_target!r}. Pass for "
                "example `1e-3`."
            )
        self.warmup_target = warmup_target
        self.warmup_steps = arguments.positive(warmup_steps, "warmup_steps")
        self.name = name

    def __call__(self, step):
        """Returns the rate of an update, a float32 scalar.

        Args:
            step: Number of updates before it, `optimizer.iterations`.
        """
        with keras.name_scope(self.name):
            # Share of the warm-up that is done at the end of this update.
            done = (ops.cast(step, "float32") + 1.0) / self.warmup_steps
            return self.warmup_target * ops.minimum(done, ops.rsqrt(done))

    def get_config(self):
        return {
            "warmup_target": self.warmup_target,
            "warmup_steps": self.warmup_steps,
            "name": self.name,
        }


@keras.saving.register_keras_serializable("keras_attn")
class InverseSigmoidDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Falls from `k / (k + 1)` to 0 along an inverse sigmoid.

    The value at step `i`, which counts from 0, is `k / (k + exp(i / k))`. It
    falls below one half after `k * log(k)` steps. Use it as the `probability`
    of a `ScheduledSamplingModel`.

    Args:
        k: Number of at least 1. A larger `k` makes the fall later and slower.
        name: Name scope of the operations.

    Reference:
        - [Bengio et al., 2015](https://arxiv.org/abs/1506.03099), section 2.4

    Example:
        >>> share = keras_attn.InverseSigmoidDecay(1000)
        >>> [round(float(share(step)), 3) for step in (0, 6908, 10_000)]
        [0.999, 0.5, 0.043]
    """

    def __init__(self, k, name="InverseSigmoidDecay"):
        super().__init__()
        if not isinstance(k, (int, float)) or not 1 <= k < float("inf"):
            raise ValueError(
                "`k` must be a number of at least 1. Received: "
                f"k={k!r}. Pass for example `1000`, with which the value is "
                "0.5 after 6,908 steps."
            )
        self.k = k
        self.name = name

    def __call__(self, step):
        """Returns the value at a step, a float32 scalar.

        Args:
            step: Number of steps before it.
        """
        with keras.name_scope(self.name):
            done = ops.cast(step, "float32") / self.k
            return ops.sigmoid(math.log(self.k) - done)

    def get_config(self):
        return {"k": self.k, "name": self.name}
