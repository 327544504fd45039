"""`NBest`: all hypotheses of results, and the scores that scorers give them."""

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

    It is a scorer as `rerank` and `tune` take them: `(own_score, 0.5)` gives
    the scores of the results another weight than 1.
    """
    return [x.score for x in hypotheses]


def all_of(translation: Translation) -> list[Translation]:
    """Returns a translation and its alternatives."""
    return [translation, *translation.alternatives]


class NBest:
    """The hypotheses of each source, best first.

    Args:
        results: `Translations` with alternatives.
        sources: Their sources, or `None` for scorers that need none.

    Attributes:
        lists: The hypotheses of each source.

    Raises:
        ValueError: If the results are of another kind, or if the numbers of
            results and sources differ.
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
                "`sources` must have a source for each of the results, those "
                f"that were translated. Received: sources={sources!r:.200} "
                f"for {len(self.lists)} result(s)."
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
                    "A `Translator` scores hypotheses beside their sources. "
                    "Received: sources=None. Pass `sources=`, those that were "
                    "translated."
                )
            given = _as_read_by(model, given)
        found = scorer(self._sources, given)
        found = found.scores if isinstance(found, Scores) else found
        return np.split(self._checked(scorer, found), self._ends()[:-1])

    def sorted_by(self, values: list[np.ndarray]) -> Translations:
        """Returns the results in the order of values, which become scores."""
        found = []
        for hypotheses, numbers in zip(self.lists, values, strict=True):
            # Equal ones keep their order.
            order = np.argsort(-numbers, kind="stable")
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
        """Returns finite numbers, one for each hypothesis."""
        try:
            numbers = np.asarray(found, float)
        except (TypeError, ValueError):
            numbers = np.asarray(np.nan)
        wrong = numbers.shape != (len(self._flat),)
        if wrong or not np.isfinite(numbers).all():
            raise ValueError(
                "A scorer is a function of (sources, hypotheses), two lists "
                "as long as each other, that returns a finite number for each "
                f"hypothesis. Received: {found!r:.200} from {scorer!r:.80} "
                f"for {len(self._flat)} hypotheses. A `Translator` scores by "
                "`translator.score`."
            )
        return numbers


def _as_read_by(translator, hypotheses):
    """Returns hypotheses as a translator can score them.

    Token by token, if its target text has all their tokens; otherwise as
    strings, which it splits itself.
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
