"""`Attention(score, alignment)`: what every mechanism has in common.

Project the keys once, score, align, sum. The memory of a source and the
history of past alignments are arguments and results, never attributes, so
the same layer serves training, decoding step by step, and beam search.
"""

import keras
from keras import layers
from keras import ops
from keras.src.backend import AutocastScope

from keras_attn import loops
from keras_attn.alignments import Alignment
from keras_attn.alignments import MonotonicAlignment
from keras_attn.alignments import Sample
from keras_attn.alignments import SoftmaxAlignment
from keras_attn.attention.heads import Heads
from keras_attn.attention.heads import apply_to_rows
from keras_attn.attention.heads import fold
from keras_attn.attention.heads import join_axes
from keras_attn.attention.heads import unfold
from keras_attn.attention.memory import Attended
from keras_attn.attention.memory import History
from keras_attn.attention.memory import Memory
from keras_attn.attention.windows import Windows
from keras_attn.backend import has_fused_attention
from keras_attn.backend import zero_where_masked
from keras_attn.scores import ScaledDotScore
from keras_attn.scores import Score


@keras.saving.register_keras_serializable("keras_attn")
class Attention(keras.layers.Layer):
    """Attention by any score and any alignment.

    The calculation follows the steps:

    1. Carry the keys into the score's space, once per source:
       `(batch, source, dim)`.
    2. Score every query against every key: `(batch, target, source)`. An
       alignment with a window chooses it first; then only the keys in there
       are scored.
    3. Align: turn each query's scores into weights over the source. Padding
       gets none.
    4. Sum the values by those weights into a context for each query:
       `(batch, target, value_dim)`.

    `call()` attends for a whole target at once, unless the score or the
    alignment looks at past alignments: then for one position after another.
    To attend one step at a time, as a decoder does, `prepare()` the memory
    once and then `step()`.

    With several heads, query, key and value are projected for each; the
    score and the alignment, with one set of weights, see a head as a row of
    the batch; and the contexts are joined by one more projection.

    Args:
        score: A `Score`, how well a query matches each key.
        alignment: An `Alignment`, how scores become weights. Defaults to
            `SoftmaxAlignment()`.
        heads: Number of heads.
        head_dim: Width of a head's queries, keys and values, with several
            heads. Defaults to `query_dim / heads`.
        value_dim: Width of the context, by a learned projection. Defaults to
            that of the values, which with one head are not projected then.
        gate: Whether the context is scaled by a learned `sigmoid(w · query +
            b)` (Xu et al., 2015, section 4.2.1).
        regularizer: What the alignments of a whole target cost, added to the
            model's loss: `DoublyStochastic(...)`, `CoverageLoss(...)` or any
            function of `(alignments, query_mask, value_mask)`.
        dropout: Share of the weights to drop in training, between 0 and 1.
        seed: Integer that seeds the dropout, or `None`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        value: Tensor of shape `(batch, source, value_dim)`.
        key: Tensor of shape `(batch, source, key_dim)`. Defaults to `value`.
        query_mask: Boolean tensor of shape `(batch, target)`, True = real.
            Keras fills it in from `Embedding(mask_zero=True)` and the like,
            as the other masks.
        value_mask: Boolean tensor of shape `(batch, source)`. Masked
            positions get no weight.
        key_mask: Boolean tensor of shape `(batch, source)`, combined with
            `value_mask`.
        return_attention_scores: Whether to return the weights too; with
            `"heads"` those of each head.
        return_samples: Whether to return the log-probability and entropy of
            the drawn positions too, from an alignment that draws them, such
            as `ReinforceAlignment`.
        use_causal_mask: Whether query `t` may only look at positions up to
            `t`, as in a decoder's self-attention.
        training: Whether dropout and random draws apply.

    Output:
        The contexts, of shape `(batch, target, value_dim)`. With
        `return_attention_scores=True`, also the weights before dropout, of
        shape `(batch, target, source)`, the mean of the heads, or with
        `"heads"` of shape `(batch, heads, target, source)`. With
        `return_samples=True`, also the log-probability and the entropy,
        each `(batch, target)`, float32. All are zero for masked queries. A
        query that may look nowhere has zero weights and a zero context.

    Example:

    >>> attention = keras_attn.Attention(keras_attn.GeneralScore())
    >>> context, weights = attention(
    ...     np.ones((2, 3, 4)), np.ones((2, 5, 6)),
    ...     return_attention_scores=True)
    >>> context.shape, weights.shape
    (TensorShape([2, 3, 6]), TensorShape([2, 3, 5]))
    """

    def __init__(
        self,
        score,
        alignment=None,
        heads=1,
        head_dim=None,
        value_dim=None,
        gate=False,
        regularizer=None,
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        alignment = SoftmaxAlignment() if alignment is None else alignment
        self.score = _instance(score, Score, "score", "GeneralScore()")
        self.alignment = _instance(
            alignment, Alignment, "alignment", "SoftmaxAlignment()"
        )
        for name, size in {
            "heads": heads,
            "head_dim": head_dim,
            "value_dim": value_dim,
        }.items():
            _require_size(name, size)
        if heads == 1 and head_dim is not None:
            raise ValueError(
                "With one head nothing is split, so `head_dim` would have no "
                f"effect. Received: heads=1, head_dim={head_dim!r}. Pass "
                "`heads=8` as well, or leave it out."
            )
        if heads > 1 and isinstance(self.alignment, MonotonicAlignment):
            raise ValueError(
                "A monotonic walk stands at one position, and of several "
                "heads only the mean is remembered. Received: "
                f"heads={heads} with MonotonicAlignment. Pass a list of "
                "attentions with one head each to the decoder."
            )
        if not 0 <= dropout < 1:
            raise ValueError(
                "`dropout` is the share of weights to drop, at least 0 and "
                f"below 1. Received: dropout={dropout!r}"
            )
        if regularizer is not None and not callable(regularizer):
            raise ValueError(
                "`regularizer` must be a function of the alignments and "
                "their masks. Received: "
                f"regularizer={regularizer!r}. Pass for example "
                "`keras_attn.CoverageLoss(1.0)`."
            )
        self.heads = heads
        self.head_dim = head_dim
        self.value_dim = value_dim
        self.gate = gate
        self.regularizer = regularizer
        self.dropout = dropout
        self.seed = seed
        if dropout:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.projections = self.value_projection = self.context_gate = None
        self.supports_masking = True

    @property
    def uses_history(self):
        """Whether the score or the alignment looks at past alignments."""
        return self.score.takes("history") or self.alignment.takes("history")

    @property
    def looks_back(self):
        """Whether a step needs to know of those before, or their number."""
        return self.uses_history or self._uses_position

    @property
    def _uses_position(self):
        windowed = self.alignment.window_width is not None
        parts = self.score, self.alignment
        return windowed or any(part.takes("position") for part in parts)

    def context_dim(self, value_dim):
        """Width of the context of values of this width."""
        return self.value_dim or value_dim

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
        context_dim = self.context_dim(value_shape[-1])
        if self.heads > 1:
            width = self.head_dim or _share(query_shape[-1], self.heads)
            self.projections = Heads(
                self.heads, width, context_dim, dtype=self.dtype_policy
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
        # A part that loading has built is locked and must not build again.
        if not self.score.built:
            self.score.build(query_shape, key_shape)
        if not self.alignment.built:
            scores_shape = (*query_shape[:2], key_shape[1])
            self.alignment.build(scores_shape, query_shape)

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
        self._check_flags(return_attention_scores, return_samples)
        memory = self.prepare(value, key, value_mask, key_mask)
        batch, target = ops.shape(query)[0], ops.shape(query)[1]
        source = ops.shape(value)[1]
        allowed = _expand_mask(memory.mask)
        if use_causal_mask:
            causal = _causal_mask(batch, target, source)
            allowed = causal if allowed is None else allowed & causal
        if not (return_attention_scores or return_samples) and self._can_fuse(
            memory, training
        ):
            context = self._fused(query, memory, allowed)
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
        outputs = [attended.context]
        if return_attention_scores == "heads" and self.heads > 1:
            outputs.append(attended.by_head)
        elif return_attention_scores:
            outputs.append(attended.alignments)
        if return_samples:
            outputs += [attended.log_probability, attended.entropy]
        outputs = [zero_where_masked(x, query_mask) for x in outputs]
        if return_attention_scores:
            outputs[1] = ops.cast(outputs[1], self.compute_dtype)
            if return_attention_scores == "heads":
                outputs[1] = (
                    ops.swapaxes(outputs[1], 1, 2)
                    if self.heads > 1
                    else ops.expand_dims(outputs[1], 1)
                )
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

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
        key = value if key is None else key
        split = None
        if self.projections:
            key = self.projections.split_source(self.projections.key, key)
            value = self.projections.split_source(self.projections.value, value)
            split, key = ops.shape(key), join_axes(key)
        elif self.value_projection:
            value = apply_to_rows(self.value_projection, value)
        # The score's weights in the precision that its `call` sees, also
        # where no layer's `call` is on the way here, as in decoding.
        dtype = self.score.compute_dtype
        with AutocastScope(dtype):
            keys = self.score.project(ops.cast(key, dtype))
        if split:
            keys = ops.reshape(keys, (*split[:3], keys.shape[-1]))
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
        if not self.looks_back:
            return ()
        batch, source = ops.shape(memory.keys)[0], ops.shape(memory.keys)[-2]
        step = ops.zeros((batch, beams), dtype="int32")
        if not self.uses_history:
            return History((), (), step)
        nothing = ops.zeros((batch, beams, source), dtype="float32")
        keys = join_axes(memory.keys) if self.projections else memory.keys
        carried = self.score.initial_carry(keys, beams)
        if self.projections:
            carried = keras.tree.map_structure(
                lambda x: unfold(x, self.heads), carried
            )
        return History(nothing, nothing, step, carried)

    def step(self, query, memory, history=()):
        """Attends once for each of several queries a source.

        Args:
            query: Tensor of shape `(batch, beams, query_dim)`. Beams are
                queries: the memory of a source stands once.
            memory: What `prepare()` returned.
            history: What `initial_history()` or the last step returned.

        Returns:
            The contexts `(batch, beams, value_dim)`, the alignments
            `(batch, beams, source)` in float32, and the new history.
        """
        attended, history = self.attend_step(query, memory, history)
        return attended.context, attended.alignments, history

    def attend_step(
        self, query, memory, history=(), draws=(), allowed=None, training=False
    ):
        """As `step()`, with all that training needs.

        Args:
            query, memory, history: As in `step()`.
            draws: What `draw()` returned for this step.
            allowed: Boolean tensor that broadcasts to `(batch, beams,
                source)`, or `None` for the memory's own mask.
            training: Whether the model trains.

        Returns:
            `Attended` with `beams` for `target`, and the new history.
        """
        if allowed is None:
            allowed = _expand_mask(memory.mask)
        position = history.step if isinstance(history, History) else None
        return self._attend(
            query, memory, allowed, history, position, draws, training
        )

    def attend(
        self,
        query,
        memory,
        draws=(),
        query_mask=None,
        allowed=None,
        training=False,
    ):
        """Attends for a whole target.

        Args:
            query: Tensor of shape `(batch, target, query_dim)`.
            memory: What `prepare()` returned.
            draws: What `draw()` returned.
            query_mask: Boolean tensor of shape `(batch, target)`, or `None`.
            allowed: Boolean tensor that broadcasts to `(batch, target,
                source)`, or `None` for the memory's own mask.
            training: Whether the model trains.

        Returns:
            `Attended`.
        """
        if allowed is None:
            allowed = _expand_mask(memory.mask)
        if self.uses_history:
            return self._attend_in_turn(
                query, memory, draws, query_mask, allowed, training
            )
        position = None
        if self._uses_position:
            position = _positions(query, query_mask)
        attended, _ = self._attend(
            query, memory, allowed, (), position, draws, training
        )
        return attended

    def draw(self, batch, target, source, training):
        """Draws all that is random, for all steps of a batch.

        It is drawn outside the loop over time: randomness inside one does
        not work on every backend.

        Returns:
            A structure of tensors `(batch, target, ...)`, to be cut along
            the target for single steps; `()` when nothing is random.
        """
        if not training:
            return ()
        heads = (self.heads,) if self.heads > 1 else ()
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
        """Adds to a layer's losses what these alignments cost."""
        if self.regularizer is not None:
            layer.add_loss(self.regularizer(alignments, query_mask, value_mask))

    def _attend(
        self, query, memory, allowed, history, position, draws, training
    ):
        """Attends for any number of queries at once.

        What score and alignment see has a row for each head: `B` below is
        the batch times the heads.
        """
        kept = draws["kept"] if "kept" in draws else None
        draws = draws["alignment"] if "alignment" in draws else ()
        head_query, keys, values = query, memory.keys, memory.values
        head_history = history
        if self.projections:
            head_query = self.projections.split_query(query)
            keys, values = join_axes(keys), join_axes(values)
            allowed, position = self._repeat((allowed, position))
            kept, draws = _map(fold, (kept, draws))
            if isinstance(history, History):
                carried = _map(fold, history.carried)
                head_history = History(*self._repeat(history[:3]), carried)
        given = {
            "query": head_query,
            "history": head_history,
            "position": position,
            "training": bool(training),
        }
        if self.alignment.window_width is None:
            scores = self._call_part(self.score, given, head_query, keys)
            aligned = self._call_part(
                self.alignment, {**given, "draws": draws}, scores, allowed
            )
            context, weights = self._sum(aligned, values, kept)
        else:
            given["draws"] = draws
            aligned, context, weights = self._attend_in_windows(
                head_query, keys, values, memory.mask, allowed, given, kept
            )
        if isinstance(history, History) and self.uses_history:
            carried = self.score.carry(
                head_history.carried, head_query, keys, weights
            )
        attended = self._join(query, context, weights, aligned)
        if not isinstance(history, History):
            return attended, ()
        if not self.uses_history:
            return attended, history._replace(step=history.step + 1)
        if self.projections:
            carried = _map(lambda x: unfold(x, self.heads), carried)
        return attended, History(
            attended.alignments,
            history.total + attended.alignments,
            history.step + 1,
            carried,
        )

    def _attend_in_windows(
        self, query, keys, values, mask, allowed, given, kept
    ):
        """Scores and sums only what is inside of each query's window."""
        batch, target, source = (*ops.shape(query)[:2], ops.shape(keys)[1])
        begin, length = _extent(mask, batch, source)
        if self.projections and mask is not None:
            begin, length = self._repeat((begin, length))
        window = self.alignment.choose(query, given["position"], begin, length)
        width = self.alignment.window_width
        windows = Windows(window.first, width, source)

        def rows(x):
            # (B, T, ...) -> (B * T, 1, ...): every query its own source.
            return ops.expand_dims(join_axes(x), 1)

        if self.score.takes("history") or self.score.takes("position"):
            # It may ask where a key is in the source: score all, then cut.
            scores = self._call_part(self.score, given, query, keys)
            scores = windows.pick(scores)
        else:
            scores = self._call_part(
                self.score, given, rows(query), windows.look(keys)
            )
            scores = ops.reshape(scores, (-1, target, width))
        inside = windows.inside
        if allowed is not None:
            shape = (batch, target, source)
            inside = inside & windows.pick(ops.broadcast_to(allowed, shape))
        aligned = self._call_part(
            self.alignment, {**given, "window": window}, scores, inside
        )
        kept = None if kept is None else rows(windows.pick(kept))
        weights = aligned.weights if isinstance(aligned, Sample) else aligned
        context, weights = self._sum(rows(weights), windows.look(values), kept)
        context = ops.reshape(context, (-1, target, context.shape[-1]))
        weights = ops.reshape(weights, (-1, target, width))
        return aligned, context, windows.spread(weights)

    def _call_part(self, part, given, first, second):
        extra = {k: x for k, x in given.items() if part.takes(k)}
        if isinstance(part, Alignment):
            return part(_finite(first), allowed=second, **extra)
        extra.pop("query", None)  # its first argument
        return part(first, second, **extra)

    def _sum(self, aligned, values, kept):
        """The contexts and the weights before dropout."""
        weights = aligned.weights if isinstance(aligned, Sample) else aligned
        weights = ops.cast(weights, "float32")
        factors = ops.cast(weights, self.compute_dtype)
        if kept is not None:
            factors = factors * kept
        return ops.matmul(factors, values), weights

    def _join(self, query, context, weights, aligned):
        """Makes one of the heads, and lets the gate have its say."""
        by_head, evidence = (), ((), ())
        if isinstance(aligned, Sample):
            evidence = aligned.log_probability, aligned.entropy
        if self.projections:
            context = self.projections.join(context)
            by_head = unfold(weights, self.heads)
            weights = ops.mean(by_head, axis=2)
            # The heads draw apart from each other: log-probabilities add up.
            evidence = _map(
                lambda x: ops.sum(unfold(x, self.heads), axis=2), evidence
            )
        if self.context_gate:
            context = context * apply_to_rows(self.context_gate, query)
        return Attended(context, weights, by_head, *evidence)

    def _attend_in_turn(
        self, query, memory, draws, query_mask, allowed, training
    ):
        """Attends for one target position after another."""
        batch, target = ops.shape(query)[0], ops.shape(query)[1]
        inputs = {"query": query, "draws": draws}
        if allowed is not None:
            source = ops.shape(memory.keys)[-2]
            shape = (batch, target, source)
            inputs["allowed"] = ops.broadcast_to(allowed, shape)

        def step(inputs, history):
            # (batch, ...) -> (batch, one query, ...)
            inputs = _map(lambda x: ops.expand_dims(x, 1), inputs)
            attended, history = self.attend_step(
                inputs["query"],
                memory,
                history,
                inputs["draws"],
                inputs.get("allowed"),
                training,
            )
            return _map(lambda x: ops.squeeze(x, 1), attended), history

        return loops.unroll(
            step,
            inputs,
            self.initial_history(memory),
            output_dtypes=self.attended_dtypes(),
            mask=query_mask,
        )

    def attended_dtypes(self):
        """`Attended` with the names of dtypes, as a loop needs them."""
        by_head = "float32" if self.heads > 1 else ()
        evidence = "float32" if self.alignment.samples else ()
        return Attended(
            self.compute_dtype, "float32", by_head, evidence, evidence
        )

    def _repeat(self, structure):
        """A row for each head."""
        # Not `repeat`, whose gradient XLA cannot compile in a loop.
        return _map(
            lambda x: join_axes(ops.stack([x] * self.heads, axis=1)), structure
        )

    def _can_fuse(self, memory, training):
        """Whether the backend's own kernel computes the same, and faster."""
        return (
            has_fused_attention()
            and type(self.score) is ScaledDotScore
            and not self.score.learned_scale
            and type(self.alignment) is SoftmaxAlignment
            and self.alignment.temperature == 1
            and not (training and self.dropout)
            and self.regularizer is None
            and memory.keys.shape[-1] == memory.values.shape[-1]
        )

    def _fused(self, query, memory, allowed):
        keys, values, heads = memory.keys, memory.values, max(self.heads, 1)
        head_query = ops.expand_dims(query, 2)
        if self.projections:
            head_query = unfold(self.projections.split_query(query), heads)
            # (B, H, S, D) -> (B, S, H, D)
            keys, values = ops.swapaxes(keys, 1, 2), ops.swapaxes(values, 1, 2)
        else:
            keys, values = ops.expand_dims(keys, 2), ops.expand_dims(values, 2)
        mask = None
        if allowed is not None:
            shape = (*ops.shape(query)[:2], ops.shape(keys)[1])
            mask = ops.expand_dims(ops.broadcast_to(allowed, shape), 1)
        context = ops.dot_product_attention(
            ops.cast(head_query, self.compute_dtype), keys, values, mask=mask
        )
        if mask is not None:  # (B, 1, T, S) -> (B, T, 1, 1)
            somewhere = ops.swapaxes(ops.any(mask, -1, keepdims=True), 1, 2)
            context = ops.where(somewhere, context, 0.0)
        if self.projections:
            context = self.projections.join(fold(context))
        else:
            context = ops.squeeze(context, 2)
        if self.context_gate:
            context = context * apply_to_rows(self.context_gate, query)
        return context

    def _check_flags(self, return_attention_scores, return_samples):
        if return_attention_scores not in (False, True, "heads"):
            raise ValueError(
                "`return_attention_scores` must be False, True or "
                '"heads". Received: return_attention_scores='
                f"{return_attention_scores!r}"
            )
        if return_samples and not self.alignment.samples:
            raise ValueError(
                "Only an alignment that draws positions has samples to "
                f"return. Received: return_samples=True with "
                f"{type(self.alignment).__name__}. Use "
                "`ReinforceAlignment()`."
            )

    def compute_mask(self, inputs, previous_mask):
        return previous_mask

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        return (*query_shape[:-1], self.context_dim(value_shape[-1]))

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
        self._check_flags(return_attention_scores, return_samples)
        batch, target, _ = query.shape
        dtype, source = self.compute_dtype, value.shape[1]
        shape = self.compute_output_shape(query.shape, value.shape)
        outputs = [keras.KerasTensor(shape, dtype=dtype)]
        if return_attention_scores:
            by_head = return_attention_scores == "heads"
            heads = (self.heads,) if by_head else ()
            shape = (batch, *heads, target, source)
            outputs.append(keras.KerasTensor(shape, dtype=dtype))
        if return_samples:
            # Two: Keras tells the outputs of a model apart by their identity.
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
            "heads": self.heads,
            "head_dim": self.head_dim,
            "value_dim": self.value_dim,
            "gate": self.gate,
            "regularizer": serialize(self.regularizer),
            "dropout": self.dropout,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        for part in ("score", "alignment", "regularizer"):
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


def _require_size(name, size):
    if size is None and name != "heads":
        return
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={size!r}"
        )


def _share(query_dim, heads):
    if query_dim % heads:
        raise ValueError(
            f"Queries of width {query_dim} cannot be shared among {heads} "
            f"heads evenly. Received: heads={heads}. Pass `head_dim`, the "
            "width of each head."
        )
    return query_dim // heads


def _finite(scores):
    """Products in float16 may be infinite, and their difference no number."""
    if keras.backend.standardize_dtype(scores.dtype) != "float16":
        return scores
    return ops.clip(scores, -65504.0, 65504.0)


def _map(function, structure):
    """`map_structure` that leaves `None` alone."""
    return keras.tree.map_structure(
        lambda x: None if x is None else function(x), structure
    )


def _expand_mask(mask):
    """(batch, source) -> (batch, any target, source)."""
    return None if mask is None else ops.expand_dims(mask, 1)


def _causal_mask(batch, target, source):
    """True where the column is not past the row."""
    rows = ops.expand_dims(ops.arange(target), 1)
    causal = ops.expand_dims(rows >= ops.arange(source), 0)
    return ops.broadcast_to(causal, (batch, target, source))


def _positions(query, query_mask):
    """The number of each query among the real ones of its row."""
    batch, target = ops.shape(query)[:2]
    if query_mask is None:
        return ops.broadcast_to(ops.arange(target), (batch, target))
    numbers = ops.cumsum(ops.cast(query_mask, "int32"), axis=1) - 1
    return ops.maximum(numbers, 0)


def _extent(mask, batch, source):
    """Where each source begins and how long it is, each `(batch, 1)`.

    From its first position that is not padding to the last.
    """
    if mask is None:
        begin = ops.zeros((batch, 1), dtype="int32")
        return begin, begin + source
    mask = ops.cast(mask, "int32")
    number = ops.arange(1, source + 1)  # 0 for padding
    end = ops.max(mask * number, axis=1, keepdims=True)
    begin = ops.cast(ops.argmax(mask, axis=1, keepdims=True), "int32")
    return begin, ops.maximum(end - begin, 0)
