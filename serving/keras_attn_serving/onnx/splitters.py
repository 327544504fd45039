"""Splits and joins the texts of an ONNX export, without TensorFlow.

Each class replaces the `Splitter` of keras_attn with the same name, and returns
the same ids for the same text.
"""

import importlib
import pathlib
import re
import string
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Protocol

_FIRST, _UNKNOWN = 4, 3  # ids of a text that numbers its tokens itself
_SPECIAL = "<pad>", "<s>", "</s>", "<unk>"
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# The categories Cc and Cf, as TensorFlow knows them. Python's versions differ.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
    "\U000e0020-\U000e007f]"
)


class Splitter(Protocol):
    """Turns text into ids, and ids that stand for text into text."""

    def ids(self, line: str) -> list[int]:
        """Returns the ids of a line, with -1 for pieces that have none."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """Returns the text of ids."""
        ...


class Pieces:
    """Splits a line into pieces and looks them up.

    Args:
        tokens: All tokens in the order of their ids.
        split: Function from a line to its pieces.
        separator: The string between two tokens in a text.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        split: Callable[[str], list[str]],
        separator: str,
    ):
        self._tokens, self._split, self._separator = tokens, split, separator
        self._id_of = {token: i for i, token in enumerate(tokens)}

    def ids(self, line):
        return [self._id_of.get(piece, -1) for piece in self._split(line)]

    def text(self, ids):
        return self._separator.join(self._tokens[i] for i in ids)


class Bytes:
    """Splits text into the bytes of UTF-8."""

    def ids(self, line):
        return [_FIRST + byte for byte in line.encode("utf-8")]

    def text(self, ids):
        unknown = _SPECIAL[_UNKNOWN].encode()
        return _text_of(
            unknown if i == _UNKNOWN else bytes([i - _FIRST]) for i in ids
        )


class IntegerIds:
    """Reads and writes ids as decimal numbers, separated by spaces."""

    def __init__(self, size: int):
        self._size = size

    def ids(self, line):
        pieces = re.findall(r"[^ \t-\r]+", line)
        short = [
            int(x) if re.fullmatch("0*[0-9]{1,9}", x) else -1 for x in pieces
        ]
        return [i if i < self._size else -1 for i in short]

    def text(self, ids):
        return " ".join(map(str, ids))


class KerasVocabulary:
    """Splits text as the text layers of Keras do.

    Args:
        tokens: The tokens as they are written, in the order of their ids.
        known: The tokens as they are looked up.
        standardize, split: As for the class of keras_attn.
    """

    def __init__(self, tokens, known, standardize, split):
        self._tokens = tokens
        self._id_of = {token: i for i, token in enumerate(known)}
        self._standardize = _standardizing(standardize)
        self._split = _splitting(split)
        self._separator = "" if split == "character" else " "

    def ids(self, line):
        pieces = self._split(self._standardize(line))
        return [self._id_of.get(piece, -1) for piece in pieces if piece]

    def text(self, ids):
        return self._separator.join(self._tokens[i] for i in ids)


def _standardizing(given) -> Callable[[str], str]:
    """Returns the function that prepares text for Keras's layers."""
    if isinstance(given, dict):
        rules = _config(given, "TokenizerRules", "standardize")
        replaced = dict.fromkeys(map(ord, rules["filters"]), rules["separator"])
        lowers = rules["lower"]
        return lambda x: (x.lower() if lowers else x).translate(replaced)
    rules = {}
    if given in ("lower", "lower_and_strip_punctuation"):
        rules |= _LOWER
    if given in ("strip_punctuation", "lower_and_strip_punctuation"):
        rules |= _NO_PUNCTUATION
    return lambda x: x.translate(rules)


def _splitting(given) -> Callable[[str], list[str]]:
    """Returns the function that splits text as Keras's layers do."""
    if isinstance(given, dict):
        separator = _config(given, "SplitAt", "split")["separator"]
        return lambda x: x.split(separator)
    if given == "character":
        return characters
    return lambda x: re.findall(r"[^ \t-\r]+", x)


def _config(given, kind, name):
    """Returns the options of one of keras_attn's own functions."""
    if given.get("registered_name") != f"keras_attn>{kind}":
        raise ValueError(_own_function(name))
    return given["config"]


