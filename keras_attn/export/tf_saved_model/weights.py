"""`StoredWeights`: an export's weights, stored in fewer bits than the model's.

Each call converts them back to float32 once, before the loop of the search. So
an export is smaller to store and to ship, but still computes in float32. If a
client runs the loop, each `step` is a call.
"""

import keras
import tensorflow as tf

STORED = ("float32", "bfloat16", "int8")


class StoredWeights(tf.Module):
    """Small copies of the matrices of some models.

    - `"bfloat16"`: the upper half of each float32, rounded. Half the size,
      a precision of two to three digits.
    - `"int8"`: `integer * scale`. Each column (index of the last axis) has its
      own scale, for which its largest absolute weight becomes 127 (Jacob et
      al., 2018, without their zero-point). A quarter of the size.

    Vectors, such as biases, stay as they are.

    Args:
        models: Keras models.
        stored: `"bfloat16"` or `"int8"`.

    References:
        - [Jacob et al., 2018](https://arxiv.org/abs/1712.05877), section 2.1
    """

    def __init__(self, models, stored):
        super().__init__()
        matrices = {
            id(x): x
            for model in models
            for x in model.variables
            if x.dtype == "float32" and len(x.shape) > 1
        }
        self._matrices = list(matrices.values())
        pack = {"bfloat16": _to_bfloat16, "int8": _to_int8}[stored]
        self.packed = [
            [tf.Variable(part, trainable=False) for part in pack(x.value)]
            for x in self._matrices
        ]

    def scope(self):
        """Returns a context in which the models use the stored weights."""
        return keras.StatelessScope(
            [
                (x, _unpack(*packed))
                for x, packed in zip(self._matrices, self.packed, strict=True)
            ]
        )


def require_stored(weights):
    """Raises `ValueError` unless `weights` is one of `STORED`."""
    if weights not in STORED:
        raise ValueError(
            f"`weights` must be one of {STORED}. Received: "
            f"weights={weights!r}. Weights are always converted back to "
            "float32 before they are used."
        )


def _to_bfloat16(matrix):
    return (tf.cast(matrix, tf.bfloat16),)


def _to_int8(matrix):
    axes = list(range(len(matrix.shape) - 1))
    largest = tf.reduce_max(tf.abs(matrix), axes, keepdims=True)
    scale = tf.where(largest > 0, largest, 1.0) / 127.0
    return tf.cast(tf.round(matrix / scale), tf.int8), scale


def _unpack(matrix, scale=None):
    matrix = tf.cast(matrix, tf.float32)
    return matrix if scale is None else matrix * scale
