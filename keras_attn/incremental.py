"""Cuts a trained functional model into `encode()` and `step()`.

The functional graph is the model: there is no second one to write for
inference. Whatever depends on the target input runs a token at a time. An
`AttentionDecoder` does so through its own `step`; every other layer must
treat each target position alone and is called as it is, with hypotheses
where it expects positions.
"""

import inspect
from typing import NamedTuple

import keras
import numpy as np
from keras import layers
from keras import ops

from keras_attn.attention import Attention
from keras_attn.decoder import AttentionDecoder

# Layers known to mix target positions, refused by name before anything runs.
# Whatever else does is found by `check()`.
_MIXES_POSITIONS = (
    layers.RNN,
    layers.Bidirectional,
    layers.MultiHeadAttention,
    layers.GroupQueryAttention,
    layers.Attention,
    layers.Conv1D,
    layers.GlobalAveragePooling1D,
    layers.GlobalMaxPooling1D,
    layers.Flatten,
    Attention,
)


class Encoded(NamedTuple):
    """What does not depend on the target, computed once per source."""

    constants: tuple  # tensors that enter the target's part of the graph
    sources: tuple  # the `Source` of each decoder
    initial_states: tuple  # the initial state of each decoder, or ()


class Incremental:
    """A functional encoder-decoder model, run a target token at a time.

    Args:
        model: A functional `keras.Model` with one output, the logits of
            shape `(batch, target, vocabulary)`. Its last input holds the
            target's token ids, shifted right by one; the others are the
            source.

    Raises:
        ValueError: If the model cannot be cut. The message names the layer
            that is in the way.

    Example:

    >>> source, target = keras.Input((None, 4)), keras.Input((None,))
    >>> hidden = keras_attn.AttentionDecoder(
    ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
    ...     keras.layers.Embedding(10, 8)(target), source)
    >>> model = keras.Model([source, target], keras.layers.Dense(10)(hidden))
    >>> cut = keras_attn.Incremental(model)
    >>> encoded = cut.encode(np.ones((2, 5, 4), "float32"))
    >>> state = cut.start(encoded, beams=3)
    >>> logits, alignments, state = cut.step(
    ...     np.ones((2, 3), "int32"), state, encoded)
    >>> logits.shape, alignments.shape
    (TensorShape([2, 3, 10]), TensorShape([2, 3, 5]))
    """

    def __init__(self, model: keras.Model):
        _require_functional(model)
        self.model = model
        *sources, self._target = model.inputs
        self._nodes = _nodes_after(self._target, model.outputs[0])
        inside = {id(self._target)}
        inside.update(id(x) for node in self._nodes for x in node.outputs)
        self._decoders = []
        border = []
        for node in self._nodes:
            if isinstance(node.operation, AttentionDecoder):
                self._decoders.append(_DecoderCall(node, inside))
            else:
                _require_position_wise(node.operation)
            border += [x for x in node.input_tensors if id(x) not in inside]
        if not self._decoders:
            raise ValueError(
                "The model has no `AttentionDecoder` between its last input, "
                f"'{self._target.name}', and its output, so there is nothing "
                "to decode. The last input must hold the target's ids."
            )
        self._border = list({id(x): x for x in border}.values())
        self._encoder = keras.Model(sources, self._border)

    def encode(self, *sources) -> Encoded:
        """Runs the part of the model that does not depend on the target.

        Args:
            *sources: The model's inputs but the last, batch first.
        """
        # Keras returns the tensor itself where a model has one output.
        constants = keras.tree.flatten(
            self._encoder(list(sources), training=False)
        )
        values = {
            id(x): value
            for x, value in zip(self._border, constants, strict=True)
        }
        sources, initial_states = [], []
        for call in self._decoders:
            memory, mask, condition, state = (
                keras.tree.map_structure(
                    lambda x: None if x is None else values[id(x)], x
                )
                for x in call.arguments
            )
            if mask is None:
                mask = keras.tree.map_structure(
                    lambda x: getattr(x, "_keras_mask", None), memory
                )
            sources.append(call.layer.prepare(memory, mask, condition))
            states = () if state is None else keras.tree.flatten(state)
            initial_states.append(tuple(states))
        return Encoded(tuple(constants), tuple(sources), tuple(initial_states))

    def start(
        self, encoded: Encoded, beams: int = 1, max_length: int | None = None
    ) -> tuple:
        """Returns the decoding state before the first token.

        Args:
            encoded: What `encode()` returned.
            beams: Number of hypotheses a source.
            max_length: How many steps there may be; needed where a decoder
                attends to its own past.

        Returns:
            A structure of tensors whose first two axes are batch and beams.
        """
        batch = ops.shape(keras.tree.flatten(encoded)[0])[0]
        return tuple(
            call.layer.start(
                source, list(initial_state) or None, beams, max_length, batch
            )
            for call, source, initial_state in zip(
                self._decoders,
                encoded.sources,
                encoded.initial_states,
                strict=True,
            )
        )

    def step(self, tokens, state: tuple, encoded: Encoded) -> tuple:
        """Extends each hypothesis by one token.

        Args:
            tokens: Ids of the last tokens, of shape `(batch, beams)`.
            state: What `start()` or the last step returned.
            encoded: What `encode()` returned.

        Returns:
            Logits `(batch, beams, vocabulary)` of the next token, alignments
            `(batch, beams, source)` of the last decoder on the way to them
            (of its first attention; `None` if it has none), and the new
            state.
        """
        values, alignments, state = self._run(tokens, state, encoded)
        logits = values[id(self.model.outputs[0])]
        return logits, alignments[0] if alignments else None, state

    def _run(self, tokens, state, encoded):
        values = {id(self._target): tokens}
        for x, value in zip(self._border, encoded.constants, strict=True):
            values[id(x)] = value
        decoders = iter(
            zip(self._decoders, state, encoded.sources, strict=True)
        )
        new_state = []
        for node in self._nodes:
            if isinstance(node.operation, AttentionDecoder):
                call, decoder_state, source = next(decoders)
                outputs, alignments, decoder_state = call.layer.step(
                    values[id(call.inputs)], decoder_state, source
                )
                new_state.append(decoder_state)
                alignments = keras.tree.flatten(alignments)
                dtype = call.layer.compute_dtype
                given = outputs, *(ops.cast(x, dtype) for x in alignments)
                for x, value in zip(call.outputs, given, strict=False):
                    values[id(x)] = value
                continue
            args, kwargs = keras.tree.map_structure(
                lambda x: values.get(id(x), x),
                (node.arguments.args, node.arguments.kwargs),
            )
            if _takes_training(node.operation):
                kwargs = {**kwargs, "training": False}
            outputs = keras.tree.flatten(node.operation(*args, **kwargs))
            for x, value in zip(node.outputs, outputs, strict=True):
                values[id(x)] = value
        return values, alignments, tuple(new_state)

    def check(self, *inputs) -> None:
        """Compares decoding step by step with the whole model.

        Args:
            *inputs: All the model's inputs, the target's ids last; none of
                these is padding, over which a search never steps.

        Raises:
            ValueError: If they differ. The message names the first layer
                whose output does.
        """
        *sources, target = inputs
        decoders = iter(self._decoders)
        tensors = []
        for node in self._nodes:
            is_decoder = isinstance(node.operation, AttentionDecoder)
            tensors += (next(decoders) if is_decoder else node).outputs
        whole = keras.Model(self.model.inputs, tensors)(
            list(inputs), training=False
        )
        if not np.isfinite(ops.convert_to_numpy(whole[-1])).all():
            raise ValueError(
                "The model's logits are not finite numbers, so there is "
                "nothing to decode. Did training diverge? A lower learning "
                "rate, warm-up or `clipnorm` in the optimizer helps."
            )
        encoded = self.encode(*sources)
        state = self.start(encoded, max_length=target.shape[1])
        for t in range(target.shape[1]):
            values, _, state = self._run(target[:, t : t + 1], state, encoded)
            steps = [values[id(x)] for x in tensors]
            for x, step, all_steps in zip(tensors, steps, whole, strict=True):
                if not _equal(step, all_steps, t):
                    _refuse(
                        x._keras_history.operation,
                        "gives another result when it sees one target "
                        "position at a time",
                    )


