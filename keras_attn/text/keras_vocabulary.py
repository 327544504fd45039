"""`KerasVocabulary`: the ids and the splitting of Keras's own text layers.

A model that was trained with a `TextVectorization`, a `StringLookup` or the
`Tokenizer` of Keras 2 needs the same ids. Text is split inside the graph.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter

# As in Keras's `TextVectorization`, which lower-cases only A to Z.
_PUNCTUATION = r'[!"#$%&()\*\+,-\./:;<=>?@\[\\\]^_`{|}~\']'
_STANDARDIZE = (
    None,
    "lower",
    "strip_punctuation",
    "lower_and_strip_punctuation",
)


@keras.saving.register_keras_serializable("keras_attn")
class KerasVocabulary(Splitter):
    """Splits text and looks up ids as Keras's text layers do.

    It is made by `Text.from_text_vectorization`, `Text.from_string_lookup`
    and `Text.from_tokenizer`.

    Args:
        tokens: All tokens in the order of their ids.
        special: `SpecialTokens`. An `end` of -1 is for sources that end
            without a token.
        standardize: `"lower_and_strip_punctuation"`, `"lower"`,
            `"strip_punctuation"`, `None`, or a function of strings
            `(batch,)`.
        split: `"whitespace"`, `"character"`, or a function of strings
            `(batch,)` that returns a `tf.RaggedTensor`.
    """

    splits_alone = False
    keeps_text = False
    normalizes = True
    words = "standardize", "split"  # arguments that may be strings, not paths

    def __init__(
        self,
        tokens: list[str],
        special: SpecialTokens | dict,
        standardize: str | Callable | None = None,
        split: str | Callable = "whitespace",
    ):
        super().__init__()
        if not callable(standardize) and standardize not in _STANDARDIZE:
            raise ValueError(
                f"`standardize` must be one of {_STANDARDIZE}, or a function. "
                f"Received: standardize={standardize!r}"
            )
        known = "whitespace", "character", "characters"
        if not callable(split) and split not in known:
            raise ValueError(
                '`split` must be "whitespace", "character" or a function that '
                f"returns a `tf.RaggedTensor`. Received: split={split!r}"
            )
        split = "character" if split == "characters" else split
        made: Any = SpecialTokens.of(special)
        self.special = made
        self._given = list(tokens)
        self.tokens = _named(self._given, made)
        self._standardize = standardize
        self._split = split
        self._to_id = self._to_token = None
        self.separator = "" if split == "character" else " "

    def split(self, strings):
        pieces, ids = self._pieces_and_ids(strings)
        return tf.ragged.boolean_mask(pieces, ids >= 0)

    def ids(self, strings):
        ids = self.marked_ids(strings)
        return tf.ragged.boolean_mask(ids, ids >= 0)

    def marked_ids(self, strings):
        _, ids = self._pieces_and_ids(strings)
        return ids

    def _pieces_and_ids(self, strings):
        """Returns pieces and their ids, -1 for a piece that has none."""
        pieces = self._pieces(strings)
        to_id, _ = self._tables()
        ids = tf.cast(to_id.lookup(pieces.flat_values), tf.int32)
        ids = pieces.with_flat_values(ids)
        written = pieces != ""
        return (
            tf.ragged.boolean_mask(pieces, written),
            tf.ragged.boolean_mask(ids, written),
        )

    def _pieces(self, strings):
        if self._standardize in ("lower", "lower_and_strip_punctuation"):
            strings = tf.strings.lower(strings)
        if self._standardize in (
            "strip_punctuation",
            "lower_and_strip_punctuation",
        ):
            strings = tf.strings.regex_replace(strings, _PUNCTUATION, "")
        if callable(self._standardize):
            strings = self._standardize(strings)
        if self._split == "whitespace":
            return tf.strings.split(strings)
        if self._split == "character":
            return tf.strings.unicode_split(strings, "UTF-8")
        return self._split(strings)

    def strings(self, ids):
        _, to_token = self._tables()
        flat = tf.cast(ids.flat_values, tf.int64)
        return self.join(ids.with_flat_values(to_token.lookup(flat)))

    def get_config(self):
        def written(x):
            if not callable(x):
                return x
            return keras.saving.serialize_keras_object(x)

        return {
            "tokens": self._given,
            "special": dataclasses.asdict(self.special),
            "standardize": written(self._standardize),
            "split": written(self._split),
        }

    @classmethod
    def from_config(cls, config):
        read = {x: _function(config[x]) for x in ("standardize", "split")}
        return cls(**{**config, **read})

    def _tables(self):
        """Returns the tables of tokens, made once, outside any graph."""
        if self._to_id is None:
            with tf.init_scope():
                ids = tf.range(len(self.tokens), dtype=tf.int64)
                of = tf.lookup.KeyValueTensorInitializer
                self._to_id = tf.lookup.StaticHashTable(
                    of(self._given, ids), self.special.unknown
                )
                self._to_token = tf.lookup.StaticHashTable(
                    of(ids, self.tokens), ""
                )
        return self._to_id, self._to_token


@keras.saving.register_keras_serializable("keras_attn")
class TokenizerRules:
    """Standardizes text as the `Tokenizer` of Keras 2 does.

    Args:
        filters: Characters to replace by the separator.
        lower: Whether text is lower-cased, including letters beyond A to Z.
        separator: The separator.
    """

    words = "filters", "separator"

    def __init__(self, filters: str, lower: bool, separator: str):
        self._given = filters, lower, separator

    def __call__(self, strings):
        filters, lower, separator = self._given
        if lower:
            strings = tf.strings.lower(strings, encoding="utf-8")
        if filters:
            pattern = "[" + re.sub(r"([\\^\]\[-])", r"\\\1", filters) + "]"
            strings = tf.strings.regex_replace(strings, pattern, separator)
        return strings

    def get_config(self):
        names = "filters", "lower", "separator"
        return dict(zip(names, self._given, strict=True))

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable("keras_attn")
class SplitAt:
    """Splits strings at a separator, and drops empty pieces."""

    words = ("separator",)

    def __init__(self, separator: str):
        self._separator = separator

    def __call__(self, strings):
        pieces = tf.strings.split(strings, self._separator)
        return tf.ragged.boolean_mask(pieces, pieces != "")

    def get_config(self):
        return {"separator": self._separator}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def _function(stored):
    """Returns a saved function, which must be registered with Keras."""
    if not isinstance(stored, dict):
        return stored
    name = stored.get("registered_name")
    if stored.get("class_name") == "function":
        name = stored.get("config")
    if not isinstance(name, str):
        name = str(stored.get("class_name"))
    if keras.saving.get_registered_object(name) is None:
        raise ValueError(
            "The text was saved with a custom function, which this process "
            f"must know. Received: {name!r}, which Keras does not "
            "know here. Decorate it with "
            "`@keras.saving.register_keras_serializable()` before saving and "
            "import its module before loading, or pass it in "
            "`custom_objects`."
        )
    return keras.saving.deserialize_keras_object(stored)


def of_text_vectorization(layer, start, end, wrap_source) -> KerasVocabulary:
    """Returns the splitter of a `TextVectorization`."""
    if not isinstance(layer, keras.layers.TextVectorization):
        raise ValueError(
            "`Text.from_text_vectorization` needs a "
            f"`keras.layers.TextVectorization`. Received: {layer!r:.80}. Pass "
            "the layer with its vocabulary."
        )
    config = layer.get_config()
    if config["output_mode"] != "int" or config["ngrams"] is not None:
        raise ValueError(
            "A `Text` has an id for each token, so a `TextVectorization` must "
            'have output_mode="int" and no `ngrams`. Received: output_mode='
            f"{config['output_mode']!r}, ngrams={config['ngrams']!r}"
        )
    tokens = [str(x) for x in layer.get_vocabulary()]
    special = _special(tokens, 0, 1, start, end, wrap_source)
    split = config["split"]
    if split is None:
        raise ValueError(
            "A `Text` splits strings, so a `TextVectorization` must have a "
            "`split`. Received: split=None"
        )
    return KerasVocabulary(tokens, special, config["standardize"], split)


def of_string_lookup(layer, split, start, end, wrap_source) -> KerasVocabulary:
    """Returns the splitter of a `StringLookup`."""
    if not isinstance(layer, keras.layers.StringLookup):
        raise ValueError(
            "`Text.from_string_lookup` needs a `keras.layers.StringLookup`. "
            f"Received: {layer!r:.80}. Pass the layer with its vocabulary."
        )
    config = layer.get_config()
    many = config["num_oov_indices"]
    if config["output_mode"] != "int" or many > 1:
        raise ValueError(
            "A `Text` has one id for each token, and one for all unknown ones. "
            f"Received: output_mode={config['output_mode']!r}, "
            f"num_oov_indices={many}. Make the `StringLookup` with "
            'output_mode="int" and num_oov_indices of 0 or 1.'
        )
    if config["mask_token"] is None:
        raise ValueError(
            "A `Text` needs an id for padding, the `mask_token` of a "
            "`StringLookup`. Received: mask_token=None. Make the layer with "
            '`mask_token=""`; the model then needs one more id.'
        )
    tokens = [str(x) for x in layer.get_vocabulary()]
    special = _special(tokens, 0, 1 if many else -1, start, end, wrap_source)
    return KerasVocabulary(tokens, special, None, split)


def of_tokenizer(content, start, end, wrap_source) -> KerasVocabulary:
    """Returns the splitter of a `Tokenizer` of Keras 2, from its JSON."""
    try:
        config = json.loads(content)["config"]
        index = json.loads(config["word_index"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            "`Text.from_tokenizer` reads the JSON of `tokenizer.to_json()`. "
            f"Received: {content!r:.80}. A pickled `Tokenizer` is not opened, "
            "as a pickle can run any code: load it with Keras 2 installed, and "
            "call `to_json()` there."
        ) from error
    unknown = index.get(config.get("oov_token"), -1)
    size = max(index.values(), default=0) + 1
    if config.get("num_words"):
        size = max(min(size, config["num_words"]), unknown + 1)
    tokens = ["", *(f"<unused {i}>" for i in range(1, size))]
    for token, i in index.items():
        if i < size:
            tokens[i] = token
    special = _special(tokens, 0, unknown, start, end, wrap_source)
    separator = config.get("split", " ")
    if config.get("char_level"):
        rules = TokenizerRules("", config["lower"], separator)
        return KerasVocabulary(tokens, special, rules, "character")
    rules = TokenizerRules(config["filters"], config["lower"], separator)
    return KerasVocabulary(tokens, special, rules, SplitAt(separator))


def _special(tokens, pad, unknown, start, end, wrap_source):
    """Returns `SpecialTokens`, looking up the ids of start and end."""
    ids = []
    for name, token in (("start", start), ("end", end)):
        if token is not None and token not in tokens:
            raise ValueError(
                f"`{name}` must be a token of the vocabulary. Received: "
                f"{name}={token!r}, which is not. Does the standardization "
                "change it, as one that strips `[` and `]` does?"
            )
        ids.append(-1 if token is None else tokens.index(token))
    first, last = ids
    if wrap_source and -1 in ids:
        raise ValueError(
            "`wrap_source` puts `start` and `end` around sources, so both are "
            f"needed. Received: start={start!r}, end={end!r}"
        )
    return SpecialTokens(
        pad=pad,
        start=(pad,) if first < 0 else (first,),
        end=last,
        unknown=unknown,
        source_start=(first,) if wrap_source else (),
        source_end=(last,) if wrap_source else (),
    )


def _named(tokens, special):
    """Returns the tokens, the special ones renamed to `<pad>` and so on."""
    tokens = list(tokens)
    ids = special.pad, special.start[0], special.end, special.unknown
    for i, name in reversed(list(zip(ids, SPECIAL_TOKENS, strict=True))):
        others = {*tokens[:i], *tokens[i + 1 :]}
        while name in others:
            name = f"{name}_"
        if i >= 0:
            tokens[i] = name
    return tokens
