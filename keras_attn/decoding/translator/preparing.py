"""Prepares what a `Translator` is given: models, texts and a search."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from keras_attn.caller import without_warnings_of_keras
from keras_attn.decoding import BeamSearch
from keras_attn.decoding import Search
from keras_attn.decoding.translator import model_trial
from keras_attn.decoding.translator.cutting import Cutting
from keras_attn.decoding.translator.cutting import cut_of
from keras_attn.incremental.refuse import WholeFails
from keras_attn.models.adopted import Options
from keras_attn.models.adopted import standard_model
from keras_attn.models.adopted import with_logarithm
from keras_attn.text.text import Text


class Prepared(NamedTuple):
    """Models in standard form, cut into steps, with what fits them."""

    models: tuple
    cut: Any  # `Incremental` or `Ensemble`, compared with the models
    source_text: Text | Mapping[str, Text] | None
    target_text: Text
    search: Search
    sources: Any
    examples: model_trial.Examples


def prepare(
    models: tuple,
    source_text: Text | Mapping[str, Text] | None,
    target_text: Text,
    search: Search | None,
    options: Options,
    recompute: bool,
) -> Prepared:
    """Brings models into standard form, and cuts them.

    Args:
        models: One model, or those of an ensemble.
        source_text, target_text: As for a `Translator`.
        search: The search; `None` for a beam search as long as the models
            allow.
        options: `Options` of the models.
        recompute: As for a `Translator`.
    """
    with without_warnings_of_keras():
        trial = _Trial(models, source_text, target_text, options, recompute)
        return _prepared(trial, search)


def _prepared(trial, search):
    if search is not None:
        return trial.run(search)
    search = BeamSearch()
    if trial.most_steps is not None:
        length = min(search.max_length, trial.most_steps)
        search = dataclasses.replace(search, max_length=length)
    try:
        return trial.run(search)
    except WholeFails:
        length = trial.longest_that_works(search)
        if length is None:
            raise
    return trial.run(dataclasses.replace(search, max_length=length))


class _Trial:
    """Models in standard form, which are tried with a search."""

    def __init__(self, models, source_text, target_text, options, recompute):
        self._recompute = recompute
        self._options = options
        self._given = models
        self._texts = source_text, target_text
        self._standards = [self._standard(x) for x in models]
        self._models = [x.model for x in self._standards]
        self._limit(self._standards)
        self._cuttings = [self._cutting(x) for x in self._models]

    @property
    def most_steps(self) -> int | None:
        """The longest output that models of one length write, or `None`."""
        if self._longest is None:
            return None
        return self._longest - len(self.target_text.special.start) + 1

    def run(self, search) -> Prepared:
        """Cuts the models, for a search."""
        self._require_short(search)
        sources = model_trial.sources_of(self._models, self.source_text)
        model_trial.require_vocabulary(self._models, self.target_text)
        known = [x.longest for x in self._cuttings if x.longest is not None]
        examples = model_trial.Examples.make(
            self._models[0],
            sources,
            self.target_text,
            search,
            min(known, default=None),
        )
        for number in range(len(self._models)):
            self._fit(number, examples)
            model_trial.require_like_author(
                self._models[number], self._standards[number].ask, examples
            )
        cut = cut_of(
            [
                x.proven(*examples.sources, examples.target)
                for x in self._cuttings
            ]
        )
        return Prepared(
            tuple(self._models),
            cut,
            self.source_text,
            self.target_text,
            search,
            sources,
            examples,
        )

    def longest_that_works(self, search) -> int | None:
        """Returns the longest output whose target no model refuses."""
        sources = model_trial.sources_of(self._models, self.source_text)
        examples = model_trial.Examples.make(
            self._models[0], sources, self.target_text, search
        )
        works, fails = 1, examples.target.shape[1]
        while fails - works > 1:
            middle = (works + fails) // 2
            some = examples._replace(target=examples.target[:, :middle])
            if all(model_trial.runs(x, some) for x in self._models):
                works = middle
            else:
                fails = middle
        more = len(self.target_text.special.start) - 1
        return works - more if works > more + 1 else None

    def _standard(self, model, is_shorter=False):
        return standard_model(
            model, *self._texts, self._options, is_shorter=is_shorter
        )

    def _cutting(self, model):
        return Cutting(model, self._recompute)

    def _fit(self, number, examples):
        """Changes a model whose outputs are shorter, or probabilities."""
        model = self._models[number]
        if model_trial.is_shorter(model, examples):
            self._standards[number] = self._standard(self._given[number], True)
            model = self._standards[number].model
        if model_trial.returns_probabilities(model, examples):
            model = with_logarithm(model)
        if model is not self._models[number]:
            self._models[number] = model
            self._cuttings[number] = self._cutting(model)

    def _limit(self, standards):
        """Limits texts to the lengths that the models take."""
        lengths: dict[int, int] = {}
        for standard in standards:
            for place, length in standard.lengths.items():
                lengths[place] = min(length, lengths.get(place, length))
        inputs = self._models[0].inputs
        last = len(inputs) - 1
        self._longest = lengths.get(last)
        self.source_text, self.target_text = self._texts
        for place, length in lengths.items():
            if place == last:
                special = self.target_text.special
                most = length - len(special.start)
                self.target_text = _limited(self.target_text, most)
            elif isinstance(self.source_text, Mapping):
                name = inputs[place].name
                text = _limited_source(self.source_text[name], length)
                self.source_text = {**self.source_text, name: text}
            else:
                self.source_text = _limited_source(self.source_text, length)

    def _require_short(self, search):
        most = self.most_steps
        if most is not None and search.max_length > most:
            raise ValueError(
                f"The model takes targets of {self._longest} tokens at most, "
                f"so a search must be as short. Received: "
                f"max_length={search.max_length}. Pass a search with "
                f"`max_length={most}`."
            )


def _limited_source(text, length):
    special = text.special
    more = len(special.source_start) + len(special.ends_source)
    return _limited(text, length - more)


def _limited(text, length):
    """Returns a text that cuts, and reports, rows beyond a length."""
    if text.max_length <= length:
        return text
    other = copy.copy(text)
    other.max_length = max(1, length)
    return other
