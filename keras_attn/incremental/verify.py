"""Compares decoding step by step with the whole model.

A model that is cut wrongly must never pass. So the comparison runs in the
graph that a search traces, whose sizes are unknown, for long targets, several
hypotheses and several sources. Three things must agree:

1. the encoder inside a graph and outside;
2. a source alone and the same source beside others;
3. the steps and whole targets, every position at once.

What differs is followed to the first layer that does.
"""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops
from keras.src.backend import get_keras_mask
from keras.src.backend import set_keras_mask

from keras_attn.backend import as_graph
from keras_attn.incremental import record
from keras_attn.incremental.path import Nested
from keras_attn.incremental.path import unlike_parent
from keras_attn.incremental.refuse import Refused
from keras_attn.incremental.refuse import WholeFails
from keras_attn.incremental.refuse import in_short
from keras_attn.incremental.refuse import refuse
from keras_attn.incremental.tolerance import is_close
from keras_attn.loops import unroll

_DISTURBANCE = 1e-6  # of each weight: some ten times what rounding does
_NOISE = 100  # times what that changes may be rounding


class _Found(NamedTuple):
    """What a path gives, float32; rows are those of the batch."""

    border: list  # what it reads of the source
    whole: list  # of each tensor (rows * beams, target, ...)
    steps: list  # the same by steps (rows, target, beams, ...), in each way


