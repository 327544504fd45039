"""Finds the best extensions of hypotheses in few passes over the logits.

Apart from the model itself, reading the logits is the main cost of a step. A
small vocabulary is read by the plain formula. A large one is divided into
chunks: the best tokens lie in the chunks with the largest maxima, so only
these chunks are read token by token.
"""

import functools

import tensorflow as tf

# Logits per chunk: the fastest size from 32 to 256, measured with vocabularies
# of 8,000 and 32,000 tokens.
CHUNK = 64
LARGE = 1024  # smallest vocabulary for which chunks are faster


def extend(logits, logp, count, banned=(), allowed=None):
    """Finds the best extensions of each source's hypotheses.

    Args:
        logits: float32 tensor of shape `(batch, beams, vocabulary)`. Its
            softmax is the distribution of the next token.
        logp: Log-probabilities of the hypotheses, `(batch, beams)`.
        count: Number of extensions to return, at most `beams * vocabulary`.
        banned: `(id, penalty)` pairs. The penalty is added to the
            log-probability of every extension by this id. It is a large
            negative number, or a tensor of such numbers, scalar or `(batch,)`.
        allowed: Logits after masking, `(batch, beams, vocabulary)`, or None
            for `logits`. They rank the extensions, but the softmax is still
            normalized over `logits`.

    Returns:
        The log-probabilities of the extended hypotheses, best first; the beams
        that they extend; and the tokens that they add; each `(batch, count)`.
    """
    if is_small(logits):
        return _extend_plainly(logits, logp, count, banned, allowed)
    found = _extend_by_chunks(logits, logp, count, banned, allowed)
    for x in found:  # a loop needs the sizes, which reshaping may forget
        x.set_shape([logits.shape[0], count])
    return found


def log_normalizer(logits):
    """Returns log-sum-exp over the last axis; not all logits may be -inf."""
    peak = tf.reduce_max(logits, axis=-1, keepdims=True)
    total = tf.reduce_sum(tf.exp(logits - peak), axis=-1)
    return peak[..., 0] + tf.math.log(total)


def size_of(logits):
    """Returns the number of columns, a tensor if it is not known statically."""
    known = logits.shape[-1]
    return tf.shape(logits)[-1] if known is None else known


def smaller(one, other):
    """Returns the smaller of two sizes, a tensor if either is a tensor."""
    unknown = tf.is_tensor(one) or tf.is_tensor(other)
    return tf.minimum(one, other) if unknown else min(one, other)


def is_small(logits) -> bool:
    """Returns whether the vocabulary is too small for chunks to be faster."""
    known = logits.shape[-1]
    return known is not None and known < LARGE


def _extend_plainly(logits, logp, count, banned, allowed):
    beams, vocabulary = logits.shape[1:]
    totals = log_probabilities(logits, banned, allowed) + logp[..., None]
    totals = tf.reshape(totals, [-1, beams * vocabulary])
    logp, index = tf.math.top_k(totals, count)
    return logp, index // vocabulary, index % vocabulary


def likeliest(logits, logp, banned, allowed):
    """Finds the best extension of each hypothesis.

    Args:
        logits, logp, banned, allowed: As for `extend`.

    Returns:
        Log-probabilities of the extended hypotheses and the tokens they add,
        each `(batch, beams)`.
    """
    found = log_probabilities(logits, banned, allowed)
    best = tf.reduce_max(found, axis=-1, keepdims=True)
    # The first token with the best value. XLA's argmax is several times slower.
    last = size_of(logits) - 1
    token = tf.where(found == best, tf.range(last + 1), last)
    return logp + best[..., 0], tf.reduce_min(token, axis=-1)


def log_probabilities(logits, banned, allowed):
    """Returns log-probabilities of the next token.

    Args:
        logits, banned, allowed: As for `extend`.

    Returns:
        float32 `(batch, beams, vocabulary)`.
    """
    if allowed is None:
        found = tf.nn.log_softmax(logits)
    else:
        found = allowed - log_normalizer(logits)[..., None]
    if banned:
        found += penalties(banned, size_of(logits))
    return found


def _extend_by_chunks(logits, logp, count, banned, allowed):
    beams, vocabulary = logits.shape[1], size_of(logits)
    probabilities = tf.nn.softmax(logits)
    chunks = -(-vocabulary // CHUNK)
    padding = chunks * CHUNK - vocabulary
    if tf.is_tensor(padding) or padding:
        ends = [[0, 0], [0, 0], [0, padding]]
        logits = tf.pad(logits, ends, constant_values=float("-inf"))
        probabilities = tf.pad(probabilities, ends)
        if allowed is not None:
            allowed = tf.pad(allowed, ends, constant_values=float("-inf"))
    logits = tf.reshape(logits, [-1, beams, chunks, CHUNK])
    maxima = tf.reduce_max(logits, axis=-1)  # (B, K, chunks)

    # log-sum-exp is the largest logit minus the log of its probability, which
    # is never tiny. The softmax is twice as fast as a sum of exponentials.
    peak = tf.argmax(maxima, axis=-1, output_type=tf.int32)
    likeliest = tf.gather(
        tf.reshape(probabilities, [-1, beams, chunks, CHUNK]),
        peak,
        batch_dims=2,
    )
    normalizer = tf.reduce_max(maxima, axis=-1) - tf.math.log(
        tf.reduce_max(likeliest, axis=-1)
    )
    offsets = (logp - normalizer)[..., None]  # (B, K, 1)
    if allowed is not None:
        logits = tf.reshape(allowed, [-1, beams, chunks, CHUNK])
        maxima = tf.reduce_max(logits, axis=-1)

    # Extra chunks make up for chunks that were chosen for a banned token.
    spoilt = len({token // CHUNK for token, _ in banned})
    chosen = smaller(count + beams * spoilt, beams * chunks)
    _, best = tf.math.top_k(
        tf.reshape(maxima + offsets, [-1, beams * chunks]), chosen
    )
    beam, chunk = best // chunks, best % chunks  # (B, chosen)
    totals = tf.gather(
        tf.reshape(logits, [-1, beams * chunks, CHUNK]), best, batch_dims=1
    ) + tf.gather(offsets, beam, batch_dims=1)
    if banned:
        costs = penalties(banned, chunks * CHUNK)
        same = costs.shape[0] == 1  # for all rows
        costs = tf.reshape(costs, [-1, chunks, CHUNK])
        if same:
            totals += tf.gather(costs[0], chunk)
        else:
            totals += tf.gather(costs, chunk, batch_dims=1)
    logp, index = tf.math.top_k(tf.reshape(totals, [-1, chosen * CHUNK]), count)
    of_chosen, within = index // CHUNK, index % CHUNK
    beam = tf.gather(beam, of_chosen, batch_dims=1)
    token = tf.gather(chunk, of_chosen, batch_dims=1) * CHUNK + within
    return logp, beam, token


def penalties(banned, size):
    """Returns the penalties of `size` ids, `(batch or 1, 1, size)`."""
    return functools.reduce(
        tf.add,
        [
            tf.reshape(penalty, [-1, 1, 1]) * tf.one_hot(token, size)
            for token, penalty in banned
        ],
    )
