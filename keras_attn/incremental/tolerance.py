"""How far two computations of the same numbers may be apart."""

import numpy as np

_SHARE = 1e-3  # of a tensor's spread
_ROUNDING = 3e-5  # of a number itself: some 250 times that of float32
_HALF = 50  # times as much where 16 bits are computed with
_OUTLYING = 10  # times the usual distance from the median


def is_close(found, expected, half=False, noise=0.0) -> bool:
    """Whether two arrays are the same but for rounding.

    Args:
        found: Array.
        expected: Array. Its own spread says what a difference means, so that
            small numbers are held to as much as large ones.
        half: Whether anything on the way to them has 16 bits.
        noise: What rounding errors may have become on their way, an array
            that broadcasts.
    """
    if found.shape != expected.shape:
        return False
    # Scores of what is masked may be infinite.
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
    """The standard deviation, without what lies far out.

    A score of -1e9 in a tensor says nothing of the others.
    """
    if not values.size:
        return 0.0
    distance = np.abs(values - np.median(values))
    apart = distance[distance > 0]
    usual = np.median(apart) if apart.size else 0.0
    return min(float(values.std()), _OUTLYING * float(usual))
