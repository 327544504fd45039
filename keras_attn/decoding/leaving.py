"""The loop of a search in a graph: rows that are done leave the batch.

A batch takes as many steps as its longest output. Half of the rows may be done
much earlier, and one row whose model repeats itself keeps the batch running. So
once half of the rows are done, the others go on without them. The results do
not change, since no row depends on another.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn import structures
from keras_attn.decoding.loop import one_step

LEAST = 4  # fewest rows that leave together; for fewer it does not pay


class Work(NamedTuple):
    """The rows at work, with all that their steps need."""

    rows: Any  # (rows,), their indices in the batch
    places: Any  # (batch,), each row's index among those at work, or 0
    given: Any  # what the task is made of
    state: Any  # the run's state
    model: Any  # the model's state


class LeavingLoop:
    """All steps of a search over a task that has `given` and `over`.

    Buffers of past positions begin empty, and each step adds a place.

    Args:
        search: The `Search`.
        run: Its run over the task.
        task: The `Task`.
    """

    def __init__(self, search, run, task):
        self._search, self._task = search, task
        model, state = task.start(run.beams, 0), run.first()
        rows = tf.range(task.batch)
        self._buffers = task.buffers(model)
        self._first = (
            Work(rows, rows, task.given, state, model),
            state,  # of all rows, for those that have left
            [tf.TensorArray(x, search.max_length) for x in run.recorded],
        )

    def __call__(self):
        """Runs the steps.

        Returns:
            The run's last state, and a list of what the steps recorded, time
            first. What is recorded for a row after it left means nothing.
        """
        first = structures.flatten(self._first)
        tensors = tf.while_loop(
            self._is_unfinished,
            self._until_rows_leave,
            first,
            shape_invariants=[self._any_size(x) for x in first],
        )
        work, ended, recorded = self._pack(tensors)
        state = _either(
            tf.size(work.rows) < self._task.batch,
            lambda: _written(ended, work),
            lambda: work.state,
        )
        return state, [x.stack() for x in recorded]

    def _pack(self, tensors):
        return structures.pack(self._first, tensors)

    def _is_unfinished(self, *tensors):
        state = self._pack(tensors)[0].state
        return self._goes_on(state, ~tf.reduce_all(state.done))

    def _goes_on(self, state, wanted):
        """Returns whether there is another step, if it is wanted."""
        # At least one step, even for an empty batch: a `TensorArray` without
        # a single write does not know its element shape.
        more = (state.time == 0) | wanted
        return more & (state.time < self._search.max_length)

    def _any_size(self, x):
        """Returns a tensor's shape for any rows, and any places if it grows."""
        if not tf.is_tensor(x):
            return None  # a `TensorArray`
        sizes = x.shape.as_list()
        if sizes:
            sizes[0] = None
        if any(x is buffer for buffer in self._buffers):
            sizes[-2] = None
        return tf.TensorShape(sizes)

    def _until_rows_leave(self, *tensors):
        """Lets rows that are done leave; steps until half are done."""
        work, ended, recorded = self._pack(tensors)
        done = _rows_done(work.state)
        work, ended = _either(
            tf.reduce_any(done),
            lambda: (_without(work, done), _written(ended, work)),
            lambda: (work, ended),
        )
        task = self._task.over(work.given)
        run = self._search.run(task)
        rows = tf.size(work.rows)
        most = tf.minimum(rows, tf.maximum((rows + 1) // 2, LEAST))
        like = work.state, work.model, recorded

        def goes_on(*tensors):
            state, _, _ = structures.pack(like, tensors)
            done = tf.cast(_rows_done(state), tf.int32)
            return self._goes_on(state, tf.reduce_sum(done) < most)

        def step(*tensors):
            before, model, recorded = structures.pack(like, tensors)
            state, model, record = one_step(run, task, before, model)
            recorded = [
                written.write(before.time, tf.gather(x, work.places))
                for written, x in zip(recorded, record, strict=True)
            ]
            return structures.flatten((state, model, recorded))

        steps = tf.while_loop(goes_on, step, structures.flatten(like))
        state, model, recorded = structures.pack(like, steps)
        work = work._replace(state=state, model=model)
        return structures.flatten((work, ended, recorded))


def _rows_done(state):
    """Returns whether each row is done, `(rows,)`."""
    done = state.done
    return tf.reduce_all(done, axis=1) if len(done.shape) > 1 else done


def _without(work, done):
    """Returns the work without the rows that are done."""
    stay = tf.where(~done)[:, 0]
    rows = tf.gather(work.rows, stay)
    places = tf.tensor_scatter_nd_update(
        tf.zeros_like(work.places), rows[:, None], tf.range(tf.size(rows))
    )
    rest = tf.nest.map_structure(
        lambda x: tf.gather(x, stay) if len(x.shape) else x,
        structures.flatten((work.given, work.state, work.model)),
    )
    return Work(
        rows,
        places,
        *structures.pack((work.given, work.state, work.model), rest),
    )


def _written(ended, work):
    """Returns the state of all rows, with those at work as they are now."""
    found = [
        tf.tensor_scatter_nd_update(before, work.rows[:, None], now)
        if len(now.shape)
        else now
        for before, now in zip(
            structures.flatten(ended),
            structures.flatten(work.state),
            strict=True,
        )
    ]
    return structures.pack(ended, found)


def _either(condition, one, other):
    """Returns the structure that one of two functions returns."""
    like = other()
    found = tf.cond(
        condition,
        lambda: structures.flatten(one()),
        lambda: structures.flatten(like),
    )
    return structures.pack(like, found)
