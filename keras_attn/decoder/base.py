"""`AttentionDecoder`: an RNN cell that attends to a source at every step.

There is one step. Training unrolls it over the target; a search calls it
with several hypotheses a source. What does not depend on the step before is
not looped over but computed once for the whole target.
"""

import itertools
from typing import NamedTuple

import keras
from keras import layers
from keras import ops

from keras_attn import cells
from keras_attn import loops
from keras_attn.attention.heads import apply_to_rows
from keras_attn.backend import zero_where_masked
from keras_attn.decoder import past
from keras_attn.decoder.bridge import make_bridge
from keras_attn.decoder.checks import attentions_of
from keras_attn.decoder.checks import check_self_attention
from keras_attn.decoder.checks import require_cell
from keras_attn.decoder.checks import require_one_of
from keras_attn.decoder.checks import widths_of
from keras_attn.decoder.fused import whole_sequence
from keras_attn.decoder.state import DecoderState
from keras_attn.decoder.state import Source


@keras.saving.register_keras_serializable("keras_attn")
class AttentionDecoder(keras.layers.Layer):
    """Decodes a target with an RNN cell that attends to a memory.

    The *state* below is the hidden state of the cell, that of the top cell
    in a stack; it is also the query. At every step, in the order `"pre"`
    (Bahdanau et al., 2015):

    1. Attend with the previous state: `context`.
    2. Run the cell on `[input; context]`: the new `state`.
    3. Emit `tanh(Wc [state; context])`.

    In the order `"post"` (Luong et al., 2015):

    1. Run the cell on `[input; previous output]`, or on the input alone
       without input feeding: the new `state`.
    2. Attend with the new state: `context`.
    3. Emit `tanh(Wc [state; context])`.

    Bahdanau's own output layer is a maxout over the previous state, the
    input and the context; Luong's layer takes its place here.

    In the order `"post"` without input feeding the attention does not
    depend on the steps before, unless it looks at past alignments or the
    query at the last context. Then the cell alone runs over the target, by
    `keras.layers.GRU` or `LSTM` where it is one of their cells, and the
    attention runs once for all of it.

    Without attention, `AttentionDecoder(cell)(inputs, initial_state=state)`
    is the plain encoder-decoder (Sutskever et al., 2014): it emits what the
    cell puts out.

    Args:
        cell: A Keras RNN cell, such as `keras.layers.GRUCell(256)`, or a
            list of them to stack, the bottom one first.
        attention: The `Attention` that reads the memory, or a list of them,
            one for each of several memories; their contexts are laid end to
            end.
        order: `"pre"` or `"post"`, whether the decoder attends before or
            after the cell.
        input_feeding: Whether the last output is fed back to the cell, in
            the order `"post"`. Defaults to `True` there; the order `"pre"`
            feeds the context, so it must be left out.
        emit: `"attentional"` for `tanh(Wc [state; context])`, as wide as
            the state, or `"concatenated"` for `[state; context]`. Of a
            `ResidualCell` the output takes the place of the state here.
        query: What the query is made of, a string or a tuple of them laid
            end to end: `"state"`; `"input"`, the step's input; `"context"`,
            that of the last step; `"condition"`, the call argument.
        attend: In a stack, the cell whose state is the query: `"top"`, or
            `"bottom"`, where the context also enters all cells above it (Wu
            et al., 2016).
        bridge: What makes the cell's first states of `initial_state`: `None`
            takes them as they are; `"dense"` makes each by a tanh layer on
            all of them laid end to end; a Keras layer is given them laid end
            to end and returns the states.
        self_attention: An `Attention` over the decoder's own states of the
            steps before, whose context joins that of the memory (Paulus et
            al., 2018).

    Call arguments:
        inputs: Embedded target shifted right by one, of shape
            `(batch, target, dim)`.
        memory: What to attend to, of shape `(batch, source, dim)`; with a
            list of attentions a list of as many.
        initial_state: The cell's first states, each `(batch, width)`: one
            tensor, or a list where the cell has several, in the order of
            `cell.state_size`. Defaults to the cell's own, mostly zeros.
        condition: Tensor of shape `(batch, dim)`, such as the embedding of
            the target language, where the query names it.
        inputs_mask: Boolean tensor `(batch, target)`, True = real. At
            masked positions the output is zero and the state stays as it
            was. Keras fills it in, as the next one, whether or not an
            initial state is given.
        memory_mask: Boolean tensor `(batch, source)`, or a list of them.
            Masked positions get no weight.
        return_attention_scores: Whether to return the alignments too.
        return_samples: Whether to return the log-probability and entropy of
            drawn positions too: see `Attention`.
        training: Whether dropout and random draws apply.

    Output:
        Tensor of shape `(batch, target, output_dim)`. With
        `return_attention_scores=True`, also the alignments, of shape
        `(batch, target, source)`, or a list of them. With
        `return_samples=True`, also log-probability and entropy, each
        `(batch, target)`.

    References:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473)
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), equation 5
          and section 3.3
        - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 3
        - [Paulus et al., 2018](https://arxiv.org/abs/1705.04304), section
          2.2

    Example:

    >>> decoder = keras_attn.AttentionDecoder(
    ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))
    >>> target, memory = np.ones((2, 3, 4)), np.ones((2, 5, 6))
    >>> decoder(target, memory).shape
    TensorShape([2, 3, 8])
    """

    def __init__(
        self,
        cell,
        attention=None,
        order="pre",
        input_feeding=None,
        emit="attentional",
        query="state",
        attend="top",
        bridge=None,
        self_attention=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if isinstance(cell, (list, tuple)):
            for one in cell:
                require_cell(one)
            cell = layers.StackedRNNCells(list(cell))
        require_cell(cell)
        require_one_of("order", order, ("pre", "post"))
        require_one_of("emit", emit, ("attentional", "concatenated"))
        require_one_of("attend", attend, ("top", "bottom"))
        self._several = isinstance(attention, (list, tuple))
        attentions = attentions_of(attention)
        if self_attention is not None:
            check_self_attention(self_attention)
        query = (query,) if isinstance(query, str) else tuple(query)
        for name in query or [None]:
            require_one_of(
                "query", name, ("state", "input", "context", "condition")
            )
        self.cell = cell
        self.attentions = attentions
        self.order = order
        self.emit = emit
        self.query = query
        self.attend = attend
        self.self_attention = self_attention
        self._attends = bool(attentions or self_attention)
        self._check_options(input_feeding)
        feeding = True if input_feeding is None else bool(input_feeding)
        self.input_feeding = order == "post" and feeding
        self.supports_masking = True
        self.bridge = make_bridge(
            bridge, cells.state_sizes(cell), self.dtype_policy
        )
        self._queried = cells.hidden_index(self._cell_below())
        self._recurs = self._attends and (
            order == "pre"
            or self.input_feeding
            or attend == "bottom"
            or "context" in query
            or any(x.uses_history for x in attentions)
        )
        self._run_whole = None
        if not self._recurs and (rnn := whole_sequence(cell)):
            # Not the layer itself: its weights are those of the cell.
            self._run_whole = rnn.__call__
            self.supports_jit = rnn.supports_jit
        if self._attends and emit == "attentional":
            self.attentional = layers.Dense(
                cells.output_size(cell),
                activation="tanh",
                use_bias=False,
                dtype=self.dtype_policy,
                name="attentional",
            )

    @property
    def attention(self):
        """The attention, or the list of them."""
        if self._several:
            return list(self.attentions)
        return self.attentions[0] if self.attentions else None

    @property
    def state_width(self):
        """Width of the hidden state that is the query."""
        return cells.state_sizes(self.cell)[self._queried]

    def build(
        self,
        inputs_shape,
        memory_shape=None,
        initial_state_shape=None,
        condition_shape=None,
    ):
        memory_shapes = self._per_attention(memory_shape, "memory")
        for name, shape in [
            ("inputs", inputs_shape),
            *(("memory", shape) for shape in memory_shapes),
        ]:
            if len(shape) != 3:
                raise ValueError(
                    f"`{name}` must have three axes, (batch, length, dim). "
                    f"Received: {name}_shape={shape}."
                )
        if self.bridge is not None:
            if initial_state_shape is None:
                self._refuse_idle_bridge()
            width = sum(widths_of(initial_state_shape))
            if not self.bridge.built:
                self.bridge.build((inputs_shape[0], width))
        elif initial_state_shape is not None:
            self._check_initial_state(widths_of(initial_state_shape))
        self._check_condition(condition_shape)
        batch, target, input_dim = inputs_shape
        context_dim = self._context_width([x[-1] for x in memory_shapes])
        self.context_dim = context_dim
        fed_dim = {
            "pre": context_dim,
            "post": self._output_dim(context_dim) if self.input_feeding else 0,
        }[self.order]
        self._build_cell(batch, input_dim + fed_dim, context_dim)
        widths = {
            "state": self.state_width,
            "input": input_dim,
            "context": context_dim,
            "condition": condition_shape and condition_shape[-1],
        }
        query_shape = (batch, target, sum(widths[x] for x in self.query))
        own_shape = (batch, target, self.state_width)
        # A part that loading has built is locked and must not build again.
        for attention, shape in zip(
            self.attentions, memory_shapes, strict=True
        ):
            if not attention.built:
                attention.build(query_shape, shape)
        if self.self_attention and not self.self_attention.built:
            self.self_attention.build(query_shape, own_shape)
        if hasattr(self, "attentional") and not self.attentional.built:
            width = cells.output_size(self.cell) + context_dim
            self.attentional.build((batch, target, width))

    def _cell_below(self):
        """What runs before the context is there, in the order "post"."""
        if self.attend == "bottom":
            return cells.stacked(self.cell)[0]
        return self.cell

    def _cells_above(self):
        """What runs after it."""
        if self.attend == "bottom":
            return cells.stacked(self.cell)[1:]
        return []

    def _build_cell(self, batch, input_dim, context_dim):
        if self.attend == "top":
            if not getattr(self.cell, "built", True):
                self.cell.build((batch, input_dim))
            return
        for cell in cells.stacked(self.cell):
            if not getattr(cell, "built", True):
                cell.build((batch, input_dim))
            input_dim = cells.output_size(cell) + context_dim

    def call(
        self,
        inputs,
        memory=None,
        initial_state=None,
        condition=None,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        return_samples=False,
        training=None,
    ):
        self._check_flags(return_attention_scores, return_samples)
        self._check_condition(condition)
        if inputs_mask is None:
            # Keras fills it in only where there are other tensors beside.
            inputs_mask = getattr(inputs, "_keras_mask", None)
        source = self.prepare(memory, memory_mask, condition)
        batch, target = ops.shape(inputs)[0], ops.shape(inputs)[1]
        state = self.start(source, initial_state, 1, target, batch)
        draws = self._draw(source, batch, target, training)

        def first_step():
            first = keras.tree.map_structure(lambda x: x[:, :1], draws)
            self._step(inputs[:, :1], state, source, first, training=True)

        unroll = self._unroll if self._recurs else self._unroll_cell_then_attend
        with cells.dropout_drawn_before(self.cell, training and first_step):
            outputs, attended = unroll(
                inputs, state, source, draws, inputs_mask, training
            )
        for attention, memory, found in zip(
            self.attentions, source.memories, attended, strict=True
        ):
            attention.regularize(
                self, found.alignments, inputs_mask, memory.mask
            )
        results = [outputs]
        if return_attention_scores:
            alignments = [
                ops.cast(found.alignments, self.compute_dtype)
                for found in attended
            ]
            results.append(alignments if self._several else alignments[0])
        if return_samples:
            sampling = [x.alignment.samples for x in self.attentions]
            sampled = list(itertools.compress(attended, sampling))
            results.append(sum(x.log_probability for x in sampled))
            results.append(sum(x.entropy for x in sampled))
        results = keras.tree.map_structure(
            lambda x: zero_where_masked(x, inputs_mask), results
        )
        return tuple(results) if len(results) > 1 else results[0]

    def prepare(self, memory=None, memory_mask=None, condition=None):
        """Returns the `Source` of the memories and the condition."""
        memories = self._per_attention(memory, "memory")
        masks = [None] * len(memories)
        if memory_mask is not None:
            masks = memory_mask if self._several else [memory_mask]
            if not isinstance(masks, (list, tuple)):
                raise ValueError(
                    "With a list of attentions `memory_mask` is a list too, "
                    "a mask or None for each. Received: memory_mask="
                    f"{memory_mask!r}. Pass `[mask] * {len(memories)}` where "
                    "they have the same."
                )
        prepared = tuple(
            attention.prepare(memory, value_mask=mask)
            for attention, memory, mask in zip(
                self.attentions, memories, masks, strict=True
            )
        )
        if condition is None:
            return Source(prepared)
        return Source(prepared, ops.cast(condition, self.compute_dtype))

    def start(
        self, source, initial_state=None, beams=1, max_length=None, batch=None
    ):
        """Returns the state before the first step.

        Args:
            source: What `prepare()` returned.
            initial_state: As in `call`.
            beams: Number of hypotheses a source, all alike at the start.
            max_length: How many steps there may be; needed with
                self-attention, which keeps them all.
            batch: Number of sources, where there is neither a memory nor an
                initial state to tell it.
        """
        if initial_state is None:
            if self.bridge is not None:
                self._refuse_idle_bridge()
            if source.memories:
                batch = ops.shape(source.memories[0].keys)[0]
            states = cells.initial_state(self.cell, batch, self.compute_dtype)
        else:
            states = keras.tree.flatten(initial_state)
            if self.bridge is not None:
                states = self.bridge(_join(states))
        states = keras.tree.flatten(states)
        self._check_initial_state([x.shape[-1] for x in states])
        cell = tuple(
            ops.repeat(
                ops.expand_dims(ops.cast(x, self.compute_dtype), 1), beams, 1
            )
            for x in states
        )
        batch = ops.shape(cell[0])[0]

        def zeros(width):
            return ops.zeros((batch, beams, width), dtype=self.compute_dtype)

        fed = context = own_past = ()
        if self.input_feeding:
            fed = zeros(self._output_dim(self.context_dim))
        if "context" in self.query:
            context = zeros(self.context_dim)
        if self.self_attention:
            if max_length is None:
                raise ValueError(
                    "With `self_attention` the decoder keeps its past states "
                    "and must know how many there may be. Received: "
                    "max_length=None. Pass the longest length of an output."
                )
            own_past = past.empty(
                self.self_attention, cell[self._queried], max_length
            )
        histories = tuple(
            attention.initial_history(memory, beams)
            for attention, memory in zip(
                self.attentions, source.memories, strict=True
            )
        )
        return DecoderState(cell, histories, fed, context, own_past)

    def step(self, inputs, state, source):
        """Decodes one step of each hypothesis.

        Args:
            inputs: Embedded last token of each hypothesis, of shape
                `(batch, beams, dim)`.
            state: What `start()` or the last step returned.
            source: What `prepare()` returned; it stands once per source.

        Returns:
            The outputs `(batch, beams, output_dim)`, the alignments
            `(batch, beams, source)` in float32 (a list of them with a list
            of attentions, empty without any), and the new state.
        """
        outputs, attended, state = self._step(inputs, state, source)
        if not self.input_feeding:
            outputs = self._emit(*outputs)
        alignments = [found.alignments for found in attended]
        if len(alignments) == 1 and not self._several:
            (alignments,) = alignments
        return outputs, alignments, state

    def _step(self, inputs, state, source, draws=(), training=False):
        """A step up to what is emitted.

        With input feeding the output belongs to the recurrence; without, it
        is left as `(output of the cell, context)`, for `_emit` to take all
        steps at once.
        """

        def attend(cell):
            return self._attend(inputs, state, cell, source, draws, training)

        joined = None
        if self.order == "pre" and self._attends:
            found = attend(state.cell)
            if self.attend == "bottom":
                joined = found.context
            both = ops.concatenate([inputs, found.context], axis=-1)
            output, cell = cells.run(
                self.cell, both, state.cell, training, joined
            )
        else:
            both = inputs
            if self.input_feeding:
                both = ops.concatenate([inputs, state.fed], axis=-1)
            below, above = self._cell_below(), self._cells_above()
            count = len(cells.state_sizes(below)) if above else len(state.cell)
            output, cell = cells.run(below, both, state.cell[:count], training)
            found = attend(cell)
            if above:
                joined = found.context
                both = ops.concatenate([output, joined], axis=-1)
                output, upper = cells.run(
                    above, both, state.cell[count:], training, joined
                )
                cell += upper
        outputs, fed = (output, found.context), ()
        if self.input_feeding:
            outputs = fed = self._emit(*outputs)
        own_past = state.past
        if self.self_attention:
            hidden = cell[self._queried]
            own_past = past.append(own_past, self.self_attention, hidden)
        state = DecoderState(
            cell,
            found.histories,
            fed,
            found.context if "context" in self.query else (),
            own_past,
        )
        return outputs, found.attended, state

    def _attend(self, inputs, state, cell, source, draws, training):
        """What all attentions find, by the query of these states."""
        if not self._attends:
            return _Found((), (), ())
        parts = {
            "state": cell[self._queried],
            "input": inputs,
            "context": state.context,
        }
        if "condition" in self.query:
            parts["condition"] = _for_each(inputs, source.condition)
        query = _join([parts[name] for name in self.query])
        draws = draws or [()] * (len(self.attentions) + 1)
        results = [
            attention.attend_step(
                query, memory, history, draw, training=training
            )
            for attention, memory, history, draw in zip(
                self.attentions,
                source.memories,
                state.histories,
                draws[:-1],
                strict=True,
            )
        ]
        contexts = [attended.context for attended, _ in results]
        if self.self_attention:
            contexts.append(
                past.attend(
                    state.past, self.self_attention, query, draws[-1], training
                )
            )
        return _Found(
            self._join_contexts(contexts),
            tuple(_without_context(attended) for attended, _ in results),
            tuple(history for _, history in results),
        )

    def _join_contexts(self, contexts):
        # The attentions may have dtype policies of their own.
        return _join([ops.cast(x, self.compute_dtype) for x in contexts])

    def _emit(self, output, context):
        if not self._attends:
            return output
        both = ops.concatenate([output, context], axis=-1)
        if self.emit == "concatenated":
            return both
        return apply_to_rows(self.attentional, both)

    def _draw(self, source, batch, target, training):
        """All that is random, for each attention and the self-attention."""
        draws = [
            attention.draw(batch, target, ops.shape(memory.keys)[-2], training)
            for attention, memory in zip(
                self.attentions, source.memories, strict=True
            )
        ]
        own = ()
        if self.self_attention:
            own = self.self_attention.draw(batch, target, target, training)
        return [*draws, own]

    def _unroll(self, inputs, state, source, draws, mask, training):
        """Steps through the target; emits for all steps at once if it can."""

        def step(over_time, state):
            # (batch, ...) -> (batch, one beam, ...)
            inputs, draws = keras.tree.map_structure(
                lambda x: ops.expand_dims(x, 1), over_time
            )
            outputs, attended, state = self._step(
                inputs, state, source, draws, training
            )
            outputs = keras.tree.map_structure(
                lambda x: ops.squeeze(x, 1), (outputs, attended)
            )
            return outputs, state

        dtype = self.compute_dtype
        outputs, attended = loops.unroll(
            step,
            (inputs, draws),
            state,
            output_dtypes=(
                dtype if self.input_feeding else (dtype, dtype),
                tuple(
                    _without_context(attention.attended_dtypes())
                    for attention in self.attentions
                ),
            ),
            mask=mask,
        )
        if not self.input_feeding:
            outputs = self._emit(*outputs)
        return outputs, attended

    def _unroll_cell_then_attend(
        self, inputs, state, source, draws, mask, training
    ):
        """Steps through the cell alone; then target positions are beams."""
        hidden, output = self._unroll_cell(inputs, state, mask, training)
        if not self._attends:
            return output, ()
        parts = {"state": hidden, "input": inputs}
        if "condition" in self.query:
            parts["condition"] = _for_each(inputs, source.condition)
        query = _join([parts[name] for name in self.query])
        *draws, own_draws = draws
        attended = [
            attention.attend(query, memory, draw, mask, training=training)
            for attention, memory, draw in zip(
                self.attentions, source.memories, draws, strict=True
            )
        ]
        contexts = [found.context for found in attended]
        if self.self_attention:
            own = self.self_attention.prepare(hidden, value_mask=mask)
            found = self.self_attention.attend(
                query, own, own_draws, mask, _before(hidden, mask), training
            )
            contexts.append(found.context)
        return self._emit(output, self._join_contexts(contexts)), attended

    def _unroll_cell(self, inputs, state, mask, training):
        """The hidden states and the outputs of the cell, over the target."""
        if self._run_whole:
            # Fused kernels want padding at the end, where it needs no mask.
            order = loops.Order(mask)
            output = self._run_whole(
                order.real_first(inputs),
                initial_state=[ops.squeeze(x, 1) for x in state.cell],
                training=training,
            )
            output = order.as_before(output)
            # The cell may have a dtype policy of its own.
            output = ops.cast(output, self.compute_dtype)
            return output, output
        alike = cells.puts_out_hidden(self.cell)

        def step(inputs, cell):
            output, cell = cells.run(
                self.cell, ops.expand_dims(inputs, 1), cell, training
            )
            hidden, output = (
                ops.squeeze(x, 1) for x in (cell[self._queried], output)
            )
            return hidden if alike else (hidden, output), cell

        dtype = self.compute_dtype
        outputs = loops.unroll(
            step, inputs, state.cell, dtype if alike else (dtype, dtype), mask
        )
        return (outputs, outputs) if alike else outputs

    def _check_options(self, input_feeding):
        if self.order == "pre" and input_feeding is not None:
            raise ValueError(
                'In the order "pre" the context enters the cell, so '
                "`input_feeding` would have no effect. Received: "
                f"input_feeding={input_feeding!r}. Leave it out, or decode "
                'with order="post".'
            )
        if self.attend == "bottom" and len(cells.stacked(self.cell)) < 2:
            raise ValueError(
                'To attend at the "bottom" there must be cells above. '
                f"Received: attend='bottom' with the one cell {self.cell!r}. "
                "Pass a list of cells."
            )
        given = self.order, self.emit, self.query, self.attend
        usual = "pre", "attentional", ("state",), "top"
        if not self._attends and given != usual:
            raise ValueError(
                "Without attention the decoder emits what the cell puts out, "
                "and order, emit, query and attend would have no effect. "
                f"Received: order={self.order!r}, emit={self.emit!r}, "
                f"query={self.query!r}, attend={self.attend!r}. Leave them "
                "out, or pass an attention."
            )

    def _check_flags(self, return_attention_scores, return_samples):
        if return_attention_scores and not self.attentions:
            raise ValueError(
                "Without attention there are no scores to return. Received: "
                "return_attention_scores=True. Pass an attention."
            )
        if return_attention_scores not in (False, True):
            raise ValueError(
                "A decoder returns the mean of several heads: "
                "`return_attention_scores` must be False or True. Received: "
                f"return_attention_scores={return_attention_scores!r}. The "
                "attention alone, as a layer, returns those of each head."
            )
        samples = any(x.alignment.samples for x in self.attentions)
        if return_samples and not samples:
            raise ValueError(
                "Only an alignment that draws positions has samples to "
                "return. Received: return_samples=True with "
                f"{[type(x.alignment).__name__ for x in self.attentions]}. "
                "Use `ReinforceAlignment()`."
            )

    def _check_condition(self, condition):
        if (condition is not None) != ("condition" in self.query):
            raise ValueError(
                "`condition` is needed if and only if the query names it. "
                f"Received: query={self.query} and "
                f"{'a' if condition is not None else 'no'} condition. Pass "
                'for example `query=("state", "condition")` and '
                "`decoder(..., condition=language)`."
            )

    def _check_initial_state(self, widths):
        sizes = cells.state_sizes(self.cell)
        if widths != sizes:
            raise ValueError(
                f"The cell has {len(sizes)} state(s) of width {sizes} and"
                f" `initial_state`, or the bridge, must bring as "
                f"many, in this order. Received widths: {widths}. "
                "A `Dense` layer makes a state of another width fit, "
                '`bridge="dense"` any of them; `[h, c]` starts an LSTM.'
            )

    def _refuse_idle_bridge(self):
        raise ValueError(
            "`bridge` makes the first states of `initial_state`. Received: "
            "no initial_state. Pass the encoder's last states, or leave the "
            "bridge out to start with zeros."
        )

    def _per_attention(self, memory, name):
        """As many memories, or shapes, as there are attentions."""
        # A shape is itself a list, of numbers.
        several = isinstance(memory, (list, tuple)) and any(
            hasattr(x, "shape") or isinstance(x, (list, tuple)) for x in memory
        )
        found = memory if several else [] if memory is None else [memory]
        if len(found) != len(self.attentions) or several != self._several:
            raise ValueError(
                f"The decoder has {len(self.attentions)} attention(s)"
                f"{' in a list' if self._several else ''} and needs a "
                f"`{name}` for each. Received: {len(found)}"
                f"{' in a list' if several else ''}. "
                "`AttentionDecoder(cell, [a, b])(target, [memory_a, "
                "memory_b])` reads two."
            )
        return list(found)

    def _context_width(self, memory_dims):
        """Width of all contexts laid end to end."""
        width = sum(
            attention.context_dim(dim)
            for attention, dim in zip(self.attentions, memory_dims, strict=True)
        )
        if self.self_attention:
            width += self.self_attention.context_dim(self.state_width)
        return width

    def _output_dim(self, context_dim):
        width = cells.output_size(self.cell)
        if self._attends and self.emit == "concatenated":
            width += context_dim
        return width

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(
        self,
        inputs_shape,
        memory_shape=None,
        initial_state_shape=None,
        condition_shape=None,
    ):
        shapes = self._per_attention(memory_shape, "memory")
        context_dim = self._context_width([shape[-1] for shape in shapes])
        return (*inputs_shape[:2], self._output_dim(context_dim))

    def compute_output_spec(
        self,
        inputs,
        memory=None,
        initial_state=None,
        condition=None,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        return_samples=False,
        training=None,
    ):
        self._check_flags(return_attention_scores, return_samples)
        memories = self._per_attention(memory, "memory")
        context_dim = self._context_width([x.shape[-1] for x in memories])
        batch, target, _ = inputs.shape

        def spec(dtype, *shape):
            return keras.KerasTensor((batch, target, *shape), dtype=dtype)

        dtype = self.compute_dtype
        results = [spec(dtype, self._output_dim(context_dim))]
        if return_attention_scores:
            alignments = [spec(dtype, x.shape[1]) for x in memories]
            results.append(alignments if self._several else alignments[0])
        if return_samples:
            results += [spec("float32"), spec("float32")]
        return tuple(results) if len(results) > 1 else results[0]

    def get_config(self):
        def serialize(x):
            return keras.tree.map_structure(
                keras.saving.serialize_keras_object, x
            )

        feeding = self.input_feeding if self.order == "post" else None
        return {
            **super().get_config(),
            "cell": serialize(self.cell),
            "attention": serialize(self.attention),
            "order": self.order,
            "input_feeding": feeding,
            "emit": self.emit,
            "query": list(self.query),
            "attend": self.attend,
            "bridge": serialize(self.bridge),
            "self_attention": serialize(self.self_attention),
        }

    @classmethod
    def from_config(cls, config):
        def deserialize(x):
            if isinstance(x, dict):
                return keras.saving.deserialize_keras_object(x)
            if isinstance(x, list):
                return [deserialize(part) for part in x]
            return x

        config = dict(config)
        for part in ("cell", "attention", "bridge", "self_attention"):
            config[part] = deserialize(config.get(part))
        return cls(**config)


class _Found(NamedTuple):
    """What all attentions of a decoder found in a step."""

    context: object  # (batch, beams, dim), all contexts laid end to end
    attended: tuple  # each attention's `Attended`, without its context
    histories: tuple


def _without_context(attended):
    """What a loop need not write down a second time."""
    return attended._replace(context=(), by_head=())


def _join(tensors):
    """Lays tensors `(..., dim)` end to end."""
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, -1)


def _for_each(inputs, condition):
    """`(batch, dim)` -> `(batch, length, dim)`, as long as the inputs."""
    # An addition: XLA cannot compile the gradient of `repeat` in a loop.
    return ops.expand_dims(condition, 1) + ops.zeros_like(inputs[..., :1])


def _before(hidden, mask):
    """Which states stand before each: `(batch, target, target)`."""
    batch, target = ops.shape(hidden)[:2]
    rows = ops.expand_dims(ops.arange(target), 1)
    before = ops.broadcast_to(
        ops.expand_dims(rows > ops.arange(target), 0), (batch, target, target)
    )
    return before if mask is None else before & ops.expand_dims(mask, 1)
