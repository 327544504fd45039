"""Narrows a model's output to some columns of the vocabulary.

A pass from steppers to steppers, as `hoisting`: the new path returns logits
of some tokens only, in their order. If the logits come from a `Dense` layer,
only these columns of its kernel are multiplied. Else all logits are computed
and the others dropped.
"""

import keras
from keras import layers
from keras import ops

from keras_attn.incremental.steppers.position_wise import PositionWiseStepper


def narrow(path, prepared, ids):
    """Returns a path whose output has a column for each of `ids`.

    Args:
        path: A `Path` with one output.
        prepared: Result of its `prepare()`.
        ids: Integer tensor `(columns,)`.

    Returns:
        A `Path` and its prepared constants, both valid only in the function
        that called this.
    """
    (output,) = path.outputs
    steppers, needs = list(path.steppers), list(prepared)
    for i, stepper in enumerate(steppers):
        if not any(x is output for x in stepper.outputs):
            continue
        if _is_plain_dense(stepper) and not _is_read(output, steppers):
            layer = stepper.layer
            kernel = ops.take(_cast(layer, layer.kernel), ids, axis=1)
            bias = ()
            if layer.use_bias:
                bias = ops.take(_cast(layer, layer.bias), ids, axis=0)
            steppers[i], needs[i] = _NarrowDense(stepper), (kernel, bias)
            return path.with_steppers(steppers), tuple(needs)
    return path.with_outputs(lambda x: ops.take(x, ids, axis=-1)), prepared


def _is_plain_dense(stepper):
    return (
        type(stepper) is PositionWiseStepper
        and type(stepper.layer) is layers.Dense
        and "call" not in vars(stepper.layer)
        and stepper.layer.activation is keras.activations.linear
        and stepper.layer.quantization_mode is None
    )


def _is_read(tensor, steppers):
    """Returns whether any stepper reads this tensor."""
    return any(
        x is tensor for y in steppers for x in keras.tree.flatten(y.reads)
    )


def _cast(layer, variable):
    return ops.cast(ops.convert_to_tensor(variable), layer.compute_dtype)


class _NarrowDense(PositionWiseStepper):
    """Multiplies by some columns of a `Dense` layer's kernel."""

    def __init__(self, stepper):
        super().__init__(stepper.call)

    def step(self, inputs, prepared, state, position):
        (x,) = inputs.values()
        kernel, bias = prepared
        x = ops.matmul(ops.cast(x, kernel.dtype), kernel)
        return (x + bias if self.layer.use_bias else x), None, state
