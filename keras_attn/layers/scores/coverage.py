"""Coverage: a score that also sees how much attention each position got."""

import keras
from keras import ops

from keras_attn.arguments import positive
from keras_attn.backend import finite
from keras_attn.layers.scores.additive import AdditiveScore
from keras_attn.layers.scores.score import clone
from keras_attn.layers.scores.score import linear
from keras_attn.layers.scores.score import positive_number


@keras.saving.register_keras_serializable("keras_attn")
class CoverageScore(AdditiveScore):
    """Tu's score, `v · tanh(W query + U key + V c)`, with the coverage `c`.

    The coverage of a source position says how much attention it has received.
    In the first step it is zero, and the score equals Bahdanau's. An attention
    with this score processes one target position after another.

    - `"count"`: `c` is the sum of the weights that the position got so far.
    - `"fertility"`: `c` is this sum divided by the fertility `N *
      sigmoid(U_f · key)`, the expected number of target tokens that the
      position is translated to. A sigmoid below 0.001 counts as 0.001.
    - `"learned"`: `c` is a vector, the state of a GRU. At each step the GRU
      reads the position's weight, its key and the query.

    Args:
        units: Width of the space in which the terms are added.
        kind: `"count"`, `"fertility"` or `"learned"`.
        max_fertility: `N`, the largest number of target tokens that a source
            position is translated to. Only for `"fertility"`, where it
            defaults to 2.0.
        coverage_dim: Width of the coverage vectors. Only for `"learned"`,
            where it defaults to 10.
        use_bias: Whether there is a bias inside the tanh: see
            `AdditiveScore`.
        normalize: Whether `v` is normalized: see `AdditiveScore`.
        kernel_initializer: Initializer of all weights but the biases.
            Defaults to `"glorot_uniform"`.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project()`, of shape `(batch, source, dim)`. The
            first `units` numbers are compared with the query. The others are
            used to compute the coverage.
        history: `History` of the alignments so far, each `(batch, target,
            source)`. A score that computes in half precision rounds them,
            but their sum is kept in float32.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.

    Reference:
        - [Tu et al., 2016](https://arxiv.org/abs/1601.04811), section 3

    Example:
        >>> score = keras_attn.CoverageScore(8, "fertility", max_fertility=3.0)
        >>> attention = keras_attn.Attention(score)
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
        TensorShape([1, 2, 6])
    """

    _can_split = False

    def __init__(
        self,
        units,
        kind="count",
        max_fertility=None,
        coverage_dim=None,
        use_bias=False,
        normalize=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(
            units,
            use_bias=use_bias,
            normalize=normalize,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )
        if kind not in ("count", "fertility", "learned"):
            raise ValueError(
                '`kind` must be "count", "fertility" or "learned". Received: '
                f"kind={kind!r}. Without coverage use `AdditiveScore(units)`."
            )
        self.kind = kind
        self.max_fertility = self._only_for(
            "fertility", max_fertility, "max_fertility", default=2.0
        )
        self.coverage_dim = self._only_for(
            "learned", coverage_dim, "coverage_dim", default=10
        )
        if kind == "fertility":
            positive_number(self.max_fertility, "max_fertility", "2.0")
        if kind == "learned":
            positive(self.coverage_dim, "coverage_dim")

    def _only_for(self, kind, value, name, default):
        if self.kind == kind:
            return default if value is None else value
        if value is not None:
            raise ValueError(
                f"Only coverage of the kind {kind!r} has a `{name}`. "
                f"Received: kind={self.kind!r}, {name}={value!r}. Leave it "
                f"out, or pass `kind={kind!r}`."
            )
        return None

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        width, gates = 1, None
        if self.kind == "learned":
            width, gates = self.coverage_dim, 3 * self.coverage_dim
        self.coverage_kernel = self._kernel("coverage", width, self.units)
        if self.kind == "fertility":
            self.fertility_kernel = self._kernel("fertility", key_shape[-1], 1)
        if self.kind == "learned":
            # Each kernel has columns for the update gate, the reset gate and
            # the candidate, in this order.
            self.gru_weight_kernel = self._kernel("gru_weight", 1, gates)
            self.gru_key_kernel = self._kernel("gru_key", key_shape[-1], gates)
            self.gru_query_kernel = self._kernel(
                "gru_query", query_shape[-1], gates
            )
            self.gru_recurrent_kernel = self._kernel(
                "gru_recurrent", width, gates
            )
            self.gru_bias = self.add_weight(
                name="gru_bias", shape=(gates,), initializer="zeros"
            )

    def _kernel(self, name, rows, columns):
        return self.add_weight(
            name=f"{name}_kernel",
            shape=(rows, columns),
            initializer=clone(self.kernel_initializer),
        )

    def project(self, key):
        compared = super().project(key)
        if self.kind == "count":
            return compared
        if self.kind == "fertility":
            for_coverage = linear(key, self.fertility_kernel)
        else:
            for_coverage = linear(key, self.gru_key_kernel, self.gru_bias)
        return ops.concatenate([compared, for_coverage], axis=-1)

    def initial_carry(self, keys, beams):
        if self.kind != "learned":
            return ()
        batch, source = ops.shape(keys)[:2]
        shape = (batch, beams, source, self.coverage_dim)
        return ops.zeros(shape, dtype=self.compute_dtype)

    def call(self, query, keys, history):
        coverage = self._coverage(keys, history)
        extra = linear(coverage, self.coverage_kernel)
        return self.compare(query, keys[..., : self.units], extra)

    def _coverage(self, keys, history):
        """Returns the coverage, `(batch, target, source, width)`."""
        if self.kind == "learned":
            return history.carried
        count = ops.expand_dims(history.total, -1)
        if self.kind == "count":
            return count
        # At least in float32: the quotient and its gradient may be larger than
        # the largest number of float16.
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        logits = ops.cast(keys[..., self.units :], dtype)
        fertility = self.max_fertility * ops.maximum(ops.sigmoid(logits), 1e-3)
        coverage = ops.cast(count, dtype) / ops.expand_dims(fertility, 1)
        return finite(coverage, self.compute_dtype)

    def carry(self, carried, query, keys, alignments):
        """Runs a step of the GRU, the paper's `f(c, alignment, key, query)`."""
        if self.kind != "learned":
            return carried
        # Keras casts only inside a layer's `call`, and this is outside.
        query, keys, alignments, of_weight, of_query, recurrent = (
            ops.cast(x, self.compute_dtype)
            for x in (
                query,
                keys,
                alignments,
                self.gru_weight_kernel,
                self.gru_query_kernel,
                self.gru_recurrent_kernel,
            )
        )
        inputs = (
            linear(ops.expand_dims(alignments, -1), of_weight)
            + ops.expand_dims(linear(query, of_query), 2)
            + ops.expand_dims(keys[..., self.units :], 1)
        )  # (batch, target, source, three times the width)
        width = self.coverage_dim
        gates = linear(carried, recurrent[:, : 2 * width])
        gates = ops.sigmoid(inputs[..., : 2 * width] + gates)
        update, reset = gates[..., :width], gates[..., width:]
        candidate = linear(reset * carried, recurrent[:, 2 * width :])
        candidate = ops.tanh(inputs[..., 2 * width :] + candidate)
        return update * carried + (1 - update) * candidate

    def get_config(self):
        return {
            **super().get_config(),
            "kind": self.kind,
            "max_fertility": self.max_fertility,
            "coverage_dim": self.coverage_dim,
        }