class Comparison:
    """Runs a path by steps and on whole targets, and compares.

    It keeps what it traced: comparing again, with other weights, takes a
    fraction of the time.

    Args:
        path: A `Path`.
        constants: Arrays for the inputs of the path that do not depend on
            the target, `(batch, ...)`.
        entries: Arrays for those that do, `(batch, target, hypotheses,
            ...)`. None of it is padding.
    """

    def __init__(self, path, constants, entries):
        self._path = path
        self._constants = [
            ops.convert_to_tensor(value, x.dtype)
            for x, value in zip(path.constants, constants, strict=True)
        ]
        self._entries = list(map(ops.convert_to_tensor, entries))
        self._rows, self._length, self._beams = entries[0].shape[:3]
        self._half = any(
            x.dtype in ("float16", "bfloat16") for x in path.tensors
        )
        self._specs = [
            *path.constants,
            *(keras.KerasTensor(x.shape, str(x.dtype)) for x in entries),
        ]
        self._run = as_graph(self._both, self._specs)
        self._noises = None
        self._seen = []  # the steppers that ran, of the step that is traced

    def compare(self, model=None):
        """Compares.

        Args:
            model: The model whose path it is, or `None` for a model within
                it, of which only the steps are compared.

        Raises:
            ValueError: If the cut is wrong. The message names the first layer
                whose output differs.
        """
        self._noises = None
        found = self._results(model)
        if model is not None:
            _require_finite(found.whole[-1])
            self._compare_border(model, found)
            self._compare_rows(model, found)
        whole = found.whole
        for steps in found.steps:
            for i, tensor in enumerate(self._path.tensors):
                if self._agree(steps[i], whole[i]):
                    continue
                whole = self._whole_outside()
                if not self._agree(steps[i], whole[i], self._noise(i)):
                    self._refuse_producer(tensor)

    def _results(self, model):
        """What the path gives in a graph."""
        inputs = *self._constants, *self._entries
        try:
            return _arrays(self._run(*inputs))
        except Refused:
            raise
        except Exception as error:
            first = error
        # Whole targets may fail in a graph, and steps be right all the same.
        try:
            whole = self._whole_outside()
        except Exception as error:
            failed = model and record.first_failure(model, self._model_inputs())
            if not failed:
                raise
            refuse(
                failed,
                f"fails on a random target of {self._length} tokens, with "
                f"{in_short(error)}",
                WholeFails,
            )
        self._run = as_graph(self._steps_alone, self._specs)
        try:
            found = _arrays(self._run(*inputs))
        except Refused:
            raise
        except Exception:
            self._refuse_encoder(model)
            refuse(
                self._failed(first),
                "fails when it sees one target position at a time, with "
                f"{in_short(first)}",
            )
        return found._replace(whole=whole)

    def _compare_border(self, model, found):
        """Compares the encoder inside the graph and outside."""
        outside = self._path.encode(self._constants)
        for x, inside in zip(self._path.border, found.border, strict=True):
            expected = _array(ops.cast(outside[id(x)], "float32"))
            if not self._is_close(inside, expected):
                self._refuse_encoder(model)

    def _compare_rows(self, model, found):
        """Compares each source alone with all of them together."""
        inputs = *self._constants, *self._entries
        together = keras.tree.flatten(tuple(found))
        for row in range(self._rows):
            alone = _arrays(self._run(*(x[row : row + 1] for x in inputs)))
            for one, all_rows in zip(
                keras.tree.flatten(tuple(alone)), together, strict=True
            ):
                count = len(one)
                if len(all_rows) == self._rows * count:
                    all_rows = all_rows[row * count : (row + 1) * count]
                if not self._is_close(one, all_rows):
                    self._refuse_neighbours(model, row)

    def _refuse_neighbours(self, model, row):
        operation = record.first_difference_alone(
            model, self._model_inputs(), row * self._beams
        )
        if operation is not None:
            refuse(
                operation,
                "mixes the rows of a batch: a source gives other numbers "
                "beside others than alone; let it work along later axes",
            )

    def _refuse_encoder(self, model):
        """Refuses a layer of the encoder that is wrong in a graph."""
        if model is None:
            return
        operation = record.first_wrong_in_graph(model, self._model_inputs())
        if operation is None or operation in self._path.operations:
            return
        remedy = ""
        if isinstance(operation, keras.layers.TimeDistributed):
            remedy = (
                ", by a mistake of Keras's; leave the `TimeDistributed` out, "
                "since a `Dense` without it treats each position alone"
            )
        refuse(
            operation,
            "gives other numbers, or fails, inside a graph of unknown sizes, "
            "as `model.fit` and a search trace it, and not outside" + remedy,
        )

    def _refuse_producer(self, tensor):
        """Refuses the layer, or the one within it, that gives a tensor."""
        (stepper,) = [
            x
            for x in self._path.steppers
            if any(tensor is y for y in x.outputs)
        ]
        if isinstance(stepper, Nested):
            self._within(stepper).compare()
        refuse(
            stepper.operation,
            "gives another result when it sees one target position at a time"
            + unlike_parent(stepper.operation),
        )

    def _within(self, stepper):
        """The comparison of a model within, with what it is given here."""
        values = self._path.at_once(
            self._path.encode(self._repeated(self._constants)),
            map(_beams_as_rows, self._entries),
        )
        constants, entries = [], []
        for x, follows in zip(
            stepper.arguments, stepper.path.follows, strict=True
        ):
            value = ops.convert_to_numpy(values[id(x)])
            value = value.reshape(self._rows, self._beams, *value.shape[1:])
            if follows:
                entries.append(np.swapaxes(value, 1, 2))
            else:
                constants.append(value[:, 0])
        return Comparison(stepper.path, constants, entries)

    def _failed(self, error):
        """The operation that failed in a step."""
        steppers = self._path.steppers
        if len(self._seen) < len(steppers):
            return steppers[len(self._seen)].operation
        # The step was traced, and failed as it ran: the operations that it
        # is made of have the names of their layers in them.
        named = [x.operation for x in steppers]
        named = [x for x in named if x.name in str(error)]
        return max(named or [steppers[-1].operation], key=lambda x: len(x.name))

    def _noise(self, i):
        """How much rounding may have changed a tensor at each position.

        Errors grow from step to step in a net whose states are chaotic. So
        the weights are disturbed, by little more than rounding does.
        """
        if self._noises is None:
            random = np.random.default_rng(0)
            disturbed = []
            for x in self._path.variables:
                value = ops.convert_to_numpy(x.value)
                if value.dtype.kind == "f":
                    change = random.uniform(-1, 1, value.shape) * _DISTURBANCE
                    value = (value * (1 + change)).astype(value.dtype)
                    disturbed.append((x, ops.convert_to_tensor(value)))
            before = self._whole_outside()
            with keras.StatelessScope(disturbed):
                after = self._whole_outside()
            self._noises = [
                _growth(x - y) for x, y in zip(before, after, strict=True)
            ]
        return self._noises[i]

    def _agree(self, steps, whole, noise=0.0):
        """Compares `(rows, target, beams, ...)` with a whole target's."""
        if whole.shape[:2] != (self._rows * self._beams, self._length):
            return False
        whole = whole.reshape(self._rows, self._beams, *whole.shape[1:])
        return self._is_close(steps, np.swapaxes(whole, 1, 2), noise)

    def _is_close(self, found, expected, noise=0.0):
        return is_close(found, expected, self._half, noise)

    # What follows is traced.

    def _both(self, *inputs):
        constants, entries = self._split(inputs)
        border = self._path.encode(constants)
        repeated = dict(
            zip(border, self._repeated(border.values()), strict=True)
        )
        whole = self._whole(repeated, entries)
        return self._found(border, whole, self._steps(border, entries))

    def _steps_alone(self, *inputs):
        constants, entries = self._split(inputs)
        border = self._path.encode(constants)
        return self._found(border, [], self._steps(border, entries))

    def _found(self, border, whole, steps):
        border = [ops.cast(x, "float32") for x in border.values()]
        return _Found(border, whole, steps)

    def _whole_outside(self):
        """Whole targets' results outside of a graph."""
        border = self._path.encode(self._repeated(self._constants))
        return list(map(_array, self._whole(border, self._entries)))

    def _whole(self, border, entries):
        entries = [
            ops.cast(_beams_as_rows(value), x.dtype)
            for x, value in zip(self._path.entries, entries, strict=True)
        ]
        return self._tensors_of(self._path.at_once(border, entries))

    def _steps(self, border, entries):
        prepared = self._path.prepare_from(border)
        ways = [prepared]
        # A search takes other steps where it can; few do not.
        hoisted = self._path.hoist(prepared)
        if any(x is not y for x, y in zip(prepared, hoisted, strict=True)):
            ways.append(hoisted)
        return [self._loop(way, entries) for way in ways]

    def _loop(self, prepared, entries):
        first = self._path.start(
            prepared, ops.shape(entries[0])[0], self._beams, self._length
        )

        def step(entries, carried):
            number, *tensors = carried
            self._seen.clear()
            values, _, states = self._path.advance(
                entries,
                prepared,
                _packed(first, tensors),
                number,
                lambda stepper, _: self._seen.append(stepper),
            )
            return self._tensors_of(values), [number + 1, *_flat(states)]

        dtypes = ["float32"] * len(self._path.tensors)
        return unroll(
            step, entries, [ops.zeros((), "int32"), *_flat(first)], dtypes
        )

    def _tensors_of(self, values):
        return [ops.cast(values[id(x)], "float32") for x in self._path.tensors]

    def _split(self, inputs):
        count = len(self._constants)
        return list(inputs[:count]), list(inputs[count:])

    def _repeated(self, tensors):
        """Each row once for each hypothesis, with its mask."""
        return [self._repeat(x) for x in tensors]

    def _repeat(self, x):
        if not x.shape or x.shape[0] not in (None, self._rows, 1):
            return x
        repeated = ops.repeat(x, self._beams, axis=0)
        mask = get_keras_mask(x)
        if mask is not None:
            set_keras_mask(repeated, ops.repeat(mask, self._beams, axis=0))
        return repeated

    def _model_inputs(self):
        """Inputs of the model, each hypothesis a row of the batch."""
        constants = iter(self._repeated(self._constants))
        entries = iter(map(_beams_as_rows, self._entries))
        return [
            ops.cast(next(entries if follows else constants), x.dtype)
            for x, follows in zip(
                self._path.inputs, self._path.follows, strict=True
            )
        ]


