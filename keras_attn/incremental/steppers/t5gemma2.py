"""The stepper of KerasHub's `T5Gemma2DecoderLayer`, a whole block."""

from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.steppers.t5gemma import GemmaHeads
from keras_attn.incremental.steppers.t5gemma import T5GemmaStepper
from keras_attn.layers.attention import Attended
from keras_attn.layers.decoder.past import OwnPast


@stepper_for(
    "keras_hub.src.models.t5gemma2.t5gemma2_decoder.T5Gemma2DecoderLayer"
)
class T5Gemma2Stepper(T5GemmaStepper):
    """Runs the parts of a block of T5Gemma 2.

    The block attends to its past and to the source at once: one softmax runs
    over both. The alignments are the weights on the source, the mean of the
    heads, divided by their sum, since plots and the coverage penalty expect
    alignments whose sum is 1. The share spent on the past is not reported. If a
    step attends only to the past, its alignments are zero.
    """

    def source_heads(self):
        return _NormedHeads(self.layer.merged_attn)

    def past(self, position):
        layer = self.layer
        # The positions that the block sees, its own among them.
        slides = layer.attention_type == "sliding_attention"
        window = layer.sliding_window if slides else None
        return OwnPast(_NormedHeads(layer.merged_attn, position), window)

    def step(self, inputs, prepared, state, position):
        layer, past = self.layer, self.past(position)
        x = ops.cast(self.target_of(inputs), layer.compute_dtype)
        normal = layer.pre_self_attn_layernorm(x)
        state = past.append(state, normal)
        heads = _NormedHeads(layer.merged_attn, position)
        attended = heads.attend_to_both(normal, past.memory(state), prepared)
        x = x + layer.post_self_attn_layernorm(attended.context)
        fed = layer.mlp(layer.pre_feedforward_layernorm(x))
        x = x + layer.post_feedforward_layernorm(fed)
        return x, attended.alignments, state


class _NormedHeads(GemmaHeads):
    """Adapter of `T5Gemma2MergedAttention`: queries and keys are normed."""

    def queries(self, x):
        queries = self._layer.query_dense(x)
        if self._layer.use_query_key_norm:
            queries = self._layer.query_norm(queries)
        return self.turned(queries)

    def keys(self, x):
        keys = self._layer.key_dense(x)
        if self._layer.use_query_key_norm:
            keys = self._layer.key_norm(keys)
        return self.turned(keys)

    def attend_to_both(self, query, past, source):
        """Attends to the past of each hypothesis and to its source at once.

        Args:
            query: Tensor of shape `(batch, beams, dim)`.
            past: A `Memory` with a row for each hypothesis.
            source: A `Memory` with a row for each source.

        Returns:
            An `Attended` of context `(batch, beams, dim)` and alignments
            `(batch, beams, source)`.
        """
        batch, beams, width = ops.shape(query)
        rows = self.queries(ops.reshape(query, (-1, 1, width)))
        beside = (batch, beams, *ops.shape(rows)[2:])
        queries = ops.reshape(rows, beside)  # those of a source side by side
        there = self.scores(queries, source)
        own = _beside(self.scores(rows, past), batch, beams)
        count = ops.shape(own)[-1]
        weights = ops.softmax(ops.concatenate([own, there], axis=-1))
        own, there = weights[..., :count], weights[..., count:]
        context = self.context(_as_rows(own), past)
        context = ops.reshape(context, beside) + self.context(there, source)
        there = ops.mean(there, axis=(1, 2))
        alignments = ops.divide_no_nan(
            there, ops.sum(there, axis=-1, keepdims=True)
        )
        return Attended(self.output(context, query), alignments)


def _beside(scores, batch, beams):
    """`(batch * beams, ..., 1, keys)` -> `(batch, ..., beams, keys)`."""
    _, heads, group, _, keys = ops.shape(scores)
    scores = ops.reshape(scores, (batch, beams, heads, group, keys))
    return ops.transpose(scores, (0, 2, 3, 1, 4))


def _as_rows(weights):
    """`(batch, ..., beams, keys)` -> `(batch * beams, ..., 1, keys)`."""
    _, heads, group, _, keys = ops.shape(weights)
    weights = ops.transpose(weights, (0, 3, 1, 2, 4))
    return ops.reshape(weights, (-1, heads, group, 1, keys))
