"""`AttentionDecoder`: an RNN cell that attends to a source at every step.

There is one step. Training unrolls it over the target; a search calls it
with several hypotheses a source. What does not depend on the step before is
not looped over but computed once for the whole target.
"""

from typing import NamedTuple

import keras
from keras import layers
from keras import ops

from keras_attn import cells
from keras_attn import loops
from keras_attn.attention import Attention


class DecoderState(NamedTuple):
    """What a decoder carries from one step to the next."""

    cell: tuple  # the cell's states, each (batch, beams, width)
    history: object  # the attention's `History`, or ()
    fed: object  # last output (batch, beams, dim) with input feeding, or ()


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
    depend on the steps before, unless it looks at past alignments, and runs
    once for the whole target.

    Args:
        cell: A Keras RNN cell, such as `keras.layers.GRUCell(256)`, or a
            list of them to stack, the bottom one first.
        attention: The `Attention` that reads the memory.
        order: `"pre"` or `"post"`, whether the decoder attends before or
            after the cell.
        input_feeding: Whether the last output is fed back to the cell, in
            the order `"post"`. Defaults to `True` there; the order `"pre"`
            feeds the context, so it must be left out.
        emit: `"attentional"` for `tanh(Wc [state; context])`, as wide as
            the state, or `"concatenated"` for `[state; context]`.

    Call arguments:
        inputs: Embedded target shifted right by one, of shape
            `(batch, target, dim)`.
        memory: What to attend to, of shape `(batch, source, dim)`.
        initial_state: The cell's first states, each `(batch, width)`: one
            tensor, or a list where the cell has several, in the order of
            `cell.state_size`. Defaults to the cell's own, mostly zeros.
        inputs_mask: Boolean tensor `(batch, target)`, True = real. At
            masked positions the output is zero and the state stays as it
            was. Keras fills it in, as the next one, whether or not an
            initial state is given.
        memory_mask: Boolean tensor `(batch, source)`. Masked positions get
            no weight.
        return_attention_scores: Whether to return the alignments too.
        training: Whether dropout applies.

    Output:
        Tensor of shape `(batch, target, output_dim)`. With
        `return_attention_scores=True`, also the alignments, of shape
        `(batch, target, source)`.

    References:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473)
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), equation 5
          and section 3.3

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
        attention,
        order="pre",
        input_feeding=None,
        emit="attentional",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if isinstance(cell, (list, tuple)):
            for one in cell:
                _require_cell(one)
            cell = layers.StackedRNNCells(list(cell))
        _require_cell(cell)
        if not isinstance(attention, Attention):
            raise ValueError(
                "`attention` must be a `keras_attn.Attention`. Received: "
                f"{attention!r}. Pass for example `BahdanauAttention(256)`."
            )
        _require_one_of("order", order, ("pre", "post"))
        _require_one_of("emit", emit, ("attentional", "concatenated"))
        if order == "pre" and input_feeding is not None:
            raise ValueError(
                'In the order "pre" the context enters the cell, so '
                "`input_feeding` would have no effect. Received: "
                f"input_feeding={input_feeding!r}. Leave it out, or decode "
                'with order="post".'
            )
        self.cell = cell
        self.attention = attention
        self.order = order
        feeding = True if input_feeding is None else bool(input_feeding)
        self.input_feeding = order == "post" and feeding
        self.emit = emit
        self.supports_masking = True
        self._hidden = cells.hidden_index(cell)
        if emit == "attentional":
            self.attentional = layers.Dense(
                self.state_width,
                activation="tanh",
                use_bias=False,
                dtype=self.dtype_policy,
                name="attentional",
            )

    @property
    def state_width(self):
        """Width of the hidden state of the (top) cell, which is the query."""
        return cells.state_sizes(self.cell)[self._hidden]

    def build(self, inputs_shape, memory_shape, initial_state_shape=None):
        shapes = {"inputs": inputs_shape, "memory": memory_shape}
        for name, shape in shapes.items():
            if len(shape) != 3:
                raise ValueError(
                    f"`{name}` must have three axes, (batch, length, dim). "
                    f"Received: {name}_shape={shape}."
                )
        if initial_state_shape is not None:
            self._check_initial_state(_widths(initial_state_shape))
        batch, target, input_dim = inputs_shape
        width, context_dim = self.state_width, memory_shape[-1]
        if self.order == "pre":
            input_dim += context_dim
        elif self.input_feeding:
            input_dim += self._output_dim(memory_shape)
        # A part that loading has built is locked and must not build again.
        if not getattr(self.cell, "built", True):
            self.cell.build((batch, input_dim))
        if not self.attention.built:
            self.attention.build((batch, target, width), memory_shape)
        if self.emit == "attentional" and not self.attentional.built:
            self.attentional.build((batch, target, width + context_dim))

    def call(
        self,
        inputs,
        memory,
        initial_state=None,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        memory = self.prepare(memory, memory_mask)
        state = self.start(memory, initial_state)
        kept = self.attention.draw_dropout(
            ops.shape(inputs)[0],
            ops.shape(inputs)[1],
            ops.shape(memory.values)[1],
            training,
        )
        if self.order == "pre" or self.input_feeding:
            unroll = self._unroll
        elif self.attention.uses_history:
            unroll = self._unroll
        else:
            unroll = self._unroll_cell_then_attend

        def first_step():
            self._step(inputs[:, :1], state, memory, training=True)

        with cells.dropout_drawn_before(self.cell, training and first_step):
            outputs, alignments = unroll(
                inputs, state, memory, kept, inputs_mask, training
            )
        if inputs_mask is not None:
            real = ops.expand_dims(inputs_mask, -1)
            outputs = ops.where(real, outputs, ops.zeros_like(outputs))
        if return_attention_scores:
            return outputs, ops.cast(alignments, self.compute_dtype)
        return outputs

    def prepare(self, memory, memory_mask=None):
        """Returns the attention's `Memory` of a source."""
        return self.attention.prepare(memory, value_mask=memory_mask)

    def start(self, memory, initial_state=None, beams=1):
        """Returns the state before the first step.

        Args:
            memory: What `prepare()` returned.
            initial_state: As in `call`.
            beams: Number of hypotheses a source, all alike at the start.
        """
        batch = ops.shape(memory.values)[0]
        if initial_state is None:
            initial_state = cells.initial_state(
                self.cell, batch, self.compute_dtype
            )
        else:
            self._check_initial_state(
                [x.shape[-1] for x in keras.tree.flatten(initial_state)]
            )
        cell = tuple(
            ops.repeat(
                ops.expand_dims(ops.cast(x, self.compute_dtype), 1), beams, 1
            )
            for x in keras.tree.flatten(initial_state)
        )
        fed = ()
        if self.input_feeding:
            width = self._output_dim(memory.values.shape)
            fed = ops.zeros((batch, beams, width), dtype=self.compute_dtype)
        return DecoderState(
            cell, self.attention.initial_history(memory, beams), fed
        )

    def step(self, inputs, state, memory):
        """Decodes one step of each hypothesis.

        Args:
            inputs: Embedded last token of each hypothesis, of shape
                `(batch, beams, dim)`.
            state: What `start()` or the last step returned.
            memory: What `prepare()` returned; it stands once per source.

        Returns:
            The outputs `(batch, beams, output_dim)`, the alignments
            `(batch, beams, source)` in float32, and the new state.
        """
        outputs, alignments, state = self._step(inputs, state, memory)
        if not self.input_feeding:
            outputs = self._emit(*outputs)
        return outputs, alignments, state

    def _step(self, inputs, state, memory, kept=None, training=False):
        """A step up to what is emitted.

        With input feeding the output belongs to the recurrence; without, it
        is left as `(state, context)`, for `_emit` to take all steps at once.
        """
        if self.order == "pre":
            context, alignments, history = self._attend(
                state.cell[self._hidden], memory, state.history, kept
            )
            inputs = ops.concatenate([inputs, context], axis=-1)
            cell = cells.run(self.cell, inputs, state.cell, training)
        else:
            if self.input_feeding:
                inputs = ops.concatenate([inputs, state.fed], axis=-1)
            cell = cells.run(self.cell, inputs, state.cell, training)
            context, alignments, history = self._attend(
                cell[self._hidden], memory, state.history, kept
            )
        hidden = cell[self._hidden]
        if self.input_feeding:
            outputs = fed = self._emit(hidden, context)
        else:
            outputs, fed = (hidden, context), ()
        return outputs, alignments, DecoderState(cell, history, fed)

    def _attend(self, query, memory, history, kept):
        context, *others = self.attention.step(query, memory, history, kept)
        # The attention may have a dtype policy of its own.
        return ops.cast(context, self.compute_dtype), *others

    def _emit(self, hidden, context):
        both = ops.concatenate([hidden, context], axis=-1)
        if self.emit == "concatenated":
            return both
        # As rows: XLA cannot compile a 3-D product's gradient in a loop.
        outputs = self.attentional(ops.reshape(both, (-1, both.shape[-1])))
        return ops.reshape(outputs, (-1, ops.shape(both)[1], outputs.shape[-1]))

    def _unroll(self, inputs, state, memory, kept, mask, training):
        """Steps through the target; emits for all steps at once if it can."""
        over_time = {"inputs": inputs}
        if kept is not None:
            over_time["kept"] = kept

        def step(over_time, state):
            # (batch, dim) -> (batch, one beam, dim)
            over_time = {k: ops.expand_dims(x, 1) for k, x in over_time.items()}
            outputs, alignments, state = self._step(
                over_time["inputs"],
                state,
                memory,
                over_time.get("kept"),
                training,
            )
            outputs = keras.tree.map_structure(
                lambda x: ops.squeeze(x, 1), (outputs, alignments)
            )
            return outputs, state

        dtype = self.compute_dtype
        outputs, alignments = loops.unroll(
            step,
            over_time,
            state,
            output_dtypes=(
                dtype if self.input_feeding else (dtype, dtype),
                "float32",
            ),
            mask=mask,
        )
        if not self.input_feeding:
            outputs = self._emit(*outputs)
        return outputs, alignments

    def _unroll_cell_then_attend(
        self, inputs, state, memory, kept, mask, training
    ):
        """Steps through the cell alone; then target positions are beams."""

        def step(inputs, cell):
            cell = cells.run(
                self.cell, ops.expand_dims(inputs, 1), cell, training
            )
            return ops.squeeze(cell[self._hidden], 1), cell

        hidden = loops.unroll(
            step, inputs, state.cell, self.compute_dtype, mask=mask
        )
        context, alignments, _ = self._attend(hidden, memory, (), kept)
        return self._emit(hidden, context), alignments

    def _check_initial_state(self, widths):
        sizes = cells.state_sizes(self.cell)
        if widths != sizes:
            raise ValueError(
                f"The cell has {len(sizes)} state(s) of width {sizes} and"
                f" `initial_state` must bring as "
                f"many, in this order. Received widths: {widths}. A "
                "`Dense` layer makes a state of another width fit; `[h, c]` "
                "starts an LSTM."
            )

    def _output_dim(self, memory_shape):
        if self.emit == "attentional":
            return self.state_width
        return self.state_width + memory_shape[-1]

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(
        self, inputs_shape, memory_shape, initial_state_shape=None
    ):
        return (*inputs_shape[:2], self._output_dim(memory_shape))

    def compute_output_spec(
        self,
        inputs,
        memory,
        initial_state=None,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        outputs = keras.KerasTensor(
            self.compute_output_shape(inputs.shape, memory.shape),
            dtype=self.compute_dtype,
        )
        if not return_attention_scores:
            return outputs
        return outputs, keras.KerasTensor(
            (*inputs.shape[:2], memory.shape[1]), dtype=self.compute_dtype
        )

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        feeding = self.input_feeding if self.order == "post" else None
        return {
            **super().get_config(),
            "cell": serialize(self.cell),
            "attention": serialize(self.attention),
            "order": self.order,
            "input_feeding": feeding,
            "emit": self.emit,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        for part in ("cell", "attention"):
            if isinstance(config[part], dict):
                config[part] = keras.saving.deserialize_keras_object(
                    config[part]
                )
        return cls(**config)


def _widths(shapes):
    """The last dimensions of a shape, or of any nesting of shapes."""
    if not any(isinstance(shape, (list, tuple)) for shape in shapes):
        return [shapes[-1]]
    return [width for shape in shapes for width in _widths(shape)]


def _require_cell(cell):
    fits = callable(cell) and hasattr(cell, "state_size")
    if not fits or isinstance(cell, layers.RNN):
        raise ValueError(
            "`cell` must be a Keras RNN cell, with `call` and `state_size`, "
            f"or a list of such cells. Received: {cell!r}. Pass for example "
            "`keras.layers.GRUCell(256)`; layers such as `keras.layers.GRU` "
            "run over time by themselves and do not fit."
        )


def _require_one_of(name, value, choices):
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, choices))}. "
            f"Received: {name}={value!r}"
        )
