"""`BytePair`: byte-level byte-pair encoding, as in GPT-2 and BART."""

import dataclasses
import itertools
import json
import pathlib
import re
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
import tensorflow_text

from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import UNKNOWN
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter

_FIRST = len(SPECIAL_TOKENS)  # the first id after the special tokens
_SPACE = r"\s\v\x{85}\pZ"  # Unicode white space, for a bracket of RE2
_MARK = "▁"  # stands for a space in the tokens of a `Text`
_CHUNKS = rf"[{_SPACE}]?[^{_SPACE}]+|[{_SPACE}]"
_WORDS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+|"
    rf" ?[^{_SPACE}\pL\pN]+|[{_SPACE}]+"
)

# An export splits strings at many places. Each is one operation that calls
# this graph, which is traced, stored and optimized once.
_one_graph = tf.function(
    input_signature=[tf.TensorSpec([None], tf.string)],
    autograph=False,
    experimental_attributes={"_noinline": True},
)


@keras.saving.register_keras_serializable("keras_attn")
class BytePair(Splitter):
    """Splits text into subwords by byte-level byte-pair encoding (BPE).

    Each word is first split into its UTF-8 bytes. Then the pair of adjacent
    pieces that comes first in the list of merges is joined, again and again,
    until no pair is in the list. GPT-2, RoBERTa, BART and Whisper do the same;
    pass the files `vocab.json` and `merges.txt` of such a network.

    In these files a letter stands for each byte. The tokens of the `Text` are
    readable instead: `▁be` for `Ġbe` in the file, `été` for `Ã©tÃ©`, and
    `<0xC3>` for a byte that is not a character by itself.

    A special token that is spelled in a text, such as `"</s>"`, is split like
    any other text.

    Args:
        vocabulary: Path of a JSON file with the ids of all tokens, or a
            dictionary from tokens, written as in such a file, to ids.
        merges: Path of a file with a pair on each line, or a list of strings
            such as `"Ġ t"`.
        special: `SpecialTokens` of a pretrained network, ids of the
            vocabulary. Defaults to `None`: ids 0 to 3 are those of a `Text`,
            and tokens that no merge makes are left out.

    Raises:
        ValueError: If a token of the merges is not in the vocabulary, or if
            a byte is not and there is no unknown token.

    References:
        - [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909), section
          3.2
        - Radford et al., 2019, "Language models are unsupervised multitask
          learners", section 2.2, on bytes

    Example:
        >>> pieces = ["t", "o", "b", "e", "Ġ", "to", "Ġb", "Ġbe"]
        >>> text = keras_attn.Text(split=keras_attn.BytePair(
        ...     {piece: i for i, piece in enumerate(pieces)},
        ...     ["t o", "Ġ b", "Ġb e"]))
        >>> text.tokens_of(["to be"]).to_list()[0]
        [b'to', b'\xe2\x96\x81be', b'</s>']
    """

    splits_alone = False
    keeps_text = False  # letters in tokens may stand for other characters

    def __init__(
        self,
        vocabulary: str | pathlib.Path | Mapping[str, int],
        merges: str | pathlib.Path | Iterable[str],
        special: SpecialTokens | None = None,
    ):
        super().__init__()
        self._ids_of = _read_vocabulary(vocabulary)
        self._merges = _read_merges(merges)
        self.special = SpecialTokens.of(special)
        pairs = [self._pair(x) for x in self._merges]
        self._are_in_order = _are_in_order(pairs)
        made = [self._ids_of[left + right] for left, right in pairs]
        self._made = [*made, 0]
        letters = [self._ids_of.get(x, -1) for x in _BYTE_OF]
        self._unknown = self.special.unknown if self.special else UNKNOWN
        if self._unknown < 0 and -1 in letters:
            raise ValueError(
                "Without an unknown token, a vocabulary must have all 256 "
                f"bytes. Received: {self.special} and a vocabulary without "
                f"{[x for x in _BYTE_OF if x not in self._ids_of][:5]}. Set "
                "`unknown` in `special`, or add the bytes."
            )
        # A byte that the vocabulary lacks has an id below 0.
        self._bytes = [x if x >= 0 else -1 - i for i, x in enumerate(letters)]
        self._size = max(self._ids_of.values(), default=0) + 1
        ranks: dict[int, int] = {-2: 0}  # no pair; a table needs an entry
        for rank, (left, right) in enumerate(pairs):
            key = self._key(self._ids_of[left], self._ids_of[right])
            ranks.setdefault(key, rank)
        with tf.init_scope():
            self._ranks = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    [*ranks], [*ranks.values()], tf.int64, tf.int64
                ),
                len(pairs),
            )
        merged = {*made}
        # The bytes of each token, or the string of a special token.
        contents: list = [f"<{i}>" for i in range(self._size)]
        for token, i in self._ids_of.items():
            known = i in merged or token in _BYTE_OF
            contents[i] = _content(token) if known else token
        if self.special is None:
            kept = sorted({*made, *letters} - {-1})
            self._own_ids = [UNKNOWN] * self._size
            for i, own in enumerate(kept):
                self._own_ids[own] = _FIRST + i
            few = [contents[i] for i in kept]
            self._tokens = _readable([*SPECIAL_TOKENS, *few])
            self.tokens = self._tokens[_FIRST:]
            self._contents = [*SPECIAL_TOKENS, *(contents[i] for i in kept)]
        else:
            self._own_ids = [*range(self._size)]
            self.tokens = self._tokens = _readable(contents)
            self._contents = contents
        self._contents = [tf.compat.as_bytes(x) for x in self._contents]
        # `split()` also returns bytes that are not in the vocabulary.
        written = dict(zip(_readable(_SINGLE), _SINGLE, strict=True))
        written |= dict(zip(self._tokens, self._contents, strict=True))
        with tf.init_scope():
            self._content_of = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    [*written], [*written.values()]
                ),
                "",
            )

    @property
    def contents(self) -> list[bytes]:
        """The bytes that each token stands for, in the order of ids."""
        return list(self._contents)

    # The graphs hold a splitter weakly; these methods hold it while they run.
    def split(self, strings):
        return self._split(strings)

    def ids(self, strings):
        return self._ids(strings)

    @_one_graph
    def _split(self, strings):
        found = self._merged(strings)
        flat = found.flat_values
        pieces = tf.gather(tf.constant(self._tokens), self._own(flat))
        bytes_ = tf.constant(_readable(_SINGLE))
        single = tf.gather(bytes_, tf.maximum(-1 - flat, 0))
        return found.with_flat_values(tf.where(flat < 0, single, pieces))

    def join(self, pieces):
        flat = pieces.flat_values
        found = self._content_of.lookup(flat)
        # A piece that is not a token may be a word copied from the source.
        other = tf.strings.regex_replace(flat, _MARK, " ")
        return _joined(
            pieces.with_flat_values(tf.where(found == "", other, found))
        )

    @_one_graph
    def _ids(self, strings):
        found = self._merged(strings)
        own, lacking = self._own(found.flat_values), found.flat_values < 0
        return found.with_flat_values(tf.where(lacking, self._unknown, own))

    def strings(self, ids):
        contents = tf.gather(tf.constant(self._contents), ids.flat_values)
        return _joined(ids.with_flat_values(contents))

    def get_config(self):
        config: dict[str, Any] = {
            "vocabulary": dict(self._ids_of),
            "merges": list(self._merges),
        }
        if self.special is not None:
            config["special"] = dataclasses.asdict(self.special)
        return config

    def _merged(self, strings) -> tf.RaggedTensor:
        """Returns the vocabulary's ids `(batch, ragged)`.

        A byte `x` that is not in the vocabulary gets the id `-1 - x`.
        """
        words = _words(strings)
        different, places = tf.unique(words.flat_values)
        letters = tf.strings.bytes_split(different)
        bytes_ = tf.reshape(
            tf.io.decode_raw(letters.flat_values, tf.uint8), [-1]
        )
        ids = tf.gather(tf.constant(self._bytes), tf.cast(bytes_, tf.int32))
        rows = tf.cast(letters.value_rowids(), tf.int32)
        ids, rows = self._merge(ids, rows, tf.size(different))
        pieces = tf.RaggedTensor.from_value_rowids(
            ids, rows, tf.size(different)
        )
        pieces = tf.gather(pieces, places)
        return tf.RaggedTensor.from_row_splits(
            pieces.flat_values, tf.gather(pieces.row_splits, words.row_splits)
        )

    def _merge(self, ids, rows, count):
        """Merges adjacent pieces within each word.

        Args:
            ids: int32 `(pieces,)`, the ids of the bytes of all words.
            rows: int32 `(pieces,)`, the index of each piece's word.
            count: Number of words.

        Returns:
            The ids and rows of the merged pieces.
        """
        made, none = tf.constant(self._made), len(self._merges)

        def step(ids, rows, _):
            left, right, row = ids[:-1], ids[1:], rows[:-1]
            within = (row == rows[1:]) & (left >= 0) & (right >= 0)
            keys = self._key(tf.cast(left, tf.int64), tf.cast(right, tf.int64))
            ranks = self._ranks.lookup(tf.where(within, keys, -1))
            ranks = tf.cast(ranks, tf.int32)
            best = tf.math.unsorted_segment_min(ranks, row, count + 1)
            here = (ranks < none) & (ranks == tf.gather(best, row))
            if self._are_in_order:
                here = _apart(here)
            else:
                places = tf.where(here, tf.range(tf.size(here)), tf.int32.max)
                first = tf.math.unsorted_segment_min(places, row, count + 1)
                here &= places == tf.gather(first, row)
            joined = tf.where(here, tf.gather(made, ranks), left)
            kept = ~tf.concat([[False], here], axis=0)
            return (
                tf.boolean_mask(tf.concat([joined, ids[-1:]], axis=0), kept),
                tf.boolean_mask(rows, kept),
                tf.reduce_any(here),
            )

        # One more piece, outside all words, so there is always at least one.
        ids, rows, _ = tf.while_loop(
            lambda ids, rows, merged: merged,
            step,
            (
                tf.concat([ids, [0]], axis=0),
                tf.concat([rows, [count]], axis=0),
                tf.constant(True),
            ),
            shape_invariants=(
                tf.TensorShape([None]),
                tf.TensorShape([None]),
                tf.TensorShape([]),
            ),
        )
        return ids[:-1], rows[:-1]

    def _own(self, ids):
        """Turns ids of the vocabulary file into those of the splitter."""
        return tf.gather(tf.constant(self._own_ids), tf.maximum(ids, 0))

    def _key(self, left, right):
        """Returns one integer for a pair of ids."""
        return left * self._size + right

    def _pair(self, merge):
        """Returns the two tokens of a line such as `"Ġ t"`."""
        pair = tuple(merge.split(" "))
        needed = {*pair, "".join(pair)}
        if len(pair) != 2 or not needed <= self._ids_of.keys():
            raise ValueError(
                "A merge must name two tokens of the vocabulary, which must "
                f"also have them joined. Received: {merge!r}; missing in the "
                f"vocabulary: {sorted(needed - self._ids_of.keys())}. Pass "
                "the vocabulary and the merges of the same network."
            )
        return pair


