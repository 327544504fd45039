"""`AttentionDecoder`: an RNN cell that attends to a source at every step.

Training and search share one step. Training unrolls it over the target, and a
search calls it with several hypotheses per source. Computations that do not
depend on the previous step run once for the whole target, outside the loop.
"""

import operator

import keras
from keras import layers
from keras import ops

from keras_attn.backend import zero_where_masked
from keras_attn.keras_internals import get_keras_mask
from keras_attn.layers import cells
from keras_attn.layers.decoder import decoder_arguments
from keras_attn.layers.decoder.bridge import make_bridge
from keras_attn.layers.decoder.emission import Attentional
from keras_attn.layers.decoder.emission import CellAlone
from keras_attn.layers.decoder.emission import Concatenated
from keras_attn.layers.decoder.hoisted import hoist
from keras_attn.layers.decoder.order import After
from keras_attn.layers.decoder.order import Before
from keras_attn.layers.decoder.order import Runner
from keras_attn.layers.decoder.query import Query
from keras_attn.layers.decoder.query import join
from keras_attn.layers.decoder.readers import Readers
from keras_attn.layers.decoder.recurrence import Recurrence
from keras_attn.layers.decoder.state import DecoderState
from keras_attn.layers.decoder.state import Source
from keras_attn.layers.decoder.unroll import CellFirst
from keras_attn.layers.decoder.unroll import OwnStep
from keras_attn.layers.decoder.unroll import StepByStep
from keras_attn.layers.decoder.unroll import sequence_layer
from keras_attn.placement import keeps


