"""Training hard attention by REINFORCE: a model that rewards good samples.

A sampled position has no gradient, but a sample that helped can be made more
likely. The gradient of the expectation of `log p(y | s)` over samples `s` is
the mean over samples of the gradient of

    log p(y | s) + (log p(y | s) - b) · log p(s)

where the factor in brackets is treated as a constant. This holds for any
baseline `b` that does not depend on the samples.
"""

import keras
from keras import ops

from keras_attn import arguments
from keras_attn.backend import over_replicas
from keras_attn.text.special_tokens import PAD
from keras_attn.training.functional_model import FunctionalModel


@keras.saving.register_keras_serializable("keras_attn")
class ReinforceModel(FunctionalModel):
    """A functional model that trains the samples of a `ReinforceAlignment`.

    In training it adds Xu et al.'s estimator to its compiled loss. For the
    sentences `n` of a batch with `N` real target tokens the estimator is

        -1 / N · Σ_n [λ_r · (log p(y_n | s_n) - b) · log p(s_n) + λ_e · H_n]

    The baseline `b` is a moving average of `log p(y | s)`, and `H` is the
    entropy of the distribution that is sampled from. The loss
    `SequenceCrossentropy` is `-1 / N · Σ_n log p(y_n | s_n)`. Without the
    entropy term, the expected gradient of both is that of the negative
    expected log-likelihood per token. With `SequenceCrossentropy(per="row")`
    the `N` of both is the number of rows that have tokens. The estimator's
    value has no meaning, but it is part of the loss that `fit` shows. So watch
    a metric, or the validation loss, which leaves the estimator out.

    Compile the model with one loss and with metrics of the logits. The other
    outputs are not passed to them. To decode, make a model of the logits only:
    `keras.Model(model.inputs, model.outputs[0])` shares all weights.

    Targets are integer ids of shape `(batch, target)`, padded, as long as the
    logits.

    Args:
        inputs: The model's inputs, as for `keras.Model`.
        outputs: A list of three tensors: the logits, of shape `(batch,
            target, vocabulary)`, and the log-probabilities and entropies of
            an attention with `return_samples=True`, each of shape `(batch,
            target)`.
        reward_weight: The paper's `λ_r`, at least 0. Defaults to `1.0`, the
            value of the formula above.
        entropy_weight: The paper's `λ_e`, at least 0, which rewards uncertain
            samples. Defaults to `0.01`.
        decay: Share of the old baseline in the new one, at least 0 and below
            1. Defaults to `0.9`.
        padding_id: Id of padding, as in the loss. Defaults to `0`.

    Raises:
        ValueError: If the outputs have other shapes, if an argument is out of
            range, or for sample weights in `fit` or `evaluate`.

    Reference:
        - [Xu et al., 2015](https://arxiv.org/abs/1502.03044), section 4.1

    Example:
        >>> source = keras.Input((None, 4))
        >>> target = keras.Input((None, 4))
        >>> attention = keras_attn.Attention(
        ...     keras_attn.DotScore(), keras_attn.ReinforceAlignment())
        >>> context, *evidence = attention(target, source, return_samples=True)
        >>> logits = keras.layers.Dense(7)(context)
        >>> model = keras_attn.ReinforceModel(
        ...     [source, target], [logits, *evidence])
        >>> model.compile("adam", keras_attn.SequenceCrossentropy())
        >>> inputs = [np.ones((2, 5, 4)), np.ones((2, 3, 4))]
        >>> history = model.fit(inputs, np.ones((2, 3), "int32"), verbose=0)
    """

    def __init__(
        self,
        inputs,
        outputs,
        reward_weight=1.0,
        entropy_weight=0.01,
        decay=0.9,
        padding_id=PAD,
        **kwargs,
    ):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        shapes = [tuple(x.shape) for x in self.outputs]
        if [len(shape) for shape in shapes] != [3, 2, 2]:
            raise ValueError(
                "`outputs` must be the logits (batch, target, vocabulary) "
                "and the log-probabilities and entropies of the samples, each "
                f"(batch, target). Received: outputs of shape {shapes}. Get "
                "the last two from an attention with a `ReinforceAlignment`, "
                "called with `return_samples=True`."
            )
        if reward_weight < 0 or entropy_weight < 0 or not 0 <= decay < 1:
            raise ValueError(
                "`reward_weight` and `entropy_weight` must be at least 0, and "
                "`decay` at least 0 and below 1. Received: "
                f"reward_weight={reward_weight!r}, "
                f"entropy_weight={entropy_weight!r}, decay={decay!r}. Leave "
                "them out for the defaults."
            )
        self.reward_weight = reward_weight
        self.entropy_weight = entropy_weight
        self.decay = decay
        self.padding_id = arguments.index(padding_id, "padding_id")
        self.baseline = self.add_weight(
            name="baseline",
            shape=(),
            initializer="zeros",
            dtype="float32",
            trainable=False,
        )

    def compute_loss(
        self,
        x=None,
        y=None,
        y_pred=None,
        sample_weight=None,
        training=True,
    ):
        if sample_weight is not None:
            raise ValueError(
                "A `ReinforceModel` rewards whole sentences and takes no "
                "sample weights. Received: `sample_weight` or `class_weight` "
                "in `fit` or `evaluate`. Leave them out; to ignore rows, "
                "remove them from the data."
            )
        logits, log_probability, entropy = y_pred
        loss = super().compute_loss(x, y, logits, training=training)
        if not training:
            return loss
        return loss + self._estimator(y, logits, log_probability, entropy)

    def _estimator(self, y, logits, log_probability, entropy):
        y = ops.convert_to_tensor(y)
        real = ops.not_equal(y, self.padding_id)

        def by_sentence(x):  # (batch, target) -> (batch,)
            return ops.sum(
                ops.where(real, ops.cast(x, "float32"), 0.0), axis=-1
            )

        likelihood = by_sentence(
            -ops.sparse_categorical_crossentropy(
                y, ops.cast(ops.stop_gradient(logits), "float32"), True
            )
        )
        # The old baseline, because it must not depend on these samples.
        reward = likelihood - self.baseline
        self.baseline.assign(
            self.decay * self.baseline + (1 - self.decay) * ops.mean(likelihood)
        )
        gain = self.reward_weight * ops.sum(
            reward * by_sentence(log_probability)
        ) + self.entropy_weight * ops.sum(by_sentence(entropy))
        # The divisor of the compiled loss, so that their sum is one gradient.
        counted = ops.any(real, axis=-1) if self._per_row() else real
        count = over_replicas(ops.sum(ops.cast(counted, "float32")))
        return -gain / ops.maximum(count, 1.0)

    def _per_row(self):
        """Whether the compiled loss is a sum divided by the number of rows."""
        losses = keras.tree.flatten(self.loss)
        return any(getattr(loss, "per", None) == "row" for loss in losses)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, y_pred[0], sample_weight)

    def get_config(self):
        return {
            **super().get_config(),
            "reward_weight": self.reward_weight,
            "entropy_weight": self.entropy_weight,
            "decay": self.decay,
            "padding_id": self.padding_id,
        }
