"""Sampling: hypotheses drawn from the model, token by token."""

import keras

from keras_attn.decoding.draws import draw
from keras_attn.decoding.options import Integer
from keras_attn.decoding.options import Real
from keras_attn.decoding.search import Search


@keras.saving.register_keras_serializable("keras_attn")
class Sampling(Search):
    """Draws every token from the model's distribution, or its likely part.

    A step narrows the distribution of the allowed tokens in three stages:

    1. The logits are divided by the temperature.
    2. Only the `top_k` likeliest tokens are kept (Fan et al., 2018).
    3. Of these only the nucleus is kept: the smallest set of likeliest tokens
       whose total probability reaches `top_p` (Holtzman et al., 2020).

    Among equally likely tokens the lower id ranks first. One uniform random
    number then picks a token from the cumulative distribution, in the order
    of ids.

    Each random number depends only on the row's seed, the hypothesis' index
    and the step. So a row with the same seed draws the same tokens alone or
    in any batch, in a graph, compiled by XLA or served. More hypotheses, or a
    larger `max_length`, do not change the earlier draws. If you call a
    translator with `seed=1`, each row gets a seed derived from its position
    in the call; `seed=[7, 9]` sets the seed of each row.

    The score of a hypothesis is the sum of the model's log-probabilities at
    temperature 1, normalized over all tokens. Hypotheses are sorted by
    score. The module `keras_attn.decoding` defines the rules on lengths,
    prefix and repetition.

    Cost: with a nucleus, or if a request sets `top_k`, the 128 likeliest
    tokens of a large vocabulary are sorted. If a row keeps more tokens than
    these, all tokens are sorted, which takes several times as long.

    A request may set `temperature`, `top_k`, `top_p`, `max_length`, up to the
    search's own, and `min_length`.

    Args:
        temperature: Positive number that divides the logits. A value below 1
            favours likely tokens; a value above 1 flattens the distribution.
            Defaults to `1.0`.
        top_k: Number of likeliest tokens to draw from, or 0 for all.
            Defaults to `0`.
        top_p: Share of the probability to draw from, above 0 and at most 1.
            Defaults to `1.0`, all tokens.
        num_hypotheses: Number of draws per source. Defaults to `1`.
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

    References:
        - [Fan et al., 2018](https://arxiv.org/abs/1805.04833), section 5.3
        - [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751),
          section 3.1

    Example:
        >>> search = keras_attn.Sampling(top_p=0.9, num_hypotheses=5)
        >>> sorted(search.request_options)
        ['max_length', 'min_length', 'temperature', 'top_k', 'top_p']
    """

    temperature: float = Real(
        default=1.0,
        low=0,
        above=True,
        request=True,
        meaning="divides the logits",
        advice="For the likeliest token at every step use `GreedySearch`.",
    )
    top_k: int = Integer(
        default=0,
        low=0,
        request=True,
        meaning="is a number of tokens",
        advice="0 keeps all tokens.",
    )
    top_p: float = Real(
        default=1.0,
        low=0,
        above=True,
        high=1,
        request=True,
        meaning="is a share of the probability",
        advice="1.0 keeps all tokens.",
    )
    num_hypotheses: int = Integer(
        default=1, low=1, meaning="is the number of draws"
    )

    rows_are_independent = ids_are_interchangeable = True
    draws = True

    def choose(self, step, state):
        return draw(
            step.choices, step.numbers, self.temperature, self.top_k, self.top_p
        )
