"""Runs nodes of a model's graph on other tensors, symbolic or not."""

import keras

from keras_attn.keras_internals import graph_of
from keras_attn.keras_internals import nodes_in_order


def rerun(
    model, tensors, instead=lambda operation: operation, places=None
) -> list:
    """Runs the layers of a functional model on other symbolic tensors.

    A new model that is made of the results shares the layers, and its graph
    shows each of them. (If `model` were called, it would be one layer there.)

    Args:
        model: A functional model.
        tensors: A symbolic tensor for each of its inputs.
        instead: Function of each layer or operation that returns the one to
            run in its place.
        places: The symbolic tensors of the model that the new ones replace.
            Defaults to its inputs. Layers before them are not run.

    Returns:
        A symbolic tensor for each of the model's outputs.
    """
    graph = graph_of(model)
    places = graph.inputs if places is None else places
    values = {id(x): new for x, new in zip(places, tensors, strict=True)}
    run_nodes(nodes_in_order(graph), values, instead)
    return [values[id(x)] for x in graph.outputs]


def run_nodes(nodes, values, instead) -> None:
    """Runs nodes in turn, and adds their outputs to the values.

    Args:
        nodes: Keras's nodes. Nodes with a missing input, or whose outputs are
            already in `values`, are skipped.
        values: A dictionary of values by the `id` of the symbolic tensor.
        instead: Function of each layer or operation that returns what to
            call in its place.
    """
    for node in nodes:
        there = all(id(x) in values for x in node.outputs)
        if there or any(id(x) not in values for x in node.input_tensors):
            continue
        args, kwargs = node.arguments.fill_in(values)
        found = keras.tree.flatten(instead(node.operation)(*args, **kwargs))
        pairs = zip(node.outputs, found, strict=True)
        values.update((id(x), value) for x, value in pairs)
