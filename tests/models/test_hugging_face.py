"""Models of Hugging Face from disk, held against what its own classes said.

`tests/fixtures/make_hugging_face.py` wrote both, by transformers on PyTorch.
"""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from support.lazily import Lazily
from support.lazily import ask
from support.lazily import some

import keras_attn
from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.generation import Generation

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "tests/fixtures/hugging_face"
FAMILIES = sorted(x.name for x in FOLDER.iterdir())
NAMES = {
    "marian": "Marian",
    "bart": "BART",
    "m2m_100": "M2M-100",
    "nllb": "NLLB",
    "mbart_50": "mBART-50",
    "pegasus": "Pegasus",
    "t5": "T5, v1.0",
    "mt5": "mT5, as T5 v1.1 and Flan",
    "byt5": "ByT5",
}
LANGUAGES = {
    "nllb": {"source": "eng_Latn", "target": "fra_Latn"},
    "m2m_100": {"source": "en", "target": "fr"},
    "mbart_50": {"source": "en_XX", "target": "fr_XX"},
}
ALWAYS = ["marian"]
# KerasHub's T5 gives a mask to attention in a way that Keras warns of.
pytestmark = pytest.mark.filterwarnings("ignore:.*input with a mask")
each_family = pytest.mark.parametrize("family", some(FAMILIES, ALWAYS))


class Said:
    """What Hugging Face says of a model of the fixtures."""

    def __init__(self, family):
        self.folder = FOLDER / family
        self._texts = json.loads((self.folder / "said/texts.json").read_text())
        self._arrays = np.load(self.folder / "said/arrays.npz")

    def __getattr__(self, name):
        return self._texts[name] if name in self._texts else self._arrays[name]

    @property
    def sources(self):
        """The lines that it translated."""
        return [self.lines[i] for i in self.read]


@pytest.fixture(scope="module")
def said():
    return Lazily(Said, FAMILIES)


def read(family, **options):
    """Returns a translator of the fixtures."""
    return keras_attn.Translator.from_hugging_face(
        FOLDER / family, **LANGUAGES.get(family, {}), **options
    )


@pytest.fixture(scope="module")
def translators():
    return Lazily(read, FAMILIES)


@pytest.fixture(scope="module")
def exports(translators, tmp_path_factory):
    def export(family):
        folder = tmp_path_factory.mktemp(family)
        return str(translators[family].export(folder))

    return Lazily(export, FAMILIES)


@pytest.mark.full
@each_family
def test_load(family, said, translators):
    theirs = said[family]
    count = len(theirs.logits)
    given = [theirs.source[:count], theirs.target[:count]]
    found = translators[family].model.predict(given, verbose=0)
    np.testing.assert_allclose(found, theirs.logits, atol=1e-4)


@pytest.mark.full
@each_family
def test_ids(family, said, translators):
    text, theirs = translators[family].source_text, said[family]
    long = text.longest_source
    for line, expected in zip(theirs.lines, theirs.ids, strict=True):
        if family == "nllb" and "  " in line:
            continue  # its tokenizer has no rule that joins blanks
        if family in ("t5", "mt5") and "\u00a0" in line:
            continue  # real ones have a rule that makes it a blank
        if len(expected) > long:
            assert text.is_truncated([line])
            continue
        assert text.source_ids([line]).numpy().tolist() == [expected], line


# In these a blank at a line's end is a token, as it is not in SentencePiece.
BLANKS = {"mbart_50": "▁", "nllb": "▁", "pegasus": "▁"}


@pytest.mark.full
@each_family
def test_a_source_may_spell_special_tokens(family, said):
    text = read(family, special_tokens=True).source_text
    theirs = said[family]
    blank = text.tokens.index(BLANKS[family]) if family in BLANKS else -1
    for line, expected in zip(theirs.spelled, theirs.spelled_ids, strict=True):
        given = line
        if family == "byt5":  # theirs leaves blanks out, and a second end
            expected = [*expected, 1] if line.endswith("</s>") else expected
            given = re.sub(" ?(</s>|<unk>) ?", r"\1", line)
        (found,) = text.source_ids([given]).numpy().tolist()
        assert [x for x in found if x != blank] == [
            x for x in expected if x != blank
        ], line


@pytest.mark.full
@each_family
def test_special_tokens_in_a_source_are_plain_text(family, said, translators):
    text = translators[family].source_text
    special = text.special
    for line in said[family].spelled:
        (found,) = text.source_ids([line]).numpy().tolist()
        inner = found[len(special.source_start) :]
        inner = inner[: len(inner) - len(special.ends_source)]
        assert not {special.end, special.pad} & {*inner}
        assert len(inner) > 3