class SentencePiece:
    """Splits text with a SentencePiece model and package `sentencepiece`.

    Args:
        model: Path of the model's file.
        special: Whether the ids are those of the model; otherwise its pieces
            are numbered from 4 on. Without effect if there is a `vocabulary`.
        vocabulary: The pieces in the order of their ids, or `None`.
    """

    def __init__(self, model: pathlib.Path, special: bool, vocabulary=None):
        sentencepiece = _package("sentencepiece")
        messages: Any = importlib.import_module(
            "sentencepiece.sentencepiece_model_pb2"
        )

        proto = messages.ModelProto()
        proto.ParseFromString(model.read_bytes())
        proto.trainer_spec.unk_surface = _SPECIAL[_UNKNOWN]
        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=proto.SerializeToString()
        )
        self._vocabulary = vocabulary
        if vocabulary is not None:
            self._id_of = {x: i for i, x in enumerate(vocabulary)}
            return
        pieces = [*range(self._processor.vocab_size())]
        kept = pieces
        if not special:
            is_control = self._processor.is_control
            unknown = self._processor.unk_id()
            kept = [i for i in pieces if not is_control(i) and i != unknown]
        first = 0 if special else _FIRST
        self._own = {piece: first + i for i, piece in enumerate(kept)}
        self._piece_of = {i: piece for piece, i in self._own.items()}

    def ids(self, line):
        if self._vocabulary is not None:
            pieces = self._processor.encode(line, out_type=str)
            return [self._id_of.get(piece, -1) for piece in pieces]
        return [self._own.get(x, -1) for x in self._processor.encode(line)]

    def text(self, ids):
        if self._vocabulary is None:
            unknown = self._processor.unk_id()
            return self._processor.decode(
                [self._piece_of.get(i, unknown) for i in ids]
            )
        pieces = [self._vocabulary[i] for i in ids]
        return (
            self._processor.decode(pieces)
            .replace("▁", " ")
            .strip(string.whitespace)
        )


class WordPiece:
    """Splits text into BERT's pieces, with the package `tokenizers`.

    Args:
        tokens: The tokens as they are written, in the order of their ids.
        unknown: The id of unknown words.
        own: Whether the text numbers its tokens itself, with four special ones
            first.
    """

    def __init__(self, tokens: Sequence[str], unknown: int, own: bool):
        tokenizers = _package("tokenizers")
        self._tokens, self._unknown = tokens, unknown
        listed = list(tokens)
        if own:  # as `[UNK]`, which is never a word of a text
            listed[_UNKNOWN] = "[UNK]"
        model = tokenizers.models.WordPiece(
            # Of two equal pieces the first one counts.
            {x: i for i, x in reversed([*enumerate(listed)])},
            unk_token=listed[unknown],
            max_input_chars_per_word=_LONGEST_WORD,
        )
        self._tokenizer = tokenizers.Tokenizer(model)
        self._tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
            clean_text=False,
            handle_chinese_chars=True,
            strip_accents=False,
            lowercase=False,
        )
        self._tokenizer.pre_tokenizer = (
            tokenizers.pre_tokenizers.BertPreTokenizer()
        )

    def ids(self, line):
        line = _INVISIBLE.sub(" ", line)
        line = self._tokenizer.normalizer.normalize_str(line)
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(line)
        return [i for word, _ in words for i in self._of_word(word)]

    def _of_word(self, word):
        if len(word.encode()) > _LONGEST_WORD:
            return [self._unknown]
        return [x.id for x in self._tokenizer.model.tokenize(word)]

    def text(self, ids):
        joined = " ".join(self._tokens[i] for i in ids)
        return re.sub("(^| )##", "", joined)


