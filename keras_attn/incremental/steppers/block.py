"""`BlockStepper`: the base of steppers of whole decoder blocks."""

from keras import ops

from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.stepper import masked
from keras_attn.incremental.steppers.attention import require_length
from keras_attn.incremental.steppers.attention import require_no_padding
from keras_attn.incremental.steppers.attention import time_axes_of


class BlockStepper(Stepper):
    """Runs the parts of a decoder block in turn, as the block's `call` does.

    A block attends to its past and to the source. It keeps the source as a
    `Memory`, once per source, and its past as a `Past`. The block's own caches
    are not used, because they would hold the source once per hypothesis.

    A subclass names the block's arguments, and writes `source_heads()`,
    `past()` and `step()`.

    Attributes:
        target_name: Argument that holds the target's hidden states.
        source_name: Argument that holds the source's hidden states.
        target_mask_name: Argument that is the mask of the target.
        source_mask_name: Argument that is the mask of the source.
        takes_attached_mask: Whether the block uses the mask that Keras attached
            to the source if it gets no mask of the source.
        left_out: Arguments that must not be given.
    """

    rows_leave = True
    slow_alone = True
    attends = True
    target_name = "decoder_sequence"
    source_name = "encoder_sequence"
    target_mask_name = "decoder_padding_mask"
    source_mask_name = "encoder_padding_mask"
    takes_attached_mask = False
    left_out: tuple[str, ...] = ()

    def __init__(self, call):
        super().__init__(call)
        given = call.arguments
        self.require_constant(
            **{
                self.source_name: self.source_of(given),
                self.source_mask_name: given.get(self.source_mask_name),
            }
        )
        for name in self.left_out:
            if given.get(name) is not None:
                self.refuse(f"has `{name}`; leave it out")
        require_no_padding(self, self.target_mask_name)

    def target_of(self, arguments):
        """Returns the target's hidden states among the arguments."""
        return arguments[self.target_name]

    def source_of(self, arguments):
        """Returns the source's hidden states among the arguments."""
        return arguments.get(self.source_name)

    def mask_of_source(self, constants):
        """Returns the mask `(batch, source)` of any type, or `None`."""
        mask = constants.get(self.source_mask_name)
        if self.takes_attached_mask:
            _, mask = masked(self.source_of(constants), mask)
        return mask

    def source_heads(self):
        """Returns the attention to the source, with `Attention`'s methods."""
        raise NotImplementedError

    def past(self, position):
        """Returns the `OwnPast` of queries and keys at a position.

        Args:
            position: As `step()` gets it, or zero.
        """
        raise NotImplementedError

    def prepare(self, constants):
        if not self.attends:
            return ()
        mask = self.mask_of_source(constants)
        mask = None if mask is None else ops.cast(mask, "bool")
        return self.source_heads().prepare(
            self.source_of(constants), value_mask=mask
        )

    def start(self, prepared, batch, beams, max_length):
        require_length(self.layer, max_length)
        width = self.target_of(self.reads).shape[-1]
        one = ops.zeros((batch, beams, width), self.layer.compute_dtype)
        return self.past(ops.zeros((), "int32")).start(one, max_length)

    def source_mask(self, prepared):
        return prepared.mask if self.attends else None

    def time_axes(self, state):
        return time_axes_of(state)
