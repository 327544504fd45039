"""All non-public names of Keras and KerasHub that this package uses.

A new version may change any of these names. The properties that this package
relies on are tested in `tests/project/test_keras_internals.py`.
"""

import sys
from types import FrameType
from typing import Any
from typing import NamedTuple

import keras
from keras import layers
from keras import ops
from keras.src.backend import AutocastScope as AutocastScope
from keras.src.backend import compute_output_spec as compute_output_spec
from keras.src.backend import get_keras_mask as get_keras_mask
from keras.src.backend import set_keras_mask as set_keras_mask
from keras.src.backend.common.global_state import get_global_attribute
from keras.src.layers.rnn.dropout_rnn_cell import (
    DropoutRNNCell as DropoutRNNCell,
)
from keras.src.models.functional import Functional as Functional
from keras.src.models.functional import operation_fn
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR
from keras.src.utils import file_utils as file_utils

# Attributes that `compile` sets on a model and that saving would store.
COMPILED = (
    "optimizer",
    "loss",
    "_compile_loss",
    "_compile_metrics",
    "_loss_tracker",
)

# Warnings of Keras's callbacks if the logs lack the monitored metric. `{}`
# stands for a regular expression of names. These callbacks skip the epoch:
PASSES_OVER = (
    "Early stopping conditioned on metric `(?:{})` which is not available",
    "Learning rate reduction is conditioned on metric `(?:{})` which is not",
)
# ... and `ModelCheckpoint` saves the model as if it were the best.
SAVES_WITHOUT = r"Can save best model only with (?:{}) available\."


def layers_within(layer) -> list:
    """Returns a layer or model, and all layers inside it at any depth."""
    return list(layer._flatten_layers())


def own_variables(layer) -> list:
    """Returns a layer's variables without those of the layers inside it.

    `layer.variables` walks through all inner layers, which takes long.
    """
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def losses_of(layer) -> list:
    """Returns the list to which a layer's own `add_loss` adds."""
    return layer._losses


def is_seed(variable) -> bool:
    """Whether a variable is the state of a `keras.random.SeedGenerator`."""
    return "seed_generator_state" in variable.path


def shared_seeds() -> list:
    """Returns the state of the seed generator of draws without a seed.

    The list is empty if no such draw was made since Keras's last
    `clear_session`.
    """
    generator = get_global_attribute(GLOBAL_SEED_GENERATOR)
    return [] if generator is None else [generator.state]


def start_at(model, epoch):
    """Makes a `fit` that has just begun start at `epoch`, counted from 0.

    Keras reads it after `on_train_begin` of all callbacks and never forgets
    it. So call `forget_start` later, or each later `fit` starts there too.
    """
    model._initial_epoch = epoch


def forget_start(model):
    """Makes the next `fit` start at its own `initial_epoch` again."""
    model._initial_epoch = None


class Fit(NamedTuple):
    """A call of `fit` that is running."""

    callbacks: list  # in the order in which Keras calls them
    steps: Any  # `steps_per_epoch`, `None` if it was not given
    batches: Any  # number of batches of the data, `None` if unknown


def running_fit(model) -> Fit | None:
    """Returns the `fit` of a model from which this is called, or `None`.

    Keras tells a callback neither the other callbacks nor `steps_per_epoch`,
    so they are read from the local variables of `fit`.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "fit":
            found = frame.f_locals
            if found.get("self") is model and "epoch_iterator" in found:
                data = found["epoch_iterator"]
                return Fit(
                    found["callbacks"].callbacks,
                    data.steps_per_epoch,
                    data.data_adapter.num_batches,
                )
        frame = frame.f_back
    return None


def batches_of(optimizer) -> int:
    """Returns the number of batches that an optimizer has been applied to.

    `optimizer.iterations` counts updates, of which gradient accumulation makes
    one in several batches. A `LossScaleOptimizer` leaves out the batches whose
    gradients were not finite.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return int(ops.convert_to_numpy(inner._iterations))


def is_functional(operation) -> bool:
    """Whether a layer is a model whose calls compute exactly its graph.

    Its class does not override `call`, or marks its `call` with
    `computes_its_graph`.
    """
    if not isinstance(operation, (Functional, keras.Sequential)):
        return False
    call = type(operation).call
    return call in (Functional.call, keras.Sequential.call) or getattr(
        call, "computes_its_graph", False
    )


