"""`XLASizes`: the sizes of batches for which XLA compiles a search.

XLA compiles a graph anew for each size of its inputs, which takes seconds. A
server sees texts of any length, in batches of any number of rows, so each of
its first requests would wait for the compiler. XLA therefore compiles only a
few sizes. `Sized` pads a batch to the next larger size before it enters the
compiled graph, and cuts the results back. A batch larger than the largest size
runs in the plain graph.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import tensorflow as tf

from keras_attn.backend import as_one_operation
from keras_attn.decoding.hypotheses import Hypotheses

# XLA helps with few rows. With more rows it gains less, and padding costs more.
_ROWS = 1, 2, 4, 8
_SOURCE = 8, 16, 32, 64


@dataclasses.dataclass(frozen=True)
class XLASizes:
    """The sizes of batches for which XLA compiles a search.

    One search is compiled for each combination of a number of rows and a size
    of the source, `len(rows) * len(source)` in all. Each takes a few seconds to
    compile.

    Args:
        rows: Numbers of rows. Defaults to 1, 2, 4 and 8, and for models that
            XLA runs slower with one row than with two, such as those with
            `MultiHeadAttention`, to 2, 4 and 8.
        source: Sizes of the source: in tokens, special tokens included, for
            texts; in frames for features. With several sources, the longest
            counts. Sizes above the longest possible text are reduced to its
            length. Defaults, for texts, to 8, 16, 32 and 64. Features of
            varying size need explicit sizes. Leave it out if all sources have
            one size.
        exact: Whether to compile for exactly these sizes, without padding the
            sources. The plain graph decodes sources of other sizes. Set this
            for models whose output changes with zeros after the features.

    Raises:
        ValueError: If sizes are not positive integers.

    Example:
        >>> sizes = keras_attn.XLASizes(rows=(1, 2), source=(16, 32))
        >>> list(sizes)
        [(1, 16), (1, 32), (2, 16), (2, 32)]
    """

    rows: tuple[int, ...] | None = None
    source: tuple[int, ...] | None = None
    exact: bool = False

    def __post_init__(self):
        for name in ("rows", "source"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _ascending(name, given))

    @classmethod
    def of(cls, given) -> "XLASizes | None":
        """Returns the argument `jit_compile` as sizes; None without XLA."""
        if isinstance(given, bool):
            return cls() if given else None
        if isinstance(given, cls):
            return given
        raise ValueError(
            "`jit_compile` must be True, False, or the sizes that XLA "
            f"compiles, `keras_attn.XLASizes(...)`. Received: "
            f"jit_compile={given!r}. Pass True for the default sizes."
        )

    def __iter__(self):
        """Yields each number of rows with each size of the source.

        The size is `None` for sources of one size.
        """
        for rows in self.rows or ():
            for size in self.source or (None,):
                yield rows, size

    def for_model(
        self, lone_row_is_slow: bool, longest: int | None, varies: bool
    ) -> "XLASizes":
        """Returns these sizes with the defaults filled in for a model.

        Args:
            lone_row_is_slow: Whether XLA runs one row slower than two.
            longest: Longest source text in tokens, or `None`.
            varies: Whether sources have different sizes.
        """
        rows, source = self.rows, self.source
        if rows is None:
            rows = _ROWS[1:] if lone_row_is_slow else _ROWS
        if not varies:
            if source or self.exact:
                raise ValueError(
                    "`XLASizes(source=..., exact=...)` is for sources of "
                    f"different sizes. Received: {self} for a model whose "
                    "sources have one size. Leave both out."
                )
            source = ()
        elif self.exact and not source:
            raise ValueError(
                "`exact=True` needs the sizes of the source, "
                "`XLASizes(source=(100, 200), exact=True)`. Received: "
                f"source={source}"
            )
        elif not source:
            if longest is None:
                raise ValueError(
                    "XLA must be told for which sizes of the features it "
                    "compiles. Received: none, and a model whose features "
                    "have any size. Pass the sizes that requests usually have, "
                    "`jit_compile=keras_attn.XLASizes(source=(100, 200))`."
                )
            source = _SOURCE
        if source and longest is not None:
            source = tuple(sorted({min(x, longest) for x in source}))
        return dataclasses.replace(self, rows=rows, source=source)


def _ascending(name, given):
    several = isinstance(given, Iterable) and not isinstance(given, str)
    found = tuple(given) if several else (given,)
    if not all(
        isinstance(x, Integral) and not isinstance(x, bool) and x > 0
        for x in found
    ) or (name == "rows" and not found):
        raise ValueError(
            f"`{name}` must be positive integers. Received: {name}={given!r}. "
            "Pass for example `(2, 8)`."
        )
    return tuple(sorted({int(x) for x in found}))


class Sized:
    """Pads batches to sizes for which XLA compiles a search.

    Args:
        sizes: `XLASizes` of a model, with the defaults filled in.
        axes: Pairs (input, axis) of the axes without a fixed size.
        padding: The value that pads each input.
        longest: The largest size of each input, or `None`.
        prefix: The number of columns to which prefixes are padded, and the
            padding value.
    """

    def __init__(
        self,
        sizes: XLASizes,
        axes: list,
        padding: list,
        longest: list,
        prefix: tuple[int, int],
    ):
        self._rows, self._source = sizes.rows or (), sizes.source or ()
        self._exact, self._axes, self._padding = sizes.exact, axes, padding
        self._longest, self._prefix = longest, prefix

    def run(
        self,
        compiled: Callable,
        plain: Callable,
        inputs: tuple,
        request: dict,
        attended: int | None,
    ) -> Hypotheses:
        """Decodes a batch, in the plain graph if no compiled size fits.

        Args:
            compiled: Function of inputs and a request, compiled by XLA.
                Returns `Hypotheses`.
            plain: Function without arguments that decodes the batch as it is.
            inputs: The model's source inputs, batch first.
            request: Further tensors for `compiled`, batch first.
            attended: Index of the input whose columns are those of the
                alignments, or `None` if the alignments have other columns.
        """
        rows = tf.shape(inputs[0])[0]
        size = self._size(inputs)
        fits = (rows > 0) & (rows <= self._rows[-1])
        if self._exact:
            fits &= self._has_exactly_a_size(inputs)
        elif self._axes:
            fits &= size <= self._source[-1]

        def padded():
            found = compiled(*self._padded(inputs, request, rows, size))
            return _cut(found, rows, inputs, attended)

        return tf.cond(fits, padded, as_one_operation(plain))

    def _size(self, inputs):
        """Returns the largest size of an axis of the source."""
        sizes = [tf.shape(inputs[i])[axis] for i, axis in self._axes]
        return tf.reduce_max([0, *sizes])

    def _has_exactly_a_size(self, inputs):
        """Returns whether all axes of the source have the same given size."""
        sizes = tf.stack([tf.shape(inputs[i])[axis] for i, axis in self._axes])
        known = tf.constant(self._source, tf.int32)
        return tf.reduce_any(tf.reduce_all(sizes == known[:, None], axis=1))

    def _padded(self, inputs, request, rows, size):
        count = _next(self._rows, rows)
        # Copies of the last row take no more steps than the row itself.
        taken = tf.minimum(tf.range(count), rows - 1)
        inputs, request = tf.nest.map_structure(
            lambda x: tf.gather(x, taken), (list(inputs), dict(request))
        )
        for i, axis in self._axes:
            wide = _next(self._source, size)
            if self._longest[i] is not None:
                wide = tf.minimum(wide, self._longest[i])
            inputs[i] = _widened(inputs[i], axis, wide, self._padding[i])
        if "prefix" in request:
            columns, value = self._prefix
            prefix = request["prefix"][:, :columns]
            request["prefix"] = _widened(prefix, 1, columns, value)
        return tuple(inputs), request


def _next(sizes, size):
    """Returns the smallest of the ascending `sizes` that is at least `size`."""
    sizes = tf.constant(sizes, tf.int32)
    return sizes[tf.reduce_sum(tf.cast(sizes < size, tf.int32))]


def _widened(x, axis, size, value):
    """Returns a tensor padded with `value` at the end of an axis to a size."""
    more = size - tf.shape(x)[axis]
    around: list[Any] = [[0, 0]] * len(x.shape)
    around[axis] = [0, more]
    return tf.pad(x, around, constant_values=tf.cast(value, x.dtype))


def _cut(found, rows, inputs, attended):
    """Returns hypotheses without the padding of rows and source columns."""
    found = tf.nest.map_structure(lambda x: x[:rows], found)
    if attended is not None:
        width = tf.shape(inputs[attended])[1]
    else:
        width = tf.reduce_max(found.columns)
    return found._replace(alignments=found.alignments[:, :, :, :width])
