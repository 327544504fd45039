"""The loss that a model is compiled with."""

import functools
import inspect

import keras
import numpy as np
from keras import ops

from keras_attn.diagnostics.first_batches import first_of
from keras_attn.keras_internals import set_keras_mask


class Objective:
    """The loss of a compiled model's first output.

    Args:
        model: A model.

    Attributes:
        loss: A `keras.losses.Loss`, a function, or `None` if the model is not
            compiled or has no loss for its first output.
    """

    def __init__(self, model):
        given = model.loss if model.compiled else None
        if isinstance(given, (list, tuple, dict)):
            given = first_of(given, model.output_names[0])
        self.loss = keras.losses.get(given)

    def __bool__(self):
        return self.loss is not None

    @property
    def name(self):
        """The name of the loss as a user would write it."""
        if isinstance(self.loss, keras.losses.Loss):
            name = type(self.loss).__name__
            return f"`{name}`"
        return f"`{getattr(self.loss, '__name__', self.loss)}`"

    @property
    def sparse(self):
        """`True` if targets are ids, `False` if one-hot, `None` if unknown."""
        name = self._plain_name
        if name in ("sequencecrossentropy", "sparsecategoricalcrossentropy"):
            return True
        if name in ("categoricalcrossentropy", "categoricalfocalcrossentropy"):
            return False
        return None

    @property
    def padding_id(self):
        """The target id that the loss leaves out, `None` if unknown."""
        return getattr(self.loss, "padding_id", None)

    @property
    def from_logits(self):
        """`True` for logits, `False` for probabilities, else `None`."""
        if self._plain_name == "sequencecrossentropy":
            return getattr(self.loss, "from_logits", True)
        if isinstance(self.loss, keras.losses.Loss):
            try:
                return self.loss.get_config().get("from_logits")
            except NotImplementedError:  # a custom loss without a config
                return None
        function, given = self.loss, {}
        while isinstance(function, functools.partial):
            given = {**function.keywords, **given}
            function = function.func
        if "from_logits" in given:
            return given["from_logits"]
        try:
            found = inspect.signature(function).parameters.get("from_logits")
        except (TypeError, ValueError):
            return None
        return None if found is None else found.default

    def of(self, target, logits, mask, weight):
        """Returns the mean loss of a batch, a float."""
        logits = ops.convert_to_tensor(logits)
        target = ops.convert_to_tensor(target)
        if mask is not None:
            set_keras_mask(logits, ops.convert_to_tensor(mask))
        if isinstance(self.loss, keras.losses.Loss):
            value = self.loss(target, logits, sample_weight=weight)
        else:
            value = self.loss(target, logits)
            if mask is not None:
                value = ops.where(mask, value, 0.0)
        return float(np.mean(ops.convert_to_numpy(value)))

    @property
    def _plain_name(self):
        kind = self.loss
        if isinstance(kind, keras.losses.Loss):
            kind = type(kind)
        while isinstance(kind, functools.partial):
            kind = kind.func
        return getattr(kind, "__name__", "").replace("_", "").lower()