def graph_of(operation):
    """Returns the functional model behind an operation, or `None`.

    A `keras.Sequential` has an inner functional model.
    """
    if not is_functional(operation):
        return None
    if isinstance(operation, keras.Sequential):
        return operation._functional
    return operation


def in_graph(tensor) -> bool:
    """Whether a tensor belongs to a functional graph."""
    return hasattr(tensor, "_keras_history")


def producer(tensor):
    """Returns Keras's node of the call that returned a symbolic tensor.

    A node has the `operation` that was called, its `arguments` (with `args`,
    `kwargs` and `fill_in(values by id)`), `input_tensors`, `outputs`,
    `parent_nodes`, and `is_input`, which is true for an input of a model.
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


def as_inputs(model, given, masks=None) -> list:
    """Returns tensors as a functional model reads them.

    Args:
        model: A functional model.
        given: The values of its inputs.
        masks: Their masks, or `None` without any.
    """
    found = list(model._standardize_inputs(given))
    for x, mask in zip(found, keras.tree.flatten(masks), strict=False):
        if mask is not None:
            set_keras_mask(x, mask)
    return found


def without_training(operation):
    """Returns a function that calls an operation with `training=False`.

    The argument reaches only operations that take it, at any depth.
    """
    return operation_fn(operation, training=False)


def is_operation_of_keras(operation) -> bool:
    """Whether an operation is one of `keras.ops`."""
    return type(operation).__module__.startswith("keras.src.ops.")


class Projections(NamedTuple):
    """The projection layers of a built `MultiHeadAttention`."""

    query: Any
    key: Any
    value: Any
    output: Any
    gate: Any  # `None` without `use_gate=True`


def projections(attention) -> Projections:
    """Returns the layers of a `MultiHeadAttention` or `GroupQueryAttention`."""
    return Projections(
        attention._query_dense,
        attention._key_dense,
        attention._value_dense,
        attention._output_dense,
        getattr(attention, "_gate_dense", None),
    )


def sliding_window(attention):
    """Returns the window of an attention in positions, `None` for no limit."""
    if isinstance(attention, layers.MultiHeadAttention):
        return attention._sliding_window
    return getattr(attention, "sliding_window", None)


def masks_weights(attention, returns_scores=False) -> bool:
    """Whether an attention's weights are 0 for a query that may see no key.

    Keras sets masked weights to 0 after the softmax if the layer has dropout or
    returns its scores. Else a row in which all scores are masked has equal
    weights.
    """
    if isinstance(attention, layers.MultiHeadAttention):
        return attention._dropout > 0 or returns_scores
    if isinstance(attention, layers.GroupQueryAttention):
        return attention.dropout > 0 or returns_scores
    return False


class HubDecoderParts(NamedTuple):
    """The layers of a built `keras_hub.layers.TransformerDecoder`."""

    self_attention: Any
    self_attention_norm: Any
    cross_attention: Any  # `None` if it was called without an encoder
    cross_attention_norm: Any
    intermediate_dense: Any
    output_dense: Any
    feedforward_norm: Any


def t5_relative_bias(attention, apart):
    """Returns the relative bias of a `T5MultiHeadAttention` of KerasHub.

    Args:
        attention: The layer, built with a relative attention bias.
        apart: Position of each key minus that of its query, int32.

    Returns:
        Tensor of the shape of `apart` with a further last axis, the heads.
    """
    buckets = attention._relative_position_bucket(
        apart,
        bidirectional=not attention.is_decoder,
        num_buckets=attention.relative_attention_buckets,
        max_distance=attention.relative_attention_max_distance,
    )
    return ops.take(attention.relative_attention_bias, buckets, axis=0)


def hub_decoder_parts(block) -> HubDecoderParts:
    """Returns the layers of a built `TransformerDecoder` of KerasHub."""
    return HubDecoderParts(
        block._self_attention_layer,
        block._self_attention_layer_norm,
        block._cross_attention_layer,
        getattr(block, "_cross_attention_layer_norm", None),
        block._feedforward_intermediate_dense,
        block._feedforward_output_dense,
        block._feedforward_layer_norm,
    )
