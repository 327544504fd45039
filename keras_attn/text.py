"""`Text`: strings to ids and back, inside the graph.

Every operation is TensorFlow's or tensorflow-text's, so that a SavedModel
takes and gives strings. Whatever bytes come in, each row gets a defined
result and does no harm to the others:

1. Invalid UTF-8 and NUL become U+FFFD; line breaks and tabs become spaces.
2. Unicode normalisation, NFC unless something else is asked for; then lower
   case if asked for.
3. Split into characters, or into words at Unicode white space.
4. Look up; what the vocabulary lacks, and any word that looks like a special
   token, is unknown.
5. Cut to `max_length` tokens, which is told, or refused, as configured; the
   end token is added. So every row has at least one token, an empty string
   too.
"""

import collections
import json
import numbers
import pathlib
import unicodedata
from collections.abc import Iterable

import tensorflow as tf
import tensorflow_text

PAD, START, END, UNKNOWN = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")

_SPLITS = {"characters": "", "whitespace": " "}  # and what joins them again
_NORMALIZATIONS = ("NFC", "NFKC", None)
# White space of more than one byte, by Unicode's property of this name.
_WIDE_SPACE = (
    r"[\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}"
    r"\x{205F}\x{3000}]"
)
_BATCH = 10_000  # lines at a time, when a vocabulary is counted


