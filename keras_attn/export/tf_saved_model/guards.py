"""Guards, which find bad rows among a request's sources and make them harmless.

Each guard finds one kind of error. It has two methods:

- `errors(given)` returns a list of tensors of strings `(batch,)`: the error of
  each row, "" for good rows.
- `harmless(given, bad)` returns the tensors after texts and lengths of bad rows
  are replaced, and features are cut to the largest size that the export reads.
"""

import tensorflow as tf

from keras_attn.export.tf_saved_model import rows
from keras_attn.export.tf_saved_model.lengths import Measured
from keras_attn.export.tf_saved_model.lengths import cut


class OfText:
    """Finds texts that their `Text` refuses as too long.

    Args:
        number: Index of the source input.
        text: The `Text`.
        name: Name of the input.
    """

    def __init__(self, number, text, name):
        self._number, self._text, self._name = number, text, name

    def errors(self, given) -> list:
        found = rows.of_text(self._text, given[self._number], self._name)
        return [] if found is None else [found]

    def harmless(self, given, bad) -> list:
        given = list(given)
        given[self._number] = tf.where(bad, "", given[self._number])
        return given


class OfSizes:
    """Finds features that are too long, if all rows have the tensor's size.

    Args:
        specs: A `TensorSpec` for each source input.
        longest: Largest sizes, the result of `longest_of()`.
    """

    def __init__(self, specs, longest):
        self._specs, self._longest = specs, longest

    def errors(self, given) -> list:
        batch = tf.shape(given[0])[0]
        return [
            rows.too_long(
                tf.fill([batch], tf.shape(given[i])[axis]),
                most,
                self._specs[i].name,
            )
            for (i, axis), most in self._longest.items()
        ]

    def harmless(self, given, bad) -> list:
        return cut(given, self._longest)


class OfLengths:
    """Finds lengths that are negative, larger than the tensor, or too long.

    Args:
        measured: The `Measured` sources.
        longest: Largest sizes, the result of `longest_of()`.
    """

    def __init__(self, measured: Measured, longest):
        self._measured, self._longest = measured, longest

    def errors(self, given) -> list:
        found = []
        for (i, axis), length in zip(
            self._measured.open, self._measured.lengths(given), strict=True
        ):
            columns = tf.shape(given[i])[axis]
            name = self._measured.specs[i].name
            found.append(rows.of_lengths(length, columns, name))
            if (i, axis) in self._longest:
                most = self._longest[i, axis]
                found.append(rows.too_long(length, most, name))
        return found

    def harmless(self, given, bad) -> list:
        *arrays, lengths = cut(given, self._longest)
        shape = [-1] + [1] * (len(lengths.shape) - 1)
        return [*arrays, tf.where(tf.reshape(bad, shape), 0, lengths)]
