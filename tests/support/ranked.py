"""Results without a model, and the plain arithmetic of reranking."""

from types import SimpleNamespace

import numpy as np

import keras_attn
from keras_attn import Translation
from keras_attn import Translations
from keras_attn.decoding.translator.sources import LineSource


def translation(text, score=0.0, alternatives=()):
    """Returns a `Translation` whose tokens are its words."""
    tokens = [*text.split(), "</s>"]
    return Translation(
        text=text,
        score=score,
        source_tokens=["x", "</s>"],
        tokens=tokens,
        alignment=np.zeros((len(tokens), 2), "float32"),
        finished=True,
        alternatives=list(alternatives),
    )


def results(*lists):
    """Returns `Translations` of lists of pairs of a text and its score."""
    rows = [[translation(*pair) for pair in pairs] for pairs in lists]
    return Translations(
        [
            translation(one.text, one.score, alternatives)
            for one, *alternatives in rows
        ]
    )


class Told(keras_attn.Translator):
    """A translator that returns what it is told, without a model.

    Args:
        lists: Dictionary from sources to lists of pairs of a text and its
            score.
        search: The search that it seems to have.

    Attributes:
        asked: The sources and the request of each call.
    """

    def __init__(self, lists, search):
        text = keras_attn.Text("ab", split="characters")
        self.pipeline = SimpleNamespace(sources=LineSource(text))
        self.search, self.models, self.glossary = search, (), None
        self.lists, self.asked = lists, []

    def __call__(self, sources, batch_size=64, **request):
        self.asked.append((list(sources), request))
        return results(*(self.lists[x] for x in sources))


def texts_of(row):
    """Returns the texts of a translation and of its alternatives."""
    return [row.text, *(x.text for x in row.alternatives)]


def expected_utilities(candidates, samples, metric):
    """Returns the mean similarity to all samples, one by one."""
    return [
        sum(metric(one, sample) for sample in samples) / len(samples)
        for one in candidates
    ]
