"""Batches as files: made with TensorFlow, read without it.

Texts and `keras_attn.pairs` need TensorFlow. A machine that trains on JAX may
lack it, so another one writes the ids of all rows as NumPy arrays, beside the
texts and the options of the program.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any
from typing import NamedTuple

import keras
import numpy as np

import keras_attn
from common.batches import Batches
from common.batches import arrange
from common.batches import padding_share

_ABOUT = "prepared.json"
_PARTS = "train", "validation"
_NOT_KEPT = {"command", "output", "prepared", "models"}  # options


class Vocabulary(NamedTuple):
    """All that a model needs to know of a `Text`."""

    size: int


class Prepared(NamedTuple):
    """Batches that were read, and what belongs to them."""

    folder: Path
    options: dict[str, Any]
    vocabularies: list[Vocabulary]  # of the source and the target
    train: Batches
    validation: Batches

    def texts(self):
        """Returns the `Text` of the source and that of the target."""
        files = self.folder / "source.txt", self.folder / "target.txt"
        return [keras_attn.Text.load(file) for file in files]


def write(folder: Path, texts, parts, batch_size: int, options: dict):
    """Writes the batches of a program, its texts and its options.

    Args:
        folder: The folder, within that of `--output`. Files of the same names
            are replaced.
        texts: `Text` of the sources and that of the targets, both with
            padding of 0.
        parts: Two pairs of lists, sources and targets: to train on, and held
            out.
        batch_size: Number of rows per batch.
        options: Options of the program, by name. They become the defaults
            where the folder is given by `--prepared`.
    """
    require_tensorflow("prepare")
    folder.mkdir(parents=True, exist_ok=True)
    for text, name in zip(texts, ("source", "target"), strict=True):
        text.save(folder / f"{name}.txt")
    shapes = {}
    for part, lines in zip(_PARTS, parts, strict=True):
        arrays = arrange(*_ids(*lines, *texts), batch_size)
        np.savez_compressed(
            folder / f"{part}.npz",
            **{
                f"{side}-{length}": ids
                for length, both in arrays.items()
                for side, ids in zip(("source", "target"), both, strict=True)
            },
        )
        shapes[part] = {n: len(source) for n, (source, _) in arrays.items()}
        print(
            f"{len(lines[0]):,} rows for {part}, {batch_size} in a batch, "
            f"padded to {', '.join(map(str, arrays))} ids: "
            f"{padding_share(arrays):.0%} is padding."
        )
    about = {
        "batch_size": batch_size,
        "vocabulary_sizes": [text.size for text in texts],
        "rows_by_length": shapes,
        "options": {k: v for k, v in options.items() if k not in _NOT_KEPT},
    }
    written = json.dumps(about, indent=1, default=str) + "\n"
    (folder / _ABOUT).write_text(written, encoding="utf-8")
    given = "--prepared", str(folder), "--output", str(folder.parent)
    train = shlex.join([sys.argv[0], "train", *given])
    print(
        "To train on JAX, on this machine or on another one:\n"
        f"  KERAS_BACKEND=jax python {train}"
    )


def read(folder: Path, seed: int | None = None) -> Prepared:
    """Reads what `write` wrote; `seed` shuffles the rows to train on."""
    about, arrays = _about(folder), []
    for part in _PARTS:
        with np.load(folder / f"{part}.npz") as file:
            lengths = sorted({int(name.split("-")[1]) for name in file})
            arrays.append(
                {n: (file[f"source-{n}"], file[f"target-{n}"]) for n in lengths}
            )
    return Prepared(
        folder,
        about["options"],
        [Vocabulary(size) for size in about["vocabulary_sizes"]],
        Batches(arrays[0], about["batch_size"], seed),
        Batches(arrays[1], about["batch_size"]),
    )


def options_of(folder: Path) -> dict[str, Any]:
    """Returns the options that `prepare` was given."""
    return _about(folder)["options"]


def fit(model, data: Prepared, epochs: int, output: Path):
    """Trains a compiled model and saves it as `model.keras`.

    Started again after it was stopped, it goes on with the epoch that was not
    finished.
    """
    keras_attn.check(model, data.train[0])  # now, not after training
    print(
        f"Training on {keras.backend.backend()}, {len(data.train):,} batches, "
        f"{model.count_params():,} parameters."
    )
    model.fit(
        data.train,
        validation_data=data.validation,
        epochs=epochs,
        shuffle=False,  # `Batches` does that
        callbacks=[keras_attn.ResumeTraining(output / "backup", data.train)],
        verbose=2,
    )
    output.mkdir(parents=True, exist_ok=True)
    file = output / "model.keras"
    model.save(file)
    given = {"prepared": data.folder, "models": file, "output": output}
    score = [x for k, v in given.items() for x in (f"--{k}", str(v))]
    print(f"Saved as {file}. To go on where TensorFlow is:")
    print(f"  python {shlex.join([sys.argv[0], 'score', *score])}")


def load_models(files: list[Path] | None, output: Path):
    """Loads models that any backend trained, by default that of `fit`."""
    require_tensorflow("score")
    files = files or [output / "model.keras"]
    for file in files:
        if not file.exists():
            raise SystemExit(f"There is no {file}. Run `train --prepared DIR`.")
    return [keras.saving.load_model(file, compile=False) for file in files]


def require_tensorflow(command: str):
    """Ends the program if Keras runs on another backend."""
    if keras.backend.backend() != "tensorflow":
        raise SystemExit(
            f"`{command}` needs TensorFlow. Received: KERAS_BACKEND="
            f"{keras.backend.backend()}. Leave it out."
        )


def _ids(sources, targets, source_text, target_text):
    source = source_text.source_ids(sources).numpy()
    return source, target_text.ids(targets, start=True).numpy()


def _about(folder: Path) -> dict[str, Any]:
    file = folder / _ABOUT
    if not file.exists():
        raise SystemExit(
            f"There are no batches in {folder}. Run `prepare` first, where "
            "TensorFlow is, and give its folder by `--prepared`."
        )
    return json.loads(file.read_text(encoding="utf-8"))
