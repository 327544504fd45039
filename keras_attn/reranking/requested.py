"""`Requested`: the arguments of a call for several translators, by rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_attn.reranking.checks import listed
from keras_attn.reranking.checks import require_integer


class Requested:
    """The prefixes, seeds and options of a call, for some translators.

    Args:
        translators: The translators. Each gets the options that its search has
            and, if the search draws, seeds that the others do not get. Terms go
            to those whose search obeys them.
        count: Number of sources.
        prefixes, seed, options, terms, avoid: As the caller gives them.

    Raises:
        ValueError: If one is wrong, or if no search supports it.
    """

    def __init__(
        self,
        translators,
        count: int,
        prefixes=None,
        seed=None,
        options=None,
        terms=None,
        avoid=None,
    ):
        self._count = count
        searches = [x.search for x in translators]
        options = self._options(searches, options)
        random = self._random(searches, seed)
        lists = {"prefixes": prefixes, "terms": terms, "avoid": avoid}
        lists = {
            name: listed(name, given, count)
            for name, given in lists.items()
            if given is not None
        }
        self._of = {}
        for translator in translators:
            search = translator.search
            asked: dict[str, Any] = dict(lists)
            if not search.takes_steering:
                asked.pop("terms", None)
            known = {
                name: value
                for name, value in options.items()
                if name in search.request_options
            }
            if known:
                asked["options"] = known
            if search.draws:
                seeds = random.integers(2**31, size=count)
                asked["seed"] = seeds.tolist()
            self._of[translator] = asked

    def of(self, translator, rows) -> dict:
        """Returns arguments of a translator's call for some of the sources."""
        return _taken(self._of[translator], rows)

    def _options(self, searches, options):
        """Returns options, each a number or a list with one for each row."""
        if options is None:
            return {}
        known = {name for search in searches for name in search.request_options}
        if not isinstance(options, Mapping) or not options.keys() <= known:
            raise ValueError(
                "`options` must be a dictionary from names to values; these "
                f"searches take {sorted(known)}. Received: "
                f"options={options!r:.200}. Set other options in a search "
                "itself."
            )
        return {
            name: value
            if np.ndim(value) == 0
            else listed(name, value, self._count)
            for name, value in options.items()
        }

    def _random(self, searches, seed):
        """Returns a source of seeds."""
        if seed is None:
            return np.random.default_rng()
        require_integer("seed", seed, least=0)
        if not any(search.draws for search in searches):
            raise ValueError(
                "`seed` needs a search that draws at random, such as "
                f"`Sampling`. Received: seed={seed} with "
                f"{[type(x).__name__ for x in searches]}. Leave the seed out."
            )
        return np.random.default_rng(int(seed))


def _taken(asked, rows):
    """Returns a structure with some items of each of its lists."""
    if isinstance(asked, dict):
        return {name: _taken(x, rows) for name, x in asked.items()}
    if isinstance(asked, list):
        return [asked[row] for row in rows]
    return asked
