"""The part of a graph that depends on the target, with its steppers.

A functional model inside the model has its own path.
"""

import copy

import keras
from keras import ops

from keras_attn.graph.calls import Call
from keras_attn.graph.joined import Joined
from keras_attn.graph.nodes import all_nodes
from keras_attn.graph.nodes import calls_between
from keras_attn.graph.nodes import those_after
from keras_attn.graph.rounding import Rounding
from keras_attn.incremental import contract
from keras_attn.incremental.recomputed_stepper import RecomputedStepper
from keras_attn.incremental.refuse import Refused
from keras_attn.incremental.registry import make_stepper
from keras_attn.incremental.source_side import SourceSide
from keras_attn.incremental.stepper import Stepper
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import set_keras_mask


class Path:
    """The steppers between a graph's target inputs and its outputs.

    Args:
        inputs: The graph's inputs, symbolic tensors.
        outputs: The graph's outputs. Those that do not depend on the target
            are left out.
        follows: Whether each input depends on the target.
        recompute: The layers that read their whole past again at each step;
            `True` for all layers that depend on the target, as one layer.
    """

    finish = staticmethod(lambda x: x)  # applied to each output of a step

    def __init__(self, inputs, outputs, follows, recompute=()):
        self.inputs = inputs
        self.follows = follows
        self.constants, self.entries = self.split(inputs)
        calls = calls_between(self.entries, outputs)
        if recompute is True:
            calls, recompute = self._as_one(calls, outputs)
        inside = {id(x) for x in self.entries}
        inside.update(id(x) for call in calls for x in call.outputs)
        self.outputs = [x for x in outputs if id(x) in inside]
        self._calls = calls
        self.steppers = _steppers(calls, self.outputs, recompute)
        self._check_outputs(inside)
        border = {
            id(x): x
            for call in calls
            for x in call.input_tensors
            if id(x) not in inside
        }
        self.border = list(border.values())
        self._encoder = None
        if self.border:
            nodes = all_nodes(outputs)
            others = those_after(self.entries, nodes)
            self._encoder = SourceSide(
                self.constants, self.border, nodes, others
            )
        attending = [i for i, x in enumerate(self.steppers) if x.attends]
        self._last = attending[-1] if attending else None

    def with_steppers(self, steppers):
        """Returns the path with other steppers."""
        path = copy.copy(self)
        path.steppers = steppers
        return path

    def with_outputs(self, function):
        """Returns the path with a function applied to each output."""
        path = copy.copy(self)
        path.finish = function
        return path

    def split(self, inputs):
        """Splits inputs into source inputs and target inputs."""
        pairs = list(zip(inputs, self.follows, strict=True))
        return (
            [x for x, follows in pairs if not follows],
            [x for x, follows in pairs if follows],
        )

    @property
    def operations(self):
        """The layers and operations on the path, and in its inner models."""
        found = []
        for stepper in self.steppers:
            found.append(stepper.layer)
            if stepper.path is not None:
                found += stepper.path.operations
        return found

    @property
    def rows_leave(self):
        """Whether every stepper lets rows leave a batch between steps.

        Rows are taken from all tensors of the source's part. So none may
        leave if one of these has another axis in the place of the batch.
        """
        others = any(len(x.shape) and x.shape[0] for x in self.border)
        return not others and all(x.rows_leave for x in self.steppers)

    def batch(self, prepared):
        """Returns the number of sources, given `prepare()`'s result."""
        border = {id(x): x for x in self.border}
        found = []
        for stepper, one in zip(self.steppers, prepared, strict=True):
            tensors = [x for x in keras.tree.flatten(one) if ops.is_tensor(x)]
            read = [
                border[id(x)]
                for x in stepper.call.input_tensors
                if id(x) in border
            ]
            # A tensor that is the same for all rows may have another axis.
            has_rows = read and all(x.shape[:1] == (None,) for x in read)
            found += [(not has_rows, x) for x in tensors[:1]]
        _, first = min(found, key=lambda pair: pair[0])
        return ops.shape(first)[0]

    @property
    def slow_alone(self):
        """Whether XLA runs one hypothesis slower than two."""
        return any(x.slow_alone for x in self.steppers)

    @property
    def variables(self):
        """The variables of all layers that the path runs."""
        layers_ = [x for x in self.operations if isinstance(x, keras.Layer)]
        layers_ += [self._encoder] if self._encoder is not None else []
        found = {id(x): x for layer in layers_ for x in layer.variables}
        return list(found.values())

    @property
    def rounding(self):
        """The rounding errors of all layers that the path runs."""
        layers_ = [x for x in self.operations if isinstance(x, keras.Layer)]
        layers_ += [self._encoder] if self._encoder is not None else []
        return Rounding([y for x in layers_ for y in layers_within(x)])

    @property
    def attends(self):
        """Whether any stepper attends to the source."""
        return self._last is not None

    @property
    def position_wise(self):
        """Whether every stepper treats each position alone."""
        return all(x.position_wise for x in self.steppers)

    @property
    def uses_position(self):
        """Whether any stepper needs the number of a position."""
        return any(x.uses_position for x in self.steppers)

    @property
    def reorders_itself(self):
        """Whether a stepper has its own `reorder()`, which may be wrong."""
        return any(
            x.path.reorders_itself
            if x.path is not None
            else type(x).reorder is not Stepper.reorder
            for x in self.steppers
        )

    @property
    def tensors(self):
        """The outputs of all steppers, in order."""
        return [x for stepper in self.steppers for x in stepper.outputs]

    @property
    def longest(self):
        """The longest target that all steppers take, `None` for any length."""
        known = [x.longest for x in self.steppers if x.longest is not None]
        return min(known, default=None)

    def encode(self, constants):
        """Runs the encoder; returns values by `id` of the symbolic tensor."""
        if self._encoder is None:
            return {}
        # Keras returns a bare tensor if a model has one output.
        border = keras.tree.flatten(self._encoder(constants, training=False))
        return {
            id(x): value for x, value in zip(self.border, border, strict=True)
        }

    def prepare(self, constants):
        """Returns each stepper's `prepare()` result for source inputs."""
        return self.prepare_from(self.encode(constants))

    def prepare_from(self, border):
        """Returns each stepper's `prepare()` result, given `encode()`'s."""
        return tuple(
            contract.prepare(x, x.constants_among(border))
            for x in self.steppers
        )

    def at_once(self, border, entries, watch=None):
        """Runs whole targets, every position at once, as training does.

        Only the source is masked, because no target of a search has padding.

        Args:
            border: Result of `encode()`.
            entries: Values of the inputs that depend on the target, `(batch,
                target, ...)`.
            watch: Optional function of each `Call`, its arguments and its
                outputs.

        Returns:
            Values by `id` of the symbolic tensor.
        """
        values = dict(border)
        for x, value in zip(self.entries, entries, strict=True):
            values[id(x)] = value
        for call in self._calls:
            arguments = call.fill_in(values)
            outputs = call.run(*arguments)
            if watch:
                watch(call, arguments, outputs)
            for x, value in zip(call.outputs, outputs, strict=True):
                _unmask(value)
                values[id(x)] = value
        return values

    def start(self, prepared, batch, beams, max_length):
        """Returns the first state of each stepper."""
        return tuple(
            contract.start(stepper, one, batch, beams, max_length)
            for stepper, one in zip(self.steppers, prepared, strict=True)
        )

    def step(
        self, entries, prepared, states, position, values=None, watch=None
    ):
        """Runs one target position of each hypothesis.

        Args:
            entries: Values of the inputs that depend on the target, each
                `(batch, beams, ...)`.
            prepared: Result of `prepare()`.
            states: Result of `start()`, or of the last step.
            position: Number of the step, or `None` if no stepper uses it.
            values: Optional dictionary to fill with all intermediate values,
                by the `id` of the symbolic tensor.
            watch: Optional function, called with each stepper that ran.

        Returns:
            The outputs, the alignments of the last attention to the source
            or `None`, and the new states.
        """
        values = {} if values is None else values
        for x, value in zip(self.entries, entries, strict=True):
            values[id(x)] = value
        last, new_states = None, []
        for stepper, one, state in zip(
            self.steppers, prepared, states, strict=True
        ):
            inputs = stepper.inputs_among(values)
            number = position if stepper.uses_position else None
            try:
                returned = stepper.step(inputs, one, state, number)
            except Exception as error:
                contract.refuse_failure(stepper, "step", error, number)
                raise
            outputs, alignments, state = contract.results(
                stepper, returned, state
            )
            self.keep(stepper, outputs, values)
            new_states.append(state)
            if stepper.attends:
                last = alignments
            if watch:
                watch(stepper)
        outputs = [self.finish(values[id(x)]) for x in self.outputs]
        return outputs, last, tuple(new_states)

    @staticmethod
    def keep(stepper, outputs, values):
        """Adds the outputs of a stepper to the values so far."""
        for x, value in stepper.outputs_with(outputs):
            _unmask(value)
            values[id(x)] = value

    def reorder(self, states, parents):
        """Gathers the states of each hypothesis from its parent."""
        return tuple(
            stepper.reorder(state, parents)
            for stepper, state in zip(self.steppers, states, strict=True)
        )

    def time_axes(self, states):
        """Returns the axis of past positions of each tensor of the states."""
        return tuple(
            stepper.time_axes(state)
            for stepper, state in zip(self.steppers, states, strict=True)
        )

    def source_mask(self, prepared):
        """Returns the mask of the last attention to the source."""
        if self._last is None:
            return None
        return self.steppers[self._last].source_mask(prepared[self._last])

    def _as_one(self, calls, outputs):
        """Joins all calls that depend on the target; returns call and layer.

        Masks of the target stay inside it, as in a call of the model.
        """
        inside = {id(x) for call in calls for x in call.outputs}
        outputs = [x for x in outputs if id(x) in inside]
        if not outputs:
            return calls, ()
        whole = Joined(self.entries, outputs)
        given = [*whole.reads, *self.entries]
        inside.update(id(x) for x in self.entries)

        def depends(structure):
            return any(id(x) in inside for x in keras.tree.flatten(structure))

        return [Call(whole, (given,), {}, outputs, depends)], [whole]

    def _check_outputs(self, inside):
        """Refuses the use of outputs that no step returns."""
        given = {id(x) for x in [*self.entries, *self.tensors]}
        read = [x for y in self.steppers for x in keras.tree.flatten(y.reads)]
        for x in [*self.outputs, *read]:
            if id(x) in inside and id(x) not in given:
                (producer,) = [
                    stepper
                    for stepper in self.steppers
                    if any(x is y for y in stepper.call.outputs)
                ]
                producer.refuse(producer.only_first)


def _steppers(calls, outputs, recompute):
    """Returns the steppers of the calls whose outputs any stepper reads.

    Some steppers read less than their layers, for example no mask of the
    target. Calls whose outputs are never read need no step.
    """
    found = []
    for call in calls:
        recomputed = any(call.layer is x for x in recompute)
        make = RecomputedStepper if recomputed else make_stepper
        try:
            found.append(make(call))
        except Refused as error:
            found.append(error)
    needed, used = [], {id(x) for x in outputs}
    for call, stepper in zip(reversed(calls), reversed(found), strict=True):
        if any(id(x) in used for x in call.outputs):
            needed.append(stepper)
            reads = getattr(stepper, "reads", call.input_tensors)
            used.update(id(x) for x in keras.tree.flatten(reads))
    for stepper in reversed(needed):
        if isinstance(stepper, Refused):
            raise stepper
    return needed[::-1]


def _unmask(value):
    """Removes a tensor's mask, because no position of a target is masked."""
    if get_keras_mask(value) is not None:
        set_keras_mask(value, None)
