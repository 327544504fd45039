"""A cell with a residual connection."""

import keras
from keras import layers
from keras import ops

from keras_attn.keras_internals import DropoutRNNCell
from keras_attn.layers.cells.step import output_size
from keras_attn.layers.cells.step import run
from keras_attn.layers.cells.step import state_sizes


@keras.saving.register_keras_serializable("keras_attn")
class ResidualCell(DropoutRNNCell, keras.layers.Layer):
    """Adds the inputs to a cell's output; the states are the cell's.

    If the inputs are wider than the output, only their first part is added. A
    decoder that feeds a context to the cells of a stack concatenates it after
    that part. The bottom cell of a stack reads an embedding and usually has
    no residual connection.

    Args:
        cell: A Keras RNN cell.

    Call arguments:
        inputs: Tensor of shape `(batch, dim)`, at least as wide as the
            output.
        states: The states of the cell.

    Output:
        The output, `(batch, output_dim)`, and the cell's new states.

    Raises:
        ValueError: If `cell` is not a single RNN cell, or if the inputs are
            narrower than its output.

    Reference:
        - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 3.1

    Example:
        >>> stack = [keras.layers.GRUCell(8),
        ...          keras_attn.ResidualCell(keras.layers.GRUCell(8))]
        >>> decoder = keras_attn.AttentionDecoder(
        ...     stack, keras_attn.BahdanauAttention(8))
        >>> decoder(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape
        TensorShape([2, 3, 8])
    """

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        if isinstance(cell, layers.StackedRNNCells):
            raise ValueError(
                "`ResidualCell` wraps a single cell. Received: a stack of "
                f"{len(cell.cells)} cells. Pass `[ResidualCell(a), "
                "ResidualCell(b)]` as the stack."
            )
        if not hasattr(cell, "state_size") or isinstance(cell, layers.RNN):
            raise ValueError(
                "`ResidualCell` wraps a Keras RNN cell, with `call` and "
                f"`state_size`. Received: {cell!r:.80}. Pass for example "
                "`keras.layers.GRUCell(256)`."
            )
        self.cell = cell
        self.state_size = cell.state_size
        self.output_size = output_size(cell)

    def build(self, input_shape):
        if input_shape[-1] < self.output_size:
            raise ValueError(
                "A residual cell adds its inputs to its output, so the inputs "
                "must be at least as wide as it. Received: inputs of width "
                f"{input_shape[-1]} for an output of width "
                f"{self.output_size}. Use the cell without `ResidualCell`, or "
                "make it narrower."
            )
        if not self.cell.built:
            self.cell.build(input_shape)

    def call(self, inputs, states, training=False):
        # (batch, dim) -> (batch, one beam, dim)
        flat = keras.tree.flatten(states)
        output, new_states = run(
            self.cell,
            ops.expand_dims(inputs, 1),
            [ops.expand_dims(x, 1) for x in flat],
            training,
        )
        new_states = [ops.squeeze(x, 1) for x in new_states]
        if keras.tree.is_nested(states):
            new_states = keras.tree.pack_sequence_as(states, new_states)
        else:
            (new_states,) = new_states
        output = ops.squeeze(output, 1) + inputs[:, : self.output_size]
        return output, new_states

    # Keras's RNN draws and resets dropout masks through these.

    @property
    def dropout(self):
        """Dropout rate of the wrapped cell's inputs."""
        return getattr(self.cell, "dropout", 0.0)

    @property
    def recurrent_dropout(self):
        """Dropout rate of the wrapped cell's recurrent state."""
        return getattr(self.cell, "recurrent_dropout", 0.0)

    def get_dropout_mask(self, step_input):
        """Returns the wrapped cell's dropout mask, or `None`."""
        if isinstance(self.cell, DropoutRNNCell):
            return self.cell.get_dropout_mask(step_input)
        return None

    def get_recurrent_dropout_mask(self, step_input):
        """Returns the wrapped cell's recurrent dropout mask, or `None`."""
        if isinstance(self.cell, DropoutRNNCell):
            return self.cell.get_recurrent_dropout_mask(step_input)
        return None

    def reset_dropout_mask(self):
        """Makes the wrapped cell draw another dropout mask."""
        if isinstance(self.cell, DropoutRNNCell):
            self.cell.reset_dropout_mask()

    def reset_recurrent_dropout_mask(self):
        """Makes the wrapped cell draw another recurrent dropout mask."""
        if isinstance(self.cell, DropoutRNNCell):
            self.cell.reset_recurrent_dropout_mask()

    def get_initial_state(self, batch_size=None):
        """Returns the wrapped cell's initial states, usually zeros."""
        if hasattr(self.cell, "get_initial_state"):
            return self.cell.get_initial_state(batch_size=batch_size)
        return [
            ops.zeros((batch_size, size), dtype=self.compute_dtype)
            for size in state_sizes(self.cell)
        ]

    def get_config(self):
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if isinstance(config["cell"], dict):
            config["cell"] = keras.saving.deserialize_keras_object(
                config["cell"]
            )
        return cls(**config)
