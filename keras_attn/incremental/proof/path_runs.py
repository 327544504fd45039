"""Runs a path in two ways: by steps, and on whole targets.

The traced graph is like that of a search: the number of sources is unknown.
"""

import functools
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_attn import structures
from keras_attn.backend import as_array
from keras_attn.backend import as_graph
from keras_attn.graph.folding import folded
from keras_attn.incremental.hoisting import hoist
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import set_keras_mask
from keras_attn.layers.loops import unroll


class Results(NamedTuple):
    """The results of both ways, float32 arrays; wide ones are folded."""

    border: list  # the tensors that the path reads from the source's part
    whole: list  # each tensor of whole targets, (rows * beams, target, ...)
    steps: list  # for each kind of step: tensors (rows, target, beams, ...)


class PathRuns:
    """A path, and the inputs that it runs on.

    Args:
        path: A `Path`.
        constants: Arrays for the inputs of the path that do not depend on
            the target, `(batch, ...)`.
        entries: Arrays for the inputs that depend on the target, `(batch,
            target, hypotheses, ...)`, without padding.

    Attributes:
        rows: Number of sources.
        length: Number of target positions.
        beams: Number of hypotheses of each source.
        seen: The steppers that ran in the step that was traced last.
    """

    def __init__(self, path, constants, entries):
        self.path = path
        self.rows, self.length, self.beams = entries[0].shape[:3]
        self.seen = []
        self._constants = [
            ops.convert_to_tensor(value, x.dtype)
            for x, value in zip(path.constants, constants, strict=True)
        ]
        self._entries = list(map(ops.convert_to_tensor, entries))
        self._specs = [
            *path.constants,
            *(keras.KerasTensor(x.shape, str(x.dtype)) for x in entries),
        ]
        self._run = as_graph(self._both, self._specs)

    def leave_out_whole(self):
        """Traces only steps from now on, if whole targets fail in a graph."""
        self._run = as_graph(self._steps_alone, self._specs)

    def in_graph(self, first=None, last=None):
        """Returns `Results` of the sources from `first` to before `last`."""
        inputs = [*self._constants, *self._entries]
        found = self._run(*(x[first:last] for x in inputs))
        results = Results(*map(list, found))
        del found  # frees each tensor once its array is made
        for tensors in (results.border, results.whole, *results.steps):
            for i, x in enumerate(tensors):
                tensors[i] = as_array(x)
        return results

    def encoded(self):
        """Returns the encoder's tensors for the path, outside a graph."""
        border = self.path.encode(self._constants)
        return [
            as_array(ops.cast(border[id(x)], "float32"))
            for x in self.path.border
        ]

    def whole(self):
        """Returns each tensor of whole targets, computed outside a graph.

        Wide ones are folded, as in `in_graph`.
        """
        border = self.path.encode(self._constants_repeated())
        return list(map(as_array, self._whole(border, self._entries)))

    def values(self):
        """Returns values of whole targets by `id`, outside a graph.

        Only values with a batch axis, `(rows * beams, ...)`, are returned.
        """
        border = self.path.encode(self._constants_repeated())
        entries = map(_beams_as_rows, self._entries)
        found = self.path.at_once(border, list(entries))
        return {
            x: as_array(value)
            for x, value in found.items()
            if value.shape and value.shape[0] == self.rows * self.beams
        }

    def outside(self):
        """Returns what `encoded()` and `whole()` return."""
        return self.encoded(), self.whole()

    def noises(self, rounding, seed, before):
        """Returns how much rounding may change the results.

        Args:
            rounding: The `Rounding`.
            seed: Seed of the disturbance that measures it.
            before: What `outside()` returned.

        Returns:
            Noises of the tensors of the border, and of whole targets.
        """
        with rounding.disturbed(self.path.variables, seed):
            after = self.outside()
        border = map(rounding.noise, before[0], after[0])
        return list(border), list(map(rounding.growth, before[1], after[1]))

    def noises_alone(self, rounding, seed):
        """Returns how much rounding inside a layer may change its outputs.

        Args:
            rounding, seed: As for `noises()`.

        Returns:
            For the `id` of each tensor its noise at each position.
        """
        noises = {}
        change = functools.partial(rounding.disturb, seed=seed)

        def disturb(call, arguments, outputs):
            variables = getattr(call.layer, "variables", [])
            with rounding.disturbed(variables, seed):
                others = call.run(*keras.tree.map_structure(change, arguments))
            for x, before, after in zip(
                call.outputs, outputs, others, strict=True
            ):
                noises[id(x)] = rounding.growth(*map(as_array, (before, after)))

        border = self.path.encode(self._constants_repeated())
        entries = list(map(_beams_as_rows, self._entries))
        self.path.at_once(border, entries, disturb)
        return noises

    def by_row(self, value):
        """Reshapes `(rows * beams, ...)` to `(rows, beams, ...)`."""
        return value.reshape(self.rows, self.beams, *value.shape[1:])

    def prepare(self):
        """Returns the prepared constants of the path's steppers."""
        return self.path.prepare(self._constants)

    def model_inputs(self):
        """Returns all inputs of the path, with a row per hypothesis."""
        constants = iter(self._constants_repeated())
        entries = iter(map(_beams_as_rows, self._entries))
        return [
            ops.cast(next(entries if follows else constants), x.dtype)
            for x, follows in zip(
                self.path.inputs, self.path.follows, strict=True
            )
        ]

    def _both(self, *inputs):
        constants, entries = self._split(inputs)
        border = self.path.encode(constants)
        values = self._repeated(border.values(), self.path.border)
        repeated = dict(zip(border, values, strict=True))
        whole = self._whole(repeated, entries)
        return _results(border, whole, self._steps(border, entries))

    def _steps_alone(self, *inputs):
        constants, entries = self._split(inputs)
        border = self.path.encode(constants)
        return _results(border, [], self._steps(border, entries))

    def _split(self, inputs):
        count = len(self._constants)
        return list(inputs[:count]), list(inputs[count:])

    def _whole(self, border, entries):
        entries = [
            ops.cast(_beams_as_rows(value), x.dtype)
            for x, value in zip(self.path.entries, entries, strict=True)
        ]
        return self._tensors_of(self.path.at_once(border, entries))

    def _steps(self, border, entries):
        prepared = self.path.prepare_from(border)
        ways = [(self.path, prepared)]
        # A search runs the hoisted steps if there are any.
        path, needs = hoist(self.path, prepared)
        if path is not self.path:
            ways.append((path, needs))
        return [self._loop(*way, entries) for way in ways]

    def _loop(self, path, prepared, entries):
        first = path.start(
            prepared, ops.shape(entries[0])[0], self.beams, self.length
        )
        swap = _Swap(self.beams, self.length // 2)
        swaps = path.reorders_itself
        if swaps:
            entries = list(map(swap.forth, entries))

        def step(entries, carried):
            number, *tensors = carried
            self.seen.clear()
            values = {}
            _, _, states = path.step(
                entries,
                prepared,
                structures.pack(first, tensors),
                number,
                values,
                self.seen.append,
            )
            number = number + 1
            if swaps:
                rows = ops.shape(entries[0])[0]
                states = path.reorder(states, swap.parents(number, rows))
            return self._tensors_of(values), [
                number,
                *structures.flatten(states),
            ]

        dtypes = ["float32"] * len(self.path.tensors)
        found = unroll(
            step,
            entries,
            [ops.zeros((), "int32"), *structures.flatten(first)],
            dtypes,
        )
        return list(map(swap.back, found)) if swaps else found

    def _tensors_of(self, values):
        return [
            folded(ops.cast(values[id(x)], "float32"))
            for x in self.path.tensors
        ]

    def _constants_repeated(self):
        return self._repeated(self._constants, self.path.constants)

    def _repeated(self, tensors, symbols):
        """Repeats each row, and its mask, for each hypothesis."""
        return [
            # A tensor without a batch axis is the same for all rows.
            self._repeat(x)
            if symbol.shape and symbol.shape[0] in (None, self.rows)
            else x
            for x, symbol in zip(tensors, symbols, strict=True)
        ]

    def _repeat(self, x):
        repeated = ops.repeat(x, self.beams, axis=0)
        mask = get_keras_mask(x)
        if mask is not None:
            set_keras_mask(repeated, ops.repeat(mask, self.beams, axis=0))
        return repeated


class _Swap:
    """Exchanges hypotheses before one position, as a search does.

    Args:
        beams: Number of hypotheses.
        position: From this position on, each hypothesis takes the place of
            another.
    """

    def __init__(self, beams, position):
        self._beams = beams
        self._position = position

    def parents(self, position, rows):
        """Returns the parent of each hypothesis before a position."""
        own = np.arange(self._beams, dtype="int32")
        parents = ops.where(position == self._position, np.roll(own, 1), own)
        return ops.broadcast_to(parents, (rows, self._beams))

    def forth(self, x):
        """Exchanges the later positions of `(rows, target, beams, ...)`."""
        return self._rolled(x, 1)

    def back(self, x):
        """Undoes `forth()`."""
        return self._rolled(x, -1)

    def _rolled(self, x, shift):
        before, after = x[:, : self._position], x[:, self._position :]
        return ops.concatenate([before, ops.roll(after, shift, axis=2)], axis=1)


def _results(border, whole, steps):
    border = [ops.cast(x, "float32") for x in border.values()]
    return Results(border, whole, steps)


def _beams_as_rows(x):
    """`(rows, target, beams, ...)` -> `(rows * beams, target, ...)`."""
    x = ops.swapaxes(x, 1, 2)
    return ops.reshape(x, (-1, *x.shape[2:]))
