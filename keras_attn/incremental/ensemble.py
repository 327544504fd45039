"""Several models, decoded as one."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_attn.incremental.incremental import Incremental


class Ensemble:
    """Several models that decode together, with the interface of one model.

    A token's log-probability is the mean of the models' log-probabilities,
    renormalized: the geometric mean of their distributions. The alignments
    are the mean over the models that attend.

    Args:
        members: List of `Incremental`, with the same inputs and vocabulary.

    Raises:
        ValueError: If the members' vocabularies differ in size. In the first
            step, if their memories differ in length.

    References:
        - [Sutskever et al., 2014](https://arxiv.org/abs/1409.3215), section 3

    Example:
        >>> def model():
        ...     source, target = keras.Input((None, 4)), keras.Input((None,))
        ...     hidden = keras_attn.AttentionDecoder(
        ...         keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
        ...         keras.layers.Embedding(10, 8)(target), source)
        ...     logits = keras.layers.Dense(10)(hidden)
        ...     return keras.Model([source, target], logits)
        >>> ensemble = keras_attn.incremental.Ensemble(
        ...     [keras_attn.Incremental(model()) for _ in range(2)])
        >>> encoded = ensemble.encode(np.ones((2, 5, 4), "float32"))
        >>> state = ensemble.start(encoded)
        >>> logits, alignments, state = ensemble.step(
        ...     np.ones((2, 1), "int32"), state, encoded)
        >>> logits.shape, alignments.shape
        (TensorShape([2, 1, 10]), TensorShape([2, 1, 5]))
    """

    def __init__(self, members: Sequence[Incremental]):
        given: Any = members
        if isinstance(given, (Incremental, Ensemble)):
            given = [given]
        members = tuple(given)
        for member in members or [None]:
            if not hasattr(member, "model"):
                raise ValueError(
                    "An `Ensemble` needs at least one member, and each must "
                    "decode step by step, as an `Incremental` does. Received: "
                    f"{member!r:.80}. Pass `[Incremental(model) for model in "
                    "models]`; `Translator(models, ...)` does so by itself."
                )
        sizes = [x.model.outputs[0].shape[-1] for x in members]
        if len(set(sizes)) != 1:
            raise ValueError(
                "The models of an ensemble must have the same vocabulary. "
                f"Received: models with {sizes} logits. Train them with one "
                "`Text` for the targets."
            )
        self.members = members

    def encode(self, *sources) -> tuple:
        """Runs each model's part that does not depend on the target."""
        return tuple(x.encode(*sources) for x in self.members)

    def hoist(self, encoded: tuple, compiled: bool = False) -> tuple:
        """Hoists constant products out of a loop, for each model."""
        pairs = [
            x.hoist(one, compiled)
            for x, one in zip(self.members, encoded, strict=True)
        ]
        members, encoded = zip(*pairs, strict=True)
        return Ensemble(members), encoded

    def restrict_vocabulary(self, encoded: tuple, ids, costs) -> tuple:
        """Restricts the logits of each model to some tokens.

        Each model's log-probabilities are those among a row's own tokens, so
        they do not depend on the other rows.
        """
        pairs = [
            x.restrict_vocabulary(one, ids, costs)
            for x, one in zip(self.members, encoded, strict=True)
        ]
        members, encoded = zip(*pairs, strict=True)
        return Ensemble(members), encoded

    def start(
        self, encoded: tuple, beams: int = 1, max_length: int | None = None
    ) -> tuple:
        """Returns the states before the first token."""
        return tuple(
            x.start(one, beams, max_length)
            for x, one in zip(self.members, encoded, strict=True)
        )

    def step(
        self,
        tokens,
        state: tuple,
        encoded: tuple,
        per_row_position: bool = False,
        **former,
    ) -> tuple:
        """Extends each hypothesis by one token, like `Incremental.step`.

        Instead of logits it returns the mean of the log-probabilities, float32
        `(batch, beams, vocabulary)`.
        """
        logits, alignments, states = zip(
            *(
                x.step(tokens, own, one, per_row_position, **former)
                for x, own, one in zip(
                    self.members, state, encoded, strict=True
                )
            ),
            strict=True,
        )
        logp = [ops.log_softmax(ops.cast(x, "float32")) for x in logits]
        attended = [x for x in alignments if x is not None]
        if len({x.shape[2] for x in attended} - {None}) > 1:
            raise ValueError(
                "The memories of an ensemble's models must have the same "
                "length, because their alignments are averaged. Received: "
                f"lengths {[x.shape[2] for x in attended]}. Use models whose "
                "encoders shorten the source by the same factor."
            )
        # Sums would broadcast memories of one position.
        mean = ops.mean(ops.stack(attended), axis=0) if attended else None
        return _mean(logp), mean, states

    def reorder(self, state: tuple, parents) -> tuple:
        """Gathers the states of each hypothesis from its parent."""
        return tuple(
            x.reorder(one, parents)
            for x, one in zip(self.members, state, strict=True)
        )

    def time_axes(self, state: tuple) -> tuple:
        """Returns the axes of past positions, as `Incremental.time_axes`."""
        return tuple(
            x.time_axes(one) for x, one in zip(self.members, state, strict=True)
        )

    def source_mask(self, encoded: tuple):
        """Returns the mask of positions that any model reads; None for all."""
        masks = [
            x.source_mask(one)
            for x, one in zip(self.members, encoded, strict=True)
            if x.attends
        ]
        if not masks or any(mask is None for mask in masks):
            return None
        result, *others = masks
        for mask in others:
            result = ops.logical_or(result, mask)
        return result

    def check(self, *inputs, length: int = 16) -> None:
        """Compares decoding step by step with the whole models."""
        for member in self.members:
            member.check(*inputs, length=length)

    def forget(self) -> None:
        """Makes the next `check()` trace the models anew."""
        for member in self.members:
            member.forget()

    def check_in_graph(self, *inputs) -> None:
        """Compares the whole models inside a graph with those outside."""
        for member in self.members:
            member.check_in_graph(*inputs)

    @property
    def rows_leave(self) -> bool:
        """Whether rows may leave a batch, as `Incremental.rows_leave`."""
        return all(x.rows_leave for x in self.members)

    @property
    def slow_alone(self) -> bool:
        """Whether XLA runs one hypothesis slower than two."""
        return any(x.slow_alone for x in self.members)

    @property
    def models(self) -> tuple[keras.Model, ...]:
        """The models that decode together."""
        return tuple(x.model for x in self.members)

    @property
    def longest(self) -> int | None:
        """The longest target that all models take, `None` for any length."""
        return min(
            (x.longest for x in self.members if x.longest is not None),
            default=None,
        )


def _mean(tensors):
    total, *others = tensors
    for x in others:
        total = total + x
    return total / len(tensors)
