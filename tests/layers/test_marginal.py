"""`MarginalDecoder`: its sums over all alignments, its masks, its steps."""

import keras
import numpy as np
import pytest
from keras import layers
from support.cuts import SOURCE
from support.cuts import TARGET
from support.cuts import TARGETS
from support.cuts import assert_cut_equals_whole
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import speak_up
from support.enumeration import Alignments
from support.marginals import MASK
from support.marginals import VOCABULARY
from support.marginals import each_kind
from support.marginals import layer
from support.marginals import model_of
from support.mechanisms import draw
from support.mechanisms import values

import keras_attn
from keras_attn import MarginalDecoder

IDS = np.array([[1, 4, 2, 3], [1, 3, 3, 2]], "int32")


def run(made, memory=None, mask=MASK, ids=IDS, **options):
    """Log-probabilities and alignments of two targets."""
    memory = draw(2, 5, 4, seed=1) if memory is None else memory
    return values(
        made(
            draw(2, 4, 5),
            memory,
            ids,
            memory_mask=mask,
            return_attention_scores=True,
            **options,
        )
    )


@each_kind
def test_the_outputs_are_sums_over_all_alignments(kind):
    made = layer(kind)
    found, alignments = run(made)
    hidden, memory = values(made.decoder(draw(2, 4, 5))), draw(2, 5, 4, seed=1)
    for row in range(2):
        every = Alignments(
            made, hidden[row], memory[row], IDS[row], real=MASK[row]
        )
        np.testing.assert_allclose(
            np.exp(found[row]), every.conditionals(), atol=1e-6
        )
        np.testing.assert_allclose(
            alignments[row], every.positions(), atol=1e-6
        )


def of_zeros(**options):
    """Where alignments may be, if all that is possible is as likely."""
    made = MarginalDecoder(layers.GRUCell(3), VOCABULARY, **options)
    made.build((1, 2, 5), (1, 3, 4), (1, 2))
    made.set_weights([0 * x for x in made.get_weights()])
    found, alignments = values(
        made(
            draw(1, 2, 5),
            draw(1, 3, 4),
            IDS[:1, :2],
            return_attention_scores=True,
        )
    )
    np.testing.assert_allclose(found, -np.log(VOCABULARY), rtol=1e-6)
    return alignments[0]


def test_alignments_move_as_worked_out_by_hand():
    third = [1 / 3] * 3
    np.testing.assert_allclose(of_zeros(order=0), [third, third], rtol=1e-6)
    # From the first position to three, then from each onwards.
    np.testing.assert_allclose(
        of_zeros(order=0, monotonic=True),
        [third, [1 / 9, 1 / 9 + 1 / 6, 1 / 9 + 1 / 6 + 1 / 3]],
        rtol=1e-6,
    )
    # By at most one: two ways at the borders, three in the middle.
    np.testing.assert_allclose(
        of_zeros(order=1, window=1),
        [[1 / 2, 1 / 2, 0], [5 / 12, 5 / 12, 1 / 6]],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        of_zeros(order=1, window=1, monotonic=True),
        [[1 / 2, 1 / 2, 0], [1 / 4, 1 / 2, 1 / 4]],
        rtol=1e-6,
    )


def test_the_window_is_eleven_offsets_wide_unless_given():
    assert len(layer("order 1").transition.offsets) == 5
    made = MarginalDecoder(layers.GRUCell(3), VOCABULARY, order=1)
    assert list(made.transition.offsets) == list(range(-5, 6))


@each_kind
def test_what_is_masked_has_no_effect(kind):
    made = layer(kind)
    memory = draw(2, 5, 4, seed=1)
    found, alignments = run(made, memory)
    assert not alignments[~np.repeat(MASK[:, None], 4, axis=1)].any()
    # Two more positions, and numbers that would spoil any sum.
    longer = np.concatenate([memory, draw(2, 2, 4)], axis=1)
    mask = np.concatenate([MASK, np.zeros((2, 2), bool)], axis=1)
    longer[~mask] = np.nan
    again, its_alignments = run(made, longer, mask)
    np.testing.assert_allclose(again, found, atol=1e-6)
    np.testing.assert_allclose(its_alignments[..., :5], alignments, atol=1e-6)


