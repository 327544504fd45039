"""A stepper runs one node of the graph a target position at a time.

A node is one call of a layer. What its stepper needs of the source it
prepares once; what it must remember of the positions before is its state.
"""

import inspect
from typing import Any
from typing import NamedTuple

import keras
from keras import ops

from keras_attn.incremental.refuse import refuse
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import set_keras_mask


class Stepper:
    """Runs a node of the graph a target position at a time.

    The arguments `values` below are dicts from the `id` of a symbolic tensor
    to its value. Constants are tensors that do not depend on the target;
    in `prepare()` their values have the masks that Keras gave them.

    Args:
        node: The node of the graph.
        depends: Function that says whether a structure holds a tensor that
            depends on the target.
    """

    position_wise = False  # whether it treats each position alone
    uses_position = False  # whether `step()` is told its number
    attends = False  # whether it attends to the source
    longest = None  # how many positions it knows, None for any number
    only_first = "gives its first output alone"  # said of the others

    def __init__(self, node, depends):
        self.operation = node.operation
        self.inputs = node.input_tensors  # those that a step reads
        self.outputs = node.outputs  # those that a step gives

    def prepare(self, values):
        """What it needs of the constants, a structure of tensors or None."""
        return ()

    def hoist(self, prepared, tokens, compiled):
        """What to use in the place of `prepared` in a loop of many steps.

        Args:
            prepared: What `prepare()` returned.
            tokens: `Tokens`, or `None` where nothing depends on a token
                alone or there are too many.
            compiled: Whether XLA compiles the loop.
        """
        return prepared

    def start(self, prepared, batch, beams, max_length):
        """Its first state, tensors whose first axes are batch and beams."""
        return ()

    def step(self, values, prepared, state, position):
        """Runs one position of each hypothesis.

        Args:
            values: Those of the node's inputs, `(batch, beams, ...)`.
            prepared: What `prepare()` returned.
            state: What `start()` or the last step returned.
            position: Number of the step: an int32 scalar; `(batch, beams)`
                where hypotheses stand at different ones; or `None` where
                nobody asks for it.

        Returns:
            A list of outputs, the alignments `(batch, beams, source)` in
            float32 or `None`, and the new state.
        """
        raise NotImplementedError

    def source_mask(self, prepared):
        """The mask `(batch, source)` of what it attends to, or `None`."""


class Tokens(NamedTuple):
    """What depends on a token alone, for each token of a vocabulary."""

    ids: Any  # the input that holds the ids, a symbolic tensor
    values: dict  # id of a symbolic tensor -> (vocabulary, ...)


class PositionWise(Stepper):
    """A layer that treats each position alone is called as it is.

    It finds hypotheses where it expects positions.
    """

    position_wise = True

    def __init__(self, node, depends):
        super().__init__(node, depends)
        self._arguments = node.args, dict(node.kwargs)
        self._constants = [x for x in node.input_tensors if not depends(x)]
        if takes(self.operation, "training"):
            self._arguments[1]["training"] = False

    def prepare(self, values):
        constants = tuple(values[id(x)] for x in self._constants)
        return constants, tuple(map(get_keras_mask, constants))

    def step(self, values, prepared, state, position):
        args, kwargs = fill(self._arguments, self._with(values, prepared))
        return self._call(args, kwargs), None, state

    def _call(self, args, kwargs):
        return keras.tree.flatten(self.operation(*args, **kwargs))

    def _with(self, values, prepared):
        """The values with those of the constants, and their masks."""
        values = dict(values)
        for x, value, mask in zip(self._constants, *prepared, strict=True):
            values[id(x)] = value
            if mask is not None:
                set_keras_mask(value, mask)
        return values


