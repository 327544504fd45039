"""Compares decoding step by step with the whole model."""

import functools

import keras
import numpy as np
from keras import ops

from keras_attn.incremental.path import Nested
from keras_attn.incremental.refuse import Refused
from keras_attn.incremental.refuse import refuse


def verify(path, inputs):
    """Refuses a path of which a step gives what the whole does not.

    Args:
        path: A `Path`.
        inputs: For each of several hypotheses the values of all inputs of
            the path; they differ in what depends on the target, and none of
            it is padding.

    Raises:
        ValueError: If they differ, or a step fails. The message names the
            first layer of which this is so.
    """
    tensors = [*path.inputs, *path.border, *path.tensors]
    model = keras.Model(path.inputs, tensors)
    wholes = [
        {
            id(x): value
            for x, value in zip(
                tensors, model(one, training=False), strict=True
            )
        }
        for one in inputs
    ]
    entry = id(path.entries[0])
    batch, length = wholes[0][entry].shape[:2]

    def at(x, t):
        """(batch, hypotheses, ...), or None if there is no such position."""
        values = [whole[id(x)] for whole in wholes]
        if len(values[0].shape) < 2 or values[0].shape[1] != length:
            return None
        return ops.stack([value[:, t] for value in values], axis=1)

    compared = []

    def compare(stepper, values, t):
        compared.append(stepper)
        if all(_equal(values[id(x)], at(x, t)) for x in stepper.outputs):
            return
        if isinstance(stepper, Nested):
            verify(
                stepper.path,
                [[whole[id(x)] for x in stepper.arguments] for whole in wholes],
            )
        refuse(
            stepper.operation,
            "gives another result when it sees one target position at a time",
        )

    def step_through(prepared):
        states = path.start(prepared, batch, len(inputs), length)
        for t in range(length):
            entries = [at(x, t) for x in path.entries]
            watch = functools.partial(compare, t=t)
            compared.clear()
            try:
                _, _, states = path.step(entries, prepared, states, t, watch)
            except Refused:
                raise
            except Exception as error:
                failed = path.steppers[len(compared)].operation
                refuse(
                    failed,
                    "fails when it sees one target position at a time, with "
                    f"{type(error).__name__}: {error}",
                )

    constants = [
        wholes[0][id(x)]
        for x in path.inputs
        if not any(x is y for y in path.entries)
    ]
    prepared = path.prepare(constants)
    step_through(prepared)
    # A search takes other steps where it can; few do not.
    hoisted = path.hoist(prepared)
    if any(x is not y for x, y in zip(prepared, hoisted, strict=True)):
        step_through(hoisted)


def _equal(step, whole):
    if whole is None or step.shape != whole.shape:
        return False
    step, whole = ops.convert_to_numpy(step), ops.convert_to_numpy(whole)
    half = step.dtype.itemsize == 2 or whole.dtype.itemsize == 2
    tolerance = 5e-2 if half else 1e-3
    return np.allclose(
        step.astype("float32"),
        whole.astype("float32"),
        rtol=tolerance,
        atol=tolerance,
    )
