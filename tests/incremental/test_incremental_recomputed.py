"""Layers that read their whole past again at each step."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support import cuts
from support.cuts import SOURCE
from support.cuts import TARGET

from keras_attn import Incremental
from keras_attn import PositionEmbedding


class Summing(layers.Layer):
    """Remembers all positions, and has no stepper."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        return ops.cumsum(inputs, axis=1) / 5


class Backwards(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        return inputs + ops.flip(inputs, axis=1)


def build(layer):
    model = cuts.with_path(
        lambda x, memory: cuts.decoder()(layer(x), memory),
    )
    return cuts.speak_up(model)


BOTH = np.stack([TARGET, np.roll(TARGET, 1, axis=0)[:, ::-1]], axis=1)


@pytest.mark.full
@pytest.mark.parametrize("whole", [False, True], ids=["a layer", "whole"])
def test_steps_equal_the_whole_model(whole):
    layer = Summing()
    model = build(layer)
    cut = Incremental(model, recompute=True if whole else [layer])
    cut.check(SOURCE, TARGET)
    logits, alignments = cuts.run_by_steps(cut, [SOURCE, BOTH])
    for beam in range(2):
        expected = model([SOURCE, BOTH[:, beam]], training=False)
        np.testing.assert_allclose(
            logits[:, beam], ops.convert_to_numpy(expected), atol=1e-5
        )
    assert (alignments is None) == whole
    assert cut.rows_leave and cut.attends != whole


def test_hypotheses_may_be_at_positions_of_their_own():
    layer = Summing()
    cut = Incremental(build(layer), recompute=True)
    encoded = cut.encode(SOURCE)
    state = cut.start(encoded, 2, 4)
    first, _, state = cut.step(BOTH[:, :, 0], state, encoded)
    # The second hypothesis begins again.
    prefix = state.states[0]
    number = ops.convert_to_tensor(np.array([[1, 0]] * len(SOURCE), "int32"))
    state = state._replace(states=(prefix._replace(step=number),))
    tokens = np.stack([BOTH[:, 0, 1], BOTH[:, 1, 0]], axis=1)
    apart, _, _ = cut.step(tokens, state, encoded, per_row_position=True)
    np.testing.assert_allclose(apart[:, 1], first[:, 1], atol=1e-5)
    together, _ = cuts.run_by_steps(cut, [SOURCE, BOTH])
    np.testing.assert_allclose(apart[:, 0], together[:, 0, 1], atol=1e-5)


def test_beams_take_the_past_of_their_parents():
    cut = Incremental(build(Summing()), recompute=True)
    encoded = cut.encode(SOURCE)
    state = cut.start(encoded, 2, 4)
    _, _, state = cut.step(BOTH[:, :, 0], state, encoded)
    turned = np.array([[1, 0]] * len(SOURCE), "int32")
    state = cut.reorder(state, turned)
    found, _, _ = cut.step(BOTH[:, ::-1, 1], state, encoded)
    expected, _ = cuts.run_by_steps(cut, [SOURCE, BOTH])
    np.testing.assert_allclose(found[:, ::-1], expected[:, :, 1], atol=1e-5)


class Normalized(layers.Layer):
    """Divides by a norm, which zeros do not have; position by position."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        sums = ops.cumsum(inputs, axis=1)
        inverse = 1.0 / ops.sqrt(ops.sum(inputs**2, axis=-1, keepdims=True))
        # What is later counts 0, but 0 times NaN is NaN.
        length = ops.shape(inputs)[1]
        earlier = ops.tril(ops.ones((length, length)))
        return sums * ops.matmul(earlier, inverse)


@pytest.mark.full
def test_places_that_are_not_written_do_no_harm():
    layer = Normalized()
    cut = Incremental(build(layer), recompute=[layer])
    expected, _ = cuts.run_by_steps(cut, [SOURCE, TARGET])
    encoded = cut.encode(SOURCE)
    compiled, encoded = cut.hoist(encoded, compiled=True)
    state = compiled.start(encoded, max_length=TARGET.shape[1])
    for t in range(TARGET.shape[1]):
        found, _, state = compiled.step(TARGET[:, t : t + 1], state, encoded)
        np.testing.assert_allclose(found[:, 0], expected[:, t], atol=1e-4)


def test_it_knows_the_positions_of_layers_inside():
    model = cuts.with_path(
        lambda x, memory: cuts.decoder()(PositionEmbedding(4)(x), memory)
    )
    assert Incremental(model, recompute=True).longest == 4
    model = cuts.with_path(
        lambda x, memory: cuts.decoder()(
            PositionEmbedding(6)(x, start_index=2), PositionEmbedding(3)(memory)
        )
    )
    assert Incremental(model, recompute=True).longest == 4


def test_layers_of_another_model_cannot_be_recomputed():
    layer = Summing(name="inside")
    given = keras.Input((None, 6))
    inner = keras.Model(given, layer(given), name="inner")
    source, target = cuts.inputs()
    memory = layers.Embedding(cuts.SOURCES, 6, mask_zero=True)(source)
    x = inner(layers.Embedding(cuts.TARGETS, 6)(target))
    model = keras.Model([source, target], cuts.decoder()(x, memory))
    with pytest.raises(ValueError, match=r"Received: 'inside'\. .* nested"):
        Incremental(model, recompute=[layer])
    with pytest.raises(ValueError, match="Received: 3"):
        Incremental(model, recompute=[3])
    assert Incremental(model, recompute=inner).attends  # one needs no list


@pytest.mark.full
def test_a_layer_that_looks_ahead_is_refused():
    model = build(Backwards(name="culprit"))
    with pytest.raises(ValueError, match="'culprit' .* looks at later tokens"):
        Incremental(model, recompute=True).check(SOURCE, TARGET)


def test_the_number_of_steps_must_be_known():
    cut = Incremental(build(Summing()), recompute=True)
    with pytest.raises(ValueError, match="largest number of steps"):
        cut.start(cut.encode(SOURCE), 2)
