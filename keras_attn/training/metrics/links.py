"""Word alignments: links between tokens, and their error rate."""

import operator
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from keras_attn.training.metrics.rows import lists_of

Links = Iterable[tuple[int, int]]


def alignment_links(alignment, end: bool = True) -> set[tuple[int, int]]:
    """Turns an alignment of attention weights into links between tokens.

    Each target token is linked to the source token that it attends to most,
    the first in a tie. A target token without any weight has no link.

    Args:
        alignment: Array of shape `(target, source)`, such as a
            `Translation`'s `alignment`.
        end: Whether the last row and the last column are those of end tokens.
            Links to or from an end token are left out, so a target token may
            have no link.

    Returns:
        A set of pairs `(source, target)` of positions from 0.

    Raises:
        ValueError: If `alignment` does not have two axes.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 5.4

    Example:
        >>> soft = [[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.1, 0.9]]
        >>> sorted(keras_attn.metrics.alignment_links(soft))
        [(0, 0), (1, 1)]
    """
    alignment = np.asarray(alignment)
    if alignment.ndim != 2:
        raise ValueError(
            "`alignment` must be an array of shape (target, source). "
            f"Received: an array of shape {alignment.shape}. Pass that of one "
            "result, `result[0].alignment`."
        )
    targets, sources = alignment.shape[0] - end, alignment.shape[1] - end
    if sources < 1:
        return set()
    return {
        (int(row.argmax()), target)
        for target, row in enumerate(alignment[: max(targets, 0)])
        if row.argmax() < sources and row.max() > 0
    }


def alignment_error_rate(
    found: Sequence[Links],
    sure: Sequence[Links],
    possible: Sequence[Links] | None = None,
) -> float:
    """Returns the alignment error rate (AER) of a corpus; lower is better.

    For the found links `A`, the sure links `S` and the possible links `P`,
    which include the sure ones, it is

    `1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)`

    The numbers of links are summed over all sentences.

    Args:
        found: For each sentence pairs `(source, target)`, as returned by
            `alignment_links`.
        sure: For each sentence the links that an alignment must have.
        possible: For each sentence the links that an alignment may have, with
            or without the sure ones. Defaults to the sure ones.

    Returns:
        A float between 0 and 1; 0 if there are no links at all.

    Raises:
        ValueError: If the numbers of sentences differ or are 0, or if links
            are not pairs of integers.

    Reference:
        - [Och and Ney, 2003](https://aclanthology.org/J03-1002/), section 4

    Example:
        >>> found = [{(0, 0), (1, 1), (2, 1)}]
        >>> keras_attn.alignment_error_rate(
        ...     found, sure=[{(0, 0)}], possible=[{(1, 1)}])
        0.25
    """
    if possible is None:
        found, sure = lists_of(found=found, sure=sure)
        possible = [()] * len(sure)
    found, sure, possible = lists_of(found=found, sure=sure, possible=possible)
    agreed = total = 0
    for row, given in enumerate(zip(found, sure, possible, strict=True)):
        a, s, p = (_links(links, row) for links in given)
        agreed += len(a & s) + len(a & (p | s))
        total += len(a) + len(s)
    return 1 - agreed / total if total else 0.0


def _links(links, row):
    """Returns links as a set of pairs of integers."""
    try:
        return {(_number(source), _number(target)) for source, target in links}
    except (TypeError, ValueError):
        raise ValueError(
            "Links are pairs of numbers (source, target). Received: "
            f"{links!r:.80} for sentence {row}. For an array of weights call "
            "`alignment_links(alignment)`; for a line such as '0-0 2-1' pass "
            '`[x.split("-") for x in line.split()]`.'
        ) from None


def _number(x):
    return int(x) if isinstance(x, str) else operator.index(x)
