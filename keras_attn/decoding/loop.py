"""The loop of a search over its steps.

A model that attends to its own past reads buffers with a place for each step.
With places for the longest output, short outputs would cost as much as long
ones. So the buffers begin small: in a graph each step adds a place; under XLA,
where shapes stay, there are two loops, a short one and one for the rest.
"""

import tensorflow as tf

from keras_attn import structures

FIRST = 16  # steps of the first of two loops


class Loop:
    """All steps of a search over a task.

    Args:
        run: The search's run, as `Search.run` returns it.
        task: The `Task`.
        longest: Most steps, at least 1.
    """

    def __init__(self, run, task, longest):
        self._run, self._task, self._longest = run, task, longest
        self._buffers = []
        self._at_first = longest  # steps of the first loop
        if task.buffers is None or (task.widened and longest <= 2 * FIRST):
            model = task.start(run.beams)
        else:
            model = task.start(run.beams, FIRST if task.widened else 0)
            self._buffers = task.buffers(model)
        if self._buffers and task.widened:
            self._at_first = FIRST
        recorded = [tf.TensorArray(x, longest) for x in run.recorded]
        self._first = run.first(), model, recorded

    def __call__(self):
        """Runs the steps.

        Returns:
            The run's last state, and a list of what the steps recorded, time
            first.
        """
        state, model, recorded = self._loop(*self._first, self._at_first)
        if self._at_first < self._longest:
            state, recorded = self._go_on(state, model, recorded)
        stacked = [x.stack() for x in recorded]
        if self._task.records_end:
            stacked = [self._filled(x, state.time) for x in stacked]
        for x in stacked:  # `tf.cond` forgets the length
            x.set_shape([self._longest, *x.shape[1:]])
        return state, stacked

    def _filled(self, x, steps):
        """Returns what `steps` steps recorded, with zeros for the rest."""
        rest = [[0, self._longest - steps]] + [[0, 0]] * (len(x.shape) - 1)
        return tf.pad(x[:steps], rest)

    def _go_on(self, state, model, recorded):
        """Runs the rest of the steps, with room for all of them."""
        like = state, recorded
        rest = self._longest - self._at_first

        def wider():
            model_with_room = self._task.widened(model, rest)
            after, _, more = self._loop(state, model_with_room, recorded, rest)
            return structures.flatten((after, more))

        found = tf.cond(
            self._is_unfinished(state),
            wider,
            lambda: structures.flatten(like),
        )
        return structures.pack(like, found)

    def _loop(self, state, model, recorded, most):
        """Runs at most `most` steps."""
        tensors = structures.flatten((state, model, recorded))
        shapes = None
        if self._task.widened is None:
            grow = {id(x) for x in self._buffers}
            shapes = [
                _of_any_length(x.shape) if id(x) in grow else None
                for x in tensors
            ]
        tensors = tf.while_loop(
            lambda *x: self._is_unfinished(self._pack(x)[0]),
            self._step,
            tensors,
            shape_invariants=shapes,
            maximum_iterations=most,
        )
        return self._pack(tensors)

    def _step(self, *tensors):
        before, model, recorded = self._pack(tensors)
        state, model, record = one_step(self._run, self._task, before, model)
        recorded = [
            written.write(before.time, x)
            for written, x in zip(recorded, record, strict=True)
        ]
        return structures.flatten((state, model, recorded))

    def _pack(self, tensors):
        return structures.pack(self._first, tensors)

    def _is_unfinished(self, state):
        # At least one step, even for an empty batch: a `TensorArray` without
        # a single write does not know its element shape.
        return (state.time == 0) | ~tf.reduce_all(state.done)


def one_step(run, task, state, model):
    """Takes a step of a search.

    Returns:
        The run's and the model's next state, and what the step recorded.
    """
    logits, alignments, model = task.step(state.last, model)
    state, parents, record = run.advance(state, logits, alignments)
    if parents is not None:
        model = task.reorder(model, parents)
    return state, model, record


def _of_any_length(shape):
    """Returns the shape of a buffer `(..., time, dim)` of unknown length."""
    sizes = shape.as_list()
    sizes[-2] = None
    return tf.TensorShape(sizes)