@pytest.mark.full
@pytest.mark.parametrize("family", ["bart", "mbart_50", "mt5", "pegasus", "t5"])
def test_a_tokenizer_json_says_the_same(family, said, translators, tmp_path):
    shutil.copytree(FOLDER / family, tmp_path / "model")
    for path in (tmp_path / "model").iterdir():
        if path.suffix in (".model", ".txt") or path.name == "vocab.json":
            path.unlink()
    shutil.copy(FOLDER / family / "said/tokenizer.json", tmp_path / "model")
    again = keras_attn.Translator.from_hugging_face(
        tmp_path / "model", **LANGUAGES.get(family, {})
    )
    before, lines = translators[family], said[family].lines
    for name in ("source_text", "target_text"):
        text, other = getattr(again, name), getattr(before, name)
        assert text.tokens == other.tokens
        assert text.special == other.special
        ids = text.source_ids(lines).numpy()
        np.testing.assert_array_equal(ids, other.source_ids(lines))
        np.testing.assert_array_equal(text.strings(ids), other.strings(ids))


@each_family
def test_texts(family, said, translators):
    text, theirs = translators[family].source_text, said[family]
    for ids, line in zip(theirs.ids, theirs.back, strict=True):
        (found,) = text.strings([ids]).numpy()
        # Theirs leave unknown tokens out, and may write the language.
        found = found.decode().replace("<unk>", "")
        line = line.removeprefix("__en__")
        assert found.strip() == line.strip()


@each_family
def test_beam(family, said, translators):
    translator, theirs = translators[family], said[family]
    found = translator(theirs.sources)
    special = translator.target_text.special
    start = len(special.start)
    ids = translator.decode_ids(theirs.source)
    for i, (row, translation) in enumerate(
        zip(theirs.sequences, found, strict=True)
    ):
        for n, expected in enumerate(row):
            length = int(ids.lengths[i, n])
            expected = expected[start:]
            assert ids.tokens[i, n, :length].numpy().tolist() == [
                *expected[:length]
            ]
            assert {*expected[length:]} <= {special.pad, special.end}
        scores = [x.score for x in translation.alternatives]
        np.testing.assert_allclose(
            [translation.score, *scores], theirs.scores[i], atol=1e-4
        )
        assert _plain(translation.text) == _plain(theirs.texts[3 * i])


def _plain(text):
    """Returns a text without what one of both tokenizers leaves out.

    Theirs may write the language, ours U+FFFD for bytes that are no text.
    """
    return text.removeprefix("__fr__").replace("\ufffd", "").strip()


@pytest.mark.full
@each_family
def test_greedy(family, said, translators):
    translator, theirs = translators[family], said[family]
    beams = translator.search
    directory = Directory(FOLDER / family)
    search = Generation.of(directory, {"num_beams": 1}).search(
        translator.target_text.special.start,
        translator.target_text.special.end,
        longest=None,
    )
    assert search == keras_attn.GreedySearch(
        max_length=beams.max_length,
        min_length=beams.min_length,
        no_repeat_ngram=beams.no_repeat_ngram,
        rules=beams.rules,
    )
    greedy = keras_attn.Translator(
        translator.model,
        translator.source_text,
        translator.target_text,
        search,
    )
    start = len(translator.target_text.special.start)
    found = greedy.decode_ids(theirs.source)
    for i, row in enumerate(theirs.greedy[:, start:]):
        length = int(found.lengths[i, 0])
        assert found.tokens[i, 0, :length].numpy().tolist() == [*row[:length]]


@pytest.mark.full
@each_family
def test_score(family, said, translators):
    by_text, theirs = translators[family], said[family]
    special = by_text.target_text.special
    # Not for the framing of texts, which their decoder did not read.
    translator = keras_attn.Translator(
        by_text.model,
        keras_attn.Text(split=by_text.source_text.split, normalization=None),
        _numbers(by_text, theirs),
    )
    count = len(theirs.logits)
    lines = theirs.sources[:count]
    targets = [" ".join(map(str, row[1:])) for row in theirs.target[:count]]
    found = translator.score(lines, targets)
    size = theirs.target.shape[1] - 1
    for i, row in enumerate(theirs.target[:count]):
        logits = theirs.logits[i]
        sums = np.log(np.sum(np.exp(logits - logits.max(-1)[:, None]), -1))
        expected = [
            logits[t, row[t + 1]] - logits[t].max() - sums[t]
            for t in range(size)
        ]
        np.testing.assert_allclose(
            found.token_scores[i][:size], expected, atol=1e-4
        )
    assert special.end not in theirs.target[:count, 1:]


