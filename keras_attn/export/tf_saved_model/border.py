"""Named tensors that `encode` and `step` exchange with clients.

Clients keep these tensors between two calls. A server may join the tensors of
several clients in one batch, and then pads the narrower ones with arbitrary
values. So each row comes with the widths of its tensors, and a `step` first
sets all values past these widths to zero.

Tensors in half precision cross the border as float32, which loses nothing: TF
Serving's REST API writes neither kind of half, and numpy has no bfloat16.
"""

import tensorflow as tf

from keras_attn.export.tf_saved_model.lengths import zero_past
from keras_attn.structures import flatten
from keras_attn.structures import pack


class Border:
    """Converts a structure of tensors to named tensors and back.

    Args:
        name: The first part of the tensors' names; a number follows.
        structure: The structure, of symbolic tensors.
        arranged: Number of leading axes whose sizes a client chooses: 1
            (batch) or 2 (batch and hypotheses).
    """

    def __init__(self, name, structure, arranged):
        self._name, self._like, self._arranged = name, structure, arranged
        tensors = flatten(structure)
        self.names = [f"{name}_{i}" for i in range(len(tensors))]
        self.specs = [
            tf.TensorSpec(
                [*[None] * arranged, *x.shape[arranged:]], sent(x.dtype), name
            )
            for name, x in zip(self.names, tensors, strict=True)
        ]
        self._dtypes = [x.dtype for x in tensors]
        # (index of the tensor, axis) of every axis without a fixed size
        self.open = [
            (i, axis)
            for i, x in enumerate(tensors)
            for axis in range(arranged, len(x.shape))
            if x.shape[axis] is None
        ]

    def named(self, structure) -> dict:
        """Returns the tensors of a structure by name."""
        return {
            spec.name: tf.cast(x, spec.dtype)
            for spec, x in zip(self.specs, flatten(structure), strict=True)
        }

    def widths(self, structure) -> list:
        """Returns the sizes of the open axes, a scalar tensor for each."""
        tensors = flatten(structure)
        return [tf.shape(tensors[i])[axis] for i, axis in self.open]

    def packed(self, tensors, widths):
        """Returns the structure, with zeros past each row's widths.

        Args:
            tensors: The structure's tensors, with any padding.
            widths: A tensor `(batch,)` of sizes for each open axis.
        """
        tensors = list(tensors)
        for (i, axis), width in zip(self.open, widths, strict=True):
            tensors[i] = zero_past(tensors[i], axis, width)
        tensors = map(tf.cast, tensors, self._dtypes)
        return pack(self._like, list(tensors))

    def cut(self, structure, like):
        """Returns a structure with its axes cut to the sizes of `like`.

        Tensors are wider than needed if wider requests were in their batch.
        The computation fails if a tensor is narrower than `like`.
        """
        tensors, likes = flatten(structure), flatten(like)
        for i, axis in [
            *((i, 1) for i in range(len(tensors)) if self._arranged > 1),
            *self.open,
        ]:
            size, given = tf.shape(likes[i])[axis], tf.shape(tensors[i])[axis]
            check = tf.debugging.Assert(
                given >= size,
                [
                    f"{self.names[i]} must be at least as wide as the encoded "
                    f"tensors and the tokens. Received along axis {axis}, and "
                    "needed:",
                    given,
                    size,
                ],
            )
            with tf.control_dependencies([check]):
                cut = [slice(None)] * axis + [slice(size)]
                static = tensors[i].shape
                tensors[i] = tensors[i][tuple(cut)]
                tensors[i].set_shape(static)
        return pack(structure, tensors)


def sent(dtype):
    """Returns the dtype in which clients send and receive such tensors."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
