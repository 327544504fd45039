"""Finds the tensors that differ between two runs, and the call at fault."""

import numpy as np

# Verdicts on a tensor. An `UNPLACED` tensor changed, but it is not known which
# axis is the one to check, so not either whether it may change.
CLEAN, UNPLACED, WRONG = range(3)


def culprit(graph, verdicts, key):
    """Returns the first call that is wrong on the way to a tensor.

    The search goes back from the tensor: from the call that wrote it to a
    wrong tensor that this call reads, until a call reads none.

    Args:
        graph: A `Graph`.
        verdicts: `{key: CLEAN, UNPLACED or WRONG}`.
        key: Key of a tensor that is wrong.

    Returns:
        A `FlatCall`, or `None`.
    """
    call = None
    while (writer := graph.writer(key)) is not None:
        call = writer
        found = [x for x in call.reads if verdicts.get(x, CLEAN) == WRONG]
        found = found or [
            x for x in call.reads if verdicts.get(x, CLEAN) == UNPLACED
        ]
        # A model's input is never to blame.
        found = [x for x in found if graph.writer(x) is not None]
        if not found:
            break
        key = found[0]
    return call


def first_difference(graph, old, new, apart):
    """Returns the first call, in running order, that wrote another tensor.

    Args:
        graph: A `Graph`.
        old, new: The tensors of two runs by their keys. Tensors that only one
            run has are not compared.
        apart: Function of a key and two arrays of the same shape. It returns
            whether they differ by more than rounding.

    Returns:
        A `FlatCall`, or `None`.
    """
    for call in graph.calls:
        for key in call.writes:
            if key not in old or key not in new:
                continue
            one, other = old[key], new[key]
            if one.dtype.kind not in "biuf":
                continue
            if one.shape != other.shape or apart(key, other, one):
                return call
    return None


def leaks(old, new, changed, length, apart):
    """Returns whether a tensor changes before the first changed token.

    Args:
        old: The tensor.
        new: The tensor computed from other targets.
        changed: For each row, the first position where the targets differ.
        length: Length of the targets, which no other axis has.
        apart: Function of two arrays of the same shape. It returns where they
            differ by more than rounding.

    Returns:
        A verdict.
    """
    difference = _difference(old, new, apart)
    if difference is None or not difference.any():
        return CLEAN
    axes = [i for i, size in enumerate(old.shape) if size == length and i]
    if old.shape[:1] != changed.shape or not axes:
        return UNPLACED
    difference = np.moveaxis(difference, axes[0], 1)
    difference = difference.reshape(*difference.shape[:2], -1).any(-1)
    before = np.arange(length) < changed[:, None]
    return WRONG if (difference & before).any() else CLEAN


def first_row_changes(old, new, rows, apart):
    """Returns a verdict: the first row changes although its inputs did not."""
    difference = _difference(old, new, apart)
    if difference is None or not difference.any():
        return CLEAN
    if old.shape[:1] != (rows,):
        return UNPLACED
    return WRONG if difference[0].any() else CLEAN


def differ_where_both_are(old, new, apart):
    """Returns a verdict: tensors differ at the positions that both have."""
    if old.ndim != new.ndim:
        return WRONG
    common = tuple(
        slice(min(sizes)) for sizes in zip(old.shape, new.shape, strict=True)
    )
    difference = _difference(old[common], new[common], apart)
    return WRONG if difference is not None and difference.any() else CLEAN


def differ(old, new, apart):
    """Returns a verdict: tensors differ in values or shapes."""
    if old.shape != new.shape:
        return WRONG
    return differ_where_both_are(old, new, apart)


def not_finite(value):
    """Returns a verdict: a tensor holds NaN or infinity."""
    bad = value.dtype.kind == "f" and not np.isfinite(value).all()
    return WRONG if bad else CLEAN


def not_scores(value):
    """Returns a verdict: an array cannot be logits.

    Logits of minus infinity forbid tokens, so they are good unless they forbid
    all.
    """
    some = np.isfinite(value).any(-1)
    return CLEAN if (some & (np.max(value, -1) < np.inf)).all() else WRONG


def _difference(old, new, apart):
    """Returns where arrays differ by more than rounding.

    Returns `None` if they hold no numbers or differ in shape.
    """
    if old.dtype.kind not in "biuf" or old.shape != new.shape:
        return None
    return apart(new, old) if old.dtype.kind == "f" else old != new
