"""Estimates how far two computations of one result differ by rounding alone."""

import math
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import set_keras_mask

_OUTLYING = 10  # the spread is at most so many usual distances to the median
_SAMPLE = 2**18  # numbers of which a spread is taken
_PART = 2**20  # numbers that are compared at once


class _Precision(NamedTuple):
    """The differences that one dtype allows."""

    share: float  # of a tensor's spread
    size: float  # of each number
    alike: float  # of the largest number, if sums have the same order
    disturbance: float  # of each weight, to measure how errors grow
    anywhere: float  # times the largest effect of the disturbance
    by_position: float  # times its effect at one position


def _in_16_bits(unit):
    """Returns the precision of a dtype that rounds by `unit` at most.

    Measured on the models of `tests/support/half_models.py`, with kernels up
    to nine times as large as fresh ones: sound computations differ by at most
    once or twice the largest change by the disturbance, and at a single
    position by up to six times the change there.
    """
    return _Precision(16 * unit, 4 * unit, 4 * unit, 2 * unit, 3, 8)


_FLOAT32 = _Precision(1e-3, 3e-5, 1e-6, 1e-6, 100, 100)
_HALF = {
    "float16": _in_16_bits(2.0**-11),
    "bfloat16": _in_16_bits(2.0**-8),
}


class Rounding:
    """The rounding errors of some layers, which compute in some dtypes.

    What is equal but for rounding depends on the coarsest dtype and on the
    size of the numbers. Errors may also grow: scores of 50 are rounded to
    eighths in bfloat16, and a softmax makes that an error of a tenth. So the
    errors of the layers at hand are measured, as the effect of a disturbance
    of their weights that is about as large as rounding.

    Args:
        layers: The layers that compute, at all depths.

    Attributes:
        half: `"float16"` or `"bfloat16"` if a layer computes with 16 bits,
            else `None`.
    """

    def __init__(self, layers):
        found = {
            keras.backend.standardize_dtype(x.compute_dtype)
            for x in layers
            if x.compute_dtype
        }
        # Of two, the one that rounds more.
        self.half = next((x for x in reversed(_HALF) if x in found), None)
        self._precision = _HALF.get(self.half, _FLOAT32)

    @property
    def advice(self) -> str:
        """The advice if results differ, for the end of a sentence."""
        if self.half is None:
            return ""
        return (
            f"; the model computes in {self.half}, and this is more than its "
            "rounding explains; in float32, smaller differences show too"
        )

    @property
    def overflow(self) -> str:
        """A sentence on numbers that are not finite, "" without a reason."""
        if self.half != "float16":
            return ""
        return (
            "The model computes in float16, which holds no number above "
            "65,504 and turns larger ones into infinity. Compute in bfloat16 "
            "or float32: build the model, or load it, with "
            '`dtype="bfloat16"` or after '
            '`keras.config.set_dtype_policy("float32")`. If it is NaN there '
            "too, training has diverged."
        )

    def apart(self, found, expected, noise=0.0):
        """Returns where arrays of one shape differ by more than rounding.

        Args:
            found: Array.
            expected: Array. The tolerance is relative to its spread, so that
                tensors of small numbers are compared as strictly.
            noise: Further tolerance, a result of `noise()` or `growth()`.
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
        """Returns where arrays differ that were computed in the same order."""
        found, expected = _wide(found), _wide(expected)
        with np.errstate(invalid="ignore"):
            largest = np.max(
                np.abs(expected), initial=0, where=np.isfinite(expected)
            )
            return np.abs(found - expected) > self._precision.alike * largest

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
        """Returns a tensor with errors about as large as rounding.

        What holds no floats is returned as it is.
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
        """Returns a scope in which variables have such errors."""
        pairs = [
            (x, self.disturb(ops.convert_to_tensor(x.value), (seed, i)))
            for i, x in enumerate(variables)
        ]
        return keras.StatelessScope(pairs)

    def noise(self, before, after) -> float:
        """Returns how much rounding may change an array.

        Args:
            before: The array.
            after: The array as computed with the disturbance.
        """
        effect = np.max(_effect(before, after), initial=0.0)
        return float(self._precision.anywhere * effect)

    def growth(self, before, after):
        """Returns how much rounding may change an array at each position.

        In a recurrent net errors grow from step to step, so the noise never
        falls from one position to the next.

        Args:
            before: The array, `(rows, positions, ...)`.
            after: The array as computed with the disturbance.
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
    """Lets a noise by position broadcast to an array's second axis."""
    if np.ndim(noise) == 0:
        return noise
    return np.reshape(noise, (-1, *(1,) * (x.ndim - 2)))


def _parts(shape, noise):
    """Yields indices of parts of an array, and the noise of each part.

    Float64 takes twice the memory, and logits of a large vocabulary are many.
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

    A score of -1e9 must not make the other scores' differences look small.
    Of many numbers some are drawn.
    """
    if values.size > _SAMPLE:
        random = np.random.default_rng(0)
        values = np.take(values, random.integers(0, values.size, _SAMPLE))
    values = _wide(values)
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0
    distance = np.abs(values - np.median(values))
    apart = distance[distance > 0]
    usual = np.median(apart) if apart.size else 0.0
    return min(float(values.std()), _OUTLYING * float(usual))
