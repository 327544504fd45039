"""`CutModel`: a translator's model on the sources of a batch, for a search."""

import copy

import tensorflow as tf

from keras_attn.decoding import StepModel
from keras_attn.decoding.step_model import rows_of
from keras_attn.incremental import buffers


class CutModel(StepModel):
    """A model that was cut into steps, or several, on encoded sources.

    Args:
        cut: `Incremental` or `Ensemble`.
        encoded: Result of its `encode()`.
        rows: Number of sources.
        start_tokens: The target's start tokens, each an id or ids `(rows,)`.
            `start` reads all but the last.
        most_steps: Most steps, those of the start tokens counted.
        nowhere: Number of columns of the all-zero alignments of a model
            without attention.
        per_row_position: See `Incremental.step`.
    """

    def __init__(
        self,
        cut,
        encoded,
        rows,
        start_tokens,
        most_steps,
        nowhere=0,
        per_row_position=False,
    ):
        self.rows = rows
        self._cut, self._encoded, self._nowhere = cut, encoded, nowhere
        *self._read_first, _ = start_tokens
        self._most_steps = most_steps
        self._per_row_position = per_row_position
        self._ids = None  # of the columns of a `VocabularySubset`

    def hoisted(self, compiled):
        """Returns the model with constant products moved out of the steps.

        Args:
            compiled: Whether XLA compiles the loop.
        """
        return self._with(*self._cut.hoist(self._encoded, compiled))

    def restricted(self, subset):
        """Returns the model with only the logits of a `VocabularySubset`."""
        model = self._with(
            *self._cut.restrict_vocabulary(
                self._encoded, subset.ids, subset.costs
            )
        )
        model._ids = subset.ids
        return model

    def start(self, beams, places=None):
        state = self._cut.start(self._encoded, beams, self._most_steps)
        if places is not None:
            more = len(self._read_first) if places else 0
            state = buffers.with_room(state, places + more)
        for token in self._read_first:
            token = tf.reshape(token, [-1, 1])
            tokens = tf.broadcast_to(token, [self.rows, beams])
            _, _, state = self._cut.step(tokens, state, self._encoded)
        return state

    def step(self, tokens, state):
        if self._ids is not None:
            tokens = tf.gather(self._ids, tokens)
        logits, alignments, state = self._cut.step(
            tokens, state, self._encoded, self._per_row_position
        )
        if alignments is None:
            sizes = *tf.unstack(tf.shape(tokens)), self._nowhere
            alignments = tf.zeros(sizes)
        return logits, alignments, state

    def reorder(self, state, parents):
        return self._cut.reorder(state, parents)

    def caches(self, state):
        return buffers.in_state(state)

    def widened(self, state, places):
        return buffers.widened(state, places)

    def take_rows(self, rows):
        encoded = rows_of(self._encoded, rows, self.rows)
        model = self._with(self._cut, encoded, tf.size(rows))
        model._read_first = [
            tf.gather(x, rows) if tf.is_tensor(x) else x
            for x in self._read_first
        ]
        return model

    def _with(self, cut, encoded, rows=None):
        model = copy.copy(self)
        model._cut, model._encoded = cut, encoded
        if rows is not None:
            model.rows = rows
        return model
