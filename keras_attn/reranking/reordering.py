"""`rerank`: sorts hypotheses by a weighted sum of scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn.decoding.translator import Translations
from keras_attn.reranking.nbest import NBest
from keras_attn.reranking.nbest import Scorer
from keras_attn.reranking.nbest import own_score


def rerank(
    results: Translations,
    by: Sequence[tuple[Scorer, float]],
    sources: Any = None,
) -> Translations:
    """Sorts the hypotheses of each source by a weighted sum of scores.

    The sum is `own score + weight * score + ...`, and the greatest comes first.
    Hypotheses with equal sums keep their order. Those that lack fewer terms
    come before others, as in a search. Those that were cut are sorted by their
    sum, too.

    A scorer is `translator.score` of another model, or a function of (sources,
    hypotheses). It is called once, with a list of all hypotheses, as
    `Translation`s, and a list of as many sources, each repeated for its
    hypotheses. It returns a finite number for each hypothesis, greater for
    better ones.

    If a model's target text has all tokens of the hypotheses, the model scores
    these tokens. Otherwise it scores the texts, which it splits itself.

    Args:
        results: `Translations` with alternatives, such as those of a
            `BeamSearch` with several `num_hypotheses`, or of `MinimumRisk`.
        by: List of pairs of a scorer and its weight, as returned by `tune`.
            The own scores of the results have the weight 1, unless the list
            has a pair with `keras_attn.reranking.own_score`.
        sources: The sources of the results, as they were translated. They may
            be left out if no scorer reads them.

    Returns:
        `Translations` with the same hypotheses. The `score` of each is its
        weighted sum.

    Raises:
        ValueError: If `by` is not such a list, if the numbers of results and
            sources differ, or if a scorer returns anything but a finite number
            for each hypothesis.

    Reference:
        - [Och et al., 2004](https://aclanthology.org/N04-1021/)

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
        >>> sources = ["abba", "b"]
        >>> results = copy(sources)
        >>> longer = keras_attn.rerank(results, by=[(length, 0.5)])
        >>> again = keras_attn.rerank(
        ...     results, by=[(copy.score, 0.5), (length, 0.2)], sources=sources)
        >>> len(longer), len(again[0].alternatives)
        (2, 3)
    """
    weights = _weights(by)
    nbest = NBest(results, sources)
    values = [np.zeros(len(x)) for x in nbest.lists]
    for scorer, weight in weights:
        if weight:
            scores = nbest.scores(scorer)
            for value, some in zip(values, scores, strict=True):
                value += weight * some
    return nbest.sorted_by(values)


def _weights(by):
    """Returns pairs of scorers and weights, including `own_score`."""
    advice = (
        "`by` must be a list of pairs of a scorer and its weight, such as "
        f"`[(other.score, 0.5)]`. Received: by={by!r:.200}"
    )
    if not isinstance(by, Sequence) or isinstance(by, str):
        raise ValueError(advice)
    for pair in by:
        is_pair = isinstance(pair, Sequence) and len(pair) == 2
        if not is_pair or not callable(pair[0]) or not _is_finite(pair[1]):
            raise ValueError(advice)
    pairs = [(scorer, float(weight)) for scorer, weight in by]
    if not any(scorer is own_score for scorer, _ in pairs):
        pairs.insert(0, (own_score, 1.0))
    return pairs


def _is_finite(weight):
    is_number = isinstance(weight, (int, float, np.integer, np.floating))
    return is_number and bool(np.isfinite(weight))
