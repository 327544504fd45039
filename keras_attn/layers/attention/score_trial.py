"""Tries a score of a user's own, on queries and keys without values."""

import keras

from keras_attn.keras_internals import AutocastScope
from keras_attn.keras_internals import layers_within
from keras_attn.layers.attention import attention_arguments
from keras_attn.layers.scores import Score

# Distinct sizes reveal swapped axes.
_BATCH, _TARGET, _SOURCE = 2, 3, 5


def try_score(score: Score, query_shape: tuple, key_shape: tuple) -> None:
    """Raises `ValueError` if a score returns anything but a score per pair.

    In a call, shapes are often unknown. Here they are known, so a score whose
    axes are swapped or missing is found before it is broadcast. Scores that
    look at past alignments, or build layers in their calls, are checked in
    their calls alone.
    """
    if score.takes("history") or score.takes("position"):
        return
    if not all(x.built for x in layers_within(score)):
        return
    query, key = (
        keras.KerasTensor((_BATCH, length, shape[2]), score.compute_dtype)
        for shape, length in ((query_shape, _TARGET), (key_shape, _SOURCE))
    )
    try:
        scores, keys = _Scores(score).symbolic_call(query, key)
    except Exception:  # a call of the attention raises it again, with a stack
        return
    # A score may have weights for as many positions as its sources have.
    if tuple(scores.shape) != (_BATCH, _TARGET, key_shape[1]):
        attention_arguments.check_scores(score, scores, query, keys)


class _Scores(keras.Operation):
    """Returns the scores of queries and keys, and the projected keys."""

    def __init__(self, score):
        super().__init__()
        self._score = score

    def call(self, query, key):
        with AutocastScope(self._score.compute_dtype):
            keys = self._score.project(key)
        return self._score(query, keys), keys
