"""Layer-normalized cells.

Both cells normalize the projection of the inputs and the projection of the
state separately, each over the units of all gates together (Ba et al., 2016).
"""

import keras
from keras import layers
from keras import ops


class _LayerNormed:
    """A mixin that adds the normalizations to a Keras cell."""

    def __init__(self, units, *, epsilon=1e-3, **kwargs):
        super().__init__(units, **kwargs)
        self.epsilon = epsilon

        def norm(name, center=False):
            return layers.LayerNormalization(
                epsilon=epsilon,
                center=center,
                dtype=self.dtype_policy,
                name=name,
            )

        self.input_norm = norm("input_norm")
        self.recurrent_norm = norm("recurrent_norm")
        self.state_norm = norm("state_norm", center=True)

    def build(self, input_shape):
        super().build(input_shape)
        gates = self.kernel.shape[-1]
        self.input_norm.build((None, gates))
        self.recurrent_norm.build((None, gates))
        self.state_norm.build((None, self.units))

    def _project(self, inputs, state, training):
        """Returns both projections, normalized: `(batch, gates * units)`."""
        if training and self.dropout:
            inputs = inputs * self.get_dropout_mask(inputs)
        if training and self.recurrent_dropout:
            state = state * self.get_recurrent_dropout_mask(state)
        return (
            self.input_norm(ops.matmul(inputs, self.kernel)),
            self.recurrent_norm(ops.matmul(state, self.recurrent_kernel)),
        )

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable("keras_attn")
class LayerNormLSTMCell(_LayerNormed, layers.LSTMCell):
    """An LSTM cell with layer normalization.

    Each `LN` is a normalization with its own learned gain:

        [i, f, g, o] = LN(W x) + LN(U h) + b
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(LN(c))

    Args:
        units: Width of the states.
        epsilon: Number added to the variances. Defaults to `0.001`.
        **kwargs: Arguments of `keras.layers.LSTMCell`.

    Call arguments:
        inputs: Tensor of shape `(batch, dim)`.
        states: The hidden state and the cell state, each `(batch, units)`.

    Output:
        The hidden state, `(batch, units)`, and the list of both new states.

    Reference:
        - [Ba et al., 2016](https://arxiv.org/abs/1607.06450), equations 20
          to 22

    Example:
        >>> rnn = keras.layers.RNN(keras_attn.LayerNormLSTMCell(8))
        >>> rnn(np.ones((2, 5, 4))).shape
        TensorShape([2, 8])
    """

    def call(self, inputs, states, training=False):
        hidden, cell = states
        projected, recurrent = self._project(inputs, hidden, training)
        gates = projected + recurrent
        if self.use_bias:
            gates = gates + self.bias
        i, f, g, o = ops.split(gates, 4, axis=-1)
        cell = self.recurrent_activation(f) * cell + self.recurrent_activation(
            i
        ) * self.activation(g)
        hidden = self.recurrent_activation(o) * self.activation(
            self.state_norm(cell)
        )
        return hidden, [hidden, cell]


@keras.saving.register_keras_serializable("keras_attn")
class LayerNormGRUCell(_LayerNormed, layers.GRUCell):
    """A GRU cell with layer normalization.

    Each `LN` is a normalization with its own learned gain:

        [z, r, x_h] = LN(W x) + b_x,   [z', r', u_h] = LN(U h) + b_h
        g = tanh(LN(x_h + sigmoid(r + r') * u_h))
        h = sigmoid(z + z') * h + (1 - sigmoid(z + z')) * g

    Args:
        units: Width of the state.
        epsilon: Number added to the variances. Defaults to `0.001`.
        **kwargs: Arguments of `keras.layers.GRUCell`; `reset_after` must be
            True, Keras's default.

    Call arguments:
        inputs: Tensor of shape `(batch, dim)`.
        states: The hidden state, `(batch, units)`.

    Output:
        The new hidden state, `(batch, units)`, and the new states.

    Raises:
        ValueError: If `reset_after` is False.

    Reference:
        - [Ba et al., 2016](https://arxiv.org/abs/1607.06450), supplementary
          material

    Example:
        >>> rnn = keras.layers.RNN(keras_attn.LayerNormGRUCell(8))
        >>> rnn(np.ones((2, 5, 4))).shape
        TensorShape([2, 8])
    """

    def __init__(self, units, *, epsilon=1e-3, **kwargs):
        super().__init__(units, epsilon=epsilon, **kwargs)
        if not self.reset_after:
            raise ValueError(
                "`LayerNormGRUCell` normalizes the whole recurrent "
                "projection, so the reset gate must come after it. Received: "
                "reset_after=False. Leave the argument out."
            )

    def call(self, inputs, states, training=False):
        nested = keras.tree.is_nested(states)
        state = states[0] if nested else states
        projected, recurrent = self._project(inputs, state, training)
        if self.use_bias:
            # As a tensor, because PyTorch cannot unstack Keras variables.
            bias = ops.convert_to_tensor(self.bias)
            input_bias, recurrent_bias = ops.unstack(bias, axis=0)
            projected = projected + input_bias
            recurrent = recurrent + recurrent_bias
        x_z, x_r, x_h = ops.split(projected, 3, axis=-1)
        h_z, h_r, h_h = ops.split(recurrent, 3, axis=-1)
        update = self.recurrent_activation(x_z + h_z)
        reset = self.recurrent_activation(x_r + h_r)
        candidate = self.activation(self.state_norm(x_h + reset * h_h))
        state = candidate + update * (state - candidate)
        return state, [state] if nested else state