@pytest.mark.sample_cases(2)
@each_kind
def test_an_empty_source_counts_as_one_vector_of_zeros(kind):
    made = layer(kind)
    mask = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)
    found, alignments = run(made, mask=mask)
    assert np.isfinite(found).all() and not alignments[1].any()
    one = np.array([[1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], bool)
    memory = draw(2, 5, 4, seed=1) * [[[1]], [[0]]]
    expected, _ = run(made, memory.astype("float32"), one)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.sample_cases(2)
@each_kind
def test_padding_of_the_target_changes_no_state(kind):
    made = layer(kind)
    x, memory, ids = draw(1, 5, 5), draw(1, 5, 4), np.array([[1, 4, 0, 2, 3]])
    real = [0, 1, 3, 4]
    mask = np.array([[1, 1, 0, 1, 1]], bool)
    found = values(made(x, memory, ids, inputs_mask=mask))
    expected = values(made(x[:, real], memory, ids[:, real]))
    np.testing.assert_allclose(found[:, real], expected, atol=1e-6)
    assert not found[:, 2].any()


@each_kind
def test_a_token_tells_only_later_steps(kind):
    made = layer(kind)
    other = IDS.copy()
    other[:, 2] = 5
    before, after = run(made)[0], run(made, ids=other)[0]
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    changes = np.abs(before - after)[:, 2:].max()
    # Where the last position is forgotten, only the cell could tell.
    assert (changes == 0) == (kind == "order 0")


@pytest.mark.full
@pytest.mark.sample_cases(1)
@each_kind
def test_steps_compute_what_the_whole_target_does(kind):
    logits = assert_cut_equals_whole(model_of(kind))
    np.testing.assert_allclose(np.exp(logits).sum(-1), 1, atol=1e-5)


@pytest.mark.full
def test_stacks_bridges_and_scores_are_stepped_too():
    cell = [layers.LSTMCell(5), keras_attn.ResidualCell(layers.GRUCell(5))]
    assert_cut_equals_whole(model_of("order 1", cell, True, bridge="dense"))


@pytest.mark.full
def test_a_dense_layer_behind_it_is_stepped_too():
    model = model_of("order 1, monotonic")
    logits = layers.Dense(TARGETS)(model.output)
    model = speak_up(keras.Model(model.inputs, logits))
    # In a graph, whose loop does not know the size of what it computes
    keras_attn.Incremental(model).check(SOURCE, TARGET)
    assert_cut_equals_whole(model)


def test_ids_that_are_no_target_are_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    made = MarginalDecoder(layers.GRUCell(6), TARGETS)
    model = keras.Model([source, target], made(embedding, memory, source))
    with pytest.raises(ValueError, match="`ids` that do not depend on the tar"):
        keras_attn.Incremental(model)


@pytest.mark.sample_cases(2)
@each_kind
def test_a_saved_model_computes_the_same(kind, tmp_path):
    model = model_of(kind, bridge="dense")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    expected = values(model([SOURCE, TARGET]))
    np.testing.assert_array_equal(values(again([SOURCE, TARGET])), expected)


@pytest.mark.sample_cases(2)
@each_kind
def test_sums_are_float32_in_mixed_precision(kind):
    exact = layer(kind)
    half = layer(
        kind,
        layers.GRUCell(3, dtype="mixed_float16"),
        dtype="mixed_float16",
    )
    half.set_weights(exact.get_weights())
    found, alignments = run(half)
    assert found.dtype == "float32" and alignments.dtype == "float16"
    np.testing.assert_allclose(np.exp(found).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(found, run(exact)[0], atol=0.03)


def test_long_targets_keep_their_sums():
    made = layer("order 1, monotonic")
    length, random = 60, np.random.default_rng(0)
    ids = random.integers(1, VOCABULARY, (1, length))
    found, alignments = values(
        made(
            draw(1, length, 5),
            draw(1, 20, 4),
            ids,
            return_attention_scores=True,
        )
    )
    np.testing.assert_allclose(np.exp(found).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(alignments.sum(-1), 1, atol=1e-5)
    assert alignments[0, -1].argmax() > 15  # it did not stay behind


@pytest.mark.parametrize(
    "options, message",
    [
        ({"vocabulary": 0}, "`vocabulary` must be a positive integer"),
        ({"order": 2}, "`order` is the number.*Received: order=2"),
        ({"order": True}, "Received: order=True"),
        ({"monotonic": "yes"}, "Received: monotonic='yes'"),
        ({"window": 3}, "`window` would have no effect.*`order=1`"),
        ({"order": 1, "window": 0}, "`window` must be a positive integer"),
        ({"units": 0.5}, "`units` must be a positive integer"),
        ({"cell": layers.GRU(3)}, "`cell` must be a Keras RNN cell"),
    ],
)
def test_wrong_options_are_refused(options, message):
    options = {"cell": layers.GRUCell(3), "vocabulary": 5} | options
    with pytest.raises(ValueError, match=f"(?s){message}"):
        MarginalDecoder(**options)


@pytest.mark.parametrize(
    "call, message",
    [
        ([draw(2, 4, 5), draw(2, 5, 4)], "Received: no ids.*memory, target"),
        ([draw(2, 4, 5)], "no memory and no ids"),
        ([IDS, draw(2, 5, 4), IDS], r"`inputs` must have the shape \(batch"),
        ([draw(2, 4, 5), draw(2, 5), IDS], "`memory` must have the shape"),
        ([draw(2, 4, 5), draw(2, 5, 4), IDS / 2], "ids of dtype float"),
        ([draw(2, 4, 5), draw(2, 5, 4), IDS[:, :3]], "the same length"),
        ([draw(2, 4, 5), draw(3, 5, 4), IDS], "Axis 0 is the batch"),
    ],
)
def test_wrong_calls_are_refused(call, message):
    made = MarginalDecoder(layers.GRUCell(3), 5)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        made(*call)
