"""The sources of a `Translator`: `LineSource`, or `FeatureSource` for arrays.

Each class knows the specs of its tensors, how to turn them into the model's
inputs, and how to name the columns of an alignment. `Several` combines them.
"""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_attn.decoding.translator.results import Report
from keras_attn.graph.rounding import Rounding
from keras_attn.incremental.refuse import in_short
from keras_attn.keras_internals import layers_within
from keras_attn.text.text import Text

# Sizes to try in turn for an axis without a fixed size. The largest is enough
# for strided convolutions, but some models take only fewer positions.
SIZES = (32, 8, 2, 1)
# Factor of these sizes for an audio wave, `(batch, samples)`.
_SAMPLES = 100


class LineSource:
    """Lines of text, whose ids are the model's only source input.

    Args:
        text: `Text` of the lines.
        attended: 0, the index of the only input, if an alignment has a column
            for each token; otherwise `None`. If the encoder merges positions,
            there are fewer columns.

    Attributes:
        texts: Pairs of the index of an input and its `Text`.
        leading: The pair to which length limits and shortlists apply.
        first: Number of special tokens with which each row begins.
        last: Number of special tokens with which each row ends.
    """

    reads_text = True

    def __init__(self, text: Text, attended: int | None = 0):
        self.text = text
        self.leading = 0, text
        self.texts = (self.leading,)
        self.attended = attended
        self.first = len(text.special.source_start)
        self.last = len(text.special.ends_source)
        self.specs = (tf.TensorSpec([None], tf.string, name="text"),)
        self.input_specs = (tf.TensorSpec([None, None], tf.int32, name="ids"),)

    def with_columns(self, inputs, width: int | None) -> "LineSource":
        """Returns these lines with `attended` set.

        Args:
            inputs: Inputs of the model.
            width: Number of columns of their alignments, or None without any.
        """
        attends = width is None or width == inputs[0].shape[1]
        return LineSource(self.text, 0 if attends else None)

    def with_texts(self, text: Text) -> "LineSource":
        """Returns these lines with another `Text` of the same ids."""
        return LineSource(text, self.attended)

    def open_size(self, sources: tuple) -> int:
        """Returns the size of axes without a size in warm-up requests."""
        return 2

    def collect(self, lines) -> list[bytes]:
        """Checks a caller's lines and returns rows for `take()`."""
        lines = as_array(lines)
        if isinstance(lines, (str, bytes)):
            raise ValueError(
                "A `Translator` takes a list of strings. Received: the string "
                f"{lines!r}. For one line pass a list of one."
            )
        if isinstance(lines, Mapping) or not hasattr(lines, "__iter__"):
            raise ValueError(
                "A `Translator` of text takes a list of strings, without "
                f"names. Received: {lines!r:.200} (of type "
                f"{type(lines).__name__})."
            )
        rows = [encode(line) for line in lines]
        self.text.require_short(tf.constant(rows, tf.string))
        return rows

    def batch_of_one(self, line):
        """Returns one line as `collect()` takes it."""
        return [line]

    def lengths(self, rows) -> list[int]:
        """Returns the length of each row in bytes; batches depend on it."""
        return [len(row) for row in rows]

    def token_lengths(self, rows) -> list[tuple[int, ...]]:
        """Returns the number of tokens of each row that a model reads."""
        found = self.text.lengths(tf.constant(rows, tf.string)).numpy()
        found = np.minimum(found, self.text.max_length)
        return [(length,) for length in found.tolist()]

    def count(self, rows) -> int:
        return len(rows)

    def take(self, rows, indices) -> tuple:
        """Returns the tensors of some rows."""
        return (tf.constant([rows[i] for i in indices], tf.string),)

    def inputs(self, given: tuple) -> tuple:
        """Returns the model's source inputs."""
        (strings,) = given
        return (self.text.source_ids(strings),)

    def tokens(self, given: tuple, columns, width) -> tuple:
        """Returns names of an alignment's columns, and how many are real."""
        if self.attended is None:
            return numbers(columns, width)
        (strings,) = given
        tokens = self.text.source_tokens(strings)
        # As wide as the alignments, even in an empty batch.
        padded = tokens.to_tensor("", shape=tf.stack([-1, width]))
        return padded, tf.cast(tokens.row_lengths(), tf.int32)

    def report(self, given: tuple, inputs: tuple) -> Report:
        """Reports cut lines, unknown tokens and empty lines."""
        return report_of(self.text, *given, *inputs)

    def examples(self, random, model, length: int = 7) -> tuple:
        """Returns three rows of ids without padding."""
        length = min(length, self.text.longest_source)
        usual = np.array(self.text.special.of_text(self.text.size), "int32")
        ids = usual[random.integers(0, len(usual), (3, length))]
        ids[0, 0] = usual[-1]
        return (ids,)


