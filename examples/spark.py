"""
Title: Answering a whole corpus with Spark
Date created: 2026/11/22
Description: Many texts through an export, by several workers, each text once.

A server answers requests. For a whole corpus there are engines that spread the
work over processes and machines, and repeat what failed. This program runs an
export on one of them, Apache Spark. It needs the SavedModel, TensorFlow and
tensorflow-text, but not keras_attn.

    python examples/spark.py build/pronounce/models/pronounce words.txt answers
    python examples/spark.py EXPORT texts.parquet answers --column en --key id

After any interruption, give the same command again: it resumes where it was.
The extra `spark` of keras-attn has all that it needs, except Java 17.
"""

import argparse
import fcntl
import json
import os
import shutil
import sys
import time
from functools import partial
from pathlib import Path

"""
## On a worker

Each worker is a process that loads the model once. Workers share the cores, so
each has a thread or a few of its own: more would wait for each other.

`align` costs a little more than `serving_default` and also tells which texts
were cut, and how many of their tokens were unknown. `nbest` has all hypotheses
of the search. All tell which texts are empty: what a model makes up for these
means nothing.
"""

FIELDS = {
    "serving_default": "text string, score float, empty int",
    "align": "text string, score float, finished int, truncated int, "
    "unknown int, empty int",
    "nbest": "texts array<string>, scores array<float>, finished array<int>, "
    "empty int",
}


def load_model(version: str, signature: str, threads: int):
    """Returns a function that takes texts and returns columns."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers the tokenizers' operations

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    model = tf.saved_model.load(version)
    names = [field.split()[0] for field in FIELDS[signature].split(", ")]

    decoded = np.frompyfunc(lambda x: x.decode("utf-8", "replace"), 1, 1)

    def column(values):
        if values.dtype == object:  # Spark wants str
            return decoded(values)
        return values.astype("int32") if values.dtype == bool else values

    def predict(texts):
        texts = tf.constant([*texts], tf.string)
        found = model.signatures[signature](text=texts)
        return {name: column(found[name].numpy()) for name in names}

    return predict


"""
## Parts

The texts are numbered once and cut into parts, which are kept as `texts` in
the output folder. Each part is a job of its own. When all of it is written,
Spark adds the file `_SUCCESS`; a part without it is begun again. So what a
driver or a machine leaves behind when it dies is never read.
"""


def newest(export: Path) -> str:
    """Returns the newest version in an export's folder, such as "3"."""
    found = [x.parent.name for x in export.glob("*/saved_model.pb")]
    versions = [x for x in found if x.isdigit()]
    if not versions:
        raise SystemExit(f"There is no version of an export in {export}.")
    return max(versions, key=int)


def begin(output: Path, settings: dict) -> str:
    """Returns the version to run: that of the run to go on with, if any."""
    file = output / "run.json"
    if file.exists():
        begun = json.loads(file.read_text())
        version = begun.pop("version")
        changed = [x for x in settings if settings[x] != begun.get(x)]
        if changed:
            raise SystemExit(
                f"{output} belongs to a run with another {changed[0]}: "
                f"{begun.get(changed[0])}, not {settings[changed[0]]}. "
                "Repeat that run, or take another folder."
            )
        return version
    version = newest(Path(settings["export"]))
    new = file.with_suffix(".new")
    new.write_text(json.dumps(settings | {"version": version}, indent=2))
    new.replace(file)  # all of it at once
    return version


