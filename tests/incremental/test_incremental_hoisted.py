"""Hoisted products: the same numbers, by fewer operations.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import Model
from keras import layers
from keras import ops
from support.cuts import SOURCE
from support.cuts import SOURCES
from support.cuts import TARGET
from support.cuts import TARGETS
from support.cuts import assert_cut_equals_whole
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import run_by_steps
from support.cuts import speak_up
from support.cuts import with_path
from support.mechanisms import in_turn

import keras_attn
from keras_attn import Incremental
from keras_attn import on_device

# Keras warns if a layer drops a mask.
pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings(
        "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
    ),
]

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
# Contexts that are not only emitted, or not by this layer, are not hoisted.
CONTEXTS_NEEDED = {
    "concatenated": {"order": "post", "emit": "concatenated"},
    "asked": {"order": "post", "query": ("state", "context")},
    "own past": {
        "order": "post",
        "self_attention": keras_attn.ScaledDotAttention(),
    },
    "heads": {
        "order": "post",
        "attention": keras_attn.Attention(keras_attn.DotScore(), num_heads=2),
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
    """Returns the path's steppers after hoisting."""
    cut = Incremental(model)
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    return changed(cut, cut.hoist(encoded)[0])


def changed(cut, hoisted):
    """Returns the steppers that hoisting replaced."""
    pairs = zip(cut._path.steppers, hoisted._path.steppers, strict=True)
    return [new for old, new in pairs if new is not old]


@pytest.mark.sample_cases(1)
@in_turn(every=2, cell=CELLS, wiring=WIRINGS)
def test_a_decoder_decodes_the_same_with_fewer_products(cell, wiring):
    model = model_of(cell=CELLS[cell](), **WIRINGS[wiring])
    assert len(hoisted_in(model)) == 1
    assert_cut_equals_whole(model)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("cell", LEFT_ALONE)
def test_cells_that_compute_otherwise_run_as_they_are(cell):
    model = model_of(cell=LEFT_ALONE[cell]())
    assert not hoisted_in(model)
    assert_cut_equals_whole(model)


@pytest.mark.sample_cases(3)
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


@pytest.mark.sample_cases(1)
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


@pytest.mark.parametrize("nested", [False, True])
def test_ids_may_be_floats(nested):
    """Ids may be floats, as those of a `keras.Input` without a dtype."""
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,))
    memory = layers.Embedding(SOURCES, 6, mask_zero=True)(source)
    if nested:
        ids, read = keras.Input((None,)), keras.Input((None, 6))
        hidden = decoder()(layers.Embedding(TARGETS, 6)(ids), read)
        hidden = Model([ids, read], hidden)([target, memory])
    else:
        hidden = decoder()(layers.Embedding(TARGETS, 6)(target), memory)
    model = Model([source, target], layers.Dense(TARGETS)(hidden))
    assert_cut_equals_whole(speak_up(model))


def test_several_embeddings_of_the_ids_are_looked_up():
    source, target = inputs()
    memory, x = embedded(source, target)
    other = layers.Embedding(TARGETS + 3, 6)(target)
    first = decoder()(layers.Add()([x, other]), memory)
    second = decoder()(layers.Embedding(TARGETS, 4)(target), memory)
    hidden = layers.Concatenate()([first, second])
    model = Model([source, target], layers.Dense(TARGETS)(hidden))
    assert len(hoisted_in(model)) == 2
    assert_cut_equals_whole(speak_up(model))


@keras.saving.register_keras_serializable("tests")
class HashedEmbedding(layers.Embedding):
    def call(self, ids):
        return super().call(ids % self.input_dim)


class LoudDecoder(keras_attn.AttentionDecoder):
    def step(self, inputs, state, source):
        outputs, alignments, state = super().step(inputs, state, source)
        return outputs + 1.0, alignments, state


class LoudAttention(keras_attn.BahdanauAttention):
    def attend_step(self, *args, **kwargs):
        attended, history = super().attend_step(*args, **kwargs)
        context = attended.context * 2.0
        return attended._replace(context=context), history


def test_ids_that_a_subclass_understands_are_left_to_it():
    source, target = inputs()
    memory, _ = embedded(source, target)
    hidden = decoder()(HashedEmbedding(4, 6)(target), memory)
    model = Model([source, target], layers.Dense(TARGETS)(hidden))
    assert not hoisted_in(model)
    assert_cut_equals_whole(speak_up(model))


@pytest.mark.parametrize("name", ["step", "attend_step"])
def test_what_a_subclass_does_in_a_step_is_done(name):
    attention = keras_attn.BahdanauAttention(5)
    cell = LEFT_ALONE["classic"]()
    if name == "step":
        made = LoudDecoder(cell, attention, order="post")
    else:
        made = decoder(cell, LoudAttention(5), order="post")
    model = speak_up(with_path(lambda x, memory: made(x, memory)))
    assert not hoisted_in(model)
    plain, _ = run_by_steps(Incremental(model), [SOURCE, TARGET])
    hoisted, _ = run_by_steps(Incremental(model), [SOURCE, TARGET], True)
    np.testing.assert_array_equal(hoisted, plain)


@pytest.mark.parametrize("name", ["other", "placed"])
def test_another_layer_that_emits_is_called(name):
    class Own(keras_attn.AttentionDecoder):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            if name == "other":
                self.attentional = layers.Dense(6, "relu", use_bias=True)
            else:
                on_device(self.attentional, "cpu:0")

    cell, attention = LEFT_ALONE["classic"](), keras_attn.DotScore()
    made = Own(cell, keras_attn.Attention(attention), order="post")
    model = speak_up(with_path(lambda x, memory: made(x, memory)))
    assert not hoisted_in(model)
    assert_cut_equals_whole(model)


@pytest.mark.parametrize(
    "mixes",
    [
        lambda x: x - ops.mean(x),
        lambda x: x - ops.mean(x, axis=0),
        layers.Reshape((4, 3, 2)),
    ],
)
def test_a_table_hides_no_refusal(mixes):
    def build(x, memory):
        x = mixes(x)
        return decoder()(layers.Reshape((-1, 6))(x), memory)

    model = speak_up(with_path(build))
    with pytest.raises(ValueError, match="cannot be decoded"):
        Incremental(model).check(*map(ops.convert_to_tensor, (SOURCE, TARGET)))


@pytest.mark.parametrize("compiled, few", [(False, 0), (True, 4)])
def test_an_ensemble_hoists_each_of_its_models(compiled, few):
    cell = LEFT_ALONE["classic"]  # so that there is no table
    members = [
        Incremental(model_of(cell=cell(), order="post")) for _ in range(2)
    ]
    ensemble = keras_attn.incremental.Ensemble(members)
    encoded = ensemble.encode(ops.convert_to_tensor(SOURCE))
    hoisted, _ = ensemble.hoist(encoded, compiled)
    for member, new in zip(members, hoisted.members, strict=True):
        (found,) = changed(member, new)
        assert getattr(found, "few", 0) == few


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
    hoisted, _ = cut.hoist(encoded)
    (nested,) = changed(cut, hoisted)
    assert nested.layer is inner
    assert hoisted._path.steppers.count(nested) == 1


def test_a_model_within_that_returns_its_input_has_nothing_to_hoist():
    read = layers.Input((None, 6))
    same = Model(read, read)
    model = with_path(lambda x, memory: decoder()(same(x), memory))
    assert_cut_equals_whole(speak_up(model))


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("part", ["decoder", "cell", "attention"])
def test_what_is_placed_on_a_device_stays_there(part):
    """On another device, a hoisted product would be computed elsewhere."""
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
