"""`Stepper`: what runs one call of a layer a target position at a time."""

import keras

from keras_attn.backend import take_beams
from keras_attn.incremental.refuse import refuse
from keras_attn.keras_internals import get_keras_mask


class Stepper:
    """Runs one call of a layer a target position at a time.

    In a search there are no target positions beside each other: a step is
    given the next one of each hypothesis. A layer that treats each position
    alone needs no stepper. One that remembers those before does; what it
    must remember is its *state*. `stepper_for` registers a subclass of this
    for a layer, and has an example. Only `step()` must be written.

    A stepper does not loop: searches call `step()` in loops of their own, and
    do three things with what it returns, for all layers alike:

    - A state is a structure of tensors, whose first two axes are batch and
      beams. After each step a search takes for each hypothesis the state of
      its parent: see `reorder()`.
    - What is prepared is a structure of tensors and `None`, batch first. So
      rows of a batch can be taken from it and from a state, and be decoded
      beside others.
    - Sizes do not change from step to step: what grows has room for
      `max_length` positions, and `time_axes()` says where.

    This interface is provisional: it may change until more kinds of decoding
    have used it.

    Args:
        call: The `Call` of the layer. Its `arguments` are a dictionary by
            the names that the layer's `call` has for them, with symbolic
            tensors.

    Attributes:
        call: The same.
        layer: The layer that was called.
        reads: The arguments that depend on the target, by name, as symbolic
            tensors.
        outputs: The outputs that a step returns, symbolic tensors; all, if a
            subclass does not leave out the later ones.
    """

    position_wise = False  # whether it treats each position alone
    uses_position = False  # whether `step()` is told its number
    attends = False  # whether it attends to the source
    recurrent = False  # whether rounding errors may grow from step to step
    longest: int | None = None  # positions that it knows, None for any number
    only_first = "gives its first output alone"  # said of the others
    # The methods of a layer that a subclass may not replace and still be
    # stepped as the layer, a tuple of names. None stands for all but those
    # that build, save and describe it.
    relies_on: tuple[str, ...] | None = None
    path = None  # of a model within the model

    @classmethod
    def accepts(cls, call) -> bool:
        """Whether it is for such a call, where a layer has several steppers.

        The stepper that was registered last is asked first.
        """
        return True

    def __init__(self, call):
        self.call = call
        self.layer = call.layer
        self.outputs = call.outputs
        self.reads = {
            name: keras.tree.map_structure(
                lambda x: x if call.depends(x) else None, argument
            )
            for name, argument in call.arguments.items()
            if call.depends(argument)
        }

    def prepare(self, constants):
        """Computes what no step changes, once for each source.

        Args:
            constants: The arguments of the call by name. Values stand for
                tensors, whose masks `with_mask()` returns; `None` stands for
                those that depend on the target.

        Returns:
            A structure of tensors and `None`, batch first. What has an axis
            of source positions belongs into a `keras_attn.Memory`, or has
            its mask beside it: an export pads it beside longer sources.
        """
        return ()

    def start(self, prepared, batch, beams, max_length):
        """Returns the state before the first step.

        Args:
            prepared: What `prepare()` returned.
            batch: Number of sources, an integer or a scalar tensor.
            beams: Number of hypotheses of each.
            max_length: How many steps there may be, or `None` where nobody
                knows.
        """
        return ()

    def step(self, inputs, prepared, state, position):
        """Runs one position of each hypothesis.

        Args:
            inputs: The arguments that depend on the target by name, tensors
                `(batch, beams, ...)`: without the axis of the target, and
                with hypotheses in its place. Where an argument is a list,
                `None` stands for what does not depend on the target.
            prepared: What `prepare()` returned.
            state: What `start()` or the last step returned.
            position: Number of the step: an int32 scalar; `(batch, beams)`
                where hypotheses stand at different ones; or `None` where
                nobody has set `uses_position`.

        Returns:
            What the layer returns, a tensor or a structure of them; the
            alignments `(batch, beams, source)` in float32, `None` unless it
            `attends`; and the new state.
        """
        raise NotImplementedError

    def reorder(self, state, parents):
        """Returns the state of hypotheses that go on from others.

        Args:
            state: What `start()` or the last step returned.
            parents: Which hypothesis each goes on from, int32
                `(batch, beams)`.
        """
        return take_beams(state, parents)

    def time_axes(self, state):
        """Returns the axis of past positions of each tensor of a state.

        A structure like the state, of integers, and `None` for a tensor that
        has no such axis.
        """
        return keras.tree.map_structure(lambda x: None, state)

    def source_mask(self, prepared):
        """Returns the mask `(batch, source)` of what it attends to.

        `None` where all of it is real.
        """

    @staticmethod
    def with_mask(constants, name):
        """Returns an argument of `prepare()` and its mask, or `None`.

        That is the argument `<name>_mask` if it was given, and else the mask
        that Keras passes along with the tensor.

        Args:
            constants: What `prepare()` is given.
            name: Name of the argument.
        """
        return masked(constants.get(name), constants.get(f"{name}_mask"))

    def inputs_among(self, values) -> dict:
        """Returns what `step()` is given, by name.

        Args:
            values: The values so far by the `id` of the symbolic tensor.
        """
        return keras.tree.map_structure(
            lambda x: None if x is None else values[id(x)], self.reads
        )

    def constants_among(self, values) -> dict:
        """Returns what `prepare()` is given, by name."""

        def constant(x):
            if self.call.depends(x):
                return None
            return values[id(x)] if isinstance(x, keras.KerasTensor) else x

        return keras.tree.map_structure(constant, self.call.arguments)

    def outputs_with(self, returned) -> list:
        """Returns pairs of a symbolic output and its value.

        Args:
            returned: What `step()` returned first.
        """
        found = keras.tree.flatten(returned)
        if len(found) != len(self.outputs):
            raise ValueError(
                f"A step of {type(self).__name__} returns a structure of as "
                f"many tensors as it has `outputs`, {len(self.outputs)}, then "
                "the alignments or None, then the state. Received: "
                f"{len(found)} tensor(s)."
            )
        return list(zip(self.outputs, found, strict=True))

    def refuse(self, reason):
        """Raises the error that a model with this call cannot be decoded.

        Args:
            reason: What the layer does, and what would work, to follow the
                layer's name, without a full stop.
        """
        refuse(self.layer, reason)

    def require_constant(self, **arguments):
        """Refuses arguments of the call that depend on the target."""
        for name, argument in arguments.items():
            if self.call.depends(argument):
                self.refuse(
                    f"has a `{name}` that depends on the target; it must come "
                    "from the source alone"
                )


def masked(value, mask):
    """Returns a constant and its mask, as given or by Keras."""
    if mask is None:
        mask = keras.tree.map_structure(get_keras_mask, value)
    return value, mask
