"""The rules of `Stepper`, and an error for each broken rule.

If a user's stepper raises an error, the message names the method.
"""

import contextlib

import keras

from keras_attn import structures
from keras_attn.arguments import is_ours
from keras_attn.incremental import buffers
from keras_attn.incremental.refuse import Refused
from keras_attn.incremental.refuse import in_short
from keras_attn.incremental.stepper import Stepper


def require_methods(kind) -> None:
    """Raises `ValueError` unless a class of steppers has a `step` method."""
    if kind.step is Stepper.step:
        raise ValueError(
            "A stepper needs a method `step(self, inputs, prepared, state, "
            f"position)`. Received: {kind.__name__}, which has none. Write "
            "it; it returns the layer's outputs, alignments or None, and the "
            "new state."
        )


def prepare(stepper, constants):
    """Returns `prepare()`'s result."""
    with _naming(stepper, "prepare"):
        return stepper.prepare(constants)


def start(stepper, prepared, batch, beams, max_length):
    """Returns `start()`'s result, a state that a search can gather."""
    with _naming(stepper, "start"):
        state = stepper.start(prepared, batch, beams, max_length)
    if state is None:
        raise Refused(
            f"`{_name(stepper)}.start` must return the first state. Received: "
            "None. Return a structure of tensors (batch, beams, ...), or `()` "
            "if nothing is remembered."
        )
    if type(stepper).reorder is not Stepper.reorder:
        return state  # it re-orders its state itself
    for x in structures.flatten(state):
        shape = getattr(x, "shape", None)
        fits = shape is not None and len(shape) >= 2
        if not fits or shape[1] not in (beams, None):
            raise Refused(
                f"`{_name(stepper)}.start` must return tensors whose first "
                f"axes are batch and beams, here {beams} beams. Received: "
                f"{_shown(x)}. For example return `keras.ops.zeros((batch, "
                "beams, width))`."
            )
    return state


def results(stepper, returned, state):
    """Returns the three results of `step()`."""
    if not isinstance(returned, (tuple, list)) or len(returned) != 3:
        raise Refused(
            f"`{_name(stepper)}.step` must return three results: the layer's "
            "outputs, the alignments or None, and the new state. Received: "
            + (
                f"{len(returned)} results."
                if isinstance(returned, (tuple, list))
                else f"{_shown(returned)}."
            )
        )
    outputs, alignments, after = returned
    for x, value in stepper.outputs_with(outputs):
        _require_output(stepper, x, value)
    if stepper.attends and alignments is None:
        raise Refused(
            f"`{_name(stepper)}.step` must return alignments (batch, beams, "
            "source) as its second result, since it sets `attends = True`. "
            "Received: None. Return them, or leave `attends` out."
        )
    if alignments is not None and not stepper.attends:
        raise Refused(
            f"`{_name(stepper)}.step` returns alignments, which would be "
            "lost. Received: attends=False. Set `attends = True`, or return "
            "None as the second result."
        )
    _require_like(stepper, state, after)
    return outputs, alignments, after


def refuse_failure(stepper, method, error, position=0) -> None:
    """Raises an error that names a user's stepper in which `error` arose."""
    if is_ours(type(stepper)) or isinstance(error, Refused):
        return
    hint = ""
    if position is None and not stepper.uses_position:
        hint = (
            " `position` is None here: to get numbers, set `uses_position = "
            "True`."
        )
    raise Refused(
        f"`{_name(stepper)}.{method}`, which steps the layer "
        f"'{stepper.layer.name}', fails with "
        f"{in_short(error).rstrip('.')}.{hint}"
    ) from error


@contextlib.contextmanager
def _naming(stepper, method):
    try:
        yield
    except Exception as error:
        refuse_failure(stepper, method, error)
        raise


def _require_output(stepper, x, value):
    """Refuses an output of another rank or width than the layer's."""
    found = tuple(value.shape)
    last = -1 if stepper.restricts else None
    fits = len(found) == len(x.shape) and all(
        size == other or None in (size, other)
        for size, other in zip(found[2:last], x.shape[2:last], strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, ("batch", "beams", *x.shape[2:])))
        raise Refused(
            f"`{_name(stepper)}.step` must return outputs like the layer's, "
            f"with beams in place of the target: here ({wanted}). Received: "
            f"{_shown(value)}."
        )


def _require_like(stepper, before, after):
    """Refuses a state of another structure, size or dtype than the last."""
    before, after = (
        structures.flatten(buffers.without(x)) for x in (before, after)
    )
    if len(before) != len(after):
        raise _refused(
            stepper,
            f"`{_name(stepper)}.step` must return a state of the structure "
            f"that it got. Received: {len(after)} tensors after "
            f"{len(before)}.",
        )
    for old, new in zip(before, after, strict=True):
        if not _alike(old, new):
            raise _refused(
                stepper,
                f"`{_name(stepper)}.step` must return a state of the sizes "
                "and dtypes that it got: they do not change from step to "
                f"step. Received: {_shown(new)} after {_shown(old)}. A buffer "
                "has room for all steps from the start, see `time_axes()`.",
            )


def _refused(stepper, message):
    """Returns an error; of a stepper of ours, it names the layer in the way."""
    error = Refused(message)
    if is_ours(type(stepper)):
        error.operation = stepper.layer
    return error


def _alike(old, new):
    dtypes = (keras.backend.standardize_dtype(x.dtype) for x in (old, new))
    return (
        len(set(dtypes)) == 1
        and len(old.shape) == len(new.shape)
        and all(
            size == other or None in (size, other)
            for size, other in zip(old.shape, new.shape, strict=True)
        )
    )


def _shown(x):
    if not hasattr(x, "shape"):
        return f"{x!r:.80}"
    shape = ", ".join(map(str, tuple(x.shape)))
    dtype = keras.backend.standardize_dtype(x.dtype)
    return f"a tensor ({shape}) of {dtype}"


def _name(stepper):
    return type(stepper).__name__
