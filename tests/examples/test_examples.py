"""Every example runs, at toy size, as a user would run it."""

import gzip
import hashlib
import lzma
import re
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
from support.programs import ENVIRONMENT
from support.programs import PROGRAM
from support.programs import ROOT
from support.programs import load
from support.programs import run

from keras_attn.training.metrics import ErrorRates

YOUR_OWN_SCORE = PROGRAM.with_name("your_own_score.py")
TRANSFORMER = PROGRAM.with_name("transformer.py")
OTHER_BACKEND = PROGRAM.with_name("other_backend.py")
TOY = "--words", "300", "--epochs", "1", "--units", "16"


@pytest.fixture(scope="module")
def pronounce():
    return load(PROGRAM)


@pytest.fixture(scope="module")
def cmudict(pronounce):
    return pronounce.common.cmudict


@pytest.mark.parametrize(
    ("program", "most"),
    [
        (PROGRAM, 320),
        (YOUR_OWN_SCORE, 120),
        (TRANSFORMER, 160),
        (OTHER_BACKEND, 130),
        (PROGRAM.with_name("fine_tune.py"), 180),
        (PROGRAM.with_name("spark.py"), 320),
        (PROGRAM.with_name("live.py"), 120),
        (PROGRAM.with_name("adopt.py"), 120),
        (PROGRAM.with_name("pretrained.py"), 200),
        (PROGRAM.with_name("transcribe.py"), 190),
        (PROGRAM.with_name("tutorial.py"), 210),
    ],
    ids=lambda value: getattr(value, "stem", None),
)
def test_a_program_is_read_in_one_go(program, most):
    assert len(program.read_text().splitlines()) <= most


def test_the_programs_share_small_files_only():
    for file in PROGRAM.parent.glob("common/*.py"):
        assert len(file.read_text().splitlines()) <= 250, file


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    output = tmp_path_factory.mktemp("pronounce")
    return output, run("train", *TOY, "--output", output).stdout


@pytest.mark.full
def test_train_shows_progress_and_figures(trained):
    output, printed = trained
    assert re.search(
        r"- \d+s - .* loss: [\d.]+ - val_phoneme_error_rate: [\d.]+",
        printed,
    )
    assert re.search(
        r"word error rate [\d.]+ %, phoneme error rate [\d.]+ %", printed
    )
    assert len(re.findall("the dictionary: ", printed)) == 5
    assert "promised" not in printed.lower()  # by the preset, not by a toy