class Positioned(PositionWise):
    """A layer whose `call` takes `start_index`, the number of a position.

    So do the position embeddings of KerasHub and of this package. Each
    hypothesis is a row of the batch, with one position.
    """

    uses_position = True

    def __init__(self, node, depends):
        super().__init__(node, depends)
        args, kwargs = self._arguments
        self._arguments = (), bound(self.operation, args, kwargs)
        self._depends = depends
        for name in ("max_length", "sequence_length"):
            longest = getattr(self.operation, name, None)
            if longest:
                self.longest, self._longest_name = longest, name

    def start(self, prepared, batch, beams, max_length):
        layer, longest = self.operation, self.longest
        if max_length and longest and max_length > longest:
            name = self._longest_name
            raise ValueError(
                f"'{layer.name}' ({type(layer).__name__}) knows {longest} "
                "positions, and a target may not be longer. Received: "
                f"max_length={max_length}, {name}={longest}. Search with a "
                f"lower `max_length`, or train with a higher `{name}`."
            )
        return ()

    def step(self, values, prepared, state, position):
        dependent = [
            x for x in keras.tree.flatten(self._arguments) if self._depends(x)
        ]
        beams = ops.shape(values[id(dependent[0])])[1]
        rows = {
            id(x): ops.repeat(value, beams, axis=0)
            for x, value in zip(self._constants, prepared[0], strict=True)
        }
        for x in dependent:
            rows[id(x)] = as_rows(values[id(x)])
        call = self._call_at if _is_one(position) else self._call_apart
        outputs = call(rows, position)
        return [as_beams(x, beams) for x in outputs], None, state

    def _call_at(self, rows, position):
        """Calls the layer for rows that all are at one position."""
        _, kwargs = fill(self._arguments, rows)
        start_index = position + kwargs.get("start_index", 0)
        return self._call((), {**kwargs, "start_index": start_index})

    def _call_apart(self, rows, position):
        """Row by row where their positions differ, all at once if not."""
        names, position = list(rows), ops.reshape(position, (-1,))
        first = ops.max(position, initial=0)

        def call_one(given):
            values, number = given
            one = [ops.expand_dims(x, 0) for x in values]
            outputs = self._call_at(dict(zip(names, one, strict=True)), number)
            return [ops.squeeze(x, 0) for x in outputs]

        return ops.cond(
            ops.all(position == first),
            lambda: self._call_at(rows, first),
            lambda: ops.map(call_one, (list(rows.values()), position)),
        )


def fill(structure, values):
    """Puts values in the place of symbolic tensors."""
    return keras.tree.map_structure(lambda x: values.get(id(x), x), structure)


def bound(operation, args, kwargs):
    """Arguments of a layer's call by their names."""
    return dict(
        inspect.signature(operation.call).bind(*args, **kwargs).arguments
    )


def arguments_of(node):
    """What a layer was called with, by name."""
    return bound(node.operation, node.args, node.kwargs)


def require_constant(operation, depends, **arguments):
    """Refuses arguments that depend on the target."""
    for name, argument in arguments.items():
        if depends(argument):
            refuse(
                operation,
                f"has a `{name}` that depends on the target; it must come "
                "from the source alone",
            )


def masked(tensor, mask, values):
    """The value of a constant and its mask, given or by Keras."""
    value = fill(tensor, values)
    if mask is None:
        return value, keras.tree.map_structure(get_keras_mask, value)
    return value, fill(mask, values)


def takes(operation, name):
    """Whether a layer's `call` has an argument of this name."""
    return isinstance(operation, keras.Layer) and name in (
        inspect.signature(operation.call).parameters
    )


def _is_one(position):
    """Whether a position is that of all hypotheses."""
    return len(getattr(position, "shape", ())) == 0


def as_rows(x):
    """`(batch, beams, ...)` -> `(batch * beams, 1, ...)`."""
    return ops.reshape(x, (-1, 1, *x.shape[2:]))


def as_beams(x, beams):
    """`(batch * beams, 1, ...)` -> `(batch, beams, ...)`."""
    return ops.reshape(x, (-1, beams, *x.shape[2:]))
