"""Finds the first layer of a model that gives other numbers, or fails.

Inner models are run a layer at a time too, so that the error names the layer
inside them.
"""

import keras
from keras import ops

from keras_attn.backend import as_graph
from keras_attn.graph.calls import takes
from keras_attn.graph.nodes import all_nodes
from keras_attn.graph.nodes import given_to
from keras_attn.graph.rounding import Rounding
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import is_functional
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import set_keras_mask


class _Enough(Exception):
    """Stops a run after the requested number of layers."""


class Record:
    """The outputs of each layer of a model, in the order they ran.

    Args:
        model: A functional model.
        inputs: Its inputs, arrays or tensors.
        count: How many layers to run, `None` for all.
        masked: Whether layers get the masks that Keras passes on.
    """

    def __init__(self, model, inputs, count=None, masked=True):
        self.operations, self.outputs = [], []
        self.failed = None  # the operation that raised, if one did
        self._count = count
        self._masked = masked
        try:
            self._run(model, list(inputs))
        except _Enough:
            pass
        except Exception:
            if self.failed is None:
                raise

    def _run(self, model, inputs):
        values = {
            id(x): ops.convert_to_tensor(value)
            for x, value in zip(model.inputs, inputs, strict=True)
        }
        nodes = all_nodes(model)
        masks = set()
        if not self._masked:
            masks = {id(get_keras_mask(x)) for n in nodes for x in n.outputs}
        for node in nodes:
            if masks and all(id(x) in masks for x in node.outputs):
                continue
            # Keras fills in None for tensors that have no value.
            args, kwargs = node.arguments.fill_in(values)
            outputs = self._call(node.operation, args, kwargs)
            for x, value in zip(node.outputs, outputs, strict=True):
                if not self._masked and get_keras_mask(value) is not None:
                    set_keras_mask(value, None)
                values[id(x)] = value
        return [values[id(x)] for x in model.outputs]

    def _call(self, operation, args, kwargs):
        if is_functional(operation):
            return self._run(operation, given_to(operation, args, kwargs))
        if len(self.operations) == self._count:
            raise _Enough
        if takes(operation, "training"):
            kwargs["training"] = False
        try:
            outputs = keras.tree.flatten(operation(*args, **kwargs))
        except Exception:
            self.failed = operation
            raise
        self.operations.append(operation)
        self.outputs.append([ops.cast(x, "float32") for x in outputs])
        return outputs


def first_failure(model, inputs):
    """Returns the first operation that fails outside a graph, or `None`."""
    return Record(model, inputs).failed


def first_wrong_in_graph(model, inputs):
    """Returns the first operation that differs or fails only in a graph."""
    eager = Record(model, inputs)
    try:
        traced = as_graph(
            lambda *inputs: Record(model, inputs).outputs, model.inputs
        )(*inputs)
    except Exception:
        return _first_failure_in_graph(model, inputs)
    count = len(traced)  # fewer, if an operation failed while it was traced
    other = _first_difference(
        eager.operations[:count],
        eager.outputs[:count],
        traced,
        Noises(model, inputs),
    )
    failed = eager.operations[count : count + 1]
    return other or next(iter(failed), None)


def _first_failure_in_graph(model, inputs):
    last = []

    def fails(count):
        def run(*inputs):
            last[:] = [Record(model, inputs, count)]
            return last[0].outputs

        try:
            as_graph(run, model.inputs)(*inputs)
        except Exception:
            return True
        return False

    if not fails(None):
        return None
    (record,) = last
    if record.failed is not None:  # it failed while it was traced
        return record.failed
    # It fails as the graph runs: bisects the number of layers.
    low, high = 0, len(record.operations)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return record.operations[low]


def first_random(model, inputs):
    """Returns the first operation that gives other numbers each time."""
    one, other = (Record(model, inputs) for _ in range(2))
    # To measure noise takes other runs, which would draw other numbers.
    silent = Noises(model, inputs, measured=False)
    return _first_difference(one.operations, one.outputs, other.outputs, silent)


def first_difference_masked(model, inputs):
    """Returns the first operation that a mask of real tokens changes."""
    masked = Record(model, inputs)
    plain = Record(model, inputs, masked=False)
    others = list(zip(plain.operations, plain.outputs, strict=True))
    both = []
    for operation, outputs in zip(
        masked.operations, masked.outputs, strict=True
    ):
        # The plain record has no operations that only make masks.
        if others and others[0][0] is operation:
            both.append((operation, outputs, others.pop(0)[1]))
    noises = Noises(model, inputs, masked=False)
    return _first_difference(*zip(*both, strict=True), noises)


def first_difference_alone(model, inputs, row):
    """Returns the first operation that changes a row beside other rows."""
    beside = Record(model, inputs)
    alone = Record(model, [x[row : row + 1] for x in inputs])
    count = len(inputs[0])
    cut = [
        [x[row : row + 1] if len(x) == count else x for x in outputs]
        for outputs in beside.outputs
    ]
    noises = Noises(model, inputs)
    return _first_difference(beside.operations, cut, alone.outputs, noises)


class Noises:
    """How much rounding may change the outputs of each layer of a model.

    Args:
        model: A functional model.
        inputs: Its inputs, arrays or tensors.
        masked: Whether layers get the masks that Keras passes on.
        measured: Whether to measure how errors grow from layer to layer.
    """

    def __init__(self, model, inputs, masked=True, measured=True):
        self._model, self._inputs, self._masked = model, inputs, masked
        self._measured = measured
        self._rounding = Rounding(layers_within(model))
        self._noises = None

    def explain(self, number, found, expected) -> bool:
        """Whether the outputs of a layer are equal up to rounding.

        Args:
            number: Number of the layer, in the order they ran.
            found: List of tensors.
            expected: List of tensors.
        """
        for place, pair in enumerate(zip(found, expected, strict=True)):
            x, y = map(ops.convert_to_numpy, pair)
            if not self._rounding.is_close(x, y) and not (
                self._measured
                and self._rounding.is_close(x, y, self._of(number, place))
            ):
                return False
        return True

    def _of(self, number, place):
        if self._noises is None:
            before = self._run()
            with self._rounding.disturbed(self._model.variables):
                after = self._run()
            self._noises = keras.tree.map_structure(
                self._rounding.noise, before, after
            )
        return self._noises[number][place]

    def _run(self):
        record = Record(self._model, self._inputs, masked=self._masked)
        return keras.tree.map_structure(ops.convert_to_numpy, record.outputs)


def _first_difference(operations, expected, found, noises):
    every = zip(operations, expected, found, strict=True)
    for number, (operation, one, other) in enumerate(every):
        if not noises.explain(number, other, one):
            return operation
    return None