def _beams_as_rows(x):
    """`(rows, target, beams, ...)` -> `(rows * beams, target, ...)`."""
    x = ops.swapaxes(x, 1, 2)
    return ops.reshape(x, (-1, *x.shape[2:]))


def _require_finite(logits):
    if not np.isfinite(logits).all():
        raise ValueError(
            "The model's logits are not finite numbers, so there is nothing "
            "to decode. Did training diverge? A lower learning rate, warm-up "
            "or `clipnorm` in the optimizer helps."
        )


def _growth(difference):
    """`(rows, target, ...)` -> `(target, 1, ...)`, never less than before."""
    if difference.ndim < 2:
        return 0.0
    axes = tuple(x for x in range(difference.ndim) if x != 1)
    largest = np.maximum.accumulate(np.abs(difference).max(axes))
    # As (rows, target, beams, ...) are compared.
    return _NOISE * largest.reshape(-1, *(1,) * (difference.ndim - 1))


def _flat(structure):
    return [x for x in keras.tree.flatten(structure) if x is not None]


def _packed(structure, tensors):
    tensors = iter(tensors)
    return keras.tree.map_structure(
        lambda x: None if x is None else next(tensors), structure
    )


def _arrays(found):
    return _Found(*keras.tree.map_structure(_array, tuple(found)))


def _array(x):
    return ops.convert_to_numpy(x)
