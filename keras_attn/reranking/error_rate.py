"""`ErrorRate`: the edits per unit of the reference, as a utility."""

import unicodedata

import numpy as np

from keras_attn.reranking.utility import Utility
from keras_attn.training.metrics import edit_distance


class ErrorRate(Utility):
    """The negative error rate of words, characters or whole texts.

    Args:
        split: Function that splits a text into the units to count edits of,
            such as words, or `None` to compare whole texts.

    Raises:
        ImportError: If RapidFuzz is not installed.
    """

    def __init__(self, split=None):
        self._split = split or (lambda text: [text])
        edit_distance("a", "b")  # fails early if RapidFuzz is missing

    def matrix(self, hypotheses, references):
        edits, lengths = self._edits(hypotheses, references)
        return -edits / np.maximum(lengths, 1)

    def counts(self, hypotheses, references):
        """Returns minus the edits to the nearest reference, and its length."""
        edits, lengths = self._edits(hypotheses, references)
        nearest = edits.argmin(axis=1)
        edits = edits[np.arange(len(nearest)), nearest]
        return np.stack([-edits, lengths[nearest]], axis=-1)

    def _edits(self, hypotheses, references):
        said, right = (
            [self._split(unicodedata.normalize("NFC", x)) for x in texts]
            for texts in (hypotheses, references)
        )
        edits = [[edit_distance(x, y) for y in right] for x in said]
        lengths = np.array([len(x) for x in right], float)
        return np.reshape(edits, (len(said), len(right))).astype(float), lengths
