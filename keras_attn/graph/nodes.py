"""Functions that walk through the graph of a functional model."""

import keras
import numpy as np

from keras_attn.graph.calls import Call
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import graph_of
from keras_attn.keras_internals import nodes_in_order
from keras_attn.keras_internals import producer


def calls_between(entries, outputs) -> list[Call]:
    """Returns the calls that depend on some tensors, each after its inputs.

    Args:
        entries: Symbolic tensors.
        outputs: Symbolic tensors that may depend on the entries.
    """
    found = nodes_after(entries, outputs)
    tensors = [*entries, *(x for node in found for x in node.outputs)]
    inside = {id(x) for x in tensors}
    masks = {id(get_keras_mask(x)) for x in tensors} & inside

    def depends(structure):
        return any(id(x) in inside for x in keras.tree.flatten(structure))

    calls = []
    for node in found:
        args, kwargs = keras.tree.map_structure(
            lambda x: None if id(x) in masks else x,
            (node.arguments.args, node.arguments.kwargs),
        )
        calls.append(Call(node.operation, args, kwargs, node.outputs, depends))
    # Drops the calls that only compute masks.
    used = {id(x) for x in outputs}
    kept = []
    for call in reversed(calls):
        if any(id(x) in used for x in call.outputs):
            kept.append(call)
            used.update(id(x) for x in call.input_tensors)
    return kept[::-1]


def numbers_beside(entries, outputs) -> set[int]:
    """Returns the whole numbers in calls that depend on some tensors.

    A call may compare ids with them. Models inside are searched, too.

    Args:
        entries: Symbolic tensors.
        outputs: Symbolic tensors that may depend on the entries.
    """
    found: set[int] = set()
    for node in nodes_after(entries, outputs):
        inner = graph_of(node.operation)
        if inner is not None:
            found |= numbers_beside(inner.inputs, inner.outputs)
        given = keras.tree.flatten((node.arguments.args, node.arguments.kwargs))
        for x in given:
            if isinstance(x, (int, float, np.number)) and float(x).is_integer():
                found.add(int(x))
    return found


def nodes_after(tensors, outputs) -> list:
    """Returns the nodes of `all_nodes()` that depend on some tensors."""
    return those_after(tensors, all_nodes(outputs))


def those_after(tensors, nodes) -> list:
    """Returns those of some nodes, in order, that depend on some tensors."""
    inside = {id(x) for x in tensors}
    found = []
    for node in nodes:
        if any(id(x) in inside for x in node.input_tensors):
            found.append(node)
            inside.update(id(x) for x in node.outputs)
    return found


def all_nodes(outputs) -> list:
    """Returns all nodes that lead to some tensors, as Keras would run them.

    The order counts: Keras's `MultiHeadAttention` removes the masks of the
    tensors that it reads, so layers that read them later see no mask. Inputs of
    a model are left out.
    """
    # As in Keras's `map_graph`, which also refuses a name that occurs twice:
    # nodes far from the outputs run first, and a layer that is called several
    # times counts as far as its farthest call so far.
    depths: dict = {}
    of_operations: dict = {}
    for node in reversed(_after_parents(outputs)):
        depth = max(
            depths.setdefault(node, 0), of_operations.get(node.operation, 0)
        )
        depths[node] = of_operations[node.operation] = depth
        for parent in node.parent_nodes:
            depths[parent] = max(depth + 1, depths.get(parent, 0))
    ordered = sorted(depths, key=depths.__getitem__, reverse=True)
    return [x for x in ordered if not x.is_input]


def _after_parents(outputs):
    """Returns all nodes that lead to some tensors, each after its parents."""
    found: dict = {}
    for output in outputs:
        waiting = [producer(output)]
        while waiting:
            node = waiting[-1]
            unseen = [producer(x) for x in node.input_tensors]
            unseen = [x for x in unseen if id(x) not in found]
            if unseen:
                waiting.append(unseen[0])
            else:
                found.setdefault(id(node), waiting.pop())
    return list(found.values())


def given_to(model, args, kwargs) -> list:
    """Returns the inputs in a call of a nested model, in the model's order.

    Args:
        model: The nested model.
        args: Positional arguments of the call.
        kwargs: Named arguments of the call.
    """
    return in_order(model, args[0] if args else kwargs["inputs"])


def in_order(model, given) -> list:
    """Returns one thing for each input of a model, in the model's order.

    Args:
        model: A functional model.
        given: The things in a form in which the model takes its inputs: alone,
            in a list or by name. Names that the model lacks are left out.
    """
    if isinstance(given, dict) and not isinstance(model.input, dict):
        return [given[x.name] for x in model.inputs]
    if isinstance(given, dict):
        given = {name: given[name] for name in model.input}
    return keras.tree.flatten(given)


def readers_of(model, tensor) -> list:
    """Returns the layers and operations of a graph that read a tensor.

    Args:
        model: A functional model.
        tensor: A symbolic tensor of the model.
    """
    return [
        node.operation
        for node in nodes_in_order(graph_of(model))
        if any(x is tensor for x in node.input_tensors)
    ]