def _words(strings) -> tf.RaggedTensor:
    """Splits strings into words as GPT-2 does.

    Of several spaces before a word, the last belongs to that word, and the
    others form a word. GPT-2 uses look-ahead for this, which RE2 does not
    support.
    """
    chunks = tensorflow_text.regex_split(strings, _CHUNKS, _CHUNKS)
    flat, rows = chunks.flat_values, chunks.value_rowids()
    space = tf.strings.regex_full_match(flat, f"[{_SPACE}]")
    before = tf.concat([[False], space], axis=0)[:-1]
    same_row = rows == tf.concat([[-1], rows], axis=0)[:-1]
    first = ~(space & before & same_row)
    number = tf.cumsum(tf.cast(first, tf.int32))
    joined = tf.strings.unsorted_segment_join(
        flat, number - 1, tf.reduce_sum(tf.cast(first, tf.int32))
    )
    words = tensorflow_text.regex_split(joined, _WORDS, _WORDS)
    return tf.RaggedTensor.from_value_rowids(
        words.flat_values,
        tf.gather(tf.boolean_mask(rows, first), words.value_rowids()),
        chunks.nrows(),
    )


def _apart(here) -> tf.Tensor:
    """Returns a mask of pairs that do not overlap.

    In a run of adjacent places it keeps the first, the third and so on.
    """
    number = tf.range(tf.size(here))
    begins = here & ~tf.concat([[False], here], axis=0)[:-1]
    first = tf.boolean_mask(number, begins)
    run = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    if_any = tf.concat([first, [0]], axis=0)
    begin = tf.gather(if_any, tf.maximum(run, 0))
    return here & ((number - begin) % 2 == 0)


