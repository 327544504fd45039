"""What a `Translator` reads: lines of text, or arrays of features.

Either kind knows what its tensors look like at the border, how they become
the model's inputs, and what the columns of an alignment are called.
"""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_attn.text import SPECIAL_TOKENS
from keras_attn.text import UNKNOWN
from keras_attn.text import Text
from keras_attn.translator.results import Report

# Positions of an axis without a size, when a model is tried: enough for
# convolutions with strides, unless that is more than the model takes.
_SIZES = (32, 8, 2, 1)


class Lines:
    """Lines of text, whose ids are the model's one source input.

    Args:
        text: `Text` of the lines.
        columns_are_tokens: Whether an alignment has a column for each token.
            An encoder that joins positions makes fewer.
    """

    reads_text = True

    def __init__(self, text: Text, columns_are_tokens: bool = True):
        self.text = text
        self.columns_are_tokens = columns_are_tokens
        self.specs = (tf.TensorSpec([None], tf.string, name="text"),)
        self.input_specs = (tf.TensorSpec([None, None], tf.int32, name="ids"),)

    def with_columns(self, are_tokens: bool) -> "Lines":
        """The same, knowing whether columns of alignments are tokens."""
        return Lines(self.text, are_tokens)

    def open_size(self, sources: tuple) -> int:
        """Size of an axis without one in requests that warm a server up."""
        return 2

    def collect(self, lines) -> list[bytes]:
        """Checks what a caller gave and returns rows for `take()`."""
        lines = as_array(lines)
        if isinstance(lines, (str, bytes)):
            raise ValueError(
                "A `Translator` takes a list of strings. Received the string "
                f"{lines!r}. For one line pass a list of one."
            )
        if isinstance(lines, Mapping) or not hasattr(lines, "__iter__"):
            raise ValueError(
                "A `Translator` of text takes a list of strings, without "
                f"names. Received: {lines!r:.200} (of type "
                f"{type(lines).__name__})."
            )
        return [encode(line) for line in lines]

    def batch_of_one(self, line):
        """What `collect()` takes, of one source."""
        return [line]

    def order(self, rows) -> list[int]:
        """Like lengths go together."""
        return sorted(range(len(rows)), key=lambda i: len(rows[i]))

    def count(self, rows) -> int:
        return len(rows)

    def take(self, rows, indices) -> tuple:
        """The tensors of some rows."""
        return (tf.constant([rows[i] for i in indices], tf.string),)

    def inputs(self, given: tuple) -> tuple:
        """The model's source inputs."""
        (strings,) = given
        return (self.text.ids(strings),)

    def tokens(self, given: tuple, columns, width) -> tuple:
        """What an alignment's columns stand for, and how many are real."""
        if not self.columns_are_tokens:
            return numbers(columns, width)
        (strings,) = given
        tokens = self.text.tokens_of(strings)
        # As wide as the alignments, also where there is no row.
        padded = tokens.to_tensor("", shape=tf.stack([-1, width]))
        return padded, tf.cast(tokens.row_lengths(), tf.int32)

    def report(self, given: tuple, inputs: tuple) -> Report:
        """Reports which lines were cut, and their unknown tokens."""
        return report_of(self.text, *given, *inputs)

    def examples(self, random, model) -> tuple:
        """Three rows of ids, of which none is padding."""
        lowest = len(SPECIAL_TOKENS) - 1  # unknown is there in any text
        ids = random.integers(lowest, self.text.size, (3, 7), "int32")
        ids[0, 0] = self.text.size - 1
        return (ids,)


