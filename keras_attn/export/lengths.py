"""`Measured`: features with their lengths, for servers that pad them.

A server that joins the requests of several clients pads shorter features
with copies of their first element, which a model does not mask. By their
lengths the export replaces these copies with zeros, which a model can mask.
"""

import numpy as np
import tensorflow as tf

from keras_attn.caller import warn
from keras_attn.export import rows


class Measured:
    """`Features` with an input for the sizes of their open axes.

    A row is set to zero past its size before the model reads it.

    Args:
        features: The `Features` of a translator.
    """

    reads_text = False

    def __init__(self, features):
        self._features = features
        self.attended, self.texts = features.attended, features.texts
        self.first, self.last = features.first, features.last
        self.leading = features.leading
        self._open = open_axes(features.specs)
        self.input_specs = features.input_specs
        if any(x.name == "lengths" for x in features.specs):
            raise ValueError(
                "`lengths=True` adds an input 'lengths' to the model's. "
                "Received: a model with an input of this name. Build it with "
                "another name, or leave `lengths` out."
            )
        # Usually there is one open axis; several have a column each, in order.
        more = [len(self._open)] if len(self._open) > 1 else []
        self.specs = (
            *features.specs,
            tf.TensorSpec([None, *more], tf.int32, name="lengths"),
        )

    def open_size(self, sources: tuple) -> int:
        """Returns the size of the open axes in examples of the features."""
        return self._features.open_size(sources)

    def inputs(self, given: tuple) -> tuple:
        """Returns the model's source inputs, zero past their lengths."""
        *arrays, _ = given
        for (i, axis), length in zip(
            self._open, self._lengths(given), strict=True
        ):
            arrays[i] = zero_past(arrays[i], axis, length)
        return self._features.inputs(tuple(arrays))

    def tokens(self, given: tuple, columns, width) -> tuple:
        """Returns names of an alignment's columns, and how many are real."""
        return self._features.tokens(given[:-1], columns, width)

    def report(self, given: tuple, inputs: tuple):
        """Reports that nothing is cut and nothing is unknown."""
        return self._features.report(given[:-1], inputs)

    def errors(self, given: tuple) -> tf.Tensor:
        """Returns the errors in the lengths, a string for each row."""
        found = []
        for (i, axis), length in zip(
            self._open, self._lengths(given), strict=True
        ):
            columns, name = tf.shape(given[i])[axis], self.specs[i].name
            found.append(rows.of_lengths(length, columns, name))
        return rows.first(*found)

    def harmless(self, given: tuple, bad) -> tuple:
        """Returns the tensors with lengths of 0 in the bad rows."""
        *arrays, lengths = given
        shape = [-1] + [1] * (len(lengths.shape) - 1)
        return *arrays, tf.where(tf.reshape(bad, shape), 0, lengths)

    def _lengths(self, given):
        lengths = given[-1]
        if len(self._open) == 1:
            return [lengths]
        return tf.unstack(lengths, axis=1)


def warn_of_padding(models, specs, examples) -> None:
    """Warns if zeros past the lengths change a model's output.

    Args:
        models: The models.
        specs: A `TensorSpec` for each of their source inputs.
        examples: `Examples` of all their inputs.
    """
    arrays, target = examples
    padded = list(arrays)
    for i, axis in open_axes(specs):
        sizes = [(0, 2 * (n == axis)) for n in range(padded[i].ndim)]
        padded[i] = np.pad(padded[i], sizes)
    for model in models:
        alone, beside = (
            np.asarray(model([*x, target], training=False))
            for x in (arrays, padded)
        )
        if not np.allclose(alone, beside, rtol=1e-2, atol=1e-3):
            warn(
                "Zeros past the lengths change the output of this model, so "
                "a row may be answered differently in a batch with a longer "
                "one. Does a mask reach the decoder? `Masking()` masks "
                "features that are zero.",
            )


def open_axes(specs) -> list[tuple[int, int]]:
    """Returns (index of the input, axis) of every axis without fixed size."""
    return [
        (i, axis)
        for i, spec in enumerate(specs)
        for axis, size in enumerate(spec.shape)
        if axis and size is None
    ]


def zero_past(x, axis, length):
    """Returns a tensor with zeros past lengths `(batch,)` along an axis."""
    size = tf.shape(x)[axis]
    shape = [-1, *(1 for _ in range(1, axis)), size]
    shape += [1] * (len(x.shape) - axis - 1)
    real = tf.reshape(tf.sequence_mask(length, size), shape)
    return tf.where(real, x, tf.zeros([], x.dtype))
