"""Notices layers that changed under a translator: LoRA, quantization."""

from keras_attn.incremental.refuse import refuse_quantized


class Watch:
    """The layers of some models, and which variables they had.

    A traced function keeps the variables that it was traced with, whatever
    a layer does later: `enable_lora` adds some, `quantize` replaces them.

    Args:
        models: Keras models.
    """

    def __init__(self, models):
        layers = [x for model in models for x in model._flatten_layers()]
        self._layers = list({id(x): x for x in layers}.values())
        self._variables = self._now()

    def changed(self) -> bool:
        """Whether a layer has other variables than at the last call.

        Raises:
            ValueError: If a layer was quantized.
        """
        refuse_quantized(self._layers)
        before, self._variables = self._variables, self._now()
        return len(before) != len(self._variables) or any(
            x is not y for x, y in zip(before, self._variables, strict=True)
        )

    def _now(self):
        # Not `layer.variables`, which walks through all layers within.
        return [
            x
            for layer in self._layers
            for x in (
                *layer._trainable_variables,
                *layer._non_trainable_variables,
            )
        ]
