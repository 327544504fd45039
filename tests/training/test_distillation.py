"""`distill`: a teacher's targets over a corpus; `Distilled` reads them."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from support.toys import LINES
from support.toys import SOURCE
from support.toys import TARGET

import keras_attn
from keras_attn import Distilled
from keras_attn import Translation
from keras_attn import distill

CHUNK = 16  # sources in a call, with a batch size of 1
CORPUS = [f"line {i}" for i in range(3 * CHUNK + 5)]


def answer(source, count=2):
    """Returns a translation of some hypotheses, made of the source alone."""
    several = [
        Translation(
            text=f"{source.upper()} {i}",
            score=-len(source) / 3 - i,
            source_tokens=[],
            tokens=[],
            alignment=np.zeros((0, 0)),
            finished=True,
        )
        for i in range(count)
    ]
    object.__setattr__(several[0], "alternatives", several[1:])
    return several[0]


class Teacher:
    """Writes a source in capitals, and stops where a test wants it to."""

    def __init__(self, dies_at=None):
        self.dies_at, self.asked = dies_at, []

    def __call__(self, sources, batch_size):
        if self.dies_at in sources:
            raise KeyboardInterrupt
        self.asked.append(list(sources))
        return [answer(x) for x in sources]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "distilled.jsonl"


def test_a_line_has_a_source_and_what_the_teacher_wrote(path):
    found = distill(Teacher(), ["é\u2028", "b"], path, num_best=2)
    lines = path.read_bytes().split(b"\n")
    assert json.loads(lines[0]) == {
        "source": "é\u2028",
        "targets": ["É\u2028 0", "É\u2028 1"],
        "scores": [-0.6666667, -1.6666666],  # as float32 has them
        "finished": [True, True],
        "truncated": False,
        "unknown": 0,
        "empty": False,
    }
    assert lines[2] == b"" and "é" in lines[0].decode()
    assert found.path == path and len(found) == 2
    assert [x.source for x in found] == ["é\u2028", "b"]


def test_one_target_is_the_default(path):
    found = distill(Teacher(), CORPUS, path)
    assert found.n_best() == found.best()
    assert found.best() == (CORPUS, [f"{x.upper()} 0" for x in CORPUS])


def test_the_teacher_is_asked_for_some_batches_at_a_time(path):
    teacher = Teacher()
    distill(teacher, CORPUS, path, batch_size=1)
    sizes = [len(x) for x in teacher.asked]
    assert sizes == [CHUNK, CHUNK, CHUNK, 5]


def test_sources_are_read_only_when_they_are_needed(path):
    read = []

    def sources():
        for source in CORPUS:
            read.append(source)
            yield source

    with pytest.raises(KeyboardInterrupt):
        distill(Teacher(dies_at=CORPUS[CHUNK]), sources(), path, batch_size=1)
    assert len(read) == 2 * CHUNK
    assert len(Distilled(path)) == CHUNK


def test_all_kinds_of_sources_give_the_same(tmp_path):
    text = tmp_path / "corpus.txt"
    text.write_bytes(b"one\r\ntwo\n\nf\xc3\xbcnf")
    lines = ["one", "two", "", "fünf"]
    kinds = [
        lines,
        tuple(lines),
        iter(lines),
        np.array(lines),
        [x.encode() for x in lines],
        tf.data.Dataset.from_tensor_slices(lines),
        tf.data.TextLineDataset(str(text)),
        text,
        str(text),
    ]
    for number, sources in enumerate(kinds):
        found = distill(Teacher(), sources, tmp_path / f"{number}.jsonl")
        assert [x.source for x in found] == lines


@pytest.mark.parametrize(
    "left",
    [0, 1, 30, 200, 1.0, 1.2, 2.5, -40, -1, None],
    ids=lambda x: f"{x} chunks" if isinstance(x, float) else str(x),
)
def test_a_run_that_was_cut_off_ends_as_one_without_a_break(left, path):
    """`left` is what is left of the file: bytes, or chunks."""
    distill(Teacher(), CORPUS, path, num_best=2, batch_size=1)
    whole = path.read_bytes()
    if isinstance(left, float):
        lines = whole.splitlines(keepends=True)
        left = sum(map(len, lines[: int(left * CHUNK)]))
    path.write_bytes(whole[:left])
    teacher = Teacher()
    distill(teacher, iter(CORPUS), path, num_best=2, batch_size=1)
    assert path.read_bytes() == whole
    begun = whole[:left].count(b"\n")
    # A few to see whether it is the same teacher, and the chunks left.
    tried = [CORPUS[begun - min(8, begun) : begun]] if begun else []
    kept = begun // CHUNK * CHUNK if begun < len(CORPUS) else begun
    chunks = [CORPUS[i : i + CHUNK] for i in range(kept, len(CORPUS), CHUNK)]
    assert teacher.asked == tried + chunks


def test_a_corpus_may_grow(path):
    distill(Teacher(), CORPUS[:20], path, batch_size=1)
    distill(Teacher(), CORPUS, path, batch_size=1)
    assert [x.source for x in Distilled(path)] == CORPUS


def test_a_file_of_other_sources_or_another_teacher_stays_as_it_is(path):
    distill(Teacher(), CORPUS, path)
    before = path.read_bytes()

    def longer(sources, batch_size):
        return [answer(x + " and more") for x in sources]

    for teacher, sources, options, message in (
        (Teacher(), CORPUS[1:], {}, "'line 1' as source 1, where the file has"),
        (Teacher(), CORPUS[:-1], {}, "no more as source 53, where the file"),
        (longer, CORPUS, {}, "a teacher that answers 'line 52' by"),
        (longer, [*CORPUS, "x"], {}, "a teacher that answers 'line 52' by"),
        (Teacher(), CORPUS, {"num_best": 2}, r"'LINE 52 1'\] with the scores"),
    ):
        with pytest.raises(ValueError, match=message):
            distill(teacher, sources, path, **options)
        assert path.read_bytes() == before


def test_a_tie_that_turns_out_otherwise_is_no_other_teacher(path):
    distill(Teacher(), CORPUS, path)
    lines = path.read_text().splitlines(keepends=True)
    lines[-1] = lines[-1].replace("LINE", "OTHER").replace("-2.333", "-2.334")
    path.write_text("".join(lines))
    distill(Teacher(), CORPUS, path)


def test_a_teacher_that_is_nearly_certain_is_the_same(path):
    def teacher(error):
        def write(sources, batch_size):
            certain = [answer(x, 1) for x in sources]
            for each in certain:
                object.__setattr__(each, "score", error)
            return certain

        return write

    distill(teacher(0.0), CORPUS[:20], path)
    assert len(distill(teacher(-9.5e-7), CORPUS, path)) == len(CORPUS)


@pytest.mark.parametrize(
    "content", ["a line\nand one", "a line", "{}\n", "[1]\n"]
)
def test_a_file_of_something_else_is_not_touched(content, path):
    path.write_text(content)
    with pytest.raises(ValueError, match="distill"):
        distill(Teacher(), CORPUS, path)
    assert path.read_text() == content


def test_progress_is_shown_where_it_is_wanted(path, capsys):
    distill(Teacher(), CORPUS[:20], path, verbose="auto", batch_size=1)
    assert not capsys.readouterr().out  # no terminal
    distill(Teacher(), CORPUS, path, verbose=1, batch_size=1)
    shown = capsys.readouterr().out
    assert "Goes on after 16 sources" in shown
    assert "37/37" in shown and "/source" in shown
    distill(Teacher(), iter(CORPUS), path.with_name("b"), verbose=1)
    assert "53/Unknown" in capsys.readouterr().out


def test_what_a_student_should_not_learn_is_left_out(path):
    rows = [
        ("whole", {}),
        ("cut source", {"truncated": True}),
        ("", {"empty": True}),
        ("cut target", {"finished": [False, False]}),
        ("one cut", {"finished": [True, False]}),
        ("unknown", {"unknown": 3}),
    ]
    with open(path, "w") as file:
        for source, fields in rows:
            line = {"source": source, "targets": ["a", "b"], "scores": [-1, -2]}
            print(json.dumps(line | fields), file=file)
    found = Distilled(path)
    assert len(found) == 6
    assert found.best() == (["whole", "one cut", "unknown"], ["a"] * 3)
    assert found.n_best() == (
        ["whole", "whole", "one cut", "unknown", "unknown"],
        ["a", "b", "a", "a", "b"],
    )
    assert found.n_best(1) == found.best()
    assert found.nearest(["b"] * 6)[1] == ["b", "a", "b"]


def test_the_target_nearest_to_a_reference(path):
    said = ["the cat sat on a mat", "a cat sat on the mat", "cats"]
    with open(path, "w") as file:
        for source in "abc":
            line = {"source": source, "targets": said, "scores": [-1, -2, -3]}
            print(json.dumps(line), file=file)
    found = Distilled(path)
    references = ["a cat sat on the rug", ["no", "the cat sat there"], None]
    assert found.nearest(references) == ([*"abc"], [said[1], said[0], said[0]])
    assert found.nearest(
        references, lambda target, reference: -len(target)
    ) == ([*"abc"], [said[2], said[2], said[0]])
    for wrong, count in ((references[:2], 2), (references + ["x", "y"], 5)):
        with pytest.raises(ValueError, match=f"{count} references for the 3"):
            found.nearest(iter(wrong))


def test_half_a_line_is_passed_over_and_a_bad_one_is_named(path):
    distill(Teacher(), CORPUS[:3], path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert len(Distilled(path)) == 2
    path.write_bytes(whole.replace(b'"source": "line 1"', b'"text": "line 1"'))
    with pytest.raises(ValueError, match="line 2 of .*no source, targets"):
        Distilled(path).best()
    for name, message in (
        ("scores", "a score for each target"),
        ("finished", "`finished` needs a value for each"),
    ):
        wrong = re.sub(
            rb'"%b": \[.*?\]' % name.encode(),
            b'"%b": []' % name.encode(),
            whole,
        )
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=f"line 1 of .*{message}"):
            Distilled(path).best()
    with pytest.raises(ValueError, match="where there is none"):
        Distilled(path.with_name("none.jsonl"))


def test_wrong_arguments_are_refused(path, toys):
    model = toys["greedy"].model

    def mute(sources, batch_size):
        return sources

    def short(sources, batch_size):
        return [answer(x) for x in sources[1:]]

    features = np.zeros((2, 3))
    for teacher, sources, options, message in (
        (model, ["a"], {}, "The teacher must write text"),
        (None, ["a"], {}, "The teacher must write text"),
        (mute, ["a"], {}, "must return a `Translation` for each source"),
        (short, ["a", "b"], {}, "1 results for 2 sources"),
        (Teacher(), "a line", {}, "'a line', where there is no file"),
        (Teacher(), {"en": ["a"]}, {}, "must be lines of text"),
        (Teacher(), 3, {}, "must be lines of text"),
        (Teacher(), features, {}, r"sources\[0\]=array"),
        (Teacher(), ["a", None], {}, r"sources\[1\]=None"),
        (Teacher(), ["a"], {"num_best": 0}, "num_best=0"),
        (Teacher(), ["a"], {"batch_size": 0}, "batch_size=0"),
        (Teacher(), ["a"], {"seed": -1}, "seed=-1"),
        (Teacher(), ["a"], {"verbose": "yes"}, "verbose='yes'"),
        (toys["greedy"], ["a"], {"num_best": 2}, "num_hypotheses=1"),
    ):
        with pytest.raises(ValueError, match=message):
            distill(teacher, sources, path, **options)


def test_lone_surrogates_and_bad_bytes_are_kept_as_far_as_possible(path):
    lines = ["half \ud83d", b"bad \xff"]
    found = distill(Teacher(), lines, path)
    assert [x.source for x in found] == ["half \ud83d", "bad \ufffd"]
    path.read_bytes().decode("utf-8")
    distill(Teacher(), lines, path)


@pytest.mark.full
@pytest.mark.parametrize("name", ["ensemble", "sampling", "pre", "greedy"])
def test_a_translator_s_hypotheses_are_written(name, toys, path):
    teacher = toys[name]
    count = teacher.search.num_hypotheses
    corpus = [f"{x}{y}" for x in LINES for y in LINES][:40]
    distill(teacher, corpus, path, num_best=count, batch_size=2)
    if name != "sampling":
        expected = teacher(corpus)
        for found, row in zip(Distilled(path), expected, strict=True):
            several = [row, *row.alternatives]
            assert found.targets == [x.text for x in several]
            assert found.finished == [x.finished for x in several]
            np.testing.assert_allclose(
                found.scores, [x.score for x in several], rtol=1e-4
            )
            assert found[4:] == (row.truncated, row.unknown, row.empty)
    whole = path.read_bytes()
    path.write_bytes(whole[: 2 * len(whole) // 3])
    distill(teacher, iter(corpus), path, num_best=count, batch_size=2)
    assert path.read_bytes() == whole


@pytest.mark.full
def test_another_seed_draws_others(toys, path):
    corpus = LINES[2:]
    first = distill(toys["sampling"], corpus, path)
    second = distill(toys["sampling"], corpus, path.with_name("b"), seed=1)
    assert first.best() != second.best()


@pytest.mark.full
def test_pairs_makes_batches_of_what_the_teacher_wrote(toys, path):
    found = distill(toys["ensemble"], ["abc", "dead", "bad"], path)
    sources, targets = found.best()
    data = keras_attn.pairs(
        sources, targets, SOURCE, TARGET, shuffle=False, buckets=1
    )
    (_, _), target_out = next(iter(data))
    assert [x.decode() for x in TARGET.strings(target_out).numpy()] == targets


def test_answers_of_an_export_are_written_as_targets(tmp_path):
    best = {"source": "a\u2028b", "text": "A", "score": -0.5, "truncated": 1}
    several = {
        "id": 1,
        "source": "é",
        "texts": np.array(["E", "F", ""], object),
        "scores": np.array([-1.0, -2.0, -np.inf], "float32"),
        "empty": 0,
    }
    file = tmp_path / "distilled.jsonl"
    found = keras_attn.Distilled.write(file, iter([best, several]))
    assert [x.source for x in found] == [best["source"], "é"]
    assert [x.finished for x in found] == [None, None]
    assert [x.truncated for x in found] == [True, False]
    assert found.n_best() == (["é", "é"], ["E", "F"])
    assert [*tmp_path.iterdir()] == [file]
    best["finished"], several["finished"] = 0, np.array([1, 0, 0])
    found = keras_attn.Distilled.write(file, [best, several])
    assert [x.finished for x in found] == [[False], [True, False]]
    assert found.n_best() == (["é"], ["E"])
