"""From the encoder's last states to the first states of a decoder's cell."""

import keras
from keras import layers


@keras.saving.register_keras_serializable("keras_attn")
class DenseBridge(keras.layers.Layer):
    """Computes each state from all of the encoder's states by a tanh layer.

    Args:
        sizes: Widths of the states to compute.

    Call arguments:
        inputs: Tensor of shape `(batch, dim)`, the encoder's states,
            concatenated.

    Output:
        A list of tensors `(batch, size)`.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473), appendix
          A.2.2: `s_0 = tanh(W_s h_1)`
    """

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        self.sizes = list(sizes)
        self.dense = [
            layers.Dense(
                size, activation="tanh", dtype=self.dtype_policy, name=f"{i}"
            )
            for i, size in enumerate(self.sizes)
        ]

    def build(self, inputs_shape):
        for dense in self.dense:
            dense.build(inputs_shape)

    def call(self, inputs):
        return [dense(inputs) for dense in self.dense]

    def get_config(self):
        return {**super().get_config(), "sizes": self.sizes}


def make_bridge(bridge, sizes, dtype):
    """Returns the layer for a `bridge` argument, or `None`."""
    if bridge is None or isinstance(bridge, keras.layers.Layer):
        return bridge
    if bridge == "dense":
        return DenseBridge(sizes, dtype=dtype, name="bridge")
    raise ValueError(
        '`bridge` must be None, "dense" or a Keras layer that makes the '
        f'first states. Received: bridge={bridge!r}. Pass "dense" to make '
        "states of any width fit the cell."
    )
