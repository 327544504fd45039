"""`NBest`: the hypotheses of results, and their scores by scorers."""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn.decoding.translator import Scores
from keras_attn.decoding.translator import Translation
from keras_attn.decoding.translator import Translations
from keras_attn.decoding.translator import Translator
from keras_attn.reranking import rows

Scorer = Callable[[Any, list[Translation]], Any]


def own_score(sources: Any, hypotheses: list[Translation]) -> list[float]:
    """Returns the scores that the hypotheses already have.

    It is a scorer for `rerank` and `tune`: `(own_score, 0.5)` gives the
    scores of the results a weight of 0.5 instead of 1.

    Args:
        sources: Not used.
        hypotheses: List of `Translation`s.

    Returns:
        List of floats, one for each hypothesis.
    """
    return [x.score for x in hypotheses]


def all_of(translation: Translation) -> list[Translation]:
    """Returns a translation and its alternatives, best first."""
    return [translation, *translation.alternatives]


class NBest:
    """The hypotheses of each source, best first.

    Args:
        results: `Translations` with alternatives.
        sources: Their sources, or `None` if no scorer reads them.

    Attributes:
        lists: The hypotheses of each source.

    Raises:
        ValueError: If the results are not `Translation`s, or if the numbers
            of results and sources differ.
    """

    def __init__(self, results: Sequence[Translation], sources: Any = None):
        is_list = isinstance(results, Sequence) and not isinstance(results, str)
        if not is_list or not all(isinstance(x, Translation) for x in results):
            raise ValueError(
                "`results` must be `Translations`, as a `Translator` returns "
                f"them. Received: results={results!r:.200}"
            )
        self.lists = [all_of(x) for x in results]
        self._flat = [x for several in self.lists for x in several]
        self._sources = None
        if sources is None:
            return
        sources = rows.listed(sources)
        count = rows.count(sources) if hasattr(sources, "__len__") else None
        if isinstance(sources, (str, bytes)) or count != len(self.lists):
            raise ValueError(
                "`sources` must have a source for each of the results, in the "
                f"same order. Received: sources={sources!r:.200} "
                f"for {len(self.lists)} result(s). Pass the sources that were "
                "translated."
            )
        self._sources = rows.take(
            sources,
            [i for i, several in enumerate(self.lists) for _ in several],
        )

    def scores(self, scorer: Scorer) -> list[np.ndarray]:
        """Returns a scorer's scores for the hypotheses of each source."""
        if not self._flat:
            return []
        given: list = self._flat
        model = getattr(scorer, "__self__", None)
        if isinstance(model, Translator):
            if self._sources is None:
                raise ValueError(
                    "A `Translator` needs the sources to score hypotheses. "
                    "Received: sources=None. Pass `sources=`, those that were "
                    "translated."
                )
            given = _as_read_by(model, given)
        found = scorer(self._sources, given)
        found = found.scores if isinstance(found, Scores) else found
        return np.split(self._checked(scorer, found), self._ends()[:-1])

    def lacking(self) -> list[np.ndarray]:
        """Returns how many terms the hypotheses of each source lack."""
        return [
            np.array([len(x.missing) for x in several], int)
            for several in self.lists
        ]

    def sorted_by(self, values: list[np.ndarray]) -> Translations:
        """Returns results sorted by values, which become their scores.

        As in a search, those that lack fewer terms come first.
        """
        found = []
        for hypotheses, numbers, lacking in zip(
            self.lists, values, self.lacking(), strict=True
        ):
            # Hypotheses of equal values keep their order.
            order = np.lexsort((-numbers, lacking))
            listed = [
                dataclasses.replace(
                    hypotheses[i], score=float(numbers[i]), alternatives=[]
                )
                for i in order
            ]
            found.append(
                dataclasses.replace(listed[0], alternatives=listed[1:])
            )
        return Translations(found)

    def _ends(self):
        return np.cumsum([len(x) for x in self.lists])

    def _checked(self, scorer, found):
        """Returns a scorer's result as an array `(hypotheses,)`, or raises."""
        try:
            numbers = np.asarray(found, float)
        except (TypeError, ValueError):
            numbers = np.asarray(np.nan)
        wrong = numbers.shape != (len(self._flat),)
        if wrong or not np.isfinite(numbers).all():
            raise ValueError(
                "A scorer is a function of (sources, hypotheses), two lists of "
                "equal length, that returns a finite number for each "
                f"hypothesis. Received: {found!r:.200} from {scorer!r:.80} "
                f"for {len(self._flat)} hypotheses. To score with a "
                "`Translator`, pass `translator.score`."
            )
        return numbers


def _as_read_by(translator, hypotheses):
    """Returns hypotheses in a form that a translator can score.

    If its target text has all their tokens, the hypotheses are returned as
    they are, and their tokens are scored. Otherwise their texts are returned,
    which the translator splits itself.
    """
    known = set(translator.target_text.tokens)
    written = {
        token
        for x in hypotheses
        for i, token in enumerate(x.tokens)
        if i not in x.replaced
    }
    if written <= known:
        return hypotheses
    return [x.text for x in hypotheses]
