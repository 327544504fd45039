"""`MadeUpInputs`: random inputs to check a model without its data."""

import numpy as np

from keras_attn.text.special_tokens import PAD

# Sizes to try in turn: rows, target positions, source positions without and
# with padding. The first target is longer than usual windows of attention. The
# longest source is for convolutions with strides, and the small sizes are for
# models with a maximum length.
_SIZES = (
    (16, 23, 13, 18),
    (16, 23, 3, 5),
    (16, 23, 37, 46),
    (16, 7, 13, 18),
    (16, 7, 3, 5),
    (16, 4, 2, 3),
    (16, 2, 1, 2),
)

_WORDS = tuple("abcdefgh")  # of which lines of text are made


class MadeUpInputs:
    """Random inputs of given sizes.

    Args:
        model: A functional model.
        tables: For each input the number of ids that its embeddings know, or
            `None`.
        rows: Number of rows, unless the model fixes it.
        target: Length of the targets, unless the model fixes it.
        source: Length of the sources without padding.
        padded: Length of the sources with padding.
        random: A NumPy generator.
        padding_id: Id of padding.
    """

    def __init__(
        self,
        model,
        tables,
        rows,
        target,
        source,
        padded,
        random,
        padding_id=PAD,
    ):
        self.inputs = model.inputs
        self._tables = tables
        self.rows = self.inputs[-1].shape[0] or rows
        self.target = self.inputs[-1].shape[1] or target
        self.source, self.padded = source, padded
        self._random = random
        self.padding_id = padding_id

    @property
    def padding(self):
        """For each source, whether it is ids, a mask or features by position.

        The number of positions must be free.
        """
        return [
            x.shape[1:2] == (None,)
            and None not in x.shape[2:]
            and (
                len(x.shape) > 2
                or "int" in x.dtype
                or x.dtype == "bool"
                or table is not None
            )
            for x, table in zip(
                self.inputs[:-1], self._tables[:-1], strict=True
            )
        ]

    def draw(self):
        """Returns an array for each input, without padding."""
        return [self._array(i) for i in range(len(self.inputs))]

    def pad(self, arrays):
        """Returns the arrays, the sources padded at their end."""
        more = self.padded - self.source
        *sources, target = arrays
        padded = [
            self._padded(x, table, more) if padded else x
            for x, table, padded in zip(
                sources, self._tables[:-1], self.padding, strict=True
            )
        ]
        return [*padded, target]

    def _padded(self, x, table, more):
        widths = [(0, 0), (0, more)] + [(0, 0)] * (x.ndim - 2)
        value = 0
        if table is not None:
            value = self.padding_id
        elif x.dtype.kind in "iu":
            # Integers that no embedding reads, beside ids that one reads, may
            # be a mask, which ends with 0.
            is_mask = any(x is not None for x in self._tables[:-1])
            value = 0 if is_mask else self.padding_id
        return np.pad(x, widths, constant_values=value)

    def others(self, number):
        """Yields other values for an input, of the same shape.

        Integers may be ids, lengths or masks. Random values alone may not
        change the output of a model that reads lengths or masks, so other
        constants are tried too.
        """
        drawn = self._array(number)
        yield drawn
        if drawn.dtype.kind == "U":
            yield np.full_like(drawn, "")
            yield np.full(drawn.shape, " ".join(_WORDS))
        if self._tables[number] is not None or drawn.dtype.kind not in "iub":
            return
        some = self._random.random(drawn.shape) < 0.5
        yield np.where(some, drawn, np.array(self.padding_id, drawn.dtype))
        for value in (0, 1, self.source, 1000):
            yield np.full_like(drawn, value)

    def _array(self, number):
        symbol = self.inputs[number]
        is_target = number == len(self.inputs) - 1
        length = self.target if is_target else self.source
        sizes = [size or length for size in symbol.shape[1:]]
        shape = [self.rows, *sizes]
        if symbol.dtype == "bool":
            return np.ones(shape, "bool")
        if symbol.dtype == "string":
            # Equally long lines, as a longer one pads its neighbours.
            words = self._random.choice(_WORDS, (*shape, 3))
            return np.apply_along_axis(" ".join, -1, words)
        ids_expected = is_target or self._tables[number] is not None
        if "int" not in symbol.dtype and not ids_expected:
            return self._random.normal(size=shape).astype("float32")
        # If the number of ids is unknown, only the smallest ids.
        high = self._tables[number] or 3
        ids = [x for x in range(high) if x != self.padding_id] or [0]
        drawn = self._random.integers(0, len(ids), shape)
        dtype = symbol.dtype if "int" in symbol.dtype else "float32"
        return np.array(ids, dtype)[drawn]


def examples_for(model, tables, taken, works, random, padding_id=PAD):
    """Returns made-up inputs of the first sizes that a model accepts.

    Args:
        model: A functional model.
        tables: For each input the number of ids that its embeddings know, or
            `None`.
        taken: Sizes of the model's tensors. The inputs get other sizes, so
            axes can be recognized by their sizes.
        works: Function of arrays that runs the model.
        random: A NumPy generator.
        padding_id: Id of padding.

    Returns:
        `MadeUpInputs` and `None`. If the model fails on all padded inputs,
        `MadeUpInputs` without padding and the first error of padded ones. If
        it fails on all inputs, `None` and the first error.
    """
    first = unpadded = None  # an error; inputs and the error with padding
    for rows, target, source, padded in _SIZES:
        target = _free(target, taken)
        source = _free(source, taken | {target})
        padded = _free(max(padded, source + 1), taken | {target, source})
        rows = _free(rows, taken | {target, source, padded})
        sizes = rows, target, source, padded
        made = MadeUpInputs(model, tables, *sizes, random, padding_id)
        arrays = made.draw()
        try:
            works(arrays)
        except Exception as error:  # any layer may raise anything
            first = first or error
            continue
        try:
            works(made.pad(arrays))
        except Exception as error:
            unpadded = unpadded or (made, error)
            continue
        return made, None
    if unpadded is None:
        return None, first
    made, refusal = unpadded
    made.padded = made.source
    return made, refusal


def _free(size, taken):
    while size in taken:
        size += 1
    return size
