"""Greedy search: the likeliest token at every step."""

import dataclasses

import tensorflow as tf

from keras_attn.search.candidates import extend
from keras_attn.search.chains import Chains
from keras_attn.search.options import Range
from keras_attn.search.options import check_common
from keras_attn.search.options import check_ranges
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import Task


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """Takes the likeliest token at every step.

    The score of a hypothesis is the sum of its log-probabilities. What the
    rules on lengths, prefix and repetition mean in detail stands in
    `keras_attn.search`.

    Args:
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

    Request options: `max_length` and `min_length`.

    Example:

    >>> search = keras_attn.GreedySearch(max_length=50, no_repeat_ngram=3)
    >>> sorted(search.request_options)
    ['max_length', 'min_length']
    """

    max_length: int = 100
    min_length: int = 1
    max_per_source: tuple | None = None
    min_per_source: tuple | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0

    num_hypotheses = 1

    def __post_init__(self):
        check_common(self)

    @property
    def request_options(self):
        """Options that a `Task` may hold for every row, and their dtypes."""
        return {"max_length": tf.int32, "min_length": tf.int32}

    @property
    def option_ranges(self):
        """The range of each option of a request."""
        length = Range(1, self.max_length)
        return {"max_length": length, "min_length": length}

    def check_options(self, options):
        """Returns the options as tensors that fail where out of range."""
        return check_ranges(self, options)

    def __call__(self, task: Task) -> Hypotheses:
        """Decodes, inside a `tf.function` or eagerly."""
        return Chains(self, task).run()

    def chooser(self, task):
        """The choice that `Chains` asks for."""
        return _likeliest


def _likeliest(logits, allowed, banned, score, time):
    score, _, token = extend(logits, score, 1, banned, allowed)
    return score, token
