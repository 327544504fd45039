"""Named tensors that `encode` and `step` exchange with clients.

Clients keep them between two calls. A server may join those of several
clients in one batch, and pads the narrower tensors with arbitrary values. So
each row comes with the widths of its tensors, and a `step` first sets all
values past these to zero.
"""

import tensorflow as tf

from keras_attn.export.tf_saved_model.lengths import zero_past
from keras_attn.structures import flatten
from keras_attn.structures import pack


class Border:
    """Converts a structure of tensors to named tensors and back.

    Args:
        name: The tensors' name, to which a number is appended.
        structure: The structure, of symbolic tensors.
        arranged: Number of first axes that a client chooses: 1, the batch, or
            2, batch and hypotheses.
    """

    def __init__(self, name, structure, arranged):
        self._name, self._like, self._arranged = name, structure, arranged
        tensors = flatten(structure)
        self.names = [f"{name}_{i}" for i in range(len(tensors))]
        self.specs = [
            tf.TensorSpec(
                [*[None] * arranged, *x.shape[arranged:]], x.dtype, name
            )
            for name, x in zip(self.names, tensors, strict=True)
        ]
        # (index of the tensor, axis) of every axis without a fixed size
        self.open = [
            (i, axis)
            for i, x in enumerate(tensors)
            for axis in range(arranged, len(x.shape))
            if x.shape[axis] is None
        ]

    def named(self, structure) -> dict:
        """Returns the tensors of a structure by name."""
        return dict(zip(self.names, flatten(structure), strict=True))

    def widths(self, structure) -> list:
        """Returns the sizes of the open axes."""
        tensors = flatten(structure)
        return [tf.shape(tensors[i])[axis] for i, axis in self.open]

    def packed(self, tensors, widths):
        """Returns the structure, zero past each row's widths.

        Args:
            tensors: Its tensors, with any padding.
            widths: Sizes `(batch,)`, one for each open axis.
        """
        tensors = list(tensors)
        for (i, axis), width in zip(self.open, widths, strict=True):
            tensors[i] = zero_past(tensors[i], axis, width)
        return pack(self._like, tensors)

    def cut(self, structure, like):
        """Cuts a structure's axes to the sizes of `like`.

        Tensors from a batch with wider neighbours are wider than needed.
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
                    f"{self.names[i]} must be as wide as the encoded tensors "
                    f"and the tokens. Received along axis {axis}, wanted:",
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
