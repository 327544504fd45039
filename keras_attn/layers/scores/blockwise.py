"""Additive scores in blocks, if the comparison of all pairs would be large.

The plain form holds `tanh(query + key)` for every pair, a tensor of shape
`(batch, target, source, units)`, and its gradient holds several such tensors.
In blocks only the scores, `(batch, target, source)`, are held in full. Each
block's `tanh` is used and dropped, and recomputed for the gradient. This also
takes less time, because a block stays in the processor's cache.

Recomputing cheap results is the technique of
[Chen et al., 2016](https://arxiv.org/abs/1604.06174), section 4.
"""

import math

import keras
from keras import ops

from keras_attn.backend import as_one_operation
from keras_attn.backend import custom_gradient
from keras_attn.backend import fold
from keras_attn.backend import tanh_gradient
from keras_attn.layers.scores.blocks import Blocks

# A comparison with more numbers than this is cut into blocks: 16 MiB in
# float32. Up to this size the plain form is as fast or faster, with its
# gradient.
LARGE = 2**22
# Numbers in one block: 1 MiB in float32, which fits a core's cache.
BLOCK = 2**18
# If sizes are unknown, up to this many queries (those of a step, or of a
# search's beams) are compared at once. That takes at most 8 times the memory
# of the keys.
FEW = 8


