"""The loop of a search over its steps."""

import tensorflow as tf

from keras_attn import structures


class Loop:
    """All steps of a search over a task.

    Args:
        run: The search's run, as `Search.run` returns it.
        task: The `Task`.
        longest: Most steps, at least 1.
    """

    def __init__(self, run, task, longest):
        self._run, self._task, self._longest = run, task, longest
        grows = {} if task.growing is None else {"grow": True}
        self._first = (
            run.first(),
            task.start(run.beams, **grows),
            [tf.TensorArray(x, longest) for x in run.recorded],
        )

    def __call__(self):
        """Runs the steps.

        Returns:
            The run's last state, and a list of what the steps recorded, time
            first.
        """
        tensors = structures.flatten(self._first)
        tensors = tf.while_loop(
            self._goes_on,
            self._step,
            tensors,
            shape_invariants=self._shapes(tensors),
            maximum_iterations=self._longest,
        )
        state, _, recorded = structures.pack(self._first, tensors)
        return state, [x.stack() for x in recorded]

    def _shapes(self, tensors):
        """Returns shapes for the loop, None for those that stay."""
        if self._task.growing is None:
            return None
        _, model, _ = self._first
        growing = {id(x) for x in self._task.growing(model)}
        return [
            _of_any_length(x.shape) if id(x) in growing else None
            for x in tensors
        ]

    def _goes_on(self, *tensors):
        state, *_ = structures.pack(self._first, tensors)
        # At least one step, even for an empty batch: a `TensorArray` without
        # a single write does not know its element shape.
        return (state.time == 0) | ~tf.reduce_all(state.done)

    def _step(self, *tensors):
        before, model, recorded = structures.pack(self._first, tensors)
        logits, alignments, model = self._task.step(before.last, model)
        state, parents, record = self._run.advance(before, logits, alignments)
        if parents is not None:
            model = self._task.reorder(model, parents)
        recorded = [
            written.write(before.time, x)
            for written, x in zip(recorded, record, strict=True)
        ]
        return structures.flatten((state, model, recorded))


def _of_any_length(shape):
    """Returns the shape of a buffer `(..., time, dim)` of unknown length."""
    sizes = shape.as_list()
    sizes[-2] = None
    return tf.TensorShape(sizes)
