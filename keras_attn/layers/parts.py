"""`Part`: the base class of scores and alignments."""

import keras

from keras_attn import arguments


class Part(keras.layers.Layer):
    """A part of an `Attention`: a score or an alignment.

    `Attention` calls its parts. After the first two arguments, `call` of a
    part may name any of these, and `Attention` passes the named ones:

    - `history`: `History` of the alignments so far. If a part takes it, the
      attention processes one target position after another. Otherwise no
      history is kept.
    - `position`: int32 tensor `(batch, target)`, the number of each query in
      its sequence, from 0.
    - `training`: Whether the model trains.

    An alignment may also name these:

    - `query`: Tensor of shape `(batch, target, query_dim)`.
    - `draws`: Result of its `draw()` for these queries in training, else
      `()`.
    - `window`: Result of its `choose()`.
    """

    # The names that `call` may have after its first two arguments.
    known: tuple[str, ...] = ("history", "position", "training")
    # How a subclass writes `call`, for an error.
    example = "call(self, ...)"

    def writes(self, method):
        """Whether a user-defined class overrides this method."""
        kinds = type(self).__mro__
        owner = next(x for x in kinds if method in vars(x))
        return not arguments.is_ours(owner)

    def require_call(self):
        """Raises `ValueError` unless `Attention` can call `call`."""
        if type(self).call is keras.layers.Layer.call:
            raise ValueError(
                f"`{type(self).__name__}` needs a method `{self.example}`. "
                "Received: a class without one. Write it, or subclass a class "
                "that has it."
            )
        names = arguments.required(self.call)
        unknown = [x for x in names[2:] if x not in self.known]
        if unknown:
            raise ValueError(
                f"`{type(self).__name__}.call` may name {_listed(self.known)} "
                "after its first two arguments. Received: "
                f"{_listed(unknown)}, which nothing would pass. Pass values "
                "of your own to the constructor instead."
            )

    def takes(self, name):
        """Whether `call` names this argument."""
        return arguments.takes(self.call, name)

    def named(self, known):
        """Returns the entries of a dictionary that `call` names."""
        return {name: x for name, x in known.items() if self.takes(name)}

    def compute_mask(self, inputs, previous_mask):
        """Returns `None`: only `Attention` handles masks."""


def _listed(names):
    return ", ".join(f"`{x}`" for x in names)