class Text:
    """A vocabulary and the way text becomes ids of it.

    Ids 0 to 3 are padding, start, end and unknown. The rest are the tokens,
    the most frequent first.

    Args:
        vocabulary: Tokens without the special ones, in the order of ids, or
            a mapping of tokens to their counts in the data.
        split: `"characters"` or `"whitespace"`.
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
        ValueError: If a token could never come out of the split.

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
        vocabulary: Iterable[str],
        split: str,
        lowercase: bool = False,
        max_length: int = 1000,
        too_long: str = "truncate",
        normalization: str | None = "NFC",
    ):
        if split not in _SPLITS:
            raise ValueError(
                '`split` must be "characters" or "whitespace". Received: '
                f"split={split!r}"
            )
        if too_long not in ("truncate", "error"):
            raise ValueError(
                '`too_long` must be "truncate" or "error". Received: '
                f"too_long={too_long!r}"
            )
        if normalization not in _NORMALIZATIONS:
            raise ValueError(
                '`normalization` must be "NFC", "NFKC" or None, which leaves '
                f"text as it is. Received: normalization={normalization!r}"
            )
        whole = isinstance(max_length, numbers.Integral)
        whole = whole and not isinstance(max_length, bool)
        if not whole or max_length < 1:
            raise ValueError(
                "`max_length` counts the tokens of a row and must be an "
                f"integer, at least 1. Received: max_length={max_length!r}"
            )
        counts = dict(vocabulary) if hasattr(vocabulary, "keys") else {}
        tokens = list(vocabulary)
        _require_tokens(tokens)
        self.split = split
        self.lowercase = lowercase
        self.max_length = int(max_length)
        self.too_long = too_long
        self.normalization = normalization
        self.counts = counts
        self.tokens = [*SPECIAL_TOKENS, *tokens]
        self._tables = None
        self._require_splittable(tokens)

    @classmethod
    def from_lines(
        cls,
        lines: Iterable[str],
        split: str,
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
        text = cls([], split, lowercase, **kwargs)
        counter = collections.Counter()
        lines = encode_lines(lines, "lines")
        for i in range(0, len(lines), _BATCH):
            pieces = text.pieces(tf.constant(lines[i : i + _BATCH]))
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
        return cls(dict(counts), split, lowercase, **kwargs)

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
                        + self._why_normalised(token)
                    )

    def _why_normalised(self, token):
        form = self.normalization
        if form is None or unicodedata.is_normalized(form, token):
            return ""
        return (
            f" Normalise tokens first, `unicodedata.normalize({form!r}, "
            "token)`, or pass `normalization=None`, which lets them through."
        )

    @property
    def size(self) -> int:
        """Number of ids, the special ones counted."""
        return len(self.tokens)

    def pieces(self, strings) -> tf.RaggedTensor:
        """Splits strings `(batch,)` into tokens `(batch, ragged)`.

        Whatever the vocabulary; not cut to `max_length`.
        """
        strings = tf.strings.unicode_transcode(
            _batch_of_strings(strings), "UTF-8", "UTF-8"
        )
        # `tf.strings.lower` would end a string at its first NUL.
        strings = tf.strings.regex_replace(strings, r"\x00", "\ufffd")
        strings = tf.strings.regex_replace(strings, r"[\t\n\v\f\r]", " ")
        strings = self._normalised(strings)
        if self.lowercase:
            strings = tf.strings.lower(strings, encoding="utf-8")
            # A small letter may be one with its accent where the capital is
            # not, as in J with a caron. NFKC stays as vocabularies stored
            # with it were made.
            if self.normalization == "NFC":
                strings = self._normalised(strings)
        if self.split == "characters":
            return tf.strings.unicode_split(strings, "UTF-8")
        # The tokenizer steps over one byte of white space, whatever its size.
        strings = tf.strings.regex_replace(strings, _WIDE_SPACE, " ")
        return tensorflow_text.WhitespaceTokenizer().tokenize(strings)

    def _normalised(self, strings):
        if self.normalization is None:
            return strings
        return tensorflow_text.normalize_utf8(strings, self.normalization)

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
        pieces = self._cut(self.pieces(strings))
        ids = pieces.with_flat_values(self.token_ids(pieces.flat_values))
        first = [tf.fill([pieces.nrows(), 1], START)] if start else []
        last = [tf.fill([pieces.nrows(), 1], END)] if end else []
        return tf.concat([*first, ids, *last], axis=1)

    def token_ids(self, tokens) -> tf.Tensor:
        """Turns tokens of any shape into int32 ids, as they are.

        Nothing is normalised or split. A token spelled like a special one is
        unknown.
        """
        to_id, _ = self.tables()
        found = tf.cast(to_id.lookup(tf.convert_to_tensor(tokens)), tf.int32)
        return tf.where(found < len(SPECIAL_TOKENS), UNKNOWN, found)

    def is_truncated(self, strings) -> tf.Tensor:
        """Tells which strings `(batch,)` have more than `max_length` tokens.

        `ids()` and `tokens_of()` keep the first `max_length` of these.
        """
        lengths = self.pieces(tf.convert_to_tensor(strings)).row_lengths()
        return lengths > self.max_length

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

    def strings(self, ids) -> tf.Tensor:
        """Turns ids `(..., time)` into strings `(...)`.

        Padding, start and end are left out; unknown reads `<unk>`.
        """
        ids = tf.convert_to_tensor(ids)
        if not ids.dtype.is_integer or ids.shape.rank == 0:
            raise ValueError(
                "`ids` must be integers of shape (..., time). Received: a "
                f"tensor of dtype {ids.dtype.name}, shape {ids.shape}. To "
                "turn strings into ids call `text.ids(strings)`."
            )
        return self.join(self.lookup(ids), ids)

    def join(self, tokens, ids) -> tf.Tensor:
        """Joins tokens `(..., time)` to strings `(...)`.

        Where the ids are padding, start or end, tokens are left out.
        """
        # Not -1, which a time of zero would leave open.
        rows = tf.reduce_prod(tf.shape(ids)[:-1])
        size = tf.stack([rows, tf.shape(ids)[-1]])
        flat, tokens = tf.reshape(ids, size), tf.reshape(tokens, size)
        joined = tf.strings.reduce_join(
            tf.ragged.boolean_mask(tokens, ~_is_silent(flat)),
            axis=-1,
            separator=self.separator,
        )
        return tf.reshape(joined, tf.shape(ids)[:-1])

    @property
    def separator(self) -> str:
        """What stands between two tokens of a string."""
        return _SPLITS[self.split]

    def lookup(self, ids) -> tf.Tensor:
        """Turns ids of any shape into tokens, the special ones too."""
        _, to_token = self.tables()
        return to_token.lookup(tf.cast(ids, tf.int64))

    def tables(self):
        """The two tables, made once and outside any graph."""
        if self._tables is None:
            with tf.init_scope():
                self._tables = _tables_in_memory(self.tokens)
        return self._tables

    def save(self, path) -> None:
        """Writes the vocabulary to a file, and the options beside it.

        The file has a line for each id, `token<TAB>count`; the options go
        to `path` with `.json` appended.
        """
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{t}\t{self.counts.get(t, 0)}\n" for t in self.tokens]
        path.write_text("".join(lines), encoding="utf-8", newline="")
        options = {
            "split": self.split,
            "lowercase": self.lowercase,
            "max_length": self.max_length,
            "too_long": self.too_long,
            "normalization": self.normalization,
        }
        _options_path(path).write_text(json.dumps(options, indent=2) + "\n")

    @classmethod
    def load(cls, path) -> "Text":
        """Reads what `save()` wrote."""
        path = pathlib.Path(path)
        if not path.exists() or not _options_path(path).exists():
            raise FileNotFoundError(
                f"`Text.load` needs the vocabulary {path} and its options "
                f"{_options_path(path)}, as `Text.save` writes them."
            )
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = file.read().split("\n")[:-1]
        pairs = [line.rsplit("\t", 1) for line in lines]
        counts = {token: int(count) for token, count in pairs}
        for token in SPECIAL_TOKENS:
            del counts[token]
        options = json.loads(_options_path(path).read_text())
        # Before there was a choice all text was NFKC.
        text = cls(counts, **{"normalization": "NFKC"} | options)
        text._tables = _tables_from_file(path)
        return text


def encode_lines(lines, name: str) -> list[bytes]:
    """Lines as bytes; lone surrogates get through, for `Text` to replace.

    Args:
        lines: Strings, or bytes.
        name: What the caller calls them.
    """
    found = []
    for i, line in enumerate(lines):
        if tf.is_tensor(line):  # of a `tf.data.Dataset`
            line = line.numpy()
        if isinstance(line, str):
            line = line.encode("utf-8", "surrogatepass")
        elif not isinstance(line, bytes):
            raise ValueError(
                f"`{name}` must be strings, one a line. Received: "
                f"{name}[{i}]={line!r:.80} (of type {type(line).__name__}). "
                "Leave empty lines as the empty string, and turn numbers into "
                "text by `str(x)`."
            )
        found.append(line)
    return found


def _tables_in_memory(tokens):
    ids = tf.range(len(tokens), dtype=tf.int64)
    initializer = tf.lookup.KeyValueTensorInitializer
    return (
        tf.lookup.StaticHashTable(initializer(tokens, ids), UNKNOWN),
        tf.lookup.StaticHashTable(
            initializer(ids, tokens), SPECIAL_TOKENS[UNKNOWN]
        ),
    )


def _tables_from_file(path):
    """Tables over a vocabulary file, which an export copies as an asset."""

    def table(key_dtype, key_index, value_dtype, value_index, default):
        initializer = tf.lookup.TextFileInitializer(
            str(path), key_dtype, key_index, value_dtype, value_index
        )
        return tf.lookup.StaticHashTable(initializer, default)

    token, line = 0, tf.lookup.TextFileIndex.LINE_NUMBER
    return (
        table(tf.string, token, tf.int64, line, UNKNOWN),
        table(tf.int64, line, tf.string, token, SPECIAL_TOKENS[UNKNOWN]),
    )


def _is_silent(ids):
    return (ids == PAD) | (ids == START) | (ids == END)


def _options_path(path):
    return path.with_name(path.name + ".json")


def _require_tokens(tokens):
    for token in tokens:
        if not isinstance(token, str) or not token:
            reason = "must be a string that is not empty"
        elif token in SPECIAL_TOKENS:
            reason = "is the name of a special token"
        elif any(c in "\0\t\n\v\f\r" for c in token):
            reason = "has a NUL, tab or line break, which text never keeps"
        elif any("\ud800" <= c <= "\udfff" for c in token):
            reason = "has a lone surrogate, which is no text"
        else:
            continue
        raise ValueError(f"A token of a vocabulary {reason}. Got: {token!r}")
    if len(set(tokens)) < len(tokens):
        twice = [t for t, n in collections.Counter(tokens).items() if n > 1]
        raise ValueError(
            "The tokens of a vocabulary must be distinct. Received more than "
            f"once: {twice[:5]}"
        )


def _batch_of_strings(strings):
    """A string tensor `(batch,)`."""
    shape, dtype = getattr(strings, "shape", None), tf.string
    if tf.is_tensor(strings):
        dtype = strings.dtype
    elif hasattr(strings, "dtype"):  # of numpy
        dtype = tf.string if strings.dtype.kind in "OSU" else strings.dtype
    elif isinstance(strings, (str, bytes)):
        shape = ()
    elif any(not isinstance(x, (str, bytes)) for x in strings):
        encode_lines(strings, "strings")  # names the one that is none
    rank = None if shape is None else tf.TensorShape(shape).rank
    if dtype != tf.string or rank not in (None, 1):
        raise ValueError(
            "A `Text` reads a batch of strings, of shape (batch,). Received: "
            f"{strings!r:.80}. For one line pass a list of one, and to turn "
            "ids into text call `text.strings(ids)`."
        )
    return tf.ensure_shape(strings, [None])
