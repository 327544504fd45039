"""`Text`: a vocabulary, and the way text becomes ids of it."""

import collections
import copy
import numbers
import pathlib
from collections.abc import Iterable

import tensorflow as tf

from keras_attn.special_tokens import END
from keras_attn.special_tokens import PAD
from keras_attn.special_tokens import SPECIAL_TOKENS
from keras_attn.special_tokens import START
from keras_attn.text import built_in
from keras_attn.text import files
from keras_attn.text.coding import ByOwnIds
from keras_attn.text.coding import ByVocabulary
from keras_attn.text.coding import by_rows
from keras_attn.text.lines import batch_of
from keras_attn.text.lines import encode_lines
from keras_attn.text.normalization import Normalization
from keras_attn.text.splitter import Splitter
from keras_attn.text.trial import Trial
from keras_attn.text.vocabulary import Vocabulary
from keras_attn.text.vocabulary import require_tokens

_BATCH = 10_000  # lines at a time, when a vocabulary is counted
_TRIED = 1_000  # lines of the data on which a part of one's own is tried


class Text:
    """A vocabulary and the way text becomes ids of it.

    Ids 0 to 3 are padding, start, end and unknown. The rest are the tokens,
    the most frequent first.

    Args:
        vocabulary: Tokens without the special ones, in the order of ids, or
            a mapping of tokens to their counts in the data. Left out where
            `split` is a part with ids of its own.
        split: `"characters"`, `"whitespace"`, or a `Splitter` of your own.
        lowercase: Whether text is lower-cased.
        max_length: Most tokens of a row, the end token not counted.
        too_long: What becomes of a longer row: `"truncate"` cuts it,
            `"error"` refuses the whole batch it is in; in an export that row
            alone has no answer. `is_truncated()` tells which rows are cut,
            and so do the results of a `Translator`.
        normalization: Unicode normal form of the text. `"NFC"` keeps every
            letter and sign as it is written: it only decides whether an
            accented letter is one code point or two. `"NFKC"` also replaces
            signs by plain ones, `kʰ` by `kh`, `½` by `1⁄2`, full-width and
            half-width letters by the usual ones; that loses what was written.
            `None` leaves code points alone.

    Raises:
        ValueError: If a token could never come out of the split, or a
            `Splitter` breaks a rule, which a trial on a few lines shows.

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
        normalization: str | None = "NFC",
    ):
        self.splitter = built_in.get(split)
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
        self._normalise = Normalization(normalization, lowercase)
        self.lowercase = lowercase
        self.max_length = int(max_length)
        self.too_long = too_long
        self.normalization = normalization
        if self._is_of_your_own:
            Trial(self.splitter, self._normalise).run()
        self._learn(*self._tokens_of(vocabulary))

    @property
    def split(self) -> str | Splitter:
        """The way of splitting: its short name, or the part itself."""
        return built_in.name_of(self.splitter) or self.splitter

    @property
    def _is_of_your_own(self):
        return isinstance(self.split, Splitter)

    def _tokens_of(self, vocabulary):
        """The tokens of a vocabulary or of the part, and their counts."""
        own = self.splitter.tokens
        if own is not None and vocabulary is not None:
            raise ValueError(
                f"`{type(self.splitter).__name__}` has {len(own)} tokens of "
                "its own, which have their ids. Received a vocabulary too: "
                f"{vocabulary!r:.80}. Leave it out, `Text(split=...)`."
            )
        if own is None and vocabulary is None:
            raise ValueError(
                "`vocabulary` must be a list of tokens. Received None with "
                f"split={self.split!r}, which has no tokens of its own. "
                "`Text.from_lines(lines, split=...)` counts those of the data."
            )
        counts = dict(vocabulary) if hasattr(vocabulary, "keys") else {}
        return list(vocabulary if own is None else own), counts

    def _learn(self, tokens, counts):
        """Takes tokens, after a look at each."""
        require_tokens(tokens)
        self.counts = counts
        self._use(Vocabulary(tokens))
        if self.splitter.tokens is None and self.splitter.splits_alone:
            self._require_splittable(tokens)

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
        """Counts the tokens of some lines and keeps the frequent ones.

        Args:
            lines: The data.
            split: As for `Text`, and so are `lowercase` and `**kwargs`:
                `max_length`, `too_long` and `normalization`. A line is
                counted whole, also past `max_length`.
            max_size: Largest `size`, the special tokens counted.
            min_count: Fewest occurrences of a token that is kept.
        """
        if isinstance(lines, (str, bytes)):
            raise ValueError(
                "`lines` must be a list of strings. Received the string "
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
                f"`{type(split).__name__}` has {len(own)} tokens of "
                "its own, so none are counted. Received it as `split` of "
                "`Text.from_lines`. Call `Text(split=...)`, without lines."
            )
        text = cls([], split, lowercase, **kwargs)
        counter: collections.Counter = collections.Counter()
        data = encode_lines(lines, "lines")
        if text._is_of_your_own:
            Trial(text.splitter, text._normalise).read(data[:_TRIED])
        for i in range(0, len(data), _BATCH):
            pieces = text.pieces(tf.constant(data[i : i + _BATCH]))
            counter.update(pieces.flat_values.numpy().tolist())
        counts = [
            (token.decode(), count)
            for token, count in counter.items()
            if count >= min_count and token.decode() not in SPECIAL_TOKENS
        ]
        # Frequent first; equals by code point, whatever the data's order.
        counts.sort(key=lambda pair: (-pair[1], pair[0]))
        if max_size is not None:
            counts = counts[: max_size - len(SPECIAL_TOKENS)]
        text._learn([token for token, _ in counts], dict(counts))
        return text

    def _require_splittable(self, tokens):
        """Tokens that no text can give are a mistake."""
        for i in range(0, len(tokens), _BATCH):
            batch = tokens[i : i + _BATCH]
            pieces = self.pieces(tf.constant(batch)).to_list()
            for token, found in zip(batch, pieces, strict=True):
                if found != [token.encode()]:
                    raise ValueError(
                        "A token of a vocabulary must be what the text is "
                        f"split into. Received: {token!r}, which becomes "
                        f"{[piece.decode() for piece in found]} with "
                        f"split={self.split!r}, lowercase={self.lowercase}, "
                        f"normalization={self.normalization!r}."
                        + self._normalise.advice(token)
                        + self._advice_on_splitting()
                    )

    def _advice_on_splitting(self):
        if not self._is_of_your_own:
            return ""
        return (
            " Where pieces depend on what is around them, as `##ing`, "
            f"`{type(self.splitter).__name__}` sets `splits_alone = False`."
        )

    @property
    def tokens(self) -> list[str]:
        """The tokens in the order of their ids, the special ones first."""
        return self._vocabulary.tokens

    @property
    def size(self) -> int:
        """Number of ids, the special ones counted."""
        return len(self.tokens)

    def pieces(self, strings) -> tf.RaggedTensor:
        """Splits strings `(batch,)` into tokens `(batch, ragged)`.

        Whatever the vocabulary; not cut to `max_length`.
        """
        return self._coding.pieces(self._normalise(batch_of(strings)))

    def uncut_ids(self, strings) -> tf.RaggedTensor:
        """Turns strings `(batch,)` into ids `(batch, ragged)`.

        Without start and end, and not cut to `max_length`.
        """
        return self._coding.ids(self._read(strings))

    def lengths(self, strings) -> tf.Tensor:
        """Counts the tokens of strings `(batch,)`, int64, not cut."""
        return self._read(strings).row_lengths()

    def _read(self, strings):
        """Pieces or ids, ragged, of which the coding makes ids."""
        return self._coding.read(self._normalise(batch_of(strings)))

    def ids(self, strings, start: bool = False, end: bool = True) -> tf.Tensor:
        """Turns strings into ids.

        Args:
            strings: Tensor or list of strings, of shape `(batch,)`.
            start: Whether each row begins with the start token.
            end: Whether each row ends with the end token.

        Returns:
            int32 tensor of shape `(batch, longest)`, padded with 0.
        """
        ids = self.ragged_ids(strings, start, end).to_tensor(PAD)
        # An empty batch has one column too: RNNs refuse a length of zero.
        missing = tf.cast(tf.shape(ids)[1] == 0, tf.int32)
        return tf.pad(ids, [[0, 0], [0, missing]], constant_values=PAD)

    def ragged_ids(
        self, strings, start: bool = False, end: bool = True
    ) -> tf.RaggedTensor:
        """Like `ids()`, but ragged instead of padded."""
        ids = self._coding.ids(self._cut(self._read(strings)))
        first = [tf.fill([ids.nrows(), 1], START)] if start else []
        last = [tf.fill([ids.nrows(), 1], END)] if end else []
        return tf.concat([*first, ids, *last], axis=1)

    def token_ids(self, tokens) -> tf.Tensor:
        """Turns tokens of any shape into int32 ids, as they are.

        Nothing is normalised or split. A token spelled like a special one is
        unknown.
        """
        return self._vocabulary.ids(tokens)

    def is_truncated(self, strings) -> tf.Tensor:
        """Tells which strings `(batch,)` have more than `max_length` tokens.

        `ids()` and `tokens_of()` keep the first `max_length` of these.
        """
        return self.lengths(tf.convert_to_tensor(strings)) > self.max_length

    def tokens_of(self, strings) -> tf.RaggedTensor:
        """The tokens behind `ids()`: as written, also where unknown.

        Each row ends with `</s>`.
        """
        pieces = self._cut(self.pieces(strings))
        end = tf.fill([pieces.nrows(), 1], SPECIAL_TOKENS[END])
        return tf.concat([pieces, end], axis=1)

    def _cut(self, pieces):
        """Cuts rows to `max_length`, or refuses the batch."""
        if self.too_long == "error":
            longest = tf.reduce_max(
                tf.concat([pieces.row_lengths(), [0]], axis=0)
            )
            check = tf.debugging.Assert(
                longest <= self.max_length,
                [
                    f"A text may have {self.max_length} tokens. Longest here:",
                    longest,
                ],
            )
            with tf.control_dependencies([check] if check else []):
                pieces = tf.identity(pieces)
        return pieces[:, : self.max_length]

    def strings(self, ids, tokens=None) -> tf.Tensor:
        """Turns ids `(..., time)` into strings `(...)`.

        Padding, start and end are left out; unknown reads `<unk>`.

        Args:
            ids: Integers.
            tokens: What `lookup(ids)` returned, where it is known already.
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
        """Joins tokens `(..., time)` to strings `(...)`.

        Where the ids are padding, start or end, tokens are left out. The
        others may be any.
        """
        return by_rows(tokens, ids, self.splitter.join)

    @property
    def separator(self) -> str | None:
        """The string between two tokens, `None` if that is not all."""
        return self.splitter.separator

    def lookup(self, ids) -> tf.Tensor:
        """Turns ids of any shape into tokens, the special ones too."""
        return self._vocabulary.lookup(ids)

    def tables(self):
        """The two tables, made once and outside any graph."""
        return self._vocabulary.tables()

    def resources(self) -> list:
        """The objects that hold what an export needs beside the graph."""
        return [*self.tables(), self.splitter]

    def reading(self, path) -> "Text":
        """Writes the vocabulary to a file, and returns a text that reads it.

        An export keeps the file as an asset.
        """
        files.write_vocabulary(self, pathlib.Path(path))
        other = copy.copy(self)
        other._use(Vocabulary(self.tokens[len(SPECIAL_TOKENS) :], path))
        return other

    def save(self, path) -> None:
        """Writes the vocabulary to a file, and the options beside it.

        The file has a line for each id, `token<TAB>count`; the options go
        to `path` with `.json` appended. Files that a `Splitter` needs go
        beside them, to `path` with `.split.` and the name of the argument.

        Raises:
            ValueError: If a `Splitter` could not be made again.
        """
        files.write(self, pathlib.Path(path))

    @classmethod
    def load(cls, path, custom_objects=None) -> "Text":
        """Reads what `save()` wrote.

        Args:
            path: Path of the vocabulary.
            custom_objects: Dictionary of classes by their names, in which a
                `Splitter` is found that is not registered with Keras.
        """
        path = pathlib.Path(path)
        counts, options = files.read(path, custom_objects)
        own = getattr(options["split"], "tokens", None)
        if own is not None and list(own) != list(counts):
            raise ValueError(
                f"The tokens in {path} must be those of the part that splits, "
                f"`{type(options['split']).__name__}`. Received: "
                f"{len(counts)} tokens in the file, {len(own)} of the part."
            )
        text = cls(None if own is not None else counts, **options)
        tokens = text.tokens[len(SPECIAL_TOKENS) :]
        text._use(Vocabulary(tokens, path))
        return text
