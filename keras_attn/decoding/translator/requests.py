"""Checks and converts a call's prefixes, seed and options."""

import math
import operator
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_attn.decoding.translator.asked_phrases import AskedPhrases
from keras_attn.decoding.translator.sources import encode
from keras_attn.decoding.translator.sources import is_list_of
from keras_attn.text.text import MARK


def read(
    search,
    target_text,
    count,
    prefixes,
    seed,
    options,
    spellings=None,
    terms=None,
    avoid=None,
    prompts=None,
) -> dict:
    """Returns a request of `count` rows as `Pipeline` takes it, with arrays.

    Args:
        search: The search.
        target_text: `Text` of the targets.
        count: Number of rows.
        prefixes, seed, options, terms, avoid: As for `Translator.__call__`.
        spellings: Function that returns the `Spellings` of the target text.
        prompts: The `Prompts` of the translator, if it may have any.

    Raises:
        ValueError: If an argument has an invalid value, would have no effect,
            or does not have one value for each source.
    """
    request = {}
    if search.draws:
        request["seed"] = _seeds(seed, count)
    elif seed is not None:
        raise ValueError(
            "`seed` needs a search that draws at random, such as `Sampling`. "
            f"Received: seed={seed!r} with {type(search).__name__}, which "
            "draws nothing and always gives the same results. Leave the seed "
            "out."
        )
    if options:
        request["options"] = _options(search, count, options)
    longest = request.get("options", {}).get("max_length")
    if longest is None:
        longest = np.full(count, search.max_length)
    if prefixes is not None:
        request["prefix"] = _prefixes(target_text, longest, prefixes, prompts)
    if terms is not None:
        if not search.takes_steering:
            raise ValueError(
                "`terms` need a search that can divide its beams by the number "
                "of missing terms, such as `BeamSearch`. "
                f"Received: terms={terms!r:.80} with {search!r:.80}. Leave "
                "them out, or make the translator with a `BeamSearch`."
            )
        phrases = AskedPhrases("terms", terms, count)
        phrases.require_known(spellings())
        phrases.require_short(longest)
        request["terms"] = phrases.lines
    if avoid is not None:
        phrases = AskedPhrases("avoid", avoid, count)
        phrases.require_few()
        phrases.require_known(spellings())
        request["avoid"] = phrases.lines
    return request


def take(request: dict, rows) -> dict:
    """Returns the tensors of some rows of a request."""
    return tf.nest.map_structure(lambda x: tf.constant(x[rows]), request)


def specs(search, request: dict) -> dict:
    """Returns the `TensorSpec`s of a request with these keys."""
    strings = dict.fromkeys(("prefix", "terms", "avoid"), tf.string)
    dtypes = {**strings, "seed": tf.int32}
    found = {
        name: tf.TensorSpec([None], dtypes[name])
        for name in request
        if name in dtypes
    }
    if "options" in request:
        found["options"] = search.request_options.specs(request["options"])
    return found


def _prefixes(target_text, longest, prefixes, prompts):
    """Checks prefixes and returns them as an array of bytes.

    Args:
        target_text: `Text` of the targets.
        longest: Maximum length of each output, in tokens.
        prefixes: As for `Translator.__call__`.
        prompts: The `Prompts`, or None. Their tokens are no output.
    """
    count = len(longest)
    if not is_list_of(count, prefixes):
        raise ValueError(
            "`prefixes` must be a list with a string, or None, for each "
            f"source. Received: prefixes={prefixes!r:.200} for {count} "
            "source(s)."
        )
    lines = [encode("" if x is None else x) for x in prefixes]
    _require_known_marks(target_text, lines)
    ids = target_text.uncut_ids(tf.constant(lines, tf.string))
    begun = np.zeros(count, int)
    if prompts is not None:
        padded = ids.to_tensor(target_text.special.pad)
        begun = prompts.lengths_in(padded).numpy()
    longest = longest + begun
    for line, row, most in zip(lines, ids.to_list(), longest, strict=True):
        shown = line.decode("utf-8", "replace")
        if target_text.special.unknown in row:
            raise ValueError(
                "A prefix must be made of tokens that the target text knows. "
                f"Received: {shown!r}. `translator.target_text.tokens` lists "
                "them."
            )
        if len(row) >= most:
            raise ValueError(
                "A prefix must leave room for at least one more token. "
                f"Received: {shown!r} of {len(row)} tokens with "
                f"max_length={most}. Use a search with a larger `max_length`, "
                "or raise the option `max_length`."
            )
        if len(row) > target_text.max_length:
            raise ValueError(
                "A prefix may have at most the target text's `max_length` "
                f"tokens. Received: {shown!r} of {len(row)} tokens with "
                f"target_text.max_length={target_text.max_length}. Pass a "
                "target text with a larger `max_length`."
            )
    array = np.empty(count, object)
    array[:] = lines
    return array


