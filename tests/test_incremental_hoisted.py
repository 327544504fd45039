"""Products taken before a loop: the same numbers, by fewer operations.

These tests run on every backend that Keras runs on.
"""

import numpy as np
import pytest
from cuts import SOURCE
from cuts import SOURCES
from cuts import TARGET
from cuts import TARGETS
from cuts import assert_cut_equals_whole
from cuts import decoder
from cuts import embedded
from cuts import inputs
from cuts import run_by_steps
from cuts import speak_up
from cuts import with_path
from keras import Model
from keras import layers
from keras import ops

import keras_attn
from keras_attn import Incremental
from keras_attn import on_device

# Keras warns where a layer lets a mask go.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)

CELLS = {
    "gru": lambda: layers.GRUCell(6),
    "ours": lambda: keras_attn.GRUCell(6),
    "lstm": lambda: layers.LSTMCell(6, activation="relu"),
    "simple": lambda: layers.SimpleRNNCell(6, use_bias=False),
    "stack": lambda: [layers.LSTMCell(4), layers.GRUCell(6)],
}
LEFT_ALONE = {
    "classic": lambda: layers.GRUCell(6, reset_after=False),
    "without bias": lambda: layers.GRUCell(6, use_bias=False),
    "residual": lambda: keras_attn.ResidualCell(layers.GRUCell(6)),
    "normalized": lambda: keras_attn.LayerNormGRUCell(6),
}
WIRINGS = {
    "pre": {},
    "feeding": {"order": "post"},
    "post": {"order": "post", "input_feeding": False},
    "input": {"order": "post", "query": ("state", "input")},
}
# What is not only emitted, or not by this layer, stays in the loop.
CONTEXTS_NEEDED = {
    "concatenated": {"order": "post", "emit": "concatenated"},
    "asked": {"order": "post", "query": ("state", "context")},
    "own past": {
        "order": "post",
        "self_attention": keras_attn.ScaledDotAttention(),
    },
    "heads": {
        "order": "post",
        "attention": keras_attn.Attention(keras_attn.DotScore(), heads=2),
    },
    "gated": {
        "order": "post",
        "attention": keras_attn.Attention(keras_attn.DotScore(), gate=True),
    },
    "two": {
        "order": "post",
        "attention": [keras_attn.BahdanauAttention(3) for _ in range(2)],
    },
    "narrow": {"order": "post", "cell": layers.GRUCell(8)},
}


def model_of(**options):
    attention = options.get("attention")

    def build(x, memory):
        several = isinstance(attention, list)
        memory = [memory] * len(attention) if several else memory
        return decoder(**options)(x, memory)

    return speak_up(with_path(build))


def hoisted_in(model):
    """Of each step of the path what was taken out of the loop, if any."""
    cut = Incremental(model)
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    return [
        one.hoisted
        for one in cut.hoist(encoded).prepared
        if hasattr(one, "hoisted") and one.hoisted
    ]


@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_decoder_decodes_the_same_with_fewer_products(cell, wiring):
    model = model_of(cell=CELLS[cell](), **WIRINGS[wiring])
    assert len(hoisted_in(model)) == 1
    assert_cut_equals_whole(model)


@pytest.mark.parametrize("cell", LEFT_ALONE)
def test_cells_that_compute_otherwise_run_as_they_are(cell):
    model = model_of(cell=LEFT_ALONE[cell]())
    assert not hoisted_in(model)
    assert_cut_equals_whole(model)


@pytest.mark.parametrize("name", CONTEXTS_NEEDED)
def test_a_context_that_is_not_only_emitted_stays_whole(name):
    options = {"cell": LEFT_ALONE["classic"](), **CONTEXTS_NEEDED[name]}
    model = model_of(**options)
    assert bool(hoisted_in(model)) == (name == "narrow")  # for its cell
    assert_cut_equals_whole(model)


