"""Every kind of layer: the steps compute the same as the whole model.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCE
from support.cuts import TARGET
from support.cuts import TARGETS
from support.cuts import assert_cut_equals_whole
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import run_by_steps
from support.cuts import speak_up
from support.cuts import with_path
from support.mechanisms import nth
from support.steppable import PATHS
from support.steppable import encoded_by
from support.steppable import gru_below_decoder
from support.steppable import hub_decoder
from support.steppable import nested_block
from support.steppable import of_an_image
from support.steppable import of_frames
from support.steppable import of_tokens
from support.steppable import rotary
from support.steppable import transformer

import keras_attn
from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", nth(2, PATHS))
def test_each_hypothesis_gets_what_the_whole_model_computes(name):
    assert_cut_equals_whole(speak_up(with_path(PATHS[name])))


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "activation",
    [
        layers.Softmax(axis=2),
        layers.LayerNormalization(axis=2),
        layers.PReLU(shared_axes=[1]),
        lambda x: ops.softmax(x, axis=2),
        "softmax",
    ],
    ids=["softmax layer", "norm", "prelu", "function", "by name"],
)
def test_an_activation_may_name_the_axis_of_the_features(activation):
    dense = layers.Dense(6, activation=activation)
    model = with_path(lambda target, memory: dense(decoder()(target, memory)))
    assert_cut_equals_whole(speak_up(model))


@pytest.mark.parametrize(
    "name",
    ["gru", "cross, groups", "keras dot", "masks_kept", "nested_block", "hub"],
)
def test_padding_of_a_source_changes_nothing(name):
    model = speak_up(with_path(PATHS[name]))
    cut = Incremental(model)
    logits, alignments = run_by_steps(cut, [SOURCE, TARGET])
    padding = np.broadcast_to((SOURCE == 0)[:, None], alignments.shape)
    assert not alignments[padding].any()
    alone, _ = run_by_steps(cut, [SOURCE[1:2, :2], TARGET[1:2]])
    np.testing.assert_allclose(logits[1:2], alone, atol=1e-5)
    mask = cut.source_mask(cut.encode(ops.convert_to_tensor(SOURCE)))
    np.testing.assert_array_equal(mask, SOURCE != 0)


@pytest.mark.full
@pytest.mark.parametrize(
    "encoder, shape, dtype",
    [
        (of_an_image, (6, 4, 1), "float32"),
        (of_frames, (None, 3), "float32"),
        (of_tokens, (None,), "int32"),
    ],
)
def test_whatever_encodes_the_source_is_run_once(encoder, shape, dtype):
    assert_cut_equals_whole(speak_up(encoded_by(encoder, *shape, dtype=dtype)))


def test_several_sources_are_encoded_together():
    image = keras.Input((6, 4, 1), name="image")
    source, target = inputs()
    speaker = keras.Input((3,), name="speaker")
    memory, x = embedded(source, target)
    x = x + ops.expand_dims(layers.Dense(6)(speaker), 1)
    x = layers.GRU(6, return_sequences=True)(x)
    seen = layers.MultiHeadAttention(2, 3)(x, of_an_image(image))
    read = keras_attn.BahdanauAttention(4)(x, memory)
    logits = layers.Dense(TARGETS)(layers.Concatenate()([seen, read]))
    model = speak_up(keras.Model([image, source, speaker, target], logits))
    assert_cut_equals_whole(model)


def test_what_is_encoded_is_tensors_and_none_alone():
    """Passes `Encoded` from one function to the next, with its masks."""
    for name in ("nested_block", "hub", "masks_kept", "gru", "keras dot"):
        model = speak_up(with_path(PATHS[name]))
        cut = Incremental(model)
        encoded = cut.encode(ops.convert_to_tensor(SOURCE))
        state = cut.start(encoded, 1, 3)
        expected, *_ = cut.step(TARGET[:, :1], state, encoded)
        # New tensors, without the attributes of the old ones.
        encoded, state = keras.tree.map_structure(
            lambda x: None if x is None else ops.convert_to_tensor(np.array(x)),
            (encoded, state),
        )
        for x in keras.tree.flatten((encoded, state)):
            assert x is None or x.shape[0] == len(SOURCE)
        logits, _, _ = cut.step(TARGET[:, :1], state, encoded)
        np.testing.assert_allclose(logits, expected, atol=1e-6)


def test_a_decoder_of_keras_s_own_layers_attends_and_says_to_what():
    model = speak_up(with_path(transformer))
    _, alignments = run_by_steps(Incremental(model), [SOURCE, TARGET])
    assert alignments.shape == (3, 4, 5)
    attentions = [
        x for x in model.layers if isinstance(x, layers.MultiHeadAttention)
    ]
    last = attentions[-1]
    query, memory = last._inbound_nodes[-1].arguments.args
    _, by_head = last(
        *keras.Model(model.inputs, [query, memory])([SOURCE, TARGET]),
        return_attention_scores=True,
    )
    np.testing.assert_allclose(alignments, ops.mean(by_head, axis=1), atol=1e-5)


@pytest.mark.full
def test_half_precision_is_stepped_as_well():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = with_path(
            lambda x, memory: hub_decoder(True)(transformer(x, memory), memory)
        )
    finally:
        keras.config.set_dtype_policy("float32")
    Incremental(model).check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


@pytest.mark.full
def test_a_model_of_all_kinds_saved_and_loaded_is_cut_as_well(tmp_path):
    model = speak_up(
        with_path(
            lambda x, memory: rotary(
                nested_block(gru_below_decoder(x, memory), memory), memory
            )
        )
    )
    expected = assert_cut_equals_whole(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        assert_cut_equals_whole(loaded), expected, atol=1e-5
    )
