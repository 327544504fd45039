"""`Attention(score, alignment)`: the layer that all mechanisms share.

It projects the keys once, scores them for each query, aligns, and sums the
values. The memory of a source and the history of past alignments are arguments
and results, never attributes. So the same layer serves training, decoding step
by step, and beam search.
"""

import keras
from keras import layers
from keras import ops

from keras_attn import arguments
from keras_attn.backend import finite
from keras_attn.backend import zero_where_masked
from keras_attn.keras_internals import AutocastScope
from keras_attn.layers import loops
from keras_attn.layers.alignments import Alignment
from keras_attn.layers.alignments import Sample
from keras_attn.layers.alignments import SoftmaxAlignment
from keras_attn.layers.attention import attention_arguments
from keras_attn.layers.attention import fused
from keras_attn.layers.attention import masks
from keras_attn.layers.attention import rows
from keras_attn.layers.attention import score_trial
from keras_attn.layers.attention.heads import Heads
from keras_attn.layers.attention.heads import OneHead
from keras_attn.layers.attention.heads import SeveralHeads
from keras_attn.layers.attention.heads import apply_to_rows
from keras_attn.layers.attention.heads import map_tensors
from keras_attn.layers.attention.memory import Attended
from keras_attn.layers.attention.memory import ByHead
from keras_attn.layers.attention.memory import History
from keras_attn.layers.attention.memory import Memory
from keras_attn.layers.attention.windows import Everywhere
from keras_attn.layers.attention.windows import Windows
from keras_attn.layers.scores import Score
from keras_attn.placement import is_placed
from keras_attn.placement import keeps


