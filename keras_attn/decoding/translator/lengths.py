"""Finds, by trial, the longest texts that models take.

Third-party layers may have position tables of limited size, which cannot be
read from a graph.
"""

import copy
from collections.abc import Callable
from collections.abc import Mapping

import keras
import numpy as np

from keras_attn.decoding.translator.model_trial import Examples
from keras_attn.decoding.translator.model_trial import runs
from keras_attn.keras_internals import layers_within
from keras_attn.text.text import Text

_MOST = 1000  # most tokens to try
_FEW = 3  # target tokens when sources are tried
_LOGITS = 20_000_000  # most logits of the longest target to try


def source_limits(models, examples, texts) -> dict[int, int]:
    """Returns the most source ids that models take, if they have a limit.

    Args:
        models: Models in standard form.
        examples: `Examples` of them.
        texts: Pairs of the index of an input and its `Text`.

    Returns:
        Limits by the index of the input.
    """
    models = [x for x in models if _may_limit(x)]
    found = {}
    for number, text in texts if models else ():
        works = examples.sources[number].shape[1]
        most = min(text.longest_source, _MOST)

        def takes(length, number=number):
            sources = [x[:1] for x in examples.sources]
            sources[number] = np.resize(sources[number], (1, length))
            target = examples.target[:1, :_FEW]
            return all(
                runs(x, Examples(tuple(sources), target)) for x in models
            )

        if takes(most):
            continue
        if works >= most or not takes(works):
            works, most = 0, works
        limit = longest_that_runs(works, most, takes)
        if limit:  # otherwise a later comparison names what fails
            found[number] = limit
    return found


def target_limit(models, examples, text: Text) -> int | None:
    """Returns the most target ids that models read, if they limit them."""
    models = [x for x in models if _may_limit(x)]
    works = examples.target.shape[1]
    most = text.max_length + len(text.special.start)
    most = min(most, _MOST, _LOGITS // text.size)
    if not models or most <= works:
        return None

    def takes(length):
        sources = [x[:1] for x in examples.sources]
        target = np.resize(examples.target[:1], (1, length))
        return all(runs(x, Examples(tuple(sources), target)) for x in models)

    if takes(most):
        return None
    return longest_that_runs(works, most, takes)


def longest_that_runs(works: int, fails: int, takes: Callable) -> int:
    """Returns the longest length that runs, by binary search.

    Args:
        works: A length that runs.
        fails: A longer length that fails.
        takes: Function that returns whether a length runs.
    """
    while fails - works > 1:
        middle = (works + fails) // 2
        if takes(middle):
            works = middle
        else:
            fails = middle
    return works


def limit_source(source_text, name: str, length: int):
    """Limits a source text to a number of ids; longer rows are cut.

    Args:
        source_text: A `Text`, or a dictionary of `Text`s.
        name: The name of the input, for a dictionary.
        length: Most ids, special tokens included.
    """
    if isinstance(source_text, Mapping):
        text = limit_source(source_text[name], name, length)
        return {**source_text, name: text}
    special = source_text.special
    more = len(special.source_start) + len(special.ends_source)
    return _limited(source_text, length - more)


def limit_target(text: Text, length: int) -> Text:
    """Limits a target text to the tokens that fit into a number of ids."""
    return _limited(text, length - len(text.special.start))


def _limited(text, length):
    """Returns a text that cuts, and reports, rows longer than `length`."""
    if text.max_length <= length:
        return text
    other = copy.copy(text)
    other.max_length = max(1, length)
    return other


def _may_limit(model):
    """Returns whether a model has layers that may limit positions."""
    return any(
        type(x).__module__.partition(".")[0] not in ("keras", "keras_attn")
        or isinstance(x, keras.layers.Lambda)
        for x in layers_within(model)
    )
