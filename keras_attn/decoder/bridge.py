"""From what an encoder ends with to what a decoder's cell starts with."""

import keras
from keras import layers


@keras.saving.register_keras_serializable("keras_attn")
class DenseBridge(keras.layers.Layer):
    """Makes each state by a tanh layer on all that the encoder gave.

    Args:
        sizes: Widths of the states to make.

    Call arguments:
        inputs: Tensor of shape `(batch, dim)`.

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
    """The layer that an argument `bridge` stands for, or `None`."""
    if bridge is None or isinstance(bridge, keras.layers.Layer):
        return bridge
    if bridge == "dense":
        return DenseBridge(sizes, dtype=dtype, name="bridge")
    raise ValueError(
        '`bridge` must be None, "dense" or a Keras layer that makes the '
        f"first states. Received: bridge={bridge!r}"
    )
