"""The output of a decoder, computed from the cell's output and the context.

Each class emits the outputs of any number of steps at once.
"""

from keras import ops

from keras_attn.layers.attention.heads import apply_to_rows


class CellAlone:
    """Emits the output of the cell: a decoder without attention."""

    def width(self, output_dim, context_dim):
        """Returns the width of the emitted output."""
        return output_dim

    def build(self, output_dim, context_dim):
        """Creates the weights."""

    def emit(self, output, context):
        """Returns the decoder's output, `(batch, length, dim)`.

        Args:
            output: The cell's output, `(batch, length, output_dim)`.
            context: Tensor of shape `(batch, length, context_dim)`.
        """
        return output


class Concatenated(CellAlone):
    """Emits `[output; context]`."""

    def width(self, output_dim, context_dim):
        return output_dim + context_dim

    def emit(self, output, context):
        return ops.concatenate([output, context], axis=-1)


class Attentional(CellAlone):
    """Emits `tanh(Wc [output; context])` (Luong et al., 2015, equation 5).

    Args:
        dense: The dense layer with the kernel `Wc`.
    """

    def __init__(self, dense):
        self.dense = dense

    def build(self, output_dim, context_dim):
        if not self.dense.built:
            self.dense.build((None, None, output_dim + context_dim))

    def emit(self, output, context):
        both = ops.concatenate([output, context], axis=-1)
        return apply_to_rows(self.dense, both)
