"""`LogitBias`: a learned bias for the logit of each token."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_attn")
class LogitBias(keras.layers.Layer):
    """Adds a learned bias to the logit of each token.

    An output layer that shares its matrix with the embedding, such as
    `keras.layers.ReversibleEmbedding`, has no bias. Marian's models have one.

    Args:
        bias_initializer: Initializer of the bias. Defaults to `"zeros"`.

    Call arguments:
        inputs: Logits of shape `(batch, ..., tokens)`.

    Output:
        Tensor like `inputs`.

    Example:
        >>> keras_attn.LogitBias("ones")(np.zeros((1, 1, 2)))[0, 0].numpy()
        array([1., 1.], dtype=float32)
    """

    def __init__(self, bias_initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(self, inputs_shape):
        self.bias = self.add_weight(
            name="bias",
            shape=(inputs_shape[-1],),
            initializer=self.bias_initializer,
        )

    def call(self, inputs):
        return inputs + ops.cast(self.bias, self.compute_dtype)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "bias_initializer": keras.initializers.serialize(
                self.bias_initializer
            ),
        }
