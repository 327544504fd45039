"""The steppers of Keras's attention layers."""

from keras import layers

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.steppers.attention import CrossAttentionStepper
from keras_attn.incremental.steppers.attention import SelfAttentionStepper
from keras_attn.incremental.steppers.heads import stepwise
from keras_attn.keras_internals import set_keras_mask
from keras_attn.keras_internals import sliding_window
from keras_attn.layers.decoder.past import OwnPast

_BY_HEAD = layers.MultiHeadAttention, layers.GroupQueryAttention
_IN_LISTS = layers.Attention, layers.AdditiveAttention


@stepper_for(*_BY_HEAD)
class HeadsToSourceStepper(CrossAttentionStepper):
    """Attends to the source with several heads."""

    slow_alone = True
    relies_on = None

    def __init__(self, call):
        super().__init__(call)
        scores = call.arguments.get("return_attention_scores") is True
        self.attention = stepwise(self.layer, scores)
        if sliding_window(self.layer) is not None:
            self.refuse(
                "attends to the source with a `sliding_window`; leave it out"
            )
        self.outputs = call.outputs[:1]  # scores would be by head

    def prepare(self, constants):
        prepared = super().prepare(constants)
        if isinstance(self.layer, layers.MultiHeadAttention):
            # The layer removes the masks of its inputs, so in the whole model
            # later layers do not see these masks.
            for name in ("value", "key"):
                if constants.get(name) is not None:
                    set_keras_mask(constants[name], None)
        return prepared


@stepper_for(*_BY_HEAD)
class HeadsToPastStepper(SelfAttentionStepper):
    """Attends to the positions so far with several heads."""

    slow_alone = True
    relies_on = None

    def __init__(self, call):
        super().__init__(call)
        self.past = OwnPast(stepwise(self.layer), sliding_window(self.layer))

    def require_any_length(self):
        """Does nothing, because these layers work for any length."""


def _named(arguments):
    """Names the arguments of a layer that takes lists of tensors and masks."""
    query, value, *key = arguments["inputs"]
    masks = arguments.get("mask") or [None, None]
    return {
        **arguments,
        "query": query,
        "value": value,
        "key": key[0] if key else value,
        "value_mask": masks[1],
    }


@stepper_for(*_IN_LISTS)
class ListToSourceStepper(CrossAttentionStepper):
    """Attends to the source with one head, given a list of tensors."""

    relies_on = None
    named = staticmethod(_named)

    def __init__(self, call):
        super().__init__(call)
        self.attention = stepwise(self.layer)


@stepper_for(*_IN_LISTS)
class ListToPastStepper(SelfAttentionStepper):
    """Attends to the positions so far with one head, given a list."""

    relies_on = None
    named = staticmethod(_named)

    def __init__(self, call):
        super().__init__(call)
        self.past = OwnPast(stepwise(self.layer))

    def require_any_length(self):
        """Does nothing, because these layers work for any length."""
