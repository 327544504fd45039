"""Makes searches that draw samples."""

import dataclasses
from typing import Any

from keras_attn.decoding import GreedySearch
from keras_attn.decoding import Sampling
from keras_attn.decoding import Search


def sampling_of(search: Search, count: int) -> Search:
    """Returns a search that draws `count` hypotheses.

    Args:
        search: A search. If it draws, all its options except `num_hypotheses`
            are kept. Of any other search only the options that all searches
            have are kept, such as length limits and rules.
        count: Number of hypotheses to draw.

    Raises:
        ValueError: If the search draws another number of hypotheses, and has
            no option `num_hypotheses`.
    """
    known = {x.name for x in dataclasses.fields(search) if x.init}
    if not search.draws:
        # A greedy search has no options of its own.
        shared = known & {x.name for x in dataclasses.fields(GreedySearch)}
        kept = {name: getattr(search, name) for name in shared}
        return Sampling(**{**kept, "num_hypotheses": count})
    if search.num_hypotheses == count:
        return search
    if "num_hypotheses" in known:
        changed: dict[str, Any] = {"num_hypotheses": count}
        return dataclasses.replace(search, **changed)
    raise ValueError(
        "A search that draws samples needs an option `num_hypotheses`. "
        f"Received: {type(search).__name__}, which draws "
        f"{search.num_hypotheses}, with samples={count}. Declare the option, "
        "or pass `samples=keras_attn.Sampling(...)`."
    )
