"""A decoder whose step is a subclass's own: training and decoding follow."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

import keras_attn
from keras_attn import AttentionDecoder
from keras_attn import BahdanauAttention

INPUTS = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
MEMORY = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
MASK = np.array([[True] * 4, [True, True, False, False]])


class Twice(AttentionDecoder):
    """Puts out twice as much."""

    def step(self, inputs, state, source, draws=(), training=False):
        outputs, alignments, state = super().step(
            inputs, state, source, draws, training
        )
        return 2 * outputs, alignments, state


class Narrow(AttentionDecoder):
    """Has a step without the argument `training`."""

    def step(self, inputs, state, source):
        return super().step(inputs, state, source)


FORMS = {
    "pre": {},
    "post": {"order": "post"},
    "post, not fed": {"order": "post", "input_feeding": False},
}


def made(kind, cell=None, attention=None, **options):
    decoder = kind(
        cell or layers.GRUCell(8), attention or BahdanauAttention(5), **options
    )
    decoder(INPUTS, MEMORY)
    return decoder


@pytest.mark.parametrize("form", FORMS)
def test_a_step_of_ones_own_is_what_training_unrolls(form):
    decoder = made(Twice, **FORMS[form])
    outputs, alignments = decoder(
        INPUTS, MEMORY, inputs_mask=MASK, return_attention_scores=True
    )
    source = decoder.prepare(MEMORY)
    state = decoder.start(source)
    for t in range(4):
        expected, weights, state = decoder.step(
            ops.convert_to_tensor(INPUTS[:, t : t + 1]), state, source
        )
        real = MASK[:, t]
        np.testing.assert_allclose(
            ops.convert_to_numpy(outputs)[real, t],
            ops.convert_to_numpy(expected)[real, 0],
            atol=1e-6,
        )
        np.testing.assert_allclose(
            ops.convert_to_numpy(alignments)[real, t],
            ops.convert_to_numpy(weights)[real, 0],
            atol=1e-6,
        )


@pytest.mark.parametrize("form", ["post", "post, not fed"])
def test_it_computes_what_the_parent_does_but_for_what_it_changes(form):
    plain, twice = (
        made(AttentionDecoder, **FORMS[form]),
        made(Twice, **FORMS[form]),
    )
    twice.set_weights(plain.get_weights())
    np.testing.assert_allclose(
        ops.convert_to_numpy(twice(INPUTS, MEMORY, inputs_mask=MASK)),
        2 * ops.convert_to_numpy(plain(INPUTS, MEMORY, inputs_mask=MASK)),
        atol=1e-6,
    )


def test_it_is_given_dropout_and_draws_in_training():
    attention = BahdanauAttention(5, dropout=0.5, seed=1)
    decoder = made(Twice, attention=attention)
    one, other = (
        ops.convert_to_numpy(decoder(INPUTS, MEMORY, training=True))
        for _ in range(2)
    )
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("where", ["cell", "attention"])
def test_dropout_that_a_step_cannot_know_of_is_refused(where):
    drop = {"dropout": 0.5}
    decoder = made(
        Narrow,
        layers.GRUCell(8, **(drop if where == "cell" else {})),
        BahdanauAttention(5, **(drop if where == "attention" else {})),
    )
    decoder(INPUTS, MEMORY)  # nothing is dropped
    with pytest.raises(ValueError, match="takes neither `draws` nor"):
        decoder(INPUTS, MEMORY, training=True)


def test_samples_that_no_step_returns_are_refused():
    attention = keras_attn.Attention(
        keras_attn.DotScore(), keras_attn.ReinforceAlignment()
    )
    decoder = made(Twice, layers.GRUCell(6), attention)
    with pytest.raises(ValueError, match="returns no samples"):
        decoder(INPUTS, MEMORY, return_samples=True)


def test_several_memories_and_none_are_unrolled_by_it_too():
    attentions = [BahdanauAttention(5), BahdanauAttention(5)]
    two = Twice(layers.GRUCell(8), attentions)
    outputs, (first, second) = two(
        INPUTS, [MEMORY, MEMORY[:, :3]], return_attention_scores=True
    )
    assert outputs.shape == (2, 4, 8)
    assert (first.shape, second.shape) == ((2, 4, 5), (2, 4, 3))
    alone = Twice(layers.GRUCell(8))
    state = np.zeros((2, 8), "float32")
    plain = AttentionDecoder(alone.cell)
    np.testing.assert_allclose(
        ops.convert_to_numpy(alone(INPUTS, initial_state=state)),
        2 * ops.convert_to_numpy(plain(INPUTS, initial_state=state)),
        atol=1e-6,
    )


@pytest.mark.full
def test_a_model_with_it_is_trained_and_decoded():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    hidden = Twice(layers.GRUCell(8), BahdanauAttention(5))(
        layers.Embedding(7, 4)(target), layers.Embedding(9, 4)(source)
    )
    model = keras.Model([source, target], layers.Dense(7)(hidden))
    ids = np.array([[1, 2, 3], [4, 5, 6]], "int32")
    sgd = keras.optimizers.SGD(10.0)
    model.compile(sgd, keras_attn.SequenceCrossentropy(), jit_compile=False)
    before = model.get_weights()
    model.fit([ids, ids], ids, verbose=0)
    changed = [
        np.abs(x - y).max() > 0
        for x, y in zip(before, model.get_weights(), strict=True)
    ]
    assert all(changed)
    keras_attn.Incremental(model).check(ids, ids)
