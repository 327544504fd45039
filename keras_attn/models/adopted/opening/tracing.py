"""Traces a model for fixed sizes, with the user's own layers opened.

With a length that is a number, masks and positions that a `call` makes from
the length are arrays, which can be recognized by their values.
"""

import keras

from keras_attn.graph.nodes import given_to
from keras_attn.graph.nodes import nodes_after
from keras_attn.incremental.registry import has_stepper
from keras_attn.incremental.registry import has_stepper_of_user
from keras_attn.keras_internals import graph_of
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import nodes_in_order
from keras_attn.keras_internals import producer
from keras_attn.models.adopted.opening.inside import call_inside
from keras_attn.models.adopted.opening.inside import remove_masks
from keras_attn.models.adopted.opening.inside import unchanged

_DEPTH = 6  # most levels of a user's own layers inside each other
_PACKAGES = "keras", "keras_hub", "keras_attn"


class Trace:
    """A graph of fixed sizes in which a user's own layers are opened.

    Args:
        model: A model in standard form.
        closed: Layers to leave as they are. Those that cannot be opened are
            added.
        rows: Number of rows.
        length: Number of target tokens.

    Attributes:
        inputs, outputs: Symbolic tensors.
        constants: The `Constant`s of layers inside, by `id` of the value.
        is_open: Whether any layer was opened.
    """

    def __init__(self, model, closed, rows, length):
        graph = graph_of(model)
        *sources, target = graph.inputs
        self.closed = closed
        self.constants: dict = {}
        self.is_open = False
        self._around: dict = {}  # the layers around a node, by its `id`
        self._kept: list = []  # nodes whose `id`s are in use
        self.inputs = [
            keras.Input(batch_shape=(rows, *x.shape[1:]), dtype=x.dtype)
            for x in sources
        ]
        self._target = keras.Input(
            batch_shape=(rows, length), dtype=target.dtype
        )
        self.inputs.append(self._target)
        values = {
            id(x): new for x, new in zip(graph.inputs, self.inputs, strict=True)
        }
        self._follows = {id(self._target)}
        self._run(nodes_in_order(graph), values)
        self.outputs = [values[id(x)] for x in graph.outputs]
        for _ in range(_DEPTH):
            nodes = nodes_after([self._target], self.outputs)
            if not any(self._may_open(x.operation) for x in nodes):
                break
            made = {id(x) for node in nodes for x in node.outputs}
            values = {
                id(x): x
                for node in nodes
                for x in node.input_tensors
                if id(x) not in made
            }
            self._run(nodes, values)
            self.outputs = [values[id(x)] for x in self.outputs]

    def around(self, node):
        """Returns the innermost opened layer that contains a node, if any."""
        return next(iter(self._around.get(id(node), ())), None)

    def _run(self, nodes, values):
        """Runs nodes on symbolic tensors, and opens layers if possible."""
        for node in nodes:
            if all(id(x) in values for x in node.outputs):
                continue
            args, kwargs = node.arguments.fill_in(values)
            layer = node.operation
            around = self._around.get(id(node), ())
            follows = any(
                id(x) in self._follows
                for x in keras.tree.flatten((args, kwargs))
            )
            found = None
            if follows and self._may_open(layer):
                found = self._opened(node, args, kwargs, around)
            if found is None:
                with unchanged(layer):
                    found = keras.tree.flatten(layer(*args, **kwargs))
                remove_masks(layer, args, kwargs)
                self._place(found, around)
            if follows:
                self._follows.update(id(x) for x in found)
            pairs = zip(node.outputs, found, strict=True)
            values.update((id(x), value) for x, value in pairs)

    def _opened(self, node, args, kwargs, around):
        """Returns the outputs of a layer that was opened, if it can be."""
        layer = node.operation
        graph = graph_of(layer)
        try:
            if graph is not None:
                values = {
                    id(x): given
                    for x, given in zip(
                        graph.inputs, given_to(layer, args, kwargs), strict=True
                    )
                }
                self._run(nodes_in_order(graph), values)
                return [values[id(x)] for x in graph.outputs]
            found = keras.tree.flatten(
                call_inside(layer, args, kwargs, self.constants)
            )
            if not _fits(found, node.outputs):
                raise TypeError("other outputs than before")
        except Exception:  # a `call` may need more than symbolic tensors
            self.closed.append(layer)
            return None
        given = [
            x
            for x in keras.tree.flatten((args, kwargs))
            if isinstance(x, keras.KerasTensor)
        ]
        for inner in nodes_after(given, found):
            self._around[id(inner)] = (layer, *around)
            self._kept.append(inner)
        self.is_open = True
        return found

    def _place(self, tensors, around):
        """Remembers the layers around the node that made some tensors."""
        if around and isinstance(tensors[0], keras.KerasTensor):
            node = producer(tensors[0])
            self._around[id(node)] = around
            self._kept.append(node)

    def _may_open(self, layer):
        """Whether a layer, or one in a functional model, is a user's own."""
        if not isinstance(layer, keras.Layer) or (
            any(layer is x for x in self.closed)
        ):
            return False
        if graph_of(layer) is not None:
            return _has_one_length(layer) or any(
                self._may_open(x)
                for x in layers_within(layer)[1:]
                if graph_of(x) is None
            )
        return layer.built and is_own(layer)


def is_own(layer) -> bool:
    """Whether a layer's class is the user's own, and has no stepper."""
    return (
        isinstance(layer, keras.Layer)
        and type(layer).__module__.partition(".")[0] not in _PACKAGES
        and not has_stepper_of_user(layer)
        and not has_stepper(layer)
    )


def own_layers(model) -> list[keras.Layer]:
    """Returns the user's own layers through which the target passes."""
    nodes = nodes_after(model.inputs[-1:], model.outputs)
    found = {id(x.operation): x.operation for x in nodes}
    return [x for x in found.values() if is_own(x)]


def _has_one_length(model):
    """Whether a functional model was built for targets of one length."""
    inputs = graph_of(model).inputs
    return any(len(x.shape) > 2 and x.shape[1] is not None for x in inputs)


def _fits(found, expected):
    return len(found) == len(expected) and all(
        isinstance(x, keras.KerasTensor) and len(x.shape) == len(y.shape)
        for x, y in zip(found, expected, strict=True)
    )
