"""`Attention(score, alignment)`: what every mechanism has in common.

Project the keys once, score, align, sum. The memory of a source and the
history of past alignments are arguments and results, never attributes, so
the same layer serves training, decoding step by step, and beam search.
"""

from typing import NamedTuple

import keras
from keras import ops
from keras.src.backend import AutocastScope

from keras_attn import loops
from keras_attn.alignments import Alignment
from keras_attn.alignments import SoftmaxAlignment
from keras_attn.scores import Score


class Memory(NamedTuple):
    """What a source offers to attention, prepared once per source."""

    keys: object  # (batch, source, dim), as the score projected them
    values: object  # (batch, source, value_dim)
    mask: object = None  # (batch, source), True = real; None = all real


class History(NamedTuple):
    """What an attention remembers of its past steps, one row a query."""

    previous: object  # (batch, beams, source), float32, the last alignments
    total: object  # (batch, beams, source), float32, their sum so far
    step: object  # (batch, beams), int32, the number of steps taken


@keras.saving.register_keras_serializable("keras_attn")
class Attention(keras.layers.Layer):
    """Attention by any score and any alignment.

    The calculation follows the steps:

    1. Carry the keys into the score's space, once per source:
       `(batch, source, dim)`.
    2. Score every query against every key: `(batch, target, source)`.
    3. Align: turn each query's scores into weights over the source. Padding
       gets none.
    4. Sum the values by those weights into a context for each query:
       `(batch, target, value_dim)`.

    `call()` attends for a whole target at once. To attend one step at a
    time, as a decoder does, `prepare()` the memory once and then `step()`.

    Args:
        score: A `Score`, how well a query matches each key.
        alignment: An `Alignment`, how scores become weights. Defaults to
            `SoftmaxAlignment()`.
        dropout: Share of the weights to drop in training, between 0 and 1.
        seed: Integer that seeds the dropout, or `None`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        value: Tensor of shape `(batch, source, value_dim)`.
        key: Tensor of shape `(batch, source, key_dim)`. Defaults to `value`.
        query_mask: Boolean tensor of shape `(batch, target)`, True = real.
            Contexts of masked queries are zero. Keras fills it in from
            `Embedding(mask_zero=True)` and the like, as the other masks.
        value_mask: Boolean tensor of shape `(batch, source)`. Masked
            positions get no weight.
        key_mask: Boolean tensor of shape `(batch, source)`, combined with
            `value_mask`.
        return_attention_scores: Whether to return the weights too.
        use_causal_mask: Whether query `t` may only look at positions up to
            `t`, as in a decoder's self-attention.
        training: Whether dropout applies.

    Output:
        The contexts, of shape `(batch, target, value_dim)`. With
        `return_attention_scores=True`, also the weights before dropout, of
        shape `(batch, target, source)`. A query that may look nowhere has
        zero weights and a zero context.

    Example:

    >>> attention = keras_attn.Attention(keras_attn.GeneralScore())
    >>> context, weights = attention(
    ...     np.ones((2, 3, 4)), np.ones((2, 5, 6)),
    ...     return_attention_scores=True)
    >>> context.shape, weights.shape
    (TensorShape([2, 3, 6]), TensorShape([2, 3, 5]))
    """

    def __init__(self, score, alignment=None, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        alignment = SoftmaxAlignment() if alignment is None else alignment
        self.score = _instance(score, Score, "score", "GeneralScore()")
        self.alignment = _instance(
            alignment, Alignment, "alignment", "SoftmaxAlignment()"
        )
        if not 0 <= dropout < 1:
            raise ValueError(
                "`dropout` is the share of weights to drop, at least 0 and "
                f"below 1. Received: dropout={dropout!r}"
            )
        self.dropout = dropout
        self.seed = seed
        if dropout:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True

    @property
    def uses_history(self):
        """Whether the score or the alignment looks at past alignments."""
        return self.score.uses_history or self.alignment.uses_history

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        shapes = {"query": query_shape, "value": value_shape, "key": key_shape}
        for name, shape in shapes.items():
            if len(shape) != 3:
                raise ValueError(
                    f"`{name}` must have three axes, (batch, length, dim). "
                    f"Received: {name}_shape={shape}. A single vector per "
                    "row becomes a sequence of one by "
                    "`keras.ops.expand_dims(x, 1)`."
                )
        # A part that loading has built is locked and must not build again.
        if not self.score.built:
            self.score.build(query_shape, key_shape)
        if not self.alignment.built:
            self.alignment.build((*query_shape[:2], key_shape[1]))

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        return_attention_scores=False,
        use_causal_mask=False,
        training=None,
    ):
        memory = self.prepare(value, key, value_mask, key_mask)
        target, source = ops.shape(query)[1], ops.shape(value)[1]
        mask = _expand_mask(memory.mask)
        if use_causal_mask:
            causal = _causal_mask(target, source)
            mask = causal if mask is None else ops.logical_and(mask, causal)
        kept = self.draw_dropout(ops.shape(query)[0], target, source, training)
        attend = self._attend_in_turn if self.uses_history else self._attend
        context, alignments = attend(query, memory, mask, kept, query_mask)
        if return_attention_scores:
            return context, ops.cast(alignments, self.compute_dtype)
        return context

    def prepare(self, value, key=None, value_mask=None, key_mask=None):
        """Returns the `Memory` of a source: what does not depend on a query.

        Args:
            value: Tensor of shape `(batch, source, value_dim)`.
            key: Tensor of shape `(batch, source, key_dim)`, or `None` for
                `value`.
            value_mask: Boolean tensor of shape `(batch, source)`, or `None`.
            key_mask: Likewise, combined with `value_mask`.
        """
        if value_mask is not None and key_mask is not None:
            value_mask = ops.logical_and(value_mask, key_mask)
        # The score's weights in the precision that its `call` sees, also
        # where no layer's `call` is on the way here, as in decoding.
        dtype = self.score.compute_dtype
        with AutocastScope(dtype):
            key = ops.cast(value if key is None else key, dtype)
            keys = self.score.project(key)
        return Memory(
            keys=ops.cast(keys, self.compute_dtype),
            values=ops.cast(value, self.compute_dtype),
            mask=key_mask if value_mask is None else value_mask,
        )

    def initial_history(self, memory, beams=1):
        """Returns the history before the first step.

        Args:
            memory: What `prepare()` returned.
            beams: Number of queries a source, each with its own history.

        Returns:
            A `History` of zeros, or `()` when no part looks back.
        """
        if not self.uses_history:
            return ()
        batch, source = ops.shape(memory.keys)[0], ops.shape(memory.keys)[1]
        nothing = ops.zeros((batch, beams, source), dtype="float32")
        return History(nothing, nothing, ops.zeros((batch, beams), "int32"))

    def step(self, query, memory, history=(), kept=None):
        """Attends once for each of several queries a source.

        Args:
            query: Tensor of shape `(batch, beams, query_dim)`. Beams are
                queries: the memory of a source stands once.
            memory: What `prepare()` returned.
            history: What `initial_history()` or the last step returned.
            kept: What `draw_dropout()` returned for this step, or `None`.

        Returns:
            The contexts `(batch, beams, value_dim)`, the alignments
            `(batch, beams, source)` in float32, and the new history.
        """
        return self._step(
            query, memory, _expand_mask(memory.mask), history, kept
        )

    def draw_dropout(self, batch, target, source, training):
        """Draws the factors that drop weights, for all steps of a batch.

        They are drawn outside the loop over time: randomness inside one
        does not work on every backend.

        Returns:
            Tensor `(batch, target, source)`, each zero or `1 / (1 -
            dropout)`, or `None` when nothing is dropped.
        """
        if not (training and self.dropout):
            return None
        ones = ops.ones((batch, target, source), dtype=self.compute_dtype)
        return keras.random.dropout(
            ones, self.dropout, seed=self.seed_generator
        )

    def _step(self, query, memory, mask, history, kept):
        scores = self.score(
            query, memory.keys, **_history_for(self.score, history)
        )
        alignments = self.alignment(
            scores, allowed=mask, **_history_for(self.alignment, history)
        )
        alignments = ops.cast(alignments, "float32")
        weights = ops.cast(alignments, self.compute_dtype)
        if kept is not None:
            weights = weights * kept
        context = ops.matmul(weights, memory.values)
        return context, alignments, _remember(history, alignments)

    def _attend(self, query, memory, mask, kept, query_mask):
        context, alignments, _ = self._step(query, memory, mask, (), kept)
        return _zero_where_masked(context, query_mask), alignments

    def _attend_in_turn(self, query, memory, mask, kept, query_mask):
        """Attends for one target position after another."""
        batch, target = ops.shape(query)[0], ops.shape(query)[1]
        inputs = {"query": query}
        if mask is not None:
            source = ops.shape(memory.keys)[1]
            inputs["mask"] = ops.broadcast_to(mask, (batch, target, source))
        if kept is not None:
            inputs["kept"] = kept

        def step(inputs, history):
            # (batch, dim) -> (batch, one query, dim)
            inputs = {k: ops.expand_dims(x, 1) for k, x in inputs.items()}
            context, alignments, history = self._step(
                inputs["query"],
                memory,
                inputs.get("mask"),
                history,
                inputs.get("kept"),
            )
            outputs = ops.squeeze(context, 1), ops.squeeze(alignments, 1)
            return outputs, history

        context, alignments = loops.unroll(
            step,
            inputs,
            self.initial_history(memory),
            output_dtypes=(self.compute_dtype, "float32"),
            mask=query_mask,
        )
        return _zero_where_masked(context, query_mask), alignments

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        return_attention_scores=False,
        use_causal_mask=False,
        training=None,
    ):
        context = keras.KerasTensor(
            self.compute_output_shape(query.shape, value.shape),
            dtype=self.compute_dtype,
        )
        if not return_attention_scores:
            return context
        return context, keras.KerasTensor(
            (*query.shape[:-1], value.shape[1]), dtype=self.compute_dtype
        )

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "score": serialize(self.score),
            "alignment": serialize(self.alignment),
            "dropout": self.dropout,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        for part in ("score", "alignment"):
            if isinstance(config.get(part), dict):
                config[part] = keras.saving.deserialize_keras_object(
                    config[part]
                )
        return cls(**config)


def _instance(value, kind, name, example):
    if not isinstance(value, kind):
        raise ValueError(
            f"`{name}` must be a `{kind.__name__}` instance. Received: "
            f"{name}={value!r}. Pass for example `{name}={example}`."
        )
    return value


def _expand_mask(mask):
    """(batch, source) -> (batch, any target, source)."""
    return None if mask is None else ops.expand_dims(mask, 1)


def _causal_mask(target, source):
    """True where the column is not past the row: `(1, target, source)`."""
    rows = ops.expand_dims(ops.arange(target), 1)
    return ops.expand_dims(rows >= ops.arange(source), 0)


def _zero_where_masked(context, query_mask):
    if query_mask is None:
        return context
    return ops.where(
        ops.expand_dims(query_mask, -1), context, ops.zeros_like(context)
    )


def _history_for(part, history):
    """Only the parts that look back take the argument."""
    return {"history": history} if part.uses_history else {}


def _remember(history, alignments):
    if not isinstance(history, History):
        return ()
    return History(alignments, history.total + alignments, history.step + 1)
