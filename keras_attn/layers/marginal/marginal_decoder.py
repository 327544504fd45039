"""`MarginalDecoder`: hard attention, summed exactly over all alignments.

Each token is emitted at one position of the source. Which one is not known,
so the probability of a text is a sum over all sequences of positions. The
forward algorithm of hidden Markov models computes this sum step by step: it
carries the probability of each position, given the tokens so far. The next
token's distribution follows from it, so the model is trained and searched
like any other that returns logits.
"""

from typing import NamedTuple

import keras
from keras import ops

from keras_attn import arguments
from keras_attn.backend import zero_where_masked
from keras_attn.keras_internals import get_keras_mask
from keras_attn.layers import loops
from keras_attn.layers.attention import Memory
from keras_attn.layers.decoder import AttentionDecoder
from keras_attn.layers.decoder import DecoderState
from keras_attn.layers.decoder import Source
from keras_attn.layers.marginal import marginal_arguments
from keras_attn.layers.marginal.emission import Emission
from keras_attn.layers.marginal.transitions import NEVER
from keras_attn.layers.marginal.transitions import FirstOrder
from keras_attn.layers.marginal.transitions import ZerothOrder


class Forward(NamedTuple):
    """The forward algorithm between two steps, `(batch, beams, ...)`."""

    # log p(position | tokens so far), minus the logsumexp of the position's
    # logits: (batch, beams, source), float32 or wider.
    alpha: object
    query: object  # (batch, beams, units), the emission's, of the last step


class MarginalState(NamedTuple):
    """The state that a `MarginalDecoder` carries from step to step."""

    cell: DecoderState
    forward: Forward


class Asked(NamedTuple):
    """The input of the forward algorithm, for any number of steps."""

    query: object  # the emission's, (batch, steps, units)
    columns: object  # of `O`, for the last tokens, (batch, steps, units)
    moves: object  # the transition's, (batch, steps, any)


