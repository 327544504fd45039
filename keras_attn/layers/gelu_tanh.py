"""`gelu_tanh`: the activation of GPT-2 and T5 1.1."""

import keras


@keras.saving.register_keras_serializable("keras_attn")
def gelu_tanh(x):
    """Returns GELU by its approximation with tanh.

    `keras.activations.gelu` without arguments is exact. Models that were
    trained with this one, Hugging Face's `gelu_new`, need it.

    Args:
        x: Tensor.

    References:
        - [Hendrycks and Gimpel, 2016](https://arxiv.org/abs/1606.08415),
          section 2
    """
    return keras.activations.gelu(x, approximate=True)
