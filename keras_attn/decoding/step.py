"""`Step`: the model's output at one step of a search."""

import functools
from typing import Any

import tensorflow as tf

from keras_attn.arguments import Former
from keras_attn.decoding import candidates
from keras_attn.decoding import draws
from keras_attn.decoding.candidates import log_normalizer
from keras_attn.decoding.described import described
from keras_attn.decoding.hypotheses import POSSIBLE
from keras_attn.decoding.rules import Ruled


class Step:
    """The model's output for `N` hypotheses per row, and their scores so far.

    Attributes:
        time: Number of tokens so far, a scalar tensor.
        scores: Sums of the log-probabilities so far, `(batch, N)`.
        alignments: The model's attention weights, `(batch, N, source)`.
        numbers: Uniform random numbers from 0 to 1, `(batch, N)`, which
            depend on seed, hypothesis and time; None unless the search draws.
        done: Whether each hypothesis has ended, `(batch, N)`. The token
            chosen for an ended hypothesis is ignored.
        raw: The model's own logits, `(batch, N, vocabulary)`, float32.
        logits: The logits over which the softmax normalizes: the model's,
            after the rules that change probabilities.
        allowed: The logits to choose from, or None if they equal `logits`. If
            a prefix forces a token, no other token is allowed.
        penalties: `(id, penalty)` pairs to be added to the logits to choose
            from. `choices` includes them.
    """

    likeliest, banned = Former("argmax"), Former("penalties")

    def __init__(
        self,
        time: Any,
        ruled: Ruled,
        alignments: Any,
        scores: Any = None,
        numbers: Any = None,
        done: Any = None,
    ):
        self.time, self.alignments = time, alignments
        self.raw, self.logits, self.allowed, self.penalties = ruled
        self.scores, self.numbers, self.done = scores, numbers, done
        self._likeliest = None  # the tokens and their scores, once computed

    @functools.cached_property
    def choices(self):
        """Logits to choose from, `(batch, N, vocabulary)`.

        The logit of a forbidden token is below -1e9.
        """
        allowed = self.logits if self.allowed is None else self.allowed
        if self.penalties:
            size = candidates.size_of(allowed)
            allowed += candidates.penalties(self.penalties, size)
        return allowed

    @functools.cached_property
    def log_probabilities(self):
        """Log-probabilities of the next token, `(batch, N, vocabulary)`.

        Those of forbidden tokens are below -1e9; the others are not
        renormalized.
        """
        return candidates.log_probabilities(
            self.logits, self.penalties, self.allowed
        )

    def scores_with(self, tokens):
        """Returns the scores of the hypotheses extended by these tokens.

        Args:
            tokens: The next token of each hypothesis, `(batch, N)`.

        Returns:
            float32 `(batch, N)`. A forbidden token gives a score below -1e9.
        """
        if self._likeliest is not None and tokens is self._likeliest[0]:
            return self._likeliest[1]
        logit = tf.gather(self.choices, tokens[..., None], batch_dims=2)
        return self.scores + logit[..., 0] - log_normalizer(self.logits)

    def argmax(self):
        """Returns the likeliest token of each hypothesis, `(batch, N)`."""
        given = self.logits, self.scores
        rules = self.penalties, self.allowed
        if self.logits.shape[1] > 1 or candidates.is_small(self.logits):
            scores, tokens = candidates.likeliest(*given, *rules)
        else:
            scores, _, tokens = candidates.extend(*given, 1, *rules)
        self._likeliest = tokens, scores
        return tokens

    def for_all_tokens(self, option):
        """Returns an option in a shape that broadcasts over the vocabulary.

        Args:
            option: An option of the search: a number, or a tensor `(batch,
                1)` if a request sets it.

        Returns:
            The number, or a tensor `(batch, 1, 1)`, which broadcasts with
            tensors `(batch, N, vocabulary)`.
        """
        return option[..., None] if tf.is_tensor(option) else option

    def pick(self, weights):
        """Draws a token for each hypothesis with the step's random numbers.

        Args:
            weights: Unnormalized probabilities `(batch, N, vocabulary)`.

        Returns:
            Tokens `(batch, N)`, never one of weight 0.
        """
        if self.numbers is None:
            raise ValueError(
                "`pick` needs random numbers, which only a search with "
                "`draws = True` has. Received: a search without them. Set "
                "`draws = True` in its class, or return `step.argmax()`."
            )
        weights = tf.cast(weights, self.numbers.dtype)
        if tf.executing_eagerly():  # in a search's trial, or while debugging
            self._require_weights(weights)
        return draws.pick(weights, self.numbers)

    def _require_weights(self, weights):
        fine = tf.math.is_finite(weights) & (weights >= 0)
        # If all tokens are forbidden, none can have a weight.
        stuck = tf.reduce_all(self.choices <= POSSIBLE, axis=-1, keepdims=True)
        some = tf.reduce_any(weights > 0, axis=-1, keepdims=True)
        fine = (fine & (some | stuck)) | self.done[..., None]
        if not tf.reduce_all(fine):
            raise ValueError(
                "`pick` takes weights that are finite and at least 0, with "
                "one above 0 for each hypothesis. Received: "
                f"{described(weights)}; the largest is "
                f"{float(tf.reduce_max(weights))}, the smallest "
                f"{float(tf.reduce_min(weights))}. Give a positive weight to "
                "at least one allowed token, such as `step.argmax()`."
            )