class _DecoderCall:
    """A decoder in the graph, and the tensors it was called with."""

    def __init__(self, node, inside):
        self.layer = node.operation
        signature = inspect.signature(self.layer.call)
        call = signature.bind(*node.arguments.args, **node.arguments.kwargs)
        self.inputs = call.arguments["inputs"]
        # Samples, which it may return too, have no meaning in decoding.
        scores = call.arguments.get("return_attention_scores", False)
        count = 1 + len(self.layer.attentions) * scores
        self.outputs = node.outputs[:count]
        names = "memory", "memory_mask", "condition", "initial_state"
        self.arguments = [call.arguments.get(name) for name in names]
        for name, argument in zip(names, self.arguments, strict=True):
            tensors = keras.tree.flatten(argument)
            if any(id(x) in inside for x in tensors):
                _refuse(
                    self.layer, f"has a `{name}` that depends on the target"
                )


def _nodes_after(tensor, output):
    """The graph's nodes that depend on a tensor, each after its inputs."""
    depends = {}  # id of a node -> whether it does
    ordered = []
    history = output._keras_history
    waiting = [history.operation._inbound_nodes[history.node_index]]
    while waiting:
        node = waiting[-1]
        parents = node.parent_nodes
        unseen = [parent for parent in parents if id(parent) not in depends]
        if unseen:
            waiting += unseen
            continue
        waiting.pop()
        if id(node) in depends:
            continue
        after = any(depends[id(parent)] for parent in parents)
        if after:
            ordered.append(node)
        depends[id(node)] = after or any(x is tensor for x in node.outputs)
    return ordered


