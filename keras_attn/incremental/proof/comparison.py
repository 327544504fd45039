"""Compares decoding step by step with the whole model.

A model that is cut wrongly must never pass. So the comparison runs in a graph
of unknown sizes, like that of a search, with long targets, several hypotheses
and several sources. Three things must agree:

1. the encoder inside a graph and outside;
2. a source alone and the same source beside others;
3. the steps and whole targets, every position at once.

If something differs beyond rounding, the error names the first layer that
differs.
"""

import functools
import itertools

import keras
import numpy as np
from keras import ops

from keras_attn.arguments import is_ours
from keras_attn.backend import as_array
from keras_attn.graph.causes import Causes
from keras_attn.graph.folding import folded
from keras_attn.graph.joined import Joined
from keras_attn.incremental.proof.noises import Noises
from keras_attn.incremental.proof.path_runs import PathRuns
from keras_attn.incremental.proof.path_runs import Results
from keras_attn.incremental.recomputed_stepper import RecomputedStepper
from keras_attn.incremental.refuse import LooksAhead
from keras_attn.incremental.refuse import Refused
from keras_attn.incremental.refuse import in_short
from keras_attn.incremental.refuse import refuse
from keras_attn.incremental.refuse import refuse_whole
from keras_attn.incremental.registry import unlike_parent
from keras_attn.keras_internals import producer

_FIRST = 16  # number of positions on which the model itself is run


