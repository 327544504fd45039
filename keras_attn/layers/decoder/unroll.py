"""Ways to decode a whole target: step by step, or the cell first."""

import inspect

import keras
from keras import layers
from keras import ops

from keras_attn.layers import cells
from keras_attn.layers import loops
from keras_attn.layers.attention import Attended


class StepByStep:
    """Unrolls a step over a target, but emits all steps at once if possible.

    Args:
        recurrence: The `Recurrence` with the step.
        dtype: Dtype of the outputs.
    """

    def __init__(self, recurrence, dtype):
        self._recurrence = recurrence
        fed = recurrence.feeds
        self._dtypes = (
            dtype if fed else (dtype, dtype),
            recurrence.readers.attended_dtypes(),
        )

    def run(self, inputs, state, source, draws, mask, training):
        """Decodes a whole target.

        Args:
            inputs: Tensor of shape `(batch, target, dim)`.
            state: `DecoderState` before the first step, with one beam.
            source: The `Source`.
            draws: The readers' random draws.
            mask: Boolean tensor `(batch, target)`, True = real, or `None`.
            training: Whether the model trains.

        Returns:
            The outputs `(batch, target, output_dim)`, and the `Attended` of
            each attention.
        """

        def step(inputs, draws, state):
            return self._recurrence.step(inputs, state, source, draws, training)

        outputs, attended = _unroll(
            step, inputs, draws, state, self._dtypes, mask
        )
        return self._recurrence.emit(outputs), attended


class OwnStep:
    """Unrolls the `step` of a subclass; otherwise like `StepByStep`.

    Args:
        step: A method like `AttentionDecoder.step`, with or without `draws`
            and `training`.
        count: Number of alignments that `step` returns.
        several: Whether `step` returns the alignments in a list.
        dtype: Dtype of the outputs.
    """

    def __init__(self, step, count, several, dtype):
        self._step = step
        parameters = inspect.signature(step).parameters.values()
        takes_all = any(x.kind is x.VAR_KEYWORD for x in parameters)
        names = {x.name for x in parameters}
        self.trains = takes_all or {"draws", "training"} <= names
        self._several = several or count != 1
        self._dtypes = dtype, tuple([Attended((), "float32")] * count)

    def run(self, inputs, state, source, draws, mask, training):
        more = {}

        def step(inputs, draws, state):
            if self.trains:
                more.update(draws=draws, training=training)
            outputs, alignments, state = self._step(
                inputs, state, source, **more
            )
            if not self._several:
                alignments = [alignments]
            return outputs, tuple(Attended((), x) for x in alignments), state

        return _unroll(step, inputs, draws, state, self._dtypes, mask)


class CellFirst:
    """Runs the cell over the target, then attends for all positions at once.

    Args:
        cell: The cell.
        sequence: The `__call__` of a Keras layer that runs the cell over a
            sequence, or `None` to loop.
        recurrence: The decoder's `Recurrence`, whose attention must not
            depend on previous steps.
        dtype: Dtype of the outputs.
    """

    def __init__(self, cell, sequence, recurrence, dtype):
        self._cell = cell
        self._sequence = sequence
        self._recurrence = recurrence
        self._dtype = dtype

    def run(self, inputs, state, source, draws, mask, training):
        """Decodes a whole target, like `StepByStep.run()`."""
        hidden, output = self._run_cell(inputs, state, mask, training)
        parts = self._recurrence
        if not parts.readers:
            return parts.emission.emit(output, ()), ()
        query = parts.query.make(inputs, hidden, (), source.condition)
        reading = parts.readers.read_at_once(
            query, source.memories, hidden, draws, mask, training
        )
        outputs = parts.emission.emit(output, reading.context)
        return outputs, reading.attended

    def _run_cell(self, inputs, state, mask, training):
        """Returns the cell's hidden states and outputs over the target."""
        if self._sequence is not None:
            # Fused kernels take no mask, so padding is moved to the end first.
            order = loops.Order(mask)
            output = self._sequence(
                order.real_first(inputs),
                initial_state=[ops.squeeze(x, 1) for x in state.cell],
                training=training,
            )
            output = order.as_before(output)
            # The cell may have a dtype policy of its own.
            output = ops.cast(output, self._dtype)
            return output, output
        alike = cells.puts_out_hidden(self._cell)

        def step(inputs, states):
            output, states = cells.run(
                self._cell, ops.expand_dims(inputs, 1), states, training
            )
            hidden, output = (
                ops.squeeze(x, 1)
                for x in (states[self._recurrence.queried], output)
            )
            return hidden if alike else (hidden, output), states

        dtypes = self._dtype if alike else (self._dtype, self._dtype)
        outputs = loops.unroll(step, inputs, state.cell, dtypes, mask)
        return (outputs, outputs) if alike else outputs


def sequence_layer(cell):
    """Returns the Keras layer that runs a cell over a sequence, or `None`.

    `keras.layers.GRU` and `LSTM` have fused kernels on GPUs, which their
    cells lack. The returned layer uses the given cell as its cell, so the two
    share their weights.
    """
    if type(cell) is layers.GRUCell:
        special = {"reset_after": cell.reset_after}
        make = layers.GRU
    elif type(cell) is layers.LSTMCell:
        special = {}
        make = layers.LSTM
    else:
        return None
    rnn = make(
        cell.units,
        activation=cell.activation,
        recurrent_activation=cell.recurrent_activation,
        use_bias=cell.use_bias,
        dropout=cell.dropout,
        recurrent_dropout=cell.recurrent_dropout,
        return_sequences=True,
        dtype=cell.dtype_policy,
        **special,
    )
    rnn.cell = cell
    return rnn


def _unroll(step, inputs, draws, state, dtypes, mask):
    """Unrolls a step with one beam over a target."""

    def squeezed_step(over_time, state):
        # (batch, ...) -> (batch, one beam, ...)
        inputs, draws = keras.tree.map_structure(
            lambda x: ops.expand_dims(x, 1), over_time
        )
        outputs, attended, state = step(inputs, draws, state)
        outputs = keras.tree.map_structure(
            lambda x: ops.squeeze(x, 1), (outputs, attended)
        )
        return outputs, state

    return loops.unroll(squeezed_step, (inputs, draws), state, dtypes, mask)
