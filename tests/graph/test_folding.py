"""Wide tensors are folded, so that whatever differs in them still differs.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support import cuts

from keras_attn import Incremental
from keras_attn.backend import as_array
from keras_attn.backend import as_graph
from keras_attn.graph.folding import folded

WIDE = 16_391  # 7 more than a multiple of 16


@pytest.fixture
def array():
    random = np.random.default_rng(0)
    return random.normal(size=(2, 3, WIDE)).astype("float32")


def test_a_narrow_tensor_is_itself():
    for x in (ops.ones((2, 300)), ops.ones(())):
        assert folded(x) is x


@pytest.mark.parametrize("graph", [True, False])
def test_a_wide_tensor_has_a_sixteenth_of_its_columns(array, graph):
    fold = folded
    if graph:
        fold = as_graph(folded, [keras.KerasTensor((None, None, WIDE))])
    found = as_array(fold(ops.convert_to_tensor(array)))
    assert found.shape == (2, 3, 1025 + 1)
    np.testing.assert_array_equal(found[..., -1], array.max(-1))
    ones = as_array(fold(ops.ones((1, 1, WIDE))))[0, 0]
    assert (np.diff(ones[:1024]) == 0).all() and ones[0] > 16


@pytest.mark.parametrize("column", [0, 77, WIDE - 1])
def test_a_column_that_differs_changes_one_sum(array, column):
    other = array.copy()
    other[1, 2, column] += 0.1
    one, two = as_array(folded(array)), as_array(folded(other))
    apart = np.abs(one - two)[..., :-1] > 0.05
    assert apart.sum() == 1 and apart[1, 2, column // 16]


def test_columns_that_change_places_change_a_sum(array):
    other = array.copy()
    other[0, 0, [3, 4]] = other[0, 0, [4, 3]]
    assert not np.allclose(as_array(folded(other)), as_array(folded(array)))


def test_what_is_not_finite_remains_so(array):
    array[0, 0] = -np.inf
    array[0, 1, 5] = -np.inf
    array[0, 2, 5] = np.nan
    array[1, 0, 5] = np.inf
    array[1, 1, [5, 6]] = np.inf, -np.inf
    found = as_array(folded(ops.convert_to_tensor(array)))
    assert np.isneginf(found[0, 0]).all()
    assert np.isneginf(found[0, 1]).sum() == 1
    assert np.isnan(found[0, 2]).any()
    assert np.isposinf(found[1, 0]).sum() == 2  # the largest, too
    assert np.isnan(found[1, 1]).any()
    assert np.isfinite(found[1, 2]).all()


class Off(layers.Layer):
    """Changes one column of the logits after the target's first position."""

    def __init__(self, column, by):
        super().__init__(name="culprit")
        self.column, self.by = column, by
        self.supports_masking = True

    def call(self, inputs):
        place = ops.cast(ops.arange(WIDE) == self.column, "float32")
        later = ops.cast(ops.arange(ops.shape(inputs)[1]) > 0, "float32")
        return inputs + self.by * later[:, None] * place


class Constant(layers.Layer):
    """Sets one column of the logits."""

    def __init__(self, column, value):
        super().__init__()
        self.column, self.value = column, value
        self.supports_masking = True

    def call(self, inputs):
        return ops.where(ops.arange(WIDE) == self.column, self.value, inputs)


def proven(last):
    source, target = cuts.inputs()
    memory, embedding = cuts.embedded(source, target)
    hidden = cuts.decoder()(embedding, memory)
    logits = layers.Dense(WIDE, name="wide")(hidden)
    model = keras.Model([source, target], last(logits))
    cuts.speak_up(model)
    cut = Incremental(model)
    cut.check(*map(ops.convert_to_tensor, [cuts.SOURCE, cuts.TARGET]))


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("column", [0, 8_000, WIDE - 1])
def test_a_cut_that_is_wrong_in_one_column_is_refused(column):
    with pytest.raises(ValueError, match="'culprit' .* gives another result"):
        proven(Off(column, 0.1))


@pytest.mark.full
def test_a_wide_model_may_forbid_a_token_and_must_be_finite():
    proven(Constant(5, -np.inf))
    for value in (np.inf, np.nan):
        with pytest.raises(ValueError, match="must be finite numbers"):
            proven(Constant(5, value))
