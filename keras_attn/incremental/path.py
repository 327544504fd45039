"""The part of a graph that depends on the target, and its steppers.

A functional model within the model is itself such a part.
"""

import keras
from keras import layers
from keras import ops
from keras.src.backend import get_keras_mask
from keras.src.backend import set_keras_mask
from keras.src.models.functional import Functional

from keras_attn.decoder import AttentionDecoder
from keras_attn.incremental.attending import ATTENTIONS
from keras_attn.incremental.attending import attention_stepper
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

# Layers known to mix target positions, refused by name before anything runs.
# Whatever else does is found when the cut is checked.
_MIXES_POSITIONS = {
    layers.Bidirectional: "it would begin at tokens still to come; a "
    "recurrent layer that runs forwards works",
    layers.Conv1D: "a recurrent layer or causal self-attention works",
    layers.GlobalAveragePooling1D: "pooling works on the source",
    layers.GlobalMaxPooling1D: "pooling works on the source",
    layers.Flatten: "it works on the source",
}

# How many tokens a table is made for: of characters, phonemes and bytes. Its
# rows are as many products as steps of one hypothesis would need; but taken
# all at once, 40 of them take the time of one.
_ALPHABET = 256


def stepper_for(node, depends):
    """The stepper of a node that depends on the target."""
    operation = node.operation
    for kind, advice in _MIXES_POSITIONS.items():
        if isinstance(operation, kind):
            refuse(operation, f"mixes target positions; {advice}")
    if is_functional(operation):
        return Nested(node, depends)
    if isinstance(operation, AttentionDecoder):
        return Decoder(node, depends)
    if isinstance(operation, layers.RNN):
        return Recurrent(node, depends)
    if isinstance(operation, ATTENTIONS):
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
        pairs = list(zip(inputs, follows, strict=True))
        self.entries = [x for x, follow in pairs if follow]
        self._sources = [x for x, follow in pairs if not follow]
        nodes = _nodes_after(self.entries, outputs)
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
            self._encoder = keras.Model(self._sources, self.border)
        attending = [i for i, x in enumerate(self.steppers) if x.attends]
        self._last = attending[-1] if attending else None

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

    def prepare(self, constants):
        """What each stepper needs of the inputs that are constants."""
        values = {}
        if self._encoder is not None:
            # Keras returns the tensor itself where a model has one output.
            border = keras.tree.flatten(
                self._encoder(constants, training=False)
            )
            values = {
                id(x): value
                for x, value in zip(self.border, border, strict=True)
            }
        return tuple(x.prepare(values) for x in self.steppers)

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

    def step(self, entries, prepared, states, position, watch=None):
        """Runs one target position of each hypothesis.

        Args:
            entries: Values of the inputs that depend on the target, each
                `(batch, beams, ...)`.
            prepared: What `prepare()` returned.
            states: What `start()` or the last step returned.
            position: Number of the step, or `None` if nobody asks for it.
            watch: Function of each stepper and all values so far.

        Returns:
            The outputs, the alignments of the last attention to the source
            or `None`, and the new states.
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
        outputs = [values[id(x)] for x in self.outputs]
        return outputs, last, tuple(new_states)

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
        for x in [*self.outputs, *(y for n in nodes for y in n.input_tensors)]:
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
        # A token of padding is a token: nothing is masked.
        if get_keras_mask(value) is not None:
            set_keras_mask(value, None)
        values[id(x)] = value
    return alignments, state


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
        self.arguments = _arguments(model, node)
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


def is_functional(operation):
    """Whether a layer is a model whose graph says what it computes."""
    return isinstance(operation, (Functional, keras.Sequential)) and type(
        operation
    ).call in (Functional.call, keras.Sequential.call)


def _arguments(model, node):
    """What a model was called with, in the order of its inputs."""
    given = arguments_of(node)["inputs"]
    if isinstance(given, dict) and not isinstance(model.input, dict):
        return [given[x.name] for x in model.inputs]
    return keras.tree.flatten(given)


def _nodes_after(tensors, outputs):
    """The graph's nodes that depend on some, each after its inputs."""
    depends = {}  # id of a node -> whether it does
    ordered = []
    waiting = []
    for output in outputs:
        history = output._keras_history
        waiting.append(history.operation._inbound_nodes[history.node_index])
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
        depends[id(node)] = after or any(
            x is y for x in node.outputs for y in tensors
        )
    return ordered
