"""`tune`: finds the best weights of scorers for `rerank`."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn.decoding.translator import Translations
from keras_attn.progress import Bar
from keras_attn.reranking.checks import listed
from keras_attn.reranking.checks import require_integer
from keras_attn.reranking.line_search import LineSearch
from keras_attn.reranking.metrics import utility_of
from keras_attn.reranking.nbest import NBest
from keras_attn.reranking.nbest import Scorer
from keras_attn.reranking.nbest import own_score
from keras_attn.reranking.utility import Utility

_GAIN = 1e-9  # smaller gains are rounding errors


def tune(
    results: Translations,
    references: Sequence[str | Sequence[str]],
    metric: str | Callable[[str, str], float] | Utility = "bleu",
    by: Sequence[Scorer] = (),
    sources: Any = None,
    restarts: int = 10,
    seed: int = 0,
    verbose: str | int = "auto",
) -> list[tuple[Scorer, float]]:
    """Finds the weights for `rerank` with the best metric of a corpus.

    This is minimum error rate training. Along a line of weights the best
    hypotheses change at few points. These points are found exactly, the metric
    of the corpus is computed between them, and the best interval is taken.
    The search starts from the own scores alone and from random weights. It
    follows lines along each weight and in random directions, until no line
    improves the metric.

    Use a development set: weights overfit the sentences that they are tuned
    on, especially if there are few.

    Args:
        results: `Translations` with alternatives, as for `rerank`.
        references: For each result a string, or a list of several.
        metric: `"bleu"` or `"chrf"` of the corpus, or an error rate, `"wer"`,
            `"cer"` or `"ser"`, which is minimized. Or a function of
            (hypothesis, reference) that returns a number, whose mean is
            maximized. Or a `keras_attn.reranking.Utility`.
        by: List of scorers, as for `rerank`, without weights.
        sources: The sources of the results, as for `rerank`.
        restarts: Number of random weights from which the search starts again.
        seed: Seed of the random weights and directions.
        verbose: Whether to show a progress bar with the best value so far: 0,
            1, or `"auto"`, which shows it on a terminal.

    Returns:
        List of pairs of a scorer and its weight for `rerank`. The first is
        `own_score`. If its weight is positive, all weights are scaled to make
        it 1. If no weights are better than the own scores alone, the other
        weights are 0.

    Raises:
        ValueError: If an argument is invalid, or if a scorer does not return a
            finite number for each hypothesis.
        ImportError: If the metric needs a package that is not installed.

    Reference:
        - [Och, 2003](https://aclanthology.org/P03-1021/)

    Example:
        >>> def length(sources, hypotheses):
        ...     return [len(x.tokens) for x in hypotheses]
        >>> text = keras_attn.Text.from_lines(["ab"], split="characters")
        >>> source = keras.Input((None,), dtype="int32")
        >>> target = keras.Input((None,), dtype="int32")
        >>> embed = keras.layers.Embedding(text.size, 8, mask_zero=True)
        >>> hidden = keras_attn.AttentionDecoder(
        ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
        ...     embed(target), embed(source))
        >>> model = keras.Model(
        ...     [source, target], keras.layers.Dense(text.size)(hidden))
        >>> search = keras_attn.BeamSearch(4, num_hypotheses=4, max_length=5)
        >>> copy = keras_attn.Translator(model, text, text, search)
        >>> results = copy(["abba", "b"])
        >>> weights = keras_attn.tune(
        ...     results, ["abba", "b"], metric="chrf", by=[length])
        >>> best = keras_attn.rerank(results, weights)
        >>> len(weights), len(best)
        (2, 2)
    """
    if not isinstance(by, Sequence) or not by or not all(map(callable, by)):
        raise ValueError(
            "`by` must be a list of scorers, at least one, such as "
            f"`[other.score]`. Received: by={by!r:.200}. Leave weights out: "
            "`tune` finds them."
        )
    require_integer("restarts", restarts, least=0)
    require_integer("seed", seed, least=0)
    utility = utility_of(metric)
    nbest = NBest(results, sources)
    scorers = [own_score, *(x for x in by if x is not own_score)]
    counts = _counts(utility, nbest, references)
    bar = Bar(verbose, restarts + 1, "start")
    scores = [nbest.scores(x) for x in scorers]
    scales = np.array([_scale(x) for x in scores])
    # Others never come first, whatever their scores.
    firsts = [x == x.min() for x in nbest.lacking()]
    search = LineSearch(
        [
            np.stack(some, axis=-1)[first] / scales
            for first, *some in zip(firsts, *scores, strict=True)
        ],
        [x[first] for x, first in zip(counts, firsts, strict=True)],
        utility.of_corpus,
    )
    random = np.random.default_rng(int(seed))
    best = np.eye(len(scorers))[0]  # own scores alone
    value = search.value(best)
    for number in range(restarts + 1):
        start = best if not number else random.normal(size=len(scorers))
        weights = _climb(search, start, random)
        found = search.value(weights)
        if found > value + _GAIN:
            best, value = weights, found
        bar.add(1, **{_name(metric): value})
    weights = best / scales
    # The order depends only on the ratios of the weights.
    largest = np.abs(weights).max()
    weights /= weights[0] if weights[0] > 1e-6 * largest else largest
    return list(zip(scorers, weights.tolist(), strict=True))


def _climb(search, weights, random):
    """Follows lines while the metric improves; returns the weights."""
    value = search.value(weights)
    while True:
        axes = np.eye(len(weights))
        lines = [*axes, *random.normal(size=axes.shape)]
        found = [search.best_on(weights, line) for line in lines]
        best = max(found, key=search.value)
        if search.value(best) <= value + _GAIN:
            return weights
        weights = best / (np.linalg.norm(best) or 1.0)
        value = search.value(weights)


def _counts(utility, nbest, references):
    """Returns the counts of the hypotheses of each source."""
    lists = listed("references", references, len(nbest.lists))
    if not lists:
        raise ValueError(
            "`tune` needs results, with a reference for each. Received: none. "
            "Pass the `Translations` of at least one source."
        )
    found = []
    for i, (hypotheses, right) in enumerate(
        zip(nbest.lists, lists, strict=True)
    ):
        several = [right] if isinstance(right, str) else right
        several = list(several) if hasattr(several, "__iter__") else [several]
        if not several or not all(isinstance(x, str) for x in several):
            raise ValueError(
                "Each result needs at least one reference, a string or a "
                f"list of strings. Received: references[{i}]={right!r:.80}. "
                "Leave out results without a reference."
            )
        counts = utility.counts([x.text for x in hypotheses], several)
        found.append(np.asarray(counts, float))
    return found


def _scale(scores):
    """Returns the standard deviation of scores within sources, or 1."""
    squares = np.concatenate([np.square(x - x.mean()) for x in scores])
    scale = np.sqrt(squares.mean())
    return scale if scale > 0 else 1.0


def _name(metric):
    if isinstance(metric, str):
        return metric
    name = getattr(metric, "__name__", None)
    return type(metric).__name__ if name is None else f"mean {name}"