@keras.saving.register_keras_serializable("keras_attn")
class AttentionDecoder(keras.layers.Layer):
    """Decodes a target with an RNN cell that attends to a memory.

    The *state* below is the hidden state of the cell, or of the top cell in
    a stack. It is also the query. At every step, in the order `"pre"`
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
    input and the context. Here Luong's layer takes its place.

    In the order `"post"` without input feeding, the cell runs over the whole
    target first, and then the attention runs once for all target positions.
    This needs an attention that does not depend on previous steps: one that
    does not look at past alignments, with `attend="top"` and without
    `"context"` in the query. Keras's `GRUCell` and `LSTMCell` are then run by
    `keras.layers.GRU` and `LSTM`.

    Without attention, `AttentionDecoder(cell)(inputs, initial_state=state)`
    is the plain encoder-decoder (Sutskever et al., 2014): it emits the
    cell's output.

    Args:
        cell: A Keras RNN cell, such as `keras.layers.GRUCell(256)`, or a
            list of cells to stack, the bottom one first.
        attention: The `Attention` that reads the memory, or a list with an
            attention for each of several memories. Several contexts are
            concatenated.
        order: `"pre"` to attend before the cell runs, `"post"` to attend
            after it.
        input_feeding: Whether the last output is fed back to the cell. Only
            for the order `"post"`, where it defaults to `True`. In the order
            `"pre"` the context is fed to the cell instead.
        emit: `"attentional"` for `tanh(Wc [state; context])`, as wide as
            the state, or `"concatenated"` for `[state; context]`. If the
            cell's output is not its state, as in a `ResidualCell`, the
            output replaces the state here.
        query: The parts of the query, a string or a tuple of strings, which
            are concatenated: `"state"`; `"input"`, the step's input;
            `"context"`, the context of the last step; `"condition"`, the call
            argument.
        attend: In a stack, the cell whose state is the query: `"top"` or
            `"bottom"`. With `"bottom"` the context also enters all cells
            above (Wu et al., 2016).
        bridge: How to compute the cell's first states from `initial_state`.
            `None` takes the tensors as they are. `"dense"` computes each
            state with a tanh layer from the concatenation of all tensors. A
            Keras layer receives this concatenation and returns the states.
        self_attention: An `Attention` over the decoder's own past states.
            Its context is concatenated after that of the memory (Paulus et
            al., 2018).

    Call arguments:
        inputs: Embedded target shifted right by one, of shape
            `(batch, target, dim)`.
        memory: Memory to attend to, of shape `(batch, source, dim)`. With a
            list of attentions, a list of as many memories.
        initial_state: The cell's first states, each `(batch, width)`: one
            tensor, or a list if the cell has several, in the order of
            `cell.state_size`. Defaults to the cell's own first states,
            usually zeros.
        condition: Tensor of shape `(batch, dim)`, such as the embedding of
            the target language. Needed if and only if `query` contains
            `"condition"`.
        inputs_mask: Boolean tensor `(batch, target)`, True = real. At
            masked positions the output is zero and the state does not
            change. Keras fills in this mask and the next if the tensors
            carry masks.
        memory_mask: Boolean tensor `(batch, source)`, or a list of such
            masks. Masked positions get no weight.
        return_attention_scores: Whether to return the alignments too.
        return_samples: Whether to return the log-probability and entropy of
            drawn positions too: see `Attention`.
        training: Whether dropout and random draws apply.

    Output:
        Tensor of shape `(batch, target, output_dim)`. With
        `return_attention_scores=True`, also the alignments, of shape
        `(batch, target, source)`, or a list of such tensors. With
        `return_samples=True`, also log-probability and entropy, each
        `(batch, target)`, float32.

    Raises:
        ValueError: If arguments do not fit each other, or if the shapes or
            masks of a call do not.

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
                decoder_arguments.require_cell(one)
            cell = layers.StackedRNNCells(list(cell))
        decoder_arguments.require_cell(cell)
        decoder_arguments.require_one_of("order", order, ("pre", "post"))
        decoder_arguments.require_one_of(
            "emit", emit, ("attentional", "concatenated")
        )
        decoder_arguments.require_one_of("attend", attend, ("top", "bottom"))
        self._several = isinstance(attention, (list, tuple))
        attentions = decoder_arguments.attentions_of(attention)
        if self_attention is not None:
            decoder_arguments.require_growing(self_attention)
            decoder_arguments.require_context_alone(
                self_attention.regularizer, self_attention.alignment
            )
        decoder_arguments.require_names("query", query)
        query = (query,) if isinstance(query, str) else tuple(query)
        for name in query or [None]:
            decoder_arguments.require_one_of(
                "query", name, ("state", "input", "context", "condition")
            )
        attends = bool(attentions or self_attention)
        decoder_arguments.check_input_feeding(order, input_feeding)
        decoder_arguments.check_stack(attend, cell)
        if not attends:
            decoder_arguments.check_plain(order, emit, query, attend)
        self.cell = cell
        self.attentions = attentions
        self.order = order
        feeding = True if input_feeding is None else bool(input_feeding)
        self.input_feeding = order == "post" and feeding
        self.emit = emit
        self.query = query
        self.attend = attend
        self.self_attention = self_attention
        self.bridge = make_bridge(
            bridge, cells.state_sizes(cell), self.dtype_policy
        )
        self.supports_masking = True
        if attends and emit == "attentional":
            self.attentional = layers.Dense(
                cells.output_size(cell),
                activation="tanh",
                use_bias=False,
                dtype=self.dtype_policy,
                name="attentional",
            )
        self._made = _Made()
        # Keeps only the method: Keras would track the layer, whose weights are
        # already tracked as the cell's.
        self._run_sequence = None
        if not self._recurs and (layer := sequence_layer(cell)):
            self._run_sequence = layer.__call__
            self.supports_jit = layer.supports_jit

    @property
    def _recurs(self):
        """Whether attention must wait for the previous step."""
        return bool(self.attentions or self.self_attention) and (
            self.order == "pre"
            or self.input_feeding
            or self.attend == "bottom"
            or "context" in self.query
            or any(x.uses_history for x in self.attentions)
        )

    @property
    def _recurrence(self):
        """The decoder's step, made again only if a part was replaced."""
        parts = [
            self.cell,
            *self.attentions,
            self.self_attention,
            getattr(self, "attentional", None),
            self.compute_dtype,
            self.order,
            self.emit,
            self.query,
            self.attend,
            self.input_feeding,
        ]
        made = self._made
        if len(made.parts) != len(parts) or any(
            map(operator.is_not, made.parts, parts)
        ):
            made.parts, made.recurrence = parts, self._make_recurrence()
        return made.recurrence

    def _make_recurrence(self):
        stack, above = self.attend == "bottom", []
        bottom = self.cell
        if stack:
            bottom, *above = cells.stacked(self.cell)
        readers = Readers(
            self.attentions,
            self.self_attention,
            self._several,
            self.compute_dtype,
        )
        if self.order == "pre" and readers:
            order = Before(Runner(self.cell), joins=stack)
        else:
            count = len(cells.state_sizes(bottom))
            order = After(Runner(bottom), count, above)
        emission = CellAlone()
        if readers and self.emit == "concatenated":
            emission = Concatenated()
        elif readers:
            emission = Attentional(self.attentional)
        return Recurrence(
            order=order,
            query=Query(self.query),
            queried=cells.hidden_index(bottom),
            readers=readers,
            emission=emission,
            feeds=self.input_feeding,
        )

    def _unroll(self):
        """Returns the object that decodes a whole target."""
        dtype = self.compute_dtype
        if self._has_own_step:
            count = len(self.attentions)
            return OwnStep(self.step, count, self._several, dtype)
        if self._recurs:
            return StepByStep(self._recurrence, dtype)
        sequence = self._run_sequence
        return CellFirst(self.cell, sequence, self._recurrence, dtype)

    @property
    def attention(self):
        """The attention, or the list of them."""
        if self._several:
            return list(self.attentions)
        return self.attentions[0] if self.attentions else None

    @property
    def _has_own_step(self):
        return type(self).step is not AttentionDecoder.step

    @property
    def state_width(self):
        """Width of the hidden state that is the query."""
        return cells.state_sizes(self.cell)[self._recurrence.queried]

    def build(
        self,
        inputs_shape,
        memory_shape=None,
        initial_state_shape=None,
        condition_shape=None,
    ):
        readers = self._recurrence.readers
        memory_shapes = readers.one_for_each(memory_shape, "memory")
        decoder_arguments.check_shapes(inputs_shape, memory_shapes)
        if self.bridge is not None:
            if initial_state_shape is None:
                decoder_arguments.refuse_idle_bridge()
            width = sum(_last_sizes(initial_state_shape))
            if not self.bridge.built:
                self.bridge.build((inputs_shape[0], width))
        elif initial_state_shape is not None:
            sizes = cells.state_sizes(self.cell)
            decoder_arguments.check_initial_state(
                sizes, _last_sizes(initial_state_shape)
            )
        decoder_arguments.check_condition(self.query, condition_shape)
        batch, target, input_dim = inputs_shape
        context_dim = self._context_dim(memory_shapes)
        self._build_cell(batch, input_dim, context_dim)
        query_dim = self._recurrence.query.width(
            state=self.state_width,
            input=input_dim,
            context=context_dim,
            condition=condition_shape and condition_shape[-1],
        )
        readers.build(
            (batch, target, query_dim),
            memory_shapes,
            (batch, target, self.state_width),
        )
        output_dim = cells.output_size(self.cell)
        self._recurrence.emission.build(output_dim, context_dim)
        # `start()` needs these widths.
        self._widths = context_dim, self._output_dim(context_dim)

    def _build_cell(self, batch, input_dim, context_dim):
        if self.order == "pre":
            input_dim += context_dim
        elif self.input_feeding:
            input_dim += self._output_dim(context_dim)
        if self.attend == "top":
            if not getattr(self.cell, "built", True):
                self.cell.build((batch, input_dim))
            return
        for cell in cells.stacked(self.cell):
            if not getattr(cell, "built", True):
                cell.build((batch, input_dim))
            input_dim = cells.output_size(cell) + context_dim

    def _context_dim(self, memory_shapes):
        return self._recurrence.readers.width(
            [shape[-1] for shape in memory_shapes], self.state_width
        )

    def _output_dim(self, context_dim):
        return self._recurrence.emission.width(
            cells.output_size(self.cell), context_dim
        )

    def __call__(self, *args, **kwargs):
        decoder_arguments.check_call(self, args, kwargs)
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
        decoder_arguments.check_flags(self.attentions, *returned)
        decoder_arguments.check_condition(self.query, condition)
        if inputs_mask is None:
            # Keras does not fill it in if `inputs` is the only tensor.
            inputs_mask = get_keras_mask(inputs)
        source = self.prepare(memory, memory_mask, condition)
        batch, target = ops.shape(inputs)[0], ops.shape(inputs)[1]
        state = self.start(source, initial_state, 1, target, batch)
        readers = self._recurrence.readers
        draws = readers.draw(source.memories, batch, target, training)
        unroll = self._unroll()
        if self._has_own_step:
            drops = training and (any(draws) or cells.drops(self.cell))
            decoder_arguments.check_own_step(unroll, drops, return_samples)

        def first_step():
            first = keras.tree.map_structure(lambda x: x[:, :1], draws)
            self._recurrence.step(
                inputs[:, :1], state, source, first, training=True
            )

        with cells.dropout_drawn_before(self.cell, training and first_step):
            outputs, attended = unroll.run(
                inputs, state, source, draws, inputs_mask, training
            )
        readers.regularize(self, attended, source.memories, inputs_mask)
        results = [outputs]
        if return_attention_scores:
            alignments = [
                ops.cast(x.alignments, self.compute_dtype) for x in attended
            ]
            results.append(readers.one_or_all(alignments))
        if return_samples:
            results += readers.samples(attended)
        results = keras.tree.map_structure(
            lambda x: zero_where_masked(x, inputs_mask), results
        )
        return tuple(results) if len(results) > 1 else results[0]

    def prepare(self, memory=None, memory_mask=None, condition=None):
        """Returns the `Source`, computed once per source.

        Args:
            memory, memory_mask, condition: As in `call`.
        """
        memories = self._recurrence.readers.prepare(memory, memory_mask)
        if condition is None:
            return Source(memories)
        return Source(memories, ops.cast(condition, self.compute_dtype))

    def start(
        self, source, initial_state=None, beams=1, max_length=None, batch=None
    ):
        """Returns the state before the first step.

        Args:
            source: Result of `prepare()`.
            initial_state: As in `call`.
            beams: Number of hypotheses per source, all alike at the start.
            max_length: The largest number of steps. Needed with
                self-attention, which keeps the states of all steps.
            batch: Number of sources. Needed if there is neither a memory nor
                an initial state.

        Returns:
            A `DecoderState`.
        """
        dtype = self.compute_dtype
        if initial_state is None:
            if self.bridge is not None:
                decoder_arguments.refuse_idle_bridge()
            if source.memories:
                batch = ops.shape(source.memories[0].keys)[0]
            states = cells.initial_state(self.cell, batch, dtype)
        else:
            states = keras.tree.flatten(initial_state)
            if self.bridge is not None:
                states = self.bridge(join(states))
        states = keras.tree.flatten(states)
        sizes = cells.state_sizes(self.cell)
        decoder_arguments.check_initial_state(
            sizes, [x.shape[-1] for x in states]
        )
        cell = tuple(
            ops.repeat(ops.expand_dims(ops.cast(x, dtype), 1), beams, 1)
            for x in states
        )
        parts = self._recurrence
        histories, own_past = parts.readers.start(
            source.memories, cell[parts.queried], max_length
        )
        shape = ops.shape(cell[0])[0], beams
        context_dim, output_dim = self._widths
        fed = context = ()
        if self.input_feeding:
            fed = ops.zeros((*shape, output_dim), dtype=dtype)
        if "context" in self.query:
            context = ops.zeros((*shape, context_dim), dtype=dtype)
        return DecoderState(cell, histories, fed, context, own_past)

    def step(self, inputs, state, source, draws=(), training=False):
        """Decodes one step of each hypothesis.

        A subclass that overrides this method changes decoding and training
        alike: `call` then runs it step by step over the whole target.

        Args:
            inputs: Embedded last token of each hypothesis, of shape
                `(batch, beams, dim)`.
            state: Result of `start()`, or of the last step.
            source: Result of `prepare()`, with one row per source.
            draws: The attentions' random draws for this step, in training.
            training: Whether the model trains.

        Returns:
            The outputs `(batch, beams, output_dim)`, the alignments
            `(batch, beams, source)` in float32, and the new state. If the
            decoder was made with a list of attentions, the alignments are a
            list too. Without attention they are an empty list.
        """
        return self._recurrence.emitted_step(
            inputs, state, source, draws, training
        )

    def hoist(self, source, table=None):
        """Moves matrix products out of a loop of steps, if possible.

        Args:
            source: Result of `prepare()`.
            table: The inputs of each token, `(vocabulary, dim)`, or `None`
                if inputs depend on more than the token or the vocabulary is
                too large.

        Returns:
            A `Hoisted` with a recurrence that computes the same as `step()`,
            or `None` if no product can be hoisted.
        """
        if self._has_own_step or not keeps(self, "step"):
            return None
        return hoist(self._recurrence, self.cell, source, table)

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(
        self,
        inputs_shape,
        memory_shape=None,
        initial_state_shape=None,
        condition_shape=None,
    ):
        readers = self._recurrence.readers
        shapes = readers.one_for_each(memory_shape, "memory")
        output_dim = self._output_dim(self._context_dim(shapes))
        return (*inputs_shape[:2], output_dim)

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
        decoder_arguments.check_flags(self.attentions, *returned)
        readers = self._recurrence.readers
        memories = readers.one_for_each(memory, "memory")
        batch, target, _ = inputs.shape

        def spec(dtype, *shape):
            return keras.KerasTensor((batch, target, *shape), dtype=dtype)

        dtype = self.compute_dtype
        context_dim = self._context_dim([x.shape for x in memories])
        results = [spec(dtype, self._output_dim(context_dim))]
        if return_attention_scores:
            alignments = [spec(dtype, x.shape[1]) for x in memories]
            results.append(readers.one_or_all(alignments))
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


class _Made:
    """Caches a recurrence and its parts, out of Keras's tracking."""

    def __init__(self):
        self.parts: list = []
        self.recurrence: Recurrence | None = None


def _last_sizes(shapes):
    """Returns the last size of a shape, or of each shape in a nesting."""
    if not any(isinstance(shape, (list, tuple)) for shape in shapes):
        return [shapes[-1]]
    return [size for shape in shapes for size in _last_sizes(shape)]
