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

from keras_attn.backend import as_one_operation
from keras_attn.backend import fold
from keras_attn.backend import tanh_gradient
from keras_attn.scores.blocks import Blocks

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
    dtype = keras.backend.result_type(query.dtype, keys.dtype, v.dtype)
    query, keys, v = (ops.cast(x, dtype) for x in (query, keys, v))
    if extra is not None or block_size == "all" or query.shape[1] == 1:
        return _plain(query, keys, v, extra)
    batch, target, units = ops.shape(query)
    source = ops.shape(keys)[1]
    if block_size is not None:
        return _blockwise(query, keys, v, Blocks(batch, target, 1, block_size))
    # A block is so many sentences, or so many queries of one sentence.
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


def _plain(query, keys, v, extra=None):
    """All pairs at once."""
    hidden = ops.expand_dims(query, 2) + ops.expand_dims(keys, 1)
    return _product(ops.tanh(hidden if extra is None else hidden + extra), v)


@ops.custom_gradient
def _product(hidden, v):
    """`hidden (batch, target, source, units)` times `v (units, 1)`."""

    def gradient(*args, upstream=None):
        return _gradient_of_product(_only(args, upstream), hidden, v)

    return _multiply(hidden, v), gradient


def _multiply(hidden, v):
    # A matrix product is 1.5 times faster than multiply and sum.
    scores = ops.matmul(ops.reshape(hidden, (-1, v.shape[0])), v)
    return ops.reshape(scores, ops.shape(hidden)[:3])


def _gradient_of_product(gradient, hidden, v):
    """From the scores' gradient, those of `hidden` and of `v`."""
    batch, target, source, units = ops.shape(hidden)
    # A product for each sentence: one for all rows laid end to end takes XLA
    # ten times as long.
    dv = ops.matmul(
        ops.reshape(gradient, (batch, 1, target * source)),
        ops.reshape(hidden, (batch, target * source, units)),
    )
    dv = ops.cast(ops.sum(_wide(dv), (0, 1)), v.dtype)
    flat = ops.matmul(ops.reshape(gradient, (-1, 1)), ops.transpose(v))
    return ops.reshape(flat, ops.shape(hidden)), ops.expand_dims(dv, 1)


def _by_size(query, keys, v):
    """One or the other, where sizes are known only when the graph runs.

    The gradient must not be left to `cond`, which would keep, at any size,
    what either way needs for it.
    """
    source = ops.cast(ops.shape(keys)[1], "float32")
    # In float32, which does not overflow.
    small = ops.cast(ops.size(query), "float32") * source <= LARGE

    def either(at_once, in_blocks):
        # Not `cond`, of which XLA compiles both branches before it drops one.
        return ops.switch(ops.cast(small, "int32"), [in_blocks, at_once])

    @as_one_operation
    def in_blocks(query, keys, v):
        return _forward(query, keys, v, _fitting(query, keys))

    @as_one_operation
    def gradient_in_blocks(gradient, query, keys, v):
        blocks = _fitting(query, keys)
        return _backward(gradient, query, keys, v, blocks)

    @ops.custom_gradient
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
    """Blocks that hold about `BLOCK` numbers, for sizes not known yet."""
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
    """Block for block, in the gradient too."""

    @ops.custom_gradient
    def scores(query, keys, v):
        def gradient(*args, upstream=None):
            upstream = _only(args, upstream)
            return _backward(upstream, query, keys, v, blocks)

        return _forward(query, keys, v, blocks), gradient

    return scores(query, keys, v)


def _only(args, upstream):
    """The gradient that comes in: PyTorch names it, others give it alone."""
    return args[0] if upstream is None else upstream


# There are no blocks of the source: those of one query are no larger than
# the keys. Of a block, q has shape `(sentences, queries, units)`, k
# `(sentences, source, units)`, and g, the gradient, `(sentences, queries,
# source)`.


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
    state = (ops.zeros((v.shape[0],), "float32"),)
    (dv,), (dq, dk) = fold(sentence_step, state, inputs, outputs=2)
    return (
        blocks.join_queries(dq) * v[:, 0],
        blocks.join_keys(dk) * v[:, 0],
        ops.cast(ops.expand_dims(dv, 1), v.dtype),
    )


def _wide(x):
    """In float32, in which sums over many blocks stay exact."""
    return ops.cast(x, "float32")
