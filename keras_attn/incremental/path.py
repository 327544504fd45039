"""The part of a graph that depends on the target, and its steppers.

A functional model within the model is itself such a part.
"""

import keras
from keras import layers
from keras import ops

from keras_attn.attention import Attention
from keras_attn.decoder import AttentionDecoder
from keras_attn.incremental.attending import ATTENTIONS
from keras_attn.incremental.attending import attention_stepper
from keras_attn.incremental.convolution import CausalConvolution
from keras_attn.incremental.convolution import PaddingBefore
from keras_attn.incremental.convolution import is_causal
from keras_attn.incremental.convolution import is_padding_before
from keras_attn.incremental.kinds import is_plain
from keras_attn.incremental.mixing import refuse_mixing
from keras_attn.incremental.nodes import given_to
from keras_attn.incremental.nodes import nodes_between
from keras_attn.incremental.recurrent import RECURRENT
from keras_attn.incremental.recurrent import Decoder
from keras_attn.incremental.recurrent import Recurrent
from keras_attn.incremental.refuse import refuse
from keras_attn.incremental.steppers import Positioned
from keras_attn.incremental.steppers import PositionWise
from keras_attn.incremental.steppers import Stepper
from keras_attn.incremental.steppers import Tokens
from keras_attn.incremental.steppers import arguments_of
from keras_attn.incremental.steppers import masked
from keras_attn.incremental.steppers import takes
from keras_attn.incremental.transformer import TransformerDecoder
from keras_attn.incremental.transformer import is_transformer_decoder
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import is_functional
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import set_keras_mask

# How many tokens a table is made for: of characters, phonemes and bytes. Its
# rows are as many products as steps of one hypothesis would need; but taken
# all at once, 40 of them take the time of one.
_ALPHABET = 256


# Classes that are stepped, if the methods are theirs: ours, and Keras's.
_OURS = AttentionDecoder, Attention
_KERAS = *RECURRENT, *ATTENTIONS
_CALL = "call", "__call__"


def is_stepped(operation):
    """Whether an operation is of a kind with a step, and no other subclass."""
    return is_plain(operation, *_OURS, methods=_CALL) or (
        not isinstance(operation, _OURS) and is_plain(operation, *_KERAS)
    )


def unlike_parent(operation):
    """Says what a subclass with methods of its own is not taken for."""
    parents = [x for x in (*_OURS, *_KERAS) if isinstance(operation, x)]
    if not parents or is_stepped(operation):
        return ""
    kind = type(operation).__name__
    return (
        f"; as `{kind}` has methods of its own, it is not stepped as the "
        f"`{parents[-1].__name__}` that it is a subclass of"
    )


def stepper_for(node, depends):
    """The stepper of a node that depends on the target."""
    operation = node.operation
    if is_functional(operation):
        return Nested(node, depends)
    if is_causal(node):
        return CausalConvolution(node, depends)
    if is_padding_before(node):
        return PaddingBefore(node, depends)
    refuse_mixing(node)
    if is_stepped(operation):
        if isinstance(operation, AttentionDecoder):
            return Decoder(node, depends)
        if isinstance(operation, RECURRENT):
            return Recurrent(node, depends)
        return attention_stepper(node, depends)
    if is_transformer_decoder(operation):
        return TransformerDecoder(node, depends)
    if takes(operation, "start_index"):
        return Positioned(node, depends)
    return PositionWise(node, depends)


