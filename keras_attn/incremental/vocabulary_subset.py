"""Restricts a model's output to some columns of the vocabulary.

A pass from steppers to steppers, like `hoisting`: the new path returns logits
of some tokens only, in their order. If the logits come from a `Dense` layer or
a `ReversibleEmbedding`, perhaps followed by a `LogitBias`, only their part of
the kernel is multiplied. Otherwise all logits are computed and the others
dropped.
"""

import keras
from keras import layers
from keras import ops

from keras_attn.incremental.steppers.position_wise import PositionWiseStepper
from keras_attn.layers.logit_bias import LogitBias
from keras_attn.layers.tied_embedding import TiedEmbedding


def restrict_vocabulary(path, prepared, ids):
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
    readers = 0
    while True:
        i = _place(output, steppers)
        kind = None if i is None else _restricted_layer(steppers[i])
        if kind is None or _count_readers(output, steppers) > readers:
            break
        stepper = steppers[i]
        steppers[i], needs[i] = kind(stepper.call, ids), ()
        if kind is not _BiasSubset:
            return path.with_steppers(steppers), tuple(needs)
        (output,), readers = stepper.call.input_tensors, 1
    return path.with_outputs(lambda x: ops.take(x, ids, axis=-1)), prepared


def _place(tensor, steppers):
    """Returns the number of the stepper that makes a tensor, or `None`."""
    for i, stepper in enumerate(steppers):
        if any(x is tensor for x in stepper.outputs):
            return i
    return None


def _restricted_layer(stepper):
    """Returns the class of steppers that restricts this one, or `None`."""
    layer = stepper.layer
    plain = (
        type(stepper) is PositionWiseStepper
        and "call" not in vars(layer)
        and getattr(layer, "quantization_mode", None) is None
    )
    if not plain:
        return None
    if type(layer) is layers.Dense:
        linear = layer.activation is keras.activations.linear
        return _DenseSubset if linear else None
    if type(layer) is LogitBias:
        return _BiasSubset
    # KerasHub's is a subclass of Keras's.
    known = layers.ReversibleEmbedding.call, TiedEmbedding.call
    own_call = getattr(type(layer), "call", None) not in known
    return None if own_call else _EmbeddingSubset


def _count_readers(tensor, steppers):
    """Returns the number of steppers that read this tensor."""
    return sum(
        any(x is tensor for x in keras.tree.flatten(y.reads)) for y in steppers
    )


def _cast(layer, variable):
    return ops.cast(ops.convert_to_tensor(variable), layer.compute_dtype)


class _DenseSubset(PositionWiseStepper):
    """Multiplies by some columns of a `Dense` layer's kernel."""

    restricts = True

    def __init__(self, call, ids):
        super().__init__(call)
        layer, self._bias = self.layer, None
        self._kernel = ops.take(_cast(layer, layer.kernel), ids, axis=1)
        if layer.use_bias:
            self._bias = ops.take(_cast(layer, layer.bias), ids, axis=0)

    def step(self, inputs, prepared, state, position):
        (x,) = inputs.values()
        x = ops.matmul(ops.cast(x, self._kernel.dtype), self._kernel)
        return (x if self._bias is None else x + self._bias), None, state


class _BiasSubset(PositionWiseStepper):
    """Adds some numbers of a `LogitBias`."""

    restricts = True

    def __init__(self, call, ids):
        super().__init__(call)
        self._bias = ops.take(_cast(self.layer, self.layer.bias), ids, axis=0)

    def step(self, inputs, prepared, state, position):
        (x,) = inputs.values()
        return x + self._bias, None, state


class _EmbeddingSubset(PositionWiseStepper):
    """Multiplies by some rows of the embeddings, which are the kernel."""

    restricts = True

    def __init__(self, call, ids):
        super().__init__(call)
        layer = self.layer
        if layer.tie_weights:
            rows = ops.take(_cast(layer, layer.embeddings), ids, axis=0)
            kernel = ops.transpose(rows)
        else:
            kernel = _cast(layer, layer.reverse_embeddings)
            kernel = ops.take(kernel, ids, axis=1)
        dtype = layer.reverse_dtype or layer.compute_dtype
        self._kernel = ops.cast(kernel, dtype)

    def step(self, inputs, prepared, state, position):
        (x,) = inputs.values()
        logits = ops.matmul(ops.cast(x, self._kernel.dtype), self._kernel)
        cap = self.layer.logit_soft_cap
        if cap is not None:
            logits = ops.tanh(logits / cap) * cap
        return logits, None, state
