"""Layers that look at what they may not."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

from keras_attn import Incremental
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import speak_up

SOURCE = np.array([[3, 4, 5, 6, 2], [5, 2, 3, 3, 6], [2, 6, 4, 3, 3]], "int32")


TARGET = np.array([[1, 4, 5, 8, 3], [1, 7, 7, 3, 2], [1, 3, 6, 4, 5]], "int32")


def positions(x):
    """`(1, target, 1)`: the number of each position, as a float."""
    return ops.cast(ops.arange(ops.shape(x)[1]), x.dtype)[None, :, None]


def shifted(x, by):
    return ops.pad(x, [[0, 0], [by, 0], [0, 0]])[:, : ops.shape(x)[1]]


def ahead(x, by):
    return ops.pad(x, [[0, 0], [0, by], [0, 0]])[:, by:]


class Cheat(layers.Layer):
    """A layer of the tests' own: `compute` says what it does."""

    def __init__(self, compute, name="culprit"):
        super().__init__(name=name)
        self.compute = compute

    def call(self, inputs):
        return self.compute(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


CHEATS = {
    "reversed": lambda x: ops.flip(x, axis=1),
    "a running sum": lambda x: x + 0.1 * ops.cumsum(x, axis=1),
    "a running maximum": lambda x: x + ops.max(x, axis=1, keepdims=True),
    "the mean of the target": lambda x: x - ops.mean(x, axis=1, keepdims=True),
    "the mean of the batch": lambda x: x - ops.mean(x, axis=0, keepdims=True),
    "the next row": lambda x: x + 0.5 * ops.roll(x, 1, axis=0),
    "the spread of all": lambda x: x / (1 + ops.std(x)),
    "shifted by one": lambda x: shifted(x, 1),
    "shifted by three": lambda x: x + shifted(x, 3),
    "shifted by nine": lambda x: x + 0.3 * shifted(x, 9),
    "one ahead": lambda x: x + 0.2 * ahead(x, 1),
    "seven ahead": lambda x: x + ahead(x, 7),
    "rolled": lambda x: ops.roll(x, 6, axis=1),
    "late positions are zero": lambda x: ops.where(positions(x) > 11, 0.0, x),
    "late positions grow": lambda x: (
        x * (1 + ops.relu(positions(x) - 9) * 0.01)
    ),
    "even positions": lambda x: ops.where(positions(x) % 2 == 0, x, -x),
    "the number of the position": lambda x: x + 0.01 * positions(x),
    "how long the target is": lambda x: (
        x * ops.cast(ops.shape(x)[1], x.dtype) / 16
    ),
    "the first position": lambda x: x + x[:, :1],
    "the last position": lambda x: x - x[:, -1:],
    "sorted": lambda x: ops.sort(x, axis=1),
    "softmax over time": lambda x: ops.softmax(x, axis=1),
    "attention to all": lambda x: ops.matmul(
        ops.softmax(ops.matmul(x, ops.swapaxes(x, 1, 2))), x
    ),
    "attention by hand, causal": lambda x: ops.matmul(
        ops.softmax(
            ops.where(
                ops.swapaxes(positions(x), 1, 2) <= positions(x),
                ops.matmul(x, ops.swapaxes(x, 1, 2)),
                -1e9,
            )
        ),
        x,
    ),
    "differences": lambda x: x - shifted(x, 1),
    "neighbours swapped": lambda x: ops.where(
        positions(x) % 2 == 0, ahead(x, 1), shifted(x, 1)
    ),
}


def with_target_path(build):
    """A decoder over `build(embedded target, memory)`."""
    source, target = inputs()
    memory, x = embedded(source, target)
    x = build(x, memory)
    return keras.Model(
        [source, target], layers.Dense(TARGETS)(decoder()(x, memory))
    )


def require_refused(build, said="'"):
    with pytest.raises(ValueError, match="cannot be decoded") as refused:
        cut = Incremental(speak_up(build()))
        cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))
    assert said in str(refused.value)
