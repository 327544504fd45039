"""One step of a decoder, made of its parts.

Training unrolls it over the target; a search calls it with several
hypotheses a source.
"""

import dataclasses

from keras_attn.decoder.emission import CellAlone
from keras_attn.decoder.order import After
from keras_attn.decoder.order import Before
from keras_attn.decoder.query import Query
from keras_attn.decoder.readers import Readers
from keras_attn.decoder.readers import Reading
from keras_attn.decoder.state import DecoderState


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """The step of a decoder.

    Attributes:
        order: When it attends.
        query: What it attends with.
        queried: Which of the cell's states is the hidden one of the query.
        readers: What it attends to.
        emission: What it puts out.
        feeds: Whether the output is fed to the next step.
    """

    order: Before | After
    query: Query
    queried: int
    readers: Readers
    emission: CellAlone
    feeds: bool

    def step(
        self, inputs, state, source, draws=(), training=False, tokens=None
    ):
        """Takes a step of each hypothesis, up to what is emitted.

        Args:
            inputs: Tensor of shape `(batch, beams, dim)`.
            state: A `DecoderState`.
            source: A `Source`.
            draws: What the readers drew for this step; `()` for nothing.
            training: Whether the model trains.
            tokens: What the runner of the order reads in the place of the
                inputs, where that is another.

        Returns:
            What `emit()` takes, the `Attended` of each attention, and the new
            state. With `feeds` the emission belongs to the recurrence, and
            has happened.
        """
        read = inputs if tokens is None else tokens
        ran = self.order.begin(read, state, training)
        reading = Reading((), ())
        if self.readers:
            hidden = ran.states[self.queried]
            query = self.query.make(
                inputs, hidden, state.context, source.condition
            )
            reading = self.readers.read(
                query, source.memories, state, draws, training
            )
        context = reading.context
        ran = self.order.finish(ran, read, context, state, training)
        outputs, fed = (ran.output, context), ()
        if self.feeds:
            outputs = fed = self.emission.emit(*outputs)
        state = DecoderState(
            ran.states,
            reading.histories,
            fed,
            context if "context" in self.query.names else (),
            self.readers.remember(state.past, ran.states[self.queried]),
        )
        return outputs, reading.attended, state

    def emit(self, outputs):
        """Returns what is put out, for any number of steps."""
        return outputs if self.feeds else self.emission.emit(*outputs)

    def emitted_step(
        self, inputs, state, source, draws=(), training=False, tokens=None
    ):
        """Returns the outputs of a step, all alignments, and the state."""
        outputs, attended, state = self.step(
            inputs, state, source, draws, training, tokens
        )
        alignments = self.readers.one_or_all([x.alignments for x in attended])
        return self.emit(outputs), alignments, state
