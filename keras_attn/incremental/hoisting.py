"""Hoists constant products out of a loop of many steps.

A pass from steppers to steppers: the new steppers compute the same, with fewer
products per step. Two products are hoisted:

- The kernel of a recurrent cell times its inputs, if these depend on the token
  alone, through an `Embedding` and further layers, and the alphabet is small,
  as that of characters or phonemes. The product is taken once per token.
- The kernel of a decoder's output times the context, if the context is only
  emitted. The memory is multiplied instead.
"""

import keras
from keras import layers
from keras import ops

from keras_attn.incremental.recomputed_stepper import RecomputedStepper
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.steppers.decoder import DecoderStepper
from keras_attn.incremental.steppers.nested import NestedStepper
from keras_attn.incremental.steppers.recurrent import RecurrentStepper
from keras_attn.layers import cells

# The largest alphabet with a table: characters, phonemes and bytes fit. Each
# row costs as much arithmetic as a step of one hypothesis, but 40 rows at once
# take the time of a single product.
_ALPHABET = 256

# The name of the tokens' ids in a stepper's `reads`. No argument of a call can
# have this name.
_TOKENS = "the ids of tokens"


def hoist(path, prepared, compiled=False):
    """Returns a path with faster steps, and its prepared constants.

    Args:
        path: A `Path`.
        prepared: Result of its `prepare()`.
        compiled: Whether XLA compiles the loop. XLA knows the number of
            hypotheses when it compiles. If they are few, it keeps the plain
            steps, which are then faster.

    Returns:
        A `Path` and its prepared constants. Both are valid only in the
        function that called this, and for these sources. If no product can
        be hoisted, the given path and constants are returned.
    """
    tables = _Tables(path)
    pairs = [
        _faster(stepper, one, tables, compiled)
        for stepper, one in zip(path.steppers, prepared, strict=True)
    ]
    steppers = [stepper for stepper, _ in pairs]
    if all(x is y for x, y in zip(steppers, path.steppers, strict=True)):
        return path, prepared
    return path.with_steppers(steppers), tuple(needs for _, needs in pairs)


def _faster(stepper, prepared, tables, compiled):
    """Returns an equal but faster stepper, and its prepared constants."""
    if type(stepper) is RecomputedStepper:
        return (stepper.compiled() if compiled else stepper), prepared
    if type(stepper) is NestedStepper:
        path, prepared = hoist(stepper.path, prepared, compiled)
        if path is not stepper.path:
            stepper = stepper.with_path(path)
        return stepper, prepared
    if type(stepper) is DecoderStepper:
        table = tables.of(stepper.reads["inputs"])
        hoisted = stepper.layer.hoist(prepared.source, table)
        if hoisted is None:
            return stepper, prepared
        faster = _HoistedDecoder(stepper.call, hoisted, tables.ids)
        table = table if hoisted.looks_up else None
        needs = prepared._replace(source=hoisted.source)
    elif type(stepper) is RecurrentStepper:
        table, cell = tables.of(stepper.reads["sequences"]), stepper.layer.cell
        if table is None or not cells.is_tabulable(cell):
            return stepper, prepared
        looked_up = cells.TabulatedCell(cell, table)
        faster = _HoistedRecurrent(stepper.call, looked_up, tables.ids)
        needs = prepared
    else:
        return stepper, prepared
    if not compiled:
        return faster, needs
    return _Either(_few(table), stepper, faster), (prepared, needs)


def _few(table):
    """Returns the number of hypotheses up to which hoisting does not pay.

    Measured with XLA, which also copies parts of the weights.
    """
    return 4 if table is None else table.shape[0] // 16


