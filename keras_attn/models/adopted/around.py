"""Layers between a translator's ids and what a model reads and returns."""

import keras
from keras import ops

from keras_attn.incremental import Stepper
from keras_attn.incremental import stepper_for


@keras.saving.register_keras_serializable("keras_attn")
class OneHot(keras.layers.Layer):
    """Turns ids into vectors with a single 1.

    Args:
        size: Length of a vector.
        padding: Id whose vector is all zeros, or `None`.
    """

    def __init__(self, size: int, padding: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.size = size
        self.padding = padding

    def call(self, inputs):
        found = ops.one_hot(inputs, self.size, dtype=self.compute_dtype)
        if self.padding is None:
            return found
        real = ops.cast(ops.not_equal(inputs, self.padding), found.dtype)
        return found * ops.expand_dims(real, -1)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.size)

    def get_config(self):
        own = {"size": self.size, "padding": self.padding}
        return super().get_config() | own


@keras.saving.register_keras_serializable("keras_attn")
class Replaced(keras.layers.Layer):
    """Replaces one id with another.

    Args:
        old: The id to replace.
        new: The id in its place.
    """

    def __init__(self, old: int, new: int, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.old = old
        self.new = new

    def call(self, inputs):
        return ops.where(ops.equal(inputs, self.old), self.new, inputs)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | {"old": self.old, "new": self.new}


@keras.saving.register_keras_serializable("keras_attn")
class PadTo(keras.layers.Layer):
    """Pads ids `(batch, time)` to one length; longer rows are cut.

    Args:
        length: The length, or `None` to pad by one position.
        padding: The id to pad with.
    """

    def __init__(self, length: int | None, padding: int, **kwargs):
        super().__init__(**kwargs)
        self.length = length
        self.padding = padding

    def call(self, inputs):
        more = self.length or 1
        found = ops.pad(
            inputs, [[0, 0], [0, more]], constant_values=self.padding
        )
        if self.length is None:
            return found
        # So that the length is known inside a graph.
        return ops.reshape(found[:, : self.length], (-1, self.length))

    def compute_output_shape(self, input_shape):
        batch, time = input_shape
        longer = None if time is None else time + 1
        return (batch, self.length or longer)

    def get_config(self):
        own = {"length": self.length, "padding": self.padding}
        return super().get_config() | own


@keras.saving.register_keras_serializable("keras_attn")
class PadTarget(PadTo):
    """Pads the ids of a target for a model that takes only one length.

    Args:
        length, padding: As for `PadTo`.
        longest_target: The longest target for which the model predicts every
            next token; `None` for any length.
    """

    def __init__(self, length, padding, longest_target=None, **kwargs):
        super().__init__(length, padding, **kwargs)
        self.longest_target = longest_target

    def get_config(self):
        return super().get_config() | {"longest_target": self.longest_target}


@keras.saving.register_keras_serializable("keras_attn")
class CutLike(keras.layers.Layer):
    """Cuts a tensor to the number of positions of another one."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_mask(self, inputs, mask=None):
        return None  # the loss and a search find padding in the targets

    def call(self, inputs):
        found, like = inputs
        return found[:, : ops.shape(like)[1]]

    def compute_output_shape(self, input_shape):
        found, like = input_shape
        return (found[0], like[1], *found[2:])


@keras.saving.register_keras_serializable("keras_attn")
class LogProbabilities(keras.layers.Layer):
    """Returns the logarithms of probabilities, finite and in float32."""

    def __init__(self, **kwargs):
        super().__init__(**{"dtype": "float32"} | kwargs)
        self.supports_masking = True

    def call(self, inputs):
        return ops.log(ops.maximum(inputs, 1e-37))

    def compute_output_shape(self, input_shape):
        return input_shape


@stepper_for(PadTarget)
class PadTargetStepper(Stepper):
    """Returns the position as it is: a step needs no padding."""

    position_wise = True
    rows_leave = True

    def __init__(self, call):
        super().__init__(call)
        self.longest = self.layer.longest_target

    def step(self, inputs, prepared, state, position):
        return inputs["inputs"], None, state


@stepper_for(CutLike)
class CutLikeStepper(Stepper):
    """Returns the position as it is: a step has no others."""

    position_wise = True
    rows_leave = True

    def step(self, inputs, prepared, state, position):
        return inputs["inputs"][0], None, state
