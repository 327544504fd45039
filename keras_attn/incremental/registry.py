"""The registry of steppers: which stepper runs which layer."""

import keras

from keras_attn.arguments import is_ours
from keras_attn.incremental.contract import require_methods
from keras_attn.incremental.kinds import is_plain
from keras_attn.incremental.stepper import Stepper

# class, its registered name in Keras, or its full name -> its steppers
_STEPPERS: dict = {}


def stepper_for(*kinds):
    """Registers a `Stepper` for a class of layers, as a decorator.

    The stepper also runs subclasses of these layers that replace no method.
    A subclass with its own `call` needs its own stepper. If a class has
    several steppers, the last registered one is asked first whether it
    `accepts()` a call. Steps are always compared with the whole model, so a
    stepper that computes something else than its layer is refused.

    This interface is provisional: it may change until more kinds of decoding
    have used it.

    Args:
        *kinds: Subclasses of `keras.Layer`, or their registered names in
            Keras, such as `"my_package>MyLayer"`, or their full names, such
            as `"my_package.layers.MyLayer"`. A name avoids importing the
            layer's package.

    Returns:
        A decorator of subclasses of `Stepper`.

    Raises:
        ValueError: If a kind is neither a class of layers nor such a name,
            or if the decorated object is not a subclass of `Stepper`.

    Example:
        This layer returns the mean of all positions so far. Its stepper keeps
        their sum.

        >>> @keras.saving.register_keras_serializable("example")
        ... class CausalMean(keras.layers.Layer):
        ...     def call(self, inputs):
        ...         count = keras.ops.arange(1, keras.ops.shape(inputs)[1] + 1)
        ...         count = keras.ops.cast(count, inputs.dtype)
        ...         return keras.ops.cumsum(inputs, axis=1) / count[:, None]
        >>> @keras_attn.stepper_for(CausalMean)
        ... class CausalMeanStepper(keras_attn.Stepper):
        ...     uses_position = True
        ...
        ...     def start(self, prepared, batch, beams, max_length):
        ...         width = self.reads["inputs"].shape[-1]
        ...         return keras.ops.zeros((batch, beams, width))
        ...
        ...     def step(self, inputs, prepared, state, position):
        ...         total = state + inputs["inputs"]
        ...         count = keras.ops.cast(position + 1, total.dtype)
        ...         return total / keras.ops.expand_dims(count, -1), None, total

        A model with this layer is decoded, searched and exported like any
        other.

        >>> text = keras_attn.Text("abc", split="characters")
        >>> source = keras.Input((None,), dtype="int32")
        >>> target = keras.Input((None,), dtype="int32")
        >>> memory = keras.layers.Embedding(
        ...     text.size, 8, mask_zero=True)(source)
        >>> mean = CausalMean()(keras.layers.Embedding(text.size, 8)(target))
        >>> hidden = keras_attn.BahdanauAttention(8)(mean, memory)
        >>> hidden = keras.layers.Concatenate()([mean, hidden])
        >>> model = keras.Model(
        ...     [source, target], keras.layers.Dense(text.size)(hidden))
        >>> translator = keras_attn.Translator(
        ...     model, text, text, keras_attn.BeamSearch(3, max_length=5))
        >>> len(translator(["abc", "ba"]).text)
        2
        >>> path = translator.export("exported")
    """
    if not kinds:
        raise ValueError(
            "`stepper_for` takes the classes of the layers that the stepper "
            "runs. Received: none. Write `@stepper_for(MyLayer)`."
        )
    for kind in kinds:
        named = isinstance(kind, str) and (">" in kind or "." in kind)
        if not named and not (
            isinstance(kind, type) and issubclass(kind, keras.Operation)
        ):
            raise ValueError(
                "`stepper_for` takes classes of Keras layers, their "
                f"registered names or full names. Received: {kind!r}. Write "
                "`@stepper_for(MyLayer)` above the class of the stepper."
            )

    def register(stepper):
        if not (isinstance(stepper, type) and issubclass(stepper, Stepper)):
            raise ValueError(
                "`stepper_for` decorates a subclass of `keras_attn.Stepper`. "
                f"Received: {stepper!r}. Write it above `class MyStepper("
                "keras_attn.Stepper)`."
            )
        require_methods(stepper)
        for kind in kinds:
            _STEPPERS.setdefault(kind, []).append(stepper)
        return stepper

    return register


def make_stepper(call) -> Stepper:
    """Returns the stepper of a call that depends on the target."""
    for kind in type(call.layer).__mro__:
        for stepper in reversed(_registered(kind)):
            if _is_for(stepper, kind, call.layer) and stepper.accepts(call):
                return stepper(call)
    raise AssertionError(call.layer)  # some stepper accepts any operation


def has_stepper_of_user(layer) -> bool:
    """Whether a stepper that is not ours was registered for a layer."""
    return any(
        not is_ours(stepper)
        for kind in type(layer).__mro__
        for stepper in _registered(kind)
    )


def has_stepper(layer) -> bool:
    """Whether a stepper was registered for a class of layers like this one."""
    return any(
        _is_for(stepper, kind, layer)
        for kind in type(layer).__mro__
        for stepper in _registered(kind)
        if stepper.relies_on != ()
    )


def unlike_parent(layer) -> str:
    """Names the parent whose stepper does not run a subclass."""
    for kind in type(layer).__mro__:
        steppers = [x for x in _registered(kind) if x.relies_on != ()]
        if any(_is_for(x, kind, layer) for x in steppers):
            return ""
        if steppers:
            name = type(layer).__name__
            return (
                f"; `{name}` has methods of its own, so it is not stepped "
                f"like its parent `{kind.__name__}`"
            )
    return ""


def _registered(kind):
    name = keras.saving.get_registered_name(kind)
    whole = f"{kind.__module__}.{kind.__qualname__}"
    return [x for key in (name, whole, kind) for x in _STEPPERS.get(key, ())]


def _is_for(stepper, kind, layer):
    return is_plain(layer, kind, methods=stepper.relies_on)
