"""The example of translation: its data, its splitter, and the whole program."""

import hashlib
import lzma
import re

import pytest
import tensorflow as tf
from support import splitters
from support.programs import PROGRAM
from support.programs import load
from support.programs import run

import keras_attn

TRANSLATE = PROGRAM.with_name("translate.py")
TOY = "--epochs", "1", "--units", "16", "--size", "500"


@pytest.fixture(scope="module")
def translate():
    return load(TRANSLATE)


@pytest.fixture(scope="module")
def pairs(translate):
    return translate.sentences.read()


def test_the_sentences_are_those_that_their_notice_names(translate, pairs):
    file = translate.sentences.FILE
    digest = hashlib.sha256(lzma.decompress(file.read_bytes())).hexdigest()
    notice = (file.parent / "README.md").read_text()
    assert digest in notice and "v. 2.0, in `MPL-2.0.txt`" in notice
    licence = (file.parent / "MPL-2.0.txt").read_text()
    assert licence.startswith("Mozilla Public License Version 2.0")
    assert len(pairs.sources) == len(pairs.targets) == 39_131


def test_no_sentence_of_the_test_is_learned(translate, pairs):
    split = translate.sentences.split_by_hash(pairs)
    assert [len(part.sources) for part in split] == [37_793, 367, 971]
    together = zip(*pairs, strict=True)
    parts = [pair for part in split for pair in zip(*part, strict=True)]
    assert sorted(parts) == sorted(together)
    letters = [
        {re.sub(r"[^a-z]+", " ", x.lower()).strip() for x in part.sources}
        for part in split
    ]
    # A sentence without letters is split by its signs.
    assert not (letters[0] - {""}) & (letters[1] | letters[2])


def test_the_split_is_that_of_the_sentences_in_any_order(translate, pairs):
    split = translate.sentences.split_by_hash(pairs)
    reverse = translate.sentences.Pairs(
        pairs.sources[::-1], pairs.targets[::-1]
    )
    assert translate.sentences.split_by_hash(reverse) == split


def test_words_are_joined_as_they_were(translate, pairs):
    words = translate.Words()
    lines = [*pairs.first(3000).targets, *splitters.fuzz(300)]
    lines = tf.constant([x.replace("\0", "").replace("￭", "") for x in lines])
    spaces = tf.strings.split(lines)
    expected = tf.strings.reduce_join(spaces, -1, separator=" ")
    assert tf.reduce_all(words.join(words.split(lines)) == expected)


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("(see help).", ["(￭", "see", "help", "￭)", "￭."]),
        ("l'aide, 4.5 %", ["l", "￭'￭", "aide", "￭,", "4", "￭.￭", "5", "%"]),
        ("() a -b", ["(", "￭)", "a", "-￭", "b"]),
        ("", []),
    ],
)
def test_signs_know_what_they_touch(translate, line, pieces):
    found = translate.Words().split(tf.constant([line])).to_list()[0]
    assert [x.decode() for x in found] == pieces


def test_words_make_a_vocabulary(translate, pairs):
    text = translate.make_text(pairs.first(500).targets, "words", 300)
    assert text.size == 300 and isinstance(text, keras_attn.Text)
    line = "Saisissez le texte."
    assert text.strings(text.ids([line])).numpy()[0].decode().endswith("texte.")


@pytest.mark.full
@pytest.mark.parametrize("tokens", ["subwords", "words"])
def test_the_program_does_all_of_it(tokens, translate, tmp_path):
    toy = *TOY, "--sentences", "600", "--tokens", tokens
    printed = run(*toy, "--output", "here", program=TRANSLATE, folder=tmp_path)
    printed, tmp_path = printed.stdout, tmp_path / "here"
    assert re.search(r"loss: [\d.]+ - val_bleu: [\d.]+", printed)
    assert len(re.findall(r"BLEU [\d.]+   nrefs:1\|case:", printed)) == 4
    assert "-m keras_attn_serving --model_base_path=" in printed
    assert (tmp_path / "models/translate/1/saved_model.pb").exists()
    assert (tmp_path / "attention.png").read_bytes()[:4] == b"\x89PNG"
    assert keras_attn.Translator.load(tmp_path / "translator").shortlist


@pytest.mark.full
def test_sentences_of_one_s_own_are_learned(translate, pairs, tmp_path):
    for name, lines in zip(("en", "fr"), pairs.first(400), strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    files = "--files", "en", "fr", "--draw", "Click the button."
    printed = run(*TOY, *files, program=TRANSLATE, folder=tmp_path).stdout
    assert "Training on 3" in printed


def test_lines_end_at_line_feeds_alone(translate, tmp_path):
    """As in files that other programs count the lines of."""
    files = [tmp_path / "en", tmp_path / "fr"]
    files[0].write_bytes("\ufeffa\u2028b\r\n\x0cc\x85\n".encode())
    files[1].write_bytes(b"A\x1cB\r\n\rC")
    found = translate.sentences.read(files)
    assert found == (["a\u2028b", "\x0cc\x85"], ["A\x1cB", "\rC"])


def test_too_few_sentences_are_refused(translate, pairs):
    with pytest.raises(SystemExit, match="5 sentences are too few"):
        translate.sentences.split_by_hash(pairs.first(5))


def test_the_sentences_shown_are_held_out(translate, pairs):
    split = translate.sentences.split_by_hash(pairs)
    assert split.test.shown().sources == [*translate.sentences.SHOWN]
    assert split.test.first(9).shown() == split.test.first(5)


def test_files_of_different_lengths_are_refused(translate, tmp_path):
    (tmp_path / "en").write_text("a\nb\n")
    (tmp_path / "fr").write_text("a\n")
    with pytest.raises(SystemExit, match="has 2 lines and .* has 1. Each"):
        translate.sentences.read([tmp_path / "en", tmp_path / "fr"])
