"""Splitters into subwords and bytes, which have their own ids."""

import dataclasses
import io
import os
import pathlib
import tempfile
import weakref
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf
import tensorflow_text

from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import UNKNOWN
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter

_STRINGS = tf.TensorSpec([None], tf.string)
_PIECES = tf.RaggedTensorSpec([None, None], tf.string)
_IDS = tf.RaggedTensorSpec([None, None], tf.int32)
_AS_IT_IS = "identity"  # SentencePiece's name for no normalization
_UNKNOWN_WORD = "[UNK]"
_INVISIBLE = r"[\p{Cc}\p{Cf}]"
_FIRST = len(SPECIAL_TOKENS)  # the first id after the special tokens


@keras.saving.register_keras_serializable("keras_attn")
class SentencePiece(Splitter):
    """Splits text into subwords by a SentencePiece model.

    The model may be of any kind: unigram, BPE, words or characters. Its own
    special pieces (`<s>`, `</s>` and the like) are left out: the `Text` adds
    its own. `Text.train` trains a model and returns a `Text` with it.

    For a pretrained network pass its special tokens. Then all ids are those
    of the SentencePiece model.

    If the model's normalization is not `identity`, the model normalizes text,
    and the `Text` does not. SentencePiece writes spaces as `▁`, U+2581, so
    this character in a text comes back as a space.

    Args:
        model: Path of a model file, or its content as bytes.
        nbest: Number of likeliest segmentations to sample from for each text,
            or -1 for all. Defaults to `None`: the likeliest segmentation is
            used. Sampling makes training more robust; see `Text.sampled`.
        alpha: How strongly likelier segmentations are preferred, at least 0;
            0 samples uniformly. For a BPE model, the probability of dropping
            a merge, from 0 to 1. Used only with `nbest`.
        special: `SpecialTokens` of a pretrained network, with the model's ids.
            Defaults to `None`: ids 0 to 3 are those of a `Text`.
        vocabulary: Tokens of a pretrained network whose ids differ from those
            of the model, in the order of the network's ids. It needs
            `special`. A subword that is not in this list is unknown. A piece
            that the model does not know has an id if it is in the list; in
            Marian's source texts these are letters of the target language.

    Raises:
        ImportError: If the package `sentencepiece` is not installed.
        FileNotFoundError: If there is no file at the path `model`.
        ValueError: If `model` is not a SentencePiece model, if it cannot
            sample with this `alpha`, or for a `vocabulary` without `special`.

    References:
        - [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226)
        - [Kudo, 2018](https://arxiv.org/abs/1804.10959), section 3, on draws
    """

    assets = ("model",)
    splits_alone = False

    def __init__(
        self,
        model: str | pathlib.Path | bytes,
        nbest: int | None = None,
        alpha: float = 0.1,
        special: SpecialTokens | None = None,
        vocabulary: Iterable[str] | None = None,
    ):
        super().__init__()
        self._path = ""
        if not isinstance(model, bytes):
            path = pathlib.Path(model)
            if not path.is_file():
                raise FileNotFoundError(
                    "`SentencePiece` needs the path of a model file. "
                    f"Received: model={str(model)!r}, where there is none. "
                    "`Text.train(lines)` trains a model."
                )
            model, self._path = path.read_bytes(), str(path)
        processor = _processor(model)
        proto = _proto(model)
        if nbest is not None:
            _require_draws(proto.trainer_spec, alpha)
        self.nbest, self.alpha = nbest, alpha
        self.special = SpecialTokens.of(special)
        self.vocabulary = None if vocabulary is None else list(vocabulary)
        self.draws = nbest is not None
        self.normalizes = proto.normalizer_spec.name != _AS_IT_IS
        self._content = model
        self._file: _TemporaryFile | None = None
        proto.trainer_spec.unk_surface = SPECIAL_TOKENS[UNKNOWN]
        self._used = proto.SerializeToString(deterministic=True)
        pieces = range(processor.vocab_size())
        if self.vocabulary is not None:
            unknown = _unknown_of(self.special, self.vocabulary)
            ids = {x: i for i, x in enumerate(self.vocabulary)}
            with tf.init_scope():
                self._ids_of = tf.lookup.StaticHashTable(
                    tf.lookup.KeyValueTensorInitializer(
                        [*ids], [*ids.values()], tf.string, tf.int32
                    ),
                    unknown,
                )
            self.tokens = self.vocabulary
            return
        if self.special is None:
            kept = [
                i
                for i in pieces
                if not (processor.is_control(i) or processor.is_unknown(i))
            ]
            own_ids = [UNKNOWN] * len(pieces)
            for i, own in enumerate(kept):
                own_ids[own] = _FIRST + i
            self._from_model = own_ids
            self._to_model = [*[processor.unk_id()] * _FIRST, *kept]
        else:
            kept = list(pieces)
        self.tokens = [processor.id_to_piece(i) for i in kept]

    def drawing(self, nbest: int, alpha: float) -> "SentencePiece":
        """Returns a splitter that samples segmentations of this model."""
        return SentencePiece(
            self._content, nbest, alpha, self.special, self.vocabulary
        )

    # The graphs hold a splitter weakly; these methods hold it while they run.
    def split(self, strings):
        return self._split(strings)

    def join(self, pieces):
        return self._join(pieces)

    def ids(self, strings):
        return self._ids(strings)

    def strings(self, ids):
        return self._strings(ids)

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def _split(self, strings):
        return self._tokenizer(tf.string).tokenize(strings)

    @tf.function(input_signature=[_PIECES], autograph=False)
    def _join(self, pieces):
        joined = self._tokenizer(tf.string).detokenize(pieces)
        if self.vocabulary is None:
            return joined
        # The model leaves pieces that it does not know as they are.
        return tf.strings.strip(tf.strings.regex_replace(joined, "▁", " "))

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def _ids(self, strings):
        if self.vocabulary is not None:
            found = self._split(strings)
            ids = self._ids_of.lookup(found.flat_values)
            return found.with_flat_values(ids)
        found = self._tokenizer(tf.int32).tokenize(strings)
        if self.special is not None:
            return found
        table = tf.constant(self._from_model)
        return found.with_flat_values(tf.gather(table, found.flat_values))

    @tf.function(input_signature=[_IDS], autograph=False)
    def _strings(self, ids):
        if self.vocabulary is not None:
            pieces = tf.gather(tf.constant(self.tokens), ids.flat_values)
            return self._join(ids.with_flat_values(pieces))
        if self.special is None:
            table = tf.constant(self._to_model)
            ids = ids.with_flat_values(tf.gather(table, ids.flat_values))
        return self._tokenizer(tf.int32).detokenize(ids)

    def get_config(self):
        path = pathlib.Path(self._path)
        if not path.is_file() or path.read_bytes() != self._content:
            self._file = _TemporaryFile(self._content)
            self._path = self._file.path
        config: dict[str, Any] = {"model": self._path}
        if self.draws:
            config |= {"nbest": self.nbest, "alpha": self.alpha}
        if self.special is not None:
            config["special"] = dataclasses.asdict(self.special)
        if self.vocabulary is not None:
            config["vocabulary"] = self.vocabulary
        return config

    def _tokenizer(self, out_type):
        # Made anew in each graph: `tf.random.set_seed` deletes the kernel
        # that owns a tokenizer made outside of a graph.
        drawn = {}
        if self.draws:
            drawn = {"nbest_size": self.nbest, "alpha": self.alpha}
        return tensorflow_text.SentencepieceTokenizer(
            self._used, out_type, **drawn
        )


