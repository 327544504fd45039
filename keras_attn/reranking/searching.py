"""Makes translators of the same model with another search."""

import dataclasses
import inspect
from typing import Any

from keras_attn.decoding import Sampling
from keras_attn.decoding import Search
from keras_attn.decoding.translator import Translator


def with_search(translator: Translator, search: Search) -> Translator:
    """Returns a translator of the same models and texts, which shares them.

    As for each new translator its steps are compared with the model, which
    takes a second or two.
    """
    models = translator.models
    given: dict[str, Any] = {
        "model": models[0] if len(models) == 1 else list(models),
        "search": search,
    }
    # The others are attributes of the same names. Those that say how to read
    # a model are none: what was read is a model in standard form.
    kept = {
        name: getattr(translator, name)
        for name in inspect.signature(Translator).parameters
        if name not in given and hasattr(translator, name)
    }
    return Translator(**given, **kept)


def sampling_of(search: Search, count: int) -> Search:
    """Returns a search that draws `count` hypotheses.

    Args:
        search: If it draws, all its options stay but the number. Of another
            one those stay that each search has: limits of length, rules.
        count: Number of hypotheses.
    """
    known = {x.name for x in dataclasses.fields(search) if x.init}
    if not search.draws:
        shared = known & {x.name for x in dataclasses.fields(Sampling)}
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
