"""Error rates of decoded tokens, by edit distance."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from keras_attn.training.metrics.rows import lists_of


class ErrorRates(NamedTuple):
    """The result of `error_rates`, as fractions: 0.25 is 25 %.

    `sequence` is the share of wrong rows, `token` the number of edits per
    token of the references. Their usual names depend on the task: for letters
    to phonemes they are word error rate (WER) and phoneme error rate (PER), in
    speech recognition sentence error rate and word error rate.
    """

    sequence: float
    token: float


def error_rates(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    normalization: str | None = "NFC",
) -> ErrorRates:
    """Scores each hypothesis against the nearest of its references.

    A word may have several correct pronunciations, a sentence several correct
    translations. In each row the reference with the fewest edits is used, the
    first in a tie. A row is wrong if it needs any edit. The token error rate
    is the total number of edits divided by the total length of the references
    used. It can exceed 1 if hypotheses are too long.

    Two tokens are equal if their code points are equal, after `normalization`
    of both sides. By default an accented letter written as one code point
    equals the same letter written as two. No other tokens become equal: `k`
    differs from `kʰ`, `A` from `a`. References should be the text as it was
    written: an error rate cannot show differences that a `Text` removes from
    both sides, as with `normalization="NFKC"`.

    Args:
        hypotheses: A sequence of tokens for each row.
        references: For each row a list of at least one reference, each a
            sequence of tokens.
        normalization: Unicode normal form to apply to each token before the
            comparison: `"NFC"`, `"NFKC"`, or `None` to compare code points as
            they are.

    Returns:
        `ErrorRates(sequence, token)`, two floats. If all references are empty,
        `token` is 0 if there are no edits, and infinite otherwise.

    Raises:
        ValueError: If the numbers of hypotheses and references differ or are
            0, or if a row is not of this form.
        ImportError: If RapidFuzz is not installed.

    Reference:
        - Rates as in [Toshniwal and Livescu, 2016](
          https://arxiv.org/abs/1610.06540)

    Example:
        >>> said = ["T AH M EY T OW".split(), "K AE D".split()]
        >>> right = [
        ...     ["T AH M AA T OW".split(), "T AH M EY T OW".split()],
        ...     ["K AE T".split()],
        ... ]
        >>> # One row of two is wrong, and one token of nine.
        >>> keras_attn.metrics.error_rates(said, right)
        ErrorRates(sequence=0.5, token=0.1111111111111111)
    """
    if normalization not in ("NFC", "NFKC", None):
        raise ValueError(
            '`normalization` must be "NFC", "NFKC" or None. Received: '
            f"normalization={normalization!r}. Pass None to compare code "
            "points as they are."
        )
    hypotheses, references = lists_of(
        hypotheses=hypotheses, references=references
    )
    edits = wrong = length = 0
    pairs = zip(hypotheses, references, strict=True)
    for row, (hypothesis, candidates) in enumerate(pairs):
        _check_row(row, hypothesis, candidates)
        hypothesis = _normalized(hypothesis, normalization)
        candidates = [_normalized(x, normalization) for x in candidates]
        distances = [edit_distance(hypothesis, each) for each in candidates]
        distance = min(distances)
        edits += distance
        wrong += distance > 0
        length += len(candidates[distances.index(distance)])
    token = edits / length if length else (float("inf") if edits else 0.0)
    return ErrorRates(wrong / len(hypotheses), token)


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Returns the Levenshtein distance between two sequences.

    This is the smallest number of insertions, deletions and substitutions that
    turn `a` into `b`. A `str` is treated as a sequence of characters. Tokens
    are compared as they are: an accented letter written as two code points
    differs from the same letter written as one. `error_rates` normalizes
    tokens first.

    Args:
        a: Sequence of tokens.
        b: Sequence of tokens.

    Returns:
        The number of edits, an integer, at most the length of the longer
        sequence.

    Raises:
        ImportError: If RapidFuzz is not installed.

    Example:
        >>> keras_attn.metrics.edit_distance(["K", "AE"], ["K", "AE", "T"])
        1
    """
    for name, x in {"a": a, "b": b}.items():
        if not hasattr(x, "__len__"):
            raise ValueError(
                f"`{name}` must be a sequence of tokens, or a string of "
                f"characters. Received: {name}={x!r:.80}. Pass for example "
                '`["K", "AE", "T"]`.'
            )
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError as error:
        raise ImportError(
            "keras_attn.metrics counts edits with RapidFuzz, which is not "
            "installed. Install it with `pip install rapidfuzz`; it is also "
            "part of keras-attn's extra `metrics`."
        ) from error
    return Levenshtein.distance(a, b)


def _normalized(row, form):
    if form is None:
        return row
    if isinstance(row, str):
        return unicodedata.normalize(form, row)
    return [
        unicodedata.normalize(form, x) if isinstance(x, str) else x for x in row
    ]


def _check_row(row, hypothesis, candidates):
    for name, each in [("hypotheses", hypothesis), ("references", candidates)]:
        if not hasattr(each, "__len__"):
            raise ValueError(
                f"`{name}` must hold strings or lists of tokens. Received: "
                f"{name}[{row}]={each!r:.80}. From the result of a "
                "`Translator`, pass `result.text` or each row's `tokens`."
            )
    if isinstance(candidates, str) or not len(candidates):
        raise ValueError(
            "Each row needs a list of at least one reference. Received: "
            f"references[{row}]={candidates!r}. Put a single reference in a "
            "list too: [reference]."
        )
    if {isinstance(each, str) for each in (hypothesis, *candidates)} == {0, 1}:
        raise ValueError(
            "A hypothesis and its references must be sequences of the same "
            "tokens. Received: strings on one side and lists on the other, "
            f"hypotheses[{row}]={hypothesis!r}, "
            f"references[{row}]={candidates!r}. Split the strings, and put a "
            "single reference in a list: [reference]."
        )