def lock(output: Path):
    """Keeps a second driver out of the folder until this one has ended."""
    file = open(output / "lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise SystemExit(f"Another run is at work in {output}.") from None
    return file


def is_written(folder: Path) -> bool:
    return (folder / "_SUCCESS").exists()


def parts_of(texts: Path) -> list[int]:
    """Returns the numbers of the parts that have texts."""
    return sorted(int(x.name.removeprefix("part=")) for x in texts.glob("p*"))


"""
## On Spark

Spark numbers the texts in the order in which it reads them: that of the lines,
if the input is one text file. Unlike its own identifiers, these have no gaps.
"""


def read(spark, source: Path, column: str, key: str | None):
    """Returns a table of the texts, and of the keys to join answers by."""
    from pyspark.sql import functions as F

    path = f"file://{source}"
    if source.suffix == ".parquet":
        table = spark.read.parquet(path)
    elif source.suffix == ".csv":
        table = spark.read.csv(path, header=True, multiLine=True, escape='"')
    else:
        table, column = spark.read.text(path), "value"
    missing = {column, key or column} - {*table.columns}
    if missing:
        raise SystemExit(f"{source} has the columns {table.columns}.")
    text = F.coalesce(F.col(column).cast("string"), F.lit("")).alias("source")
    return table.select(text, *[F.col(x).alias("key") for x in [key] if x])


def cut(table, part_size: int, texts: Path):
    """Numbers the texts, and writes them in parts."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    numbered = table.rdd.zipWithIndex().map(lambda x: (*x[0], x[1]))
    schema = StructType(table.schema.fields).add("id", "long")
    part = F.floor(F.col("id") / part_size).alias("part")
    (
        table.sparkSession.createDataFrame(numbered, schema, verifySchema=False)
        .select("*", part)
        .write.partitionBy("part")
        .parquet(f"file://{texts}", mode="overwrite")
    )


"""
A part is dealt to several tasks by a hash of the number, so that each has
texts of all lengths and none has all the long ones. Within a task they are
sorted: a batch then has texts of about the same length, and computes little
padding. The longest come first, so that the last batches are short.
"""


def answer(table, predict, tasks: int, answers: Path):
    """Runs the model on a part, and writes its answers."""
    from pyspark.sql import functions as F

    (
        table.repartition(tasks, "id")
        .sortWithinPartitions(F.length("source").desc())
        .select("*", predict("source").alias("answer"))
        .select(*table.columns, "answer.*")
        .write.parquet(f"file://{answers}", mode="overwrite")
    )


def start_spark(options):
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise SystemExit("Spark needs Java 17 or later, and `java` in PATH.")
    from pyspark.sql import SparkSession

    # Spark's own choice is the first `python3` in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not options.master:  # then nobody else needs to reach it
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.appName("keras_attn")
        .master(options.master or f"local[{options.workers},4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executorEnv.TF_CPP_MIN_LOG_LEVEL", "3")
        .getOrCreate()
    )


def run(spark, options):
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import StructType

    output = options.output
    names = "export", "input", "column", "key", "signature", "part_size"
    settings = {name: str(getattr(options, name)) for name in names}
    changed = options.input.stat().st_mtime_ns
    version = begin(output, settings | {"time of change of the input": changed})
    texts, answers = output / "texts", output / "answers"
    if not is_written(texts):
        table = read(spark, options.input, options.column, options.key)
        cut(table, options.part_size, texts)

    predict = predict_batch_udf(
        partial(
            load_model,
            str(options.export / version),
            options.signature,
            options.threads,
        ),
        return_type=StructType.fromDDL(FIELDS[options.signature]),
        batch_size=options.batch_size,
    )
    parts = parts_of(texts)
    for part in parts:
        name, started = f"part={part}", time.monotonic()
        if is_written(answers / name):
            print(f"part {part + 1} of {len(parts)}: was there")
            continue
        table = spark.read.parquet(f"file://{texts / name}")
        answer(table, predict, 4 * options.workers, answers / name)
        seconds, count = time.monotonic() - started, table.count()
        print(
            f"part {part + 1} of {len(parts)}: {count} texts in {seconds:.1f} "
            f"s, {count / seconds:.0f} texts/s"
        )
    if not parts:
        print(f"{options.input} has no texts.")
        return
    require_each_once(spark, texts, answers)


def require_each_once(spark, texts: Path, answers: Path):
    from pyspark.sql import functions as F

    count = spark.read.parquet(f"file://{texts}").count()
    found = spark.read.parquet(f"file://{answers}")
    rows, ids = found.agg(F.count("*"), F.countDistinct("id")).first()
    print(f"{count} texts: {rows} answers in {answers}, for {ids} texts.")
    if not count == rows == ids:
        raise SystemExit("Answers are missing, or there more than once.")


"""
## The command line

By default a worker for each core of this machine, each with a thread. Spark
repeats a task up to four times, so a worker may die. `--master` takes other
machines, which must have all three folders in the same place.
"""


def parse(arguments: list[str] | None):
    parser = argparse.ArgumentParser(
        description="Runs an export on every text of a corpus, with Spark.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("export", type=Path, help="folder with the versions of an export")
    add("input", type=Path, help="text file, or *.parquet, or *.csv")
    add("output", type=Path, help="folder for the answers, as Parquet files")
    add("--column", default="text", help="column of the texts")
    add("--key", help="column to keep beside the answers, to join them by")
    add("--signature", choices=FIELDS, default="serving_default")
    add("--workers", type=int, default=os.cpu_count(), help="processes")
    add("--threads", type=int, default=1, help="threads of each worker")
    add("--batch-size", type=int, default=64, help="texts a call of the model")
    add("--part-size", type=int, default=20_000, help="texts a job")
    add("--master", help="Spark's master, in place of this machine")
    options = parser.parse_args(arguments)
    for name in "export", "input", "output":
        setattr(options, name, getattr(options, name).resolve())
    if not options.input.exists():
        parser.error(f"there is no {options.input}")
    return options


def main(arguments: list[str] | None = None):
    options = parse(arguments)
    sys.stdout.reconfigure(line_buffering=True)  # progress, through pipes too
    options.output.mkdir(parents=True, exist_ok=True)
    with lock(options.output):
        spark = start_spark(options)
        try:
            run(spark, options)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