def _numbers(translator, theirs):
    """Returns a target text of numbers, which begins as theirs."""
    special = translator.target_text.special
    start = (int(theirs.target[0, 0]),)
    size = translator.model.output.shape[-1]
    special = dataclasses.replace(special, start=start, prompt_tokens=())
    return keras_attn.Text(split=keras_attn.IntegerIds(size, special))


@pytest.mark.full
@each_family
def test_fit(family, said):
    translator = read(family)
    model = train(translator, said[family].sources[:6])
    losses = model.history.history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.full
@each_family
def test_save(family, said, tmp_path):
    translator, lines = read(family), said[family].sources[:6]
    train(translator, lines)
    translator.save(tmp_path / "saved")
    again = keras_attn.Translator.load(tmp_path / "saved")
    assert again(lines).text == translator(lines).text
    assert again.search == translator.search
    assert again.target_text.special == translator.target_text.special


@pytest.mark.full
@pytest.mark.parametrize("family", some(["marian", "t5"], ALWAYS))
def test_another_process_loads_what_was_saved(
    family, said, translators, tmp_path
):
    translators[family].save(tmp_path / "saved")
    line = said[family].sources[0]
    code = (
        "import keras_attn, sys; "
        "translator = keras_attn.Translator.load(sys.argv[1]); "
        "print(translator([sys.argv[2]]).text)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "saved"), line],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(translators[family]([line]).text)


@pytest.mark.full
@pytest.mark.parametrize("family", ["marian", "mbart_50", "mt5"])
def test_adapters_are_trained_alone(family, said):
    translator, lines = read(family), said[family].sources[:6]
    model = translator.model
    before = translator(lines).text
    weights = len(model.trainable_weights)
    for layer in model._flatten_layers():
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(2)
    kernels = [x for x in model.weights if x.path.endswith("kernel")]
    values = [keras.ops.convert_to_numpy(x) for x in kernels]
    train(translator, lines)
    for kernel, value in zip(kernels, values, strict=True):
        np.testing.assert_array_equal(kernel, value)
    assert len(model.trainable_weights) > weights
    assert translator(lines).text != before


@pytest.mark.full
def test_the_loss_of_the_page_has_the_end_and_no_padding(monkeypatch):
    page = (ROOT / "keras_attn/models/hugging_face/README.md").read_text()
    (code,) = re.findall(r"```python\n(import keras, .*?)model.fit", page, re.S)
    monkeypatch.chdir(ROOT)
    names: dict = {}
    exec(code, names)
    special, model = names["translator"].target_text.special, names["model"]
    for _, target in names["data"]:
        assert special.end in target.numpy()
        logits = np.zeros((*target.shape, model.output.shape[-1]))
        found = model.loss.call(target, logits).numpy() > 0
        np.testing.assert_array_equal(found, target.numpy() != special.pad)


def train(translator, lines):
    """Trains a translator's model a little, and returns the model."""
    model = translator.model
    padding = translator.target_text.special.pad
    data = keras_attn.pairs(
        lines,
        [x[:10] for x in lines],
        translator.source_text,
        translator.target_text,
        batch_size=3,
    )
    adam = keras.optimizers.Adam(0.01)
    loss = keras_attn.SequenceCrossentropy(padding_id=padding)
    model.compile(adam, loss=loss)
    keras.utils.set_random_seed(0)
    model.fit(data, epochs=8, verbose=0)
    return model


@pytest.mark.full
@each_family
def test_export(family, said, translators, exports):
    lines = said[family].sources[:5]
    served = tf.saved_model.load(exports[family])
    found = served.signatures["serving_default"](text=tf.constant(lines))
    expected = translators[family](lines)
    assert [x.decode() for x in found["text"].numpy()] == expected.text
    scores = found["score"].numpy()
    np.testing.assert_allclose(scores, expected.scores, atol=1e-4)


@pytest.mark.full
@each_family
def test_tensorflow_serving(family, said, translators, exports):
    lines = said[family].sources[:5]
    given = {"text": np.array([x.encode() for x in lines], object)}
    (found,) = ask([(exports[family], "nbest", given, "c")])
    for row, texts in zip(
        translators[family](lines), found["texts"], strict=True
    ):
        others = [x.text for x in row.alternatives]
        assert [x.decode() for x in texts] == [row.text, *others]


@pytest.mark.full
@each_family
def test_onnx(family, said, translators, tmp_path):
    translator, theirs = translators[family], said[family]
    path = translator.export(tmp_path, format="onnx")
    session = onnxruntime.InferenceSession(path / "model.onnx")
    source = theirs.source.astype("int32")
    real = source != translator.source_text.special.pad
    lengths = np.sum(real, axis=1, dtype="int32")
    given = {"ids": source, "lengths": lengths}
    ids, _, scores, errors = session.run(None, given)
    expected = translator.decode_ids(theirs.source)
    np.testing.assert_allclose(scores, expected.scores, atol=1e-4)
    longest = expected.tokens.shape[-1]
    np.testing.assert_array_equal(ids[..., :longest], expected.tokens)
    assert not any(errors)


RENORMALIZED = {
    "renormalize_logits": True,
    "length_penalty": 0.0,  # so that scores are sums
    "bad_words_ids": [[5, 6], [1], [111]],
    "no_repeat_ngram_size": 2,
    "min_length": 4,
    "max_length": 10,
}


@pytest.mark.full
def test_probabilities_renormalized_over_allowed_tokens(said, tmp_path):
    folder = tmp_path / "marian"
    shutil.copytree(FOLDER / "marian", folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | RENORMALIZED))
    translator = keras_attn.Translator.from_hugging_face(folder)
    source = said["marian"].source[:2]
    found = translator.decode_ids(source)
    for row, ids in enumerate(source):
        for n, length in enumerate(found.lengths[row].numpy()):
            written = found.tokens[row, n, :length].numpy().tolist()
            target = np.array([[111, *written[:-1]]])
            (logits,) = translator.model([ids[None], target]).numpy()
            expected = sum(
                _of_allowed(logits[t], written[:t])[written[t]]
                for t in range(length)
            )
            score = found.scores[row, n]
            np.testing.assert_allclose(score, expected, atol=1e-4)

    lines = said["marian"].sources[:2]
    translator.save(tmp_path / "saved")
    again = keras_attn.Translator.load(tmp_path / "saved")
    assert again.search == translator.search
    expected = translator(lines).scores
    exported = tf.saved_model.load(str(translator.export(tmp_path / "export")))
    served = exported.signatures["serving_default"](text=tf.constant(lines))
    np.testing.assert_allclose(served["score"], expected, atol=1e-4)
    onnx = translator.export(tmp_path / "onnx", format="onnx") / "model.onnx"
    lengths = np.sum(source != 111, axis=1, dtype="int32")
    given = {"ids": source.astype("int32"), "lengths": lengths}
    _, _, scores, _ = onnxruntime.InferenceSession(onnx).run(None, given)
    np.testing.assert_allclose(scores, found.scores, atol=1e-4)


