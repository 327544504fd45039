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
    def left_out(self):
        """The target id that the loss leaves out, `None` if there is none.

        It is the padding id, or `ignore_class`, which may be no token's id.
        """
        given = self.padding_id
        return self._option("ignore_class") if given is None else given

    @property
    def from_logits(self):
        """`True` for logits, `False` for probabilities, else `None`."""
        if self._plain_name == "sequencecrossentropy":
            return getattr(self.loss, "from_logits", True)
        return self._option("from_logits")

    def _option(self, name):
        """Returns the value of an option of the loss, `None` if unknown."""
        if isinstance(self.loss, keras.losses.Loss):
            try:
                return self.loss.get_config().get(name)
            except NotImplementedError:  # a custom loss without a config
                return None
        function, given = self.loss, {}
        while isinstance(function, functools.partial):
            given = {**function.keywords, **given}
            function = function.func
        if name in given:
            return given[name]
        try:
            found = inspect.signature(function).parameters.get(name)
        except (TypeError, ValueError):
            return None
        return None if found is None else found.default

    def of(self, target, logits, mask, weight):
        """Returns the mean loss of a batch, a float."""
        logits = ops.convert_to_tensor(logits)
        target = ops.convert_to_tensor(target)
        if mask is not None:
            set_keras_mask(logits, ops.convert_to_tensor(mask))
        loss = self.loss
        if not isinstance(loss, keras.losses.Loss):
            loss = _Function(loss)
        value = loss(target, logits, sample_weight=weight)
        return float(np.mean(ops.convert_to_numpy(value)))

    @property
    def _plain_name(self):
        kind = self.loss
        if isinstance(kind, keras.losses.Loss):
            kind = type(kind)
        while isinstance(kind, functools.partial):
            kind = kind.func
        return getattr(kind, "__name__", "").replace("_", "").lower()


class _Function(keras.losses.Loss):
    """A function as a loss with masks and sample weights, as in `fit`."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def call(self, y_true, y_pred):
        return self._function(y_true, y_pred)