@pytest.mark.full
def test_export_serve_and_query(trained):
    output, _ = trained
    assert "Exported" in run("export", "--output", output).stdout
    assert (output / "models/pronounce/1/saved_model.pb").exists()
    with subprocess.Popen(
        [sys.executable, PROGRAM, "serve", "--output", output, "--port", "0"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            address = server.stdout.readline().split()[-1]
            arguments = "--server", address, "it's", "pneumonia"
            printed = run("query", *arguments).stdout
        finally:
            server.terminate()
    assert re.search(r"it's\n +-?[\d.]+  .*\n", printed)
    assert "pneumonia" in printed


def test_samples_are_printed_early_in_the_first_epoch_alone(
    pronounce, toys, capfd
):
    samples = pronounce.common.samples.Samples(toys["greedy"], ["abc", "b"])
    printed = []
    for epoch in range(2):
        samples.on_epoch_begin(epoch)
        for batch in range(300):
            samples.on_train_batch_end(batch)
        printed.append(capfd.readouterr().out.splitlines())
    texts = toys["greedy"](["abc", "b"]).text
    said = f"abc: {texts[0] or '(nothing)'}; b: {texts[1] or '(nothing)'}"
    assert printed[0] == [
        "",
        f"After 150 batches: {said}",
        "",
        f"After 300 batches: {said}",
    ]
    assert printed[1] == []


@pytest.mark.parametrize("kept", [False, True])
def test_who_interrupts_is_told_how_to_go_on(
    pronounce, kept, capfd, monkeypatch, tmp_path
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pronounce, "train_here", interrupted)
    if kept:
        (tmp_path / "translator").mkdir()
        (tmp_path / "translator" / "translator.json").write_text("{}")
    assert pronounce.main(["demo", "--output", str(tmp_path)]) == 130
    printed = capfd.readouterr()
    assert "Interrupted." in printed.err
    commands = re.findall(r"^  \S+ \S+ (.*)$", printed.out, re.MULTILINE)
    if kept:
        assert commands == ["export", "serve", "query YOUR WORDS"]
    else:
        assert commands == ["demo --preset small", "demo --epochs 1"]


@pytest.mark.full
def test_plot(trained):
    output, _ = trained
    run("plot", "neighborhood", "--output", output)
    assert (output / "attention.png").read_bytes()[:4] == b"\x89PNG"


def test_demo_does_all_of_it(pronounce, capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])  # the server's
    monkeypatch.syspath_prepend(ROOT / "serving")
    # In this process, which has TensorFlow already; `test_train...` and
    # `test_export...` run the commands as programs.
    output = "--output", str(tmp_path)
    assert pronounce.main(["demo", *TOY, *output, "--beams", "2"]) == 0
    printed = capfd.readouterr().out
    assert re.search(r"neighborhood\n +-?[\d.]+  ", printed)
    assert "All done" in printed
    assert (tmp_path / "attention.png").exists()


def test_without_a_trained_model_export_says_what_to_do(pronounce, tmp_path):
    with pytest.raises(SystemExit, match="Run `train` first"):
        pronounce.main(["export", "--output", str(tmp_path)])


def test_without_a_server_query_says_what_to_do(pronounce, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "serving")
    with pytest.raises(SystemExit, match="Is a server running"):
        pronounce.main(["query", "cat", "--server", "localhost:1"])


def test_every_command_has_help(pronounce, capsys):
    for command in "train", "export", "serve", "query", "plot", "demo":
        with pytest.raises(SystemExit, match="0"):
            pronounce.main([command, "--help"])
        assert "--output" in capsys.readouterr().out


def test_every_attention_by_name_builds_a_model(pronounce):
    class Text:
        size = 7

    preset = pronounce.PRESETS["demo"]._replace(units=8, embedding=4)
    for attention in pronounce.ATTENTIONS:
        model = pronounce.build_model(Text, Text, preset, attention)
        assert model.output_shape[-1] == 7


def test_a_preset_that_misses_its_promise_fails(pronounce, capsys):
    def status(word, phoneme, preset="demo"):
        rates = ErrorRates(word, phoneme)
        return pronounce.common.report.judge(rates, preset, "bahdanau")

    assert status(0.359, 0.089) == 0
    assert "As promised" in capsys.readouterr().out
    assert status(0.361, 0.089) == 1
    assert status(0.359, 0.091) == 1
    assert "NOT AS PROMISED" in capsys.readouterr().err
    assert status(0.99, 0.99, preset="small") == 0


@pytest.mark.parametrize(
    "changed",
    [
        "--words=5",
        "--epochs=1",
        "--units=8",
        "--attention=luong-dot",
        "--split=folder",
    ],
)
def test_a_run_other_than_the_preset_promises_nothing(
    pronounce, cmudict, monkeypatch, tmp_path, changed
):
    report, nothing = pronounce.common.report, cmudict.Split({}, {}, {})
    monkeypatch.setattr(pronounce, "read_data", lambda *_: nothing)
    monkeypatch.setattr(pronounce, "fit", lambda *_: Mock(spec=["save"]))
    monkeypatch.setattr(report, "evaluate", lambda *_: ErrorRates(1.0, 1.0))
    train = ["train", "--output", str(tmp_path)]
    assert pronounce.main([*train, "--seed=3"]) == 1
    assert pronounce.main([*train, changed]) == 0


def test_the_dictionary_is_that_of_the_package_and_has_its_licence(cmudict):
    text = lzma.decompress(cmudict.FILE.read_bytes())
    digest = hashlib.sha256(text).hexdigest()
    folder = cmudict.FILE.parent
    assert digest in (folder / "README.md").read_text()
    licence = (folder / "CMUDICT-LICENSE.txt").read_text()
    assert "Carnegie Mellon University" in licence


def test_the_dictionary_is_read_without_stress_and_doubles(cmudict):
    words = cmudict.read()
    assert words["tomato"] == ["T AH M EY T OW", "T AH M AA T OW"]
    assert words["aalborg"][0] == "AO L B AO R G"  # a comment ends its line
    assert len(words) == 124_926
    phonemes = {
        p for several in words.values() for p in " ".join(several).split()
    }
    assert len(phonemes) == 39


def test_the_split_is_a_function_of_the_words(cmudict):
    words = cmudict.read()
    split = cmudict.split_by_hash(words)
    again = cmudict.split_by_hash(dict(reversed(words.items())))
    assert list(split.test) == list(again.test)
    assert [len(part) for part in split] == [117_585, 1_209, 6_132]
    assert split.train | split.validation | split.test == words
    assert set(cmudict.SHOWN) <= set(split.test)


def test_the_published_split_is_read(cmudict, tmp_path):
    with gzip.open(tmp_path / "train.tsv.gz", "wt") as file:
        file.write("TOMATO\tT AH M EY T OW\nTOMATO\tT AH M AA T OW\nA\tAH\n")
    with gzip.open(tmp_path / "test.tsv.gz", "wt") as file:
        file.write("CAT'S\tK AE T S\n")
    (tmp_path / "dev-words.seed0.txt").write_text("A\n")
    split = cmudict.read_published_split(tmp_path)
    assert split.train == {"tomato": ["T AH M EY T OW", "T AH M AA T OW"]}
    assert split.validation == {"a": ["AH"]}
    assert split.test == {"cat's": ["K AE T S"]}


@pytest.mark.full
def test_a_transformer_is_trained_exported_and_served_likewise(tmp_path):
    # From a folder of its own, with a path relative to that.
    toy = *TOY, "--depth", "1", "--output", "here"
    printed = run(*toy, program=TRANSFORMER, folder=tmp_path).stdout
    tmp_path = tmp_path / "here"
    assert re.search(r"loss: [\d.]+ - val_phoneme_error_rate: [\d.]+", printed)
    assert re.search(r"word error rate [\d.]+ %, phoneme error", printed)
    assert re.search(r"neighborhood\n +-[\d.]+  ", printed)  # from the server
    assert (tmp_path / "models/pronounce/1/saved_model.pb").exists()
    assert (tmp_path / "attention.png").read_bytes()[:4] == b"\x89PNG"


@pytest.fixture(scope="module")
def your_own_score():
    return load(YOUR_OWN_SCORE)


@pytest.mark.full
def test_a_score_of_one_s_own_is_trained_exported_and_served(tmp_path):
    toy = "--numbers", "300", "--epochs", "1"
    arguments = *toy, "--seed", "2", "--output", tmp_path
    printed = run(*arguments, program=YOUR_OWN_SCORE).stdout
    assert re.search(r"numbers held out, [\d.]+% are said right", printed)
    assert re.search(r"moves on by [\d.]+ digits", printed)
    assert re.search(r"1984 .* \(-?[\d.]+, (right|wrong)\)", printed)
    assert (tmp_path / "models/numbers/1/saved_model.pb").exists()
    assert (tmp_path / "attention.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.full
def test_a_model_of_another_backend_is_decoded_on_tensorflow(tmp_path):
    pytest.importorskip("jax")
    toy = "--numbers", "300", "--epochs", "2", "--output", tmp_path
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENVIRONMENT, "KERAS_BACKEND", "jax")
        printed = run("train", *toy, program=OTHER_BACKEND).stdout
    assert "Trained on jax" in printed and "token_accuracy" in printed
    printed = run("decode", *toy, program=OTHER_BACKEND).stdout
    assert re.search(r"numbers held out, [\d.]+% are said right", printed)
    assert (tmp_path / "models/numbers/1/saved_model.pb").exists()


def test_the_score_of_one_s_own_falls_off_from_the_diagonal(your_own_score):
    score = your_own_score.DiagonalScore()
    score.build((1, 3, 2), (1, 4, 2))
    score.pace.assign(0.5)
    nothing = np.zeros((1, 3, 2), "float32"), np.zeros((1, 4, 2), "float32")
    found = score(*nothing, position=np.array([[0, 2, 6]], "int32"))
    # It aims at the source's positions 0, 1 and 3.
    expected = [[0, -1, -2, -3], [-1, 0, -1, -2], [-3, -2, -1, 0]]
    np.testing.assert_allclose(found, [expected])


def test_the_numbers_are_said_as_one_says_them(your_own_score):
    say = your_own_score.common.numbers.say
    assert [say(x) for x in (0, 15, 100, 20_026, 317_440)] == [
        "zero",
        "fifteen",
        "one hundred",
        "twenty thousand twenty six",
        "three hundred seventeen thousand four hundred forty",
    ]
    with pytest.raises(SystemExit, match="0"):
        your_own_score.main(["--help"])


@pytest.mark.full
def test_a_model_that_plain_keras_trained_is_adopted_and_served(tmp_path):
    adopt = PROGRAM.with_name("adopt.py")
    options = "--days", "300", "--epochs", "1", "--output", tmp_path
    printed = run(*options, program=adopt).stdout
    assert "Of 50 outputs, 50 are those of the tutorial's loop." in printed
    assert "The server says:" in printed
    # What trained it knows nothing of keras_attn.
    assert "keras_attn" not in re.sub(
        '""".*?"""',
        "",
        PROGRAM.with_name("tutorial.py").read_text(),
        flags=re.S,
    )
