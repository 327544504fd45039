"""`Requested`: the arguments of a call, split among translators and rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_attn.reranking.checks import listed
from keras_attn.reranking.checks import require_integer


class Requested:
    """Splits the arguments of a call among several translators.

    Args:
        translators: The translators. Each gets the options that its search has.
            Each with a search that draws gets its own seeds, different from
            those of the others. Terms are passed only to searches that support
            them.
        count: Number of sources.
        prefixes, seed, options, terms, avoid: The caller's arguments.

    Raises:
        ValueError: If an argument is invalid, or if no search supports an
            option or the seed.
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
        """Returns the arguments for a translator's call on some sources."""
        return _taken(self._of[translator], rows)

    def _options(self, searches, options):
        """Returns options, each one value or a list with one for each row."""
        if options is None:
            return {}
        known = {name for search in searches for name in search.request_options}
        if not isinstance(options, Mapping) or not options.keys() <= known:
            raise ValueError(
                "`options` must be a dictionary from names to values; these "
                f"searches take {sorted(known)}. Received: "
                f"options={options!r:.200}. Set other options when you make a "
                "search."
            )
        return {
            name: value
            if np.ndim(value) == 0
            else listed(name, value, self._count)
            for name, value in options.items()
        }

    def _random(self, searches, seed):
        """Returns a random generator for the seeds of rows."""
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
    """Selects some items of each list in a structure."""
    if isinstance(asked, dict):
        return {name: _taken(x, rows) for name, x in asked.items()}
    if isinstance(asked, list):
        return [asked[row] for row in rows]
    return asked