class FeatureSource:
    """Arrays, batch first, one for each source input of the model.

    Args:
        inputs: The model's inputs but the last.
        cut_at: Number of samples at which the model cuts each input, or
            `None` if it reads all of it.
        reads_sound: Whether each input is samples of sound, which are checked.
    """

    reads_text = False
    attended = None
    texts = ()
    leading = None
    first = last = 0

    def __init__(
        self,
        inputs: Sequence,
        cut_at: Sequence = (),
        reads_sound: Sequence[bool] = (),
    ):
        self._cut_at = list(cut_at)
        self._reads_sound = list(reads_sound)
        self.specs = self.input_specs = tuple(
            tf.TensorSpec([None, *x.shape[1:]], x.dtype, name=x.name)
            for x in inputs
        )

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    @property
    def cut_sizes(self) -> tuple:
        """Sizes to which the model cuts its inputs, if it cuts all of them."""
        return () if None in self._cut_at else tuple(self._cut_at)

    def collect(self, arrays) -> tuple[np.ndarray, ...]:
        """Checks a caller's arrays and returns rows for `take()`."""
        arrays = in_order(arrays, self.names)
        if not isinstance(arrays, tuple):
            arrays = (arrays,)
        taken = arrays
        if len(arrays) != len(self.specs):
            raise ValueError(
                "An array is needed for each source input of the model, "
                f"{self.names}. Received: {len(arrays)}. Pass several as a "
                "tuple, or as a dictionary by these names."
            )
        arrays = tuple(
            _array(x, spec) for x, spec in zip(arrays, self.specs, strict=True)
        )
        each = zip(arrays, taken, self._reads_sound, strict=False)
        for x, given, is_sound in each:
            if is_sound:
                _require_sound(x, given)
        if len({len(x) for x in arrays}) > 1:
            raise ValueError(
                "The arrays must all have the same number of rows, one for "
                "each source. Received: arrays of shape "
                f"{[x.shape for x in arrays]}."
            )
        return arrays

    def batch_of_one(self, arrays):
        """Returns one source's arrays as `collect()` takes them."""
        arrays = in_order(arrays, self.names)
        if isinstance(arrays, tuple):
            return tuple(np.asarray(x)[None] for x in arrays)
        return np.asarray(arrays)[None]

    def lengths(self, rows) -> list[int]:
        """Returns 1 for each row: all have one size."""
        return [1] * len(rows[0])

    def count(self, rows) -> int:
        return len(rows[0])

    def take(self, rows, indices) -> tuple:
        """Returns the tensors of some rows."""
        return tuple(tf.constant(x[indices]) for x in rows)

    def inputs(self, given: tuple) -> tuple:
        """Returns the model's source inputs, which are those given."""
        return given

    def tokens(self, given: tuple, columns, width) -> tuple:
        """Returns names of an alignment's columns, and how many are real."""
        return numbers(columns, width)

    def report(self, given: tuple, inputs: tuple) -> Report:
        """Reports cut and empty rows; no token is unknown."""
        rows = tf.shape(inputs[0])[0]
        sizes = [tf.reduce_prod(tf.shape(x)[1:]) for x in inputs]
        empty = tf.fill([rows], tf.reduce_max(sizes) == 0)
        cut = tf.zeros([rows], tf.bool)
        for x, size in zip(inputs, self._cut_at, strict=False):
            if size is not None:
                cut |= tf.reduce_any(x[:, size:] != 0, axis=1)
        return Report(cut, tf.zeros([rows], tf.int32), empty)

    def examples(self, random, model) -> tuple:
        """Returns three rows; integer inputs are 1 or 2, as they may be ids."""
        target = np.ones((3, model.inputs[-1].shape[1] or 1), "int32")
        for size in SIZES:
            arrays = self.random(random, size)
            try:
                model([*arrays, target], training=False)
            except (ValueError, tf.errors.OpError) as error:
                if size == SIZES[-1]:
                    _require_32_bits(model, error)
                    raise
                continue
            return arrays
        raise AssertionError("the last size returns or raises")

    def with_columns(self, inputs, width: int | None) -> "FeatureSource":
        """Returns itself: the columns of features are always numbered."""
        return self

    def open_size(self, sources: tuple) -> int:
        """Returns the size that `examples()` gave to axes without a size."""
        sizes = [
            size
            for spec, array in zip(self.specs, sources, strict=True)
            for size, known in zip(array.shape[1:], spec.shape[1:], strict=True)
            if known is None
        ]
        return max(sizes, default=1)

    def random(self, random, open_size) -> tuple:
        """Returns three random rows, with `open_size` along open axes."""
        arrays = []
        for spec in self.specs:
            is_wave = spec.dtype.is_floating and len(spec.shape) == 2
            usual = open_size * _SAMPLES if is_wave else open_size
            sizes = [size or usual for size in spec.shape[1:]]
            if spec.dtype.is_floating:
                array = random.normal(size=[3, *sizes])
            else:
                array = random.integers(1, 3, [3, *sizes])
            arrays.append(array.astype(spec.dtype.as_numpy_dtype))
        return tuple(arrays)


