"""The programs that make tables and figures of results, at toy size."""

import datetime
import json
import re
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.programs import PROGRAM
from support.programs import load
from support.programs import run

import keras_attn

ATTENTIONS = PROGRAM.with_name("attentions.py")
BEAMS = PROGRAM.with_name("beams.py")
STUDENTS = PROGRAM.with_name("students.py")
RISK = PROGRAM.with_name("risk.py")
LENGTHS = PROGRAM.with_name("lengths.py")
TRANSLATE = PROGRAM.with_name("translate.py")
LETTERS = keras_attn.Text("abc", split="characters")
PHONEMES = keras_attn.Text(["AH", "B", "K", "S"], split="whitespace")


@pytest.fixture(scope="module")
def attentions():
    return load(ATTENTIONS)


@pytest.fixture(scope="module")
def lengths():
    return load(LENGTHS)


@pytest.fixture
def table(attentions, tmp_path):
    def make(**condition):
        return attentions.rows.Rows(tmp_path / "new" / "rows.jsonl", condition)

    return make


@pytest.mark.parametrize(
    "program", [ATTENTIONS, BEAMS, RISK, STUDENTS, LENGTHS]
)
def test_a_program_is_read_in_one_go(program):
    assert len(program.read_text().splitlines()) <= 290


def test_a_row_is_measured_once(table):
    for number in 1, 2:
        one = table(words=5)
        one.add({"attention": "none", "seed": 1}, lambda n=number: {"rate": n})
    assert one.table().split("\n") == [
        "| attention | seed | rate |",
        "|---|---|---|",
        "| none | 1 | 1 |",
    ]


def test_rows_may_have_other_columns(table):
    one = table(words=5)
    one.add({"attention": "none"}, lambda: {"a": 1})
    one.add({"attention": "dot"}, lambda: {"b": 2})
    assert one.table().split("\n") == [
        "| attention | a | b |",
        "|---|---|---|",
        "| none | 1 |  |",
        "| dot |  | 2 |",
    ]


def test_rows_of_other_conditions_are_left_alone(table):
    table(words=5).add({"attention": "none"}, lambda: {"rate": 1})
    other = table(words=6)
    assert other.table() == "no rows"
    other.add({"attention": "none"}, lambda: {"rate": 2})
    assert "2 |" in other.table() and "1 |" not in other.table()
    assert len(other.file.read_text().splitlines()) == 2


def test_a_row_that_was_cut_off_is_measured_again(table):
    one = table(words=5)
    one.add({"attention": "none"}, lambda: {"rate": 1})
    one.add({"attention": "dot"}, lambda: {"rate": 2})
    one.file.write_text(one.file.read_text()[:-3])
    again = table(words=5)
    assert "none" in again.table() and "dot" not in again.table()
    again.add({"attention": "dot"}, lambda: {"rate": 3})
    rows = [json.loads(x) for x in again.file.read_text().splitlines()]
    assert [x["rate"] for x in rows] == [1, 3]


def test_a_first_row_that_was_cut_off_is_measured_again(table):
    one = table(words=5)
    one.file.write_text('{"words": 5, "atten')
    table(words=5).add({"attention": "dot"}, lambda: {"rate": 3})
    assert "| dot | 3 |" in table(words=5).table()


@pytest.mark.full
@pytest.mark.parametrize("number", range(18))
def test_every_attention_makes_a_model_that_trains(attentions, number):
    assert len(attentions.DECODERS) == 18
    decode = list(attentions.DECODERS.values())[number]
    sizes = attentions.LIGHT._replace(units=8, embedding=4)
    model = attentions.build_model(LETTERS, PHONEMES, sizes, decode)
    data = keras_attn.pairs(
        ["a", "bca"], ["AH", "B K AH"], LETTERS, PHONEMES, buckets=1, seed=1
    )
    model.compile("adam", loss=keras_attn.SequenceCrossentropy())
    before = [x.copy() for x in model.get_weights()]
    model.fit(data, shuffle=False, verbose=0)
    changed = [
        np.any(x != y) for x, y in zip(before, model.get_weights(), strict=True)
    ]
    assert np.mean(changed) > 0.5
    assert keras.Model(model.inputs, model.outputs[0]).output_shape[-1] == 8


@pytest.mark.full
def test_attentions_are_compared_and_kept(tmp_path):
    toy = "--words", "200", "--output", "here", "--rows"
    names = "none", "bahdanau", "hard, REINFORCE", "hard, summed, order 1"
    run(*toy, names[0], program=ATTENTIONS, folder=tmp_path)
    printed = run(*toy, *names, program=ATTENTIONS, folder=tmp_path).stdout
    for name in names:
        assert printed.count(f"| {name} | 1 |") == 1 + (name != "none")
    kept = (tmp_path / "here" / "attentions.jsonl").read_text().splitlines()
    assert [json.loads(x)["attention"] for x in kept] == [*names]


@pytest.mark.full
def test_beams_and_samples_are_compared(tmp_path):
    toy = "--epochs", "1", "--units", "16", "--size", "500"
    few = "--sentences", "600"
    run(*toy, *few, program=TRANSLATE, folder=tmp_path)
    saved = "--translator", "build/translate/translator"
    printed = run(*saved, "--sentences", "9", program=BEAMS, folder=tmp_path)
    rows = [x for x in printed.stdout.split("\n\n")[-2].split("\n")]
    assert rows[0].startswith("| beams | length penalty | BLEU |")
    assert len(rows) == 2 + 1 + 16
    printed = run(*saved, "--sentences", "3", program=RISK, folder=tmp_path)
    rows = printed.stdout.split("\n\n")[-2].split("\n")
    head = "| samples | candidates | by | BLEU | chrF | seconds |"
    assert rows[0] == head and len(rows) == 2 + 1 + 6


