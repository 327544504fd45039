"""A corpus through `examples/spark.py`, beside one process without Spark.

    python tests/benchmarks/corpus.py            # 5 to 15 minutes
    python tests/benchmarks/corpus.py --smoke    # a minute

Answers 100,000 words of the CMU Pronouncing Dictionary by an export of a net
of W2's sizes with random weights, so that each is decoded to the maximum
length. First in one process, sorted and batched alike, with one thread and
with two; then by one worker and by two; then by two of which one is killed.
All must give the same texts. Prints a table of texts a second. Needs the extra
`spark`, and Java.
"""

import argparse
import importlib.util
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
BATCH = 64
SIGNATURE = "serving_default"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def export(folder, name):
    """Exports the net. In a process of its own, as it takes memory."""
    import workloads
    from peers import ours

    ours.export(workloads.WORKLOADS[name], folder)


def write_words(file, count):
    """Writes words of the dictionary, each letter a token of the net."""
    words = load(EXAMPLES / "common" / "cmudict.py").read()
    words = random.Random(1).sample(sorted(words), count)
    letters = "abcdefghijklmnopqrstuvwxyz'"
    lines = [" ".join(f"w{letters.index(x)}" for x in word) for word in words]
    file.write_text("\n".join(lines) + "\n")
    return lines


def alone(version, lines, threads):
    """Runs the SavedModel without Spark; returns texts and seconds."""
    predict = load(EXAMPLES / "spark.py").load_model(
        version, SIGNATURE, threads
    )
    started = time.monotonic()
    order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    texts = [""] * len(lines)
    for first in range(0, len(order), BATCH):
        rows = order[first : first + BATCH]
        found = predict([lines[i] for i in rows])["text"]
        for row, text in zip(rows, found, strict=True):
            texts[row] = text
    return texts, time.monotonic() - started


def with_spark(folders, workers, part_size, kill_after=None):
    """Runs the example; returns its texts, and the seconds of its parts."""
    import pandas

    command = [sys.executable, EXAMPLES / "spark.py", *folders]
    command += ["--workers", workers, "--part-size", part_size]
    command += ["--batch-size", BATCH]
    log = folders[-1].with_suffix(".log")
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as driver,
    ):
        seconds = 0.0
        for line in driver.stdout:
            if found := re.search(r"texts in ([\d.]+) s", line):
                seconds += float(found[1])
            if kill_after and line.startswith(f"part {kill_after} "):
                time.sleep(0.3 * seconds / kill_after)  # amid the next part
                os.kill(busiest_worker(driver.pid), signal.SIGKILL)
    assert driver.returncode == 0, log.read_text()
    if kill_after:
        assert "exited unexpectedly" in log.read_text()
    table = pandas.read_parquet(folders[-1] / "answers").sort_values("id")
    assert table["id"].tolist() == list(range(len(table)))
    return table["text"].tolist(), seconds


def busiest_worker(driver):
    """Returns the Python worker that used most CPU time of late."""
    before = ticks_of_workers(driver)
    time.sleep(0.5)
    after = ticks_of_workers(driver)
    return max(before.keys() & after, key=lambda x: after[x] - before[x])


def ticks_of_workers(driver):
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            line = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        stats[int(folder.name)] = int(fields[1]), int(fields[11]), line
    forked = {  # workers are forks of a daemon
        pid: ticks
        for pid, (parent, ticks, line) in stats.items()
        if "pyspark.daemon" in line and "pyspark.daemon" in stats[parent][2]
    }
    return {x: y for x, y in forked.items() if driver in ancestors(x, stats)}


def ancestors(pid, stats):
    while pid in stats:
        pid = stats[pid][0]
        yield pid


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--workload", default="W2")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.texts = 3000
    part_size = args.texts // 5
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        models, file = Path(folder, "models"), Path(folder, "words.txt")
        lines = write_words(file, args.texts)
        with spawn.Pool(1) as pool:
            pool.apply(export, (models, args.workload))
        version = str(models / "1")
        expected = None

        def add(name, texts, seconds):
            nonlocal expected
            expected = expected or texts
            same = sum(map(str.__eq__, texts, expected))
            total = time.monotonic() - started
            rate = len(texts) / seconds
            print(f"| {name} | {rate:.0f} | {total:.0f} | {same} |", flush=True)

        print("| | texts/s | s in all | same texts |\n|---|---|---|---|")
        for threads in 1, 2:
            started = time.monotonic()
            with spawn.Pool(1) as pool:
                found = pool.apply(alone, (version, lines, threads))
            add(f"one process, threads: {threads}", *found)
        for workers, kill in (1, None), (2, None), (2, 2):
            started = time.monotonic()
            output = Path(folder, f"output-{workers}-{kill}")
            found = with_spark((models, file, output), workers, part_size, kill)
            killed = ", one killed midway" if kill else ""
            add(f"Spark, workers: {workers}{killed}", *found)


if __name__ == "__main__":
    main()
