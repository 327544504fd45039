"""Random numbers that depend only on seed, hypothesis and time.

TensorFlow's stateless generators give different numbers under XLA than in a
graph, and their numbers depend on the shape. So a row's sample would change
with the compiler or with the batch. Threefry (Salmon et al., 2011) is a
function of a key and a counter in 32-bit integers and exact on every device.
One number costs a few hundred integer operations.
"""

import tensorflow as tf

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 20


def uniform(seed, count, length):
    """Returns uniform random numbers from 0 to 1, excluding 1.

    Args:
        seed: int32 tensor of shape `(batch,)`.
        count: Number of hypotheses.
        length: Number of steps.

    Returns:
        float32 tensor of shape `(length, batch, count)`. Each number depends
        only on the row's seed, the hypothesis and the step.
    """
    time = tf.range(length)[:, None, None]
    shape = [length, tf.shape(seed)[0], count]
    return _uniform(seed, tf.range(count), time, shape)


def uniform_at(seed, count, time):
    """Returns the numbers of `uniform` for one step, `(batch, count)`."""
    shape = [tf.shape(seed)[0], count]
    return _uniform(seed, tf.range(count), time, shape)


def _uniform(seed, hypothesis, time, shape):
    # A cast, since ONNX has no bitcast; a negative seed wraps around.
    key = tf.cast(tf.cast(seed, tf.int32), tf.uint32)[:, None]
    hypothesis, time = (tf.cast(x, tf.uint32) for x in (hypothesis, time))
    bits, _ = threefry(
        (tf.broadcast_to(key, shape), tf.zeros(shape, tf.uint32)),
        (tf.broadcast_to(hypothesis, shape), tf.broadcast_to(time, shape)),
    )
    # With 23 bits no number is rounded to 1.
    bits = tf.bitwise.right_shift(bits, _word(9))
    return tf.cast(tf.cast(bits, tf.int32), tf.float32) * 2.0**-23


def threefry(key, counter):
    """Computes Threefry-2x32 with 20 rounds.

    Args:
        key, counter: Pairs of uint32 tensors, all of one shape.

    Returns:
        Pair of uint32 tensors of that shape.

    References:
        - [Salmon et al., 2011](https://doi.org/10.1145/2063384.2063405)
    """
    third = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(*key), _word(_PARITY))
    keys = (*key, third)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for i in range(_ROUNDS // 4):
        for rotation in _ROTATIONS[i % 2]:
            x += y
            left = tf.bitwise.left_shift(y, _word(rotation))
            right = tf.bitwise.right_shift(y, _word(32 - rotation))
            y = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_or(left, right), x)
        x += keys[(i + 1) % 3]
        y += keys[(i + 2) % 3] + _word(i + 1)
    return x, y


def _word(value):
    return tf.constant(value, tf.uint32)
