"""Training on the model's own tokens: a model that samples some inputs.

A sampled token has no gradient. So the tokens of a batch are sampled first,
step by step. Then the model is trained on the batch as usual, with the sampled
tokens in place of the correct ones.
"""

from typing import NamedTuple

import keras
from keras import ops

from keras_attn import arguments
from keras_attn.incremental import Incremental
from keras_attn.layers import loops
from keras_attn.text.special_tokens import PAD
from keras_attn.training.functional_model import FunctionalModel
from keras_attn.training.functional_model import computes_its_graph


class _Chances(NamedTuple):
    """The inputs of a step, `(batch,)` each."""

    right: object  # id of the correct token
    keeps: object  # whether to keep it
    number: object  # in [0, 1), selects the sampled token


@keras.saving.register_keras_serializable("keras_attn")
class ScheduledSamplingModel(FunctionalModel):
    """A functional model that reads some of its own tokens in training.

    In usual training a model sees the correct tokens before each prediction,
    but in decoding it sees its own tokens, with their errors. In training this
    model replaces tokens of its target input by tokens that it samples itself,
    each with probability `1 - probability`. The start token and padding are
    never replaced. A token is sampled from the model's prediction after the
    preceding tokens, which may themselves be sampled. The targets of the loss
    stay the correct tokens. Outside of training, as in `evaluate` and when
    decoding, and with a probability of 1, it behaves like the plain model.

    Sampling runs the model step by step like a greedy search, without dropout
    and without a gradient, so a training step takes longer. It works for
    every model that `Incremental` can run step by step: with an
    `AttentionDecoder`, recurrent layers or a Transformer.

    Args:
        inputs: The model's inputs, as for `keras.Model`. The last is the
            target's ids, of shape `(batch, target)`.
        outputs: The logits, of shape `(batch, target, vocabulary)`.
        probability: Probability of keeping the correct token, from 0 to 1: a
            number, or a function of the number of training steps so far, such
            as a `keras.optimizers.schedules.LearningRateSchedule`. The
            paper's linear decay is `PolynomialDecay(1.0, steps, end)`, its
            exponential decay `ExponentialDecay(1.0, 1, k)`, and its inverse
            sigmoid decay `keras_attn.InverseSigmoidDecay(k)`.
        draw: `"sample"` samples a token by its probability, `"argmax"` takes
            the likeliest.
        padding_id: Id of padding, which is neither replaced nor sampled.
            Defaults to `0`.
        start_tokens: Number of first tokens that are never replaced.
            Defaults to `1`, the start token; for a pretrained vocabulary with
            several, pass `len(text.special.start)`.
        seed: Integer seed of the samples, or `None` for a random one.

    Raises:
        ValueError: If the model cannot be run step by step; the message names
            the layer that prevents it. Or if an argument is out of range.

    Reference:
        - [Bengio et al., 2015](https://arxiv.org/abs/1506.03099), section 2.4

    Example:
        >>> source = keras.Input((None,), dtype="int32")
        >>> target = keras.Input((None,), dtype="int32")
        >>> embed = keras.layers.Embedding(9, 8, mask_zero=True)
        >>> hidden = keras_attn.AttentionDecoder(
        ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
        ...     embed(target), embed(source))
        >>> logits = keras.layers.Dense(9)(hidden)
        >>> model = keras_attn.ScheduledSamplingModel(
        ...     [source, target], logits, keras_attn.InverseSigmoidDecay(1000))
        >>> model.compile("adam", keras_attn.SequenceCrossentropy())
        >>> inputs = [np.array([[4, 5, 2]]), np.array([[1, 6, 7]])]
        >>> history = model.fit(inputs, np.array([[6, 7, 2]]), verbose=0)
    """

    def __init__(
        self,
        inputs,
        outputs,
        probability,
        draw="sample",
        padding_id=PAD,
        start_tokens=1,
        seed=None,
        **kwargs,
    ):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        if not callable(probability) and not (
            isinstance(probability, (int, float)) and 0 <= probability <= 1
        ):
            raise ValueError(
                "`probability` is that of the right token and must be a number "
                "from 0 to 1, or a function of the number of steps. Received: "
                f"probability={probability!r}. Pass for example 0.9, or "
                "`keras_attn.InverseSigmoidDecay(1000)`."
            )
        if draw not in ("sample", "argmax"):
            raise ValueError(
                "`draw` must be 'sample' or 'argmax'. Received: "
                f"draw={draw!r}. Leave it out to draw by probability."
            )
        self.probability = probability
        self.draw = draw
        self.padding_id = arguments.index(padding_id, "padding_id")
        self.start_tokens = arguments.positive(start_tokens, "start_tokens")
        self.seed = seed
        self._cut = Incremental(self)
        self._seeds = keras.random.SeedGenerator(seed)
        self.updates = self.add_weight(
            name="updates",
            shape=(),
            initializer="zeros",
            dtype="int32",
            trainable=False,
            aggregation="only_first_replica",
        )

    @computes_its_graph
    def call(self, inputs, training=None, mask=None, **kwargs):
        if training:
            *sources, target = keras.tree.flatten(inputs)
            inputs = [*sources, self.mixed(*sources, target)]
            self.updates.assign_add(1)
        return super().call(inputs, training=training, mask=mask, **kwargs)

    def mixed(self, *inputs):
        """Returns the target's ids, some of them sampled from the model.

        Args:
            *inputs: All the model's inputs, the target's ids last.

        Returns:
            Ids of shape `(batch, target)`, of the dtype of the target.
        """
        *sources, target = map(ops.convert_to_tensor, inputs)
        batch, time = ops.shape(target)
        right = ops.cast(target, "int32")
        real = ops.not_equal(right, self.padding_id)
        numbers = keras.random.uniform((2, batch, time), seed=self._seeds)
        encoded = self._cut.encode(*sources)
        keeps = ops.logical_or(
            numbers[0] < self._share(), ops.arange(time) < self.start_tokens
        )

        def step(chances, state):
            drawn, state = state
            tokens = ops.where(chances.keeps, chances.right, drawn)
            logits, _, state = self._cut.step(tokens[:, None], state, encoded)
            return tokens, (self._drawn(logits[:, 0], chances.number), state)

        none = ops.zeros((batch,), dtype="int32")  # the first token is kept
        tokens = loops.unroll(
            step,
            _Chances(right, keeps, numbers[1]),
            (none, self._cut.start(encoded, 1, time)),
            "int32",
            real,
        )
        return ops.cast(ops.where(real, tokens, right), target.dtype)

    def _share(self):
        if callable(self.probability):
            return ops.cast(self.probability(self.updates), "float32")
        return self.probability

    def _drawn(self, logits, number):
        """Returns the tokens that the random numbers select, `(batch,)`."""
        logits = ops.cast(logits, "float32")
        ids = ops.arange(logits.shape[-1], dtype="int32")
        logits = ops.where(ids == self.padding_id, -float("inf"), logits)
        if self.draw == "argmax":
            return ops.cast(ops.argmax(logits, axis=-1), "int32")
        below = ops.cumsum(ops.softmax(logits, axis=-1), axis=-1)
        # Rounding must not lead beyond the last token that has a probability.
        number = number[:, None] * below[:, -1:] * (1 - 1e-6)
        return ops.sum(ops.cast(below <= number, "int32"), axis=-1)

    def get_config(self):
        probability = self.probability
        if callable(probability):
            probability = keras.saving.serialize_keras_object(probability)
        return {
            **super().get_config(),
            "probability": probability,
            "draw": self.draw,
            "padding_id": self.padding_id,
            "start_tokens": self.start_tokens,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        probability = config["probability"]
        if isinstance(probability, dict):
            probability = keras.saving.deserialize_keras_object(
                probability, custom_objects
            )
        config = config | {"probability": probability}
        return super().from_config(config, custom_objects)