class Comparison:
    """Runs a path by steps and on whole targets, and compares the results.

    It keeps its traced graphs, so comparing again with other weights takes a
    fraction of the time.

    Args:
        path: A `Path`.
        constants: Arrays for the inputs of the path that do not depend on
            the target, `(batch, ...)`.
        entries: Arrays for the inputs that depend on the target, `(batch,
            target, hypotheses, ...)`, without padding.
    """

    def __init__(self, path, constants, entries):
        self._path = path
        self._runs = PathRuns(path, constants, entries)
        self._rounding = path.rounding
        self._values = None

    def compare(self, model=None):
        """Runs the comparison.

        Args:
            model: The model of the path. `None` for the path of an inner
                model, of which only the steps are compared.

        Raises:
            ValueError: If the steps compute something else. The message
                names the first layer whose output differs.
        """
        self._values = None
        self._noises = Noises(self._runs, self._rounding)
        self._model = model
        found = self._results(model)
        if model is not None:
            self._require_logits(self._logits_of(found.whole))
            self._compare_border(model, found)
            self._compare_rows(model, found)
        whole, outside = found.whole, None
        for steps in found.steps:
            for i, tensor in enumerate(self._path.tensors):
                if self._agree(steps[i], whole[i]):
                    continue
                outside = outside or self._runs.whole()
                whole = outside
                if not self._agree(steps[i], whole[i]) and not (
                    self._agree(steps[i], whole[i], self._noises.of_whole(i))
                    and self._agrees_alone(tensor)
                ):
                    self._refuse_producer(tensor)
        if model is not None:
            self._compare_model(model, self._logits_of(found.whole))

    @property
    def _number_of_logits(self):
        """Number of the model's output; its layer may have others too."""
        (output,) = self._path.outputs
        tensors = self._path.tensors
        return next(i for i, x in enumerate(tensors) if x is output)

    def _logits_of(self, tensors):
        return tensors[self._number_of_logits]

    def _results(self, model):
        """Runs the path in a graph."""
        try:
            found = self._runs.in_graph()
            # Only steps are traced if whole targets failed before.
            return found._replace(whole=found.whole or self._runs.whole())
        except Refused:
            raise
        except Exception as error:
            first = error
        # Whole targets may fail in a graph although steps work there.
        try:
            whole = self._runs.whole()
        except Exception as error:
            failed = model and self._causes(model).failure()
            if not failed:
                raise
            refuse_whole(failed, self._runs.length, error)
        self._runs.leave_out_whole()
        try:
            found = self._runs.in_graph()
        except Refused:
            raise
        except Exception:
            self._refuse_encoder(model, self._path.operations)
            refuse(
                self._failed(first),
                "fails when it sees one target position at a time, with "
                f"{in_short(first)}",
            )
        return found._replace(whole=whole)

    def _compare_border(self, model, found):
        """Compares the encoder inside the graph with that outside."""
        every = zip(found.border, self._runs.encoded(), strict=True)
        for i, (inside, expected) in enumerate(every):
            if self._is_close(inside, expected):
                continue
            self._refuse_random(model)  # noise is measured by other runs
            noises = self._noises.of_border(i)
            if not self._is_rounding(inside, expected, noises):
                self._refuse_encoder(model)
                self._refuse_in_graph(producer(self._path.border[i]).operation)

    def _compare_rows(self, model, found):
        """Compares each source alone, and two together, with all together."""
        rows = self._runs.rows
        alone = [(row, row + 1) for row in range(rows)]
        differed = False
        for first, last in [*alone, (0, 2)][: rows + (rows > 2)]:
            some = self._runs.in_graph(first, last)
            for one, together, (symbol, noises) in zip(
                _listed(some, found),
                _listed(found, some),
                _listed(self._symbols_and_noises(found), some),
                strict=True,
            ):
                each, left = divmod(len(together), rows)
                if left == 0 and len(one) == each * (last - first):
                    together = together[first * each : last * each]
                if self._is_close(one, together):
                    continue
                if not differed:  # noise is measured by other runs
                    self._refuse_random(model)
                differed = True
                # Rounding depends on the number of rows, too.
                if not self._is_rounding(one, together, noises()):
                    self._refuse_neighbours(model, first, symbol)

    def _symbols_and_noises(self, found):
        """Returns for each result its tensor, and a function for noises."""
        border = [
            (x, functools.partial(self._noises.of_border, i))
            for i, x in enumerate(self._path.border)
        ]
        whole = [
            (x, functools.partial(self._noises.of_whole, i))
            for i, x in enumerate(self._path.tensors)
        ]
        return Results(
            border, found.whole and whole, [whole for _ in found.steps]
        )

    def _compare_model(self, model, whole):
        """Compares a call of the model with a run of its layers one by one.

        They differ if the model has its own `call`, or if a layer depends on
        the target's mask that Keras passes to it. In a search the target has
        no mask.
        """
        beams = self._runs.beams
        inputs = [x[::beams] for x in self._runs.model_inputs()]
        whole = whole[::beams]
        if model.inputs[-1].shape[1] is None:  # the first positions suffice
            inputs[-1], whole = inputs[-1][:, :_FIRST], whole[:, :_FIRST]
        try:
            expected = model(inputs, training=False)
        except Exception:
            # Some layers fail on a mask that Keras passes to them.
            return
        expected = as_array(folded(ops.cast(expected, "float32")))
        if self._is_close(whole, expected):
            return
        # The same values outside a graph, in case they differ inside.
        outside = self._logits_of(self._runs.whole())
        length = whole.shape[1]
        whole = outside[::beams, :length]
        if self._is_close(whole, expected):
            return
        self._refuse_random(model)
        noises = self._noises.of_whole(self._number_of_logits)
        if self._is_rounding(whole, expected, (x[:length] for x in noises)):
            return
        operation = Causes(model, inputs).mask()
        if operation is not None:
            self._refuse(
                operation,
                "gives other numbers with the mask of the target that Keras "
                "passes to it than without, although no token is padding; a "
                "search has no such mask, so the layer must not depend on it",
            )
        self._refuse(
            model,
            "gives other numbers than its layers, because it has a `call` of "
            "its own; put what this adds into a layer",
        )

    def _causes(self, model):
        return Causes(model, self._runs.model_inputs())

    def _refuse_neighbours(self, model, row, symbol):
        causes = self._causes(model)
        operation = causes.neighbours(row * self._runs.beams)
        if operation is None:
            self._refuse_encoder(model)
            operation = producer(symbol).operation
        self._refuse(
            operation,
            "mixes the rows of a batch: a source gives other numbers beside "
            "other sources than alone; let the layer work along later axes",
        )

    def _refuse_random(self, model):
        operation = self._causes(model).random()
        if operation is not None:
            refuse(
                operation,
                "gives other numbers each time, because it draws at random "
                "with `training=False`; draw only if `training` is true",
            )

    def _refuse_encoder(self, model, but=()):
        """Refuses a layer that is wrong in a graph, unless it is in `but`."""
        if model is None:
            return
        operation = self._causes(model).only_in_graph()
        if operation is not None and operation not in but:
            self._refuse_in_graph(operation)

    def _refuse_in_graph(self, operation):
        remedy = ""
        if isinstance(operation, keras.layers.TimeDistributed):
            remedy = (
                ", because of a bug in Keras; leave the `TimeDistributed` out, "
                "because a `Dense` without it treats each position alone"
            )
        self._refuse(
            operation,
            "gives other numbers, or fails, inside a graph of unknown sizes, "
            "such as that of `model.fit` or a search, but not outside" + remedy,
        )

    def _agrees_alone(self, tensor):
        """Whether a stepper agrees if it reads the whole model's values.

        Then only its own rounding counts.
        """
        stepper, prepared = self._stepper_of(tensor)
        if stepper.path is not None:
            self._within(stepper).compare()
            return True
        values = {
            x: self._runs.by_row(value) for x, value in self._outside().items()
        }
        length = self._runs.length
        state = stepper.start(
            prepared, self._runs.rows, self._runs.beams, length
        )
        for t in range(length):
            here = {
                x: ops.convert_to_tensor(value[:, :, t])
                for x, value in values.items()
                if value.ndim > 2 and value.shape[2] == length
            }
            outputs, _, state = stepper.step(
                stepper.inputs_among(here), prepared, state, t
            )
            for x, output in stepper.outputs_with(outputs):
                expected = values[id(x)][:, :, t]
                found = as_array(ops.cast(output, "float32"))
                if not self._is_close(found, expected) and not (
                    self._is_rounding(found, expected, self._noises.alone(x, t))
                ):
                    return False
        return True

    def _refuse_producer(self, tensor):
        """Refuses the layer, or the layer inside it, that makes a tensor."""
        stepper, _ = self._stepper_of(tensor)
        if stepper.path is not None:
            self._within(stepper).compare()
        if isinstance(stepper, RecomputedStepper):
            self._refuse_recomputed(stepper)
        self._refuse(
            stepper.layer,
            "gives another result when it sees one target position at a time"
            + (unlike_parent(stepper.layer) or _by_whom(stepper)),
        )

    def _refuse_recomputed(self, stepper):
        """Refuses a layer whose numbers for a target's beginning differ."""
        ahead, whole = None, stepper.layer
        if self._model is not None:
            ahead = self._causes(self._model).looks_ahead()
            whole = self._model if isinstance(whole, Joined) else whole
        refuse(
            ahead or whole,
            "looks at later tokens of the target: with others there, it gives "
            "other numbers for the tokens before; a search does not have "
            "later tokens, so the model must be trained without them, with a "
            "causal mask, for example. Is "
            f"'{self._model.inputs[-1].name}' the target's input? A "
            "`Translator` takes the last one, or that named by `target`"
            if ahead
            else "gives other numbers for the beginning of a target than for "
            "the whole target, so it depends on later tokens or on their "
            f"number{self._rounding.advice}",
            LooksAhead,
        )

    def _refuse(self, operation, reason):
        """Refuses a layer; in 16 bits, adds that it may be rounding."""
        refuse(operation, reason + self._rounding.advice)

    def _stepper_of(self, tensor):
        """Returns the stepper that makes a tensor, and its constants."""
        prepared = self._runs.prepare()
        for stepper, one in zip(self._path.steppers, prepared, strict=True):
            if any(tensor is x for x in stepper.outputs):
                return stepper, one
        raise AssertionError(tensor)

    def _within(self, stepper):
        """Returns the comparison of an inner model, with its inputs here."""
        constants, entries = [], []
        values = self._outside()
        for x, follows in zip(stepper.given, stepper.path.follows, strict=True):
            value = self._runs.by_row(values[id(x)])
            if follows:
                entries.append(np.swapaxes(value, 1, 2))
            else:
                constants.append(value[:, 0])
        return Comparison(stepper.path, constants, entries)

    def _outside(self):
        if self._values is None:
            self._values = self._runs.values()
        return self._values

    def _failed(self, error):
        """Returns the operation that failed in a step."""
        steppers = self._path.steppers
        if 0 < len(self._runs.seen) < len(steppers):
            return steppers[len(self._runs.seen)].layer
        # An error while tracing names the layer's class. An error while the
        # graph runs names an operation, whose name contains the layer's name.
        for x in steppers:
            if f"when calling {type(x.layer).__name__}.call" in str(error):
                return x.layer
        named = [x.layer for x in steppers if x.layer.name in str(error)]
        return max(named or [steppers[-1].layer], key=lambda x: len(x.name))

    def _agree(self, steps, whole, noises=(0.0,)):
        """Compares `(rows, target, beams, ...)` with a whole target's."""
        if whole.shape[:2] != (
            self._runs.rows * self._runs.beams,
            self._runs.length,
        ):
            return False
        whole = np.swapaxes(self._runs.by_row(whole), 1, 2)
        return self._is_rounding(steps, whole, noises)

    def _is_close(self, found, expected, noise=0.0):
        return self._rounding.is_close(found, expected, noise)

    def _is_rounding(self, found, expected, noises):
        """Whether arrays differ by no more than one of the noises."""
        return any(self._is_close(found, expected, x) for x in noises)

    def _require_logits(self, logits):
        """Refuses logits from which no token could be chosen."""
        impossible = np.isnan(logits) | np.isposinf(logits)
        if impossible.any() or np.isneginf(logits).all(-1).any():
            raise ValueError(
                "To choose tokens, the model's logits must be finite numbers. "
                "Received: logits that are NaN or infinite. "
                + (
                    self._rounding.overflow
                    or "Training may have diverged: a lower learning rate, "
                    "warm-up or `clipnorm` in the optimizer helps."
                )
            )


def _by_whom(stepper):
    """Names a user's stepper, or the stepper that a layer would need."""
    if stepper.position_wise:
        kind = type(stepper.layer).__name__
        return (
            "; a layer that remembers positions needs a stepper, "
            f"`@keras_attn.stepper_for({kind})`"
        )
    if is_ours(type(stepper)):
        return ""
    return f", by its stepper `{type(stepper).__name__}`"


def _listed(found, other):
    """Lists arrays, without those of whole targets unless both have them."""
    whole = found.whole if other.whole else []
    return [*found.border, *whole, *itertools.chain(*found.steps)]