@pytest.mark.parametrize(
    "cell", [layers.LSTMCell(6), [layers.GRUCell(6), layers.SimpleRNNCell(5)]]
)
def test_recurrent_layers_look_their_inputs_up(cell):
    model = speak_up(
        with_path(
            lambda x, memory: keras_attn.BahdanauAttention(4)(
                layers.RNN(cell, return_sequences=True)(x), memory
            )
        )
    )
    assert len(hoisted_in(model)) == 1
    assert_cut_equals_whole(model)


def test_all_that_depends_on_a_token_alone_is_in_the_table():
    def build(x, memory):
        y = layers.LayerNormalization()(layers.Dense(6, "relu")(x))
        x = layers.Dropout(0.5)(layers.Add()([x, y]))
        return decoder()(x, memory)

    model = speak_up(with_path(build))
    assert hoisted_in(model)
    assert_cut_equals_whole(model)


@pytest.mark.parametrize("name", ["of source", "of position", "of state"])
def test_inputs_that_depend_on_more_are_not_looked_up(name):
    def build(x, memory):
        if name == "of source":
            speaker = layers.GlobalAveragePooling1D()(memory)
            x = layers.Add()([x, layers.Reshape((1, 6))(speaker)])
        elif name == "of position":
            x = keras_attn.PositionEmbedding(9)(x)
        else:
            cell = LEFT_ALONE["classic"]()
            x = layers.RNN(cell, return_sequences=True)(x)
        return decoder()(x, memory)

    model = speak_up(with_path(build))
    assert not hoisted_in(model)
    assert_cut_equals_whole(model)


def test_no_table_is_made_of_a_large_vocabulary():
    def model(size):
        source, target = inputs()
        memory = layers.Embedding(SOURCES, 6, mask_zero=True)(source)
        x = layers.Embedding(size, 6)(target)
        logits = layers.Dense(TARGETS)(decoder()(x, memory))
        return Model([source, target], logits)

    assert hoisted_in(model(256))
    assert not hoisted_in(model(257))


def test_a_model_within_the_model_is_hoisted_too():
    source, target = inputs()
    memory, x = embedded(source, target)
    ids = layers.Input((None,), dtype="int32")
    read = layers.Input((None, 6))
    hidden = decoder()(layers.Embedding(TARGETS, 6)(ids), read)
    inner = Model([ids, read], hidden)
    hidden = layers.Add()([inner([target, memory]), x])
    model = Model([source, target], layers.Dense(TARGETS)(hidden))
    assert_cut_equals_whole(speak_up(model))
    cut = Incremental(model)
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    (nested,) = [
        one
        for stepper, one in zip(
            cut._path.steppers, cut.hoist(encoded).prepared, strict=True
        )
        if stepper.operation is inner
    ]
    assert any(getattr(one, "hoisted", ()) for one in nested)


@pytest.mark.parametrize("part", ["decoder", "cell", "attention"])
def test_what_is_placed_on_a_device_stays_there(part):
    """A product taken out would be computed elsewhere."""
    cell = layers.GRUCell(6)
    attention = keras_attn.BahdanauAttention(5)
    layer = decoder(cell, attention, order="post")
    parts = {"decoder": layer, "cell": cell, "attention": attention}
    on_device(parts[part], "cpu:0")
    model = speak_up(with_path(lambda x, memory: layer(x, memory)))
    assert bool(hoisted_in(model)) == (part != "decoder")  # of the other
    assert_cut_equals_whole(model)


def test_half_precision_is_kept():
    half = {"dtype": "mixed_float16"}
    model = model_of(
        cell=layers.GRUCell(6, **half),
        attention=keras_attn.BahdanauAttention(5, **half),
        order="post",
        **half,
    )
    assert hoisted_in(model)
    arrays = [SOURCE, TARGET]
    cut = Incremental(model)
    expected, _ = run_by_steps(cut, arrays)
    logits, _ = run_by_steps(cut, arrays, hoist=True)
    np.testing.assert_allclose(logits, expected, atol=5e-2)
