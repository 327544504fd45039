"""The attentions of a decoder: to its memories, and to its own past."""

from typing import NamedTuple

from keras import ops

from keras_attn.layers.decoder.past import OwnPast
from keras_attn.layers.decoder.query import join


class Reading(NamedTuple):
    """The results of all attentions of a decoder."""

    context: object  # (batch, length, dim), all contexts concatenated
    attended: tuple  # each attention's `Attended`, without its context
    histories: tuple = ()  # each attention's new `History`


class Readers:
    """The attentions of a decoder.

    Args:
        attentions: Tuple of attentions, each of which reads one memory.
        own: The attention that reads the decoder's own past, or `None`.
        several: Whether callers pass the memories in a list.
        dtype: Dtype of the contexts.
    """

    def __init__(self, attentions, own, several, dtype):
        self._attentions = attentions
        self._own = own
        self._several = several
        self._dtype = dtype

    def __bool__(self):
        """Whether there is any attention."""
        return bool(self._attentions or self._own)

    @property
    def sum_values(self):
        """Whether the context is one weighted sum of one memory's values."""
        if len(self._attentions) != 1 or self._own:
            return False
        (reader,) = self._attentions
        return reader.sums_values and reader.compute_dtype == self._dtype

    def width(self, memory_dims, state_dim):
        """Returns the width of all contexts concatenated."""
        own = [(self._own, state_dim)] if self._own else []
        pairs = zip(self._attentions, memory_dims, strict=True)
        return sum(reader.context_dim(dim) for reader, dim in [*pairs, *own])

    def build(self, query_shape, memory_shapes, own_shape):
        """Creates the weights for queries and memories of these shapes."""
        own = [(self._own, own_shape)] if self._own else []
        pairs = zip(self._attentions, memory_shapes, strict=True)
        for reader, shape in [*pairs, *own]:
            # Loading builds and locks a part, which must not be built again.
            if not reader.built:
                reader.build(query_shape, shape)

    def one_for_each(self, memory, name):
        """Returns a list with a memory, or a shape, for each attention.

        Args:
            memory: A memory or shape, a list of them, or `None`.
            name: Name of the argument, for the error.
        """
        # A shape is itself a list or tuple, but of numbers.
        several = isinstance(memory, (list, tuple)) and any(
            hasattr(x, "shape") or isinstance(x, (list, tuple)) for x in memory
        )
        found = memory if several else [] if memory is None else [memory]
        count = len(self._attentions)
        if len(found) != count or several != self._several:
            raise ValueError(
                f"The decoder has {count} attention(s)"
                f"{' in a list' if self._several else ''} and needs a "
                f"`{name}` for each. Received: {len(found)}"
                f"{' in a list' if several else ''}. To read two memories, "
                "call `AttentionDecoder(cell, [a, b])(target, [memory_a, "
                "memory_b])`."
            )
        return list(found)

    def prepare(self, memory, mask):
        """Returns the `Memory` of each attention to a memory."""
        return tuple(
            reader.prepare(one, value_mask=its_mask)
            for reader, one, its_mask in zip(
                self._attentions,
                self.one_for_each(memory, "memory"),
                self._masks_for_each(mask),
                strict=True,
            )
        )

    def start(self, memories, hidden, max_length):
        """Returns the histories and the `Past` before the first step.

        Args:
            memories: Result of `prepare()`.
            hidden: The first hidden state, `(batch, beams, dim)`.
            max_length: The largest number of steps, or `None`.
        """
        histories = tuple(
            reader.initial_history(memory, ops.shape(hidden)[1])
            for reader, memory in zip(self._attentions, memories, strict=True)
        )
        if not self._own:
            return histories, ()
        if max_length is None:
            raise ValueError(
                "With `self_attention` the decoder keeps its past states, so "
                "it needs the largest number of steps. Received: "
                "max_length=None. Pass the length of the longest output."
            )
        return histories, OwnPast(self._own).start(hidden, max_length)

    def read(self, query, memories, state, draws, training):
        """Attends once for each hypothesis; returns a `Reading`.

        Args:
            query: Tensor of shape `(batch, beams, dim)`.
            memories: Result of `prepare()`.
            state: The `DecoderState` with the histories and the past.
            draws: Result of `draw()` for this step; `()` for no draws.
            training: Whether the model trains.
        """
        contexts, attended, histories = [], [], []
        draws = draws or [()] * (len(self._attentions) + 1)
        for reader, memory, history, draw in zip(
            self._attentions, memories, state.histories, draws, strict=False
        ):
            found, history = reader.attend_step(
                query, memory, history, draw, training=training
            )
            contexts.append(found.context)
            attended.append(_without_context(found))
            histories.append(history)
        if self._own:
            own = OwnPast(self._own)
            contexts.append(own.attend(state.past, query, draws[-1], training))
        return Reading(self._join(contexts), tuple(attended), tuple(histories))

    def remember(self, past, hidden):
        """Returns the past with one more state `(batch, beams, dim)`."""
        if not self._own:
            return past
        return OwnPast(self._own).append(past, hidden)

    def read_at_once(self, query, memories, hidden, draws, mask, training):
        """Attends for a whole target; returns a `Reading`.

        Args:
            query: Tensor of shape `(batch, target, dim)`.
            memories: Result of `prepare()`.
            hidden: The states to read as past, `(batch, target, dim)`.
            draws: Result of `draw()`.
            mask: Boolean tensor `(batch, target)`, or `None`.
            training: Whether the model trains.
        """
        contexts, attended = [], []
        for reader, memory, draw in zip(
            self._attentions, memories, draws, strict=False
        ):
            found = reader.attend(query, memory, draw, mask, training=training)
            contexts.append(found.context)
            attended.append(_without_context(found))
        if self._own:
            own = self._own.prepare(hidden, value_mask=mask)
            before = _before(hidden, mask)
            found = self._own.attend(
                query, own, draws[-1], mask, before, training
            )
            contexts.append(found.context)
        return Reading(self._join(contexts), tuple(attended))

    def draw(self, memories, batch, target, training):
        """Returns the random draws of each attention, self-attention last."""
        draws = [
            reader.draw(batch, target, ops.shape(memory.keys)[-2], training)
            for reader, memory in zip(self._attentions, memories, strict=True)
        ]
        own = ()
        if self._own:
            own = self._own.draw(batch, target, target, training)
        return [*draws, own]

    def regularize(self, layer, attended, memories, mask):
        """Adds the regularizers' penalties to a layer's losses."""
        for reader, found, memory in zip(
            self._attentions, attended, memories, strict=True
        ):
            reader.regularize(layer, found.alignments, mask, memory.mask)

    def attended_dtypes(self):
        """Returns the `attended` of a `Reading`, with dtype names inside."""
        return tuple(
            _without_context(x.attended_dtypes()) for x in self._attentions
        )

    def one_or_all(self, found):
        """Returns one result per attention in a list, or the only one alone.

        The only one stays in a list if callers pass a list of memories.
        """
        one = len(found) == 1 and not self._several
        return found[0] if one else list(found)

    def samples(self, attended):
        """Returns the log-probability and entropy of the drawn positions.

        Both are summed over the attentions, `(batch, target)`, float32.
        """
        drawn = [
            found
            for reader, found in zip(self._attentions, attended, strict=True)
            if reader.alignment.samples
        ]
        return (
            sum(x.log_probability for x in drawn),
            sum(x.entropy for x in drawn),
        )

    def _masks_for_each(self, mask):
        count = len(self._attentions)
        if mask is None:
            return [None] * count
        masks = mask if self._several else [mask]
        if not isinstance(masks, (list, tuple)):
            raise ValueError(
                "With a list of attentions `memory_mask` is a list too, with "
                "a mask or None for each. Received: memory_mask="
                f"{mask!r}. Pass `[mask] * {count}` if all memories have the "
                "same mask."
            )
        return masks

    def _join(self, contexts):
        # Each attention may have another dtype policy.
        return join([ops.cast(x, self._dtype) for x in contexts])


def _without_context(attended):
    """Drops the fields that a loop need not collect."""
    return attended._replace(context=(), by_head=())


def _before(hidden, mask):
    """Returns a mask of the states before each, `(batch, target, target)`."""
    batch, target = ops.shape(hidden)[:2]
    rows = ops.expand_dims(ops.arange(target, dtype="int32"), 1)
    before = ops.broadcast_to(
        ops.expand_dims(rows > ops.arange(target, dtype="int32"), 0),
        (batch, target, target),
    )
    return before if mask is None else before & ops.expand_dims(mask, 1)
