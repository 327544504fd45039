"""Metrics of decoded text, which compare lists of strings.

Each takes `hypotheses`, a string for each row, and `references`, for each row
a string or a list of several. Error rates are fractions (0.25 is 25 %); lower
is better. BLEU and chrF range from 0 to 100; higher is better.
"""

from collections.abc import Callable
from collections.abc import Sequence

from keras_attn.training.metrics.edits import error_rates
from keras_attn.training.metrics.rows import lists_of

References = Sequence[str | Sequence[str]]


def word_error_rate(hypotheses: Sequence[str], references: References) -> float:
    """Returns the number of edits per word of the references.

    Words are separated by white space. For pronunciations, written as
    phonemes with spaces, this is the phoneme error rate. Of several references
    the nearest is used, as in `error_rates`.

    Args:
        hypotheses: List of strings.
        references: For each hypothesis a string, or a list of strings.

    Returns:
        A float, 0.25 for 25 %. It can exceed 1.

    Raises:
        ImportError: If RapidFuzz is not installed.

    Example:
        >>> said = ["the cat sat", "a dog"]
        >>> keras_attn.metrics.word_error_rate(
        ...     said, ["the cat sat down", ["the dog", "a dog"]])
        0.16666666666666666
    """
    hypotheses, lists = _lists(hypotheses, references)
    return error_rates(
        [x.split() for x in hypotheses],
        [[x.split() for x in several] for several in lists],
    ).token


def character_error_rate(
    hypotheses: Sequence[str], references: References
) -> float:
    """Returns the number of edits per character of the references.

    Spaces are characters too. Of several references the nearest is used, as in
    `error_rates`.

    Args:
        hypotheses: List of strings.
        references: For each hypothesis a string, or a list of strings.

    Returns:
        A float, 0.25 for 25 %. It can exceed 1.

    Raises:
        ImportError: If RapidFuzz is not installed.

    Example:
        >>> keras_attn.metrics.character_error_rate(["kitten"], ["sitting"])
        0.42857142857142855
    """
    return error_rates(*_lists(hypotheses, references)).token


def sequence_error_rate(
    hypotheses: Sequence[str], references: References
) -> float:
    """Returns the share of rows that equal none of their references.

    Args:
        hypotheses: List of strings.
        references: For each hypothesis a string, or a list of strings.

    Returns:
        A float from 0 to 1.

    Raises:
        ImportError: If RapidFuzz is not installed.

    Example:
        >>> keras_attn.metrics.sequence_error_rate(["a", "b"], ["a", ["c"]])
        0.5
    """
    return error_rates(*_lists(hypotheses, references)).sequence


def bleu(hypotheses: Sequence[str], references: References, **options) -> float:
    """Returns the BLEU of a corpus, computed by sacreBLEU, from 0 to 100.

    Hypotheses and references must be ordinary text, not split into tokens:
    sacreBLEU tokenizes them itself. Its signature names the settings. By
    default it is `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp`.

    Args:
        hypotheses: List of strings.
        references: For each hypothesis a string, or a list of strings.
        **options: Options of `sacrebleu.BLEU`, such as `lowercase=True` or
            `tokenize="intl"`.

    Raises:
        ImportError: If sacreBLEU is not installed.

    Reference:
        - [Papineni et al., 2002](https://aclanthology.org/P02-1040/)
        - [Post, 2018](https://arxiv.org/abs/1804.08771)

    Example:
        >>> said = ["The cat sat on the mat."]
        >>> round(keras_attn.metrics.bleu(said, said), 6)
        100.0
    """
    return _by_sacrebleu("BLEU", hypotheses, references, options)


def chrf(hypotheses: Sequence[str], references: References, **options) -> float:
    """Returns the chrF of a corpus, computed by sacreBLEU, from 0 to 100.

    chrF compares sequences of up to six characters, so text need not be split
    into words. With `word_order=2` it is chrF++.

    Args:
        hypotheses: List of strings.
        references: For each hypothesis a string, or a list of strings.
        **options: Options of `sacrebleu.CHRF`.

    Raises:
        ImportError: If sacreBLEU is not installed.

    Reference:
        - [Popović, 2015](https://aclanthology.org/W15-3049/)

    Example:
        >>> round(keras_attn.metrics.chrf(["a cat"], [["a cat", "the cat"]]))
        100
    """
    return _by_sacrebleu("CHRF", hypotheses, references, options)


# The names that `DecodingMetrics(metrics=...)` takes.
BY_NAME: dict[str, Callable[[Sequence[str], References], float]] = {
    "bleu": bleu,
    "chrf": chrf,
    "wer": word_error_rate,
    "cer": character_error_rate,
    "ser": sequence_error_rate,
}


def _lists(hypotheses, references):
    """Returns hypotheses, and a list of references for each of them."""
    hypotheses, references = lists_of(
        hypotheses=hypotheses, references=references
    )
    lists = []
    for row, (said, right) in enumerate(
        zip(hypotheses, references, strict=True)
    ):
        if not isinstance(said, str):
            raise ValueError(
                "`hypotheses` must be strings. Received: "
                f"hypotheses[{row}]={said!r:.80}. From a `Translator` "
                "pass `result.text`; for lists of tokens call `error_rates`."
            )
        several = [right] if isinstance(right, str) else right
        several = list(several) if hasattr(several, "__iter__") else [several]
        if not several or not all(isinstance(x, str) for x in several):
            raise ValueError(
                "Each hypothesis needs at least one reference, a string or a "
                f"list of strings. Received: references[{row}]={right!r:.80}. "
                "Leave out rows without a reference."
            )
        lists.append(several)
    return hypotheses, lists


def _by_sacrebleu(name, hypotheses, references, options):
    hypotheses, lists = _lists(hypotheses, references)
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError(
            f"`{name.lower()}` counts with sacreBLEU, "
            "which is not installed. Install it with `pip install sacrebleu`; "
            "it is also part of keras-attn's extra `metrics`."
        ) from error
    # sacreBLEU takes a list of all first references, then of all second ones.
    most = max(map(len, lists))
    streams = [
        [x[i] if i < len(x) else None for x in lists] for i in range(most)
    ]
    metric = getattr(sacrebleu, name)(**options)
    return float(metric.corpus_score(hypotheses, streams).score)
