"""Helpers of the tests of `check()`: asserts, small models and data."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

import keras_attn
from support.cuts import TARGETS
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import with_path

# Keras warns if a layer drops a mask; here that is often intended.
DROPPED_MASKS = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)

NAMED = {"name": "culprit"}
WHOLE = {"return_sequences": True}


def look(model, data=None):
    """Returns the findings that `check` warns of, and its error or ""."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = keras_attn.check(model, data)
        except ValueError as error:
            return [str(x.message) for x in caught], str(error)
    said = [str(x.message) for x in caught]
    assert said == [f"{x.kind}: {x.text}" for x in found]
    return found, ""


def assert_good(model, data=None):
    assert look(model, data) == ([], "")


def assert_wrong(model, kind, *parts, data=None):
    _, error = look(model, data)
    assert f"- {kind}: " in error, error
    for part in parts:
        assert part in error, error


def assert_doubtful(model, kind, layer, *parts, data=None):
    found, error = look(model, data)
    assert not error, error
    (finding,) = found
    assert finding[:2] == (kind, layer), finding
    for part in parts:
        assert part in finding.text, finding.text


def attend(x, memory, **options):
    """Attends for all positions at once, so that checks take less time."""
    return keras_attn.ScaledDotAttention(**options)(x, memory)


def with_encoder(encode, ids=True):
    """A model whose memory is `encode(embedded source)`."""
    source, target = inputs()
    if not ids:
        source = keras.Input((None, 6), name="source")
    memory, x = (
        embedded(source, target)
        if ids
        else (source, embedded(target, target)[1])
    )
    hidden = attend(x, encode(memory))
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def on_target(change):
    """A model with something between the target's embedding and a decoder."""
    return with_path(lambda x, memory: attend(change(x), memory))


def in_a_nested_model(layer):
    def encode(x):
        given = keras.Input((None, 6))
        inner = keras.Sequential([layers.Dense(6), layer])
        return keras.Model(given, inner(given))(x)

    return encode


class Ahead(layers.Layer):
    """Looks some tokens ahead."""

    def __init__(self, by, **kwargs):
        super().__init__(**kwargs)
        self.by = by

    def call(self, x):
        return x + ops.concatenate(
            [x[:, self.by :], ops.zeros_like(x[:, : self.by])], axis=1
        )


IDS = np.array(
    [[1, 4, 5, 8, 6, 2], [1, 7, 3, 4, 2, 0], [1, 3, 6, 2, 0, 0]], "int32"
)
SOURCE_IDS = np.array([[3, 4, 5, 6, 2], [5, 2, 0, 0, 0], [4, 2, 0, 0, 0]])


def arrays(source=SOURCE_IDS, target_in=None, target_out=None):
    target_in = IDS[:, :-1] if target_in is None else target_in
    target_out = IDS[:, 1:] if target_out is None else target_out
    return (source, target_in), target_out


def changed(array, where, value):
    array = np.array(array)
    array[where] = value
    return array
