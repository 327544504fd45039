"""`Text`: strings to ids and back, inside the graph.

Every operation is TensorFlow's or tensorflow-text's, so that a SavedModel
takes and gives strings. Whatever bytes come in, each row gets a defined
result and does no harm to the others:

1. Invalid UTF-8 and NUL become U+FFFD; line breaks and tabs become spaces.
2. Unicode NFKC, then lower case if asked for.
3. Split into characters, or into words at Unicode white space.
4. Look up; what the vocabulary lacks, and any word that looks like a special
   token, is unknown.
5. Cut to `max_length` tokens, or refused, as configured; the end token is
   added. So every row has at least one token, an empty string too.
"""

import collections
import json
import pathlib
from collections.abc import Iterable

import tensorflow as tf
import tensorflow_text

PAD, START, END, UNKNOWN = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")

_SPLITS = {"characters": "", "whitespace": " "}  # and what joins them again
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
            `"error"` refuses the whole batch it is in. In an export that row
            alone has no answer.

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
        if max_length < 1:
            raise ValueError(
                "`max_length` counts the tokens of a row and must be at "
                f"least 1. Received: max_length={max_length!r}"
            )
        counts = dict(vocabulary) if hasattr(vocabulary, "keys") else {}
        tokens = list(vocabulary)
        _require_tokens(tokens)
        self.split = split
        self.lowercase = lowercase
        self.max_length = max_length
        self.too_long = too_long
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
            split: As for `Text`, and so are `lowercase` and `**kwargs`.
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
        text = cls([], split, lowercase, **kwargs)
        counter = collections.Counter()
        lines = list(lines)
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
                        f"split={self.split!r}, lowercase={self.lowercase}."
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
            tf.ensure_shape(strings, [None]), "UTF-8", "UTF-8"
        )
        # `tf.strings.lower` would end a string at its first NUL.
        strings = tf.strings.regex_replace(strings, r"\x00", "\ufffd")
        strings = tf.strings.regex_replace(strings, r"[\t\n\v\f\r]", " ")
        strings = tensorflow_text.normalize_utf8(strings, "NFKC")
        if self.lowercase:
            strings = tf.strings.lower(strings, encoding="utf-8")
        if self.split == "characters":
            return tf.strings.unicode_split(strings, "UTF-8")
        return tensorflow_text.WhitespaceTokenizer().tokenize(strings)

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
        to_id, _ = self.tables()
        found = tf.cast(to_id.lookup(pieces.flat_values), tf.int32)
        # A word spelled like a special token is a word nobody knows.
        found = tf.where(found < len(SPECIAL_TOKENS), UNKNOWN, found)
        ids = pieces.with_flat_values(found)
        first = [tf.fill([pieces.nrows(), 1], START)] if start else []
        last = [tf.fill([pieces.nrows(), 1], END)] if end else []
        return tf.concat([*first, ids, *last], axis=1)

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
        text = cls(counts, **options)
        text._tables = _tables_from_file(path)
        return text


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
        else:
            continue
        raise ValueError(f"A token of a vocabulary {reason}. Got: {token!r}")
    if len(set(tokens)) < len(tokens):
        twice = [t for t, n in collections.Counter(tokens).items() if n > 1]
        raise ValueError(
            "The tokens of a vocabulary must be distinct. Received more than "
            f"once: {twice[:5]}"
        )
