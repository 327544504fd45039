"""Subwords and bytes: splitters with ids of their own."""

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

from keras_attn.special_tokens import SPECIAL_TOKENS
from keras_attn.special_tokens import UNKNOWN
from keras_attn.text.splitter import Splitter

_STRINGS = tf.TensorSpec([None], tf.string)
_PIECES = tf.RaggedTensorSpec([None, None], tf.string)
_IDS = tf.RaggedTensorSpec([None, None], tf.int32)
_AS_IT_IS = "identity"  # SentencePiece's name for no normalisation
_UNKNOWN_WORD = "[UNK]"
_FIRST = len(SPECIAL_TOKENS)  # the first id that is no special token's


@keras.saving.register_keras_serializable("keras_attn")
class SentencePiece(Splitter):
    """Splits text into subwords by a model of SentencePiece.

    The model may be of any kind: unigram, BPE, words or characters. Its own
    special pieces (`<s>`, `</s>` and the like) are left out: the `Text` adds
    its own. `Text.train` trains a model and returns a `Text` with it.

    A model whose normalisation is not `identity` normalises text itself, so
    the `Text` leaves it alone.

    Args:
        model: Path of a model file, or its content, bytes.
        nbest: Number of the likeliest segmentations from which one is drawn
            for each text, or -1 for all. Defaults to `None`: the likeliest
            is taken. Draws make training more robust; see `Text.sampled`.
        alpha: How much likelier segmentations are preferred, from 0, not at
            all, upwards. Of a BPE model, the probability with which a merge
            is dropped. Has an effect with `nbest` only.

    Raises:
        ImportError: If the package `sentencepiece` is not installed.

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
        self.nbest, self.alpha = nbest, alpha
        self.draws = nbest is not None
        self._content = model
        self._file: _TemporaryFile | None = None
        processor = _processor(model)
        count = processor.vocab_size()
        kept = [
            i
            for i in range(count)
            if not (processor.is_control(i) or processor.is_unknown(i))
        ]
        self.tokens = [processor.id_to_piece(i) for i in kept]
        self.normalises = _normalises(model)
        self._unknown = processor.unk_id()
        self._kept = kept
        own_ids = [UNKNOWN] * count
        for i, own in enumerate(kept):
            own_ids[own] = _FIRST + i
        self._from_model = own_ids

    def drawing(self, nbest: int, alpha: float) -> "SentencePiece":
        """Returns a splitter that draws segmentations of this model."""
        return SentencePiece(self._content, nbest, alpha)

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def split(self, strings):
        return self._tokenizer(tf.string).tokenize(strings)

    @tf.function(input_signature=[_PIECES], autograph=False)
    def join(self, pieces):
        return self._tokenizer(tf.string).detokenize(pieces)

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def ids(self, strings):
        found = self._tokenizer(tf.int32).tokenize(strings)
        table = tf.constant(self._from_model)
        return found.with_flat_values(tf.gather(table, found.flat_values))

    @tf.function(input_signature=[_IDS], autograph=False)
    def strings(self, ids):
        table = tf.constant([*[self._unknown] * _FIRST, *self._kept])
        own = ids.with_flat_values(tf.gather(table, ids.flat_values))
        return self._tokenizer(tf.int32).detokenize(own)

    def get_config(self):
        path = pathlib.Path(self._path)
        if not path.is_file() or path.read_bytes() != self._content:
            self._file = _TemporaryFile(self._content)
            self._path = self._file.path
        config: dict[str, Any] = {"model": self._path}
        if self.draws:
            config |= {"nbest": self.nbest, "alpha": self.alpha}
        return config

    def _tokenizer(self, out_type):
        # Made in each graph anew: a tokenizer made outside of one is gone
        # after `tf.random.set_seed`, with the kernel that owns it.
        drawn = {}
        if self.draws:
            drawn = {"nbest_size": self.nbest, "alpha": self.alpha}
        return tensorflow_text.SentencepieceTokenizer(
            self._content, out_type, **drawn
        )


@keras.saving.register_keras_serializable("keras_attn")
class WordPiece(Splitter):
    """Splits text into words and marks, and these into pieces of a list.

    A word is split into the longest pieces of the list from left to right, as
    BERT does. A piece within a word begins with `##`. A word with a part that
    no piece covers is unknown. The list's own special tokens, such as `[CLS]`
    and `[UNK]`, are left out: the `Text` adds its own.

    Joined text has a space between two words, and between words and marks.

    Args:
        vocabulary: Path of a file with a piece on each line, or a list of
            pieces.

    References:
        - [Schuster and Nakajima, 2012](https://research.google/pubs/pub37842/)
        - [Song et al., 2021](https://arxiv.org/abs/2012.15524), the algorithm
    """

    splits_alone = False

    def __init__(self, vocabulary: str | pathlib.Path | Iterable[str]):
        super().__init__()
        if isinstance(vocabulary, (str, pathlib.Path)):
            vocabulary = pathlib.Path(vocabulary).read_text("utf-8").split("\n")
        pieces = [x.removesuffix("\r") for x in vocabulary]
        special = (
            x.startswith("[") and x.endswith("]") and len(x) > 2 for x in pieces
        )
        self.tokens = [
            x for x, left in zip(pieces, special, strict=True) if x and not left
        ]
        with tf.init_scope():  # in a graph it takes half a minute
            self._tokenizer = tensorflow_text.FastWordpieceTokenizer(
                [*SPECIAL_TOKENS[:UNKNOWN], _UNKNOWN_WORD, *self.tokens],
                token_out_type=tf.int32,
                unknown_token=_UNKNOWN_WORD,
            )

    def split(self, strings):
        ids, begin, end = self._tokenizer.tokenize_with_offsets(strings)
        written = tf.gather(self._written(), ids.flat_values)
        whole = tf.gather(strings, ids.value_rowids())
        begin, length = begin.flat_values, (end - begin).flat_values
        unknown = tf.strings.substr(whole, begin, length)
        return ids.with_flat_values(
            tf.where(ids.flat_values == UNKNOWN, unknown, written)
        )

    def join(self, pieces):
        strings = tf.strings.reduce_join(pieces, axis=-1, separator=" ")
        return tf.strings.regex_replace(strings, "(^| )##", "")

    def ids(self, strings):
        return self._tokenizer.tokenize(strings)

    def strings(self, ids):
        pieces = tf.gather(self._written(), ids.flat_values)
        return self.join(ids.with_flat_values(pieces))

    def _written(self):
        return tf.constant([*SPECIAL_TOKENS, *self.tokens])

    def get_config(self):
        return {"vocabulary": self.tokens}


@keras.saving.register_keras_serializable("keras_attn")
class Bytes(Splitter):
    """Splits text into the bytes of its UTF-8, so that nothing is unknown.

    Ids 4 to 259 are the bytes 0 to 255, named `<0x00>` to `<0xFF>` as in
    SentencePiece. Bytes that are no UTF-8, as a model may write them, become
    U+FFFD.

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


class _TemporaryFile:
    """A file with some content, removed with the object."""

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
    """Trains a model of SentencePiece and returns its content.

    Args:
        lines: The data, UTF-8.
        size: Largest number of ids of the `Text`.
        kind: `"unigram"` or `"bpe"`.
        byte_fallback: Whether characters without a piece become bytes.
        options: Further options of SentencePiece's trainer.
    """
    sentencepiece = _sentencepiece()
    content = io.BytesIO()
    given = {
        "model_type": kind,
        # Three special pieces are its own, four are the text's.
        "vocab_size": size - 1,
        "hard_vocab_limit": False,
        "byte_fallback": byte_fallback,
        "character_coverage": 1.0 if not byte_fallback else 0.9995,
        "normalization_rule_name": _AS_IT_IS,
        # The result depends on the number of threads, but not on cores.
        "num_threads": 16,
        # Longer lines would be left out.
        "max_sentence_length": max(map(len, lines)) + 1,
        "minloglevel": 2,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        # Without any rule, each tokenizer would print that it has none. A
        # `Text` has no tab, so this rule changes nothing.
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
                f"{len(lines)} lines, size={size}, kind={kind!r}: "
                f"{error!s:.300}"
            ) from error
    model = _proto(content.getvalue())
    if "normalization_rule_tsv" in given:
        model.normalizer_spec.name = _AS_IT_IS
        model.normalizer_spec.ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def _sentencepiece():
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError(
            "Subwords of SentencePiece need the package `sentencepiece`. "
            'Install it with `pip install "keras-attn[subwords]"`. Exports '
            "are served without it."
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


def _normalises(content) -> bool:
    """Returns whether a model normalises text."""
    return _proto(content).normalizer_spec.name != _AS_IT_IS


def _proto(content):
    _sentencepiece()
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(content)
