"""All names of Keras and KerasHub in use that are not their public API.

Each name here is one thing that a new version may change. A test in
`tests/test_keras_internals.py` says what of it has to stay.
"""

from typing import Any
from typing import NamedTuple

import keras
from keras import layers
from keras.src.backend import AutocastScope as AutocastScope
from keras.src.backend import get_keras_mask as get_keras_mask
from keras.src.backend import set_keras_mask as set_keras_mask
from keras.src.layers.rnn.dropout_rnn_cell import (
    DropoutRNNCell as DropoutRNNCell,
)
from keras.src.models.functional import Functional as Functional
from keras.src.models.functional import operation_fn

# The attributes that `compile` gives a model and a saved file would hold.
COMPILED = (
    "optimizer",
    "loss",
    "_compile_loss",
    "_compile_metrics",
    "_loss_tracker",
)


def layers_within(layer) -> list:
    """Returns a layer, or model, and all layers within it at any depth."""
    return list(layer._flatten_layers())


def own_variables(layer) -> list:
    """Returns a layer's variables without those of the layers within it.

    `layer.variables` walks through all layers within, which takes long.
    """
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def is_seed(variable) -> bool:
    """Whether a variable is the state of a `keras.random.SeedGenerator`."""
    return "seed_generator_state" in variable.path


def is_functional(operation) -> bool:
    """Whether a layer is a model whose graph says what it computes."""
    return isinstance(operation, (Functional, keras.Sequential)) and type(
        operation
    ).call in (Functional.call, keras.Sequential.call)


def graph_of(operation):
    """Returns the functional model behind an operation, or `None`.

    A `keras.Sequential` keeps one within.
    """
    if not is_functional(operation):
        return None
    if isinstance(operation, keras.Sequential):
        return operation._functional
    return operation


def in_graph(tensor) -> bool:
    """Whether a tensor is one that a functional graph remembers."""
    return hasattr(tensor, "_keras_history")


def producer(tensor):
    """Returns Keras's node of the call that gave a symbolic tensor.

    A node has the `operation` that was called, its `arguments` (with `args`,
    `kwargs` and `fill_in(values by id)`), `input_tensors`, `outputs`,
    `parent_nodes`, and `is_input`, which is true of an input of a model.
    """
    history = tensor._keras_history
    return history.operation._inbound_nodes[history.node_index]


def nodes_in_order(model) -> list:
    """Returns the nodes of a functional model as Keras runs them."""
    nodes = model._nodes_by_depth
    return [
        node
        for depth in sorted(nodes, reverse=True)
        for node in nodes[depth]
        if not node.is_input and node.operation
    ]


def without_training(operation):
    """Returns a function that calls an operation as `training=False` does.

    Only operations that know the argument, at any depth, are given it.
    """
    return operation_fn(operation, training=False)


def is_operation_of_keras(operation) -> bool:
    """Whether an operation is one of `keras.ops`."""
    return type(operation).__module__.startswith("keras.src.ops.")


class Projections(NamedTuple):
    """The layers that a built `MultiHeadAttention` projects with."""

    query: Any
    key: Any
    value: Any
    output: Any
    gate: Any  # `None` without `use_gate=True`


def projections(attention) -> Projections:
    """Returns those of a `MultiHeadAttention` or `GroupQueryAttention`."""
    return Projections(
        attention._query_dense,
        attention._key_dense,
        attention._value_dense,
        attention._output_dense,
        getattr(attention, "_gate_dense", None),
    )


def sliding_window(attention):
    """Returns how many positions an attention may look at, `None` for all."""
    if isinstance(attention, layers.MultiHeadAttention):
        return attention._sliding_window
    return getattr(attention, "sliding_window", None)


class HubDecoderParts(NamedTuple):
    """The layers of a built `keras_hub.layers.TransformerDecoder`."""

    self_attention: Any
    self_attention_norm: Any
    cross_attention: Any  # `None` where it was called without an encoder
    cross_attention_norm: Any
    intermediate_dense: Any
    output_dense: Any
    feedforward_norm: Any


def hub_decoder_parts(block) -> HubDecoderParts:
    """Returns those of a block of KerasHub's."""
    return HubDecoderParts(
        block._self_attention_layer,
        block._self_attention_layer_norm,
        block._cross_attention_layer,
        getattr(block, "_cross_attention_layer_norm", None),
        block._feedforward_intermediate_dense,
        block._feedforward_output_dense,
        block._feedforward_layer_norm,
    )
