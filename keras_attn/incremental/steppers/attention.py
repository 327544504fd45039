"""Attention to the source, and to the target's own past."""

from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.layers.attention import Attention
from keras_attn.layers.decoder.past import OwnPast


@stepper_for(Attention)
class CrossAttentionStepper(Stepper):
    """Attends to the source, with a query per beam and keys projected once.

    Attributes:
        attention: An object with the methods of `keras_attn.Attention`.
    """

    rows_leave = True
    attends = True
    # a step runs the other methods
    relies_on: tuple[str, ...] | None = ("call", "__call__")
    only_first = (
        "returns scores by head, or samples; a step returns only the context "
        "and, for `keras_attn.Attention`, the mean of the heads' scores"
    )

    def __init__(self, call):
        super().__init__(call)
        self.attention = self.layer
        given = self.named(call.arguments)
        if not call.depends(given["query"]) or any(
            call.depends(given[name]) for name in ("value", "key")
        ):
            self.refuse(
                "mixes target positions: keys and values must both come from "
                "the source, or both from the target as the query does"
            )
        names = "value_mask", "key_mask"
        self.require_constant(**{name: given.get(name) for name in names})
        if given.get("use_causal_mask"):
            self.refuse(
                "attends to the source with `use_causal_mask=True`; leave it "
                "out"
            )
        allowed = given.get("attention_mask")
        if allowed is not None and len(allowed.shape) != 3:
            self.refuse(
                "has an `attention_mask` whose axes are not (batch, target, "
                "source); the mask of the source alone is `value_mask`"
            )
        scores = given.get("return_attention_scores") is True
        self.outputs = call.outputs[: 1 + scores]

    @staticmethod
    def named(arguments):
        """Renames arguments to those of `keras_attn.Attention`."""
        named = {"query": None, "value": None, **arguments}
        if named.get("key") is None:
            named["key"] = named["value"]
        return named

    def prepare(self, constants):
        given = self.named(constants)
        value, value_mask = self.with_mask(given, "value")
        key = key_mask = None
        if given["key"] is not given["value"]:
            key, key_mask = self.with_mask(given, "key")
        memory = self.attention.prepare(value, key, value_mask, key_mask)
        return memory, given.get("attention_mask")

    def start(self, prepared, batch, beams, max_length):
        memory, _ = prepared
        return self.attention.initial_history(memory, beams)

    def step(self, inputs, prepared, state, position):
        memory, _ = prepared
        given = self.named(inputs)
        allowed = self.allowed(given, prepared)
        attended, state = self.attention.attend_step(
            given["query"], memory, state, allowed=allowed
        )
        scores = ops.cast(attended.alignments, self.layer.compute_dtype)
        outputs = [attended.context, scores][: len(self.outputs)]
        return outputs, attended.alignments, state

    @staticmethod
    def allowed(given, prepared):
        """Returns which keys each query may look at, by an `attention_mask`.

        Args:
            given: Arguments of the call that depend on the target, by name.
            prepared: Result of `prepare()`.

        Returns:
            Booleans `(batch, target, source)`, or `None` without such a mask.
        """
        memory, allowed = prepared
        allowed = given.get("attention_mask", allowed)
        if allowed is None:
            return None
        allowed = ops.cast(allowed, "bool")
        if memory.mask is None:
            return allowed
        return allowed & ops.expand_dims(memory.mask, 1)

    def source_mask(self, prepared):
        memory, _ = prepared
        return memory.mask


@stepper_for(Attention)
class SelfAttentionStepper(Stepper):
    """Attends to the positions so far, and keeps their keys and values.

    Attributes:
        past: An `OwnPast`.
    """

    rows_leave = True
    relies_on: tuple[str, ...] | None = ("call", "__call__")
    only_first = (
        "returns its scores, whose number grows with the positions; a step "
        "returns only the context"
    )
    named = staticmethod(CrossAttentionStepper.named)

    @classmethod
    def accepts(cls, call):
        given = cls.named(call.arguments)
        names = "query", "value", "key"
        return all(call.depends(given[name]) for name in names)

    def __init__(self, call):
        super().__init__(call)
        self.past = OwnPast(self.layer)
        given = self.named(call.arguments)
        if not given.get("use_causal_mask"):
            self.refuse(
                "mixes target positions, later ones too; call it with "
                "`use_causal_mask=True`"
            )
        if given.get("attention_mask") is not None:
            self.refuse(
                "has an `attention_mask` over the target; leave it out, "
                "because `use_causal_mask=True` is enough: no padding is "
                "decoded"
            )
        self.require_any_length()
        self._widths = [given[name].shape[-1] for name in ("value", "key")]
        self.outputs = call.outputs[:1]

    def require_any_length(self):
        """Refuses an attention that needs the length of the target."""
        if not self.layer.source_may_grow:
            self.refuse(
                "needs past alignments or the positions of keys, in a target "
                "that is still growing; pass it another score and alignment, "
                "such as `ScaledDotScore()`"
            )

    def start(self, prepared, batch, beams, max_length):
        require_length(self.layer, max_length)
        value, key = (
            ops.zeros((batch, beams, width), dtype=self.layer.compute_dtype)
            for width in self._widths
        )
        return self.past.start(value, max_length, key)

    def step(self, inputs, prepared, state, position):
        given = self.named(inputs)
        state = self.past.append(state, given["value"], given["key"])
        return self.past.attend(state, given["query"]), None, state

    def time_axes(self, state):
        return time_axes_of(state)


def require_no_padding(stepper, name):
    """Drops a mask of the target, because a search has no padding.

    Args:
        stepper: A `Stepper`.
        name: Name of the argument that is the mask.

    Raises:
        ValueError: If the mask does not depend on the target.
    """
    mask = stepper.call.arguments.get(name)
    if mask is not None and not stepper.call.depends(mask):
        stepper.refuse(
            f"has a `{name}` that does not depend on the target; make it from "
            "the target's ids, as `ops.not_equal(target, 0)`"
        )
    stepper.reads.pop(name, None)


def require_length(layer, max_length):
    """Checks that the size of the buffers is given."""
    if max_length is None:
        raise ValueError(
            f"The self-attention '{layer.name}' keeps the positions so far, "
            "so it needs the largest number of steps. Received: "
            "max_length=None. Pass the length of the longest output to "
            "`start()`."
        )


def time_axes_of(state):
    """Returns the time axes of a `Past`: `(batch, beams, ..., time, dim)`."""
    axes = (len(x.shape) - 2 for x in (state.keys, state.values))
    return type(state)(*axes, None)
