"""Additive scores in blocks, for sentences whose comparison would be large.

The plain form holds `tanh(query + key)` for every pair, a tensor of shape
`(batch, target, source, units)`, and its gradient holds several. In blocks
only the scores, `(batch, target, source)`, exist whole: each block's `tanh`
is used and dropped, and calculated once more for the gradient. That takes
less time too, because a block stays in the processor's cache.

The technique of calculating again what is cheap to calculate is that of
[Chen et al., 2016](https://arxiv.org/abs/1604.06174), section 4.
"""

import math

import keras
from keras import ops

from keras_attn.backend import fold

# Numbers in the tensor above which it is not made whole: 16 MiB in float32.
# Below that, plain is as fast or faster, gradient included.
LARGE = 2**22
# Numbers in one block: 1 MiB in float32, which fits a core's cache.
BLOCK = 2**18
# So few queries, as a step or the beams of a search, are compared at once
# where the sizes are not known: that takes no more than 8 times the keys.
FEW = 8


def additive(query, keys, v, extra=None, block_size=None):
    """`v · tanh(query + key + extra)` for every pair of a query and a key.

    Args:
        query: Tensor of shape `(batch, target, units)`.
        keys: Tensor of shape `(batch, source, units)`.
        v: Tensor of shape `(units, 1)`.
        extra: Tensor of shape `(batch, target, source, units)`, or `None`.
            It is itself as large as what blocks avoid, so it goes with no
            number for `block_size`.
        block_size: How many queries of a sentence are compared with its keys
            at once, a positive integer; `"all"` compares all of the batch.
            Defaults to `None`: all while that is small, and else as many as
            fit in a processor's cache. A single query is never split.

    Returns:
        Scores, a tensor of shape `(batch, target, source)`.
    """
    if extra is not None and block_size not in (None, "all"):
        raise ValueError(
            "Blocks are for scores that compare the query and the keys alone. "
            f"Received: block_size={block_size!r} and one more term of shape "
            f"{tuple(extra.shape)}. Leave `block_size` out."
        )
    query, keys, v = map(ops.convert_to_tensor, (query, keys, v))
    if extra is not None or block_size == "all" or query.shape[1] == 1:
        return _plain(query, keys, v, extra)
    batch, target, units = ops.shape(query)
    source = ops.shape(keys)[1]
    if block_size is not None:
        blocks = _Blocks(batch, target, 1, block_size)
        return _blockwise(query, keys, v, blocks)
    # A block is so many sentences, or so many queries of one sentence.
    sizes = batch, target, source
    if all(isinstance(size, int) for size in sizes):
        if math.prod(sizes) * units <= LARGE:
            return _plain(query, keys, v)
        sentences = max(1, BLOCK // (target * source * units))
        queries = max(1, BLOCK // (source * units))
        blocks = _Blocks(batch, target, sentences, queries)
        return _blockwise(query, keys, v, blocks)
    if query.shape[1] is not None and query.shape[1] <= FEW:
        return _plain(query, keys, v)
    rows, columns, sources = (ops.cast(size, "float32") for size in sizes)
    one_query = ops.maximum(sources * units, 1.0)  # floats do not overflow
    sentences = _quotient(BLOCK, ops.maximum(columns, 1.0) * one_query)
    # Not within `cond`: XLA compiles both branches' gradients, with zeros for
    # whatever the branch that is not taken would have computed.
    blocks = _Blocks(batch, target, sentences, _quotient(BLOCK, one_query))
    return ops.cond(
        rows * columns * one_query <= LARGE,
        lambda: _plain(query, keys, v),
        lambda: _blockwise(query, keys, v, blocks),
    )


def check_block_size(value):
    """`value` if `additive` takes it as its `block_size`."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if value is None or value == "all" or (number and value > 0):
        return value
    raise ValueError(
        "`block_size` must be a positive integer, how many queries are "
        'compared at once, or `"all"`, or `None`. Received: '
        f"block_size={value!r}. `None` chooses by size."
    )


def _quotient(number, divisor):
    """The whole quotient of float32 tensors, as an integer, at least 1."""
    return ops.cast(ops.maximum(number / divisor, 1.0), "int32")


def _plain(query, keys, v, extra=None):
    """All pairs at once."""
    hidden = ops.expand_dims(query, 2) + ops.expand_dims(keys, 1)
    hidden = ops.tanh(hidden if extra is None else hidden + extra)
    # A matrix product with `v` is 1.5 times faster than multiply and sum.
    scores = ops.matmul(ops.reshape(hidden, (-1, v.shape[0])), v)
    return ops.reshape(scores, (*ops.shape(query)[:2], ops.shape(keys)[1]))


def _blockwise(query, keys, v, blocks):
    """Block for block, in the gradient too.

    There are no blocks of the source: those of one query are no larger than
    the keys.
    """
    dtype = keras.backend.result_type(query.dtype, keys.dtype, v.dtype)
    query, keys, v = (ops.cast(x, dtype) for x in (query, keys, v))
    units, source = v.shape[0], ops.shape(keys)[1]

    # Of a block, q has shape `(sentences, queries, units)`, k `(sentences,
    # source, units)`, and g, the gradient, `(sentences, queries, source)`.
    def hidden(q, k):
        return ops.tanh(ops.expand_dims(q, 2) + ops.expand_dims(k, 1))

    def forward(query, keys, v):
        def sentence_step(_, inputs):
            k, qs = inputs

            def query_step(_, inputs):
                (q,) = inputs
                h = ops.reshape(hidden(q, k), (-1, units))
                shape = (*ops.shape(q)[:2], source)
                return (), (ops.reshape(ops.matmul(h, v), shape),)

            return (), fold(query_step, (), (qs,))[1]

        inputs = blocks.of_keys(keys), blocks.of_queries(query)
        (scores,) = fold(sentence_step, (), inputs)[1]
        return blocks.join_queries(scores)

    def backward(gradient, query, keys, v):
        def sentence_step(dv, inputs):
            k, qs, gs = inputs

            def query_step(state, inputs):
                q, g = inputs
                dk, dv = state
                h = hidden(q, k)
                # A product for each query: one for all rows laid end to end
                # takes XLA twice as long.
                gh = ops.matmul(ops.expand_dims(g, 2), h)
                dv = dv + ops.sum(_wide(gh), (0, 1, 2))
                # But for v, by which all is multiplied in the end.
                dh = (1 - h * h) * ops.expand_dims(g, -1)
                return (dk + _wide(ops.sum(dh, 1)), dv), (ops.sum(dh, 2),)

            state = ops.zeros_like(_wide(k)), *dv
            (dk, *dv), (dq,) = fold(query_step, state, (qs, gs))
            return tuple(dv), (dq, ops.cast(dk, k.dtype))

        inputs = (
            blocks.of_keys(keys),
            blocks.of_queries(query),
            blocks.of_queries(gradient),
        )
        state = (ops.zeros((units,), "float32"),)
        (dv,), (dq, dk) = fold(sentence_step, state, inputs, outputs=2)
        return (
            blocks.join_queries(dq) * v[:, 0],
            blocks.join_keys(dk) * v[:, 0],
            ops.cast(ops.expand_dims(dv, 1), v.dtype),
        )

    @ops.custom_gradient
    def scores(query, keys, v):
        def gradient(*args, upstream=None):
            # PyTorch names the gradient, the others give it alone.
            (upstream,) = args if upstream is None else (upstream,)
            return backward(upstream, query, keys, v)

        return forward(query, keys, v), gradient

    return scores(query, keys, v)


def _wide(x):
    """In float32, in which sums over many blocks stay exact."""
    return ops.cast(x, "float32")


class _Blocks:
    """Cuts sentences and queries into blocks, and lays them end to end.

    The last of either is filled up with zeros.
    """

    def __init__(self, batch, target, sentences, queries):
        self.batch, self.target = batch, target
        # As many blocks as needed, all of about the same size.
        self.rows = _at_least_one(-(-batch // sentences))
        self.sentences = -(-batch // self.rows)
        self.columns = _at_least_one(-(-target // queries))
        self.queries = -(-target // self.columns)

    def of_keys(self, x):
        """`(batch, source, units)` to `(rows, sentences, source, units)`."""
        x = _fill(x, 0, self.rows * self.sentences)
        return ops.reshape(x, (self.rows, self.sentences, *ops.shape(x)[1:]))

    def join_keys(self, x):
        x = ops.reshape(x, (-1, *ops.shape(x)[2:]))
        return x[: self.batch]

    def of_queries(self, x):
        """From `(batch, target, dim)`.

        To `(rows, columns, sentences, queries, dim)`.
        """
        x = _fill(x, 0, self.rows * self.sentences)
        x = _fill(x, 1, self.columns * self.queries)
        sizes = self.rows, self.sentences, self.columns, self.queries
        x = ops.reshape(x, (*sizes, ops.shape(x)[-1]))
        return ops.transpose(x, (0, 2, 1, 3, 4))

    def join_queries(self, x):
        x = ops.transpose(x, (0, 2, 1, 3, 4))
        rows, columns = self.rows * self.sentences, self.columns * self.queries
        x = ops.reshape(x, (rows, columns, ops.shape(x)[-1]))
        return x[: self.batch, : self.target]


def _fill(x, axis, size):
    missing = size - ops.shape(x)[axis]
    if isinstance(missing, int) and missing == 0:
        return x
    widths = [(0, 0)] * 3
    widths[axis] = (0, missing)
    return ops.pad(x, widths)


def _at_least_one(size):
    return max(size, 1) if isinstance(size, int) else ops.maximum(size, 1)
