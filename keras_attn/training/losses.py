"""The loss of a sequence model: the cross-entropy of the next token.

The loss finds padding in the targets, not in a Keras mask. A model can lose
its mask (most `keras.ops` drop it), and padding would then count without a
warning. If the model's output has a mask, it is ignored.
"""

import keras
from keras import ops

from keras_attn import arguments
from keras_attn.backend import over_replicas
from keras_attn.backend import required
from keras_attn.text.special_tokens import PAD
from keras_attn.training import padded


@keras.saving.register_keras_serializable("keras_attn")
class SequenceCrossentropy(keras.losses.Loss):
    """Cross-entropy between token ids and logits, with padding left out.

    The loss of a batch is the mean over its real tokens, those whose target is
    not `padding_id`. So a token has the same weight in a short row and in a
    long row of a batch. The loss of a batch that is all padding is 0. Logits
    of any dtype are cast to float32.

    With `per="row"` the sum over the tokens is divided by the number of rows
    that have tokens. Then a token also has the same weight in a batch of short
    rows and in a batch of long rows, as `pairs()` makes them. The loss is
    larger, and so is the norm of the gradient, which `clipnorm` limits.

    With `label_smoothing` ε the target of a token is Keras's mixture
    `(1 - ε) · one_hot(y) + ε / V`. `V` is the size of the vocabulary,
    including padding and the other special ids.

    Args:
        label_smoothing: Float in `[0, 1)`, the ε above. Defaults to `0.0`.
        name: Optional name of the loss.
        padding_id: Id of padding. Defaults to `0`; a pretrained vocabulary
            may have another, `text.special.pad`.
        per: `"token"` or `"row"`: whether the sum over a batch is divided by
            the number of real tokens, or by that of the rows that have any.
            Defaults to `"token"`.
        from_logits: Whether the model returns logits. Pass `False` for a
            model that ends in a softmax. Defaults to `True`.

    Call arguments:
        y_true: Integer ids of shape `(batch, target)`, padded.
        y_pred: Logits of shape `(batch, target, vocabulary)`; probabilities
            with `from_logits=False`.
        sample_weight: Optional weights of shape `(batch,)` for rows or
            `(batch, target)` for tokens, which multiply the losses of the
            tokens. The divisor is still the number of real tokens or rows,
            as in Keras's own losses.

    Output shape:
        A float32 scalar, in nats per token or row. `loss.call(y_true, y_pred)`
        returns the loss of each token, of shape `(batch, target)`, zero at
        padding.

    Example:
        >>> loss = keras_attn.SequenceCrossentropy()
        >>> targets = np.array([[3, 2, 0, 0]])  # two tokens, two of padding
        >>> round(float(loss(targets, np.zeros((1, 4, 8)))), 4)  # ln 8
        2.0794
    """

    def __init__(
        self,
        label_smoothing=0.0,
        name="sequence_crossentropy",
        padding_id=PAD,
        per="token",
        from_logits=True,
    ):
        is_number = isinstance(label_smoothing, (int, float))
        if not is_number or not 0 <= label_smoothing < 1:
            raise ValueError(
                "`label_smoothing` is the share of the target that is spread "
                "over the vocabulary, so it must be in [0, 1). Received: "
                f"label_smoothing={label_smoothing!r}. Pass for example "
                "`0.1`, the usual choice."
            )
        if per not in ("token", "row"):
            raise ValueError(
                "`per` is what the loss of a batch is divided by: 'token' or "
                f"'row'. Received: per={per!r}. Leave it out for the mean over "
                "real tokens."
            )
        if not isinstance(from_logits, bool):
            raise ValueError(
                "`from_logits` must be True or False. Received: "
                f"from_logits={from_logits!r}"
            )
        super().__init__(name=name, dtype="float32")
        self.from_logits = from_logits
        self.label_smoothing = label_smoothing
        self.per = per
        self.padding_id = arguments.index(padding_id, "padding_id")

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras's `__call__` would also apply the mask of `y_pred`, which comes
        # from the decoder's inputs.
        with keras.name_scope(self.name):
            y_true = ops.convert_to_tensor(y_true)
            losses = self.call(y_true, y_pred)  # (B, T)
            real = padded.real_tokens(y_true, self.padding_id)
            if sample_weight is not None:
                losses = losses * padded.per_token(sample_weight, losses)
            if self.per == "row":
                real = ops.max(real, axis=1, initial=0)
            total, count = ops.sum(losses), over_replicas(ops.sum(real))
            return total / ops.maximum(count, 1.0)

    def call(self, y_true, y_pred):
        y_true = ops.convert_to_tensor(y_true)
        y_pred = ops.cast(y_pred, "float32")
        padded.check_shapes(self, y_true, y_pred)
        if not self.from_logits:  # logarithms of probabilities are logits
            y_pred = ops.log(ops.maximum(y_pred, 1e-37))
        if None in (y_true.shape[1], y_pred.shape[1]):
            y_pred = required(
                y_pred,
                ops.equal(ops.shape(y_true)[1], ops.shape(y_pred)[1]),
                f"{padded.compares(self)}{padded.ADVICE} Received: shapes",
                (ops.shape(y_true), ops.shape(y_pred)),
            )
        losses = ops.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=True
        )
        if self.label_smoothing:
            # The mean of -log softmax over the vocabulary, computed without
            # the tensor (batch, target, vocabulary).
            uniform = ops.logsumexp(y_pred, axis=-1) - ops.mean(y_pred, axis=-1)
            smoothing = self.label_smoothing
            losses = (1 - smoothing) * losses + smoothing * uniform
        # `where` and not a product, because losses at padding may be NaN.
        return ops.where(ops.not_equal(y_true, self.padding_id), losses, 0.0)

    def get_config(self):
        return {
            "label_smoothing": self.label_smoothing,
            "padding_id": self.padding_id,
            "per": self.per,
            "from_logits": self.from_logits,
            "name": self.name,
        }
