"""The example of a whole corpus: cut into parts, each text answered once.

Its quick tests need neither Spark nor Java. In the others a driver, and one of
its workers, are killed while the model runs: the export writes down which
process runs it and waits for the test. Nothing of keras_attn can be imported
by Spark or its workers.
"""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from support.programs import PROGRAM
from support.programs import load

import keras_attn

pytestmark = pytest.mark.full

SPARK = PROGRAM.with_name("spark.py")
SETTINGS = {"export": "", "input": "a.txt", "part_size": "40"}
PART = 40


@pytest.fixture(scope="module")
def spark():
    return load(SPARK)


@pytest.fixture
def settings(tmp_path):
    """Settings of a run with an export of three versions."""
    for name in "9", "10", "new":
        version = tmp_path / "models" / name
        version.mkdir(parents=True)
        (version / "saved_model.pb").touch()
    (tmp_path / "models" / "11").mkdir()  # not complete
    return SETTINGS | {"export": str(tmp_path / "models")}


def test_the_newest_version_runs(spark, settings, tmp_path):
    assert spark.begin(tmp_path, settings) == "10"


def test_without_a_version_it_says_so(spark, tmp_path):
    with pytest.raises(SystemExit, match="no version of an export in"):
        spark.newest(tmp_path)


def test_a_run_goes_on_with_the_version_that_it_began_with(
    spark, settings, tmp_path
):
    spark.begin(tmp_path, settings)
    (tmp_path / "models/11/saved_model.pb").touch()
    assert spark.begin(tmp_path, settings) == "10"
    assert spark.newest(tmp_path / "models") == "11"


def test_a_run_with_other_settings_is_refused(spark, settings, tmp_path):
    spark.begin(tmp_path, settings)
    before = (tmp_path / "run.json").read_bytes()
    message = "another part_size: 40, not 50. .* take another folder"
    with pytest.raises(SystemExit, match=message):
        spark.begin(tmp_path, settings | {"part_size": "50"})
    assert (tmp_path / "run.json").read_bytes() == before


def test_two_drivers_do_not_write_in_one_folder(spark, tmp_path):
    with spark.lock(tmp_path):
        with pytest.raises(SystemExit, match="Another run is at work"):
            spark.lock(tmp_path)
    spark.lock(tmp_path).close()


def test_parts_are_listed_in_order_and_written_when_spark_says_so(
    spark, tmp_path
):
    for name in "part=0", "part=2", "part=10":
        (tmp_path / name).mkdir()
    (tmp_path / "_SUCCESS").touch()
    assert spark.parts_of(tmp_path) == [0, 2, 10]
    assert spark.is_written(tmp_path)
    assert not spark.is_written(tmp_path / "part=0")


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("signature", ["serving_default", "align", "nbest"])
def test_a_worker_answers_as_the_translator_does(
    spark, toys, signature, tmp_path, monkeypatch
):
    for name in "intra", "inter":  # these are fixed in a running process
        monkeypatch.setattr(
            tf.config.threading,
            f"set_{name}_op_parallelism_threads",
            lambda threads: None,
        )
    translator = toys["pre"]
    version = str(translator.export(tmp_path))
    lines = ["abc", "", "x?", "dead"]
    found = spark.load_model(version, signature, 1)(np.array(lines, object))
    expected = translator(lines)
    finished = [int(row.finished) for row in expected]
    fields = [x.split() for x in spark.FIELDS[signature].split(", ")]
    assert list(found) == [name for name, _ in fields]
    if signature == "nbest":
        assert found["texts"][:, 0].tolist() == expected.text
        assert found["empty"].tolist() == [0, 1, 0, 0]
        assert found["finished"][:, 0].tolist() == finished
        return
    assert found["text"].tolist() == expected.text
    np.testing.assert_allclose(found["score"], expected.scores, rtol=1e-5)
    assert found["empty"].tolist() == [0, 1, 0, 0]
    if signature == "align":
        assert found["finished"].tolist() == finished
        assert found["unknown"].tolist() == [0, 0, 2, 0]
        assert found["truncated"].dtype == "int32"


