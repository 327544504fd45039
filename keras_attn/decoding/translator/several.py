"""`Several`: sources for models with several inputs, at least one of text."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_attn.decoding.translator.results import Report
from keras_attn.decoding.translator.sources import SIZES
from keras_attn.decoding.translator.sources import FeatureSource
from keras_attn.decoding.translator.sources import LineSource
from keras_attn.decoding.translator.sources import in_order
from keras_attn.decoding.translator.sources import numbers
from keras_attn.text.text import Text


class Several:
    """Lines of text, and perhaps features, for the inputs of a model.

    Args:
        inputs: The model's inputs but the last.
        text_of: `Text`s by the names of inputs; the other inputs are
            features.
        attended: Index of the input whose tokens are the columns of an
            alignment, or `None`.

    Attributes:
        texts: Pairs of the index of an input and its `Text`.
        leading: The pair to which length limits and shortlists apply: that of
            the attended text, otherwise the first.
        first: Number of special tokens with which the attended text begins.
        last: Number of special tokens with which it ends.
    """

    reads_text = False

    def __init__(
        self,
        inputs,
        text_of: Mapping[str, Text],
        attended: int | None = None,
    ):
        self._inputs = inputs
        self.names = [x.name for x in inputs]
        self.attended = attended
        self._parts: list[Any] = [
            LineSource(text_of[x.name])
            if x.name in text_of
            else FeatureSource([x])
            for x in inputs
        ]
        self.texts = tuple(
            (i, part.text)
            for i, part in enumerate(self._parts)
            if part.reads_text
        )
        self.specs = tuple(
            tf.TensorSpec(part.specs[0].shape, part.specs[0].dtype, name=name)
            for name, part in zip(self.names, self._parts, strict=True)
        )
        self.input_specs = tuple(
            tf.TensorSpec([None, *x.shape[1:]], x.dtype, name=x.name)
            for x in inputs
        )
        self.leading = next(
            (x for x in self.texts if x[0] == attended), self.texts[0]
        )
        of = FeatureSource if attended is None else self._parts[attended]
        self.first, self.last = of.first, of.last

    def with_columns(self, inputs, width: int | None) -> "Several":
        """Returns these sources with `attended` set.

        Args:
            inputs: Inputs of the model, texts of different lengths.
            width: Number of columns of their alignments, or None if there are
                no alignments.
        """
        fits = [
            i
            for i, _ in self.texts
            if width is None or inputs[i].shape[1] == width
        ]
        return self._with(dict(self._named_texts()), min(fits, default=None))

    def with_texts(self, text_of: Mapping[str, Text]) -> "Several":
        """Returns these sources with other `Text`s of the same ids."""
        return self._with(text_of, self.attended)

    def _with(self, text_of, attended):
        return Several(self._inputs, text_of, attended)

    def _named_texts(self):
        return ((self.names[i], text) for i, text in self.texts)

    def open_size(self, sources: tuple) -> int:
        """Returns the size of axes without a size in warm-up requests."""
        return max(
            part.open_size((array,))
            for part, array in zip(self._parts, sources, strict=True)
            if not part.reads_text or len(self.texts) == len(self._parts)
        )

    def collect(self, sources) -> list:
        """Checks a caller's lines and arrays, and returns rows for `take()`."""
        sources = in_order(sources, self.names)
        if not isinstance(sources, tuple) or len(sources) != len(self.names):
            raise ValueError(
                "This model has several source inputs, so sources are a "
                f"dictionary by their names, {self.names}, or a tuple in this "
                f"order. Received: {sources!r:.200} (of type "
                f"{type(sources).__name__})."
            )
        rows = [
            part.collect(given)
            for part, given in zip(self._parts, sources, strict=True)
        ]
        counts = [
            part.count(x) for part, x in zip(self._parts, rows, strict=True)
        ]
        if len({*counts}) > 1:
            raise ValueError(
                "All source inputs must have the same number of rows. "
                f"Received: {dict(zip(self.names, counts, strict=True))}."
            )
        return rows

    def batch_of_one(self, source):
        """Returns one source as `collect()` takes it."""
        source = in_order(source, self.names)
        if not isinstance(source, tuple) or len(source) != len(self.names):
            return source  # for `collect` to refuse
        return tuple(
            part.batch_of_one(x)
            for part, x in zip(self._parts, source, strict=True)
        )

    def lengths(self, rows) -> list[int]:
        """Returns the total length of the texts of each row, in bytes."""
        lines = zip(*(rows[i] for i, _ in self.texts), strict=True)
        return [sum(map(len, row)) for row in lines]

    def token_lengths(self, rows) -> list[tuple[int, ...]]:
        """Returns the token counts of each row's texts, as the model reads."""
        found = [self._parts[i].token_lengths(rows[i]) for i, _ in self.texts]
        return [sum(row, ()) for row in zip(*found, strict=True)]

    def count(self, rows) -> int:
        return self._parts[0].count(rows[0])

    def take(self, rows, indices) -> tuple:
        """Returns the tensors of some rows."""
        return self._joined("take", rows, indices)

    def inputs(self, given: tuple) -> tuple:
        """Returns the model's source inputs."""
        return self._joined("inputs", [(x,) for x in given])

    def _joined(self, method, given, *more):
        return tuple(
            getattr(part, method)(x, *more)[0]
            for part, x in zip(self._parts, given, strict=True)
        )

    def tokens(self, given: tuple, columns, width) -> tuple:
        """Returns the names of the alignments' columns, and their number."""
        if self.attended is None:
            return numbers(columns, width)
        part = self._parts[self.attended]
        return part.tokens((given[self.attended],), columns, width)

    def report(self, given: tuple, inputs: tuple) -> Report:
        """Reports cut rows, unknown tokens, and rows with only empty inputs."""
        reports = [
            part.report((x,), (read,))
            for part, x, read in zip(self._parts, given, inputs, strict=True)
        ]
        found, *others = reports
        for other in others:
            found = found.beside(other)
        empty = tf.stack([x.empty for x in reports])
        return found._replace(empty=tf.reduce_all(empty, axis=0))

    def examples(self, random, model) -> tuple:
        """Returns three rows for each input; texts differ in length."""
        target = tf.ones([3, model.inputs[-1].shape[1] or 1], tf.int32)
        lines = {
            i: self._parts[i].examples(random, model, 7 + 2 * n)[0]
            for n, (i, _) in enumerate(self.texts)
        }
        for size in SIZES:
            arrays = tuple(
                lines[i] if i in lines else part.random(random, size)[0]
                for i, part in enumerate(self._parts)
            )
            try:
                model(
                    [*map(tf.convert_to_tensor, arrays), target], training=False
                )
            except (ValueError, tf.errors.OpError):
                if size == SIZES[-1]:
                    raise
                continue
            return arrays
        raise AssertionError("the last size returns or raises")