@keras.saving.register_keras_serializable("keras_attn")
class WordPiece(Splitter):
    """Splits text into words and punctuation, and words into listed pieces.

    Each word is split from left to right, always into the longest piece that
    fits, as in BERT. A piece within a word begins with `##`. If some part of
    a word matches no piece, the whole word is unknown. The list's own special
    tokens, such as `[CLS]` and `[UNK]`, are left out: the `Text` adds its own.

    Control and format characters (the Unicode categories Cc and Cf), such as a
    soft hyphen or a byte order mark, separate words and are left out.

    For a pretrained network pass its special tokens. Then the ids are the
    indices of the list.

    Joined text has a space between two words, and between words and
    punctuation.

    Args:
        vocabulary: Path of a file with a piece on each line, or a list of
            pieces.
        special: `SpecialTokens` of a pretrained network, with an unknown
            token. Defaults to `None`: ids 0 to 3 are those of a `Text`.

    Raises:
        ValueError: If `special` has no unknown token, or its id is not an
            index of the list.

    References:
        - [Schuster and Nakajima, 2012](https://research.google/pubs/pub37842/)
        - [Song et al., 2021](https://arxiv.org/abs/2012.15524), the algorithm
    """

    splits_alone = False

    def __init__(
        self,
        vocabulary: str | pathlib.Path | Iterable[str],
        special: SpecialTokens | None = None,
    ):
        super().__init__()
        if isinstance(vocabulary, (str, pathlib.Path)):
            vocabulary = pathlib.Path(vocabulary).read_text("utf-8").split("\n")
        pieces = [x.removesuffix("\r") for x in vocabulary]
        self.special = SpecialTokens.of(special)
        if self.special is None:
            self.tokens = [x for x in pieces if x and not _is_named(x)]
            listed = [*SPECIAL_TOKENS[:UNKNOWN], _UNKNOWN_WORD, *self.tokens]
            self._written = [*SPECIAL_TOKENS, *self.tokens]
            self._unknown = UNKNOWN
        else:
            while pieces and not pieces[-1]:
                pieces.pop()
            self._unknown = self.special.unknown
            if not 0 <= self._unknown < len(pieces):
                raise ValueError(
                    "`WordPiece` needs an unknown token in its list. "
                    f"Received: {self.special} and {len(pieces)} pieces. Pass "
                    "`SpecialTokens(..., unknown=pieces.index('[UNK]'))`."
                )
            self.tokens = listed = self._written = pieces
        with tf.init_scope():  # inside a graph this takes half a minute
            self._tokenizer = tensorflow_text.FastWordpieceTokenizer(
                listed,
                token_out_type=tf.int32,
                unknown_token=listed[self._unknown],
            )

    def split(self, strings):
        strings = _visible(strings)
        ids, begin, end = self._tokenizer.tokenize_with_offsets(strings)
        written = tf.gather(tf.constant(self._written), ids.flat_values)
        whole = tf.gather(strings, ids.value_rowids())
        begin, length = begin.flat_values, (end - begin).flat_values
        unknown = tf.strings.substr(whole, begin, length)
        return ids.with_flat_values(
            tf.where(ids.flat_values == self._unknown, unknown, written)
        )

    def join(self, pieces):
        strings = tf.strings.reduce_join(pieces, axis=-1, separator=" ")
        return tf.strings.regex_replace(strings, "(^| )##", "")

    def ids(self, strings):
        return self._tokenizer.tokenize(_visible(strings))

    def strings(self, ids):
        pieces = tf.gather(tf.constant(self._written), ids.flat_values)
        return self.join(ids.with_flat_values(pieces))

    def get_config(self):
        config: dict[str, Any] = {"vocabulary": list(self.tokens)}
        if self.special is not None:
            config["special"] = dataclasses.asdict(self.special)
        return config


