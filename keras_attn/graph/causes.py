"""`Causes`: finds the first layer whose results differ, or that fails.

Layers of nested models are checked one by one, so an error names the layer
inside them.
"""

import functools

import keras
import numpy as np

from keras_attn.backend import as_array
from keras_attn.graph.differences import WRONG
from keras_attn.graph.differences import culprit
from keras_attn.graph.differences import first_difference
from keras_attn.graph.differences import leaks
from keras_attn.graph.flat_graph import Graph
from keras_attn.graph.model_runs import ModelRuns
from keras_attn.keras_internals import is_functional


class Causes:
    """Runs a model in several ways, and compares all tensors.

    Methods return the first layer or operation at fault, or `None` if there is
    none.

    Args:
        model: A functional model.
        inputs: Arrays or tensors for its inputs.
    """

    def __init__(self, model, inputs):
        if not is_functional(model):  # it has a `call` of its own
            model = keras.Model(model.inputs, model.outputs)
        self._graph = Graph(model)
        self._runs = ModelRuns(model, self._graph, model.variables)
        self._weights = self._runs.weights()
        self._inputs = list(map(as_array, inputs))

    def failure(self):
        """Returns the first that fails outside a graph."""
        call, _ = self._runs.failure(self._inputs, self._weights)
        return call and call.operation

    def only_in_graph(self):
        """Returns the first that differs or fails only in a graph."""
        outside = self._traced()
        if outside is None:  # it fails there too
            return None
        count = self._count_in_graph()
        inside = {}
        if count:
            inside = self._traced(compiled=True, count=count) or {}
        other = self._first_difference(outside, inside)
        failed = [x.operation for x in self._graph.calls[count:]]
        return other or next(iter(failed), None)

    def random(self):
        """Returns the first whose results differ from run to run."""
        one, other = (self._traced(weights=None) for _ in range(2))
        # Noise is measured by further runs, which would draw other numbers.
        return self._first_difference(one, other, measured=False)

    def mask(self):
        """Returns the first whose result depends on the masks."""
        return self._first_difference(
            self._traced(), self._traced(masked=False), masked=False
        )

    def looks_ahead(self):
        """Returns the first whose result depends on later target tokens.

        The target is the last input. Also returns `None` if the model does not
        run on other targets.
        """
        target = self._inputs[-1]
        # The target's axis is recognized by its length, so this is a length
        # that no other axis has.
        sizes = self._graph.sizes() | {
            n for x in self._inputs[:-1] for n in x.shape
        }
        lengths = [n for n in range(target.shape[1], 1, -1) if n not in sizes]
        if self._runs.model.inputs[-1].shape[1] is not None or not lengths:
            lengths = [target.shape[1]]
        length = lengths[0]
        one = target[:, :length]
        other = np.concatenate([one[:, :-1], one[::-1, :1]], axis=1)
        changed = np.where(one[:, -1] != other[:, -1], length - 1, length)
        old, new = (self._traced([*self._inputs[:-1], x]) for x in (one, other))
        if old is None or new is None:
            return None
        apart = self._runs.rounding.apart
        verdicts = {
            key: leaks(old[key], new[key], changed, length, apart)
            for key in old.keys() & new.keys()
        }
        (output,) = self._graph.outputs
        if verdicts.get(output) != WRONG:
            return None
        call = culprit(self._graph, verdicts, output)
        return call and call.operation

    def neighbours(self, row):
        """Returns the first whose result for a row depends on other rows."""
        rows, beside = len(self._inputs[0]), self._traced()
        if beside is not None:
            beside = {
                key: x[row : row + 1] if x.ndim and len(x) == rows else x
                for key, x in beside.items()
            }
        alone = self._traced([x[row : row + 1] for x in self._inputs])
        return self._first_difference(beside, alone)

    def _traced(self, inputs=None, **options):
        """Returns all tensors by their keys, or `None` if the run fails.

        By default it runs outside a graph. Options are those of
        `ModelRuns.trace()`.
        """
        options = {"weights": self._weights, "compiled": False, **options}
        try:
            return self._runs.trace(inputs or self._inputs, **options)
        except Exception:  # any layer may raise anything
            return None

    def _count_in_graph(self):
        """Returns how many of the first calls work in a graph."""

        def fails(count):
            return self._traced(compiled=True, count=count) is None

        low, high = 0, len(self._graph.calls)
        if not fails(high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fails(middle) else (middle, high)
        return low

    def _first_difference(self, old, new, measured=True, masked=True):
        if old is None or new is None:
            return None

        @functools.cache
        def noises():
            return self._runs.noises(
                self._inputs, self._weights, compiled=False, masked=masked
            )

        rounding = self._runs.rounding

        def apart(key, found, expected):
            if not rounding.apart(found, expected).any():
                return False
            if not measured:
                return True
            return rounding.apart(found, expected, noises().get(key, 0)).any()

        call = first_difference(self._graph, old, new, apart)
        return call and call.operation
