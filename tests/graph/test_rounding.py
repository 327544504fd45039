"""Arrays, large or with forbidden numbers, are compared up to rounding."""

import numpy as np
import pytest
from keras import layers
from keras import ops

from keras_attn.graph.rounding import Rounding

SHAPE = 3, 5, 90_000  # more than is compared at once


@pytest.fixture(scope="module")
def array():
    return np.random.default_rng(0).normal(size=SHAPE).astype("float32")


@pytest.fixture(scope="module")
def rounding():
    return Rounding([layers.Dense(1)])


def test_large_arrays_are_equal_up_to_rounding(array, rounding):
    assert rounding.is_close(array, array)
    assert rounding.is_close(array * (1 + 1e-5), array)
    assert not rounding.is_close(array[:, :4], array)


@pytest.mark.parametrize("place", [(0, 0, 0), (1, 3, 44_444), (2, 4, -1)])
def test_one_number_that_differs_is_found(place, array, rounding):
    other = array.copy()
    other[place] += 0.01
    assert not rounding.is_close(other, array)
    other[place] = np.nan
    assert not rounding.is_close(other, array)


def test_a_noise_is_that_of_its_position(array, rounding):
    other = array.copy()
    other[:, 3] += 0.01
    noise = np.zeros(SHAPE[1])
    noise[2] = 0.1
    assert not rounding.is_close(other, array, noise)
    noise[3] = 0.1
    assert rounding.is_close(other, array, noise)


def test_what_is_infinite_is_the_same_in_both(array, rounding):
    masked = array.copy()
    masked[..., 1::2] = -np.inf
    assert rounding.is_close(masked * (1 + 1e-5), masked)
    other = masked.copy()
    other[1, 1, 1] = 0
    assert not rounding.is_close(other, masked)


@pytest.mark.parametrize("share", [1, 50, 90])
@pytest.mark.parametrize("score", [-1e4, -1e9, -1e38])
def test_scores_of_what_is_forbidden_hide_no_difference(share, score, rounding):
    random = np.random.default_rng(1)
    masked = random.normal(size=(3, 5, 100)).astype("float32")
    masked[..., :share] = score
    masked[:, -1, : share // 2] = score / 2  # by one of two masks
    assert rounding.is_close(masked * (1 + 1e-5), masked)
    assert not rounding.apart_alike(masked * (1 + 1e-7), masked).any()
    other = masked.copy()
    other[1, 1, -1] += 0.1
    assert not rounding.is_close(other, masked)
    assert rounding.apart_alike(other, masked).sum() == 1


def test_the_scores_of_a_row_in_which_all_is_forbidden_are_compared(rounding):
    masked = np.full((3, 4), -1e9, "float32")
    assert rounding.is_close(masked * (1 + 1e-7), masked)
    assert not rounding.is_close(masked * 1.01, masked)


def test_what_is_infinite_in_one_array_alone_is_found(rounding):
    masked = np.array([1.0, -np.inf, -1e9], "float32")
    other = np.array([1.0, 2.0, -1e9], "float32")
    for one, another in ((masked, other), (other, masked)):
        assert rounding.apart_alike(one, another).tolist() == [0, 1, 0]
    assert not rounding.apart_alike(masked, masked).any()


def test_a_large_tensor_is_disturbed_as_if_at_once(monkeypatch, rounding):
    x = ops.convert_to_tensor(np.ones((7, 5, 3), "float32"))
    at_once = rounding.disturb(x)
    monkeypatch.setattr("keras_attn.graph.rounding._PART", 30)
    np.testing.assert_array_equal(rounding.disturb(x), at_once)
    assert 0 < np.abs(at_once - 1).max() < 1e-5
