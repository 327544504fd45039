"""The programs of the classic experiments, at toy size."""

import json
import re
import sysconfig

import numpy as np
import pytest
from support.programs import ENVIRONMENT
from support.programs import PROGRAM
from support.programs import ROOT
from support.programs import load

DATES = PROGRAM.with_name("dates.py")
LONGER = PROGRAM.with_name("longer.py")
NAMING = PROGRAM.with_name("naming.py")
READING = PROGRAM.with_name("reading.py")
LANGUAGE_MODEL = PROGRAM.with_name("language_model.py")
# Some emoji of Noto Color Emoji, under the SIL Open Font License 1.1.
FONT = ROOT / "tests/fixtures/emoji.ttf"


@pytest.fixture(scope="module")
def naming():
    return load(NAMING)


@pytest.fixture(scope="module")
def reading():
    return load(READING)


@pytest.fixture(scope="module")
def language_model():
    return load(LANGUAGE_MODEL)


@pytest.fixture
def server(monkeypatch):
    """Lets a program in this process start a server of this checkout."""
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    monkeypatch.syspath_prepend(ROOT / "serving")


@pytest.fixture(scope="module")
def named(naming):
    return naming.emojis.draw(FONT, 32)


@pytest.mark.parametrize(
    "program", [DATES, LONGER, NAMING, READING, LANGUAGE_MODEL]
)
def test_a_program_is_read_in_one_go(program):
    assert len(program.read_text().splitlines()) <= 240


