"""Tensors that cross the border of `encode` and `step`, by name.

Clients hold them between two calls, and a server may join those of several
clients in one batch, where it pads what is narrower with anything. So the
widths of a row's tensors go with them, and on the way in whatever is past
these is zero.
"""

import tensorflow as tf

from keras_attn.export.lengths import zero_past
from keras_attn.structures import flatten
from keras_attn.structures import pack


class Border:
    """A structure of tensors, flat and by name outside of a signature.

    Args:
        name: Their name, to which a number is added.
        structure: The structure, of symbolic tensors.
        arranged: How many of the first axes a client arranges: the batch,
            or batch and hypotheses.
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
        # Number of the tensor and axis, of all whose size is not fixed.
        self.open = [
            (i, axis)
            for i, x in enumerate(tensors)
            for axis in range(arranged, len(x.shape))
            if x.shape[axis] is None
        ]

    def named(self, structure) -> dict:
        """The tensors of such a structure by their names."""
        return dict(zip(self.names, flatten(structure), strict=True))

    def widths(self, structure) -> list:
        """Sizes of the open axes."""
        tensors = flatten(structure)
        return [tf.shape(tensors[i])[axis] for i, axis in self.open]

    def packed(self, tensors, widths):
        """The structure again.

        Args:
            tensors: Its tensors, padded anyhow.
            widths: Sizes `(batch,)` of the open axes, one for each.
        """
        tensors = list(tensors)
        for (i, axis), width in zip(self.open, widths, strict=True):
            tensors[i] = zero_past(tensors[i], axis, width)
        return pack(self._like, tensors)

    def cut(self, structure, like):
        """Cuts the axes of a structure to the sizes of one like it.

        What comes back from a batch with wider neighbours is wider itself.
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
                    f"{self.names[i]} must be as wide as what is encoded and "
                    f"as the tokens. Received along axis {axis}, wanted:",
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
