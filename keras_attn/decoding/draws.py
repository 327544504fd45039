"""Draws tokens from logits with temperature, top-k and nucleus sampling."""

import tensorflow as tf

from keras_attn.decoding.candidates import CHUNK
from keras_attn.decoding.candidates import is_small
from keras_attn.decoding.candidates import size_of
from keras_attn.decoding.candidates import smaller
from keras_attn.decoding.hypotheses import POSSIBLE
from keras_attn.decoding.options import is_fixed

FIRST = 128  # number of tokens sorted first; most nuclei are smaller
BELOW_ONE = 1 - 2.0**-23
_SMALLEST = 1e-30  # any smaller temperature picks the likeliest token as well


def draw(logits, numbers, temperature, top_k, top_p):
    """Draws tokens, after temperature, top-k and nucleus, in this order.

    Args:
        logits: Tensor of shape `(batch, N, vocabulary)`.
        numbers: Uniform random numbers from 0 to 1, excluding 1, `(batch, N)`.
        temperature, top_k, top_p: Each a number, or a tensor `(batch,)` or
            `(batch, 1)`.

    Returns:
        Tokens of shape `(batch, N)`.
    """
    temperature, top_k, top_p = map(_by_row, (temperature, top_k, top_p))
    mass = _mass(logits, temperature)
    if not (_is(top_k, 0) and _is(top_p, 1)):
        likely = _likely(logits, mass, temperature, top_k, top_p)
        mass = tf.where(likely, mass, 0.0)
    return pick(mass, numbers)


def pick(mass, numbers):
    """Picks tokens by inverting the cumulative distribution.

    A hypothesis gets the first token at which the cumulative share of the
    probability exceeds its number.

    Args:
        mass: Unnormalized probabilities `(batch, N, vocabulary)`.
        numbers: Numbers from 0 to 1, excluding 1, `(batch, N)`.

    Returns:
        Tokens of shape `(batch, N)`, never one with probability 0.
    """
    vocabulary = size_of(mass)
    if is_small(mass):
        _, total = _cumulative(mass)
        return _first_past(mass, numbers * total)
    # Picks a chunk, then a token in it. This needs one pass over the
    # vocabulary.
    rest = -vocabulary % CHUNK
    mass = tf.pad(mass, [[0, 0], [0, 0], [0, rest]])
    chunks = (vocabulary + rest) // CHUNK
    mass = tf.reshape(mass, [-1, mass.shape[1], chunks, CHUNK])
    sums = tf.reduce_sum(mass, axis=-1)  # (B, N, chunks)
    cumulative, total = _cumulative(sums)
    passed = numbers * total
    chunk = _first_past(sums, passed)
    inside = tf.gather(mass, chunk, batch_dims=2)  # (B, N, CHUNK)
    passed -= tf.gather(cumulative, chunk, batch_dims=2)
    passed += tf.gather(sums, chunk, batch_dims=2)
    # Rounding must not move the pick past the chunk's end.
    _, total = _cumulative(inside)
    passed = tf.minimum(passed, total * BELOW_ONE)
    return chunk * CHUNK + _first_past(inside, passed)


def _first_past(mass, passed):
    cumulative, _ = _cumulative(mass)
    past = tf.cast(cumulative > passed[..., None], tf.int32)
    return tf.argmax(past, axis=-1, output_type=tf.int32)


def _cumulative(mass):
    """Returns cumulative sums, 0 where `mass` is 0, and the largest sum."""
    cumulative = tf.where(mass > 0, tf.cumsum(mass, axis=-1), 0.0)
    return cumulative, tf.reduce_max(cumulative, axis=-1)


def _mass(logits, temperature):
    """Returns unnormalized probabilities, 0 for forbidden tokens."""
    peak = tf.reduce_max(logits, axis=-1, keepdims=True)
    # The processor may take a smaller number for 0, and 0 / 0 has no value.
    temperature = tf.maximum(temperature, _SMALLEST)
    mass = tf.exp((logits - peak) / temperature)
    return tf.where(logits > POSSIBLE, mass, 0.0)


def _likely(logits, mass, temperature, top_k, top_p):
    """Returns whether top-k and nucleus keep each token, `(B, N, V)`."""
    vocabulary = size_of(logits)
    total = tf.reduce_sum(mass, axis=-1, keepdims=True)

    def bounds(size):
        return _bounds(logits, total, size, temperature, top_k, top_p)

    if is_fixed(top_k) and top_k > 0:
        least, last, _ = bounds(smaller(top_k, vocabulary))
    elif not tf.is_tensor(vocabulary) and vocabulary <= 2 * FIRST:
        least, last, _ = bounds(vocabulary)
    else:
        least, last, found = bounds(smaller(FIRST, vocabulary))
        least, last = tf.cond(
            tf.reduce_all(found),
            lambda: (least, last),
            lambda: bounds(vocabulary)[:2],
        )
    # `tf.math.top_k` ranks the lower id first among equal logits.
    return (logits > least) | (
        (logits == least) & (tf.range(vocabulary) <= last)
    )


def _bounds(logits, total, size, temperature, top_k, top_p):
    """Finds the least likely kept token among the `size` likeliest.

    Returns:
        Its logit, its id, and whether it is among them; each `(B, N, 1)`.
    """
    ordered, ids = tf.math.top_k(logits, size)
    stays = tf.ones_like(ids, tf.bool)
    if not is_fixed(top_k):
        stays = (tf.range(size) < top_k) | tf.equal(top_k, 0)
        stays = tf.broadcast_to(stays, tf.shape(ids))
    if not _is(top_p, 1):
        mass = tf.where(stays, _mass(ordered, temperature), 0.0)
        before = tf.cumsum(mass, axis=-1, exclusive=True)
        of_top_k = tf.reduce_sum(mass, axis=-1, keepdims=True)
        share = top_p * tf.where(tf.equal(top_k, 0), total, of_top_k)
        stays &= (before < share) | tf.equal(top_p, 1)
    count = tf.reduce_sum(tf.cast(stays, tf.int32), axis=-1, keepdims=True)
    # The count is 0 if all tokens are forbidden.
    last = tf.maximum(count - 1, 0)
    least = tf.gather(ordered, last, batch_dims=2)
    last = tf.gather(ids, last, batch_dims=2)
    all_stay = tf.equal(top_k, 0) & tf.equal(top_p, 1)
    least = tf.where(all_stay, float("-inf"), least)
    found = tf.where(
        tf.equal(top_k, 0), (count < size) | all_stay, top_k <= size
    )
    return least, last, found


def _by_row(option):
    return option if is_fixed(option) else tf.reshape(option, [-1, 1, 1])


def _is(option, value):
    """Returns whether an option is a fixed number equal to `value`."""
    return is_fixed(option) and option == value
