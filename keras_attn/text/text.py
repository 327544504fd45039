"""`Text`: a vocabulary, and the conversion between text and its ids."""

import collections
import copy
import numbers
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_attn import arguments
from keras_attn.text import built_in
from keras_attn.text import files
from keras_attn.text import keras_vocabulary
from keras_attn.text import subwords
from keras_attn.text.coding import ByOwnIds
from keras_attn.text.coding import ByVocabulary
from keras_attn.text.coding import by_rows
from keras_attn.text.lines import batch_of
from keras_attn.text.lines import encode_lines
from keras_attn.text.normalization import Normalization
from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter
from keras_attn.text.splitter_trial import Trial
from keras_attn.text.vocabulary import Vocabulary
from keras_attn.text.vocabulary import require_tokens

_BATCH = 10_000  # lines per batch when a vocabulary is counted
_TRIED = 1_000  # lines of the data on which a user's own splitter is tried


# Spelling of Whisper's tokens that stand for no text
MARK = re.compile(r"<\|[^|<>]*\|>")


class Text:
    """Turns text into the ids of a vocabulary, and ids back into text.

    Ids 0 to 3 are padding, start, end and unknown. The others are the tokens
    in the order of the vocabulary. A splitter of a pretrained vocabulary may
    use other ids; see `special`.

    Args:
        vocabulary: Tokens without the special ones, in the order of ids, or
            a mapping of tokens to their counts in the data. Leave it out if
            `split` is a `Splitter` with its own ids.
        split: `"characters"`, `"whitespace"`, or a `Splitter`:
            `SentencePiece`, `WordPiece`, `BytePair`, `Bytes`, or an instance
            of your own subclass.
        lowercase: Whether text is lower-cased.
        max_length: Maximum number of tokens in a row, without the end token.
        too_long: How to treat a longer row. `"truncate"` cuts it; then
            `is_truncated()` and the results of a `Translator` report it.
            `"error"` refuses the row's whole batch; an export refuses only
            the row.
        normalization: Unicode normal form of the text. `"NFC"` keeps every
            letter and symbol as written, but gives an accented letter the
            same code points however it was typed. It is the default, unless
            the splitter normalizes text itself. `"NFKC"` also replaces
            compatibility characters by plain ones: `kʰ` by `kh`, `½` by
            `1⁄2`, full-width and half-width letters by the usual ones. That
            loses the original spelling. `None` leaves code points alone.

    Raises:
        ValueError: If splitting text can never produce one of the tokens, or
            if a trial on a few lines shows that a `Splitter` breaks a rule.

    Example:
        >>> text = keras_attn.Text.from_lines(["ab", "b"], split="characters")
        >>> text.size
        6
        >>> text.ids(["ab", "?"]).numpy().tolist()
        [[5, 4, 2], [3, 2, 0]]
        >>> text.strings([[5, 4, 2], [4, 2, 0]]).numpy().tolist()
        [b'ab', b'b']
    """

    def __init__(
        self,
        vocabulary: Iterable[str] | None = None,
        split: str | Splitter | None = None,
        lowercase: bool = False,
        max_length: int = 1000,
        too_long: str = "truncate",
        normalization: str | None = "auto",
    ):
        self.splitter = built_in.get(split)
        if normalization == "auto":
            normalization = None if self.splitter.normalizes else "NFC"
        elif normalization is not None and self.splitter.normalizes:
            raise ValueError(
                f"`{type(self.splitter).__name__}` normalizes text itself, "
                "and text is normalized once. Received: "
                f"normalization={normalization!r}. Leave this argument out."
            )
        if too_long not in ("truncate", "error"):
            raise ValueError(
                '`too_long` must be "truncate" or "error". Received: '
                f"too_long={too_long!r}"
            )
        whole = isinstance(max_length, numbers.Integral)
        whole = whole and not isinstance(max_length, bool)
        if not whole or max_length < 1:
            raise ValueError(
                "`max_length` counts the tokens of a row and must be an "
                f"integer, at least 1. Received: max_length={max_length!r}"
            )
        # The ids of padding, start, end and unknown.
        self.special = self.splitter.special or SpecialTokens()
        self._without_sampling: Text | None = None
        self._normalize = Normalization(normalization, lowercase)
        self.lowercase = lowercase
        self.max_length = int(max_length)
        self.too_long = too_long
        self.normalization = normalization
        if self._is_of_your_own and not self.splitter.draws:
            Trial(self.splitter, self._normalize).run()
        self._learn(*self._tokens_of(vocabulary))

    def __repr__(self) -> str:
        return (
            f"<Text size={self.size}, split={self.split!r}, "
            f"lowercase={self.lowercase}, max_length={self.max_length}, "
            f"too_long={self.too_long!r}, "
            f"normalization={self.normalization!r}>"
        )

    @property
    def split(self) -> str | Splitter:
        """The argument `split`: a short name, or a `Splitter`."""
        return built_in.name_of(self.splitter) or self.splitter

    @property
    def _is_of_your_own(self):
        return isinstance(self.split, Splitter)

    def _tokens_of(self, vocabulary):
        """Returns the tokens, and a dictionary of counts, empty if unknown."""
        own = self.splitter.tokens
        if own is not None and vocabulary is not None:
            raise ValueError(
                f"`{type(self.splitter).__name__}` has {len(own)} tokens of "
                "its own, so `vocabulary` must be left out. Received: "
                f"vocabulary={vocabulary!r:.80}. Call `Text(split=...)`."
            )
        if own is None and vocabulary is None:
            raise ValueError(
                "`vocabulary` must be a list of tokens. Received: "
                f"vocabulary=None with split={self.split!r}, which has no "
                "tokens of its own. Call `Text.from_lines(lines, split=...)` "
                "to count the tokens of your data."
            )
        counts = dict(vocabulary) if hasattr(vocabulary, "keys") else {}
        return list(vocabulary if own is None else own), counts

    def _learn(self, tokens, counts):
        """Checks tokens and makes them the vocabulary."""
        require_tokens(tokens, self.splitter)
        self.counts = counts
        if self.splitter.special is None:
            tokens = [*SPECIAL_TOKENS, *tokens]
        self._use(Vocabulary(tokens, self.special))
        if self.splitter.tokens is None and self.splitter.splits_alone:
            self._require_splittable(tokens[len(SPECIAL_TOKENS) :])

    def _use(self, vocabulary):
        own = self.splitter.tokens is not None
        kind = ByOwnIds if own else ByVocabulary
        self._vocabulary = vocabulary
        self._coding = kind(self.splitter, vocabulary)

    @classmethod
    def from_lines(
        cls,
        lines: Iterable[str],
        split: str | Splitter,
        lowercase: bool = False,
        max_size: int | None = None,
        min_count: int = 1,
        **kwargs,
    ) -> "Text":
        """Makes a `Text` of the most frequent tokens in lines of text.

        Args:
            lines: The data, an iterable of strings.
            split: As for `Text`.
            lowercase: As for `Text`.
            max_size: Maximum `size`, including the special tokens.
            min_count: Minimum number of occurrences of a token to keep.
            **kwargs: `max_length`, `too_long` and `normalization`, as for
                `Text`. All tokens of a line are counted, even those beyond
                `max_length`.

        Returns:
            A `Text` whose tokens are sorted by frequency.

        Raises:
            ValueError: If `lines` is a single string or holds anything but
                strings, or if the splitter has its own tokens.
        """
        if isinstance(lines, (str, bytes)):
            raise ValueError(
                "`lines` must be a list of strings. Received: the string "
                f"{lines[:40]!r}. For one line pass a list of one."
            )
        if max_size is not None and max_size <= len(SPECIAL_TOKENS):
            raise ValueError(
                f"`max_size` counts the {len(SPECIAL_TOKENS)} special tokens "
                f"and must be larger. Received: max_size={max_size!r}"
            )
        if not isinstance(min_count, int):
            raise ValueError(
                "`min_count` must be an integer. Received: "
                f"min_count={min_count!r}"
            )
        own = getattr(split, "tokens", None)
        if own is not None:
            raise ValueError(
                "`Text.from_lines` counts tokens, so `split` must not bring "
                f"its own tokens. Received: `{type(split).__name__}`, "
                f"which has {len(own)} tokens of its own. Call "
                "`Text(split=...)`, without lines."
            )
        text = cls([], split, lowercase, **kwargs)
        counter: collections.Counter = collections.Counter()
        data = encode_lines(lines, "lines")
        if text._is_of_your_own:
            Trial(text.splitter, text._normalize).read(data[:_TRIED])
        for i in range(0, len(data), _BATCH):
            pieces = text.pieces(tf.constant(data[i : i + _BATCH]))
            counter.update(pieces.flat_values.numpy().tolist())
        counts = [
            (token.decode(), count)
            for token, count in counter.items()
            if count >= min_count and token.decode() not in SPECIAL_TOKENS
        ]
        # Frequent tokens first; equally frequent ones by code point, so the
        # order of the data does not matter.
        counts.sort(key=lambda pair: (-pair[1], pair[0]))
        if max_size is not None:
            counts = counts[: max_size - len(SPECIAL_TOKENS)]
        text._learn([token for token, _ in counts], dict(counts))
        return text

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        size: int = 8000,
        kind: str = "unigram",
        byte_fallback: bool = True,
        trainer: dict | None = None,
        **kwargs,
    ) -> "Text":
        """Trains a SentencePiece subword model on lines of text.

        The same lines give the same subwords. Source and target may share a
        `Text` that was trained on the lines of both.

        Args:
            lines: The data, an iterable of strings.
            size: Maximum `size`, including the special tokens.
            kind: `"unigram"` or `"bpe"`.
            byte_fallback: Whether a character that is not in the vocabulary
                is split into bytes. If `False` it is unknown.
            trainer: Further options of SentencePiece's trainer, by name.
            **kwargs: `lowercase`, `max_length`, `too_long` and
                `normalization`, as for `Text`.

        Raises:
            ImportError: If the package `sentencepiece` is not installed.
            ValueError: If an argument is invalid, or if SentencePiece cannot
                train on these lines with these options.

        References:
            - [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226)
            - [Kudo, 2018](https://arxiv.org/abs/1804.10959), section 3.2, for
              `"unigram"`
            - [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909) for
              `"bpe"`

        Example:
            >>> lines = ["to be or not to be", "to see or not to see"]
            >>> text = keras_attn.Text.train(lines, size=30, kind="bpe",
            ...     byte_fallback=False)
            >>> text.tokens_of(["to be"]).to_list()
            [[b'\xe2\x96\x81to', b'\xe2\x96\x81be', b'</s>']]
            >>> text.strings(text.ids(["not to see"])).numpy().tolist()
            [b'not to see']
        """
        if isinstance(lines, (str, bytes)):
            raise ValueError(
                "`lines` must be a list of strings. Received: the string "
                f"{lines[:40]!r}. For one line pass a list of one."
            )
        if kind not in ("unigram", "bpe"):
            raise ValueError(
                f'`kind` must be "unigram" or "bpe". Received: kind={kind!r}'
            )
        arguments.positive(size, "size")
        ruled = any(x.startswith("normalization_rule") for x in trainer or {})
        if ruled and kwargs.get("normalization", "auto") not in ("auto", None):
            raise ValueError(
                "Text is normalized once. Received: a normalization rule for "
                "SentencePiece in `trainer`, and also "
                f"normalization={kwargs['normalization']!r}. Leave out one."
            )
        plain = cls([], "characters", **kwargs)
        data = encode_lines(lines, "lines")
        if not any(data):
            raise ValueError(
                "`Text.train` needs lines of text. Received: "
                f"{len(data)} lines, and none has a character."
            )
        read: list[bytes] = []
        for i in range(0, len(data), _BATCH):
            batch = tf.constant(data[i : i + _BATCH])
            read += plain._normalize(batch).numpy().tolist()
        content = subwords.train(read, size, kind, byte_fallback, trainer or {})
        return cls(split=subwords.SentencePiece(content), **kwargs)

    @classmethod
    def from_text_vectorization(
        cls,
        layer,
        start: str | None = None,
        end: str | None = None,
        wrap_source: bool = False,
        **kwargs,
    ) -> "Text":
        """Makes the text of a model trained with Keras's `TextVectorization`.

        Ids, standardization and splitting are the layer's. The layer itself
        is not kept.

        Args:
            layer: A `keras.layers.TextVectorization` that has a vocabulary and
                returns integer ids.
            start: Token with which targets begin, such as `"[start]"`. The
                text of the targets needs `start` and `end`; that of the
                sources may have neither.
            end: Token with which targets end.
            wrap_source: Whether sources also begin with `start` and end with
                `end`.
            **kwargs: `max_length` and `too_long`, as for `Text`. If the layer
                has an `output_sequence_length`, `max_length` defaults to it,
                less the tokens put around sources.

        Raises:
            ValueError: If the layer does not return ids or does not split, or
                if `start` or `end` is not in its vocabulary.

        Example:
            >>> layer = keras.layers.TextVectorization(standardize="lower")
            >>> layer.adapt(["[start] so it is [end]"])
            >>> text = keras_attn.Text.from_text_vectorization(
            ...     layer, start="[start]", end="[end]")
            >>> text.strings(text.ids(["It is so"])).numpy().tolist()
            [b'it is so']
        """
        splitter = keras_vocabulary.of_text_vectorization(
            layer, start, end, wrap_source
        )
        length = layer.get_config()["output_sequence_length"]
        if length is not None:
            special: Any = splitter.special
            more = len(special.source_start) + len(special.ends_source)
            kwargs = {"max_length": length - more} | kwargs
        return cls(split=splitter, **kwargs)

    @classmethod
    def from_string_lookup(
        cls,
        layer,
        split: str,
        start: str | None = None,
        end: str | None = None,
        wrap_source: bool = False,
        **kwargs,
    ) -> "Text":
        """Makes the text of a model trained with Keras's `StringLookup`.

        Args:
            layer: A `keras.layers.StringLookup` that has a vocabulary and a
                `mask_token`, which is the padding.
            split: `"whitespace"` or `"character"`: how text was split before
                the layer looked up the pieces.
            start, end, wrap_source: As for `from_text_vectorization`.
            **kwargs: `max_length` and `too_long`, as for `Text`.

        Raises:
            ValueError: If the layer does not return ids or has no padding, or
                if `start` or `end` is not in its vocabulary.

        Example:
            >>> layer = keras.layers.StringLookup(
            ...     vocabulary=["^", "$", "a", "b"], mask_token="")
            >>> text = keras_attn.Text.from_string_lookup(
            ...     layer, "character", start="^", end="$")
            >>> text.ids(["ab"]).numpy().tolist()
            [[4, 5, 3]]
        """
        splitter = keras_vocabulary.of_string_lookup(
            layer, split, start, end, wrap_source
        )
        return cls(split=splitter, **kwargs)

    @classmethod
    def from_tokenizer(
        cls,
        content: str,
        start: str | None = None,
        end: str | None = None,
        wrap_source: bool = False,
        **kwargs,
    ) -> "Text":
        """Makes the text of a model trained with the `Tokenizer` of Keras 2.

        Args:
            content: The JSON that the tokenizer's `to_json()` returned. A
                pickled tokenizer is not opened, as a pickle can run any code.
            start, end, wrap_source: As for `from_text_vectorization`.
            **kwargs: `max_length` and `too_long`, as for `Text`.

        Raises:
            ValueError: If `content` is not such JSON, or if `start` or `end`
                is not in its vocabulary.

        Example:
            >>> import json
            >>> index = {"startseq": 1, "endseq": 2, "a": 3, "dog": 4}
            >>> content = json.dumps({"class_name": "Tokenizer", "config": {
            ...     "num_words": None, "filters": ".,", "lower": True,
            ...     "split": " ", "char_level": False, "oov_token": None,
            ...     "word_index": json.dumps(index)}})
            >>> text = keras_attn.Text.from_tokenizer(
            ...     content, start="startseq", end="endseq")
            >>> text.ids(["A dog."]).numpy().tolist()
            [[3, 4, 2]]
        """
        splitter = keras_vocabulary.of_tokenizer(
            content, start, end, wrap_source
        )
        return cls(split=splitter, **kwargs)

    def sampled(self, nbest: int = -1, alpha: float = 0.1) -> "Text":
        """Returns a text for training that samples how strings are split.

        It has the same ids as this text. Decode with this text after training
        on the sampled one. `keras_attn.pairs` samples anew in each epoch. The
        samples cannot be seeded. If a sampled split has more than `max_length`
        tokens, the likeliest split is used.

        Args:
            nbest: Number of likeliest splits to sample from, at least 2, or
                -1 for all.
            alpha: How strongly likelier splits are preferred, at least 0. For
                BPE, the probability of dropping a merge, from 0 to 1.

        Returns:
            A `Text` for `keras_attn.pairs`. It cannot be saved.

        Raises:
            ValueError: If the splitter is not a `SentencePiece` model of the
                kind unigram or BPE, or if an argument is out of range.

        References:
            - [Kudo, 2018](https://arxiv.org/abs/1804.10959), section 3.3
            - [Provilkov et al., 2020](https://arxiv.org/abs/1910.13267), for
              BPE
        """
        if not isinstance(self.splitter, subwords.SentencePiece):
            raise ValueError(
                "Only subwords of SentencePiece can be sampled. Received: a "
                f"text with split={self.split!r}. `Text.train(lines)` trains "
                "subwords."
            )
        whole = isinstance(nbest, int) and not isinstance(nbest, bool)
        if not whole or not (nbest == -1 or nbest >= 2) or not alpha >= 0:
            raise ValueError(
                "`nbest` must be -1 or an integer of at least 2, and `alpha` "
                f"at least 0. Received: nbest={nbest!r}, alpha={alpha!r}"
            )
        other = copy.copy(self)
        other.splitter = self.splitter.drawing(nbest, alpha)
        other._use(self._vocabulary)
        other._without_sampling = self.without_sampling
        return other

    likeliest = arguments.Former("without_sampling")

    @property
    def without_sampling(self) -> "Text":
        """The text that this one was `sampled()` from, or itself."""
        return self._without_sampling or self

    def _require_splittable(self, tokens):
        """Raises if splitting a token does not return it unchanged."""
        for i in range(0, len(tokens), _BATCH):
            batch = tokens[i : i + _BATCH]
            pieces = self.pieces(tf.constant(batch)).to_list()
            for token, found in zip(batch, pieces, strict=True):
                if found != [token.encode()]:
                    raise ValueError(
                        "A token of a vocabulary must be a piece that the "
                        f"text is split into. Received: {token!r}, which is "
                        "split into "
                        f"{[piece.decode() for piece in found]} with "
                        f"split={self.split!r}, lowercase={self.lowercase}, "
                        f"normalization={self.normalization!r}."
                        + self._normalize.advice(token)
                        + self._advice_on_splitting()
                    )

    def _advice_on_splitting(self):
        if not self._is_of_your_own:
            return ""
        return (
            " If pieces depend on their neighbours, as `##ing` does, set "
            f"`splits_alone = False` in `{type(self.splitter).__name__}`."
        )

    @property
    def tokens(self) -> list[str]:
        """The tokens in the order of their ids, the special ones included."""
        return self._vocabulary.tokens

    @property
    def size(self) -> int:
        """Number of ids, including the special ones."""
        return len(self.tokens)

    @property
    def longest_source(self) -> int:
        """Maximum length of `source_ids()`, including special tokens."""
        special = self.special
        more = len(special.source_start) + len(special.ends_source)
        return self.max_length + more

    def pieces(self, strings) -> tf.RaggedTensor:
        """Splits strings `(batch,)` into tokens `(batch, ragged)`.

        Tokens need not be in the vocabulary, and rows are not cut to
        `max_length`.
        """
        return self._coding.pieces(self._normalize(batch_of(strings)))

    def uncut_ids(self, strings) -> tf.RaggedTensor:
        """Turns strings `(batch,)` into ids `(batch, ragged)`.

        Rows have no start or end token and are not cut to `max_length`. If
        the vocabulary has no unknown token, unknown tokens get the id -1.
        """
        return self._coding.ids(self._read(strings, keep_unknown=True))

    def lengths(self, strings) -> tf.Tensor:
        """Counts the tokens of strings before any cut, int64 `(batch,)`."""
        return self._read(strings).row_lengths()

    def _read(self, strings, keep_unknown=False):
        """Returns ragged pieces or ids, the input of `_coding.ids`."""
        strings = self._normalize(batch_of(strings))
        read = self._coding.read(strings, keep_unknown)
        if self._without_sampling is None:
            return read
        # If a sampled split is too long, the best split is used.
        long = read.row_lengths() > self.max_length
        both = tf.concat(
            [
                read,
                self._without_sampling._coding.read(strings, keep_unknown),
            ],
            axis=0,
        )
        rows = tf.range(read.nrows())
        return tf.gather(both, tf.where(long, rows + read.nrows(), rows))

    def ids(self, strings, start: bool = False, end: bool = True) -> tf.Tensor:
        """Turns strings into ids.

        Args:
            strings: Tensor or list of strings, of shape `(batch,)`.
            start: Whether each row begins with the start tokens.
            end: Whether each row ends with the end token.

        Returns:
            int32 tensor of shape `(batch, longest)`, padded with
            `special.pad`, which is 0 unless the splitter has other ids.

        Raises:
            ValueError: For a row of more than `max_length` tokens, if
                `too_long="error"`. In a graph, an `InvalidArgumentError` of
                TensorFlow.
        """
        return self._padded(self.ragged_ids(strings, start, end))

    def ragged_ids(
        self, strings, start: bool = False, end: bool = True
    ) -> tf.RaggedTensor:
        """Like `ids()`, but ragged instead of padded."""
        first = self.special.start if start else ()
        last = (self.special.end,) if end and self.special.end >= 0 else ()
        return self._between(first, strings, last)

    def source_ids(self, strings) -> tf.Tensor:
        """Turns strings `(batch,)` into ids as an encoder reads them.

        Like `ids()`, but each row begins with `special.source_start` and ends
        with `special.ends_source`, by default the end token.
        """
        return self._padded(self.ragged_source_ids(strings))

    def ragged_source_ids(self, strings) -> tf.RaggedTensor:
        """Like `source_ids()`, but ragged instead of padded."""
        special = self.special
        return self._between(special.source_start, strings, special.ends_source)

    def _between(self, first, strings, last):
        """Returns ragged ids, with special ids before and after each row."""
        ids = self._coding.ids(self._cut(self._read(strings)))
        parts = [ids]
        if first:
            parts.insert(0, tf.tile([first], [ids.nrows(), 1]))
        if last:
            parts.append(tf.tile([last], [ids.nrows(), 1]))
        return tf.concat(parts, axis=1)

    def _padded(self, ids):
        pad = self.special.pad
        ids = ids.to_tensor(pad)
        # At least one column, even for no rows: RNNs refuse a length of 0.
        missing = tf.cast(tf.shape(ids)[1] == 0, tf.int32)
        return tf.pad(ids, [[0, 0], [0, missing]], constant_values=pad)

    def token_ids(self, tokens) -> tf.Tensor:
        """Looks up tokens of any shape; returns int32 ids of that shape.

        Tokens are not normalized or split. A token spelled like padding, start
        or end is unknown. If the vocabulary has no unknown token, unknown
        tokens get the id -1.
        """
        return self._vocabulary.ids(tokens)

    def is_truncated(self, strings) -> tf.Tensor:
        """Returns which strings have more than `max_length` tokens.

        `ids()` and `tokens_of()` keep only the first `max_length` of these.

        Args:
            strings: Tensor or list of strings, of shape `(batch,)`.

        Returns:
            Boolean tensor of shape `(batch,)`.
        """
        return self.lengths(tf.convert_to_tensor(strings)) > self.max_length

    def tokens_of(self, strings) -> tf.RaggedTensor:
        """Returns the tokens of `ids()`, with unknown ones as written.

        Each row ends with the end token, `</s>` unless a pretrained vocabulary
        names it otherwise. The result is a ragged tensor `(batch, ragged)`.
        """
        last = (self.special.end,) if self.special.end >= 0 else ()
        return self._named_between((), strings, last)

    def source_tokens(self, strings) -> tf.RaggedTensor:
        """Returns the tokens of `source_ids()`, unknown ones as written."""
        special = self.special
        first, last = special.source_start, special.ends_source
        return self._named_between(first, strings, last)

    def _named_between(self, first, strings, last):
        """Returns ragged tokens, with special ones around each row."""
        pieces = self._cut(self.pieces(strings))
        parts = [pieces]
        if first:
            parts.insert(0, self._repeated(first, pieces))
        if last:
            parts.append(self._repeated(last, pieces))
        return tf.concat(parts, axis=1)

    def _repeated(self, ids, pieces):
        """Returns the tokens of some ids, repeated for each row of pieces."""
        names = [self.tokens[i] for i in ids]
        return tf.tile([names], [pieces.nrows(), 1])

    def _cut(self, pieces):
        """Cuts rows to `max_length`, or refuses the batch."""
        if self.too_long == "error":
            longest = tf.reduce_max(
                tf.concat([pieces.row_lengths(), [0]], axis=0)
            )
            fits, needed = longest <= self.max_length, self._too_long()
            if tf.executing_eagerly():
                if not fits:
                    raise ValueError(f"{needed} {int(longest)}")
                return pieces
            check = tf.debugging.Assert(fits, [needed, longest])
            with tf.control_dependencies([check]):
                pieces = tf.identity(pieces)
        return pieces[:, : self.max_length]

    def _too_long(self):
        return (
            f"A text may have at most {self.max_length} tokens. Split it, or "
            "make the `Text` with a larger `max_length`, or with "
            '`too_long="truncate"`. Received: a text with this number of '
            "tokens:"
        )

    def require_short(self, strings) -> None:
        """Raises `ValueError` for a row that `too_long="error"` refuses."""
        if self.too_long == "error":
            self._cut(self._read(strings))

    def strings(self, ids, tokens=None) -> tf.Tensor:
        """Turns ids `(..., time)` into strings `(...)`.

        Padding, start and end are left out; an unknown token is written as
        `<unk>`.

        Args:
            ids: Integers.
            tokens: The result of `lookup(ids)`, if the caller has it already.
        """
        ids = tf.convert_to_tensor(ids)
        if not ids.dtype.is_integer or ids.shape.rank == 0:
            raise ValueError(
                "`ids` must be integers of shape (..., time). Received: a "
                f"tensor of dtype {ids.dtype.name}, shape {ids.shape}. To "
                "turn strings into ids call `text.ids(strings)`."
            )
        return self._coding.strings(ids, tokens)

    def join(self, tokens, ids) -> tf.Tensor:
        """Joins tokens `(..., time)` into strings `(...)`.

        Tokens whose ids are padding, start or end are left out. The ids have
        no other effect, so a token may differ from that of its id.
        """
        return by_rows(tokens, ids, self.splitter.join, self.special)

    @property
    def separator(self) -> str | None:
        """The string put between joined tokens, `None` if `join()` differs."""
        return self.splitter.separator

    def lookup(self, ids) -> tf.Tensor:
        """Turns ids of any shape into tokens, special ones included."""
        return self._vocabulary.lookup(ids)

    def tables(self):
        """Returns the tables from tokens to ids and from ids to tokens.

        They are made once, outside any graph.
        """
        return self._vocabulary.tables()

    @property
    def prompt_marks(self) -> list[str]:
        """The tokens `<|...|>` that a prefix may contain, as of Whisper."""
        special = self.special
        ids = (*special.prompt_tokens, *special.spelled_tokens)
        names = [self.tokens[i] for i in ids]
        return [x for x in names if MARK.fullmatch(x)]

    def resources(self) -> list:
        """Returns the objects an export must track: tables and splitter."""
        return [*self.tables(), self.splitter]

    def reading(self, path) -> "Text":
        """Writes the vocabulary to a file, and returns a `Text` that reads it.

        An export copies the file as an asset.
        """
        files.write_vocabulary(self, pathlib.Path(path))
        other = copy.copy(self)
        other._use(Vocabulary(self.tokens, self.special, path))
        return other

    def save(self, path) -> None:
        """Writes the vocabulary to a file, and the options beside it.

        The file has a line for each id, `token<TAB>count`. The options are
        written to `path` with `.json` appended. Each file that a `Splitter`
        needs is copied to `path` with `.split.` and the argument's name
        appended.

        Raises:
            ValueError: If this text is `sampled()`, or if the `Splitter` could
                not be loaded again.
        """
        if self.splitter.draws:
            raise ValueError(
                "A text of `Text.sampled()` is for training and not saved. "
                "Received: such a text. Save the text it was made from, "
                "`text.without_sampling`."
            )
        files.write(self, pathlib.Path(path))

    @classmethod
    def load(cls, path, custom_objects=None) -> "Text":
        """Reads what `save()` wrote.

        Args:
            path: Path of the vocabulary.
            custom_objects: Dictionary from names to classes. A `Splitter`
                that is not registered with Keras must be in it.

        Raises:
            FileNotFoundError: If the vocabulary or a file beside it is missing.
            ValueError: If the splitter's class is unknown, or its tokens
                differ from those that were saved.
        """
        path = pathlib.Path(path)
        lines, options = files.read(path, custom_objects)
        own = getattr(options["split"], "tokens", None)
        counts = None if own is not None else files.counts(lines)
        text = cls(counts, **options)
        if own is not None and files.lines(text) != lines:
            raise ValueError(
                f"The tokens in {path} must be those of its splitter, "
                f"`{type(options['split']).__name__}`. Received: "
                f"{len(lines)} tokens in the file and {text.size} in the "
                "splitter. Load the text with the same class and files as "
                "when it was saved."
            )
        text._use(Vocabulary(text.tokens, text.special, path))
        return text