def _are_in_order(pairs) -> bool:
    """Returns whether each token is made once, before it is merged further.

    If so, a merge never makes a pair that comes earlier in the list, and all
    occurrences of a pair can be merged at once.
    """
    known = {*_BYTE_OF}
    for left, right in pairs:
        if left not in known or right not in known or left + right in known:
            return False
        known.add(left + right)
    return True


def _joined(contents) -> tf.Tensor:
    """Joins bytes `(batch, ragged)` into strings of valid UTF-8."""
    joined = tf.strings.reduce_join(contents, axis=-1)
    return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8")


def _read_vocabulary(given) -> dict[str, int]:
    """Returns ids by token, from a file or a dictionary."""
    if isinstance(given, (str, pathlib.Path)):
        given = json.loads(pathlib.Path(given).read_text("utf-8"))
    ids_of = {token: int(i) for token, i in dict(given).items()}
    if min(ids_of.values(), default=-1) < 0 or len({*ids_of.values()}) < len(
        ids_of
    ):
        raise ValueError(
            "A vocabulary must have a token at least, and an id of its own, "
            f"at least 0, for each. Received: {len(ids_of)} tokens with "
            f"{len({*ids_of.values()})} ids from "
            f"{min(ids_of.values(), default=None)} on."
        )
    return ids_of


