"""A user's calls that a type checker must accept: `make lint` checks them.

Nothing runs them.
"""

import keras_attn_serving

import keras_attn
from keras_attn.decoding import BeamSearch
from keras_attn.decoding import GreedySearch
from keras_attn.decoding import Real
from keras_attn.decoding import Sampling
from keras_attn.text.text import Text


class Own(keras_attn.Search):
    """A search with an option."""

    target: float = Real(default=3.0, low=0)


SEARCHES = [
    BeamSearch(5, max_length=50, num_hypotheses=3, max_per_source=(2.0, 10)),
    GreedySearch(max_length=50),
    Sampling(temperature=0.5, min_length=2),
    Own(target=2.0, max_length=50),
]
WIDTH = BeamSearch(5).num_beams.bit_length()
TEXT: Text = Text.from_lines(["ab"], split="characters", lowercase=True)

with keras_attn_serving.Client("localhost:8500", "m", retries=3) as CLIENT:
    LENGTHS: list[int] = [len(x.tokens) for x in CLIENT.align(["a"])]
    TOKENS: list[str] = [token.text for token in CLIENT.stream("a")]
with keras_attn_serving.RestClient("http://localhost:8501") as BY_REST:
    VERSION: int = BY_REST.predict(["a"], model="m", version="stable").version


async def ask() -> list[str]:
    async with keras_attn_serving.AsyncClient(model="m") as client:
        await client.predict({"text": ["a"]}, outputs="text")
        return [token.text async for token in client.stream("a")]
