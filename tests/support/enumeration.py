"""Sums over all alignments, one by one: `MarginalDecoder` must equal them.

NumPy and nothing of the layer but its weights and its cell's outputs.
"""

import itertools

import numpy as np

from support.mechanisms import values


class Alignments:
    """All alignments of the tokens of one target to one source.

    Args:
        layer: A built `MarginalDecoder`.
        hidden: The cell's outputs, `(target, dim)`.
        memory: The real positions of a source, `(source, dim)`, of which
            `start` is the first position of an alignment.
        ids: The layer's ids, `(target,)`, the start token first.
        real: Which positions are real, `(source,)`.
    """

    def __init__(self, layer, hidden, memory, ids, real=None):
        self._spoken = list(ids[1:])  # y_1, y_2, ...
        self._real = np.ones(len(memory), bool) if real is None else real
        hidden, memory = np.float64(hidden), np.float64(memory)
        self._emissions = [_emission(layer, h, memory) for h in hidden]
        self._moves = [self._transition(layer, h, memory) for h in hidden]

    def conditionals(self):
        """Returns `p(y | y_<t)` of every token, `(target, vocabulary)`."""
        found = []
        for t, emission in enumerate(self._emissions):
            joint = sum(
                weight * emission[path[-1]] for path, weight in self._paths(t)
            )
            found.append(joint / self._evidence(t))
        return np.stack(found)

    def positions(self):
        """Returns `p(a_t | y_<t)`, `(target, source)`."""
        found = np.zeros((len(self._emissions), len(self._real)))
        for t in range(len(found)):
            for path, weight in self._paths(t):
                found[t, path[-1]] += weight / self._evidence(t)
        return found

    def _paths(self, t):
        """Yields paths of `t + 1` positions, with `p(path, y_<t)`."""
        (first,) = np.flatnonzero(self._real)[:1]
        places = range(len(self._real))
        for path in itertools.product(places, repeat=t + 1):
            weight, last = 1.0, first
            for i, place in enumerate(path):
                weight *= self._moves[i][last, place]
                if i < t:
                    weight *= self._emissions[i][place, self._spoken[i]]
                last = place
            if weight:
                yield path, weight

    def _evidence(self, t):
        return sum(weight for _, weight in self._paths(t))

    def _transition(self, layer, hidden, memory):
        """Returns `A(s' | s)` of a step, `(source, source)`."""
        part, count = layer.transition, len(memory)
        found = np.zeros((count, count))
        for s, to in itertools.product(range(count), repeat=2):
            possible = self._real[to] and not (layer.monotonic and to < s)
            if layer.order == 0:
                score = hidden @ (memory[to] @ array(part.dense.kernel))
            else:
                lowest = 0 if layer.monotonic else -layer.window
                possible &= lowest <= to - s <= layer.window
                offset = to - s - lowest if possible else 0
                score = (
                    hidden @ array(part.of_hidden.kernel)
                    + memory[s] @ array(part.of_memory.kernel)
                    + array(part.of_memory.bias)
                )[offset]
            found[s, to] = np.exp(score) if possible else 0
        return found / np.maximum(found.sum(1, keepdims=True), 1e-300)


def _emission(layer, hidden, memory):
    """Returns the probability of each token, `(source, vocabulary)`."""
    part = layer.emission
    inner = np.tanh(
        hidden @ array(part.of_hidden.kernel)
        + memory @ array(part.of_memory.kernel)
        + array(part.of_memory.bias)
    )
    weights = np.exp(inner @ array(part.kernel) + array(part.bias))
    return weights / weights.sum(-1, keepdims=True)


def array(weight):
    return np.float64(values(weight))