class Path:
    """What lies between some inputs of a graph and its outputs.

    Args:
        inputs: The graph's inputs, symbolic tensors.
        outputs: Its outputs, of which those count that depend on the target.
        follows: Whether each input depends on the target.
    """

    def __init__(self, inputs, outputs, follows):
        self.inputs = inputs
        self.follows = follows
        self.constants, self.entries = self.split(inputs)
        self._nodes = nodes = nodes_between(self.entries, outputs)
        inside = {id(x) for x in self.entries}
        inside.update(id(x) for node in nodes for x in node.outputs)

        def depends(structure):
            return any(id(x) in inside for x in keras.tree.flatten(structure))

        self.outputs = [x for x in outputs if depends(x)]
        self.steppers = [stepper_for(node, depends) for node in nodes]
        self._check_outputs(nodes, inside)
        self._of_token = self._depend_on_token(nodes)
        border = {
            id(x): x
            for node in nodes
            for x in node.input_tensors
            if id(x) not in inside
        }
        self.border = list(border.values())
        self._encoder = None
        if self.border:
            self._encoder = keras.Model(self.constants, self.border)
        attending = [i for i, x in enumerate(self.steppers) if x.attends]
        self._last = attending[-1] if attending else None

    def split(self, inputs):
        """Inputs that do not depend on the target, and those that do."""
        pairs = list(zip(inputs, self.follows, strict=True))
        return (
            [x for x, follows in pairs if not follows],
            [x for x, follows in pairs if follows],
        )

    @property
    def operations(self):
        """The layers and operations on the path, also of models within."""
        found = []
        for stepper in self.steppers:
            found.append(stepper.operation)
            if isinstance(stepper, Nested):
                found += stepper.path.operations
        return found

    @property
    def variables(self):
        """The variables of all that the path runs."""
        layers_ = [x for x in self.operations if isinstance(x, keras.Layer)]
        layers_ += [self._encoder] if self._encoder is not None else []
        found = {id(x): x for layer in layers_ for x in layer.variables}
        return list(found.values())

    @property
    def computes_in_half(self):
        """Whether anything that it runs computes with 16 bits."""
        layers_ = [x for x in self.operations if isinstance(x, keras.Layer)]
        if self._encoder is not None:
            layers_ += layers_within(self._encoder)
        within = [y for x in layers_ for y in layers_within(x)]
        return any(x.compute_dtype in ("float16", "bfloat16") for x in within)

    @property
    def attends(self):
        """Whether any stepper attends to the source."""
        return self._last is not None

    @property
    def position_wise(self):
        """Whether each position is treated alone."""
        return all(x.position_wise for x in self.steppers)

    @property
    def uses_position(self):
        """Whether any stepper asks for the number of a position."""
        return any(x.uses_position for x in self.steppers)

    @property
    def tensors(self):
        """What the steppers give, in order."""
        return [x for stepper in self.steppers for x in stepper.outputs]

    @property
    def longest(self):
        """How many positions there are at most, or `None` for any number."""
        known = [x.longest for x in self.steppers if x.longest is not None]
        return min(known, default=None)

    def encode(self, constants):
        """Runs the encoder; returns values by `id` of the symbolic tensor."""
        if self._encoder is None:
            return {}
        # Keras returns the tensor itself where a model has one output.
        border = keras.tree.flatten(self._encoder(constants, training=False))
        return {
            id(x): value for x, value in zip(self.border, border, strict=True)
        }

    def prepare(self, constants):
        """What each stepper needs of the inputs that are constants."""
        return self.prepare_from(self.encode(constants))

    def prepare_from(self, border):
        """The same, of what `encode()` returned."""
        return tuple(x.prepare(border) for x in self.steppers)

    def at_once(self, border, entries):
        """Runs whole targets, every position at once, as training does.

        Nothing is masked on the way but the source: no target of a search
        has padding.

        Args:
            border: What `encode()` returned.
            entries: Values of the inputs that depend on the target, `(batch,
                target, ...)`.

        Returns:
            Values by `id` of the symbolic tensor.
        """
        values = dict(border)
        for x, value in zip(self.entries, entries, strict=True):
            values[id(x)] = value
        for node in self._nodes:
            args, kwargs = node.fill_in(values)
            if takes(node.operation, "training"):
                kwargs["training"] = False
            outputs = keras.tree.flatten(node.operation(*args, **kwargs))
            for x, value in zip(node.outputs, outputs, strict=True):
                _unmask(value)
                values[id(x)] = value
        return values

    def hoist(self, prepared, compiled=False):
        """What takes the place of `prepared` in a loop of many steps.

        Args:
            prepared: What `prepare()` returned.
            compiled: Whether XLA compiles the loop.
        """
        tokens = None
        if self._of_token:
            ids = ops.arange(
                min(
                    x.operation.input_dim
                    for x in self._of_token
                    if isinstance(x.operation, layers.Embedding)
                )
            )
            values = {id(self.entries[0]): ops.expand_dims(ids, 0)}
            for stepper in self._of_token:
                _step(stepper, values, stepper.prepare({}), (), None)
            values = {x: ops.squeeze(value, 0) for x, value in values.items()}
            tokens = Tokens(self.entries[0], values)
        return tuple(
            stepper.hoist(one, tokens, compiled)
            for stepper, one in zip(self.steppers, prepared, strict=True)
        )

    def start(self, prepared, batch, beams, max_length):
        """The first state of each stepper."""
        return tuple(
            stepper.start(one, batch, beams, max_length)
            for stepper, one in zip(self.steppers, prepared, strict=True)
        )

    def step(self, entries, prepared, states, position):
        """Runs one target position of each hypothesis.

        Args:
            entries: Values of the inputs that depend on the target, each
                `(batch, beams, ...)`.
            prepared: What `prepare()` returned.
            states: What `start()` or the last step returned.
            position: Number of the step, or `None` if nobody asks for it.

        Returns:
            The outputs, the alignments of the last attention to the source
            or `None`, and the new states.
        """
        values, alignments, states = self.advance(
            entries, prepared, states, position
        )
        return [values[id(x)] for x in self.outputs], alignments, states

    def advance(self, entries, prepared, states, position, watch=None):
        """Like `step()`, but returns all values on the way, by `id`.

        Args:
            watch: Function of each stepper that ran and all values so far.
        """
        values = {
            id(x): value for x, value in zip(self.entries, entries, strict=True)
        }
        last, new_states = None, []
        for stepper, one, state in zip(
            self.steppers, prepared, states, strict=True
        ):
            alignments, state = _step(stepper, values, one, state, position)
            new_states.append(state)
            if stepper.attends:
                last = alignments
            if watch:
                watch(stepper, values)
        return values, last, tuple(new_states)

    def source_mask(self, prepared):
        """The mask of what the last attention to the source attends to."""
        if self._last is None:
            return None
        return self.steppers[self._last].source_mask(prepared[self._last])

    def _depend_on_token(self, nodes):
        """The steppers that depend on a token alone, embeddings first.

        There are none where the ids are too many for a table, or where the
        path has more inputs than the ids.
        """
        if len(self.entries) != 1 or len(self.entries[0].shape) != 2:
            return []
        (ids,), known, found = self.entries, set(), []
        for node, stepper in zip(nodes, self.steppers, strict=True):
            if type(stepper) is not PositionWise:
                continue
            if any(x is ids for x in node.input_tensors):
                alone = _is_small_embedding(stepper.operation)
            else:
                alone = all(id(x) in known for x in node.input_tensors)
            if alone:
                found.append(stepper)
                known.update(id(x) for x in stepper.outputs)
        return found

    def _check_outputs(self, nodes, inside):
        """Refuses the use of outputs that no step gives."""
        given = {id(x) for x in [*self.entries, *self.tensors]}
        read = [x for stepper in self.steppers for x in stepper.inputs]
        for x in [*self.outputs, *read]:
            if id(x) in inside and id(x) not in given:
                (producer,) = [
                    stepper
                    for node, stepper in zip(nodes, self.steppers, strict=True)
                    if any(x is y for y in node.outputs)
                ]
                refuse(producer.operation, producer.only_first)


