"""Sums over the logits of the next token at all source positions.

At every position `s` of the source, each token `v` has a logit `z(s, v) = b_v +
o_v . tanh(query + key_s)`. These are `(batch, steps, source, vocabulary)`
numbers, far more than anything else in the decoder, and a step needs only sums
of them over positions or tokens. So they are computed for the steps of one
call, used and dropped, and recomputed for the gradient. The decoder makes a
call for each step.

Recomputing cheap results is the technique of
[Chen et al., 2016](https://arxiv.org/abs/1604.06174), section 4.
"""

from keras import ops

from keras_attn.backend import custom_gradient
from keras_attn.backend import tanh_gradient


def mixture(weights, query, keys, kernel, bias):
    """Mixes the distributions of all positions, in log space.

    Args:
        weights: Log-probability of each position, `(batch, steps, source)`,
            float32 or wider.
        query: Tensor of shape `(batch, steps, units)`.
        keys: Tensor of shape `(batch, source, units)`.
        kernel: Tensor of shape `(units, vocabulary)`, the `o_v`.
        bias: Tensor of shape `(vocabulary,)`.

    Returns:
        `logsumexp_s(weights + log_softmax_v(z))`, the log-probability of each
        token, `(batch, steps, vocabulary)`; and `logsumexp_v(z)`, the
        log-normalizer of each position, `(batch, steps, source)`. Both have
        the dtype of the weights.
    """

    @custom_gradient
    def mixed(weights, query, keys, kernel, bias):
        _, logits = _logits(query, keys, kernel, bias, weights.dtype)
        norms = ops.logsumexp(logits, axis=-1)
        mix = ops.logsumexp(
            ops.expand_dims(weights - norms, -1) + logits, axis=2
        )

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            of_mix, of_norms = _split(upstream, vocabulary)
            hidden, logits = _logits(query, keys, kernel, bias, weights.dtype)
            at_token = ops.expand_dims(weights - norms, -1) + logits
            # Each position's share of each token; then the gradient of
            # log_softmax_v(z).
            share = ops.exp(at_token - ops.expand_dims(mix, 2))
            of_tokens = share * ops.expand_dims(of_mix, 2)
            of_weights = ops.sum(of_tokens, axis=-1)
            probability = ops.exp(logits - ops.expand_dims(norms, -1))
            of_logits = of_tokens + probability * ops.expand_dims(
                of_norms - of_weights, -1
            )
            return of_weights, *_through(of_logits, hidden, kernel, bias)

        # As one tensor, because on some backends Keras supports custom
        # gradients of only one output.
        return ops.concatenate([mix, norms], axis=-1), gradient

    vocabulary = kernel.shape[-1]
    return _split(mixed(weights, query, keys, kernel, bias), vocabulary)


def spoken(query, keys, columns):
    """Scores one token at every position, `o_v . tanh(query + key_s)`.

    Args:
        query: Tensor of shape `(batch, steps, units)`.
        keys: Tensor of shape `(batch, source, units)`.
        columns: The column `o_v` of each step's token, `(batch, steps,
            units)`.

    Returns:
        Tensor of shape `(batch, steps, source)`.
    """

    @custom_gradient
    def scores(query, keys, columns):
        hidden = _hidden(query, keys)
        found = ops.matmul(hidden, ops.expand_dims(columns, -1))

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            hidden = _hidden(query, keys)
            of_columns = ops.matmul(ops.expand_dims(upstream, 2), hidden)
            of_hidden = ops.expand_dims(upstream, -1) * ops.expand_dims(
                columns, 2
            )
            of_sum = tanh_gradient(hidden, of_hidden)
            return (
                ops.sum(of_sum, axis=2),
                ops.sum(of_sum, axis=1),
                ops.squeeze(of_columns, 2),
            )

        return ops.squeeze(found, -1), gradient

    return scores(query, keys, columns)


def _hidden(query, keys):
    """Returns `tanh(query + key)`, `(batch, steps, source, units)`."""
    return ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(keys, 1))


def _logits(query, keys, kernel, bias, dtype):
    """Returns the hidden layer and the logits of all positions."""
    hidden = _hidden(query, keys)
    batch, steps, source, units = ops.shape(hidden)
    logits = ops.matmul(ops.reshape(hidden, (-1, units)), kernel) + bias
    shape = batch, steps, source, kernel.shape[-1]
    return hidden, ops.cast(ops.reshape(logits, shape), dtype)


def _through(of_logits, hidden, kernel, bias):
    """Returns the gradients of query, keys, kernel and bias."""
    units, vocabulary = kernel.shape
    of_logits = ops.reshape(of_logits, (-1, vocabulary))
    of_bias = ops.cast(ops.sum(of_logits, axis=0), bias.dtype)
    of_logits = ops.cast(of_logits, kernel.dtype)
    rows = ops.reshape(hidden, (-1, units))
    of_kernel = ops.matmul(ops.transpose(rows), of_logits)
    of_hidden = ops.matmul(of_logits, ops.transpose(kernel))
    of_hidden = ops.reshape(of_hidden, ops.shape(hidden))
    of_sum = tanh_gradient(hidden, of_hidden)
    return ops.sum(of_sum, axis=2), ops.sum(of_sum, axis=1), of_kernel, of_bias


def _split(both, vocabulary):
    return both[..., :vocabulary], both[..., vocabulary:]