def test_a_trial_s_models_are_not_those_of_the_whole_run(tmp_path, monkeypatch):
    students, folders = load(STUDENTS), []
    distill = Mock()

    def measure(task, make):
        make()
        return {}

    monkeypatch.setitem(students.TASKS, "words", Mock())
    monkeypatch.setattr(students, "fit", lambda *x: folders.append(x[-1]))
    monkeypatch.setattr(students, "measure", measure)
    monkeypatch.setattr(students, "mean_of", Mock())
    monkeypatch.setattr(students, "translator_of", Mock())
    monkeypatch.setattr(students.keras_attn, "distill", distill)

    def used(*asked):
        folders.clear()
        students.main([*asked, "--teachers", "1", "--output", str(tmp_path)])
        return {*folders, distill.call_args.args[-1]}

    trial, whole = used("--units", "16"), used()
    assert len(trial) == 4 and not trial & whole
    assert used("--units", "16") <= trial  # its rows are there
    assert not used("--seed", "2") & whole


@pytest.mark.full
def test_means_ensembles_and_students_are_compared(tmp_path):
    toy = "--units", "16", "--epochs", "2", "--number", "900"
    asked = *toy, "--task", "words", "--teachers", "2"
    printed = run(*asked, program=STUDENTS, folder=tmp_path)
    rows = printed.stdout.split("\n\n")[-2].split("\n")
    assert rows[0].startswith("| model | parameters | words wrong, %, beam 1 |")
    names = [x.split(" | ")[0].removeprefix("| ") for x in rows[2:]]
    mean = "mean of its last 5 epochs"
    assert names == [
        "large, seed 1",
        f"large, seed 1, {mean}",
        "large, seed 2",
        f"large, seed 2, {mean}",
        "ensemble of 2",
        "small, by what the people wrote",
        f"small, by what the people wrote, {mean}",
        "small, by what the ensemble wrote",
        f"small, by what the ensemble wrote, {mean}",
    ]
    again = run(*asked, program=STUDENTS, folder=tmp_path).stdout
    assert "Epoch" not in again
    assert again.split("\n\n")[-2].strip("\n").split("\n") == rows


@pytest.mark.full
@pytest.mark.parametrize("task", ["words", "sentences"])
def test_lengths_are_drawn(task, tmp_path):
    toy = "--lines", "600", "--epochs", "1", "--units", "16", "--size", "500"
    printed = run("--task", task, *toy, program=LENGTHS, folder=tmp_path).stdout
    assert "| without attention |" in printed
    picture = tmp_path / "build" / "results" / f"lengths-{task}.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("attends", [False, True])
def test_the_gradient_of_a_state_is_that_of_all_it_does(lengths, attends):
    """Held against differences of losses, one state and number at a time."""
    texts = LETTERS, PHONEMES
    model = lengths.build_model(texts, 4, attends)
    test = lengths.sentences.Pairs(["abcab"], ["AH B K"])
    task = lengths.TASKS["words"]._replace(distances=6)
    found = lengths.by_distance(model, texts, task, test, 4, attends)

    probed = lengths.build_model(texts, 4, attends, probed=True)
    probed.set_weights(model.get_weights())
    ids = LETTERS.ids(test.sources)
    target = PHONEMES.ids(test.targets, start=True)
    loss = keras_attn.SequenceCrossentropy()

    def losses(probes):
        many = [tf.repeat(x, len(probes), 0) for x in (ids, target)]
        logits = probed([many[0], many[1][:, :-1], tf.constant(probes)])
        return [
            float(loss(target[:, 1:], logits[i : i + 1]))
            for i in range(len(probes))
        ]

    step = 1e-2
    probes = np.eye(24, dtype="float32").reshape(24, 6, 4) * step
    slopes = (
        np.subtract(losses(probes), losses(-probes)) / (2 * step)
    ).reshape(6, 4)
    expected = np.linalg.norm(slopes, axis=-1)[::-1]
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=1e-5)
    unprobed = model([ids, target[:, :-1]])
    same = probed([ids, target[:, :-1], tf.zeros((1, 6, 4))])
    np.testing.assert_allclose(unprobed, same, atol=1e-6)


@pytest.fixture(scope="module")
def dates():
    return load(PROGRAM.with_name("dates.py"))


def test_dates_are_drawn_with_their_iso_form_and_none_twice(dates):
    learned, held_out = dates.draw(500, seed=1)
    assert len(learned) == 500 and len(held_out) == 1000
    assert not {x for _, x in learned} & {x for _, x in held_out}
    assert (learned, held_out) == dates.draw(500, seed=1)
    for line, date in learned:
        year, month, day = date.split("-")
        assert day.lstrip("0") in line and year[2:] in line


@pytest.mark.full
def test_dates_are_learned_exported_and_served(tmp_path):
    program, toy = PROGRAM.with_name("dates.py"), ("--days", "300")
    small = "--epochs", "1", "--units", "16", "--output", "here"
    printed = run(*toy, *small, program=program, folder=tmp_path).stdout
    assert "Of 1000 dates held out, " in printed
    # It has learned little, and yet writes nothing but dates.
    answers = re.findall(r"^  .{35} (\S+)(?: \(wanted|$)", printed, re.M)
    assert len(answers) == 6 and all(map(datetime.date.fromisoformat, answers))
    assert (tmp_path / "here/models/dates/1/saved_model.pb").exists()
    picture = tmp_path / "here" / "attention.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
