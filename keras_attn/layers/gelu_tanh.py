"""`gelu_tanh`: the activation of GPT-2 and T5 1.1."""

import keras


@keras.saving.register_keras_serializable("keras_attn")
def gelu_tanh(x):
    """Returns the tanh approximation of GELU.

    By default `keras.activations.gelu` is exact. Models that were trained with
    the approximation, Hugging Face's `gelu_new`, need this function.

    Args:
        x: Tensor of any shape.

    Returns:
        Tensor of the same shape.

    References:
        - [Hendrycks and Gimpel, 2016](https://arxiv.org/abs/1606.08415),
          section 2
    """
    return keras.activations.gelu(x, approximate=True)
