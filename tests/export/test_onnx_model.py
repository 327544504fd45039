"""`OnnxModel`, the client of ONNX exports, beside what it was exported from."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from keras_attn_serving import OnnxModel
from keras_attn_serving import Result
from keras_attn_serving import RowError
from keras_attn_serving.onnx.requests import Inputs
from keras_attn_serving.onnx.text_file import TextFile
from support import splitters
from support import toys as toy_models

import keras_attn
from keras_attn import SpecialTokens
from keras_attn import Text
from keras_attn.export.onnx.vocabularies import VocabularyFile

LINES = splitters.LINES
BERT = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "to", "be", "##s", "日", ",", "é"]
# Characters that word pieces leave out; one is newer than Python 3.11's list.
INVISIBLE = [
    x
    for x in map(chr, range(0xE0100))
    if unicodedata.category(x) in ("Cc", "Cf") or x == "\U0001343f"
]


def content() -> bytes:
    """Returns a model of SentencePiece."""
    splitter = splitters.make("unigram", ".").splitter
    return pathlib.Path(splitter.get_config()["model"]).read_bytes()


def t5():
    special = SpecialTokens(pad=1, start=(1,), end=2, unknown=0)
    return Text(split=keras_attn.SentencePiece(content(), special=special))


def marian():
    pieces = keras_attn.SentencePiece(content()).tokens
    vocabulary = ["</s>", "<unk>", *pieces[5:], "zz", "<pad>"]
    special = SpecialTokens(
        pad=len(vocabulary) - 1, start=(len(vocabulary) - 1,), end=0, unknown=1
    )
    return Text(
        split=keras_attn.SentencePiece(
            content(), special=special, vocabulary=vocabulary
        )
    )


def bart():
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|en|>"]
    vocabulary, merges = splitters.byte_pairs(LINES * 20, 310, names)
    special = SpecialTokens(
        pad=1,
        start=(2, 0),
        end=2,
        unknown=3,
        source_start=(0,),
        prompt_tokens=(5,),
        spelled_tokens=(4,),
    )
    return Text(split=keras_attn.BytePair(vocabulary, merges, special))


def few_bytes():
    """Byte pairs that lack most bytes."""
    pieces = ["t", "o", "b", "e", "Ġ", "Ã", "©", "to", "Ġb", "Ġbe"]
    return Text(
        split=keras_attn.BytePair(
            {piece: i for i, piece in enumerate(pieces)},
            ["t o", "Ġ b", "Ġb e"],
        )
    )


def keras_layer(**options):
    special = SpecialTokens(pad=0, start=(2,), end=3, unknown=1)
    tokens = ["", "[UNK]", "[start]", "[end]", "to", "be", "é", "t", ","]
    return Text(
        split=keras_attn.text.keras_vocabulary.KerasVocabulary(
            tokens, special, **options
        ),
        normalization=None,
    )


def holes():
    """Byte pairs with ids that stand for nothing, and a merge twice."""
    vocabulary, merges = splitters.byte_pairs(LINES * 20, 300)
    vocabulary = {x: i + 4 * (i > 270) for x, i in vocabulary.items()}
    special = SpecialTokens(pad=310, start=(311,), end=312, unknown=313)
    vocabulary |= {f"<{i}>": i for i in range(310, 314)}
    merges = [*merges, merges[0]]
    return Text(split=keras_attn.BytePair(vocabulary, merges, special))


TEXTS = {
    "characters": lambda: toy_models.SOURCE,
    "lower": lambda: Text("abcé日 ß'", split="characters", lowercase=True),
    "compatible": lambda: Text(
        "abc日 ", split="characters", normalization="NFKC", max_length=7
    ),
    "words": lambda: Text.from_lines(LINES, "whitespace"),
    "every byte": lambda: splitters.make("every byte", "."),
    "unigram": lambda: splitters.make("unigram", "."),
    "bpe": lambda: splitters.make("bpe", "."),
    "t5": t5,
    "marian": marian,
    "byte pairs": lambda: splitters.make("byte pairs", "."),
    "bart": bart,
    "few bytes": few_bytes,
    "wordpiece": lambda: splitters.make("wordpiece", "."),
    "bert": lambda: Text(
        split=keras_attn.WordPiece(
            BERT, SpecialTokens(0, (1,), 2, 3, source_start=(1,))
        )
    ),
    "ids": lambda: Text(
        split=keras_attn.IntegerIds(12, SpecialTokens(0, (0,), 1, 2))
    ),
    "keras": lambda: keras_layer(standardize="lower_and_strip_punctuation"),
    "keras characters": lambda: keras_layer(split="character"),
    "keras 2": lambda: Text.from_tokenizer(
        json.dumps(
            {
                "class_name": "Tokenizer",
                "config": {
                    "num_words": None,
                    "filters": "!,.-[]^\\",
                    "lower": True,
                    "split": " ",
                    "char_level": False,
                    "oov_token": "?",
                    "document_count": 1,
                    "word_counts": "{}",
                    "word_docs": "{}",
                    "index_docs": "{}",
                    "index_word": "{}",
                    "word_index": json.dumps({"?": 1, "to": 2, "be": 3}),
                },
            }
        )
    ),
    "long words": lambda: Text(
        split=keras_attn.WordPiece(
            [*BERT, "ж", "##ж", "##o"],
            SpecialTokens(0, (1,), 2, 3, source_start=(1,)),
        )
    ),
    "holes": holes,
}


def written(text, folder) -> TextFile:
    VocabularyFile(text, "source.json", "ids").write(folder)
    return TextFile(folder / "source.json")


@pytest.mark.sample_cases(8)
@pytest.mark.parametrize("name", TEXTS)
def test_texts_become_the_ids_that_they_become_in_tensorflow(name, tmp_path):
    text = TEXTS[name]()
    file = written(text, tmp_path)
    lines = [*LINES, "5 7 12 -3 007 x 99999999999", "<mask>a<|en|></s>"]
    lines += ["ж" * 50, "ж" * 51, "to" + "o" * 98, "to" + "o" * 99]
    lines += splitters.fuzz(300)
    if isinstance(text.splitter, keras_attn.WordPiece):
        lines += [f"to{x}be{x}" for x in INVISIBLE]
    found = [file.source_ids(line) for line in lines]
    ids = text.source_ids(lines).numpy()
    for line, row, expected in zip(lines, found, ids, strict=True):
        assert row == expected[: len(row)].tolist(), line
        assert (expected[len(row) :] == text.special.pad).all(), line


@pytest.mark.sample_cases(8)
@pytest.mark.parametrize("name", TEXTS)
def test_ids_become_the_texts_that_they_become_in_tensorflow(name, tmp_path):
    text = TEXTS[name]()
    file = written(text, tmp_path)
    random = np.random.default_rng(3)
    rows = random.integers(0, text.size, (300, 9))
    expected = text.strings(rows).numpy()
    for row, line in zip(rows, expected, strict=True):
        assert file.text(row) == line.decode(), row


def test_a_text_that_is_too_long_is_cut_or_refused(tmp_path):
    cut = Text("ab", split="characters", max_length=2)
    assert written(cut, tmp_path).source_ids("abab") == [4, 5, 2]
    refusing = Text("ab", split="characters", max_length=2, too_long="error")
    file = written(refusing, tmp_path)
    assert file.source_ids("ba") == [5, 4, 2]
    with pytest.raises(ValueError, match="at most 2 tokens.*'aba' with 3"):
        file.source_ids("aba")


class Words:
    """Splits lines without marks as `Marks` does."""

    def __init__(self, tokens):
        self._tokens = tokens

    def ids(self, line):
        known = {x: i for i, x in enumerate(self._tokens)}
        return [known.get(x, -1) for x in line.split()]

    def text(self, ids):
        return " ".join(self._tokens[i] for i in ids)


def test_a_splitter_of_one_s_own_is_asked_for(tmp_path):
    text = splitters.make("marks", tmp_path)
    with pytest.raises(
        ValueError, match=r"'Marks'.*splitters=\{'Marks': ...\}"
    ):
        written(text, tmp_path)
    file = TextFile(tmp_path / "source.json", {"Marks": Words(text.tokens)})
    assert (
        file.source_ids("to be zz")
        == text.ids(["to be zz"])[0].numpy().tolist()
    )


@pytest.fixture(scope="module")
def translator():
    return toy_models.Toys()["pre"]


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "toy"
    translator.export(path, format="onnx")
    return path


@pytest.mark.full
def test_a_model_answers_as_its_translator(translator, folder):
    model = OnnxModel(folder)
    lines = [*toy_models.LINES, *splitters.fuzz(990)]
    expected = translator(lines)
    found = model.predict(lines)
    assert isinstance(found, Result) and found.signature == "serving_default"
    assert (found.model, found.version) == ("toy", 1)
    assert found["text"] == expected.text
    np.testing.assert_allclose(found["score"], expected.scores, rtol=1e-4)
    assert found["empty"].tolist() == [x.empty for x in expected]
    nbest = model.predict(lines[:9], "nbest", batch_size=2)
    for texts, finished, row in zip(
        nbest["texts"], nbest["finished"], expected, strict=False
    ):
        wanted = [row, *row.alternatives]
        assert texts[: len(wanted)] == [x.text for x in wanted]
        assert finished.tolist()[: len(wanted)] == [x.finished for x in wanted]
        assert not finished[len(wanted) :].any()
    ids = model.predict(lines[:2], "ids")
    assert sorted(ids) == ["empty", "ids", "lengths", "scores"]
    alone = model.predict(lines[:2], "ids", ["lengths", "ids"])
    assert [*alone] == ["lengths", "ids"]
    assert [*model.predict(lines[:2], outputs="text")] == ["text"]
    raw = ["naïve \u00fc".encode(), b"a\xffb", "abc"]
    assert (
        model.predict(raw)["text"]
        == model.predict(["naïve \u00fc", "a\ufffdb", "abc"])["text"]
    )
    assert model.predict([])["text"] == []
    assert model.inputs == ("text",) and str(folder) in repr(model)


@pytest.mark.full
def test_a_model_runs_where_there_is_no_tensorflow(translator, folder):
    program = (
        "import json, sys\n"
        "sys.modules |= dict.fromkeys(['tensorflow', 'keras', 'keras_attn'])\n"
        "from keras_attn_serving import OnnxModel\n"
        "model = OnnxModel(sys.argv[1])\n"
        "print(json.dumps(model.predict(json.load(sys.stdin))['text']))\n"
    )
    lines = toy_models.LINES
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == translator(lines).text


@pytest.mark.full
def test_the_snippet_of_the_readme_runs(folder, tmp_path, monkeypatch):
    page = pathlib.Path(__file__).parents[2] / "serving" / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (block,) = [x for x in blocks if "OnnxModel" in x]
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pronounce-onnx").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    exec(block, {})


@pytest.mark.full
def test_features_several_texts_and_seeds(toys, tmp_path):
    path = toys["spectra"].export(tmp_path / "spectra", format="onnx")
    given = toy_models.sources("spectra")
    model = OnnxModel(path)
    (name,) = model.inputs
    for inputs in given, {name: given}:
        assert model.predict(inputs)["text"] == toys["spectra"](given).text
    model = OnnxModel(toys["sampling"].export(tmp_path / "s", format="onnx"))
    lines, seeds = toy_models.LINES, [*range(8)]
    expected = toys["sampling"](lines, seed=seeds).text
    for size in 3, 64:
        found = model.predict(lines, seed=seeds, batch_size=size)
        assert found["text"] == expected
    one, again = (model.predict(lines, seed=5)["text"] for _ in range(2))
    assert one == again != model.predict(lines)["text"]
    wrong = [1, 2], [0.5] * 8, -1, 2**31, True, 1.5, "a", [None] * 8
    for seed in wrong:
        with pytest.raises(ValueError, match="`seed` must be an integer from"):
            model.predict(lines, seed=seed)
    assert model.predict(lines, seed=np.array(seeds))["text"] == expected


@pytest.mark.full
def test_features_keep_their_values_or_are_refused(toys, tmp_path):
    image, style = (np.array(x) for x in toy_models.sources("images"))
    model = OnnxModel(toys["images"].export(tmp_path, format="onnx"))
    expected = toys["images"]((image, style)).text
    for given in image, image.astype("int64"), image.tolist():
        found = model.predict({"image": given, "style": style})
        assert found["text"] == expected
    for wrong in (
        image / 255.0,
        image.astype("int64") + 256,
        image.astype(complex),
        image[0],
        [image[0], image[1, :2]],
        "abc",
    ):
        with pytest.raises(ValueError, match="`image` must be an array, uint8"):
            model.predict({"image": wrong, "style": style})
    none = model.predict({"image": image[:0], "style": style[:0]})
    assert none["text"] == []
    assert model.predict({"image": [], "style": []})["text"] == []


@pytest.mark.full
def test_what_is_wrong_is_refused(folder, tmp_path):
    model = OnnxModel(folder)
    with pytest.raises(ValueError, match="has the signatures.*'align'"):
        model.predict(["a"], "align")
    for wrong in 0, True, -1, 2.0, "3", None:
        with pytest.raises(ValueError, match="`batch_size` must be an integer"):
            model.predict(["a"], batch_size=wrong)
    with pytest.raises(ValueError, match="`seed` needs a search that draws"):
        model.predict(["a"], seed=1)
    for wrong in "a", np.array("a"), 3, iter(["a"]), [["a"]]:
        with pytest.raises(ValueError, match="`text` must be a list of texts"):
            model.predict(wrong)
    with pytest.raises(ValueError, match=r"outputs \['ids'.*'text'"):
        model.predict(["a"], "ids", "text")
    with pytest.raises(ValueError, match="must be strings.*3"):
        model.predict(["a", 3])
    with pytest.raises(ValueError, match=r"has the inputs \['text'\].*'txt'"):
        model.predict({"txt": ["a"]})
    with pytest.raises(FileNotFoundError, match="directory of an ONNX export"):
        OnnxModel(tmp_path)


@pytest.mark.full
def test_a_folder_that_lacks_a_file_is_named(folder, tmp_path):
    whole = model_folder(folder)
    for name, wrong, match in (
        ("target.json", None, "no `target.json`"),
        ("source.json", None, "must have the texts of its model"),
        ("source.json", "{", "source.json must be.*is no JSON"),
        ("target.json", "{}", "target.json must be.*without.*'special'"),
    ):
        copy = tmp_path / f"{name} {wrong}"
        shutil.copytree(whole, copy)
        (copy / name).unlink()
        if wrong is not None:
            (copy / name).write_text(wrong)
        with pytest.raises((ValueError, FileNotFoundError), match=match):
            OnnxModel(copy)


def model_folder(folder):
    return OnnxModel(folder).directory


@pytest.mark.full
def test_a_text_that_is_too_long_refuses_its_row_alone(toys, tmp_path):
    source = Text("abcde", split="characters", max_length=5, too_long="error")
    made = toys["pre"].replace(source_text=source)
    model = OnnxModel(made.export(tmp_path, format="onnx"))
    with pytest.raises(RowError) as caught:
        model.predict(["abc", "abcabc", ""], "nbest")
    assert [*caught.value.errors] == [1]
    found = caught.value.result
    assert found["texts"][0][0] == made(["abc"]).text[0]
    assert not any(found["texts"][1]) and np.isneginf(found["scores"][1]).all()
    assert not found["finished"][1].any()
    assert found["empty"].tolist() == [False, False, True]


@pytest.mark.full
def test_rows_that_cannot_be_decoded_are_named(toys, tmp_path):
    path = toys["spectra"].export(tmp_path, format="onnx")
    given = np.array(toy_models.sources("spectra"))
    given[1] = np.nan
    with pytest.raises(RowError) as caught:
        OnnxModel(path).predict(given)
    assert [*caught.value.errors] == [1]
    texts = caught.value.result["text"]
    assert texts[0] == toys["spectra"](given[:1]).text[0]


def test_two_texts_stay_two_whatever_their_names(tmp_path):
    file = written(toy_models.SOURCE, tmp_path)
    ids = {
        name: SimpleNamespace(name=name, type="tensor(int32)", shape=["b", "s"])
        for name in ("text", "ids", "seed")
    }
    inputs = Inputs([*ids.values()], dict.fromkeys(["text", "ids"], file))
    assert inputs.names == ("text", "ids", "seed") and not inputs.draws
    rows = inputs.read({"text": ["a"], "ids": ["abc"], "seed": [[7]]})
    taken = rows.take([0])
    assert sorted(taken) == ["ids", "seed", "text"]
    assert (taken["text"].shape, taken["ids"].shape) == ((1, 2), (1, 4))