class BytePair:
    """Byte-level byte-pair encoding, with the package `tokenizers`.

    Args:
        tokens: The tokens as they are written, in the order of their ids.
        vocabulary: The ids of all tokens, as of `vocab.json`.
        merges: The merges, as of `merges.txt`.
        special: Whether the ids are those of the vocabulary; otherwise its
            tokens are numbered from 4 on.
    """

    def __init__(self, tokens, vocabulary: dict, merges: list, special: bool):
        tokenizers = _package("tokenizers")
        # Of two equal merges the first one counts.
        pairs = [tuple(x.split(" ")) for x in dict.fromkeys(merges)]
        letters = _letters()
        self._tokenizer = tokenizers.Tokenizer(
            tokenizers.models.BPE(vocabulary, pairs)
        )
        self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
            add_prefix_space=False
        )
        self._vocabulary = vocabulary
        made = {vocabulary["".join(pair)] for pair in pairs}
        known = {vocabulary[x] for x in letters if x in vocabulary} | made
        kept = sorted(vocabulary.values()) if special else sorted(known)
        first = 0 if special else _FIRST
        self._own = {x: x if special else first + i for i, x in enumerate(kept)}
        # An id that the vocabulary skips is written as its name.
        self._content = {i: x.encode() for i, x in enumerate(tokens)}
        self._content |= {
            self._own[i]: (
                bytes(letters[x] for x in token)
                if i in known
                else token.encode()
            )
            for token, i in vocabulary.items()
            if i in self._own
        }

    def ids(self, line):
        # `encode` drops bytes that the vocabulary lacks, so each word is split
        # by itself.
        found = []
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(line)
        for word, _ in words:
            found += self._of_word(word)
        return found

    def _of_word(self, word):
        if all(x in self._vocabulary for x in word):
            tokens = self._tokenizer.model.tokenize(word)
            return [self._own.get(x.id, -1) for x in tokens]
        found = []
        for part in re.split(f"([{_any(self._lacking(word))}])", word):
            if part and part not in self._vocabulary and len(part) == 1:
                found.append(-1)
            elif part:
                tokens = self._tokenizer.model.tokenize(part)
                found += [self._own.get(x.id, -1) for x in tokens]
        return found

    def _lacking(self, word):
        return {x for x in word if x not in self._vocabulary}

    def text(self, ids):
        return _text_of(self._content.get(i, b"") for i in ids)


_LONGEST_WORD = 100  # bytes that WordPiece looks at
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_NO_PUNCTUATION = str.maketrans("", "", "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'")


def characters(line: str) -> list[str]:
    """Splits a line into its code points."""
    return [*line]


def words(line: str) -> list[str]:
    """Splits a line at Unicode white space."""
    return re.findall(f"[^{_SPACE}]+", line)


def splitter_of(
    content: dict[str, Any], folder: pathlib.Path, own: dict[str, Any]
) -> Splitter:
    """Returns the splitter that a JSON file of an export describes.

    Args:
        content: The content of the file.
        folder: The folder of the export.
        own: The caller's own splitters, by the names of their classes.

    Raises:
        ValueError: If the class is unknown and not in `own`.
        ImportError: If a package is not installed.
    """
    kind, tokens = content["split"], content["tokens"]
    if kind in own:
        return own[kind]
    options = content.get("split_options", {})
    files = content.get("split_files", {})
    special = content["special"]
    if kind == "characters":
        return Pieces(tokens, characters, "")
    if kind == "whitespace":
        return Pieces(tokens, words, " ")
    if kind == "Bytes":
        return Bytes()
    if kind == "IntegerIds":
        return IntegerIds(options["size"])
    if kind == "KerasVocabulary" and options:
        return KerasVocabulary(
            tokens, options["tokens"], options["standardize"], options["split"]
        )
    if kind == "SentencePiece":
        return SentencePiece(
            folder / files["model"],
            options.get("special") is not None,
            options.get("vocabulary"),
        )
    if kind == "WordPiece":
        return WordPiece(
            tokens, special["unknown"], options.get("special") is None
        )
    if kind == "BytePair":
        return BytePair(
            tokens,
            options["vocabulary"],
            options["merges"],
            options.get("special") is not None,
        )
    raise ValueError(
        f"The text is split by a class of your own, {kind!r}. Received: no "
        f"`splitters` for it. Pass `splitters={{{kind!r}: ...}}`, an object "
        "with `ids(line)`, which returns a list of integers with -1 for "
        "unknown pieces, and `text(ids)`, which returns a string."
    )


def _own_function(name):
    return (
        f"`{name}` of the text is a function of your own, which an ONNX export "
        "cannot hold. Pass `splitters={'KerasVocabulary': ...}`, an object "
        "with `ids(line)` and `text(ids)`."
    )


def _package(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"This export splits its texts with the package `{name}`: `pip "
            "install 'keras-attn-serving[onnx]'`."
        ) from error


def _text_of(parts):
    return b"".join(parts).decode("utf-8", "replace")


def _any(letters):
    return "".join(map(re.escape, sorted(letters)))


def _letters() -> dict[str, int]:
    """Returns each byte by the letter that stands for it in files."""
    found, other = {}, 256
    for byte in range(256):
        printable = 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174
        found[chr(byte if printable else other)] = byte
        other += not printable
    return found
