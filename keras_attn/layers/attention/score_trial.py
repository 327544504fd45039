"""Tries a score on symbolic queries and keys when its attention is built."""

import keras

from keras_attn.keras_internals import AutocastScope
from keras_attn.keras_internals import layers_within
from keras_attn.layers.attention import attention_arguments
from keras_attn.layers.scores import Score

# Distinct sizes reveal swapped axes.
_BATCH, _TARGET, _SOURCE = 2, 3, 5


def try_score(score: Score, query_shape: tuple, key_shape: tuple) -> None:
    """Raises `ValueError` if a score does not return one score per pair.

    In a call, shapes are often unknown. Here they are known, so swapped or
    missing axes are found before they are broadcast. Scores that look at past
    alignments or positions, or build layers in their `call`, are checked only
    when they are called.
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
    except Exception:  # the attention's call raises it again, more clearly
        return
    # A score may have weights for the source length that it was built with.
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
