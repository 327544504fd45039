"""`Scorer`: log-probabilities of given targets from the whole models."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from keras_attn.backend import without_gradients
from keras_attn.decoding.translator.results import Report
from keras_attn.text.special_tokens import SpecialTokens


class Scored(NamedTuple):
    """Log-probabilities of given targets."""

    tokens: tf.Tensor  # (batch, time), padded with ""
    token_scores: tf.Tensor  # (batch, time), zero past the length
    lengths: tf.Tensor  # (batch,), the end token counted
    scores: tf.Tensor  # (batch,)
    report: Report  # of sources and targets


@dataclasses.dataclass
class Scorer:
    """Scores targets with the whole models, which read them as in training.

    Args:
        models: The models; several are an ensemble.
        special: The `SpecialTokens` of the target text.
        scope: Returns the context in which the models compute.
    """

    models: tuple
    special: SpecialTokens
    scope: Callable = contextlib.nullcontext

    def __call__(self, inputs: tuple, targets: tuple) -> tf.Tensor:
        """Scores targets.

        Args:
            inputs: The models' inputs but the last.
            targets: The ids that the models read, from `read_for`, and the ids
                that they should write, `(batch, time)`.

        Returns:
            Log-probabilities `(batch, time)`.
        """
        read, ids = targets
        with self.scope(), without_gradients():
            outputs = [
                model([*inputs, read], training=False) for model in self.models
            ]
        return self.log_probabilities(outputs, ids)

    def read_for(self, ids: tf.Tensor, begun=None) -> tf.Tensor:
        """Returns the decoder input for given target ids.

        It consists of the start tokens and all ids except the last, so the end
        token is never read.

        Args:
            ids: The target ids `(batch, time)`, padded.
            begun: Ids `(batch, n)` that follow the start tokens, as from
                `Prompts`.
        """
        start = tf.tile([self.special.start], [tf.shape(ids)[0], 1])
        if begun is not None:
            start = tf.concat([start, begun], axis=1)
        read = tf.concat([start[:, -1:], ids[:, :-1]], axis=1)
        read = tf.where(ids != self.special.pad, read, self.special.pad)
        return tf.concat([start[:, :-1], read], axis=1)

    def log_probabilities(self, outputs: list, ids: tf.Tensor) -> tf.Tensor:
        """Returns log-probabilities of target ids `(batch, time)`.

        Args:
            outputs: The logits of each model for `read_for(ids)`.
            ids: The ids. The result is 0 for padding.
        """
        first = tf.shape(outputs[0])[1] - tf.shape(ids)[1]
        logits = [tf.cast(x, tf.float32)[:, first:] for x in outputs]
        logp = tf.nn.log_softmax(logits)  # (models, batch, time, vocabulary)
        if len(self.models) > 1:  # as in an `Ensemble`
            logp = tf.nn.log_softmax(tf.reduce_mean(logp, axis=0))
        else:
            logp = logp[0]
        logp = tf.gather(logp, ids, batch_dims=2)
        return tf.where(ids != self.special.pad, logp, 0.0)