def _step(stepper, values, prepared, state, position):
    """Runs a stepper, and adds its outputs to the values."""
    outputs, alignments, state = stepper.step(values, prepared, state, position)
    for x, value in zip(stepper.outputs, outputs, strict=True):
        _unmask(value)
        values[id(x)] = value
    return alignments, state


def _unmask(value):
    """A token of padding is a token: nothing of a target is masked."""
    if get_keras_mask(value) is not None:
        set_keras_mask(value, None)


def _is_small_embedding(operation):
    return (
        type(operation) is layers.Embedding
        and "call" not in vars(operation)
        and operation.input_dim <= _ALPHABET
    )


class Nested(Stepper):
    """A functional model as a layer: its own graph is stepped through."""

    only_first = (
        "has an output that does not depend on the target; make that by a "
        "model of its own"
    )

    def __init__(self, node, depends):
        super().__init__(node, depends)
        model = self.operation
        self.arguments = given_to(model, node.args, node.kwargs)
        follows = [depends(x) for x in self.arguments]
        self.path = Path(model.inputs, model.outputs, follows)
        self.outputs = [
            x
            for x, inner in zip(node.outputs, model.outputs, strict=True)
            if any(inner is y for y in self.path.outputs)
        ]
        masks = arguments_of(node).get("mask")
        masks = (
            [None] * len(follows)
            if masks is None
            else keras.tree.flatten(masks)
        )
        self._entries, self._constants = [], []
        for x, mask, follow in zip(self.arguments, masks, follows, strict=True):
            if follow:
                self._entries.append(x)
            else:
                self._constants.append((x, mask))
        self.position_wise = self.path.position_wise
        self.uses_position = self.path.uses_position
        self.attends = self.path.attends
        self.longest = self.path.longest

    def prepare(self, values):
        constants = []
        for x, mask in self._constants:
            value, mask = masked(x, mask, values)
            set_keras_mask(value, mask)
            constants.append(value)
        return self.path.prepare(constants)

    def hoist(self, prepared, tokens, compiled):
        return self.path.hoist(prepared, compiled)

    def start(self, prepared, batch, beams, max_length):
        return self.path.start(prepared, batch, beams, max_length)

    def step(self, values, prepared, state, position):
        entries = [
            ops.cast(values[id(x)], entry.dtype)
            for x, entry in zip(self._entries, self.path.entries, strict=True)
        ]
        return self.path.step(entries, prepared, state, position)

    def source_mask(self, prepared):
        return self.path.source_mask(prepared)
