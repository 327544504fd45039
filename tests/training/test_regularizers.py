"""Losses on alignments."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras import ops
from support.differences import compiled_with_gradient
from support.differences import gradient

from keras_attn.training.regularizers import CoverageLoss
from keras_attn.training.regularizers import DoublyStochastic

each = pytest.mark.parametrize("kind", [DoublyStochastic, CoverageLoss])

# Three queries at two positions, whose sums are 1.5 and 1.5.
WEIGHTS = np.array([[[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]], "float32")


def test_each_position_is_asked_to_get_weight_one():
    np.testing.assert_allclose(DoublyStochastic(1.0)(WEIGHTS), 0.5)
    np.testing.assert_allclose(DoublyStochastic(3.0)(WEIGHTS), 1.5)
    # A mean over sentences: another that is perfect halves it.
    two = np.concatenate([WEIGHTS, np.eye(3, 2, dtype="float32")[None]])
    np.testing.assert_allclose(DoublyStochastic(1.0)(two), 0.25)


def test_queries_are_asked_not_to_look_where_others_did():
    # Second: min(.5, .75) + min(.5, .25). Third: min(.25, 1.25) + min(.75,
    # .75). Of three queries, so (.75 + 1) / 3.
    np.testing.assert_allclose(CoverageLoss(1.0)(WEIGHTS), 1.75 / 3, rtol=1e-6)
    np.testing.assert_allclose(CoverageLoss(6.0)(WEIGHTS), 3.5, rtol=1e-6)
    # The sentences' queries count alike, however many each has.
    two = np.concatenate([WEIGHTS, WEIGHTS])
    mask = np.array([[True, True, True], [True, False, False]])
    np.testing.assert_allclose(
        CoverageLoss(1.0)(two, query_mask=mask), 1.75 / 4, rtol=1e-6
    )


@each
def test_padding_of_targets_and_sources_changes_nothing(kind):
    loss = kind(2.0)
    padded = np.full((1, 5, 4), np.nan, "float32")
    padded[0, [[0], [2], [3]], [1, 2]] = WEIGHTS[0]
    masked = loss(
        padded,
        query_mask=np.array([[True, False, True, True, False]]),
        value_mask=np.array([[False, True, True, False]]),
    )
    np.testing.assert_allclose(masked, loss(WEIGHTS), rtol=1e-6)


@each
def test_a_batch_of_padding_is_no_nan(kind):
    nothing = np.zeros((1, 3), bool)
    loss = kind(1.0)(WEIGHTS, query_mask=nothing, value_mask=nothing[:, :2])
    assert float(loss) == 0


@each
@given(data=st.data())
def test_losses_are_bounded(kind, data):
    shape = data.draw(st.tuples(*[st.integers(1, n) for n in (3, 5, 4)]))
    parts = st.floats(0, 1, width=16)
    weights = data.draw(hnp.arrays("float32", shape, elements=parts))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1)
    loss = float(kind(1.0)(weights))
    bound = {DoublyStochastic: max(shape[1] ** 2, shape[2]), CoverageLoss: 1}
    assert 0 <= loss <= bound[kind] + 1e-5


@each
def test_half_precision_is_summed_in_full(kind):
    weights = ops.full((1, 3000, 2), 0.5, dtype="float16")
    expected = {DoublyStochastic: 2 * 1499.0**2, CoverageLoss: 2999 / 3000}
    loss = kind(1.0)(weights)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    np.testing.assert_allclose(loss, expected[kind], rtol=1e-4)


@each
def test_xla_compiles_loss_and_gradient(kind):
    loss = kind(1.0)
    run = compiled_with_gradient(
        lambda x, mask: ops.reshape(loss(x, value_mask=mask), (1, 1)) + 0 * x,
        ((None, None, None), "float32"),
        ((None, None), "bool"),
    )
    found, _ = run(WEIGHTS, np.array([[True, True]]))
    np.testing.assert_allclose(found[0, 0, 0], loss(WEIGHTS), rtol=1e-6)
    assert np.isfinite(gradient(loss, WEIGHTS)).all()


@each
def test_a_loss_is_its_config(kind):
    config = keras.saving.serialize_keras_object(kind(0.5))
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is kind and again.weight == 0.5


@each
@pytest.mark.parametrize("weight", [0, -1.0, True, float("nan")])
def test_a_weight_must_be_above_zero(kind, weight):
    with pytest.raises(ValueError, match="must be above 0"):
        kind(weight)
