"""Texts with the vocabularies of KerasHub's tokenizers have their ids."""

import keras_hub
import pytest
import tensorflow as tf
from support import splitters
from support.splitters import LINES

import keras_attn
from keras_attn import SpecialTokens
from keras_attn import Text
from keras_attn.text import subwords

hub = keras_hub.tokenizers
SPECIAL = SpecialTokens(pad=0, start=(1,), end=2, unknown=3)
NAMED = ["[PAD]", "[START]", "[END]", "[UNK]"]


def sentence_piece():
    content = subwords.train(
        [x.encode() for x in LINES if x] * 4,
        size=60,
        kind="bpe",
        byte_fallback=False,
        options={"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3},
    )
    tokenizer = hub.SentencePieceTokenizer(content)
    return tokenizer, keras_attn.SentencePiece(tokenizer.proto, special=SPECIAL)


def word_piece():
    tokenizer = hub.WordPieceTokenizer(
        [*NAMED, *splitters.WORDS, *"abcdefgh,.!?", "##s", "##ing"],
        special_tokens_in_strings=False,
    )
    vocabulary = tokenizer.get_vocabulary()
    return tokenizer, keras_attn.WordPiece(vocabulary, special=SPECIAL)


def byte_pair():
    tokenizer = hub.BytePairTokenizer(
        *splitters.byte_pairs(LINES * 5, 320, NAMED)
    )
    files = tokenizer.vocabulary, tokenizer.merges
    return tokenizer, keras_attn.BytePair(*files, special=SPECIAL)


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("make", [sentence_piece, word_piece, byte_pair])
def test_ids_and_text_are_those_of_keras_hub(make):
    tokenizer, part = make()
    # In a graph: eagerly KerasHub splits bytes as Llama 3, not as GPT-2.
    encode = tf.function(
        tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    decode = tf.function(
        tokenizer.detokenize,
        input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)],
    )
    lines = [*LINES, "to be", "hello, hello world"]
    if make is word_piece:
        lines += ["\ufeffhello wor\u00adld\u200b", "to\u2060be\x01not\x7f"]
        lines += ["the\u061c \u180eworld", "a\U000e0067b", "a\u200db"]
    lines = tf.constant(lines)
    expected = encode(lines)
    text = Text(split=part)
    found = text.ids(lines)
    rows = [
        [x for x in row if x not in (SPECIAL.pad, SPECIAL.end)]
        for row in found.numpy().tolist()
    ]
    assert rows == expected.to_list()
    known = [i for i, row in enumerate(rows) if SPECIAL.unknown not in row]
    written = text.strings(tf.gather(found, known)).numpy().tolist()
    joined = decode(tf.gather(expected, known)).numpy().tolist()
    if make is word_piece:  # KerasHub leaves a space before a mark
        written = [x.replace(b" ", b"") for x in written]
        joined = [x.replace(b" ", b"") for x in joined]
    assert written == joined and len(known) > 2
