"""Greedy search: the likeliest token at every step."""

import keras

from keras_attn.search.base import Search


@keras.saving.register_keras_serializable("keras_attn")
class GreedySearch(Search):
    """Takes the likeliest token at every step.

    The score of a hypothesis is the sum of its log-probabilities. What the
    rules on lengths, prefix and repetition mean in detail stands in
    `keras_attn.search`.

    Example:

    >>> search = keras_attn.GreedySearch(max_length=50, no_repeat_ngram=3)
    >>> sorted(search.request_options)
    ['max_length', 'min_length']
    """

    def choose(self, step, state):
        return step.likeliest()
