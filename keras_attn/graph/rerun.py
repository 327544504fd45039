"""Runs the layers of a functional model on other symbolic tensors."""

import keras

from keras_attn.keras_internals import graph_of
from keras_attn.keras_internals import nodes_in_order


def rerun(
    model, tensors, instead=lambda operation: operation, places=None
) -> list:
    """Runs the layers of a functional model on other symbolic tensors.

    A new model that is made of the results shares the layers, and knows
    which of them depend on what. (A call of the model would be one layer.)

    Args:
        model: A functional model.
        tensors: A symbolic tensor for each of its inputs.
        instead: Function of each layer or operation that returns the one to
            run in its place.
        places: The symbolic tensors of the model that the new ones replace.
            Defaults to its inputs. Layers before them are left out.

    Returns:
        A symbolic tensor for each of the model's outputs.
    """
    graph = graph_of(model)
    places = graph.inputs if places is None else places
    values = {id(x): new for x, new in zip(places, tensors, strict=True)}
    for node in nodes_in_order(graph):
        before = all(id(x) in values for x in node.outputs)
        if before or any(id(x) not in values for x in node.input_tensors):
            continue
        args, kwargs = _filled(node.arguments, values)
        found = instead(node.operation)(*args, **kwargs)
        values |= {
            id(x): new
            for x, new in zip(
                node.outputs, keras.tree.flatten(found), strict=True
            )
        }
    return [values[id(x)] for x in graph.outputs]


def _filled(arguments, values):
    """Returns the arguments of a call with other tensors."""
    return keras.tree.map_structure(
        lambda x: values[id(x)] if isinstance(x, keras.KerasTensor) else x,
        (arguments.args, arguments.kwargs),
    )
