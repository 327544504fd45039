"""The best extensions of hypotheses, by few passes over the logits.

Beside the model itself, a step of a search costs what it takes to read the
logits of the vocabulary. A small one is read by the plain formula. Of a large
one only the largest logit of every chunk is looked at first: the best tokens
lie in the chunks with the largest maxima.
"""

import tensorflow as tf

CHUNK = 64  # logits; of 32 to 256 the fastest at 8,000 and 32,000
LARGE = 1024  # from here on chunks pay


def extend(logits, logp, count, banned=()):
    """Finds the best extensions of each source's hypotheses.

    Args:
        logits: float32 tensor of shape `(batch, beams, vocabulary)`.
        logp: Log-probabilities of the hypotheses, `(batch, beams)`.
        count: How many extensions to return, at most all there are.
        banned: `(id, penalty)` pairs: the penalty, a large negative number or
            scalar tensor, is added to the log-probability of every extension
            by this id.

    Returns:
        Log-probabilities of the extended hypotheses, best first, the beams
        they extend and the tokens they add, each `(batch, count)`.
    """
    if logits.shape[-1] < LARGE:
        if count == logits.shape[1] == 1:  # as greedy search asks
            return _likeliest(logits, logp, banned)
        return _extend_plainly(logits, logp, count, banned)
    return _extend_by_chunks(logits, logp, count, banned)


def _extend_plainly(logits, logp, count, banned):
    beams, vocabulary = logits.shape[1:]
    totals = tf.nn.log_softmax(logits) + logp[..., None]
    if banned:
        totals += _penalties(banned, vocabulary)
    totals = tf.reshape(totals, [-1, beams * vocabulary])
    logp, index = tf.math.top_k(totals, count)
    return logp, index // vocabulary, index % vocabulary


def _likeliest(logits, logp, banned):
    """The best extension of each source's one hypothesis."""
    allowed = logits
    if banned:
        allowed += _penalties(banned, logits.shape[-1])
    token = tf.argmax(allowed, axis=-1, output_type=tf.int32)
    logit = tf.gather(allowed, token[..., None], batch_dims=2)[..., 0]
    logp += logit - tf.reduce_logsumexp(logits, axis=-1)
    return logp, tf.zeros_like(token), token


def _extend_by_chunks(logits, logp, count, banned):
    beams, vocabulary = logits.shape[1:]
    probabilities = tf.nn.softmax(logits)
    chunks = -(-vocabulary // CHUNK)
    if padding := chunks * CHUNK - vocabulary:
        ends = [[0, 0], [0, 0], [0, padding]]
        logits = tf.pad(logits, ends, constant_values=float("-inf"))
        probabilities = tf.pad(probabilities, ends)
    logits = tf.reshape(logits, [-1, beams, chunks, CHUNK])
    maxima = tf.reduce_max(logits, axis=-1)  # (B, K, chunks)

    # log-sum-exp from the largest logit and its probability, which is never
    # small: a softmax is twice as fast as the sum of exponentials.
    peak = tf.argmax(maxima, axis=-1, output_type=tf.int32)
    likeliest = tf.gather(
        tf.reshape(probabilities, [-1, beams, chunks, CHUNK]),
        peak,
        batch_dims=2,
    )
    normaliser = tf.reduce_max(maxima, axis=-1) - tf.math.log(
        tf.reduce_max(likeliest, axis=-1)
    )
    offsets = (logp - normaliser)[..., None]  # (B, K, 1)

    # A chunk whose largest logit is banned may have nothing to offer.
    spoilt = len({token // CHUNK for token, _ in banned})
    chosen = min(count + beams * spoilt, beams * chunks)
    _, best = tf.math.top_k(
        tf.reshape(maxima + offsets, [-1, beams * chunks]), chosen
    )
    beam, chunk = best // chunks, best % chunks  # (B, chosen)
    totals = tf.gather(
        tf.reshape(logits, [-1, beams * chunks, CHUNK]), best, batch_dims=1
    ) + tf.gather(offsets, beam, batch_dims=1)
    if banned:
        penalties = _penalties(banned, chunks * CHUNK)
        totals += tf.gather(tf.reshape(penalties, [chunks, CHUNK]), chunk)
    logp, index = tf.math.top_k(tf.reshape(totals, [-1, chosen * CHUNK]), count)
    of_chosen, within = index // CHUNK, index % CHUNK
    beam = tf.gather(beam, of_chosen, batch_dims=1)
    token = tf.gather(chunk, of_chosen, batch_dims=1) * CHUNK + within
    return logp, beam, token


def _penalties(banned, size):
    """The penalties as a vector over ids."""
    return tf.add_n(
        [penalty * tf.one_hot(token, size) for token, penalty in banned]
    )