@keras.saving.register_keras_serializable("keras_attn")
class Bytes(Splitter):
    """Splits text into its UTF-8 bytes; no token is ever unknown.

    Ids 4 to 259 are the bytes 0 to 255, named `<0x00>` to `<0xFF>` as in
    SentencePiece. Invalid UTF-8, which a model may generate, becomes U+FFFD.

    References:
        - [Xue et al., 2022](https://arxiv.org/abs/2105.13626)
    """

    def __init__(self):
        super().__init__()
        self.tokens = [f"<0x{i:02X}>" for i in range(256)]

    def ids(self, strings):
        pieces = tf.strings.bytes_split(strings)
        values = tf.io.decode_raw(pieces.flat_values, tf.uint8)
        values = tf.reshape(values, [-1])
        return pieces.with_flat_values(_FIRST + tf.cast(values, tf.int32))

    def strings(self, ids):
        bytes_ = [bytes([i]) for i in range(256)]
        unknown = SPECIAL_TOKENS[UNKNOWN].encode()
        written = tf.constant([*[b""] * UNKNOWN, unknown, *bytes_])
        joined = tf.strings.reduce_join(
            ids.with_flat_values(tf.gather(written, ids.flat_values)), axis=-1
        )
        return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8")


def _unknown_of(special, vocabulary) -> int:
    """Returns the id of the unknown token of a network's vocabulary."""
    if special is None or not 0 <= special.unknown < len(vocabulary):
        raise ValueError(
            "`SentencePiece` with a `vocabulary` needs `special`, with an "
            f"unknown token among its {len(vocabulary)} tokens. Received: "
            f"special={special!r}. Pass `special=SpecialTokens(..., "
            "unknown=...)`."
        )
    return special.unknown


def _visible(strings):
    """Returns strings with spaces instead of invisible characters."""
    return tf.strings.regex_replace(strings, _INVISIBLE, " ")


def _is_named(piece):
    """Returns whether a piece is a special token such as `[CLS]`."""
    return piece.startswith("[") and piece.endswith("]") and len(piece) > 2


class _TemporaryFile:
    """A file with given content, deleted together with the object."""

    def __init__(self, content: bytes):
        handle, self.path = tempfile.mkstemp(suffix=".model")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        weakref.finalize(self, pathlib.Path(self.path).unlink, missing_ok=True)


