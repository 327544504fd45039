"""Translators whose batches are split by length."""

import numpy as np
import pytest
from keras import layers

import keras_attn
from support import toys as toy_models
from support.exports import as_bytes
from support.exports import option_inputs


class Halves(layers.Layer):
    """Keeps every second position."""

    supports_masking = True

    def call(self, x):
        return x[:, ::2]

    def compute_mask(self, x, mask=None):
        return mask[:, ::2]


def halved(memory):
    """An encoder with half as many positions as letters."""
    memory, states = toy_models.gru_encoder(memory)
    return Halves()(memory), states


def translator(search, encoder=None):
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    model = toy_models.model(decoder, encoder, seed=9)
    return keras_attn.Translator(
        model, toy_models.SOURCE, toy_models.TARGET, search
    )


LIMITS = {"max_length": 60, "max_per_source": (1, 2)}


KINDS = {
    "beam": lambda: translator(
        keras_attn.BeamSearch(3, num_hypotheses=2, **LIMITS)
    ),
    "fewer columns": lambda: translator(
        keras_attn.GreedySearch(**LIMITS), halved
    ),
    "sampling": lambda: translator(keras_attn.Sampling(**LIMITS)),
}


@pytest.fixture(scope="module")
def made_beam():
    return KINDS["beam"]()


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def made(kind, made_beam):
    return made_beam if kind == "beam" else KINDS[kind]()


def options(made, lines):
    """Inputs of the signature `options`, which differ in each row."""
    count = len(lines)
    asked = {
        "text": as_bytes(lines),
        "prefix": as_bytes(["B K " if n % 3 else "" for n in range(count)]),
    }
    for name, dtype in option_inputs(made.search).items():
        own = getattr(made.search, name)
        values = np.full(count, own, dtype.as_numpy_dtype)
        if name == "max_length":
            values[::2] = 9
        asked[name] = values
    if made.search.draws:
        asked["seed"] = np.arange(count, dtype="int32")
    return asked