class _Tables:
    """Tables of the tensors that depend on a token alone, a row per token.

    There are no tables if the alphabet is too large, or if the path has
    other inputs than the ids.

    Args:
        path: A `Path`.

    Attributes:
        ids: The input that holds the tokens' ids, a symbolic tensor.
    """

    def __init__(self, path):
        self.ids, self._found = None, {}
        if len(path.entries) != 1 or len(path.entries[0].shape) != 2:
            return
        (self.ids,) = path.entries
        steppers = self._of_token_alone(path)
        if not steppers:
            return
        embeddings = [
            x.layer for x in steppers if isinstance(x.layer, layers.Embedding)
        ]
        tokens = ops.arange(min(x.input_dim for x in embeddings))
        values = {id(self.ids): ops.expand_dims(tokens, 0)}
        for stepper in steppers:
            nothing = stepper.prepare(stepper.constants_among({}))
            inputs = stepper.inputs_among(values)
            outputs, _, _ = stepper.step(inputs, nothing, (), None)
            path.keep(stepper, outputs, values)
        self._found = {x: ops.squeeze(value, 0) for x, value in values.items()}

    def of(self, x):
        """Returns the table `(tokens, ...)` of a symbolic tensor, or None."""
        return self._found.get(id(x))

    def _of_token_alone(self, path):
        """Returns the steppers whose outputs depend on a token alone."""
        known, found = set(), []
        for stepper in path.steppers:
            read = stepper.call.input_tensors
            if not stepper.position_wise or stepper.uses_position:
                continue
            if stepper.path is not None:
                continue
            if any(x is self.ids for x in read):
                alone = _is_small_embedding(stepper.layer)
            else:
                alone = all(id(x) in known for x in read)
            if alone:
                found.append(stepper)
                known.update(id(x) for x in stepper.outputs)
        return found


def _is_small_embedding(operation):
    return (
        type(operation) is layers.Embedding
        and "call" not in vars(operation)
        and operation.input_dim <= _ALPHABET
    )


class _HoistedDecoder(DecoderStepper):
    """Runs the recurrence that a decoder's `hoist()` returned."""

    def __init__(self, call, hoisted, ids):
        super().__init__(call)
        self._recurrence = hoisted.recurrence
        self._looks_up = hoisted.looks_up
        if self._looks_up:
            self.reads[_TOKENS] = ids

    def step(self, inputs, prepared, state, position):
        return self.returned(
            self._recurrence.emitted_step(
                inputs["inputs"],
                state,
                prepared.source,
                tokens=inputs.get(_TOKENS),
            )
        )


class _HoistedRecurrent(RecurrentStepper):
    """Runs a recurrent layer by a `TabulatedCell`."""

    def __init__(self, call, looked_up, ids):
        super().__init__(call)
        self._looked_up = looked_up
        self.reads[_TOKENS] = ids

    def step(self, inputs, prepared, state, position):
        return self.returned(self._looked_up.run(inputs[_TOKENS], None, state))


class _Either(Stepper):
    """Runs the faster of two steppers, which compute the same.

    Args:
        few: The largest number of hypotheses, of all sources together, with
            which `plain` runs.
        plain: The stepper for few hypotheses.
        hoisted: The stepper for more hypotheses. It may read the tokens' ids
            too.
    """

    def __init__(self, few, plain, hoisted):
        super().__init__(plain.call)
        self.few = few
        self._plain, self._hoisted = plain, hoisted
        self.attends, self.outputs = plain.attends, plain.outputs
        self.rows_leave = plain.rows_leave
        self.slow_alone = plain.slow_alone
        self.reads = hoisted.reads

    def start(self, prepared, batch, beams, max_length):
        return self._plain.start(prepared[0], batch, beams, max_length)

    def step(self, inputs, prepared, state, position):
        of_plain, of_hoisted = prepared

        def plain():
            return self._plain.step(inputs, of_plain, state, position)

        def hoisted():
            return self._hoisted.step(inputs, of_hoisted, state, position)

        batch, beams = ops.shape(keras.tree.flatten(inputs)[0])[:2]
        many = batch * beams > self.few
        if isinstance(many, bool):  # sizes are known, as on JAX
            return hoisted() if many else plain()
        # XLA knows the sizes when it compiles, and drops the other branch.
        return ops.switch(ops.cast(many, "int32"), [plain, hoisted])

    def reorder(self, state, parents):
        return self._plain.reorder(state, parents)

    def time_axes(self, state):
        return self._plain.time_axes(state)

    def source_mask(self, prepared):
        return self._plain.source_mask(prepared[0])