def additive(query, keys, v, extra=None, block_size=None):
    """Returns `v · tanh(query + key + extra)` for every query and key.

    Args:
        query: Tensor of shape `(batch, target, units)`.
        keys: Tensor of shape `(batch, source, units)`.
        v: Tensor of shape `(units, 1)`.
        extra: Tensor of shape `(batch, target, source, units)`, or `None`.
            It is as large as the tensor that blocks avoid, so `block_size`
            must then not be a number.
        block_size: How many queries of a sentence are compared with its keys
            at once, a positive integer. `"all"` compares the whole batch at
            once. Defaults to `None`: the whole batch while that is small,
            else as many queries as fit in a processor's cache. A single
            query is never split.

    Returns:
        Scores, a tensor of shape `(batch, target, source)`.
    """
    if extra is not None and block_size not in (None, "all"):
        raise ValueError(
            "Blocks are for scores that compare only the query and the keys. "
            f"Received: block_size={block_size!r} and one more term of shape "
            f"{tuple(extra.shape)}. Leave `block_size` out."
        )
    query, keys, v = map(ops.convert_to_tensor, (query, keys, v))
    dtype = keras.backend.result_type(query.dtype, keys.dtype, v.dtype)
    query, keys, v = (ops.cast(x, dtype) for x in (query, keys, v))
    if extra is not None or block_size == "all" or query.shape[1] == 1:
        return _plain(query, keys, v, extra)
    query, keys = _of_one_batch(query, keys)
    batch, target, units = ops.shape(query)
    source = ops.shape(keys)[1]
    if block_size is not None:
        return _blockwise(query, keys, v, Blocks(batch, target, 1, block_size))
    # A block is a number of sentences, or of queries of one sentence.
    sizes = batch, target, source
    if all(isinstance(size, int) for size in sizes):
        if math.prod(sizes) * units <= LARGE:
            return _plain(query, keys, v)
        sentences = max(1, BLOCK // (target * source * units))
        queries = max(1, BLOCK // (source * units))
        blocks = Blocks(batch, target, sentences, queries)
        return _blockwise(query, keys, v, blocks)
    if query.shape[1] is not None and query.shape[1] <= FEW:
        return _plain(query, keys, v)
    return _by_size(query, keys, v)


def _of_one_batch(query, keys):
    """Repeats the query or the keys if they are those of one sentence.

    Blocks are cut from both at once, so both need the whole batch.
    """
    one, other = query.shape[0], keys.shape[0]
    if one is not None and one == other:
        return query, keys
    if isinstance(one, int) and isinstance(other, int):
        batch = max(one, other)
    else:
        batch = ops.maximum(ops.shape(query)[0], ops.shape(keys)[0])
    return tuple(
        ops.broadcast_to(x, (batch, *ops.shape(x)[1:])) for x in (query, keys)
    )


def check_block_size(value):
    """Returns a `block_size` for `additive`, or raises `ValueError`."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if value is None or value == "all" or (number and value > 0):
        return value
    raise ValueError(
        "`block_size` must be a positive integer, how many queries are "
        'compared at once, or `"all"`, or `None`. Received: '
        f"block_size={value!r}. Pass `None` to choose by size."
    )


def _plain(query, keys, v, extra=None):
    """Scores all pairs at once."""
    hidden = ops.expand_dims(query, 2) + ops.expand_dims(keys, 1)
    return _product(ops.tanh(hidden if extra is None else hidden + extra), v)


@custom_gradient
def _product(hidden, v):
    """Multiplies `hidden (batch, target, source, units)` by `v (units, 1)`."""

    def gradient(*args, upstream=None):
        return _gradient_of_product(_only(args, upstream), hidden, v)

    return _multiply(hidden, v), gradient


def _multiply(hidden, v):
    # A matrix product is 1.5 times faster than multiply and sum.
    scores = ops.matmul(ops.reshape(hidden, (-1, v.shape[0])), v)
    return ops.reshape(scores, ops.shape(hidden)[:3])


def _gradient_of_product(gradient, hidden, v):
    """Returns the gradients of `hidden` and `v`, given that of the scores."""
    batch, target, source, units = ops.shape(hidden)
    # One product per sentence: a single product for all rows concatenated
    # takes XLA ten times as long.
    dv = ops.matmul(
        ops.reshape(gradient, (batch, 1, target * source)),
        ops.reshape(hidden, (batch, target * source, units)),
    )
    dv = ops.cast(ops.sum(_wide(dv), (0, 1)), v.dtype)
    flat = ops.matmul(ops.reshape(gradient, (-1, 1)), ops.transpose(v))
    return ops.reshape(flat, ops.shape(hidden)), ops.expand_dims(dv, 1)


def _by_size(query, keys, v):
    """Scores plainly or in blocks, if sizes are known only at run time.

    The gradient is written here, because that of `cond` would keep the tensors
    of both branches at any size.
    """
    source = ops.cast(ops.shape(keys)[1], "float32")
    # In float32, because an integer could overflow.
    small = ops.cast(ops.size(query), "float32") * source <= LARGE

    def either(at_once, in_blocks):
        # Not `cond`, because XLA compiles both its branches.
        return ops.switch(ops.cast(small, "int32"), [in_blocks, at_once])

    @as_one_operation
    def in_blocks(query, keys, v):
        return _forward(query, keys, v, _fitting(query, keys))

    @as_one_operation
    def gradient_in_blocks(gradient, query, keys, v):
        blocks = _fitting(query, keys)
        return _backward(gradient, query, keys, v, blocks)

    @custom_gradient
    def scores(query, keys, v):
        def all_at_once():
            hidden = _hidden(query, keys)
            return _multiply(hidden, v), hidden

        def nothing_kept():
            shape = (0, *ops.shape(query)[1:2], *ops.shape(keys)[1:])
            nothing = ops.zeros(shape, dtype=query.dtype)
            return in_blocks(query, keys, v), nothing

        found, hidden = either(all_at_once, nothing_kept)

        def gradient(*args, upstream=None):
            upstream = _only(args, upstream)

            def from_hidden():
                dh, dv = _gradient_of_product(upstream, hidden, v)
                dh = tanh_gradient(hidden, dh)
                return ops.sum(dh, 2), ops.sum(dh, 1), dv

            def from_the_beginning():
                return gradient_in_blocks(upstream, query, keys, v)

            return either(from_hidden, from_the_beginning)

        return found, gradient

    return scores(query, keys, v)


def _fitting(query, keys):
    """Returns `Blocks` of about `BLOCK` numbers, for unknown sizes."""
    batch, target = ops.shape(query)[:2]
    columns, source = (
        ops.cast(size, "float32") for size in (target, ops.shape(keys)[1])
    )
    of_a_query = ops.maximum(source * query.shape[-1], 1.0)
    of_a_sentence = ops.maximum(columns, 1.0) * of_a_query
    sentences, queries = (
        ops.cast(ops.maximum(BLOCK / numbers, 1.0), "int32")
        for numbers in (of_a_sentence, of_a_query)
    )
    return Blocks(batch, target, sentences, queries)


def _blockwise(query, keys, v, blocks):
    """Scores block by block, and computes the gradient block by block."""

    @custom_gradient
    def scores(query, keys, v):
        def gradient(*args, upstream=None):
            upstream = _only(args, upstream)
            return _backward(upstream, query, keys, v, blocks)

        return _forward(query, keys, v, blocks), gradient

    return scores(query, keys, v)


def _only(args, upstream):
    """Returns the incoming gradient, which PyTorch passes by name."""
    return args[0] if upstream is None else upstream


# The source is not cut: a block of one query is no larger than the keys. In a
# block, q has the shape `(sentences, queries, units)`, k `(sentences, source,
# units)`, and the gradient g `(sentences, queries, source)`.


def _hidden(q, k):
    return ops.tanh(ops.expand_dims(q, 2) + ops.expand_dims(k, 1))


def _forward(query, keys, v, blocks):
    def sentence_step(_, inputs):
        k, qs = inputs

        def query_step(_, inputs):
            (q,) = inputs
            return (), (_multiply(_hidden(q, k), v),)

        return (), fold(query_step, (), (qs,))[1]

    inputs = blocks.of_keys(keys), blocks.of_queries(query)
    (scores,) = fold(sentence_step, (), inputs)[1]
    return blocks.join_queries(scores)


def _backward(gradient, query, keys, v, blocks):
    def sentence_step(dv, inputs):
        k, qs, gs = inputs

        def query_step(state, inputs):
            q, g = inputs
            dk, dv = state
            h = _hidden(q, k)
            # One product per query: a single product for all rows
            # concatenated takes XLA twice as long.
            gh = ops.matmul(ops.expand_dims(g, 2), h)
            dv = dv + ops.sum(_wide(gh), (0, 1, 2))
            # The factor v is applied at the end, to all blocks at once.
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
    state = (ops.zeros((v.shape[0],), "float32"),)
    (dv,), (dq, dk) = fold(sentence_step, state, inputs, outputs=2)
    return (
        blocks.join_queries(dq) * v[:, 0],
        blocks.join_keys(dk) * v[:, 0],
        ops.cast(ops.expand_dims(dv, 1), v.dtype),
    )


def _wide(x):
    """Casts to float32, so sums over many blocks stay precise."""
    return ops.cast(x, "float32")
