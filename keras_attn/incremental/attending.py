"""Steppers of attention: to the source, and to the target's own past.

Any layer that computes a context from query, key and value: ours and those
of Keras, which `stepwise()` gives the same methods.
"""

from keras import layers
from keras import ops

from keras_attn.attention import Attention
from keras_attn.decoder import past
from keras_attn.incremental.heads import stepwise
from keras_attn.incremental.refuse import refuse
from keras_attn.incremental.steppers import Stepper
from keras_attn.incremental.steppers import arguments_of
from keras_attn.incremental.steppers import fill
from keras_attn.incremental.steppers import masked
from keras_attn.incremental.steppers import require_constant
from keras_attn.incremental.steppers import takes
from keras_attn.keras_internals import set_keras_mask
from keras_attn.keras_internals import sliding_window

# Keras's, beside our own `Attention`.
ATTENTIONS = (
    layers.Attention,
    layers.AdditiveAttention,
    layers.MultiHeadAttention,
    layers.GroupQueryAttention,
)


def attention_stepper(node, depends):
    """The stepper of an attention, by where its keys come from."""
    call = _call(node)
    sides = {depends(call[name]) for name in ("value", "key")}
    if not depends(call["query"]) or len(sides) > 1:
        refuse(
            node.operation,
            "mixes target positions: keys and values must both come from the "
            "source, or both from the target as the query does",
        )
    return (SelfAttention if sides == {True} else CrossAttention)(node, depends)


class CrossAttention(Stepper):
    """Attends to the source: its keys are projected once, beams are queries."""

    attends = True
    only_first = (
        "returns its scores by head, or samples; only the context, and the "
        "mean of the heads of `keras_attn.Attention`, are there"
    )

    def __init__(self, node, depends):
        super().__init__(node, depends)
        layer, call = self.operation, _call(node)
        self._call = call
        self._attention = stepwise(layer)
        require_constant(
            layer,
            depends,
            value_mask=call.get("value_mask"),
            key_mask=call.get("key_mask"),
        )
        if call.get("use_causal_mask"):
            refuse(
                layer,
                "attends to the source with `use_causal_mask=True`; leave it "
                "out",
            )
        if sliding_window(layer) is not None:
            refuse(
                layer,
                "attends to the source with a `sliding_window`; leave it out",
            )
        self._allowed = call.get("attention_mask")
        self._allowed_varies = depends(self._allowed)
        if self._allowed is not None and len(self._allowed.shape) != 3:
            refuse(
                layer,
                "has an `attention_mask` whose axes are not (batch, target, "
                "source); the mask of the source alone is `value_mask`",
            )
        scores = call.get("return_attention_scores") is True
        by_head = isinstance(
            layer, (layers.MultiHeadAttention, layers.GroupQueryAttention)
        )
        self.outputs = node.outputs[: 1 + (scores and not by_head)]

    def prepare(self, values):
        call = self._call
        value, value_mask = masked(
            call["value"], call.get("value_mask"), values
        )
        key = key_mask = None
        if call["key"] is not call["value"]:
            key, key_mask = masked(call["key"], call.get("key_mask"), values)
        # Subclasses of Keras's layers may not look at the masks.
        if not (takes(self.operation, "value_mask") or "inputs" in call):
            value_mask = key_mask = None
        memory = self._attention.prepare(value, key, value_mask, key_mask)
        if isinstance(self.operation, layers.MultiHeadAttention):
            # It takes the masks off its inputs, so that in the whole model
            # layers after it do not see them either.
            set_keras_mask(value, None)
            if key is not None:
                set_keras_mask(key, None)
        allowed = None
        if self._allowed is not None and not self._allowed_varies:
            allowed = fill(self._allowed, values)
        return memory, allowed

    def start(self, prepared, batch, beams, max_length):
        memory, _ = prepared
        return self._attention.initial_history(memory, beams)

    def step(self, values, prepared, state, position):
        memory, allowed = prepared
        if self._allowed_varies:
            allowed = values[id(self._allowed)]
        if allowed is not None:
            allowed = ops.cast(allowed, "bool")
            if memory.mask is not None:
                allowed = allowed & ops.expand_dims(memory.mask, 1)
        attended, state = self._attention.attend_step(
            values[id(self._call["query"])], memory, state, allowed=allowed
        )
        scores = ops.cast(attended.alignments, self.operation.compute_dtype)
        given = [attended.context, scores][: len(self.outputs)]
        return given, attended.alignments, state

    def source_mask(self, prepared):
        memory, _ = prepared
        return memory.mask


class SelfAttention(Stepper):
    """Attends to the positions so far, whose keys and values it keeps."""

    only_first = (
        "returns its scores, which are as many as there are positions; only "
        "the context is there at each"
    )

    def __init__(self, node, depends):
        super().__init__(node, depends)
        layer, call = self.operation, _call(node)
        self._call = call
        self._attention = stepwise(layer)
        if not call.get("use_causal_mask"):
            refuse(
                layer,
                "mixes target positions, also those still to come; call it "
                "with `use_causal_mask=True`",
            )
        if call.get("attention_mask") is not None:
            refuse(
                layer,
                "has an `attention_mask` over the target; "
                "`use_causal_mask=True` alone is enough, since no padding is "
                "decoded",
            )
        if isinstance(layer, Attention) and (
            layer.looks_back or layer.score.by_position
        ):
            refuse(
                layer,
                "mixes target positions by past alignments or by where keys "
                "stand in a target whose length is not known yet; pass it "
                "another score and alignment, such as `ScaledDotScore()`",
            )
        self.outputs = node.outputs[:1]

    def start(self, prepared, batch, beams, max_length):
        layer = self.operation
        value, key = (
            ops.zeros((batch, beams, x.shape[-1]), dtype=layer.compute_dtype)
            for x in (self._call["value"], self._call["key"])
        )
        require_length(layer, max_length)
        return past.empty(self._attention, value, max_length, key)

    def step(self, values, prepared, state, position):
        query, value, key = (
            values[id(self._call[name])] for name in ("query", "value", "key")
        )
        state = past.append(state, self._attention, value, key)
        context = past.attend(
            state, self._attention, query, window=sliding_window(self.operation)
        )
        return [context], None, state


def require_length(layer, max_length):
    """Asks for the size of the buffers."""
    if max_length is None:
        raise ValueError(
            f"The self-attention '{layer.name}' keeps the positions so far "
            "and must know how many there may be. Received: max_length=None. "
            "Pass the longest length of an output to `start()`."
        )


def _call(node):
    """Arguments by the names that our attention has for them."""
    call = arguments_of(node)
    if "inputs" in call:  # of `keras.layers.Attention`: a list
        query, value, *key = call["inputs"]
        masks = call.get("mask") or [None, None]
        call |= {"query": query, "value": value, "value_mask": masks[1]}
        call["key"] = key[0] if key else None
    if call.get("key") is None:
        call["key"] = call["value"]
    return call
