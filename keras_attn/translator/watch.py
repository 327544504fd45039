"""Notices what changes under a translator: layers and weights."""

import numpy as np

from keras_attn.incremental.refuse import refuse_quantized
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import own_variables


class Watch:
    """Remembers layers and weights of models from its last look.

    Args:
        models: Keras models.
    """

    def __init__(self, models):
        self._models = models
        layers = [x for model in models for x in layers_within(model)]
        self._layers = list({id(x): x for x in layers}.values())
        self._variables = self._variables_now()
        # Another model that shares the weights may train them, or
        # `set_weights` may: the smallest tell.
        self._smallest = [
            min(some, key=lambda x: int(np.prod(x.shape)))
            for model in models
            for some in (model.trainable_variables, _others(model))
            if some
        ]
        self._weights = self._weights_now()

    def changed(self) -> bool:
        """Whether a layer has other variables than at the last call.

        A traced function keeps the variables that it was traced with,
        whatever a layer does later: `enable_lora` adds some, `quantize`
        replaces them.

        Raises:
            ValueError: If a layer was quantized.
        """
        refuse_quantized(self._layers)
        before, self._variables = self._variables, self._variables_now()
        return len(before) != len(self._variables) or any(
            x is not y for x, y in zip(before, self._variables, strict=True)
        )

    def moved(self) -> bool:
        """Whether training moved the weights since `settle()`."""
        return self._weights != self._weights_now()

    def settle(self) -> None:
        """Takes the weights as they are for those that it knows."""
        self._weights = self._weights_now()

    def unsettle(self) -> None:
        """Takes any weights for moved ones."""
        self._weights = None

    def _variables_now(self):
        return [x for layer in self._layers for x in own_variables(layer)]

    def _weights_now(self):
        """Cheap, for it is taken at every call."""
        optimizers = [
            getattr(model, "optimizer", None) for model in self._models
        ]
        return [
            *((id(x), int(x.iterations)) for x in optimizers if x is not None),
            *(x.numpy().tobytes() for x in self._smallest),
        ]


def _others(model):
    """Its weights that are not trained, but for the seeds of draws."""
    return [x for x in model.non_trainable_weights if "float" in x.dtype]