def train(
    lines: list[bytes],
    size: int,
    kind: str,
    byte_fallback: bool,
    options: dict,
) -> bytes:
    """Trains a SentencePiece model and returns its content.

    Args:
        lines: The data, UTF-8.
        size: Maximum number of ids of the `Text`.
        kind: `"unigram"` or `"bpe"`.
        byte_fallback: Whether characters without a piece become bytes.
        options: Further options of SentencePiece's trainer.
    """
    sentencepiece = _sentencepiece()
    content = io.BytesIO()
    given = {
        "model_type": kind,
        "vocab_size": size - len(SPECIAL_TOKENS) + _count_special(options),
        "hard_vocab_limit": False,
        "byte_fallback": byte_fallback,
        "character_coverage": 1.0 if not byte_fallback else 0.9995,
        "normalization_rule_name": _AS_IT_IS,
        # The result depends on the number of threads, so it is fixed. The
        # number of cores does not matter.
        "num_threads": 16,
        # SentencePiece skips longer lines. The least allowed value is 10.
        "max_sentence_length": max(10, *map(len, lines)) + 1,
        "minloglevel": 2,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        # Without any rule, each tokenizer would print a message. A `Text`
        # never contains tabs, so this rule changes nothing.
        rules.write("9\t20\n")
        rules.flush()
        if not any(x.startswith("normalization_rule") for x in options):
            given["normalization_rule_tsv"] = rules.name
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=content,
                **(given | options),
            )
        except (RuntimeError, OSError, TypeError) as error:
            raise ValueError(
                "SentencePiece could not train a model. Received: "
                f"{len(lines)} lines, size={size}, kind={kind!r}. Its error: "
                f"{error!s:.300}"
            ) from error
    model = _proto(content.getvalue())
    if "normalization_rule_tsv" in given:
        model.normalizer_spec.name = _AS_IT_IS
        model.normalizer_spec.ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def made_of(
    pieces: list[tuple[str, float]],
    kind: str,
    unknown: int,
    without_text: Iterable[int],
    never_read: Iterable[int],
    rules: bytes = b"",
) -> bytes:
    """Returns the content of a model made of given pieces.

    Args:
        pieces: Pieces with their scores, in the order of their ids.
        kind: `"unigram"` or `"bpe"`.
        unknown: Id of the unknown piece.
        without_text: Ids of pieces that never result from splitting, and that
            joining leaves out.
        never_read: Ids of pieces that never result from splitting, but are
            joined like any others.
        rules: SentencePiece's precompiled normalization rules.
    """
    model, types = _proto(b""), dict.fromkeys(without_text, "CONTROL")
    types |= dict.fromkeys(never_read, "UNUSED") | {unknown: "UNKNOWN"}
    for i, (piece, score) in enumerate(pieces):
        made = model.pieces.add(piece=piece, score=score)
        made.type = getattr(made, types.get(i, "NORMAL"))
    spec = model.trainer_spec
    spec.model_type = getattr(spec, kind.upper())
    spec.vocab_size, spec.unk_id = len(pieces), unknown
    spec.bos_id = spec.eos_id = spec.pad_id = -1
    spec.unk_piece = pieces[unknown][0]
    model.normalizer_spec.name = "precompiled" if rules else _AS_IT_IS
    model.normalizer_spec.precompiled_charsmap = rules
    return model.SerializeToString(deterministic=True)


def pieces_of(content: bytes) -> list[str]:
    """Returns the pieces of a model, in the order of their ids."""
    processor = _processor(content)
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]


def _count_special(options):
    """Returns the number of special pieces of a model, with unknown."""
    ids = {"bos_id": 1, "eos_id": 2, "pad_id": -1}
    return 1 + sum(options.get(x, own) >= 0 for x, own in ids.items())


def _sentencepiece():
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError(
            "SentencePiece subwords need the package `sentencepiece`, which is "
            'not installed. Run `pip install "keras-attn[subwords]"`. Exports '
            "are served without the package."
        ) from error
    return sentencepiece


def _processor(content):
    try:
        return _sentencepiece().SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise ValueError(
            "`SentencePiece` needs a model that SentencePiece wrote. "
            f"Received: {len(content)} bytes that are none ({error!s:.200}). "
            "`Text.train(lines)` trains a model."
        ) from error


def _require_draws(spec, alpha):
    """Raises `ValueError` unless a model can sample with this `alpha`."""
    kind = spec.ModelType.Name(spec.model_type).lower()
    if kind not in ("unigram", "bpe"):
        raise ValueError(
            "Only models of the kinds unigram and BPE can sample how a text "
            f'is split. Received: a model of the kind "{kind}". Leave `nbest` '
            "out."
        )
    if kind == "bpe" and not 0 <= alpha <= 1:
        raise ValueError(
            "For a BPE model `alpha` is the probability of dropping a merge, "
            f"from 0 to 1. Received: alpha={alpha!r}"
        )


def _proto(content):
    _sentencepiece()
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(content)