def test_a_mistaken_command_is_refused(spark, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        spark.main([str(tmp_path), str(tmp_path / "no.txt"), str(tmp_path)])
    assert "there is no" in capsys.readouterr().err


class Waiting(tf.Module):
    """A translator that waits where a test wants it to.

    The text "wait NAME" makes it write the ids of its threads to NAME.threads
    in the folder, and then read NAME. If that is a pipe, it waits until
    someone writes.
    """

    def __init__(self, translator, folder):
        super().__init__()
        self.inner = translator.module()
        self.folder = str(folder)

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="text")]
    )
    def serve(self, text):
        names = tf.boolean_mask(
            text, tf.strings.regex_full_match(text, "wait .*")
        )
        read = tf.map_fn(self.wait, names)
        nothing = tf.strings.reduce_join(read)  # what it read is empty
        found = self.inner.decode(text + nothing)
        return {
            "text": found["texts"][:, 0],
            "score": found["scores"][:, 0],
            "empty": tf.equal(text, ""),
        }

    def wait(self, name):
        path = tf.strings.regex_replace(name, "wait ", self.folder + "/")
        threads = tf.io.matching_files("/proc/self/task/*")
        threads = tf.strings.reduce_join(threads, separator=" ")
        with tf.control_dependencies(
            [tf.io.write_file(path + ".threads", threads)]
        ):
            return tf.io.read_file(path)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of Spark and its workers, without our packages."""
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("needs Java 17 or later")
    folder = tmp_path_factory.mktemp("blocked")
    for name in "keras_attn", "keras_attn_serving":
        (folder / f"{name}.py").write_text("raise ImportError('blocked')")
    return os.environ | {
        "PYTHONPATH": str(folder),
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",  # starts sooner
    }


def command(*arguments):
    return [sys.executable, str(SPARK), *map(str, arguments)]


def answers_in(folder):
    pandas = pytest.importorskip("pandas")
    return pandas.read_parquet(folder / "answers").sort_values("id")


def wait_for(path, process):
    """Returns the number of the process that waits for the file `path`."""
    file = path.with_suffix(".threads")
    until = time.monotonic() + 180
    while not (file.exists() and file.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    found = min(int(x) for x in re.findall(r"\d+", file.read_text()))
    file.unlink()
    return found


def let_go(path):
    """Puts an empty file in the place of a pipe, and ends who waits at it."""
    if not path.is_fifo():
        return
    pipe = path.rename(path.with_suffix(".pipe"))
    path.touch()
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:  # nobody waits
        assert error.errno == errno.ENXIO


def stamps(folder):
    return {x: x.stat().st_mtime_ns for x in folder.glob("part=*/*")}


@pytest.mark.system
def test_each_text_is_answered_once_whoever_is_killed(
    environment, toys, tmp_path
):
    chance = random.Random(1)
    lines = [
        "".join(chance.choices("abcdeé ?", k=chance.randrange(12)))
        for _ in range(3 * PART)
    ]
    lines[3], lines[7] = "", "abcd" * 200
    lines[5], lines[2 * PART + 5] = "wait first", "wait second"
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n", "utf-8")
    first, second = tmp_path / "first", tmp_path / "second"
    for pipe in first, second:
        os.mkfifo(pipe)
    module = Waiting(toys["pre"], tmp_path)
    export = tmp_path / "models"
    tf.saved_model.save(module, str(export / "1"), signatures=module.serve)
    output = tmp_path / "output"
    run = command(export, tmp_path / "texts.txt", output, "--workers", 2)
    run += ["--part-size", str(PART), "--batch-size", "8"]

    workers = []
    with open(tmp_path / "log", "w") as log:
        driver = subprocess.Popen(run, env=environment, stdout=log, stderr=log)
    try:
        workers.append(wait_for(first, driver))
        os.kill(workers[0], signal.SIGKILL)
        workers.append(wait_for(first, driver))  # it is done again,
        assert workers[1] != workers[0]  # by another
        let_go(first)
        workers.append(wait_for(second, driver))
        driver.kill()
        driver.wait()
    finally:
        driver.kill()
        for pipe in first, second:
            let_go(pipe)
    log = (tmp_path / "log").read_text()
    assert "exited unexpectedly" in log
    assert re.findall(r"^part (\d) of 3: 40 texts", log, re.M) == ["1", "2"]

    written = stamps(output / "answers")
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for number in 1, 2:
        assert f"part {number} of 3: was there" in done.stdout
    assert "120 texts: 120 answers" in done.stdout
    after = stamps(output / "answers")
    finished = {x: y for x, y in after.items() if x.parent.name != "part=2"}
    assert finished.items() <= written.items()

    found = answers_in(output)
    expected = toys["pre"](lines)
    assert found["id"].tolist() == list(range(3 * PART))
    assert found["source"].tolist() == lines
    assert found["text"].tolist() == expected.text
    np.testing.assert_allclose(found["score"], expected.scores, rtol=1e-4)
    check_order(output / "answers", lines)


def check_order(answers, lines):
    """Every file has texts of all lengths, the longest first."""
    import pandas

    files = list(answers.glob("part=*/*.parquet"))
    assert len(files) > 6
    for file in files:
        lengths = pandas.read_parquet(file)["source"].str.len().tolist()
        assert lengths == sorted(lengths, reverse=True)


@pytest.mark.system
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_columns_are_answered_with_their_keys(
    form, environment, toys, tmp_path
):
    pandas = pytest.importorskip("pandas")
    lines = ["abc", "", None, "x?\nd", '"dead"']
    table = pandas.DataFrame({"en": lines, "key": [*"pqrst"]})
    file = tmp_path / f"texts.{form}"
    if form == "csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file)
    toys["pre"].export(tmp_path / "models")
    run = command(tmp_path / "models", file, tmp_path / "output")
    run += ["--workers", "1", "--column", "en", "--key", "key"]
    subprocess.run(
        [*run, "--signature", "align"], env=environment, check=True, timeout=300
    )
    found = answers_in(tmp_path / "output")
    lines[2] = ""
    expected = toys["pre"](lines)
    assert found["key"].tolist() == [*"pqrst"]
    assert found["source"].tolist() == lines
    assert found["text"].tolist() == expected.text
    assert found["unknown"].tolist() == expected.unknown
    assert found["truncated"].astype(bool).tolist() == expected.truncated


@pytest.mark.system
def test_a_student_s_targets_are_those_of_distill(environment, toys, tmp_path):
    lines = ["abc", "", "dead", "x?", "é"] * 10
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n", "utf-8")
    toys["pre"].export(tmp_path / "models")
    run = command(tmp_path / "models", tmp_path / "texts.txt", tmp_path / "out")
    run += ["--workers", "1", "--part-size", "20", "--signature", "nbest"]
    subprocess.run(run, env=environment, check=True, timeout=300)
    table = answers_in(tmp_path / "out")
    file = tmp_path / "spark.jsonl"
    found = list(keras_attn.Distilled.write(file, table.to_dict("records")))
    expected = keras_attn.distill(
        toys["pre"], lines, tmp_path / "own.jsonl", num_best=3
    )
    assert [x.source for x in found] == lines
    for one, other in zip(found, expected, strict=True):
        assert one.targets == other.targets and one.empty == other.empty
        assert one.finished == other.finished
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4)


@pytest.mark.system
def test_an_input_without_texts_is_no_error(environment, toys, tmp_path):
    (tmp_path / "texts.txt").touch()
    toys["pre"].export(tmp_path / "models")
    folders = tmp_path / "models", tmp_path / "texts.txt", tmp_path / "output"
    done = subprocess.run(
        command(*folders), env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "has no texts" in done.stdout
    assert json.loads((tmp_path / "output/run.json").read_text())["version"]