def read_rows(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


# Dates, and numbers longer than any in training


@pytest.mark.full
def test_dates_are_read_served_and_drawn(server, capfd, tmp_path):
    dates = load(DATES)
    learned, held_out = dates.draw(50, seed=1)
    assert len(learned) == 50 and len(held_out) == 1000
    assert not {x for _, x in learned} & {x for _, x in held_out}
    dates.main(
        ["--days", "64", "--epochs", "1", "--units", "8"]
        + ["--output", str(tmp_path)]
    )
    printed = capfd.readouterr().out
    assert "Of 1000 dates held out, " in printed and "(wanted: " in printed
    assert (tmp_path / "attention.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.full
def test_longer_numbers_are_asked_than_learned(tmp_path):
    longer = load(LONGER)
    assert longer.say("407") == "four zero seven"
    assert {*map(len, longer.draw(200, longer.LEARNED, 1))} == {*range(1, 11)}
    arguments = ["--numbers", "64", "--epochs", "1", "--units", "8"]
    arguments += ["--rows", "local-m", "--output", str(tmp_path)]
    longer.main(arguments)
    (row,) = read_rows(tmp_path / "longer.jsonl")
    assert row["attention"] == "local-m"
    assert re.fullmatch(r"\d+ %", row["30 digits"])
    assert (tmp_path / "longer.png").read_bytes()[:4] == b"\x89PNG"


# Pictures and their names


def test_emoji_are_drawn_in_colour_on_white(named):
    assert named.pictures.shape == (len(named.names), 32, 32, 3)
    assert named.pictures.dtype == np.uint8
    assert (named.pictures[:, 0, 0] == 255).all()
    nose = named.pictures[named.names.index("nose")]
    assert 0.2 < (nose < 250).any(axis=-1).mean() < 0.9
    tones = [
        named.pictures[named.names.index(f"man {tone} skin tone")]
        for tone in ("light", "medium", "dark")
    ]
    light, medium, dark = (x[12:20, 12:20].mean() for x in tones)
    assert light > medium > dark


def test_people_are_drawn_whom_the_font_has_as_one_glyph(named):
    assert {"man cook dark skin tone", "woman", "nose"} <= {*named.names}
    assert "watch" not in named.names  # in the font, but without skin tones
    assert "man astronaut" not in named.names
    assert len({x.tobytes() for x in named.pictures}) == len(named.names)


def test_the_parts_of_what_is_held_out_are_learned(naming, named):
    emojis = naming.emojis
    split = emojis.split(named, tones=5, people=2, seed=1)
    learned = {*split.learned.names}
    words = {word for name in learned for word in name.split()}
    sizes = {kind: len(x.names) for kind, x in split.held_out.items()}
    assert sizes == {"new tone": 5, "new person": 8}
    for kind, test in split.held_out.items():
        assert not learned & {*test.names}
        for name, character in zip(test.names, test.characters, strict=True):
            assert words.issuperset(name.split())
            assert named.characters[named.names.index(name)] == character
            base = emojis.TONE.sub("", name)
            person, _, activity = base.partition(" ")
            other = f"{emojis.OTHER_PERSON.get(person)} {activity}"
            bases = {emojis.TONE.sub("", x) for x in learned}
            assert (base in bases) == (kind == "new tone")
            assert kind == "new tone" or other in bases
    both = split.learned.names + [
        name for test in split.held_out.values() for name in test.names
    ]
    assert sorted(both) == sorted(named.names)


@pytest.mark.full
def test_pictures_are_named_served_and_drawn(naming, server, capfd, tmp_path):
    naming.main(
        ["--font", str(FONT), "--epochs", "1", "--units", "16"]
        + ["--rows", "hard", "--output", str(tmp_path)]
    )
    (row,) = read_rows(tmp_path / "naming.jsonl")
    assert row["attention"] == "hard"
    assert re.fullmatch(r"\d+ %", row["new tone: names wrong"])
    assert (tmp_path / "attention.png").read_bytes()[:4] == b"\x89PNG"
    assert "(wanted: " in capfd.readouterr().out


def test_an_export_reads_a_png_of_any_size(naming, named):
    large = naming.emojis.draw(FONT, 128).pictures[0]
    namer = naming.Namer.__new__(naming.Namer)
    read = namer._read(naming.png(large)).numpy()
    drawn = naming.emojis.draw(FONT, naming.SIZE).pictures[0]
    assert read.shape == drawn.shape and read.dtype == drawn.dtype
    assert np.abs(read.astype(int) - drawn).mean() < 3
    same = namer._read(naming.png(drawn)).numpy()
    np.testing.assert_array_equal(same, drawn)


# Lines of digits


def test_lines_are_digits_glued_together(reading):
    lines = reading.draw(50, 2, 4, held_out=False, seed=1)
    for columns, digits, places in zip(*lines, strict=True):
        assert columns.shape == (len(places), 9)
        assert (columns[:, 8] == 1).all()
        assert 0 <= columns.min() and columns.max() == 1
        assert 2 <= len(digits) <= 4
        assert places.tolist() == sorted(places)
        assert {*places} == {*range(len(digits))}


def test_no_digit_held_out_is_learned(reading):
    def digits(held_out):
        lines = reading.draw(300, 1, 1, held_out, seed=1)
        return {
            columns[columns[:, :8].any(axis=1)].tobytes()
            for columns in lines.columns
        }

    assert len(digits(True)) > 100 and not digits(True) & digits(False)


def test_looks_tells_where_the_attention_was(reading):
    places = np.array([0, 0, 1, 1, 2])
    on_first, moved = reading.looks(np.eye(5)[[1, 2, 4]], places)
    assert on_first.tolist() == [True, True, True]
    assert moved.tolist() == [True, True]
    on_first, moved = reading.looks(np.eye(5)[[2, 2, 0]], places)
    assert on_first.tolist() == [False, True, False]
    assert moved.tolist() == [False, False]
    written_less, moved = reading.looks(np.eye(5)[[0]], places)
    assert written_less.tolist() == [True, False, False] and not len(moved)
    written_more, _ = reading.looks(np.eye(5)[[0, 2, 4, 4]], places)
    assert written_more.tolist() == [True, True, True]


@pytest.mark.full
def test_lines_are_read_served_and_drawn(reading, server, capfd, tmp_path):
    reading.main(
        ["--lines", "64", "--tests", "4", "--epochs", "1", "--units", "8"]
        + ["--rows", "location-sensitive", "--output", str(tmp_path)]
    )
    (row,) = read_rows(tmp_path / "reading.jsonl")
    assert {"6 digits", "on the digit, 20", "moved on, 10"} <= row.keys()
    assert (tmp_path / "attention.png").read_bytes()[:4] == b"\x89PNG"
    assert "(wanted: " in capfd.readouterr().out


# Python code


def test_code_is_split_by_pythons_tokenizer(language_model, tmp_path):
    file = tmp_path / "some.py"
    file.write_text('def f(x):  # why\n    """What."""\n\n    return x + 1.5\n')
    assert language_model.tokens_of(file) == (
        "def f ( x ) : ⏎ STRING ⏎ return x + NUMBER ⏎".split()
    )


def test_a_tenth_of_the_files_is_held_out(language_model):
    learned, held_out = language_model.read(20, seed=1)
    assert learned and held_out and not {*learned} & {*held_out}
    for window in learned + held_out:
        assert len(window.split()) == language_model.WINDOW
    again = language_model.read(20, seed=1)
    assert (learned, held_out) == again
    assert "site-packages" not in sysconfig.get_path("stdlib")


def test_the_past_does_not_show_the_future(language_model):
    text = language_model.keras_attn.Text("ab", split="characters")
    model, look = language_model.build(text, 8, attends=True)
    ids = np.array([[1, 4, 5, 4, 5]])
    changed = np.array([[1, 4, 5, 4, 4]])
    before, after = model(ids).numpy(), model(changed).numpy()
    np.testing.assert_allclose(before[:, :4], after[:, :4], atol=1e-6)
    assert np.abs(before[:, 4] - after[:, 4]).max() > 1e-4
    weights = look(ids).numpy()[0]
    assert np.allclose(np.triu(weights, 1), 0)


@pytest.mark.full
def test_both_models_are_measured_and_the_past_is_drawn(
    language_model, tmp_path
):
    language_model.main(
        ["--files", "12", "--tokens", "50", "--epochs", "1", "--units", "8"]
        + ["--output", str(tmp_path)]
    )
    none, own_past = read_rows(tmp_path / "language_model.jsonl")
    assert none["attention"] == "none"
    for row in none, own_past:
        each = row["names seen before"], row["all others"]
        assert min(each) < row["all tokens"] < max(each)
    assert (tmp_path / "past.png").read_bytes()[:4] == b"\x89PNG"