def open_axes(specs) -> list[tuple[int, int]]:
    """Returns (input index, axis) for each axis without a fixed size."""
    return [
        (i, axis)
        for i, spec in enumerate(specs)
        for axis, size in enumerate(spec.shape)
        if axis and size is None
    ]


def report_of(text: Text, strings, ids) -> Report:
    """Reports which strings were cut or empty, and their unknown tokens."""
    unknown = ids == text.special.unknown
    if text.special.unknown < 0:  # `ids` has none of them
        unknown = text.uncut_ids(strings).to_tensor(0) < 0
    lengths = text.lengths(strings)
    return Report(
        truncated=lengths > text.max_length,
        unknown=tf.reduce_sum(tf.cast(unknown, tf.int32), axis=1),
        empty=lengths == 0,
    )


def numbers(columns, width) -> tuple:
    """Returns column numbers as strings `(batch, width)`, and `columns`.

    Args:
        columns: Number of real columns of each row, `(batch,)`. The strings
            after these are "".
        width: Number of all columns.
    """
    names = tf.strings.as_string(tf.range(width))
    real = tf.sequence_mask(columns, width)
    return tf.where(real, names, ""), columns


def in_order(sources, names):
    """Returns sources by name as a tuple in the order of the model's inputs.

    Sources that are not a dictionary are returned unchanged.
    """
    if not isinstance(sources, Mapping):
        return sources
    if set(sources) != set(names):
        raise ValueError(
            "Sources by name must have the names of the model's source "
            f"inputs, {names}. Received: {list(sources)}."
        )
    return tuple(sources[name] for name in names)


def as_array(lines):
    """Converts a tensor to a numpy array; returns anything else unchanged."""
    if tf.is_tensor(lines) and not isinstance(lines, tf.RaggedTensor):
        return lines.numpy()
    return lines


def is_list_of(count, given) -> bool:
    """Returns whether `given` is a list of `count` items, not a string."""
    if isinstance(given, (str, bytes)) or not hasattr(given, "__len__"):
        return False
    return getattr(given, "shape", None) != () and len(given) == count


def encode(line) -> bytes:
    """Returns a line as bytes; lone surrogates stay, for `Text` to replace."""
    line = as_array(line)
    if isinstance(line, bytes):
        return line
    if not isinstance(line, str):
        raise ValueError(
            "A `Translator` takes a list of strings. Received in it: "
            f"{line!r} (of type {type(line).__name__}). To pass arrays, make "
            "the translator with `source_text=None`."
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
            f"The model reads features, {wanted}: an array of numbers. "
            f"Received: {value!r:.200}. Pad rows of unequal length first, "
            "with values that the model masks; for strings pass a "
            "`source_text`."
        )
    fits = len(array.shape) == len(spec.shape) and all(
        size in (None, given)
        for size, given in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"The model reads features, {wanted}, batch first. Received: an "
            f"array of shape {array.shape}. For one source pass a batch of "
            "one, `array[None]`."
        )
    if array.dtype.kind == "f" and not spec.dtype.is_floating:
        raise ValueError(
            f"The model reads features, {wanted}. Received: an array of dtype "
            f"{array.dtype}. Convert it, `array.astype({spec.dtype.name!r})`."
        )
    return array.astype(dtype)


def _require_sound(array, given):
    """Raises `ValueError` unless samples are floating numbers, and finite."""
    kind = np.asarray(as_array(given)).dtype
    if kind.kind != "f":
        raise ValueError(
            "Samples of sound must be floating numbers from -1 to 1. Received: "
            f"an array of {kind}. Divide samples of 16 bits by 32768."
        )
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            "Samples of sound must be finite. Received: NaN or infinite ones "
            f"in row {int(bad.argmax())}. Replace them by silence, "
            "`numpy.nan_to_num(samples, posinf=0, neginf=0)`."
        )


def _require_32_bits(model, error):
    """Raises `ValueError` if a model that computes in 16 bits fails.

    Some layers, such as KerasHub's of Moonshine, make numbers in float32.
    """
    half = Rounding(layers_within(model)).half
    if half is not None:
        raise ValueError(
            f"The model must take its inputs. Received: a model in {half}, "
            f"which fails: {in_short(error):.300}. Not every layer computes "
            "in 16 bits: build the model, or load it, in float32, after "
            '`keras.config.set_dtype_policy("float32")`.'
        ) from error
