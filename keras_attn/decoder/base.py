"""`AttentionDecoder`: an RNN cell that attends to a source at every step.

There is one step. Training unrolls it over the target; a search calls it
with several hypotheses a source. What does not depend on the step before is
not looped over but computed once for the whole target.
"""

import keras
from keras import layers
from keras import ops

from keras_attn import cells
from keras_attn.decoder import checks
from keras_attn.decoder import widths
from keras_attn.decoder.bridge import make_bridge
from keras_attn.decoder.fused import whole_sequence
from keras_attn.decoder.outputs import outputs_of
from keras_attn.decoder.outputs import specs_of
from keras_attn.decoder.start import first_state
from keras_attn.decoder.state import Source
from keras_attn.decoder.step import cell_below
from keras_attn.decoder.step import run_step
from keras_attn.decoder.step import run_whole_step
from keras_attn.decoder.whole import unroll
from keras_attn.keras_internals import get_keras_mask


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
                checks.require_cell(one)
            cell = layers.StackedRNNCells(list(cell))
        checks.require_cell(cell)
        checks.require_one_of("order", order, ("pre", "post"))
        checks.require_one_of("emit", emit, ("attentional", "concatenated"))
        checks.require_one_of("attend", attend, ("top", "bottom"))
        self.several = isinstance(attention, (list, tuple))
        attentions = checks.attentions_of(attention)
        if self_attention is not None:
            checks.check_self_attention(self_attention)
        checks.require_names("query", query)
        query = (query,) if isinstance(query, str) else tuple(query)
        for name in query or [None]:
            checks.require_one_of(
                "query", name, ("state", "input", "context", "condition")
            )
        self.cell = cell
        self.attentions = attentions
        self.order = order
        self.emit = emit
        self.query = query
        self.attend = attend
        self.self_attention = self_attention
        self.attends = bool(attentions or self_attention)
        checks.check_options(self, input_feeding)
        feeding = True if input_feeding is None else bool(input_feeding)
        self.input_feeding = order == "post" and feeding
        self.supports_masking = True
        self.bridge = make_bridge(
            bridge, cells.state_sizes(cell), self.dtype_policy
        )
        self.queried = cells.hidden_index(cell_below(self))
        self.recurs = self.attends and (
            order == "pre"
            or self.input_feeding
            or attend == "bottom"
            or "context" in query
            or any(x.uses_history for x in attentions)
        )
        self.run_whole = None
        if not self.recurs and (rnn := whole_sequence(cell)):
            # Not the layer itself: its weights are those of the cell.
            self.run_whole = rnn.__call__
            self.supports_jit = rnn.supports_jit
        if self.attends and emit == "attentional":
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
        if self.several:
            return list(self.attentions)
        return self.attentions[0] if self.attentions else None

    @property
    def state_width(self):
        """Width of the hidden state that is the query."""
        return cells.state_sizes(self.cell)[self.queried]

    def build(
        self,
        inputs_shape,
        memory_shape=None,
        initial_state_shape=None,
        condition_shape=None,
    ):
        memory_shapes = checks.one_for_each(self, memory_shape, "memory")
        checks.check_shapes(inputs_shape, memory_shapes)
        if self.bridge is not None:
            if initial_state_shape is None:
                checks.refuse_idle_bridge()
            width = sum(widths.of_shapes(initial_state_shape))
            if not self.bridge.built:
                self.bridge.build((inputs_shape[0], width))
        elif initial_state_shape is not None:
            checks.check_initial_state(
                self, widths.of_shapes(initial_state_shape)
            )
        checks.check_condition(self, condition_shape)
        batch, target, input_dim = inputs_shape
        context_dim = widths.of_context(self, [x[-1] for x in memory_shapes])
        self.context_dim = context_dim
        self._build_cell(batch, input_dim, context_dim)
        query_dim = widths.of_query(self, input_dim, condition_shape)
        query_shape = (batch, target, query_dim)
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

    def _build_cell(self, batch, input_dim, context_dim):
        if self.order == "pre":
            input_dim += context_dim
        elif self.input_feeding:
            input_dim += widths.of_output(self, context_dim)
        if self.attend == "top":
            if not getattr(self.cell, "built", True):
                self.cell.build((batch, input_dim))
            return
        for cell in cells.stacked(self.cell):
            if not getattr(cell, "built", True):
                cell.build((batch, input_dim))
            input_dim = cells.output_size(cell) + context_dim

    def __call__(self, *args, **kwargs):
        checks.check_call(self, args, kwargs)
        return super().__call__(*args, **kwargs)

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
        returned = return_attention_scores, return_samples
        checks.check_flags(self, *returned)
        checks.check_condition(self, condition)
        if inputs_mask is None:
            # Keras fills it in only where there are other tensors beside.
            inputs_mask = get_keras_mask(inputs)
        source = self.prepare(memory, memory_mask, condition)
        batch, target = ops.shape(inputs)[0], ops.shape(inputs)[1]
        state = self.start(source, initial_state, 1, target, batch)
        draws = self._draw(source, batch, target, training)

        def first_step():
            first = keras.tree.map_structure(lambda x: x[:, :1], draws)
            run_step(self, inputs[:, :1], state, source, first, training=True)

        with cells.dropout_drawn_before(self.cell, training and first_step):
            outputs, attended = unroll(
                self, inputs, state, source, draws, inputs_mask, training
            )
        for attention, memory, found in zip(
            self.attentions, source.memories, attended, strict=True
        ):
            attention.regularize(
                self, found.alignments, inputs_mask, memory.mask
            )
        return outputs_of(self, outputs, attended, inputs_mask, *returned)

    def prepare(self, memory=None, memory_mask=None, condition=None):
        """Returns the `Source` of the memories and the condition."""
        memories = checks.one_for_each(self, memory, "memory")
        masks = checks.masks_for_each(self, memory_mask)
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
        return first_state(
            self, source, initial_state, beams, max_length, batch
        )

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
        return run_whole_step(self, inputs, state, source)

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

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(
        self,
        inputs_shape,
        memory_shape=None,
        initial_state_shape=None,
        condition_shape=None,
    ):
        shapes = checks.one_for_each(self, memory_shape, "memory")
        context_dim = widths.of_context(self, [x[-1] for x in shapes])
        return (*inputs_shape[:2], widths.of_output(self, context_dim))

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
        returned = return_attention_scores, return_samples
        checks.check_flags(self, *returned)
        return specs_of(self, inputs, memory, *returned)

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
