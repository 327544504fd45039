"""Scores that read past alignments, with inputs for them."""

import numpy as np
import pytest

import keras_attn
from keras_attn.layers.scores import AdditiveScore
from keras_attn.layers.scores import ConcatScore
from keras_attn.layers.scores import CosineScore
from keras_attn.layers.scores import CoverageScore
from keras_attn.layers.scores import LocationScore
from keras_attn.layers.scores import LocationSensitiveScore
from keras_attn.layers.scores import ScaledDotScore


def array(x):
    return np.array(x, "float32")


def history(previous, total=None, carried=()):
    """After some steps; the alignments are those of one row and query."""
    total = previous if total is None else total
    step = np.ones((1, 1), "int32")
    return keras_attn.layers.attention.History(
        array([[previous]]), array([[total]]), step, carried
    )


LONGER = (
    "weights for 3 source positions, so a source must not be longer. "
    "Received: a longer source{}. Train with a larger `max_source`"
)


SCORES = {
    "learned scale": lambda **k: ScaledDotScore(learned_scale=True, **k),
    "cosine": lambda **k: CosineScore(2.0, **k),
    "normed additive": lambda **k: AdditiveScore(
        5, use_bias=True, normalize=True, **k
    ),
    "concat": lambda **k: ConcatScore(5, use_bias=True, **k),
    "location": lambda **k: LocationScore(9, **k),
    "location-sensitive": lambda **k: LocationSensitiveScore(
        5, filters=3, kernel_size=3, **k
    ),
    "last alignments": lambda **k: LocationSensitiveScore(
        5, 2, 5, cumulative=False, use_bias=False, normalize=True, **k
    ),
    "count": lambda **k: CoverageScore(5, use_bias=True, **k),
    "fertility": lambda **k: CoverageScore(
        5, "fertility", max_fertility=3.5, **k
    ),
    "learned": lambda **k: CoverageScore(
        5, "learned", coverage_dim=3, normalize=True, **k
    ),
}


each_score = pytest.mark.parametrize("name", SCORES)


def attention_and_inputs(name, dtype=None):
    """With random weights, and a source of which a part is padding."""
    attention = keras_attn.Attention(SCORES[name](dtype=dtype), dtype=dtype)
    attention.build((None, None, 4), (None, None, 4))
    random = np.random.default_rng(1)
    attention.set_weights(
        [random.normal(0, 0.7, w.shape) for w in attention.get_weights()]
    )
    query = array(random.normal(size=(2, 3, 4)))
    value = array(random.normal(size=(2, 5, 4)))
    mask = np.array([[True] * 5, [True, True, True, False, False]])
    return attention, query, value, mask