@keras.saving.register_keras_serializable("keras_attn")
class Attention(keras.layers.Layer):
    """Attention by any score and any alignment.

    It computes:

    1. Project the keys for the score, once per source:
       `(batch, source, dim)`.
    2. Score every query against every key: `(batch, target, source)`. An
       alignment with a window chooses the window first. Then only the keys
       in the window are scored.
    3. Align: turn each query's scores into weights over the source. Padding
       gets no weight.
    4. Sum the values by those weights into a context for each query:
       `(batch, target, value_dim)`.

    `call()` processes the queries of a whole target at once. If the score or
    the alignment looks at past alignments, it processes one target position
    after another. To attend one step at a time, as a decoder does, call
    `prepare()` once for the memory and then `step()` for each query.

    In `call()`, a query, source or mask may have a batch of 1. It then serves
    all rows of the others.

    With several heads, query, key and value are projected for each head. The
    score and the alignment have one set of weights for all heads and see each
    head as a row of the batch. One more projection joins the contexts.

    Args:
        score: A `Score`, which says how well a query matches each key.
        alignment: An `Alignment`, which turns scores into weights. Defaults
            to `SoftmaxAlignment()`.
        num_heads: Number of heads.
        head_dim: Width of a head's queries, keys and values, with several
            heads. Defaults to `query_dim / num_heads`.
        value_dim: Width of the context, made by a learned projection.
            Defaults to the width of the values; with one head the values are
            then not projected.
        gate: Whether the context is scaled by a learned `sigmoid(w · query +
            b)` (Xu et al., 2015, section 4.2.1).
        regularizer: Penalty on the alignments of a whole target, added to
            the model's loss: `DoublyStochastic(...)`, `CoverageLoss(...)` or
            any function of `(alignments, query_mask, value_mask)`.
        dropout: Share of the weights to drop in training, at least 0 and
            below 1.
        seed: Integer that seeds the dropout, or `None`. Needs a `dropout`
            above 0.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        value: Tensor of shape `(batch, source, value_dim)`.
        key: Tensor of shape `(batch, source, key_dim)`. Defaults to `value`.
        query_mask: Boolean tensor of shape `(batch, target)`, True = real.
            Keras fills in all three masks if the inputs carry them, as those
            of `Embedding(mask_zero=True)` do.
        value_mask: Boolean tensor of shape `(batch, source)`. Masked
            positions get no weight.
        key_mask: Boolean tensor of shape `(batch, source)`, combined with
            `value_mask`.
        return_attention_scores: Whether to return the weights too. `"heads"`
            returns the weights of each head.
        return_samples: Whether to return the log-probability and entropy of
            the drawn positions too. Needs an alignment that draws positions,
            such as `ReinforceAlignment`.
        use_causal_mask: Whether query `t` may only look at positions up to
            `t`, as in a decoder's self-attention.
        training: Whether dropout and random draws apply.

    Output:
        The contexts, of shape `(batch, target, value_dim)`. With
        `return_attention_scores=True`, also the weights before dropout: the
        mean of the heads, of shape `(batch, target, source)`. With `"heads"`
        the weights of each head, of shape `(batch, heads, target, source)`.
        With `return_samples=True`, also the log-probability and the entropy,
        each `(batch, target)`, float32. All are zero for masked queries. A
        query that may look nowhere has zero weights and a zero context.

    Raises:
        ValueError: If an argument is out of range, or if the shapes or masks
            of a call do not fit each other.

    Example:
        >>> attention = keras_attn.Attention(keras_attn.GeneralScore())
        >>> context, weights = attention(
        ...     np.ones((2, 3, 4)), np.ones((2, 5, 6)),
        ...     return_attention_scores=True)
        >>> context.shape, weights.shape
        (TensorShape([2, 3, 6]), TensorShape([2, 3, 5]))
    """

    heads = arguments.Former("num_heads")

    def __init__(
        self,
        score,
        alignment=None,
        num_heads=1,
        head_dim=None,
        value_dim=None,
        gate=False,
        regularizer=None,
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        arguments.refuse_old_names(kwargs, heads="num_heads")
        super().__init__(**kwargs)
        alignment = SoftmaxAlignment() if alignment is None else alignment
        self.score = attention_arguments.require_instance(
            score, Score, "score", "GeneralScore()"
        )
        self.alignment = attention_arguments.require_instance(
            alignment, Alignment, "alignment", "SoftmaxAlignment()"
        )
        attention_arguments.check_parts(self.score, self.alignment)
        attention_arguments.check_heads(num_heads, head_dim, value_dim)
        attention_arguments.check_dropout(dropout, seed)
        attention_arguments.check_regularizer(regularizer)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.value_dim = value_dim
        self.gate = gate
        self.regularizer = regularizer
        self.dropout = dropout
        self.seed = seed
        if dropout:
            # Not the seed itself: an alignment with the same seed would draw
            # the same numbers, so dropout would depend on what it drew.
            own = None if seed is None else seed ^ 0x5EED
            self.seed_generator = keras.random.SeedGenerator(own)
        self.projections = self.value_projection = self.context_gate = None
        self.supports_masking = True

    @property
    def uses_history(self):
        """Whether the score or the alignment looks at past alignments."""
        return self.score.takes("history") or self.alignment.takes("history")

    @property
    def looks_back(self):
        """Whether a step needs past alignments or the step's number."""
        return self.uses_history or self._uses_position

    @property
    def source_may_grow(self):
        """Whether the source may get longer from step to step."""
        return not (self.looks_back or self.score.by_position)

    @property
    def parts_named(self):
        """The class names of score and alignment, for errors."""
        return (
            f"{type(self.score).__name__} and {type(self.alignment).__name__}"
        )

    @property
    def sums_values(self):
        """Whether a context is the plain weighted sum of memory values."""
        own = type(self).attend_step is not Attention.attend_step
        changed = self.projections or self.context_gate
        return not (own or changed) and keeps(self, "attend_step")

    @property
    def _uses_position(self):
        windowed = self.alignment.window_width is not None
        parts = self.score, self.alignment
        return windowed or any(part.takes("position") for part in parts)

    def context_dim(self, value_dim):
        """Returns the width of the context for values of this width."""
        return self.value_dim or value_dim

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        attention_arguments.check_shapes(
            query=query_shape, value=value_shape, key=key_shape
        )
        context_dim = self.context_dim(value_shape[-1])
        if self.num_heads > 1:
            width = self.head_dim or attention_arguments.width_of_a_head(
                query_shape[-1], self.num_heads
            )
            self.projections = Heads(
                self.num_heads, width, context_dim, dtype=self.dtype_policy
            )
            self.projections.build(query_shape, value_shape, key_shape)
        elif self.value_dim is not None:
            self.value_projection = layers.Dense(
                self.value_dim,
                use_bias=False,
                dtype=self.dtype_policy,
                name="value",
            )
            self.value_projection.build(value_shape)
        if self.gate:
            self.context_gate = layers.Dense(
                1, activation="sigmoid", dtype=self.dtype_policy, name="gate"
            )
            self.context_gate.build(query_shape)
        if self.projections:
            query_shape = (*query_shape[:2], self.projections.width)
            key_shape = (*key_shape[:2], self.projections.width)
        # Loading builds and locks a part, which must not be built again.
        if not self.score.built:
            self.score.build(query_shape, key_shape)
        if not self.alignment.built:
            scores_shape = (*query_shape[:2], key_shape[1])
            self.alignment.build(scores_shape, query_shape)
        score_trial.try_score(self.score, query_shape, key_shape)

    def __call__(self, *args, **kwargs):
        attention_arguments.check_call(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        return_attention_scores=False,
        return_samples=False,
        use_causal_mask=False,
        training=None,
    ):
        returned = return_attention_scores, return_samples
        attention_arguments.check_flags(self.alignment, *returned)
        query, value, key, query_mask, value_mask, key_mask = (
            self._of_one_batch(
                None if x is None else ops.convert_to_tensor(x)
                for x in (query, value, key, query_mask, value_mask, key_mask)
            )
        )
        memory = self.prepare(value, key, value_mask, key_mask)
        batch, target = ops.shape(query)[0], ops.shape(query)[1]
        source = ops.shape(value)[1]
        allowed = masks.for_each_query(memory.mask)
        if use_causal_mask:
            causal = masks.causal(batch, target, source)
            allowed = causal if allowed is None else allowed & causal
        if not any(returned) and self._can_fuse(memory, training):
            context = self._attend_fused(query, memory, allowed)
            return zero_where_masked(context, query_mask)
        attended = self.attend(
            query,
            memory,
            self.draw(batch, target, source, training),
            query_mask,
            allowed,
            training,
        )
        self.regularize(self, attended.alignments, query_mask, memory.mask)
        return self._returned(attended, query_mask, *returned)

    def prepare(self, value, key=None, value_mask=None, key_mask=None):
        """Returns the `Memory` of a source, the same for all queries.

        Args:
            value: Tensor of shape `(batch, source, value_dim)`.
            key: Tensor of shape `(batch, source, key_dim)`, or `None` for
                `value`.
            value_mask: Boolean tensor of shape `(batch, source)`, or `None`.
            key_mask: Boolean tensor of shape `(batch, source)`, or `None`,
                combined with `value_mask`.
        """
        if value_mask is not None and key_mask is not None:
            value_mask = ops.logical_and(value_mask, key_mask)
        key = value if key is None else key
        key, value = self._heads.split_source(key, value)
        # Keras casts weights only inside a layer's `call`. Decoding calls this
        # method directly, so the score's weights are cast here.
        dtype = self.score.compute_dtype
        with AutocastScope(dtype):
            keys = self.score.project(ops.cast(key, dtype))
        keys = self._heads.stored(keys, value)
        return Memory(
            keys=ops.cast(keys, self.compute_dtype),
            values=ops.cast(value, self.compute_dtype),
            mask=key_mask if value_mask is None else value_mask,
        )

    def initial_history(self, memory, beams=1):
        """Returns the history before the first step.

        Args:
            memory: Result of `prepare()`.
            beams: Number of queries per source, each with its own history.

        Returns:
            A `History` of zeros, or `()` when no part looks back.
        """
        if not self.looks_back:
            return ()
        batch, source = ops.shape(memory.keys)[0], ops.shape(memory.keys)[-2]
        step = ops.zeros((batch, beams), dtype="int32")
        if not self.uses_history:
            return History((), (), step)
        nothing = ops.zeros((batch, beams, source), dtype="float32")
        keys = self._heads.rows(memory.keys)
        carried = self._heads.unfold(self.score.initial_carry(keys, beams))
        by_head = ()
        if self.num_heads > 1 and self.alignment.takes("history"):
            shape = (batch, beams, self.num_heads, source)
            nowhere = ops.zeros(shape, dtype="float32")
            by_head = ByHead(nowhere, nowhere)
        return History(nothing, nothing, step, carried, by_head)

    def step(self, query, memory, history=()):
        """Attends once for each of one or more queries per source.

        Args:
            query: Tensor of shape `(batch, beams, query_dim)`. Each beam is
                a query, so the beams of a source share one memory.
            memory: Result of `prepare()`.
            history: Result of `initial_history()`, or of the last step.

        Returns:
            The contexts `(batch, beams, value_dim)`, the alignments
            `(batch, beams, source)` in float32 (the mean of the heads), and
            the new history.
        """
        attended, history = self.attend_step(query, memory, history)
        return attended.context, attended.alignments, history

    def attend_step(
        self,
        query,
        memory,
        history=(),
        draws=(),
        allowed=None,
        training=False,
        position=None,
    ):
        """Attends like `step()`, with the arguments that training needs.

        Args:
            query, memory, history: As in `step()`. If no part looks at past
                alignments, the queries may be those of a whole target.
            draws: Result of `draw()` for these queries.
            allowed: Boolean tensor that broadcasts to `(batch, beams,
                source)`, or `None` for the memory's own mask.
            training: Whether the model trains.
            position: int32 tensor `(batch, beams)`, the number of each query
                in its sequence. Defaults to the step of the history.

        Returns:
            An `Attended`, with the axis `beams` instead of `target`, and the
            new history.
        """
        heads, remembers = self._heads, isinstance(history, History)
        if allowed is None:
            allowed = masks.for_each_query(memory.mask)
        if position is None and remembers:
            position = history.step
        compared = heads.split_query(query)
        keys, values = heads.rows(memory.keys), heads.rows(memory.values)
        shared = self._shared(history) if remembers else history
        known = {
            "history": shared,
            "position": heads.repeat(position),
            "training": bool(training),
        }
        view = self._view(compared, memory.mask, keys, known["position"])
        pair = view.compare(compared, keys)
        scores = self.score(*pair, **self.score.named(known))
        attention_arguments.check_scores(self.score, scores, *pair)
        scores = view.scores(scores)
        known |= {
            "query": compared,
            "history": self._own(history, shared) if remembers else history,
            "draws": heads.fold(draws.get("alignment", ()) if draws else ()),
            "window": view.window,
        }
        aligned = self.alignment(
            finite(scores),
            allowed=view.allowed(heads.repeat(allowed)),
            **self.alignment.named(known),
        )
        drawn = isinstance(aligned, Sample)
        weights = ops.cast(aligned.weights if drawn else aligned, "float32")
        attention_arguments.check_weights(self.alignment, weights, scores)
        kept = heads.fold(draws.get("kept") if draws else None)
        context = heads.join(view.sum(weights, values, kept))
        if self.context_gate:
            context = context * apply_to_rows(self.context_gate, query)
        weights = view.spread(weights)
        evidence = heads.total(aligned[1:]) if drawn else ((), ())
        attended = Attended(context, *heads.pool(weights), *evidence)
        if not remembers:
            return attended, ()
        if not self.uses_history:
            return attended, history._replace(step=history.step + 1)
        carried = self.score.carry(shared.carried, compared, keys, weights)
        return attended, history.after(attended, heads.unfold(carried))

    def attend(
        self,
        query,
        memory,
        draws=(),
        query_mask=None,
        allowed=None,
        training=False,
    ):
        """Attends with the queries of a whole target.

        Args:
            query: Tensor of shape `(batch, target, query_dim)`.
            memory: Result of `prepare()`.
            draws: Result of `draw()`.
            query_mask: Boolean tensor of shape `(batch, target)`, or `None`.
            allowed: Boolean tensor that broadcasts to `(batch, target,
                source)`, or `None` for the memory's own mask.
            training: Whether the model trains.

        Returns:
            An `Attended`.
        """
        if self.uses_history:
            return self._attend_in_turn(
                query, memory, draws, query_mask, allowed, training
            )
        position = None
        if self._uses_position:
            position = masks.positions(query, query_mask)
        attended, _ = self.attend_step(
            query, memory, (), draws, allowed, training, position
        )
        return attended

    def _of_one_batch(self, tensors):
        """Repeats what has one row for the rows of the others.

        A source or mask of one row is repeated only if several heads or a
        history need it: a large memory need not be projected for each row.
        """
        query, *source_and_masks = tensors
        batch = rows.common_batch(query, *source_and_masks)
        query = rows.repeat_row(query, batch)
        if self.num_heads == 1 and not self.uses_history:
            return query, *source_and_masks
        return query, *(rows.repeat_row(x, batch) for x in source_and_masks)

    def _attend_in_turn(
        self, query, memory, draws, query_mask, allowed, training
    ):
        """Attends with the query of one target position after another."""
        batch, target = ops.shape(query)[0], ops.shape(query)[1]
        inputs = {"query": query, "draws": draws}
        if allowed is not None:
            source = ops.shape(memory.keys)[-2]
            shape = (batch, target, source)
            inputs["allowed"] = ops.broadcast_to(allowed, shape)

        def step(inputs, history):
            # (batch, ...) -> (batch, one query, ...)
            inputs = map_tensors(lambda x: ops.expand_dims(x, 1), inputs)
            attended, history = self.attend_step(
                inputs["query"],
                memory,
                history,
                inputs["draws"],
                inputs.get("allowed"),
                training,
            )
            return map_tensors(lambda x: ops.squeeze(x, 1), attended), history

        return loops.unroll(
            step,
            inputs,
            self.initial_history(memory),
            output_dtypes=self.attended_dtypes(),
            mask=query_mask,
        )

    @property
    def _heads(self):
        if self.projections is None:
            return OneHead(self.value_projection)
        return SeveralHeads(self.projections)

    def _view(self, query, mask, keys, position):
        """Returns the positions that each query looks at."""
        width = self.alignment.window_width
        if width is None:
            return Everywhere()
        source = ops.shape(keys)[1]
        begin, length = masks.extent(mask, ops.shape(query)[0], source)
        if mask is not None:
            begin, length = self._heads.repeat((begin, length))
        window = self.alignment.choose(query, position, begin, length)
        score_all = self.score.takes("history") or self.score.takes("position")
        return Windows(window, width, source, score_all)

    def _shared(self, history):
        """Returns the history for the score, the same for all heads."""
        previous, total, step, carried, _ = history
        return History(
            *self._heads.repeat((previous, total, step)),
            self._heads.fold(carried),
        )

    def _own(self, history, shared):
        """Returns the shared history with each head's own alignments."""
        if not history.by_head:
            return shared
        previous, total = self._heads.fold(history.by_head)
        return shared._replace(previous=previous, total=total)

    def _can_fuse(self, memory, training):
        return (
            fused.can_fuse(self.score, self.alignment)
            and self._attends_as_written
            and not (training and self.dropout)
            and self.regularizer is None
            and memory.keys.shape[-1] == memory.values.shape[-1]
        )

    @property
    def _attends_as_written(self):
        """Whether neither a subclass nor an instance replaces a method."""
        return all(
            getattr(type(self), name) is getattr(Attention, name)
            and (keeps(self, name) or is_placed(getattr(self, name)))
            for name in ("attend", "attend_step")
        )

    def _attend_fused(self, query, memory, allowed):
        """Returns only the contexts, from the backend's fused kernel."""
        heads = self._heads
        context = fused.attend(
            ops.cast(heads.fused_query(query), self.compute_dtype),
            heads.fused_source(memory.keys),
            heads.fused_source(memory.values),
            allowed,
        )
        context = heads.fused_join(context)
        if self.context_gate:
            context = context * apply_to_rows(self.context_gate, query)
        return context

    def _returned(
        self, attended, query_mask, return_attention_scores, return_samples
    ):
        """Returns the context, or a tuple of it and the results asked for."""
        outputs = [attended.context]
        if return_attention_scores:
            weights = attended.alignments  # (batch, target, source)
            if return_attention_scores == "heads":
                weights = attended.by_head  # (batch, target, heads, source)
                if self.num_heads == 1:
                    weights = ops.expand_dims(attended.alignments, 2)
            outputs.append(ops.cast(weights, self.compute_dtype))
        if return_samples:
            outputs += [attended.log_probability, attended.entropy]
        outputs = [zero_where_masked(x, query_mask) for x in outputs]
        if return_attention_scores == "heads":
            outputs[1] = ops.swapaxes(outputs[1], 1, 2)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def draw(self, batch, target, source, training):
        """Draws all random numbers, for all steps of a batch.

        They are drawn before the loop over time, because not every backend
        can draw inside a loop.

        Returns:
            A structure of tensors `(batch, target, ...)`, which single steps
            slice along the target; `()` when nothing is random.
        """
        if not training:
            return ()
        heads = (self.num_heads,) if self.num_heads > 1 else ()
        shape = (batch, target, *heads, source)
        draws = {}
        if self.dropout:
            # Factors, each zero or 1 / (1 - dropout).
            draws["kept"] = keras.random.dropout(
                ops.ones(shape, dtype=self.compute_dtype),
                self.dropout,
                seed=self.seed_generator,
            )
        if self.alignment.takes("draws"):
            draws["alignment"] = self.alignment.draw(shape)
        return draws or ()

    def regularize(self, layer, alignments, query_mask, value_mask):
        """Adds the regularizer's penalty on alignments to a layer's losses."""
        if self.regularizer is not None:
            layer.add_loss(self.regularizer(alignments, query_mask, value_mask))

    def attended_dtypes(self):
        """Returns an `Attended` with dtype names, which a loop needs."""
        by_head = "float32" if self.num_heads > 1 else ()
        evidence = "float32" if self.alignment.samples else ()
        return Attended(
            self.compute_dtype, "float32", by_head, evidence, evidence
        )

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        batch = rows.common_size(query_shape, value_shape, key_shape)
        return (batch, query_shape[1], self.context_dim(value_shape[-1]))

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        return_attention_scores=False,
        return_samples=False,
        use_causal_mask=False,
        training=None,
    ):
        returned = return_attention_scores, return_samples
        attention_arguments.check_flags(self.alignment, *returned)
        given = query, value, key, query_mask, value_mask, key_mask
        batch = rows.common_size(*map(arguments.shape_of, given))
        target = query.shape[1]
        shape = (batch, target, self.context_dim(value.shape[-1]))
        outputs = [keras.KerasTensor(shape, dtype=self.compute_dtype)]
        if return_attention_scores:
            by_head = return_attention_scores == "heads"
            heads = (self.num_heads,) if by_head else ()
            shape = (batch, *heads, target, value.shape[1])
            outputs.append(keras.KerasTensor(shape, dtype=self.compute_dtype))
        if return_samples:
            # Two objects, because Keras identifies outputs by `id`.
            outputs += [
                keras.KerasTensor((batch, target), dtype="float32")
                for _ in range(2)
            ]
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "score": serialize(self.score),
            "alignment": serialize(self.alignment),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "value_dim": self.value_dim,
            "gate": self.gate,
            "regularizer": serialize(self.regularizer),
            "dropout": self.dropout,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config):
        config = arguments.with_new_names(cls, config, heads="num_heads")
        if not config.get("dropout"):
            config.pop("seed", None)  # version 0.1 allowed an unused seed
        for part in ("score", "alignment", "regularizer"):
            if isinstance(config.get(part), dict):
                config[part] = keras.saving.deserialize_keras_object(
                    config[part]
                )
        return cls(**config)
