"""Metrics of a model's predictions in training, over real tokens.

Keras's own metrics average each row first, and without sample weights they
count padding. If the rows of a batch have similar lengths, as `pairs` makes
them, both change the result: `"accuracy"` was 0.041 when 0.047 of all tokens
were right. These metrics find padding in the targets, as `SequenceCrossentropy`
does, and sum over tokens. So the result does not depend on how rows are
batched. A Keras mask is ignored.

All of them measure predictions after the correct tokens ("teacher forcing").
The callback `DecodingMetrics` scores decoded text.
"""

import keras
from keras import ops

from keras_attn import arguments
from keras_attn.text.special_tokens import PAD
from keras_attn.training import padded
from keras_attn.training.losses import SequenceCrossentropy


class _WeightedMean(keras.metrics.Metric):
    """Base class: the weighted mean of a subclass's values of all batches."""

    def __init__(self, name, padding_id=PAD):
        # Sums over a dataset exceed the range of float16.
        super().__init__(name=name, dtype="float32")
        self.padding_id = arguments.index(padding_id, "padding_id")
        self.total = self.add_variable((), "zeros", "float32", name="total")
        self.weight = self.add_variable((), "zeros", "float32", name="weight")

    def measure(self, y_true, y_pred, weights):
        """Returns values and their weights, float32 of the same shape.

        Args:
            y_true: int32 ids of shape `(batch, target)`.
            y_pred: Logits of shape `(batch, target, vocabulary)`.
            weights: float32 of shape `(batch, target)`, 0 at padding.
        """
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch to the mean.

        Args:
            y_true: Integer ids of shape `(batch, target)`, padded.
            y_pred: Logits of shape `(batch, target, vocabulary)`.
            sample_weight: Optional weights of shape `(batch,)` for rows or
                `(batch, target)` for tokens.
        """
        y_true = ops.cast(y_true, "int32")
        y_pred = ops.convert_to_tensor(y_pred)
        padded.check_shapes(self, y_true, y_pred)
        weights = padded.real_tokens(y_true, self.padding_id)
        if sample_weight is not None:
            weights = weights * padded.per_token(sample_weight, y_true)
        values, weights = self.measure(y_true, y_pred, weights)
        # `where` and not only a product, because values may be NaN at padding
        # and at other tokens of weight 0.
        values = ops.where(ops.equal(weights, 0.0), 0.0, values * weights)
        self.total.assign_add(ops.sum(values))
        self.weight.assign_add(ops.sum(weights))

    def result(self):
        """Returns the mean over all batches so far, a float32 scalar."""
        return ops.divide_no_nan(self.total, self.weight)

    def get_config(self):
        return {"name": self.name, "padding_id": self.padding_id}


@keras.saving.register_keras_serializable("keras_attn")
class TokenAccuracy(_WeightedMean):
    """Share of real tokens whose likeliest prediction is right.

    Args:
        name: Name in the logs.
        padding_id: Id of padding. Defaults to `0`; a pretrained vocabulary
            may have another, `text.special.pad`.

    Call arguments:
        y_true: Integer ids of shape `(batch, target)`, padded.
        y_pred: Logits or probabilities of shape `(batch, target,
            vocabulary)`.
        sample_weight: Optional weights of shape `(batch,)` for rows or
            `(batch, target)` for tokens. The result is the weighted mean,
            divided by the sum of the weights, as in Keras's metrics. Pass the
            metric in `compile(weighted_metrics=...)`: metrics in `metrics`
            get no weights from `fit`.

    Output shape:
        A float32 scalar between 0 and 1; 0 if there was no token.

    Example:
        >>> accuracy = keras_attn.TokenAccuracy()
        >>> logits = np.eye(4)[[[3, 1, 0], [1, 0, 0]]]  # predicts these ids
        >>> accuracy.update_state([[3, 2, 1], [1, 0, 0]], logits)
        >>> float(accuracy.result())  # 2 of 4 tokens
        0.5
    """

    def __init__(self, name="token_accuracy", padding_id=PAD):
        super().__init__(name, padding_id)

    def measure(self, y_true, y_pred, weights):
        return _is_right(y_true, y_pred), weights


@keras.saving.register_keras_serializable("keras_attn")
class Perplexity(_WeightedMean):
    """Perplexity per real token: the exponential of the mean cross-entropy.

    It does not include label smoothing, so models with different losses can
    be compared. Models with different vocabularies cannot, since longer
    subwords mean fewer tokens.

    Args:
        name: Name in the logs.
        padding_id: Id of padding. Defaults to `0`; a pretrained vocabulary
            may have another, `text.special.pad`.
        from_logits: Whether the model returns logits. Pass `False` for a
            model that ends in a softmax. Defaults to `True`.

    Call arguments:
        y_true: Integer ids of shape `(batch, target)`, padded.
        y_pred: Logits of shape `(batch, target, vocabulary)`; probabilities
            with `from_logits=False`.
        sample_weight: Optional weights of rows or tokens, as for
            `TokenAccuracy`.

    Output shape:
        A float32 scalar of at least 1: the exponential of
        `sum(weight * cross-entropy in nats) / sum(weight)`.

    Reference:
        - [Jelinek et al., 1977](https://doi.org/10.1121/1.2016299)

    Example:
        >>> perplexity = keras_attn.Perplexity()
        >>> perplexity.update_state([[3, 2, 0, 0]], np.zeros((1, 4, 8)))
        >>> round(float(perplexity.result()), 4)  # 8 tokens equally likely
        8.0
    """

    def __init__(self, name="perplexity", padding_id=PAD, from_logits=True):
        super().__init__(name, padding_id)
        self.from_logits = from_logits
        self._loss = SequenceCrossentropy(
            padding_id=padding_id, from_logits=from_logits
        )

    def get_config(self):
        return super().get_config() | {"from_logits": self.from_logits}

    def measure(self, y_true, y_pred, weights):
        return self._loss.call(y_true, y_pred), weights

    def result(self):
        """Returns the perplexity over all batches so far."""
        return ops.exp(super().result())


@keras.saving.register_keras_serializable("keras_attn")
class SequenceAccuracy(_WeightedMean):
    """Share of rows in which every real token is predicted correctly.

    Rows of padding alone do not count, nor do tokens of weight 0.

    Args:
        name: Name in the logs.
        padding_id: Id of padding. Defaults to `0`; a pretrained vocabulary
            may have another, `text.special.pad`.

    Call arguments:
        y_true: Integer ids of shape `(batch, target)`, padded.
        y_pred: Logits or probabilities of shape `(batch, target,
            vocabulary)`.
        sample_weight: Optional weights of rows or tokens, as for
            `TokenAccuracy`. The weight of a row is the largest weight of its
            tokens.

    Output shape:
        A float32 scalar between 0 and 1; 0 if there was no row.

    Example:
        >>> accuracy = keras_attn.SequenceAccuracy()
        >>> logits = np.eye(4)[[[3, 1, 0], [1, 0, 0]]]  # predicts these ids
        >>> accuracy.update_state([[3, 2, 1], [1, 0, 0]], logits)
        >>> float(accuracy.result())  # the second of two rows
        0.5
    """

    def __init__(self, name="sequence_accuracy", padding_id=PAD):
        super().__init__(name, padding_id)

    def measure(self, y_true, y_pred, weights):
        # 1 also at tokens that do not count, which must not make a row wrong.
        right = ops.where(
            ops.equal(weights, 0.0), 1.0, _is_right(y_true, y_pred)
        )
        # An empty batch has a maximum only with an initial value.
        heaviest = ops.max(weights, axis=-1, initial=0.0)
        return ops.prod(right, axis=-1), heaviest


def _is_right(y_true, y_pred):
    """Returns 1 where the likeliest token is the target, else 0, float32."""
    found = ops.cast(ops.argmax(y_pred, axis=-1), "int32")
    return ops.cast(ops.equal(found, y_true), "float32")