def _require_functional(model):
    if not (
        isinstance(model, keras.Model)
        and hasattr(model, "inputs")
        and model.inputs
        and hasattr(model.outputs[0], "_keras_history")
    ):
        raise ValueError(
            "A functional model is needed, `keras.Model(inputs, outputs)`: "
            "its graph shows what depends on the target. Received: "
            f"{model!r}."
        )
    if isinstance(model.input, dict):
        raise ValueError(
            "The model's inputs must be a list, the target's ids last. "
            f"Received a dict with the keys {list(model.input)}, which has "
            "no order. Build `keras.Model([source, target], logits)`; the "
            "weights are shared."
        )
    if len(model.inputs) < 2 or len(model.outputs) != 1:
        raise ValueError(
            "The model must have at least two inputs, the source and, last, "
            "the target's ids, and one output, the logits. Received: "
            f"{len(model.inputs)} input(s) "
            f"{[x.name for x in model.inputs]} and {len(model.outputs)} "
            "output(s)."
        )


def _require_position_wise(operation):
    if isinstance(operation, _MIXES_POSITIONS):
        _refuse(operation, "mixes target positions")
    inner = getattr(operation, "layers", ())
    if isinstance(operation, keras.Model):
        for layer in inner:
            if isinstance(layer, AttentionDecoder):
                _refuse(operation, f"hides the decoder '{layer.name}'")
            _require_position_wise(layer)


def _takes_training(operation):
    return (
        isinstance(operation, keras.Layer)
        and "training" in inspect.signature(operation.call).parameters
    )


def _refuse(operation, reason):
    raise ValueError(
        f"This model cannot be decoded token by token: '{operation.name}' "
        f"({type(operation).__name__}) {reason}. Between the target input "
        "and the logits there may stand `AttentionDecoder` layers whose "
        "memory, initial state and condition come from the source, and "
        "layers that treat each position alone, such as `Embedding`, "
        "`Dense`, `Dropout` and `LayerNormalization`."
    )


def _equal(step, whole, t):
    step, whole = ops.convert_to_numpy(step), ops.convert_to_numpy(whole)
    if step.shape[1:2] != (1,) or len(step.shape) != len(whole.shape):
        return False
    half = step.dtype.itemsize < 4 or whole.dtype.itemsize < 4
    tolerance = 5e-2 if half else 1e-3
    whole = whole[:, t : t + 1].astype("float32")
    return step.shape == whole.shape and np.allclose(
        step.astype("float32"), whole, rtol=tolerance, atol=tolerance
    )