@keras.saving.register_keras_serializable("keras_attn")
class MarginalDecoder(keras.layers.Layer):
    """Decodes a target by hard attention, summed over all alignments.

    Each token `y_t` is emitted at one position `a_t` of the memory. `h_t` is
    the cell's output, which depends only on the tokens before `y_t`, and `m_s`
    is the memory at position `s`:

    1. The emission at `s` is `e_t(s, .) = log_softmax(O tanh(W [h_t; m_s]))`.
    2. The transition `A_t(s' | s)` is a log-probability. With `order=0` it is
       `log_softmax_s'(h_t K m_s')`, which depends on `s` only if it is
       monotonic. With `order=1` it is a log-softmax over the offsets
       `s' - s`, of `U [h_t; m_s]`.
    3. `alpha'_t(s') = logsumexp_s(alpha_{t-1}(s) + A_t(s' | s))` is the
       log-probability of each position given the tokens so far.
    4. `log p(y | y_<t, x) = logsumexp_s(alpha'_t(s) + e_t(s, y))` for every
       token `y`. These are the outputs.
    5. `alpha_t = alpha'_t + e_t(., y_t)`, minus its logsumexp. This is
       computed in the next step, whose input is `y_t`.

    `W` and `O` have biases. Before the first step all probability is on the
    first real position: `order=1`, and a monotonic `order=0`, start there.

    The outputs are log-probabilities, so no `Dense` follows. They can be
    used as logits: `SequenceCrossentropy` is then the exact
    `-log p(y | x)`, without sampling or a bound.

    A step computes `(batch, source, vocabulary)` numbers. They are not kept,
    but computed again for the gradient. So the layer is for vocabularies of
    characters, phonemes or a few thousand subwords.

    Args:
        cell: A Keras RNN cell, such as `keras.layers.GRUCell(256)`, or a
            list of cells to stack, the bottom one first.
        vocabulary: Number of target tokens.
        order: Number of previous positions that the next one depends on, `0`
            or `1`.
        monotonic: Whether an alignment never goes back. Positions before the
            last are then excluded, and the others renormalized.
        window: The largest offset in either direction. Only for `order=1`,
            where it defaults to 5: 11 offsets, or 6 if monotonic. Offsets to
            padding are excluded, and the others renormalized.
        units: Width of the tanh layer. Defaults to the sum of the widths of
            the cell's output and the memory.
        bridge: How to compute the cell's first states from `initial_state`,
            as in `AttentionDecoder`.

    Call arguments:
        inputs: Embedded target shifted right by one, of shape
            `(batch, target, dim)`.
        memory: Memory to attend to, of shape `(batch, source, dim)`.
        ids: The ids that `inputs` embeds, integers of shape `(batch,
            target)`. At each step the decoder sees only those up to that
            step.
        initial_state: The cell's first states, as in `AttentionDecoder`.
        inputs_mask: Boolean tensor `(batch, target)`, True = real. At masked
            positions the output is zero and the state does not change. Keras
            fills in this mask and the next.
        memory_mask: Boolean tensor `(batch, source)`. No alignment goes to
            masked positions. A source without any real position counts as
            one vector of zeros.
        return_attention_scores: Whether to return the alignments too.
        training: Whether the cell's dropout applies.

    Output:
        Log-probabilities of the next token, in nats, of shape `(batch,
        target, vocabulary)`, in float32 or wider. With
        `return_attention_scores=True`, also the probability of each position
        given the tokens so far, `p(a_t | y_<t)`, of shape `(batch, target,
        source)`, in the compute dtype.

    Raises:
        ValueError: If an argument is out of range, if a call lacks `inputs`,
            `memory` or `ids`, or if their shapes do not fit.

    References:
        - [Wu et al., 2018](https://arxiv.org/abs/1808.10024), sections 2 and
          3, for `order=0`
        - [Wu and Cotterell, 2019](https://arxiv.org/abs/1905.06319), section
          3, for monotonic alignments and `order=1`

    Example:
        >>> source = keras.Input((None, 4))
        >>> target = keras.Input((None,), dtype="int32")
        >>> decoder = keras_attn.MarginalDecoder(
        ...     keras.layers.GRUCell(8), vocabulary=10, order=1)
        >>> logits = decoder(
        ...     keras.layers.Embedding(10, 8)(target), source, target)
        >>> model = keras.Model([source, target], logits)
        >>> found = model([np.ones((2, 5, 4)), np.array([[1, 4], [1, 7]])])
        >>> found.shape, float(np.sum(np.exp(found[0, 0]))).__round__(4)
        (TensorShape([2, 2, 10]), 1.0)
    """

    def __init__(
        self,
        cell,
        vocabulary,
        order=0,
        monotonic=False,
        window=None,
        units=None,
        bridge=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary = arguments.positive(vocabulary, "vocabulary")
        self.order = marginal_arguments.check_order(order)
        self.monotonic = marginal_arguments.check_monotonic(monotonic)
        self.window = marginal_arguments.check_window(window, order)
        if units is not None:
            arguments.positive(units, "units")
        self.units = units
        part = {"dtype": self.dtype_policy}
        self.decoder = AttentionDecoder(
            cell, bridge=bridge, name="decoder", **part
        )
        self.emission = Emission(units, vocabulary, name="emission", **part)
        if order == 0:
            self.transition = ZerothOrder(monotonic, name="transition", **part)
        else:
            self.transition = FirstOrder(
                self.window, monotonic, name="transition", **part
            )
        self.supports_masking = True

    @property
    def cell(self):
        """The RNN cell."""
        return self.decoder.cell

    @property
    def log_dtype(self):
        """Dtype of log-probabilities: float32, or a wider compute dtype."""
        return keras.backend.result_type(self.compute_dtype, "float32")

    def build(
        self,
        inputs_shape,
        memory_shape,
        ids_shape=None,
        initial_state_shape=None,
    ):
        if not self.decoder.built:
            self.decoder.build(
                inputs_shape, initial_state_shape=initial_state_shape
            )
        hidden_shape = self.decoder.compute_output_shape(inputs_shape)
        for part in (self.emission, self.transition):
            if not part.built:
                part.build(hidden_shape, memory_shape)

    def __call__(self, *args, **kwargs):
        marginal_arguments.check_call(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    def call(
        self,
        inputs,
        memory,
        ids,
        initial_state=None,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        if inputs_mask is None:
            inputs_mask = get_keras_mask(inputs)
        hidden = self.decoder(
            inputs,
            initial_state=initial_state,
            inputs_mask=inputs_mask,
            training=training,
        )
        source = self.prepare(memory, memory_mask)
        first = self._before_all(source, ops.shape(inputs)[0], 1)
        asked = self._ask(hidden, ids, source)

        def step(asked, state):
            # (batch, ...) -> (batch, one beam, ...)
            asked = Asked(*(ops.expand_dims(x, 1) for x in asked))
            *outputs, state = self._advance(asked, state, source)
            return tuple(ops.squeeze(x, 1) for x in outputs), state

        dtypes = self.log_dtype, self.log_dtype
        logits, alignments = loops.unroll(
            step, asked, first, dtypes, inputs_mask
        )
        logits = zero_where_masked(logits, inputs_mask)
        if not return_attention_scores:
            return logits
        alignments = ops.cast(alignments, self.compute_dtype)
        return logits, zero_where_masked(alignments, inputs_mask)

    def prepare(self, memory, memory_mask=None):
        """Returns the `Memory` that steps read, computed once per source.

        Args:
            memory: Tensor of shape `(batch, source, dim)`.
            memory_mask: Boolean tensor `(batch, source)`, or `None`.
        """
        memory = ops.cast(memory, self.compute_dtype)
        memory = zero_where_masked(memory, memory_mask)
        return Memory(
            self.emission.keys(memory),
            self.transition.project(memory, _possible(memory_mask)),
            memory_mask,
        )

    def start(self, source, initial_state=None, beams=1):
        """Returns the state before the first step.

        Args:
            source: Result of `prepare()`.
            initial_state: As in `call`.
            beams: Number of hypotheses per source, all alike at the start.
        """
        batch = ops.shape(source.keys)[0]
        cell = self.decoder.start(Source(()), initial_state, beams, batch=batch)
        return MarginalState(cell, self._before_all(source, batch, beams))

    def step(self, inputs, ids, state, source):
        """Decodes one step of each hypothesis.

        Args:
            inputs: Embedded last token of each hypothesis, of shape
                `(batch, beams, dim)`.
            ids: The last tokens, integers `(batch, beams)`.
            state: Result of `start()`, or of the last step.
            source: Result of `prepare()`, with one row per source.

        Returns:
            The log-probabilities of the next token `(batch, beams,
            vocabulary)`, the alignments `(batch, beams, source)`, both in
            float32 or wider, and the new state.
        """
        hidden, _, cell = self.decoder.step(inputs, state.cell, Source(()))
        asked = self._ask(hidden, ids, source)
        logits, alignments, forward = self._advance(
            asked, state.forward, source
        )
        return logits, alignments, MarginalState(cell, forward)

    def _before_all(self, source, batch, beams):
        """Returns the state of the forward algorithm before the first step.

        All probability is on the first real position. So the first input, the
        start token, which was not emitted at any position, changes nothing.
        """
        mask = _possible(source.mask)
        if mask is None:
            mask = ops.ones((1, ops.shape(source.keys)[1]), dtype="bool")
        first = mask & (ops.cumsum(ops.cast(mask, "int32"), axis=1) == 1)
        alpha = ops.where(
            ops.expand_dims(first, 1),
            ops.zeros((batch, beams, 1), dtype=self.log_dtype),
            NEVER,
        )
        width = self.emission.width
        query = ops.zeros((batch, beams, width), dtype=self.compute_dtype)
        return Forward(alpha, query)

    def _ask(self, hidden, ids, source):
        """Computes all that does not depend on the last alignment.

        It does so for any number of steps at once.

        Args:
            hidden: The cell's outputs, `(batch, steps, dim)`.
            ids: The ids of the last tokens, `(batch, steps)`.
            source: Result of `prepare()`.
        """
        return Asked(
            self.emission.query(hidden),
            self.emission.columns(ids),
            self.transition.ask(hidden, source.values),
        )

    def _advance(self, asked, state, source):
        """Takes a step of the forward algorithm."""
        mask = _possible(source.mask)
        last = self.emission.spoken(state.query, source.keys, asked.columns)
        alpha = state.alpha + last
        if mask is not None:
            alpha = ops.where(ops.expand_dims(mask, 1), alpha, NEVER)
        alpha = self.transition.move(
            ops.log_softmax(alpha), asked.moves, source.values, mask
        )
        logits, norms = self.emission.mixture(alpha, asked.query, source.keys)
        alignments = ops.exp(alpha)
        if source.mask is not None:
            real = ops.expand_dims(source.mask, 1)
            alignments = ops.where(real, alignments, 0.0)
        return logits, alignments, Forward(alpha - norms, asked.query)

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(
        self,
        inputs_shape,
        memory_shape=None,
        ids_shape=None,
        initial_state_shape=None,
    ):
        return (*inputs_shape[:2], self.vocabulary)

    def compute_output_spec(
        self,
        inputs,
        memory,
        ids,
        initial_state=None,
        inputs_mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        sizes = inputs.shape[:2]
        logits = keras.KerasTensor((*sizes, self.vocabulary), self.log_dtype)
        if not return_attention_scores:
            return logits
        return logits, keras.KerasTensor(
            (*sizes, memory.shape[1]), self.compute_dtype
        )

    def get_config(self):
        def serialize(x):
            return keras.tree.map_structure(
                keras.saving.serialize_keras_object, x
            )

        return {
            **super().get_config(),
            "cell": serialize(self.cell),
            "vocabulary": self.vocabulary,
            "order": self.order,
            "monotonic": self.monotonic,
            "window": self.window,
            "units": self.units,
            "bridge": serialize(self.decoder.bridge),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        for part in ("cell", "bridge"):
            if isinstance(config.get(part), dict):
                config[part] = keras.saving.deserialize_keras_object(
                    config[part]
                )
        return cls(**config)


def _possible(mask):
    """Returns the mask of possible positions: the first if none is real."""
    if mask is None:
        return None
    mask = ops.cast(mask, "bool")
    empty = ops.logical_not(ops.any(mask, axis=1, keepdims=True))
    position = ops.arange(ops.shape(mask)[1], dtype="int32")
    return mask | (empty & (position == 0))