class Features:
    """Arrays, batch first, one for each source input of the model.

    Args:
        inputs: The model's inputs but the last.
    """

    columns_are_tokens = False
    reads_text = False

    def __init__(self, inputs: Sequence):
        self.specs = self.input_specs = tuple(
            tf.TensorSpec([None, *x.shape[1:]], x.dtype, name=x.name)
            for x in inputs
        )

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    def collect(self, arrays) -> tuple[np.ndarray, ...]:
        """Checks what a caller gave and returns rows for `take()`."""
        if isinstance(arrays, Mapping):
            if set(arrays) != set(self.names):
                raise ValueError(
                    "The arrays must bear the names of the model's source "
                    f"inputs, {self.names}. Received: {list(arrays)}."
                )
            arrays = tuple(arrays[name] for name in self.names)
        elif not isinstance(arrays, tuple):
            arrays = (arrays,)
        if len(arrays) != len(self.specs):
            raise ValueError(
                "An array is needed for each source input of the model, "
                f"{self.names}. Received: {len(arrays)}. Several go as a "
                "tuple or as a dictionary by these names."
            )
        arrays = tuple(
            _array(x, spec) for x, spec in zip(arrays, self.specs, strict=True)
        )
        if len({len(x) for x in arrays}) > 1:
            raise ValueError(
                "The arrays must have as many rows each, one for each source. "
                f"Received arrays of shape {[x.shape for x in arrays]}."
            )
        return arrays

    def batch_of_one(self, arrays):
        """What `collect()` takes, of one source."""
        if isinstance(arrays, Mapping):
            return {name: np.asarray(x)[None] for name, x in arrays.items()}
        if isinstance(arrays, tuple):
            return tuple(np.asarray(x)[None] for x in arrays)
        return np.asarray(arrays)[None]

    def order(self, rows) -> list[int]:
        """As they come: all have one size."""
        return list(range(len(rows[0])))

    def count(self, rows) -> int:
        return len(rows[0])

    def take(self, rows, indices) -> tuple:
        """The tensors of some rows."""
        return tuple(tf.constant(x[indices]) for x in rows)

    def inputs(self, given: tuple) -> tuple:
        """The model's source inputs."""
        return given

    def tokens(self, given: tuple, columns, width) -> tuple:
        """What an alignment's columns stand for, and how many are real."""
        return numbers(columns, width)

    def report(self, given: tuple, inputs: tuple) -> Report:
        """That nothing is cut and nothing unknown."""
        rows = tf.shape(inputs[0])[0]
        return Report(tf.zeros([rows], tf.bool), tf.zeros([rows], tf.int32))

    def examples(self, random, model) -> tuple:
        """Three rows, of small whole numbers where ids may be meant."""
        target = np.ones((3, model.inputs[-1].shape[1] or 1), "int32")
        for size in _SIZES:
            arrays = self._random(random, size)
            try:
                model([*arrays, target], training=False)
            except (ValueError, tf.errors.OpError):
                if size == _SIZES[-1]:
                    raise
                continue
            return arrays
        raise AssertionError("the last size returns or raises")

    def with_columns(self, are_tokens: bool) -> "Features":
        """The same: columns are numbered."""
        return self

    def open_size(self, sources: tuple) -> int:
        """Size of axes without one in the arrays of `examples()`."""
        sizes = [
            size
            for spec, array in zip(self.specs, sources, strict=True)
            for size, known in zip(array.shape[1:], spec.shape[1:], strict=True)
            if known is None
        ]
        return max(sizes, default=1)

    def _random(self, random, open_size):
        arrays = []
        for spec in self.specs:
            sizes = [size or open_size for size in spec.shape[1:]]
            if spec.dtype.is_floating:
                array = random.normal(size=[3, *sizes])
            else:
                array = random.integers(1, 3, [3, *sizes])
            arrays.append(array.astype(spec.dtype.as_numpy_dtype))
        return tuple(arrays)


def report_of(text: Text, strings, ids) -> Report:
    """Reports which strings were cut, and their unknown tokens."""
    unknown = tf.cast(ids == UNKNOWN, tf.int32)
    return Report(text.is_truncated(strings), tf.reduce_sum(unknown, axis=1))


def numbers(columns, width) -> tuple:
    """Positions as strings `(batch, width)`, "" past each row's columns."""
    names = tf.strings.as_string(tf.range(width))
    real = tf.sequence_mask(columns, width)
    return tf.where(real, names, ""), columns


def as_array(lines):
    """A tensor of TensorFlow's as a numpy array; all else as it is."""
    if tf.is_tensor(lines) and not isinstance(lines, tf.RaggedTensor):
        return lines.numpy()
    return lines


def encode(line) -> bytes:
    """A line as bytes; lone surrogates get through, for `Text` to replace."""
    line = as_array(line)
    if isinstance(line, bytes):
        return line
    if not isinstance(line, str):
        raise ValueError(
            "A `Translator` takes a list of strings. Received in it: "
            f"{line!r} (of type {type(line).__name__})."
        )
    return line.encode("utf-8", "surrogatepass")


def _array(value, spec):
    dtype = spec.dtype.as_numpy_dtype
    wanted = f"'{spec.name}' of shape {tuple(spec.shape)}, {spec.dtype.name}"
    try:
        array = np.asarray(as_array(value))
    except (TypeError, ValueError):  # rows of unequal shape
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" and array.dtype != dtype:
        raise ValueError(
            f"The model reads features, {wanted}: a number for each place. "
            f"Received: {value!r:.200}. Rows of unequal length must be padded "
            "first, for the model to mask; for strings pass a `source_text`."
        )
    fits = len(array.shape) == len(spec.shape) and all(
        size in (None, given)
        for size, given in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"The model reads features, {wanted}, batch first. Received an "
            f"array of shape {array.shape}. For one source pass a batch of "
            "one, `array[None]`."
        )
    if array.dtype.kind == "f" and not spec.dtype.is_floating:
        raise ValueError(
            f"The model reads features, {wanted}. Received an array of dtype "
            f"{array.dtype}. Convert it, `array.astype({spec.dtype.name!r})`."
        )
    return array.astype(dtype)
