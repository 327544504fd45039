"""`LostMask`: finds where a model loses a mask, and how to fix it."""

from keras import layers

from keras_attn.text.special_tokens import PAD


class LostMask:
    """Finds the layer that loses a mask.

    Args:
        graph: A `Graph`.
        masks: `Masks` of a run of the graph.
        padding_id: Id of padding.
    """

    def __init__(self, graph, masks, padding_id=PAD):
        self._graph = graph
        self._masks = masks
        self._mask_of_ids = f"`keras.ops.not_equal(ids, {padding_id})`"
        self._is_usual = padding_id == PAD

    def why(self, victim, padded):
        """Returns the layer through which padding has an effect, and why.

        Args:
            victim: The first call whose result changes with padding.
            padded: Keys of the tensors that are longer with padding.

        Returns:
            Name of the layer, and an explanation with advice.
        """
        reads = [
            key
            for key in victim.reads
            if key in padded and not self._is_given_mask(key)
        ]
        masks = [x for x in reads if self._graph.symbols[x].dtype == "bool"]
        if masks:
            return victim.name, (
                f"{victim} gets a mask as an argument, from "
                f"{self._graph.writer(masks[0])}, that is true at padding. "
                f"Make it from the ids, {self._mask_of_ids}."
            )
        for key in reads:
            if not self._masks.read[id(victim), key]:
                return self.since(key, victim, padded.__contains__)
        return victim.name, f"{victim} {_ignores_mask(victim)}"

    def since(self, key, reader, is_padded):
        """Returns the layer that lost a tensor's mask, and an explanation.

        Args:
            key: Key of a tensor that has no mask when it is read.
            reader: The call that reads the tensor, or `None` for an output.
            is_padded: Function of a key that returns whether the key's tensor
                has padding.

        Returns:
            Name of the layer, or `None`, and an explanation with advice.
        """
        sees = f"{reader} reads padding as tokens" if reader else ""
        while True:
            taker = self._masks.takers.get(key)
            if taker is not None:
                return taker.name, (
                    f"{taker} removes the mask of its input, so {sees}. Give "
                    "it a tensor of its own, by "
                    "`keras.layers.LayerNormalization()` or "
                    "`keras.layers.Rescaling(1.0)` before it, or use "
                    "`keras_attn.Attention`, which keeps masks."
                )
            writer = self._graph.writer(key)
            if writer is None:
                return self._never_made(key, reader)
            before = [x for x in writer.reads if is_padded(x)]
            if any(self._masks.read[id(writer), x] for x in before):
                return writer.name, (
                    f"{writer} drops the mask"
                    + (f", so {sees}" if reader else "")
                    + ". Use a layer that passes masks on (operations of "
                    "`keras.ops`, `Reshape` and `Lambda` do not; your own "
                    "layer does with `supports_masking = True`), or pass the "
                    "mask as an argument, `mask=` or `value_mask=`."
                )
            if not before:
                return writer.name, (
                    f"{writer} makes a sequence without a mask"
                    + (f", so {sees}" if reader else "")
                    + ". Pass the mask as an argument, `mask=` or "
                    "`value_mask=`."
                )
            if self._graph.writer(before[0]) is None:
                return self._never_made(before[0], writer)
            key = before[0]

    def _is_given_mask(self, key):
        """Whether a tensor is an input that is a mask, so false at padding."""
        is_mask = self._graph.symbols[key].dtype == "bool"
        return is_mask and self._graph.writer(key) is None

    def _never_made(self, key, reader):
        symbol = self._graph.symbols[key]
        if reader is None:
            return None, f"the input '{symbol.name}' has no mask."
        if isinstance(reader.operation, layers.Embedding) and self._is_usual:
            return reader.name, (
                f"{reader} makes no mask. Pass `mask_zero=True` to it."
            )
        if "float" in symbol.dtype:
            return reader.name, (
                f"{reader} reads the input '{symbol.name}', which has no "
                "mask. Put `keras.layers.Masking()` between them: it masks "
                "frames that are all zero. If all sources have the same "
                "length, ignore this warning."
            )
        return reader.name, (
            f"{reader} reads the ids of '{symbol.name}' and makes no mask. "
            f"Pass the mask {self._mask_of_ids} to the layers that read the "
            "sequence."
        )


def _is_recurrent(operation):
    return isinstance(operation, (layers.RNN, layers.Bidirectional))


def _ignores_mask(call):
    if _is_recurrent(call.operation) and len(call.reads) > 1:
        return (
            "ignores the mask of its input, because Keras passes no mask to a "
            "layer that is called with `initial_state`. Pass it as an "
            "argument: `mask=keras.ops.not_equal(ids, 0)`."
        )
    kind = type(call.operation).__name__
    if "Conv" in kind or "Pool" in kind:
        return (
            "takes no mask, and reads the padding next to the last tokens. "
            "Multiply its input by the mask: then padding is zero, as it "
            "is beyond the end of the longest source. Or replace the layer by "
            "a recurrent layer or attention. A small difference at the end "
            "may do no harm."
        )
    return (
        "gets a mask and does not use it. Add an argument `mask` to its "
        "`call`, or remove the effect of padding in another way."
    )