def _of_allowed(logits, written):
    """Log-probabilities over the tokens that `RENORMALIZED` allows."""
    never = {1, 111}
    if written[-1:] == [5]:
        never.add(6)
    if len(written) < 3:  # with the start token and the end fewer than 4
        never.add(0)
    pairs = zip(written, written[1:], strict=False)
    never |= {y for x, y in pairs if x == written[-1]}
    allowed = {*range(112)} - never
    if len(written) == 8:  # the last place, without the start token
        allowed = {0}
    allowed = sorted(allowed)
    found = np.full(112, -np.inf)
    logits = logits[allowed] - logits[allowed].max()
    found[allowed] = logits - np.log(np.sum(np.exp(logits)))
    return found


COLUMNS = [
    test_load,
    test_ids,
    test_texts,
    test_greedy,
    test_beam,
    test_score,
    test_fit,
    test_save,
    test_export,
    test_tensorflow_serving,
    test_onnx,
]


def test_the_table_of_the_page_is_this_one():
    page = (ROOT / "keras_attn/models/hugging_face/README.md").read_text()
    lines = page[page.index("| tested |") :].split("\n\n")[0].splitlines()
    head, _, *rows = ([x.strip() for x in y.split("|")[1:-1]] for y in lines)
    names = [f"test_{x.lower().replace(' ', '_')}" for x in head[1:]]
    assert names == [x.__name__ for x in COLUMNS]
    assert [row[0] for row in rows] == list(NAMES.values())
    assert {*NAMES} == {*FAMILIES}
    assert all(row[1:] == ["yes"] * len(names) for row in rows)
