"""Checks batches: ids, shapes, padding, and the shift of the targets."""

import numpy as np


class Batches:
    """Checks the first batches of the data.

    Args:
        batches: List of `Batch`.
        inputs: The model's inputs.
        tables: For each input a dictionary from names of `Embedding` layers to
            their numbers of ids.
        output: The model's first output, a symbolic tensor.
        last: Name of the layer that returns this output.
        findings: `Findings` to add to.
        padding_id: Id of padding.
        left_out: Id that the loss leaves out, which may be negative. `None` if
            there is none.
    """

    def __init__(
        self,
        batches,
        inputs,
        tables,
        output,
        last,
        findings,
        padding_id,
        left_out=None,
    ):
        self._batches = [
            x._replace(target=x.target[..., 0])
            if x.target.ndim == 3 and x.target.shape[2] == 1
            else x
            for x in batches
        ]
        self._inputs = inputs
        self._tables = tables
        self._output = output
        self._last = last
        self._findings = findings
        self._pad = padding_id
        self._left_out = left_out

    def look(self):
        """Checks the shapes, and the values if the shapes are right."""
        for batch in self._batches:
            self._shapes(batch)
        if self._findings.has_wrong("inputs", "length"):
            return
        for batch in self._batches:
            self._dtypes(batch)
            self._features(batch)
            self._known(batch)
            self._padding(batch)
        self._shifted()

    def _shapes(self, batch):
        for symbol, array in zip(self._inputs, batch.inputs, strict=True):
            wanted = tuple(symbol.shape)
            if _fits(array.shape, wanted):
                continue
            hint = ""
            if array.ndim == len(wanted) - 1:
                hint = " It may be one row. Batch the data, `data.batch(64)`."
            elif array.ndim == 3 and len(wanted) == 2:
                hint = " It may be one-hot: `array.argmax(-1)` returns ids."
            self._findings.wrong(
                "inputs",
                symbol.name,
                f"The input '{symbol.name}' must have shape {wanted}, batch "
                f"first. Received: shape {array.shape} in the data.{hint}",
            )
        if self._findings.has_wrong("inputs"):
            return
        rows = {len(x) for x in [*batch.inputs, batch.target] if x is not None}
        if len(rows) > 1:
            self._findings.wrong(
                "inputs",
                None,
                "All arrays of a batch must have the same number of rows. "
                f"Received: inputs of shape {[x.shape for x in batch.inputs]}, "
                f"targets of shape {batch.target.shape}. Cut all arrays to the "
                "same number of rows.",
            )
            return
        target, given = batch.target, batch.inputs[-1]
        if target.ndim < 2 or target.shape[1] != given.shape[1]:
            self._findings.wrong(
                "length",
                None,
                "The targets and the decoder's inputs must have the same "
                "length, because target_out is target_in moved by one token. "
                "Received: "
                f"'{self._inputs[-1].name}' of shape {given.shape}, "
                f"target_out of shape {target.shape}. From rows `ids` that "
                "begin with a start token and end with an end token, take "
                "`ids[:, :-1]` and `ids[:, 1:]`.",
            )
        elif target.ndim > 3 or (
            target.ndim == 3 and self._vocabulary not in (None, target.shape[2])
        ):
            self._findings.wrong(
                "one-hot",
                self._last,
                f"target_out must be ids (batch, target), or one-hot over the "
                f"{self._vocabulary} ids of the logits of '{self._last}'. "
                f"Received: shape {target.shape}. Pass the ids.",
            )
        weight = batch.weight
        if weight is not None and not (
            weight.shape in (target.shape[:1], target.shape[:2])
            or weight.shape in ((len(target), 1), (*target.shape[:2], 1))
        ):
            self._findings.wrong(
                "weights",
                None,
                "Sample weights must be one per row or one per token, of "
                f"shape {target.shape[:1]} or {target.shape[:2]}. Received: "
                f"{weight.shape}. Reshape the weights, or leave them out.",
            )

    @property
    def _vocabulary(self):
        return self._output.shape[-1]

    def _dtypes(self, batch):
        names = [x.name for x in self._inputs]
        for number, array in enumerate(batch.inputs):
            if self._is_ids(number):
                self._whole(array, names[number], self._layer(number))
        if batch.target.ndim == 2:
            self._whole(batch.target, "target_out", self._last)

    def _whole(self, array, name, layer):
        if array.dtype.kind in "biu":
            return
        if array.dtype.kind != "f":
            self._findings.wrong(
                "dtype",
                layer,
                f"'{name}' must be integer ids. Received: dtype {array.dtype}. "
                "Turn strings into ids by `keras_attn.Text`.",
            )
        elif not np.array_equal(array, np.floor(array)):
            self._findings.wrong(
                "dtype",
                layer,
                f"'{name}' must be integer ids. Received: dtype {array.dtype} "
                "with values that are not whole numbers, which the model would "
                "cut off. Pass ids, or give features their own input.",
            )
        else:
            self._findings.doubtful(
                "dtype",
                layer,
                f"'{name}' holds ids of dtype {array.dtype}, which may round "
                "large ids to other ids. Pass `array.astype('int32')`.",
            )

    def _features(self, batch):
        for symbol, array in zip(self._inputs, batch.inputs, strict=True):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                self._findings.wrong(
                    "finite",
                    symbol.name,
                    f"'{symbol.name}' holds NaN or infinity in the data. "
                    "Remove these values, or replace them by 0.",
                )

    def _known(self, batch):
        """Checks for ids beyond the embeddings and the output layer."""
        names = [x.name for x in self._inputs]
        for number, array in enumerate(batch.inputs):
            for layer, size in self._tables[number].items():
                self._within(array, names[number], layer, size, "ids")
        target, size = batch.target, self._vocabulary
        if size and target.ndim == 2 and target.dtype.kind in "biuf":
            some = target[~self._is_left_out(target)]
            self._within(some, "target_out", self._last, size, "vocabulary")

    def _within(self, array, name, layer, size, kind):
        if not array.size or array.dtype.kind not in "biuf":
            return
        lowest, highest = array.min(), array.max()
        knows = (
            f"'{layer}' knows the ids 0 to {size - 1} (`input_dim={size}`)"
            if kind == "ids"
            else f"'{layer}' returns logits for the ids 0 to {size - 1}"
        )
        if highest >= size:
            self._findings.wrong(
                kind,
                layer,
                f"{knows}, but '{name}' has the id {highest:.0f}. The layer "
                f"needs at least {float(highest) + 1:.0f} ids: the size of the "
                "vocabulary including padding, `text.size` of a `Text`.",
            )
        if lowest < 0:
            self._findings.wrong(
                kind,
                layer,
                f"{knows}, but '{name}' has the id {lowest:.0f}. Ids are never "
                f"negative, and padding is {self._pad}.",
            )

    def _padding(self, batch):
        names = [x.name for x in self._inputs]
        for number, array in enumerate(batch.inputs):
            if array.ndim == 2 and self._is_ids(number):
                self._at_the_end(array, names[number], self._layer(number))
        target, given = batch.target, batch.inputs[-1]
        if target.ndim != 2:
            return
        self._at_the_end(target, "target_out", None)
        target = self._counted(target)
        if not (target != self._pad).any():
            self._findings.doubtful(
                "empty",
                None,
                f"In one batch all of target_out is padding ({self._pad}), so "
                "there is nothing to learn from it. Perhaps a token has the id "
                f"{self._pad}, which must be reserved for padding.",
            )
        unseen = (target != self._pad) & (given == self._pad)
        # A start token with the padding id is reported by `_at_the_end`.
        if unseen[:, 1:].any():
            self._findings.doubtful(
                "length",
                None,
                "target_out has tokens at positions where "
                f"'{self._inputs[-1].name}' has padding (in "
                f"{unseen.any(1).sum()} of {len(target)} rows). The mask of "
                "the input ends before the target does. Begin each input with "
                "a start token, so it has as many tokens as the target.",
            )

    def _at_the_end(self, array, name, layer):
        if not array.size:
            return
        pad = self._pad
        real = array != pad
        ends = array.shape[1] - np.argmax(real[:, ::-1], 1)
        before = ~real & (np.arange(array.shape[1]) < ends[:, None])
        inside = before.any(1) & real.any(1)
        if inside.any():
            self._findings.doubtful(
                "padding",
                layer,
                f"'{name}' has {pad}, which is padding, before tokens in "
                f"{inside.sum()} of {len(array)} rows. Pad at the end: "
                '`pad_sequences(..., padding="post")`, which otherwise pads at '
                f"the start. Give the id {pad} to no token, also not to the "
                "start token.",
            )

    def _is_left_out(self, target):
        if self._left_out is None:
            return np.zeros(target.shape, bool)
        return target == self._left_out

    def _counted(self, target):
        """Returns targets with padding where the loss leaves them out."""
        left_out = self._is_left_out(target)
        if not left_out.any():
            return target
        return np.where(left_out, np.int64(self._pad), target)

    def _shifted(self):
        pairs = [
            (x.inputs[-1], self._counted(_ids(x.target)))
            for x in self._batches
            if x.inputs[-1].ndim == 2 and x.target.ndim < 4
        ]
        share = _share_of_equal(
            [(y[:, :-1], x[:, 1:]) for x, y in pairs],  # the right shift
            self._pad,
        )
        if share is None or share >= 0.9:
            return
        name = self._inputs[-1].name
        advice = (
            "From rows `ids` that begin with a start token and end with an "
            f"end token, take '{name}' = `ids[:, :-1]` and target_out = "
            "`ids[:, 1:]`."
        )
        if _share_of_equal([(y, x) for x, y in pairs], self._pad) == 1:
            self._findings.wrong(
                "shift",
                None,
                f"target_out is '{name}' itself, so the model would learn to "
                f"copy its input token. {advice}",
            )
        elif (
            _share_of_equal(
                [(y[:, 1:], x[:, :-1]) for x, y in pairs], self._pad
            )
            == 1
        ):
            self._findings.wrong(
                "shift",
                None,
                f"target_out is '{name}' moved the wrong way, so the model "
                f"would learn to repeat the previous token. {advice}",
            )
        elif share < 0.5:
            self._findings.doubtful(
                "shift",
                None,
                f"target_out is not '{name}' moved by one token: only "
                f"{share:.0%} of its tokens are the next token of '{name}'. "
                f"{advice}",
            )

    def _is_ids(self, number):
        return bool(self._tables[number]) or number == len(self._inputs) - 1

    def _layer(self, number):
        return next(iter(self._tables[number]), None)


