"""The tolerance for differences between two computations of one result."""

import numpy as np

_SHARE = 1e-3  # allowed share of a tensor's spread
_ROUNDING = 3e-5  # allowed share of a number: about 250 float32 roundings
_HALF = 50  # factor on both if anything computes with 16 bits
_OUTLYING = 10  # the spread is at most so many usual distances to the median


def is_close(found, expected, half=False, noise=0.0) -> bool:
    """Whether two arrays are equal up to rounding.

    Args:
        found: Array.
        expected: Array. The tolerance is relative to its spread, so that
            tensors of small numbers are compared as strictly.
        half: Whether anything that computed them has 16 bits.
        noise: Further tolerance, for rounding errors that grew: an array
            that broadcasts.
    """
    if found.shape != expected.shape:
        return False
    # Masked scores may be infinite.
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return False
    if not np.isfinite(found[finite]).all():
        return False
    found = np.where(finite, found, 0.0)
    expected = np.where(finite, expected, 0.0)
    allowed = _SHARE * _spread(expected[finite]) + _ROUNDING * np.abs(expected)
    allowed = allowed * (_HALF if half else 1) + noise
    return bool((np.abs(found - expected) <= allowed).all())


def _spread(values):
    """Returns the standard deviation, limited for tensors with outliers.

    A score of -1e9 must not make the other scores' differences look small.
    """
    if not values.size:
        return 0.0
    distance = np.abs(values - np.median(values))
    apart = distance[distance > 0]
    usual = np.median(apart) if apart.size else 0.0
    return min(float(values.std()), _OUTLYING * float(usual))
