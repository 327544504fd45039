"""Prepares the arguments of a `Translator`: models, texts and a search."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from keras_attn.caller import without_warnings_of_keras
from keras_attn.decoding import BeamSearch
from keras_attn.decoding import Search
from keras_attn.decoding.translator import lengths
from keras_attn.decoding.translator import model_trial
from keras_attn.decoding.translator import requirements
from keras_attn.decoding.translator.cutting import Cutting
from keras_attn.decoding.translator.cutting import cut_of
from keras_attn.graph.probabilities import are_probabilities
from keras_attn.incremental.refuse import WholeFails
from keras_attn.models.adopted import Options
from keras_attn.models.adopted import standard_model
from keras_attn.models.adopted import with_logarithm
from keras_attn.text.text import Text


class Prepared(NamedTuple):
    """Models in standard form, cut into steps, with texts and a search."""

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
    """Converts models to standard form, and cuts them.

    Args:
        models: One model, or those of an ensemble.
        source_text, target_text: As for a `Translator`.
        search: The search; `None` for a beam search with outputs as long as the
            models allow.
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
        length = trial.most_steps_that_work(search)
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
        self.source_text, self.target_text = self._texts
        self._limit_to_one_length()
        self._cuttings = [self._cutting(x) for x in self._models]

    @property
    def most_steps(self) -> int | None:
        """The longest output if the target length is fixed, or `None`."""
        if self._only_length is None:
            return None
        return self._only_length - len(self.target_text.special.start) + 1

    def run(self, search) -> Prepared:
        """Cuts the models for a search."""
        self._require_short(search)
        sources = requirements.sources_of(self._models, self.source_text)
        requirements.require_vocabulary(self._models, self.target_text)
        requirements.require_source_vocabulary(self._models, sources.texts)
        examples = self._examples(sources, search)
        limits = lengths.source_limits(self._models, examples, sources.texts)
        if limits:
            self._limit_sources(limits)
            sources = requirements.sources_of(self._models, self.source_text)
            examples = self._examples(sources, search)
        for number in range(len(self._models)):
            self._fit(number, examples)
            model_trial.require_like_author(
                self._models[number], self._standards[number].ask, examples
            )
        cut = cut_of(
            [
                x.proven(
                    *examples.sources,
                    examples.target,
                    padded=(*examples.padded(sources.texts), examples.target),
                )
                for x in self._cuttings
            ]
        )
        self._limit_target(
            cut.longest
            or lengths.target_limit(self._models, examples, self.target_text)
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

    def _examples(self, sources, search):
        known = [x.longest for x in self._cuttings if x.longest is not None]
        return model_trial.Examples.make(
            self._models,
            sources,
            self.target_text,
            search,
            min(known, default=None),
        )

    def most_steps_that_work(self, search) -> int | None:
        """Returns the longest output that all models can run, or `None`."""
        sources = requirements.sources_of(self._models, self.source_text)
        examples = model_trial.Examples.make(
            self._models, sources, self.target_text, search
        )

        def runs(length):
            some = examples._replace(target=examples.target[:, :length])
            return all(model_trial.runs(x, some) for x in self._models)

        works = lengths.longest_that_runs(1, examples.target.shape[1], runs)
        more = len(self.target_text.special.start) - 1
        return works - more if works > more + 1 else None

    def _standard(self, model, is_shorter=False):
        return standard_model(
            model, *self._texts, self._options, is_shorter=is_shorter
        )

    def _cutting(self, model):
        return Cutting(model, self._recompute)

    def _fit(self, number, examples):
        """Adapts a model whose output is one shorter, or is probabilities."""
        model = self._models[number]
        output = model_trial.output_of(model, examples)
        if model_trial.is_shorter(model, examples, output):
            self._standards[number] = self._standard(self._given[number], True)
            model = self._standards[number].model
        if output is not None and are_probabilities(output):
            model = with_logarithm(model)
        if model is not self._models[number]:
            self._models[number] = model
            self._cuttings[number] = self._cutting(model)

    def _limit_to_one_length(self):
        """Limits texts to the lengths of inputs with a fixed length."""
        only: dict[int, int] = {}
        for standard in self._standards:
            for place, length in standard.lengths.items():
                only[place] = min(length, only.get(place, length))
        self._only_length = only.pop(len(self._models[0].inputs) - 1, None)
        self._limit_target(self._only_length)
        self._limit_sources(only)

    def _limit_sources(self, limits):
        inputs = self._models[0].inputs
        for place, length in limits.items():
            self.source_text = lengths.limit_source(
                self.source_text, inputs[place].name, length
            )

    def _limit_target(self, length):
        if length is not None:
            self.target_text = lengths.limit_target(self.target_text, length)

    def _require_short(self, search):
        most = self.most_steps
        if most is not None and search.max_length > most:
            raise ValueError(
                f"The model takes targets of {self._only_length} tokens at "
                "most, so the outputs of a search must be as short. Received: "
                f"max_length={search.max_length}. Pass a search with "
                f"`max_length={most}`."
            )