def _fits(shape, wanted):
    return len(shape) == len(wanted) and all(
        size in (None, given) for size, given in zip(wanted, shape, strict=True)
    )


def _ids(target):
    """Returns the ids of targets that may be one-hot."""
    return target if target.ndim == 2 else target.argmax(-1)


def filled_by(target):
    """Returns the id that pads the rows of targets, or `None` if unknown.

    An id is padding if rows end with several copies of it and the number of
    copies differs between rows. An end token occurs only once.
    """
    if target.ndim == 3 and target.shape[2] == 1:
        target = target[..., 0]
    if target.ndim != 2 or target.dtype.kind not in "biuf" or not target.size:
        return None
    differs = target != target[:, -1:]
    length = target.shape[1]
    copies = np.where(differs.any(1), np.argmax(differs[:, ::-1], 1), length)
    ids = np.unique(target[copies > 1, -1])
    if len(ids) != 1 or len(np.unique(copies[target[:, -1] == ids[0]])) < 2:
        return None
    return int(ids[0])


def _share_of_equal(pairs, pad):
    """Returns the share of equal tokens among pairs without padding."""
    equal = count = 0
    for these, those in pairs:
        real = (these != pad) & (those != pad)
        equal += int((real & (these == those)).sum())
        count += int(real.sum())
    return equal / count if count else None
