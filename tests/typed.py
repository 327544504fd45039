"""A user's calls that a type checker must accept: `make lint` checks them.

Nothing runs them.
"""

import keras_attn
from keras_attn.search import BeamSearch
from keras_attn.search import GreedySearch
from keras_attn.search import Real
from keras_attn.search import Sampling
from keras_attn.text import Text


class Own(keras_attn.Search):
    """A search with an option."""

    target: float = Real(default=3.0, low=0)


SEARCHES = [
    BeamSearch(5, max_length=50, num_hypotheses=3, max_per_source=(2.0, 10)),
    GreedySearch(max_length=50),
    Sampling(temperature=0.5, min_length=2),
    Own(target=2.0, max_length=50),
]
WIDTH = BeamSearch(5).width.bit_length()
TEXT: Text = Text.from_lines(["ab"], split="characters", lowercase=True)
