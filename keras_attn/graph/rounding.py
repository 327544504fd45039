"""Estimates how far two computations of one result differ by rounding alone."""

import math
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import set_keras_mask

_OUTLYING = 10  # a spread is at most this many usual distances to the median
_FORBIDDEN = -5e3  # scores of what is forbidden are lower: -1e4, -1e9
_SAMPLE = 2**18  # the most numbers from which a spread is estimated
_PART = 2**20  # the most numbers that are compared at once
_DISTURBANCES = 8  # the most that are tried in 16 bits


class _Precision(NamedTuple):
    """The tolerances for one dtype, as factors."""

    share: float  # of a tensor's spread
    size: float  # of each number
    alike: float  # of the largest number, if sums have the same order
    disturbance: float  # of each weight, to measure how errors grow
    anywhere: float  # of the largest effect of the disturbance
    by_position: float  # of the effect of the disturbance at a position


def _in_16_bits(unit):
    """Returns the tolerances for a dtype with relative errors up to `unit`.

    Measured on the models of `tests/support/half_models.py`, with kernels up
    to nine times as large as freshly initialized ones: most correct
    computations differ by at most the largest change by one disturbance, and
    at a single position by up to three times the change there. Others do
    where two scores of an attention are nearly equal; these all agreed after
    at most eight disturbances.
    """
    return _Precision(16 * unit, 4 * unit, 4 * unit, 4 * unit, 1.5, 3)


_FLOAT32 = _Precision(1e-3, 3e-5, 1e-6, 1e-6, 100, 100)
_HALF = {
    "float16": _in_16_bits(2.0**-11),
    "bfloat16": _in_16_bits(2.0**-8),
}