def _read_merges(given) -> list[str]:
    """Returns lines such as `"Ġ t"`, from a file, lines or pairs."""
    if isinstance(given, (str, pathlib.Path)):
        given = pathlib.Path(given).read_text("utf-8").split("\n")
    lines = [x if isinstance(x, str) else " ".join(x) for x in given]
    return [x for x in lines if x.strip() and not x.startswith("#version")]


def _content(token: str) -> bytes:
    """Returns the bytes that a token's letters stand for."""
    strange = [x for x in token if x not in _BYTE_OF]
    if strange or token.endswith("</w>"):
        raise ValueError(
            "`BytePair` reads byte-level vocabularies, as of GPT-2, BART and "
            "Whisper: each letter stands for a byte, and `Ġ` for a space. "
            f"Received: the token {token!r}, which has other letters or "
            "marks the ends of words. Is it a SentencePiece model? "
            "`SentencePiece` reads these."
        )
    return bytes(_BYTE_OF[letter] for letter in token)


def _readable(contents: list) -> list[str]:
    """Returns a distinct token for each content, bytes or a string."""
    known = {x for x in contents if isinstance(x, str)}
    tokens = []
    for content in contents:
        token = content
        if isinstance(content, bytes):
            several = _text_of(content), _as_bytes(content)
            numbered = (f"{several[1]}#{i}" for i in itertools.count())
            token = next(
                x for x in itertools.chain(several, numbered) if x not in known
            )
        known.add(token)
        tokens.append(token)
    return tokens


def _text_of(content: bytes) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return _as_bytes(content)
    spaced = text.replace(" ", _MARK)
    named = re.fullmatch("(<0x[0-9A-F]{2}>)+", text)
    if _MARK in text or named or not spaced.isprintable():
        return _as_bytes(content)
    return spaced


def _as_bytes(content: bytes) -> str:
    return "".join(f"<0x{byte:02X}>" for byte in content)


def _bytes_of_letters() -> dict[str, int]:
    """Returns a dictionary from letters in vocabulary files to bytes.

    A printable Latin-1 character stands for its own byte. The letters from
    U+0100 on stand for the other bytes.
    """
    found, other = {}, 256
    for byte in range(256):
        printable = 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174
        found[chr(byte if printable else other)] = byte
        other += not printable
    return found


_BYTE_OF = _bytes_of_letters()
# The letters that stand for the bytes 0 to 255 in vocabulary files
BYTES = sorted(_BYTE_OF, key=_BYTE_OF.__getitem__)
_SINGLE = [bytes([i]) for i in range(256)]
