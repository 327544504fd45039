"""`Stepper`: runs one call of a layer a target position at a time."""

import keras

from keras_attn.backend import take_beams
from keras_attn.incremental.refuse import refuse
from keras_attn.keras_internals import get_keras_mask

# Attributes of layers that take `start_index`: how many positions they know.
POSITIONS = "max_length", "sequence_length"


def positions_of(layer, first=0) -> int | None:
    """Returns how many positions a layer knows from the first on, if limited.

    Args:
        layer: A layer that takes `start_index`.
        first: The `start_index` of a call. Only integers count.
    """
    known = [getattr(layer, x, None) for x in POSITIONS]
    count = next((x for x in known if x), None)
    if count is None or not isinstance(first, int):
        return count
    return count - first


class Stepper:
    """Runs one call of a layer a target position at a time.

    A search has no whole targets: a step gets the next position of each
    hypothesis. A layer that treats each position alone needs no stepper. A
    layer that depends on earlier positions does. What it keeps of them is its
    *state*. `stepper_for` registers a subclass of `Stepper` for a layer, and
    shows an example. Only `step()` must be written.

    A stepper does not loop: searches call `step()` in their own loops. They
    treat all layers alike, so three rules hold:

    - A state is a structure of tensors whose first two axes are batch and
      beams. After each step a search gathers the state of each hypothesis
      from its parent: see `reorder()`.
    - `prepare()` returns a structure of tensors and `None`, batch first. So its
      rows, and those of a state, can be moved to another batch.
    - Sizes do not change from step to step. A buffer that is filled step by
      step has room for `max_length` positions, and `time_axes()` returns its
      axis. (Searches let the buffers of the package's attentions grow.)

    This interface is provisional: it may change until more kinds of decoding
    have used it.

    Args:
        call: The `Call` of the layer. Its `arguments` are a dictionary from
            the argument names of the layer's `call` to symbolic tensors and
            other values.

    Attributes:
        call: The argument `call`.
        layer: The layer that was called.
        reads: The arguments that depend on the target, by name, as symbolic
            tensors.
        outputs: The outputs that a step returns, as symbolic tensors. A
            subclass may leave out the later ones.
    """

    position_wise = False  # whether it treats each position alone
    uses_position = False  # whether `step()` needs the position's number
    attends = False  # whether it attends to the source
    # Whether rows that are done may leave a batch between two steps. Set it if
    # every tensor of `prepare()` and of a state has a row for each source.
    rows_leave = False
    # whether XLA runs one hypothesis slower than two, as it does `EinsumDense`
    slow_alone = False
    # the longest target that it takes, None for any length
    longest: int | None = None
    # The error's text if the model uses an output that is not in `outputs`.
    only_first = "gives its first output alone"
    # Names of the layer's methods, in a tuple. A subclass that replaces one of
    # them is not stepped like the layer. None means all methods but those that
    # build, save and describe a layer.
    relies_on: tuple[str, ...] | None = None
    path = None  # the `Path` of an inner model
    restricts = False  # whether it returns only some of the layer's columns

    @classmethod
    def accepts(cls, call) -> bool:
        """Whether this stepper can run a call, if a layer has several steppers.

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
            constants: The arguments of the call by name, with values for
                tensors, and with `None` for those that depend on the target.
                `with_mask()` returns their masks.

        Returns:
            A structure of tensors and `None`, batch first. Put a tensor with
            an axis of source positions into a `Memory` of
            `keras_attn.layers.attention`, or return its mask too: an export
            pads it beside longer sources.
        """
        return ()

    def start(self, prepared, batch, beams, max_length):
        """Returns the state before the first step.

        Args:
            prepared: Result of `prepare()`.
            batch: Number of sources, an integer or a scalar tensor.
            beams: Number of hypotheses per source.
            max_length: The largest number of steps, or `None` if it is
                unknown.
        """
        return ()

    def step(self, inputs, prepared, state, position):
        """Runs one position of each hypothesis.

        Args:
            inputs: The arguments that depend on the target, by name, tensors
                `(batch, beams, ...)`: the axis of beams takes the place of
                the target's axis. In a list argument, `None` stands for
                parts that do not depend on the target.
            prepared: Result of `prepare()`.
            state: Result of `start()`, or of the last step.
            position: Number of the step, an int32 scalar; or int32 `(batch,
                beams)` if hypotheses are at different positions; or `None`
                unless the stepper sets `uses_position`.

        Returns:
            The layer's outputs, a tensor or a structure of tensors; the
            alignments `(batch, beams, source)` in float32, or `None` unless
            the stepper `attends`; and the new state.
        """
        raise NotImplementedError

    def reorder(self, state, parents):
        """Gathers the state of each hypothesis from its parent.

        Args:
            state: Result of `start()`, or of the last step.
            parents: Index of each hypothesis's parent, int32
                `(batch, beams)`.
        """
        return take_beams(state, parents)

    def time_axes(self, state):
        """Returns the axis of past positions of each tensor of a state.

        The result is a structure like the state, with an integer for each
        tensor, or `None` for a tensor without such an axis.
        """
        return keras.tree.map_structure(lambda x: None, state)

    def source_mask(self, prepared):
        """Returns the mask `(batch, source)` of the positions it attends to.

        The mask is `None` if all positions are real.
        """

    @staticmethod
    def with_mask(constants, name):
        """Returns a value among the constants, and its mask or `None`.

        The mask is the argument `<name>_mask` if it was given, else the mask
        that Keras attached to the tensor.

        Args:
            constants: The argument of `prepare()`.
            name: Name of the value.
        """
        return masked(constants.get(name), constants.get(f"{name}_mask"))

    def inputs_among(self, values) -> dict:
        """Returns the `inputs` of `step()`.

        Args:
            values: The values so far, by the `id` of the symbolic tensor.
        """
        return keras.tree.map_structure(
            lambda x: None if x is None else values[id(x)], self.reads
        )

    def constants_among(self, values) -> dict:
        """Returns the `constants` of `prepare()`."""

        def constant(x):
            if self.call.depends(x):
                return None
            return values[id(x)] if isinstance(x, keras.KerasTensor) else x

        return keras.tree.map_structure(constant, self.call.arguments)

    def outputs_with(self, returned) -> list:
        """Returns pairs of a symbolic output and its value.

        Args:
            returned: The first result of `step()`.
        """
        found = keras.tree.flatten(returned)
        if len(found) != len(self.outputs):
            raise ValueError(
                f"A step of {type(self).__name__} must return one tensor for "
                f"each of its {len(self.outputs)} `outputs`. Received: "
                f"{len(found)} tensor(s). Return `outputs, alignments, "
                "state`, with None for alignments if there are none."
            )
        return list(zip(self.outputs, found, strict=True))

    def refuse(self, reason):
        """Raises the error that a model with this call cannot be decoded.

        Args:
            reason: What the layer does and what would work instead, a clause
                to follow the layer's name, without a full stop.
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
    """Returns a constant, and its mask as given or as Keras attached it."""
    if mask is None:
        mask = keras.tree.map_structure(get_keras_mask, value)
    return value, mask
