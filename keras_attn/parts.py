"""`Part`: the base class of scores and alignments."""

import keras

from keras_attn import arguments


class Part(keras.layers.Layer):
    """A part of an `Attention`: a score or an alignment.

    A part is not called by itself. After its first two arguments, `call` may
    name any of these, and `Attention` passes the named ones:

    - `query`: Tensor of shape `(batch, target, query_dim)`.
    - `history`: `History` of the alignments so far. If a part takes it, the
      attention attends for one target position after another. Otherwise no
      history is kept.
    - `position`: int32 tensor `(batch, target)`, the number of each query in
      its sequence, from 0.
    - `training`: Whether the model trains.

    An alignment may also name these:

    - `draws`: Result of its `draw()` for these queries in training, else
      `()`.
    - `window`: Result of its `choose()`.
    """

    def takes(self, name):
        """Whether `call` names this argument."""
        return arguments.takes(self.call, name)

    def named(self, known):
        """Returns the entries of a dictionary that `call` names."""
        return {name: x for name, x in known.items() if self.takes(name)}

    def compute_mask(self, inputs, previous_mask):
        """Returns `None`: only `Attention` handles masks."""
