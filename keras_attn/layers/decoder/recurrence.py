"""One step of a decoder, made of its parts.

Training unrolls it over the target, and a search calls it with several
hypotheses per source.
"""

import dataclasses

from keras_attn.layers.decoder.emission import CellAlone
from keras_attn.layers.decoder.order import After
from keras_attn.layers.decoder.order import Before
from keras_attn.layers.decoder.query import Query
from keras_attn.layers.decoder.readers import Readers
from keras_attn.layers.decoder.readers import Reading
from keras_attn.layers.decoder.state import DecoderState


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """The step of a decoder.

    Attributes:
        order: Whether it attends before its cell runs, or after.
        query: The parts of the query.
        queried: Index, among the cell's states, of the query's hidden state.
        readers: The attentions to memories and to the decoder's own past.
        emission: How the output is made.
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
        """Runs a step of each hypothesis, without emitting its output.

        Only with `feeds` it emits the output, because the next step needs it.

        Args:
            inputs: Tensor of shape `(batch, beams, dim)`.
            state: A `DecoderState`.
            source: A `Source`.
            draws: The readers' random draws for this step; `()` for none.
            training: Whether the model trains.
            tokens: Token ids `(batch, beams)` that the runner reads instead
                of `inputs`, or `None`.

        Returns:
            The argument for `emit()`, the `Attended` of each attention, and
            the new state.
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
        """Returns the decoder's outputs, for any number of steps."""
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
