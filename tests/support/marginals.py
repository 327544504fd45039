"""A MarginalDecoder of each kind."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attn import MarginalDecoder
from support.cuts import TARGETS
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import speak_up
from support.mechanisms import scramble

KINDS = {
    "order 0": {"order": 0},
    "order 0, monotonic": {"order": 0, "monotonic": True},
    "order 1": {"order": 1, "window": 2},
    "order 1, monotonic": {"order": 1, "window": 2, "monotonic": True},
}


each_kind = pytest.mark.parametrize("kind", KINDS)


VOCABULARY = 6


# A whole source, and one with padding before, within and after.
MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 0]], bool)


def layer(kind, cell=None, **options):
    """A layer with large random weights; it reads widths of 5 and 4."""
    made = MarginalDecoder(
        cell or layers.GRUCell(3),
        VOCABULARY,
        units=4,
        **KINDS[kind],
        **options,
    )
    made.build((2, 4, 5), (2, 5, 4), (2, 4))
    scramble(made)
    return made


def model_of(kind, cell=None, scores=False, **options):
    """A functional model of a GRU encoder and a `MarginalDecoder`."""
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory, state = layers.GRU(6, return_sequences=True, return_state=True)(
        memory
    )
    found = MarginalDecoder(
        cell or layers.GRUCell(6), TARGETS, **KINDS[kind], **options
    )(
        embedding,
        memory,
        target,
        initial_state=state,
        return_attention_scores=scores,
    )
    found = found[0] if scores else found
    return speak_up(keras.Model([source, target], found))
