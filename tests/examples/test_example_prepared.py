"""Batches that one machine prepares with TensorFlow, and another trains on.

The programs train on JAX in a process of their own, in which TensorFlow and
the packages of the extras cannot be imported.
"""

import itertools
import re
import shlex
import subprocess
import sys

import keras
import numpy as np
import pytest
from support.programs import ENVIRONMENT
from support.programs import PROGRAM
from support.programs import load
from support.programs import run

import keras_attn

TRANSLATE = PROGRAM.with_name("translate.py")
TOY = "--preset", "small", "--words", "150", "--units", "16", "--epochs", "2"

# Runs a program as if these were not installed.
ELSEWHERE = """
import runpy
import sys

sys.modules.update(
    dict.fromkeys(
        "tensorflow tensorflow_text tensorflow_serving keras_attn_serving "
        "matplotlib rapidfuzz sacrebleu sentencepiece".split()
    )
)
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_elsewhere(program, *arguments):
    """Returns what a program prints on JAX, without TensorFlow."""
    pytest.importorskip("jax")
    finished = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, program, *map(str, arguments)],
        env={**ENVIRONMENT, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def pronounce():
    return load(PROGRAM)


@pytest.fixture(scope="module")
def batches(pronounce):
    return sys.modules["common.batches"]


@pytest.fixture(scope="module")
def folder(pronounce, tmp_path_factory):
    output = tmp_path_factory.mktemp("pronounce")
    assert pronounce.main(["prepare", *TOY, "--output", str(output)]) == 0
    return output / "prepared"


def random_ids(rows, seed=0):
    """Returns padded sources and targets with between 1 and 9 ids."""
    draw = np.random.default_rng(seed)
    source, target = draw.integers(1, 99, (2, rows, 10))
    place = np.arange(10)
    source[place >= draw.integers(1, 10, rows)[:, None]] = 0
    target[place >= draw.integers(2, 11, rows)[:, None]] = 0
    return source, target


def unpadded(source, target):
    return sorted(
        (tuple(s[s != 0]), tuple(t[t != 0]))
        for s, t in zip(source, target, strict=True)
    )


def test_the_lengths_are_those_that_leave_the_least_padding(batches):
    lengths = np.random.default_rng(1).geometric(0.2, 200)

    def padded(chosen):
        return sum(min(x for x in chosen if x >= n) for n in lengths)

    *others, longest = np.unique(lengths)
    for number in 1, 2, 3, 4:
        some = itertools.combinations(others, number - 1)
        fewest = min(padded([*x, longest]) for x in some)
        found = batches.lengths_to_pad_to(lengths, number)
        assert len(found) == number and padded(found) == fewest
    assert batches.lengths_to_pad_to(np.array([3, 3, 7]), 5) == [3, 7]


def test_no_row_is_left_out_and_every_batch_is_full(batches):
    source, target = random_ids(137)
    arrays = batches.arrange(source, target, 16, number=3)
    assert len(arrays) == 3
    for length, (sources, targets) in arrays.items():
        assert len(sources) == len(targets) and len(sources) % 16 == 0
        assert sources.shape[1] == length == targets.shape[1] - 1
        assert sources.any(axis=1).all()
    rows = [unpadded(*both) for both in arrays.values()]
    empty = [row for row in sum(rows, []) if not row[1]]
    assert len(empty) == -137 % 16
    assert sorted(set(sum(rows, [])) - set(empty)) == unpadded(source, target)


def test_rows_that_fill_no_batch_get_the_next_length(batches):
    source = target = np.tril(np.ones((10, 10), int))  # of 1 to 10 ids
    arrays = batches.arrange(source, target, 20, number=4)
    ((length, (sources, targets)),) = arrays.items()
    assert length == 10 and sources.shape == (20, 10)
    assert np.sum(targets.any(axis=1)) == 10


def test_the_number_of_an_epoch_decides_its_order(batches):
    arrays = batches.arrange(*random_ids(300), 8, number=4)
    data = batches.Batches(arrays, 8, seed=1)

    def epoch():
        return [x for i in range(len(data)) for x in data[i][0][0].tolist()]

    first = epoch()
    data.on_epoch_end()
    second = epoch()
    assert first != second
    assert sorted(map(sum, first)) == sorted(map(sum, second))
    data.set_epoch(0)
    assert epoch() == first
    assert data[0][0][0].shape[1] == max(arrays)  # the longest come first,
    assert data[1][0][0].shape[1] == min(arrays)  # and then the shortest
    data = batches.Batches(arrays, 8, seed=2)
    assert epoch() != first
    data = batches.Batches(arrays, 8)
    unshuffled = epoch()
    data.on_epoch_end()
    assert epoch() == unshuffled


@pytest.mark.full
def test_the_batches_are_those_of_pairs(pronounce, folder):
    cmudict, prepared = pronounce.common.cmudict, pronounce.common.prepared
    words, spoken = cmudict.as_lines(pronounce.read_data(None, 150).train)
    texts = pronounce.make_texts(words, spoken)
    expected = []
    for (source, start), end in keras_attn.pairs(words, spoken, *texts):
        expected += zip(*(x.numpy() for x in (source, start, end)), strict=True)
    data, found = prepared.read(folder, seed=1), []
    for i in range(len(data.train)):
        (source, start), end = data.train[i]
        found += [row for row in zip(source, start, end, strict=True)]

    def ids(rows):
        return sorted(tuple(tuple(x[x != 0].tolist()) for x in r) for r in rows)

    assert ids(x for x in found if x[2].any()) == ids(expected)
    assert [x.size for x in data.vocabularies] == [x.size for x in texts]
    assert [x.tokens for x in data.texts()] == [x.tokens for x in texts]


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("per", ["token", "row"])
def test_rows_that_fill_a_batch_do_not_count(per, batches):
    source, target = random_ids(5)
    arrays = batches.arrange(source, target, 8, number=1)
    ((source, start), end), *_ = batches.Batches(arrays, 8)
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    embed = keras.layers.Embedding(99, 4, mask_zero=True)
    hidden = keras_attn.AttentionDecoder(
        keras.layers.GRUCell(4), keras_attn.BahdanauAttention(4)
    )(embed(inputs[1]), embed(inputs[0]))
    model = keras.Model(inputs, keras.layers.Dense(99)(hidden))
    loss = keras_attn.SequenceCrossentropy(per=per)
    model.compile("sgd", loss, jit_compile=False)
    before = model.get_weights()
    after = []
    for rows in slice(8), slice(5):
        model.set_weights(before)
        model.train_on_batch([source[rows], start[rows]], end[rows])
        after.append(model.get_weights())
    assert not end[5:].any()
    for with_them, without in zip(*after, strict=True):
        np.testing.assert_allclose(with_them, without, atol=1e-6)


def test_the_options_of_prepare_are_defaults(
    pronounce, folder, monkeypatch, tmp_path
):
    seen = []
    monkeypatch.setattr(
        pronounce.common.prepared, "fit", lambda *x: seen.append(x)
    )
    train = "train", "--prepared", str(folder), "--output", str(tmp_path)
    pronounce.main([*train])
    pronounce.main([*train, "--units", "8", "--epochs", "5", "--seed", "7"])
    (model, data, epochs, output), (other, other_data, more, _) = seen
    assert epochs == 2 and more == 5 and output == tmp_path
    assert model.layers[-1].kernel.shape[0] == 16
    assert other.layers[-1].kernel.shape[0] == 8
    assert (data.train.seed, other_data.train.seed) == (1, 7)
    assert data.train.batch_size == 64  # that of the preset


def test_the_preset_of_the_paper_has_three_layers(pronounce):
    sizes = pronounce.PRESETS["paper"]
    assert (sizes.units, sizes.depth, sizes.epochs) == (512, 3, 50)
    size = pronounce.common.prepared.Vocabulary(9)
    sizes = sizes._replace(units=8, embedding=4)
    for attention in "bahdanau", "luong-general":
        model = pronounce.build_model(size, size, sizes, attention)
        (decoder,) = [
            x
            for x in model.layers
            if isinstance(x, keras_attn.AttentionDecoder)
        ]
        assert len(decoder.cell.cells) == 3
        encoders = [
            x for x in model.layers if isinstance(x, keras.layers.Bidirectional)
        ]
        assert len(encoders) == 3


def test_what_is_missing_is_said(pronounce, folder, monkeypatch, tmp_path):
    here = "--output", str(tmp_path)
    with pytest.raises(SystemExit, match="no batches in .* Run `prepare`"):
        pronounce.main(["train", "--prepared", str(tmp_path), *here])
    with pytest.raises(SystemExit, match="no .*model.keras. Run `train"):
        pronounce.main(["score", "--prepared", str(folder), *here])
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(SystemExit, match="`score` needs TensorFlow"):
        pronounce.main(["score", "--prepared", str(folder), *here])
    with pytest.raises(SystemExit, match="`prepare` needs TensorFlow"):
        pronounce.main(["prepare", *TOY, *here])


def test_the_next_command_has_the_same_output(pronounce, tmp_path, capsys):
    output = tmp_path / "own"
    pronounce.main(["prepare", *TOY, "--output", str(output)])
    printed = capsys.readouterr().out
    assert f"{output / 'prepared'} --output {output}\n" in printed


@pytest.mark.full
def test_the_programs_start_without_tensorflow():
    said = run_elsewhere(PROGRAM, "train", "--help")
    assert "--prepared DIR" in said
    assert "--prepared DIR" in run_elsewhere(TRANSLATE, "--help")


@pytest.fixture(scope="module")
def trained(pronounce, tmp_path_factory):
    """Trains on JAX; returns the folder, and the losses that are printed."""
    output = tmp_path_factory.mktemp("elsewhere")
    here = "--output", str(output)
    # So few words that JAX compiles for a single length.
    pronounce.main(["prepare", *TOY, "--words", "60", *here])
    given = "--prepared", output / "prepared"
    said = run_elsewhere(PROGRAM, "train", *given, *here)
    assert "Training on jax" in said
    assert f"model.keras --output {output}\n" in said
    found = re.findall(r"loss: ([\d.]+) - val_loss: ([\d.]+)", said)
    return output, np.array(found, float)


@pytest.mark.full
def test_a_model_of_jax_has_the_same_loss_on_tensorflow(pronounce, trained):
    output, losses = trained
    assert losses.shape == (2, 2) and (losses[0] > losses[1]).all()
    model = keras.saving.load_model(output / "model.keras")
    data = pronounce.common.prepared.read(output / "prepared")
    loss = model.evaluate(data.validation, verbose=0)
    assert loss == pytest.approx(losses[-1, 1], abs=1e-3)


@pytest.mark.full
def test_a_model_of_jax_is_scored_exported_and_drawn(
    pronounce, trained, capsys
):
    output, _ = trained
    here = "--output", str(output)
    score = "score", "--prepared", str(output / "prepared"), *here
    # Twice the same model, as an ensemble: it says what each says.
    both = "--models", *[str(output / "model.keras")] * 2
    for models in (), both:
        assert pronounce.main([*score, *models]) == 0
    assert pronounce.main(["export", *here]) == 0
    assert pronounce.main(["plot", "tomato", *here]) == 0
    printed = capsys.readouterr().out
    assert "Trained in" not in printed
    rates = re.findall(r"word error rate [\d.]+ %, phoneme .*", printed)
    assert len(rates) == 2 and len({*rates}) == 1
    assert (output / "models/pronounce/1/saved_model.pb").exists()
    assert len(keras_attn.Translator.load(output / "translator").models) == 2


@pytest.mark.full
def test_an_epoch_learns_about_as_much_as_from_pairs(pronounce, tmp_path):
    prepared, cmudict = pronounce.common.prepared, pronounce.common.cmudict
    options = {"preset": "small", "split": None, "words": 2000}
    pronounce.prepare(tmp_path, **options)
    words, spoken = cmudict.as_lines(pronounce.read_data(None, 2000).train)
    texts = pronounce.make_texts(words, spoken)
    sizes = pronounce.PRESETS["small"]._replace(units=32, epochs=1)
    losses = []
    for data in (
        prepared.read(tmp_path / "prepared", seed=1).train,
        keras_attn.pairs(words, spoken, *texts, batch_size=64, seed=1),
    ):
        keras.utils.set_random_seed(1)
        model = pronounce.make_model(*texts, sizes, "bahdanau", len(data))
        model.fit(data, shuffle=False, verbose=0)
        held_out = prepared.read(tmp_path / "prepared").validation
        losses.append(model.evaluate(held_out, verbose=0))
    assert losses[0] == pytest.approx(losses[1], rel=0.03)
    assert max(losses) < np.log(texts[1].size) - 0.2


@pytest.mark.full
def test_translations_are_learned_on_jax_and_go_on_here(tmp_path):
    # Short ones alone, so that JAX compiles for few lengths.
    pairs = load(TRANSLATE).sentences.read()
    some = [
        pair
        for pair in zip(*pairs, strict=True)
        if max(len(line.split()) for line in pair) < 4
    ]
    for name, lines in zip(("en", "fr"), zip(*some, strict=True), strict=True):
        (tmp_path / name).write_text("\n".join(lines[:800]) + "\n", "utf-8")
    files = "--files", tmp_path / "en", tmp_path / "fr", "--tokens", "words"
    sizes = "--size", "200", "--units", "16", "--epochs", "1"
    here = "--output", tmp_path
    run("prepare", *files, *sizes, *here, program=TRANSLATE)
    given = "--prepared", tmp_path / "prepared", *here
    assert "val_loss" in run_elsewhere(TRANSLATE, "train", *given)
    printed = run("score", *given, program=TRANSLATE).stdout
    assert len(re.findall(r"BLEU [\d.]+   nrefs:1\|case:", printed)) == 4
    assert (tmp_path / "models/translate/1/saved_model.pb").exists()
    assert keras_attn.Translator.load(tmp_path / "translator").shortlist


def test_the_commands_of_the_page_are_understood(pronounce, monkeypatch):
    page = (PROGRAM.parent / "README.md").read_text("utf-8")
    seen = []

    def stub(name):
        def command(**options):
            seen.append((name, options))

        command.__name__ = name
        return command

    for name in "prepare", "train", "score":
        monkeypatch.setattr(pronounce, name, stub(name))
    monkeypatch.setattr(
        pronounce.common.prepared, "options_of", lambda folder: {}
    )
    page = page.replace("$train ", "python examples/pronounce.py train ")
    page = page.replace("$score ", "python examples/pronounce.py score ")
    pattern = (
        r"python examples/pronounce.py ((?:prepare|train|score)\b[^;\"\n]*)"
    )
    for line in re.findall(pattern, page.replace("$seed", "1")):
        if line.startswith("score") and "--prepared" not in line:
            line += " --prepared DIR"  # of the variable
        pronounce.main(shlex.split(line, comments=True))
    assert {name for name, _ in seen} == {"prepare", "train", "score"}
    assert any(options.get("preset") == "paper" for _, options in seen)
    assert {100, None} <= {options.get("epochs") for _, options in seen}
