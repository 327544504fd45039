"""The loop of a search over its steps.

A model's caches of earlier steps have a place for each step. With places for
the longest output, short outputs would cost as much as long ones. So the caches
start small: in a graph each step adds a place; under XLA, where shapes are
fixed, a short loop is followed by a second loop for the remaining steps.

A batch takes as many steps as its longest output. Half of the rows may be done
much earlier, while one row that repeats itself keeps the batch running. So once
half of the rows are done, they are removed and the others continue alone. The
results do not change, since no row depends on another.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn import structures
from keras_attn.decoding.hypotheses import Hypotheses

FIRST = 16  # steps of the first of two loops
LEAST = 4  # fewest rows worth removing from the batch at once


class LoopPolicy(NamedTuple):
    """Options for the sizes of the tensors in a loop.

    Attributes:
        caches: How the model's caches get their places: `"fixed"`, all at the
            start; `"growing"`, one per step; or `"two loops"`, some for a
            short first loop and the rest for a second loop.
        rows_leave: Whether rows that are done leave the batch. This needs
            growing caches, and a model with `take_rows`.
        records_end: Whether the recorded arrays stop at the last step, as in
            ONNX. In TensorFlow they have a place for every step up to the
            longest output.
    """

    caches: str = "fixed"
    rows_leave: bool = False
    records_end: bool = False


class Carried(NamedTuple):
    """The values that a step hands to the next one."""

    state: Any  # of the search's run
    cache: Any  # the state of the model
    recorded: list  # a `TensorArray` for each tensor that steps record


class AtWork(NamedTuple):
    """The rows that are still decoded, and the state of those that left."""

    rows: Any  # (rows,), their indices in the batch
    places: Any  # (batch,), each row's index among those at work, or 0
    carried: Carried
    ended: Any  # the state of the whole batch, valid for rows that have left


class Loop:
    """All steps of a search.

    Args:
        search: The `Search`.
        search_input: Its `SearchInput`.
    """

    def __init__(self, search, search_input):
        self._search, self._input = search, search_input
        self._longest, self._policy = search.max_length, search_input.policy
        self._run = run = search.begin(search_input)
        model, state = search_input.model, run.first()
        two = self._policy.caches == "two loops" and self._longest > 2 * FIRST
        grows = self._policy.caches == "growing"
        cache = model.start(run.beams, 0 if grows else FIRST if two else None)
        caches = model.caches(cache)
        self._has_two = two and bool(caches)
        recorded = [tf.TensorArray(x, self._longest) for x in run.recorded]
        self._first = Carried(state, cache, recorded)
        self._shapes = None  # all sizes are fixed
        if grows:
            growing = {id(x) for x in caches}
            self._shapes = [
                self._shape(x, id(x) in growing)
                for x in structures.flatten(self._first)
            ]

    def __call__(self):
        """Runs the steps and returns the `Hypotheses`."""
        if self._policy.rows_leave:
            state, recorded = self._until_all_left()
        elif self._has_two:
            state, recorded = self._in_two_loops()
        else:
            state, _, recorded = self._steps(
                self._run, self._input.model, self._first, _wanted
            )
        stacked = [x.stack() for x in recorded]
        if self._policy.records_end:
            stacked = [self._filled(x, state.time) for x in stacked]
        for x in stacked:  # `tf.cond` forgets the length
            x.set_shape([self._longest, *x.shape[1:]])
        found = self._run.results(state, *stacked)
        count = self._search.num_hypotheses
        if not isinstance(found, Hypotheses) or found.scores.shape[1] != count:
            raise TypeError(
                f"`{type(self._run).__name__}.results` must return "
                f"`Hypotheses` with the search's num_hypotheses={count}. "
                f"Received: {found!r:.200}. Fill up missing hypotheses with "
                "length 0 and a score of minus infinity."
            )
        return found

    def _steps(self, run, model, carried, wanted, places=None, most=None):
        """Takes steps while `wanted` is true; returns the last `Carried`.

        Args:
            run: The search's run.
            model: The `StepModel`.
            carried: `Carried` before the steps.
            wanted: A function of the run's state: whether to take a step.
            places: Index of each row of the batch among those at work; None if
                all are at work.
            most: Number of tokens at which the loop stops; None for the
                longest output.
        """
        limit = self._longest if most is None else most

        def goes_on(*tensors):
            state = structures.pack(carried, tensors).state
            return wanted(state) & (state.time < limit)

        def step(*tensors):
            state, cache, recorded = structures.pack(carried, tensors)
            time = state.time
            logits, alignments, cache = model.step(state.last, cache)
            advanced = run.advance(state, logits, alignments)
            state, parents, record = self._require_advanced(run, advanced)
            if parents is not None:
                cache = model.reorder(cache, parents)
            if places is not None:
                record = [tf.gather(x, places) for x in record]
            recorded = [
                array.write(time, x)
                for array, x in zip(recorded, record, strict=True)
            ]
            return structures.flatten((state, cache, recorded))

        tensors = tf.while_loop(
            goes_on, step, structures.flatten(carried), self._shapes
        )
        return structures.pack(carried, tensors)

    @staticmethod
    def _require_advanced(run, advanced):
        """Returns the result of `advance`, or raises an error if invalid."""
        if (
            isinstance(advanced, tuple)
            and len(advanced) == 3
            and isinstance(advanced[2], (tuple, list))
            and len(advanced[2]) == len(run.recorded)
        ):
            return advanced
        raise TypeError(
            f"`{type(run).__name__}.advance` must return the state, the "
            f"parents or None, and a tuple of {len(run.recorded)} tensors to "
            f"record, one for each dtype in `recorded`. Received: "
            f"{advanced!r:.200}."
        )

    def _shape(self, x, grows):
        """Returns a tensor's shape in the loop, None for a `TensorArray`."""
        if not tf.is_tensor(x):
            return None
        sizes = x.shape.as_list()
        if sizes and self._policy.rows_leave:
            sizes[0] = None
        if grows:
            sizes[-2] = None
        return tf.TensorShape(sizes)

    def _filled(self, x, steps):
        """Returns the records of the first `steps` steps, then zeros."""
        rest = [[0, self._longest - steps]] + [[0, 0]] * (len(x.shape) - 1)
        return tf.pad(x[:steps], rest)

    def _in_two_loops(self):
        """Runs a short loop, and a second one if any row is not done."""
        model = self._input.model
        state, cache, recorded = self._steps(
            self._run, model, self._first, _wanted, most=FIRST
        )

        def rest():
            wider = model.widened(cache, self._longest - FIRST)
            last = self._steps(
                self._run, model, Carried(state, wider, recorded), _wanted
            )
            return last.state, last.recorded

        return _either(_wanted(state), rest, lambda: (state, recorded))

    def _until_all_left(self):
        """Runs loops; rows that are done are removed before each."""
        rows = tf.range(self._input.batch)
        first = AtWork(rows, rows, self._first, self._first.state)
        shapes = [self._shape(x, False) for x in structures.flatten(first)]
        shapes[2 : 2 + len(self._shapes)] = self._shapes

        def goes_on(*tensors):
            state = structures.pack(first, tensors).carried.state
            return _wanted(state) & (state.time < self._longest)

        def until_rows_leave(*tensors):
            at_work = _without_done(structures.pack(first, tensors))
            rows = at_work.rows
            some, count = self._input.take_rows(rows), tf.size(rows)
            most = tf.minimum(count, tf.maximum((count + 1) // 2, LEAST))

            def few_are_done(state):
                done = tf.reduce_sum(tf.cast(_rows_done(state), tf.int32))
                return _at_first(state) | (done < most)

            carried = self._steps(
                self._search.run(some),
                some.model,
                at_work.carried,
                few_are_done,
                at_work.places,
            )
            return structures.flatten(at_work._replace(carried=carried))

        tensors = tf.while_loop(
            goes_on, until_rows_leave, structures.flatten(first), shapes
        )
        rows, _, carried, ended = structures.pack(first, tensors)
        state = _either(
            tf.size(rows) < self._input.batch,
            lambda: _written(ended, rows, carried.state),
            lambda: carried.state,
        )
        return state, carried.recorded


def _at_first(state):
    """Returns whether no step was taken yet.

    At least one step is taken, even for an empty batch: a `TensorArray` that
    was never written does not know its element shape.
    """
    return state.time == 0


def _wanted(state):
    """Returns whether any row is not done, or no step was taken yet."""
    return _at_first(state) | ~tf.reduce_all(state.done)


def _rows_done(state):
    """Returns whether each row is done, `(rows,)`."""
    done = state.done
    return tf.reduce_all(done, axis=1) if len(done.shape) > 1 else done


def _without_done(at_work):
    """Returns the rows at work, without those that are done."""
    rows, places, carried, ended = at_work
    state, cache, recorded = carried
    done = _rows_done(state)
    (rows, places, state, cache), ended = _either(
        tf.reduce_any(done),
        lambda: (
            _without(done, rows, places, state, cache),
            _written(ended, rows, state),
        ),
        lambda: ((rows, places, state, cache), ended),
    )
    return AtWork(rows, places, Carried(state, cache, recorded), ended)


def _without(done, rows, places, state, cache):
    """Returns the rows that are not done, their places, and their states."""
    stay = tf.where(~done)[:, 0]
    rows = tf.gather(rows, stay)
    places = tf.tensor_scatter_nd_update(
        tf.zeros_like(places), rows[:, None], tf.range(tf.size(rows))
    )
    rest = [
        tf.gather(x, stay) if len(x.shape) else x
        for x in structures.flatten((state, cache))
    ]
    return rows, places, *structures.pack((state, cache), rest)


def _written(ended, rows, state):
    """Returns the state of all rows, updated for the rows at work."""
    found = [
        tf.tensor_scatter_nd_update(before, rows[:, None], now)
        if len(now.shape)
        else now
        for before, now in zip(
            structures.flatten(ended), structures.flatten(state), strict=True
        )
    ]
    return structures.pack(ended, found)


def _either(condition, one, other):
    """Returns `one()` if the condition holds, otherwise `other()`."""
    like = other()
    found = tf.cond(
        condition,
        lambda: structures.flatten(one()),
        lambda: structures.flatten(like),
    )
    return structures.pack(like, found)
