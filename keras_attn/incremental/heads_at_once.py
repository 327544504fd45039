"""`HeadsAtOnce`: the attention weights of some heads for whole targets."""

from collections.abc import Sequence

from keras import ops

from keras_attn.incremental import contract
from keras_attn.incremental.path import Path
from keras_attn.incremental.steppers.heads import ProjectedHeads
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import set_keras_mask


class HeadsAtOnce:
    """Runs whole targets, and keeps the attention weights of some heads.

    Args:
        path: The `Path` of a model.
        heads: Pairs of the name of a layer that attends to the source, such
            as a `MultiHeadAttention`, and the number of one of its heads.

    Raises:
        ValueError: If there is no such layer or head.
    """

    def __init__(self, path: Path, heads: Sequence[tuple[str, int]]):
        self._path = path
        steppers = {x.layer.name: x for x in path.steppers if x.attends}
        by_head = {
            name: x
            for name, x in steppers.items()
            if isinstance(getattr(x, "attention", None), ProjectedHeads)
        }
        for name, number in heads:
            if name not in by_head:
                raise ValueError(
                    "Weights by head need layers of several heads that attend "
                    f"to the source. Received: {name!r}. The model has "
                    f"{list(by_head) or 'none'}."
                )
            count = by_head[name].attention.heads
            if not 0 <= number < count:
                raise ValueError(
                    f"The layer {name!r} has the heads 0 to {count - 1}. "
                    f"Received: head {number}."
                )
        self._numbers: dict[str, list[int]] = {}
        for name, number in heads:
            self._numbers.setdefault(name, []).append(number)
        self._steppers = {
            id(by_head[name].call): by_head[name] for name in self._numbers
        }

    def encode(self, sources) -> list:
        """Returns what the target's part reads of the source, batch first."""
        border = self._path.encode(list(sources))
        return [border[id(x)] for x in self._path.border]

    def __call__(self, border: list, target) -> tuple:
        """Returns logits and attention weights.

        Args:
            border: Result of `encode()`.
            target: Ids `(batch, time)` without padding, those of the start
                first.

        Returns:
            Logits `(batch, time, vocabulary)`, and weights `(batch, heads,
            time, source)` in float32, of the layers in the order in which
            the heads name them first; `None` without heads.
        """
        pairs = zip(self._path.border, border, strict=True)
        known = {id(x): value for x, value in pairs}
        memories = self._memories(known)
        found: dict = {}

        def watch(call, arguments, outputs):
            stepper = self._steppers.get(id(call))
            if stepper is None:
                return
            attention = stepper.attention
            given = stepper.named(call.by_name(*arguments))
            prepared = memories[id(call)]
            weights = attention.weights(
                attention.queries(given["query"]),
                prepared[0],
                stepper.allowed(given, prepared),
            )
            rows, _, _, length, columns = ops.shape(weights)
            weights = ops.reshape(
                weights, (rows, attention.heads, length, columns)
            )
            name = stepper.layer.name
            found[name] = ops.take(weights, self._numbers[name], axis=1)

        values = self._path.at_once(known, [target], watch)
        logits = values[id(self._path.outputs[0])]
        if not found:
            return logits, None
        weights = ops.concatenate([found[x] for x in self._numbers], axis=1)
        return logits, weights

    def _memories(self, known):
        """Prepares the layers' memories, and leaves masks as they are."""
        masks = [get_keras_mask(x) for x in known.values()]
        found = {
            key: contract.prepare(x, x.constants_among(known))
            for key, x in self._steppers.items()
        }
        for value, mask in zip(known.values(), masks, strict=True):
            set_keras_mask(value, mask)
        return found
