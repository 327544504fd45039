"""Sampling: hypotheses drawn from the model, token by token."""

import keras

from keras_attn.search.base import Search
from keras_attn.search.draws import draw
from keras_attn.search.options import Integer
from keras_attn.search.options import Real


@keras.saving.register_keras_serializable("keras_attn")
class Sampling(Search):
    """Draws every token from the model's distribution, or its likely part.

    The logits of the tokens that may come are first divided by the
    temperature; then only the `top_k` likeliest stay (Fan et al., 2018);
    then only the nucleus of these, the likeliest tokens up to that one with
    which their share reaches `top_p` (Holtzman et al., 2020). Of equally
    likely ones the lower id comes first. One uniform number then picks a
    token from the cumulative distribution, in the order of ids.

    Each number is made of the row's seed, the number of the hypothesis and
    the time. So a row with its seed samples the same alone or in any batch,
    in a graph, compiled by XLA or served, and neither more hypotheses nor a
    larger maximum length change those that were there.

    The score of a hypothesis is the sum of the model's own log-probabilities:
    at temperature 1, and of all tokens. Hypotheses are sorted by it. What the
    rules on lengths, prefix and repetition mean in detail stands in
    `keras_attn.search`.

    Cost: of a large vocabulary the 128 likeliest tokens are sorted where
    there is a nucleus, or `top_k` on request. Only where a row keeps more of
    them all are sorted, which takes several times as long.

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
        advice=(
            "The likeliest token at every step is what `GreedySearch` takes."
        ),
        doc=(
            "Divides the logits. Less than 1 favours the likely tokens, more "
            "evens them out."
        ),
    )
    top_k: int = Integer(
        default=0,
        low=0,
        request=True,
        meaning="is a number of tokens",
        advice="0 keeps all tokens.",
        doc="How many tokens stay, or 0 for all.",
    )
    top_p: float = Real(
        default=1.0,
        low=0,
        above=True,
        high=1,
        request=True,
        meaning="is a share of the probability",
        advice="1.0 keeps all tokens.",
        doc="The share that stays, or 1.0 for all.",
    )
    num_hypotheses: int = Integer(
        default=1,
        low=1,
        meaning="is how many are drawn",
        doc="Number of draws a source.",
    )

    draws = True

    def choose(self, step, state):
        tokens = draw(
            step.choices, step.numbers, self.temperature, self.top_k, self.top_p
        )
        return tokens, step.scores_with(tokens)
