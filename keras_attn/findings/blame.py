"""Which layer is to blame for a difference between two runs."""

import numpy as np

# What each says of a tensor.
CLEAN, UNPLACED, WRONG = range(3)


def culprit(graph, verdicts, key):
    """The first call on the way to a tensor at which it goes wrong.

    From the tensor it goes back to what is wrong among what was read, until
    nothing that was read is.

    Args:
        graph: A `Graph`.
        verdicts: `{key: CLEAN, UNPLACED or WRONG}`; `UNPLACED` for a tensor
            that changed, but of which nobody can say whether it may.
        key: Key of a tensor that is wrong.

    Returns:
        A `Call`, or `None`.
    """
    call = None
    while (writer := graph.writer(key)) is not None:
        call = writer
        found = [x for x in call.reads if verdicts.get(x, CLEAN) == WRONG]
        found = found or [
            x for x in call.reads if verdicts.get(x, CLEAN) == UNPLACED
        ]
        # An input is given, so it is never to blame.
        found = [x for x in found if graph.writer(x) is not None]
        if not found:
            break
        key = found[0]
    return call


def leaks(old, new, changed, length, tolerance):
    """Whether a tensor changes before the first token that changed.

    Args:
        old: The tensor.
        new: The tensor of other targets.
        changed: For each row the first position that changed.
        length: Length of the targets, which no other axis has.
        tolerance: What is rounding, as a share of the largest value.
    """
    difference = _difference(old, new, tolerance)
    if difference is None or not difference.any():
        return CLEAN
    axes = [i for i, size in enumerate(old.shape) if size == length and i]
    if old.shape[:1] != changed.shape or not axes:
        return UNPLACED
    difference = np.moveaxis(difference, axes[0], 1)
    difference = difference.reshape(*difference.shape[:2], -1).any(-1)
    before = np.arange(length) < changed[:, None]
    return WRONG if (difference & before).any() else CLEAN


def first_row_changes(old, new, rows, tolerance):
    """Whether the first row changes though its inputs did not."""
    difference = _difference(old, new, tolerance)
    if difference is None or not difference.any():
        return CLEAN
    if old.shape[:1] != (rows,):
        return UNPLACED
    return WRONG if difference[0].any() else CLEAN


def differ_where_both_are(old, new, tolerance):
    """Whether tensors differ where both have places."""
    if old.ndim != new.ndim:
        return WRONG
    common = tuple(
        slice(min(sizes)) for sizes in zip(old.shape, new.shape, strict=True)
    )
    difference = _difference(old[common], new[common], tolerance)
    return WRONG if difference is not None and difference.any() else CLEAN


def differ(old, new, tolerance):
    """Whether tensors differ, or have other shapes."""
    if old.shape != new.shape:
        return WRONG
    return differ_where_both_are(old, new, tolerance)


def not_finite(value):
    """Whether a tensor holds NaN or infinity."""
    bad = value.dtype.kind == "f" and not np.isfinite(value).all()
    return WRONG if bad else CLEAN


def _difference(old, new, tolerance):
    """Where two arrays differ by more than rounding; `None` if not numbers."""
    if old.dtype.kind not in "biuf" or old.shape != new.shape:
        return None
    old, new = old.astype("float64"), new.astype("float64")
    with np.errstate(invalid="ignore"):
        scale = np.max(np.abs(old), initial=0, where=np.isfinite(old))
        return np.abs(old - new) > tolerance * scale
