"""Greedy search: the likeliest token at every step."""

import keras

from keras_attn.decoding.search import Search


@keras.saving.register_keras_serializable("keras_attn")
class GreedySearch(Search):
    """Takes the likeliest token at every step.

    The score of a hypothesis is the sum of its log-probabilities. The module
    `keras_attn.decoding` defines the rules on lengths, prefix and repetition.

    A request may set `max_length`, up to the search's own, and `min_length`.

    Args:
        max_length: Longest output in tokens, the end token counted. A
            hypothesis is cut there and flagged as not finished. Defaults to
            `100`.
        min_length: Fewest tokens, the end token counted. Defaults to `1`.
        max_per_source: Pair `(a, b)`: at most `a * source + b` tokens,
            rounded down, if that is less than `max_length`. Defaults to
            `None`.
        min_per_source: Pair `(a, b)`: at least `a * source + b` tokens,
            rounded down, if that is more than `min_length`. Defaults to
            `None`.
        no_repeat_ngram: Length of the n-grams that may not occur twice in a
            hypothesis. 0 allows all. Defaults to `0`.
        repetition_penalty: Factor of at least 1 that lowers the probability
            of tokens that the hypothesis already has. Defaults to `1.0`, no
            penalty.
        rules: List of `keras_attn.decoding.Rule`s on the next token. They
            apply after the built-in rules. Defaults to `()`, none.

    Example:
        >>> search = keras_attn.GreedySearch(max_length=50, no_repeat_ngram=3)
        >>> sorted(search.request_options)
        ['max_length', 'min_length']
    """

    rows_are_independent = ids_are_interchangeable = True

    def choose(self, step, state):
        return step.argmax()
