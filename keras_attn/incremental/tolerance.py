"""How far two computations of the same numbers may be apart."""

import numpy as np

_SHARE = 1e-3  # of a tensor's spread
_ROUNDING = 3e-5  # of its largest number: some 250 times that of float32
_HALF = 50  # times as much where 16 bits are computed with


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
    if not expected.size:
        return True
    if not np.isfinite(expected).all():
        return bool(np.array_equal(found, expected, equal_nan=True))
    largest = np.abs(expected).max()
    allowed = _SHARE * expected.std() + _ROUNDING * largest
    allowed = allowed * (_HALF if half else 1) + noise
    return bool((np.abs(found - expected) <= allowed).all())
