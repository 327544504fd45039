"""What scores and alignments have in common."""

import keras

from keras_attn import arguments


class Part(keras.layers.Layer):
    """A piece of an `Attention`, which gives it what its `call` names.

    A part is not called by itself. Beside its first two arguments, `call`
    may name any of these, and `Attention` passes them:

    - `query`: Tensor of shape `(batch, target, query_dim)`.
    - `history`: `History` of the alignments so far. An attention of which a
      part takes it attends for one target position after another; where no
      part does, none is kept.
    - `position`: int32 tensor `(batch, target)`, the number of each query in
      its sequence, from 0.
    - `training`: Whether the model trains.

    and an alignment also:

    - `draws`: What its `draw()` returned for these queries, in training; else
      `()`.
    - `window`: What its `choose()` returned.
    """

    def takes(self, name):
        """Whether `call` names this argument."""
        return arguments.takes(self.call, name)

    def named(self, known):
        """Returns those of a dictionary that `call` names."""
        return {name: x for name, x in known.items() if self.takes(name)}

    def compute_mask(self, inputs, previous_mask):
        """None: `Attention` minds the masks, parts carry none."""
