"""The stepper of layers that read their whole past again at each step."""

import contextlib
import copy

import keras
from keras import ops

from keras_attn.graph.calls import takes
from keras_attn.graph.joined import Joined
from keras_attn.incremental.buffers import Prefix
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.stepper import positions_of
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import set_keras_mask
from keras_attn.layers.decoder.past import written


def longest_target(layer: keras.Layer) -> int | None:
    """Returns the longest target that the layers inside take, if limited.

    A layer has it as an attribute, `longest_target`.
    """
    lengths = [getattr(x, "longest_target", None) for x in layers_within(layer)]
    return min((x for x in lengths if x is not None), default=None)


class RecomputedStepper(Stepper):
    """Keeps the past inputs of a layer, and runs the layer on all of them.

    It runs layers that no other stepper runs, and whole models. A layer must
    not look at later positions. The time of a step grows with the target.
    """

    rows_leave = True

    def __init__(self, call):
        super().__init__(call)
        given = {id(x): x for x in call.input_tensors}.values()
        self._read = [x for x in given if call.depends(x)]
        self._constants = [x for x in given if not call.depends(x)]
        for x in self._read:
            if len(x.shape) < 2 or None in x.shape[2:]:
                self.refuse(
                    f"reads a tensor of shape {tuple(x.shape)}; one that "
                    "depends on the target needs the shape (batch, target, "
                    "...), with known sizes after the target"
                )
        self.longest = _known_positions(self.layer)
        # If shapes may change, only the places filled so far are run.
        self._runs_all_places = keras.backend.backend() != "tensorflow"
        self._variables = []

    def compiled(self):
        """Returns the stepper for a loop that XLA compiles.

        In such a loop no shape may change. The variables are read before the
        loop: if loops within it read them, TensorFlow 2.21 may crash.
        """
        stepper = copy.copy(self)
        stepper._runs_all_places = True
        stepper._variables = [
            (x, ops.convert_to_tensor(x)) for x in self.layer.variables
        ]
        return stepper

    def inputs_among(self, values):
        return [values[id(x)] for x in self._read]

    def constants_among(self, values):
        return [values[id(x)] for x in self._constants]

    def prepare(self, constants):
        return tuple((x, get_keras_mask(x)) for x in constants)

    def start(self, prepared, batch, beams, max_length):
        if max_length is None:
            raise ValueError(
                f"'{self.layer.name}' reads its whole past at each step, so "
                "it needs the largest number of steps. Received: "
                "max_length=None. Pass the length of the longest output to "
                "`start()`."
            )
        buffers = [
            ops.zeros(
                (batch, beams, max_length, _size(x.shape[2:])), dtype=x.dtype
            )
            for x in self._read
        ]
        step = ops.zeros((batch, beams), dtype="int32")
        return Prefix(tuple(buffers), step)

    def step(self, inputs, prepared, state, position):
        buffers, step = state
        beams = ops.shape(inputs[0])[1]
        buffers = tuple(
            written(buffer, ops.cast(x, buffer.dtype), step)
            for buffer, x in zip(buffers, inputs, strict=True)
        )
        values = self._rows_of_past(buffers, inputs, step)
        for x, (value, mask) in zip(self._constants, prepared, strict=True):
            value = ops.repeat(value, beams, axis=0)
            if mask is not None:
                set_keras_mask(value, ops.repeat(mask, beams, axis=0))
            values[id(x)] = value
        with self._read_before():
            outputs = self.call.run(*self.call.fill_in(values))
        outputs = [_last(x, step) for x in outputs]
        outputs = [ops.reshape(x, (-1, beams, *x.shape[1:])) for x in outputs]
        return outputs, None, Prefix(buffers, () if _grows(step) else step + 1)

    def _read_before(self):
        if self._variables:
            return keras.StatelessScope(self._variables)
        return contextlib.nullcontext()

    def time_axes(self, state):
        return Prefix(tuple(2 for _ in state.inputs), None)

    def _rows_of_past(self, buffers, inputs, step):
        """Returns the past inputs by `id`, with a row for each hypothesis.

        Places that are not yet written get the last input: zeros, divided by
        their norm for example, might give NaN, which spreads.
        """
        values = {}
        for x, buffer, last in zip(self._read, buffers, inputs, strict=True):
            if not _grows(step):
                if not self._runs_all_places:
                    buffer = buffer[:, :, : ops.max(step, initial=0) + 1]
                places = ops.arange(ops.shape(buffer)[2], dtype="int32")
                is_written = places <= ops.expand_dims(step, -1)
                size = buffer.shape[-1]
                last = ops.reshape(last, (*ops.shape(last)[:2], 1, size))
                buffer = ops.where(
                    ops.expand_dims(is_written, -1),
                    buffer,
                    ops.cast(last, buffer.dtype),
                )
            time = ops.shape(buffer)[2]
            values[id(x)] = ops.reshape(buffer, (-1, time, *x.shape[2:]))
        return values


def _known_positions(layer):
    """Returns the longest target of a layer, `None` if unknown."""
    known = [longest_target(layer)]
    if isinstance(layer, Joined):
        for node in layer.nodes:
            if takes(node.operation, "start_index"):
                first = node.arguments.kwargs.get("start_index")
                known.append(positions_of(node.operation, first))
    return min((x for x in known if x), default=None)


def _grows(step):
    return isinstance(step, tuple)


def _last(x, step):
    """Returns the position `(rows, ...)` that was read last."""
    if _grows(step):
        return x[:, -1]
    index = ops.reshape(step, (-1, *[1] * (len(x.shape) - 1)))
    return ops.squeeze(ops.take_along_axis(x, index, axis=1), 1)


def _size(sizes):
    size = 1
    for x in sizes:
        size *= x
    return size