def _require_known_marks(text, lines):
    """Refuses prompt tokens that the text does not know."""
    known = text.prompt_marks
    for line in lines if known else ():
        found = MARK.findall(line.decode("utf-8", "replace"))
        unknown = [x for x in found if x not in known]
        if unknown:
            shown = ", ".join(known[:8]) + (" ..." if len(known) > 8 else "")
            raise ValueError(
                "A prefix may name no tokens but those that it may write. "
                f"Received: {', '.join(unknown)}. It may write {shown}."
            )


def _seeds(seed, count):
    """Returns a seed for each row, which does not depend on the batch."""
    if hasattr(seed, "__len__") and getattr(seed, "shape", None) != ():
        return _seed_of_each(seed, count)
    if seed is not None:
        _require_seeds([seed], seed, math.inf)
    # `SeedSequence` mixes the bits, so calls with the seeds 1 and 2 share no
    # row seeds.
    number = None if seed is None else operator.index(seed)
    (first,) = np.random.SeedSequence(number).generate_state(1)
    rows = first + np.arange(count, dtype="uint32")  # wraps around
    return rows.astype("int32")


def _seed_of_each(seeds, count):
    """Returns the seeds of a list with one for each row, int32 `(count,)`."""
    if not is_list_of(count, seeds):
        raise ValueError(
            "`seed` must be an integer, or a list with one for each of the "
            f"{count} source(s). Received: seed={seeds!r:.200}"
        )
    _require_seeds(seeds, seeds, tf.int32.max)
    return np.array(seeds, "int32").reshape(count)


def _require_seeds(each, given, most):
    for seed in each:
        try:
            fits = 0 <= operator.index(seed) <= most
        except TypeError:
            fits = False
        if not fits:
            raise ValueError(
                "`seed` must be an integer, at least 0, a list with one up to "
                f"{tf.int32.max} for each source, or None for a new seed in "
                f"each call. Received: seed={given!r:.200}"
            )


def _options(search, count, options):
    known = search.request_options
    if not isinstance(options, Mapping):
        raise ValueError(
            "`options` must be a dictionary from names to values; this search "
            f"takes {sorted(known)}. Received: options={options!r:.200}. Pass "
            "`options={name: value}`."
        )
    known.refuse_former_names(options)
    arrays = {}
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"`options` may hold {sorted(known)} with this search. "
                f"Received: {name!r}. Set other options in the search "
                f"itself, `{type(search).__name__}(...)`."
            )
        arrays[name] = _option(name, value, known[name], count)
    known.require_in_range(arrays)
    # One order, so that requests with the same options share a graph.
    return dict(sorted(arrays.items()))


def _option(name, value, dtype, count):
    array = np.asarray(value)
    kinds = "iuf" if dtype.is_floating else "iu"
    if array.dtype.kind in kinds and array.shape in ((), (count,)):
        with np.errstate(over="ignore"):  # infinity is outside every range
            cast = array.astype(dtype.as_numpy_dtype)
        # An integer that does not fit into the dtype would wrap around.
        if dtype.is_floating or np.array_equal(cast, array):
            return np.broadcast_to(cast, (count,))
    raise ValueError(
        f"The option {name!r} must be a number of dtype {dtype.name}, or "
        f"one for each of the {count} source(s). Received: "
        f"{name}={value!r:.200}"
    )
