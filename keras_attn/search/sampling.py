"""Sampling: hypotheses drawn from the model, token by token."""

import dataclasses

import tensorflow as tf

from keras_attn.search.candidates import penalties
from keras_attn.search.chains import Chains
from keras_attn.search.draws import draw
from keras_attn.search.options import Range
from keras_attn.search.options import check_common
from keras_attn.search.options import check_ranges
from keras_attn.search.options import option
from keras_attn.search.options import require_integers
from keras_attn.search.options import require_number
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import Task
from keras_attn.search.task import gather
from keras_attn.search.task import log_normaliser
from keras_attn.search.threefry import uniform


@dataclasses.dataclass(frozen=True)
class Sampling:
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

    Args:
        temperature: Divides the logits. Less than 1 favours the likely
            tokens, more evens them out.
        top_k: How many tokens stay, or 0 for all.
        top_p: The share that stays, or 1.0 for all.
        num_hypotheses: Number of draws a source.
        max_length: Longest output in tokens, the end token counted. A
            hypothesis is cut there and flagged as not finished.
        min_length: Fewest tokens, the end token counted.
        max_per_source: `(a, b)`: at most `a * source + b` tokens, rounded
            down, where that is less than `max_length`.
        min_per_source: `(a, b)`: at least `a * source + b` tokens, rounded
            down, where that is more than `min_length`.
        no_repeat_ngram: No n-gram of so many tokens comes twice. 0 lets all.
        repetition_penalty: Makes tokens less likely that came already, if
            greater than 1.

    Request options: `temperature`, `top_k`, `top_p`, `max_length` and
    `min_length`.

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

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    num_hypotheses: int = 1
    max_length: int = 100
    min_length: int = 1
    max_per_source: tuple | None = None
    min_per_source: tuple | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0

    def __post_init__(self):
        check_common(self)
        require_integers(self, "top_k", "num_hypotheses")
        require_number(self, "temperature")
        require_number(self, "top_p")
        if not self.temperature > 0:
            raise ValueError(
                "`temperature` divides the logits and must be above 0. "
                f"Received: temperature={self.temperature!r}. The likeliest "
                "token at every step is what `GreedySearch` takes."
            )
        if self.top_k < 0:
            raise ValueError(
                "`top_k` is a number of tokens and must be at least 0. "
                f"Received: top_k={self.top_k!r}. 0 keeps all tokens."
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(
                "`top_p` is a share of the probability, above 0 and at most "
                f"1. Received: top_p={self.top_p!r}. 1.0 keeps all tokens."
            )
        if self.num_hypotheses < 1:
            raise ValueError(
                "`num_hypotheses` is how many are drawn and must be at least "
                f"1. Received: num_hypotheses={self.num_hypotheses!r}"
            )

    @property
    def request_options(self):
        """Options that a `Task` may hold for every row, and their dtypes."""
        return {
            "temperature": tf.float32,
            "top_k": tf.int32,
            "top_p": tf.float32,
            "max_length": tf.int32,
            "min_length": tf.int32,
        }

    @property
    def option_ranges(self):
        """The range of each option of a request."""
        return {
            "temperature": Range(0, above=True),
            "top_k": Range(0),
            "top_p": Range(0, 1, above=True),
            "max_length": Range(1, self.max_length),
            "min_length": Range(1, self.max_length),
        }

    def check_options(self, options):
        """Returns the options as tensors that fail where out of range."""
        return check_ranges(self, options)

    def __call__(self, task: Task) -> Hypotheses:
        """Decodes, inside a `tf.function` or eagerly."""
        found = Chains(self, task).run()
        if self.num_hypotheses == 1:
            return found
        _, best = tf.math.top_k(found.scores, self.num_hypotheses)
        return gather(found, best)

    def chooser(self, task):
        """The choice that `Chains` asks for."""
        if task.seed is None:
            raise ValueError(
                "`Sampling` needs a seed for each row, and this task has "
                "none. Received: seed=None. Other seeds draw other "
                "hypotheses, the same seed draws them again."
            )
        draws = uniform(task.seed, self.num_hypotheses, self.max_length)
        temperature, top_k, top_p = (
            option(self, task, name)
            for name in ("temperature", "top_k", "top_p")
        )

        def choose(logits, allowed, banned, score, time):
            allowed = logits if allowed is None else allowed
            if banned:
                allowed += penalties(banned, logits.shape[-1])
            token = draw(allowed, draws[time], temperature, top_k, top_p)
            logit = tf.gather(allowed, token[..., None], batch_dims=2)
            return score + logit[..., 0] - log_normaliser(logits), token

        return choose
