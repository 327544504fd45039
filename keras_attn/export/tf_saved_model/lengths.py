"""`Measured`: features with their lengths, for servers that pad them.

A server that joins the requests of several clients pads shorter features
with copies of their first element, which a model does not mask. With their
lengths, the export replaces these copies by zeros, which a model can mask.

`longest_of` returns how long features may be. A request of a few bytes can
declare a tensor of gigabytes, so longer features are cut before anything is
computed.
"""

from collections.abc import Mapping

import tensorflow as tf

from keras_attn import arguments
from keras_attn.caller import warn
from keras_attn.decoding.translator.model_trial import zeros_matter
from keras_attn.decoding.translator.sources import open_axes


class Measured:
    """A `FeatureSource` with a further input, the lengths of each row.

    Each row is set to zero past its lengths before the model reads it.

    Args:
        features: The `FeatureSource` of a translator.

    Raises:
        ValueError: If the model already has an input named "lengths".
    """

    reads_text = False

    def __init__(self, features):
        self._features = features
        self.attended, self.texts = features.attended, features.texts
        self.first, self.last = features.first, features.last
        self.leading = features.leading
        self.open = open_axes(features.specs)
        self.input_specs = features.input_specs
        if any(x.name == "lengths" for x in features.specs):
            raise ValueError(
                "`lengths=True` adds an input 'lengths' to the model's. "
                "Received: a model with an input of this name. Build it with "
                "another name, or leave `lengths` out."
            )
        # `(batch,)` for one open axis, else `(batch, axes)` in their order
        more = [len(self.open)] if len(self.open) > 1 else []
        self.specs = (
            *features.specs,
            tf.TensorSpec([None, *more], tf.int32, name="lengths"),
        )

    def open_size(self, sources: tuple) -> int:
        """Returns the size of the open axes in examples of the features."""
        return self._features.open_size(sources)

    def inputs(self, given: tuple) -> tuple:
        """Returns the model's source inputs, with zeros past the lengths."""
        *arrays, _ = given
        for (i, axis), length in zip(
            self.open, self.lengths(given), strict=True
        ):
            arrays[i] = zero_past(arrays[i], axis, length)
        return self._features.inputs(tuple(arrays))

    def tokens(self, given: tuple, columns, width) -> tuple:
        """Returns names of an alignment's columns, and how many are real."""
        return self._features.tokens(given[:-1], columns, width)

    def report(self, given: tuple, inputs: tuple):
        """Reports which rows are cut, have unknown tokens, or are empty."""
        report = self._features.report(given[:-1], inputs)
        numbers = [i for i, _ in self.open]
        if {*numbers} != {*range(len(inputs))}:
            return report  # the other inputs may have content
        lengths = tf.stack(self.lengths(given))
        shortest = tf.math.unsorted_segment_min(
            lengths, tf.constant(numbers), len(inputs)
        )
        return report._replace(empty=tf.reduce_max(shortest, axis=0) == 0)

    def lengths(self, given: tuple) -> list[tf.Tensor]:
        """Returns the lengths, a tensor `(batch,)` for each open axis."""
        lengths = given[-1]
        if len(self.open) == 1:
            return [lengths]
        return tf.unstack(lengths, axis=1)


def warn_of_padding(models, specs, examples) -> None:
    """Warns if zeros past the lengths change a model's output.

    Args:
        models: The Keras models of a translator.
        specs: A `TensorSpec` for each of their source inputs.
        examples: `Examples` of all their inputs.
    """
    if zeros_matter(models, open_axes(specs), examples):
        warn(
            "Zeros past the lengths change the output of this model, so a row "
            "may have other results if a longer row is in its batch. Does a "
            "mask reach the decoder? `Masking()` masks features that are zero.",
        )


def longest_of(specs, given) -> dict[tuple[int, int], int]:
    """Returns the largest size of each open axis.

    Args:
        specs: A `TensorSpec` for each source input.
        given: The argument `max_source_length` of an export: an integer for
            all open axes; a dictionary from names of inputs to an integer, or
            to a list with an integer for each open axis of the input; or
            `None`.

    Returns:
        Sizes by `(index of the input, axis)`; none if `given` is `None`.

    Raises:
        ValueError: If `given` has no effect or does not fit the inputs.
    """
    axes: dict[str, list] = {}
    for i, axis in open_axes(specs):
        axes.setdefault(specs[i].name, []).append((i, axis))
    if given is None:
        return {}
    if not axes:
        raise ValueError(
            "`max_source_length` needs a model whose features may have any "
            f"size. Received: max_source_length={given!r} and a model whose "
            f"source inputs are {[x.name for x in specs]}, of shapes "
            f"{[tuple(x.shape) for x in specs]}. Leave it out; a text is "
            "limited by the `max_length` of its `Text`."
        )
    if not isinstance(given, Mapping):
        given = dict.fromkeys(axes, given)
    elif set(given) != set(axes):
        raise ValueError(
            "`max_source_length` as a dictionary needs a length for each input "
            f"whose features may have any size, {list(axes)}. Received: "
            f"max_source_length={given!r}. An integer is for all of them."
        )
    found = {}
    for name, sizes in given.items():
        if not isinstance(sizes, (list, tuple)):
            sizes = [sizes] * len(axes[name])
        if len(sizes) != len(axes[name]):
            raise ValueError(
                "`max_source_length` needs a length for each axis of "
                f"'{name}' that may have any size, {len(axes[name])} of "
                f"them. Received: {name}={sizes!r}. An integer is for all of "
                "them."
            )
        for where, size in zip(axes[name], sizes, strict=True):
            found[where] = arguments.positive(size, "max_source_length")
    return found


def cut(tensors, longest) -> list:
    """Returns tensors cut to the largest sizes of their open axes.

    Args:
        tensors: The tensors.
        longest: Largest sizes by `(index of the tensor, axis)`.
    """
    tensors = list(tensors)
    for (i, axis), size in longest.items():
        tensors[i] = tensors[i][(slice(None),) * axis + (slice(size),)]
    return tensors


def zero_past(x, axis, length):
    """Returns a tensor that is zero past the lengths `(batch,)` on an axis."""
    size = tf.shape(x)[axis]
    shape = [-1, *(1 for _ in range(1, axis)), size]
    shape += [1] * (len(x.shape) - axis - 1)
    real = tf.reshape(tf.sequence_mask(length, size), shape)
    return tf.where(real, x, tf.zeros([], x.dtype))
