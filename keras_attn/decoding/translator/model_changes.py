"""`ModelChanges`: detects changed layers and weights of models."""

import numpy as np

from keras_attn.incremental.refuse import refuse_quantized
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import own_variables


class ModelChanges:
    """Remembers variables and weights of models, to detect changes.

    Args:
        models: Keras models.
    """

    def __init__(self, models):
        self._models = models
        layers = [x for model in models for x in layers_within(model)]
        self._layers = list({id(x): x for x in layers}.values())
        self._variables = self._variables_now()
        # The optimizers' iterations do not show changes through `set_weights`
        # or through another model that shares the weights. The values of the
        # smallest weights do.
        self._smallest = [
            min(some, key=lambda x: int(np.prod(x.shape)))
            for model in models
            for some in (model.trainable_variables, _others(model))
            if some
        ]
        self._weights = self._weights_now()

    def changed(self) -> bool:
        """Returns whether a layer's variables changed since the last call.

        A traced function keeps the variables that it was traced with, even
        if `enable_lora` adds some to the layer or `quantize` replaces them.

        Raises:
            ValueError: If a layer was quantized.
        """
        refuse_quantized(self._layers)
        before, self._variables = self._variables, self._variables_now()
        return len(before) != len(self._variables) or any(
            x is not y for x, y in zip(before, self._variables, strict=True)
        )

    def moved(self) -> bool:
        """Returns whether the weights changed since the last `settle()`."""
        return self._weights != self._weights_now()

    def settle(self) -> None:
        """Remembers the current weights as checked."""
        self._weights = self._weights_now()

    def unsettle(self) -> None:
        """Forgets the weights, so that `moved()` is true."""
        self._weights = None

    def _variables_now(self):
        return [x for layer in self._layers for x in own_variables(layer)]

    def _weights_now(self):
        """Returns a fingerprint of the weights, cheap enough for each call."""
        optimizers = [
            getattr(model, "optimizer", None) for model in self._models
        ]
        return [
            *((id(x), int(x.iterations)) for x in optimizers if x is not None),
            *(x.numpy().tobytes() for x in self._smallest),
        ]


def _others(model):
    """Returns non-trainable float weights, so no seeds of random draws."""
    return [x for x in model.non_trainable_weights if "float" in x.dtype]
