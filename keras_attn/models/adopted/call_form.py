"""Finds the form in which a model takes its inputs: names and structure."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import layers

from keras_attn.graph.rerun import rerun
from keras_attn.incremental.refuse import in_short
from keras_attn.keras_internals import graph_of
from keras_attn.keras_internals import is_functional
from keras_attn.keras_internals import nodes_in_order


class InputForm(NamedTuple):
    """An input of a model; unknown properties are `None`."""

    name: str
    shape: tuple | None = None  # batch first
    dtype: str | None = None


class CallForm(NamedTuple):
    """How a model is called.

    Attributes:
        inputs: Its inputs.
        ordered: Whether their order is known. If so, the last one is the
            target.
        call: Function from a list of symbolic tensors, one for each input, to
            the outputs.
        traced: Whether the model's own graph is run. Otherwise the model is a
            single layer, whose inside is not visible.
        symbols: The inputs of its graph, if that is run.
        ask: Function from a list of arrays, one for each input, to the outputs.
            It calls the model as its author does. `None` if the model reads
            strings.
    """

    inputs: list[InputForm]
    ordered: bool
    call: Callable
    traced: bool
    symbols: list = []
    ask: Callable | None = None


def call_form(model: keras.Model) -> CallForm:
    """Finds out how a model is called.

    Raises:
        ValueError: If it is not a model, or was never built.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(
            "A `Translator` decodes with a `keras.Model`, which reads a "
            f"source and a target. Received: {model!r:.100} (of type "
            f"{type(model).__name__})."
        )
    if is_functional(model):
        return _of_graph(model)
    if not model.built or not model.weights:
        raise ValueError(
            "The model must have its weights. Received: a "
            f"`{type(model).__name__}` that was not built. Call it once, "
            "`model((source, target))`, then train it or load its weights."
        )
    return _of_subclass(model)


def _of_graph(model):
    given = model.input
    if isinstance(given, dict):
        names, tensors = list(given), list(given.values())
    else:
        tensors = list(model.inputs)
        names = [x.name for x in tensors]
    tensors = [_below_vectorization(model, x) for x in tensors]
    inputs = [
        InputForm(str(name), tuple(x.shape), x.dtype)
        for name, x in zip(names, tensors, strict=True)
    ]

    def call(values, instead=lambda operation: operation):
        return rerun(model, values, instead, tensors)

    def ask(values):
        if isinstance(given, dict):
            values = dict(zip(given, values, strict=True))
        return model(values, training=False)

    whole = all(any(x is y for y in model.inputs) for x in tensors)
    return CallForm(
        inputs,
        not isinstance(given, dict),
        call,
        True,
        tensors,
        ask if whole else None,
    )


def _below_vectorization(model, x):
    """Returns the ids that a layer computes from an input of strings.

    A translator's `Text` makes these ids.
    """
    if x.dtype != "string":
        return x
    for node in nodes_in_order(graph_of(model)):
        if any(x is y for y in node.input_tensors) and isinstance(
            node.operation, (layers.TextVectorization, layers.StringLookup)
        ):
            return node.outputs[0]
    raise ValueError(
        "A model may read strings through a `TextVectorization` or a "
        "`StringLookup`, which a `Text` replaces. Received: the input "
        f"'{x.name}' of strings, which another layer reads. Build a model of "
        "what follows the ids, `keras.Model([ids, ...], outputs)`."
    )


def _of_subclass(model):
    """Returns the form in which a model with its own `call` was built."""
    built = model.get_build_config() or {}
    shapes = built.get("input_shape")
    arguments = _arguments(model)
    if isinstance(shapes, dict) or _are_several(shapes):
        inputs = _inputs_in(shapes)
        given = lambda values: [_in_place_of(shapes, values)]  # noqa: E731
    elif len(arguments) > 1:
        # Keras records only the shape of the first argument.
        inputs = [
            InputForm(name, None if i else _shape(shapes))
            for i, name in enumerate(arguments)
        ]
        given = lambda values: values  # noqa: E731
    else:  # its two inputs come together, as it was built without a call
        inputs = [InputForm(""), InputForm("")]
        given = lambda values: [tuple(values)]  # noqa: E731
    inputs = [
        x._replace(name=x.name or _name(i, len(inputs)))
        for i, x in enumerate(inputs)
    ]

    def call(values, instead=None):
        return _called(model, given(values), inputs)

    return CallForm(inputs, not isinstance(shapes, dict), call, False, ask=call)


def _inputs_in(shapes, name=""):
    """Returns the inputs of a structure of shapes, named by their keys."""
    if isinstance(shapes, dict):
        pairs = [(str(key), x) for key, x in shapes.items()]
    elif _are_several(shapes):
        pairs = [(name, x) for x in shapes]
    else:
        return [InputForm(name, _shape(shapes))]
    return [x for key, inner in pairs for x in _inputs_in(inner, key)]


def _in_place_of(shapes, values):
    """Returns values in a structure, one for each shape in it."""
    values = iter(values)

    def filled(part):
        if isinstance(part, dict):
            return {key: filled(x) for key, x in part.items()}
        if _are_several(part):
            return type(part)([filled(x) for x in part])
        return next(values)

    return filled(shapes)


def _called(model, given, inputs):
    """Calls a model with tensors; returns its outputs."""
    count, options = len(model.weights), {}
    if "training" in inspect.signature(model.call).parameters:
        options["training"] = False
    try:
        found = model(*given, **options)
    except Exception as error:  # any `call` may raise anything
        raise ValueError(
            f"The model `{type(model).__name__}` must run on its inputs "
            f"{[x.name for x in inputs]}. Received: a `call` that fails with "
            f"{in_short(error):.400} A model with a `call` of its own is "
            "called as it was first called: with a tuple `(source, target)`, "
            "a dictionary, or two arguments."
        ) from error
    if len(model.weights) != count:
        raise ValueError(
            f"The model `{type(model).__name__}` must have all its weights. "
            "Received: one that makes more of them when it is called with "
            f"{[x.name for x in inputs]}. Call it with such inputs before you "
            "train it or load its weights."
        )
    return found


def _arguments(model):
    """Returns the names of the arguments of `call` that take tensors."""
    parameters = [
        x
        for x in inspect.signature(model.call).parameters.values()
        if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)
        and x.name not in ("training", "mask")
    ]
    needed = [x.name for x in parameters if x.default is x.empty]
    if len(needed) > 1:
        return needed
    return [x.name for x in parameters[:2]]  # `call(source, target=None)`


def _are_several(shapes):
    return isinstance(shapes, (tuple, list)) and any(
        isinstance(x, (tuple, list)) for x in shapes
    )


def _shape(shape):
    return None if shape is None else tuple(shape)


def _name(number, count):
    if number == count - 1:
        return "target"
    return "source" if count == 2 else f"source_{number + 1}"
