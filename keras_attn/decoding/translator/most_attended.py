"""`most_attended`: the source tokens that replace unknown target tokens."""

import tensorflow as tf


def most_attended(
    alignments, source_tokens, source_lengths, first=0, last=1, unknown="<unk>"
):
    """Returns the source token with most attention, for each target token.

    This follows [Luong et al., 2015b](https://arxiv.org/abs/1410.8206), section
    3.3, with attention weights instead of the pointers of their model. The
    special tokens around the source are skipped, since they have no text.

    Args:
        alignments: Tensor of shape `(batch, N, time, source)`.
        source_tokens: Strings `(batch, source)`.
        source_lengths: Number of source tokens, special tokens included,
            `(batch,)`.
        first: Number of special tokens at the beginning of the source.
        last: Number of special tokens at its end.
        unknown: Token to use if a source has only special tokens.

    Returns:
        Strings `(batch, N, time)`.
    """
    width = tf.shape(source_tokens)[1]
    words = tf.sequence_mask(source_lengths - last, width)
    if first:
        words &= tf.range(width) >= first
    words = words[:, None, None]
    best = tf.argmax(tf.where(words, alignments, -1.0), axis=-1)
    found = tf.gather(
        tf.repeat(source_tokens[:, None], tf.shape(best)[1], axis=1),
        best,
        batch_dims=2,
    )
    has_words = source_lengths[:, None, None] > first + last
    return tf.where(has_words, found, unknown)