class Rounding:
    """Tolerances for the rounding errors of some layers.

    The size of rounding errors depends on the coarsest dtype and on the size
    of the numbers. Errors may also grow: scores of 50 are rounded to quarters
    in bfloat16, and a softmax makes that an error of a tenth. So the errors of
    the given layers are measured: their weights are disturbed by about as much
    as a few roundings would, and a multiple of the effect is the tolerance.

    Args:
        layers: The layers that compute, at all depths.

    Attributes:
        half: `"float16"` or `"bfloat16"` if a layer computes in 16 bits, else
            `None`.
        disturbances: How many disturbances to try before results count as
            different, each with another seed.
    """

    def __init__(self, layers):
        found = {
            keras.backend.standardize_dtype(x.compute_dtype)
            for x in layers
            if x.compute_dtype
        }
        # If there are both, bfloat16, which rounds more.
        self.half = next((x for x in reversed(_HALF) if x in found), None)
        self._precision = _HALF.get(self.half, _FLOAT32)
        self.disturbances = 1 if self.half is None else _DISTURBANCES

    @property
    def advice(self) -> str:
        """Advice for an error about different results, "" in float32.

        It continues a sentence.
        """
        if self.half is None:
            return ""
        return (
            f"; the model computes in {self.half}, but the difference is too "
            "large to be its rounding; in float32, smaller differences show "
            "too"
        )

    @property
    def overflow(self) -> str:
        """Advice about numbers that are not finite, "" except in float16."""
        if self.half != "float16":
            return ""
        return (
            "The model computes in float16, which holds no number above "
            "65,504 and turns larger ones into infinity. Compute in bfloat16 "
            "or float32: build the model, or load it, with "
            '`dtype="bfloat16"` or after '
            '`keras.config.set_dtype_policy("float32")`. If the results are '
            "NaN there too, training has diverged."
        )

    def apart(self, found, expected, noise=0.0):
        """Returns where arrays of one shape differ by more than rounding.

        Args:
            found: Array.
            expected: Array. The tolerance is relative to its spread, so
                tensors of small numbers are compared just as strictly.
            noise: Additional tolerance, a result of `noise()` or `growth()`.
        """
        return self._apart(found, expected, noise, _spread(expected))

    def _apart(self, found, expected, noise, spread):
        found, expected = _wide(found), _wide(expected)
        # Masked scores may be infinite.
        finite = np.isfinite(expected)
        with np.errstate(invalid="ignore"):
            allowed = self._precision.share * spread
            allowed = allowed + self._precision.size * np.abs(expected)
            allowed = allowed + _along(noise, found)
            apart = ~(np.abs(found - expected) <= allowed)
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        return np.where(finite, apart, ~same)

    def apart_alike(self, found, expected):
        """Returns where arrays differ, if both were summed in the same order.

        The tolerance is smaller than that of `apart()`.
        """
        found, expected = _wide(found), _wide(expected)
        finite = np.isfinite(expected)
        usual = _not_forbidden(expected[finite])
        largest = np.max(np.abs(usual), initial=0)
        # A score of -1e9 may be a sum, which is rounded.
        size = np.maximum(np.where(finite, np.abs(expected), 0), largest)
        with np.errstate(invalid="ignore"):
            return np.abs(found - expected) > self._precision.alike * size

    def is_close(self, found, expected, noise=0.0) -> bool:
        """Whether arrays are equal up to rounding; see `apart`."""
        if found.shape != expected.shape:
            return False
        spread = _spread(expected)
        return not any(
            self._apart(found[part], expected[part], some, spread).any()
            for part, some in _parts(expected.shape, noise)
        )

    def disturb(self, x, seed=0):
        """Returns a tensor with random errors about as large as rounding.

        Anything but a tensor of floats is returned as it is.
        """
        if not ops.is_tensor(x) or not keras.backend.is_float_dtype(x.dtype):
            return x
        mask = get_keras_mask(x)
        random = np.random.default_rng(seed)

        def disturb(part):
            value = _wide(ops.convert_to_numpy(ops.cast(part, "float32")))
            error = random.uniform(-1, 1, value.shape)
            value = value * (1 + error * self._precision.disturbance)
            return ops.cast(value.astype("float32"), x.dtype)

        size = math.prod(x.shape)
        if size <= _PART:
            value = disturb(x)
        else:  # float64 takes much memory, and embeddings are large
            rows = x.shape[0]
            some = max(1, _PART * rows // size)
            parts = [x[i : i + some] for i in range(0, rows, some)]
            value = ops.concatenate([disturb(part) for part in parts])
        if mask is not None:
            set_keras_mask(value, mask)
        return value

    def disturbed(self, variables, seed=0) -> keras.StatelessScope:
        """Returns a scope in which variables are changed by `disturb()`."""
        pairs = [
            (x, self.disturb(ops.convert_to_tensor(x.value), (seed, i)))
            for i, x in enumerate(variables)
        ]
        return keras.StatelessScope(pairs)

    def noise(self, before, after) -> float:
        """Returns by how much rounding may change an array.

        Args:
            before: The array.
            after: The array as computed with disturbed weights.
        """
        effect = np.max(_effect(before, after), initial=0.0)
        return float(self._precision.anywhere * effect)

    def growth(self, before, after):
        """Returns by how much rounding may change an array at each position.

        In a recurrent network errors grow from step to step, so the result
        never falls from one position to the next.

        Args:
            before: The array, `(rows, positions, ...)`.
            after: The array as computed with disturbed weights.

        Returns:
            Array `(positions,)`, or a number if the array has fewer than two
            axes.
        """
        effect = _effect(before, after)
        if effect.ndim < 2:
            return self.noise(before, after)
        axes = tuple(x for x in range(effect.ndim) if x != 1)
        largest = np.maximum.accumulate(np.max(effect, axes, initial=0.0))
        return self._precision.by_position * largest


def _effect(before, after):
    with np.errstate(invalid="ignore"):
        effect = np.abs(_wide(after) - _wide(before))
    return np.where(np.isfinite(effect), effect, 0.0)


def _wide(x):
    return np.asarray(x).astype("float64")


def _along(noise, x):
    """Reshapes a noise by position to broadcast along an array's axis 1."""
    if np.ndim(noise) == 0:
        return noise
    return np.reshape(noise, (-1, *(1,) * (x.ndim - 2)))


def _parts(shape, noise):
    """Yields indices of parts of an array, and the noise of each part.

    Float64 takes twice the memory, and a large vocabulary has many logits.
    """
    size = math.prod(shape)
    if size <= _PART or len(shape) < 2:
        yield ..., noise
        return
    count = max(1, _PART * shape[0] * shape[1] // size)
    for row in range(shape[0]):
        for first in range(0, shape[1], count):
            places = slice(first, first + count)
            some = noise[places] if np.ndim(noise) else noise
            yield (slice(row, row + 1), places), some


def _spread(values):
    """Returns the standard deviation, limited for tensors with outliers.

    Scores of -1e9, many or few, must not make the differences of other scores
    look small. For large tensors the estimate uses a random sample.
    """
    if values.size > _SAMPLE:
        random = np.random.default_rng(0)
        values = np.take(values, random.integers(0, values.size, _SAMPLE))
    values = _wide(values)
    values = _not_forbidden(values[np.isfinite(values)])
    if not values.size:
        return 0.0
    distance = np.abs(values - np.median(values))
    apart = distance[distance > 0]
    usual = np.median(apart) if apart.size else 0.0
    return min(float(values.std()), _OUTLYING * float(usual))


def _not_forbidden(values):
    """Returns finite numbers without scores of what is forbidden, if any.

    Such scores are far below all others. A sum of two masks has two of them.
    """
    while values.size and (lowest := values.min()) < _FORBIDDEN:
        others = values[values > lowest / 8]
        if not others.size or others.min() < lowest / 100:
            break
        values = others
    return values
