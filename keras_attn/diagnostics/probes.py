"""Checks a model's outputs for leaks, effects of padding, and so on."""

import functools

import numpy as np
from keras import layers

from keras_attn.diagnostics.lost_mask import LostMask
from keras_attn.graph.differences import CLEAN
from keras_attn.graph.differences import WRONG
from keras_attn.graph.differences import culprit
from keras_attn.graph.differences import differ
from keras_attn.graph.differences import differ_where_both_are
from keras_attn.graph.differences import first_row_changes
from keras_attn.graph.differences import leaks
from keras_attn.graph.differences import not_finite
from keras_attn.graph.differences import not_scores
from keras_attn.graph.probabilities import are_probabilities


class Probes:
    """Runs a model on made-up inputs, and checks the results.

    Args:
        runs: `ModelRuns` of the model.
        examples: `MadeUpInputs` for the model.
        random: A NumPy generator.
        findings: `Findings` to add to.
    """

    def __init__(self, runs, examples, random, findings):
        self._runs = runs
        self._graph = runs.graph
        self._examples = examples
        self._findings = findings
        # Tensors of equal shape are summed in the same order.
        self._alike = runs.rounding.apart_alike
        self._apart = runs.rounding.apart
        self._arrays = examples.draw()
        # The model's weights, and perturbed ones, which open gates at zero.
        self._weights = runs.weights(), runs.other_weights(random)
        self._logits = {}

    def look(self):
        """Runs all checks, or stops if outputs are random or not finite."""
        if self._is_not_finite() or self._is_random():
            return
        if not self._sees_neighbours():
            self._leaks()
        self._ignores()
        self._minds_padding()
        self._differs_in_a_graph()

    def probabilities(self):
        """Returns the call that computes probabilities, or `None`."""
        logits = self._given(self._weights[1])
        if not are_probabilities(logits):
            return None
        values = self._runs.trace(self._arrays, self._weights[1])
        return self._first_like(values, are_probabilities)

    @property
    def last_name(self):
        """Name of the layer that returns the output."""
        return _name(self._graph.writer(self._graph.outputs[0]))

    def range(self):
        """Returns the smallest and the largest output, two floats."""
        logits = self._given(self._weights[1])
        return float(np.min(logits)), float(np.max(logits))

    def _given(self, weights):
        """Returns the outputs for the examples, computed once per weights."""
        key = id(weights)
        if key not in self._logits:
            self._logits[key] = self._runs.logits(self._arrays, weights)
        return self._logits[key]

    def _is_not_finite(self):
        own, other = self._weights
        if not_scores(self._given(other)) == WRONG:
            # Some weights must be positive, so perturbed ones prove nothing.
            self._weights = own, own
        if not_scores(self._given(own)) == CLEAN:
            return False
        values = self._runs.trace(self._arrays, own)
        call = self._blame({k: not_finite(x) for k, x in values.items()})
        self._findings.wrong(
            "finite",
            _name(call),
            f"The model returns NaN or infinity. The first is from {call}: "
            "check its divisions, logarithms and initial weights. "
            f"{self._runs.rounding.overflow}".rstrip(),
        )
        return True

    def _is_random(self):
        weights = self._weights[1]
        others = self._runs.other_seeds(weights)
        first = self._given(weights)
        second = self._runs.logits(self._arrays, others)
        if differ(first, second, self._apart) == CLEAN:
            return False
        first = self._runs.trace(self._arrays, weights)
        second = self._runs.trace(self._arrays, others)
        call = self._blame(
            {k: differ(first[k], second[k], self._alike) for k in first}
        )
        self._findings.doubtful(
            "random",
            _name(call),
            f"The same input gives another output each time: {call} draws at "
            "random with `training=False`. Add an argument `training` to its "
            "`call`, and draw only if it is true. The other checks of the "
            "model could not be run.",
        )
        return True

    def _sees_neighbours(self):
        rows = self._examples.rows
        if rows < 2:
            return False
        others = self._examples.draw()
        for mine, other in zip(self._arrays, others, strict=True):
            other[0] = mine[0]
        for weights in self._weights:
            old = self._given(weights)
            new = self._runs.logits(others, weights)
            tell = (rows, self._alike)
            if first_row_changes(old, new, *tell) != WRONG:
                continue
            old = self._runs.trace(self._arrays, weights)
            new = self._runs.trace(others, weights)
            call = self._blame(
                {
                    key: first_row_changes(old[key], new[key], *tell)
                    for key in old
                }
            )
            self._findings.wrong(
                "neighbours",
                _name(call),
                f"The result of a row depends on the other rows of its batch: "
                f"{call} mixes them. It must not work along the first axis, "
                "which is the batch.",
            )
            return True
        return False

    def _leaks(self):
        length = self._examples.target
        felt = False
        for weights in self._weights:
            old = self._given(weights)
            if old.shape[1] != length:
                self._report_length(old.shape)
                return
            for targets, changed in self._changes():
                arrays = [*self._arrays[:-1], targets]
                new = self._runs.logits(arrays, weights)
                felt = felt or not np.array_equal(old, new)
                tell = (changed, length, self._alike)
                if leaks(old, new, *tell) == WRONG:
                    self._report_leak(arrays, changed, weights)
                    return
        if not felt and length > 1:
            self._findings.doubtful(
                "ignored",
                None,
                "The output does not depend on the target's ids, the input "
                f"'{self._examples.inputs[-1].name}'. So each token would be "
                "predicted without the tokens before it. Connect this input to "
                "the decoder.",
            )

    def _report_length(self, shape):
        *sources, target = self._examples.inputs
        others = [
            f"'{x.name}'"
            for x, array in zip(sources, self._arrays, strict=False)
            if array.shape[1:2] == shape[1:2]
        ]
        self._findings.wrong(
            "inputs",
            None,
            "The output must have a position for each id of the model's last "
            f"input, the target. Received: {self._examples.target} ids of "
            f"'{target.name}', and an output of shape {shape}"
            + (f", as long as {others[0]}" if others else "")
            + ". Make the target the last input, and keep its length in all "
            "layers after it.",
        )

    def _report_leak(self, arrays, changed, weights):
        old = self._runs.trace(self._arrays, weights)
        new = self._runs.trace(arrays, weights)
        tell = (changed, self._examples.target, self._alike)
        call = self._blame(
            {key: leaks(old[key], new[key], *tell) for key in old}
        )
        self._findings.wrong(
            "leak",
            _name(call),
            f"{call} looks at later tokens of the target: its results before "
            "a token change with that token. In training the model would see "
            "the tokens that it has to predict, and it could not decode "
            f"without them. {_causal_advice(call)}",
        )

    def _changes(self):
        """Yields changed targets, and the first changed position per row."""
        rows, length = self._arrays[-1].shape[:2]
        target, other = self._arrays[-1], self._examples.draw()[-1]
        ids = max(int(target.max()), int(other.max()))
        # `other` must differ from `target` at every position.
        other = np.where(other == target, target % ids + 1, other)
        other = np.where(other == target, 0, other)  # if there is only one id
        places = np.arange(1, length)
        if not places.size:  # nothing comes before a first changed token
            return
        # Changes one position per row, and each position in two rows.
        for start in range(0, 2 * len(places), rows):
            changed = places[(start + np.arange(rows)) % len(places)]
            at = np.arange(length) == changed[:, None]
            yield np.where(at, other, target).astype(target.dtype), changed
        # Pads from a position on: earlier positions must not see the length.
        changed = places[np.linspace(0, len(places) - 1, rows).astype(int)]
        after = np.arange(length) >= changed[:, None]
        padded = np.where(after, self._examples.padding_id, target)
        yield padded.astype(target.dtype), changed

    def _ignores(self):
        for number, symbol in enumerate(self._examples.inputs[:-1]):
            if not self._reads(number):
                self._findings.doubtful(
                    "ignored",
                    None,
                    f"The output does not depend on the input '{symbol.name}'. "
                    "Let the decoder attend to the encoded input, or start "
                    "from the encoder's last state.",
                )

    def _reads(self, number):
        """Whether any other value of an input changes the output."""
        weights = self._weights[1]
        old = self._given(weights)
        for other in self._examples.others(number):
            arrays = list(self._arrays)
            arrays[number] = other
            try:
                new = self._runs.logits(arrays, weights)
            except Exception:  # the model reads the values and refuses them
                return True
            if not np.array_equal(old, new):
                return True
        return False

    def _minds_padding(self):
        if not any(self._examples.padding):
            return
        padded = self._examples.pad(self._arrays)
        for weights in self._weights:
            old = self._given(weights)
            new = self._runs.logits(padded, weights)
            if differ(old, new, self._apart) == CLEAN:
                continue
            noises = self._runs.noises(self._arrays, weights)
            alone = self._runs.trace(self._arrays, weights)
            beside = self._runs.trace(padded, weights)
            verdicts = self._verdicts(
                alone, beside, noises, differ_where_both_are
            )
            if not self._is_wrong(verdicts):
                continue
            call = self._blame(verdicts)
            grown = {
                key for key in alone if alone[key].shape != beside[key].shape
            }
            layer, why = self._lost_mask().why(call, grown)
            self._findings.doubtful(
                "mask",
                layer,
                "Padding of the source changes the results, so a source gets "
                f"another result in a batch with a longer source: {why}",
            )
            return

    def loses_target_mask(self):
        """Returns the layer that loses the target's mask, and why."""
        values = self._runs.trace(self._arrays, self._weights[0])
        (key, *_) = self._graph.outputs
        length = self._examples.target  # which no other axis has

        def in_time(key):
            return key in values and values[key].shape[1:2] == (length,)

        return self._lost_mask().since(key, None, in_time)

    def _lost_mask(self):
        padding_id = self._examples.padding_id
        return LostMask(self._graph, self._runs.masks, padding_id)

    def _differs_in_a_graph(self):
        """Checks whether a graph of unknown sizes gives the same result."""
        weights, arrays = self._weights[1], self._arrays
        if self._examples.inputs[-1].shape[1] is None:
            # A few positions are enough, and each takes time.
            arrays = [*arrays[:-1], arrays[-1][:, :5]]
        try:
            eager = self._runs.eager(arrays, weights)
            graph = self._runs.logits(arrays, weights)
        except Exception:  # the model does not accept this length
            arrays = self._arrays
            eager = self._runs.eager(arrays, weights)
            graph = self._runs.logits(arrays, weights)
        if differ(graph, eager, self._apart) == CLEAN:
            return
        noises = self._runs.noises(arrays, weights)
        graph = self._runs.trace(arrays, weights)
        eager = self._runs.trace(arrays, weights, compiled=False)
        verdicts = self._verdicts(eager, graph, noises, differ)
        if not self._is_wrong(verdicts):
            return
        call = self._blame(verdicts)
        self._findings.wrong(
            "graph",
            _name(call),
            f"{call} computes something else in a graph of unknown sizes, "
            "which `fit` and decoding run, than when it is called eagerly. "
            "Replace it"
            + (
                " by the layer inside it: a layer that treats each position "
                "alone needs no `TimeDistributed`."
                if isinstance(call.operation, layers.TimeDistributed)
                else " by another layer, or use the sizes from "
                f"`keras.ops.shape`{self._runs.rounding.advice}."
            ),
        )

    def _verdicts(self, old, new, noises, differ):
        """Compares tensors by key, with a tolerance for rounding errors."""
        return {
            key: differ(
                old[key],
                new[key],
                functools.partial(self._apart, noise=noises.get(key, 0.0)),
            )
            for key in old
        }

    def _is_wrong(self, verdicts):
        return verdicts[self._graph.outputs[0]] != CLEAN

    def _blame(self, verdicts):
        return culprit(self._graph, verdicts, self._graph.outputs[0])

    def _first_like(self, values, is_like):
        """Returns the first call after which all outputs pass a test.

        It follows the graph back from the model's output.
        """
        key = self._graph.outputs[0]
        call = self._graph.writer(key)
        while True:
            before = [
                x
                for x in call.reads
                if self._graph.writer(x) is not None and is_like(values[x])
            ]
            if not before:
                return call
            call = self._graph.writer(before[0])


def _name(call):
    return None if call is None else call.name


def _causal_advice(call):
    operation = call.operation
    if isinstance(operation, layers.Bidirectional):
        return "Use a recurrent layer that runs forwards."
    if "Attention" in type(operation).__name__:
        return "Call it with `use_causal_mask=True`."
    if "Conv" in type(operation).__name__:
        return 'Give it `padding="causal"`.'
    return (
        "Between the target's ids and the logits, use only layers that look "
        "back: recurrent layers, attention with `use_causal_mask=True`, and "
        "layers that treat each position alone."
    )
