"""Writes the versions, each complete or not at all."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile
import warnings

from keras_attn.export.archive import Archive
from keras_attn.export.lengths import Measured
from keras_attn.export.lengths import open_axes
from keras_attn.export.lengths import warn_of_padding
from keras_attn.export.signatures import Signatures
from keras_attn.export.warm_up import write_warm_up
from keras_attn.export.weights import StoredWeights
from keras_attn.export.weights import require_stored
from keras_attn.keras_internals import layers_within


def export(
    translator,
    directory,
    version: int | None = None,
    signatures=(),
    jit_compile: bool = False,
    weights: str = "float32",
    lengths: bool | None = None,
) -> pathlib.Path:
    """Writes a version of a SavedModel.

    It is written under a temporary name and renamed when complete, so that a
    server polling the directory never loads half of it. Weights are stored
    once, vocabularies as assets. Unless asked for, nothing in it is compiled
    by XLA, which TF Serving has off, and recurrent layers run without cuDNN
    kernels, so that it loads on CPU and GPU alike, wherever it was exported.

    Args:
        translator: A `Translator`.
        directory: Where the versions are, `model_base_path` to a server.
        version: Number of the version. Defaults to the next one.
        signatures: Names of signatures beside the plain ones, or `"all"`.
        jit_compile: Whether XLA compiles the search.
        weights: How float32 matrices are stored: `"float32"`, `"bfloat16"`
            or `"int8"`. They are float32 again before they are used.
        lengths: Whether features of any size have an input `lengths` beside
            them, past which they are zero. `False` says that all are sent
            unpadded and of one size; left out, that brings a warning.

    Returns:
        The path of the version, `directory/version`.

    Raises:
        FileExistsError: If there is this version already.
        ValueError: If an argument cannot be, or does not fit the model.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    names = Signatures.names(signatures)
    require_stored(weights)
    _check_lengths(translator, lengths)
    if version is None:
        version = 1 + max(_versions(directory), default=0)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise ValueError(
            "`version` must be an integer, at least 0: TF Serving reads only "
            f"directories with such names. Received: version={version!r}"
        )
    path = directory / str(version)
    if path.exists():
        raise FileExistsError(
            f"There is a version {version} in {directory} already. Leave "
            "`version` out to write the next one."
        )
    # A name that is no number: servers leave it alone.
    unfinished = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{version}-unfinished-", dir=directory)
    )
    try:
        _write(translator, unfinished, names, jit_compile, weights, lengths)
        os.chmod(unfinished, 0o755)
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return path


def _check_lengths(translator, lengths):
    """Warns of features that a server may pad with something else."""
    sources = translator.pipeline.sources
    varies = not sources.reads_text and open_axes(sources.specs)
    if lengths and not varies:
        raise ValueError(
            "`lengths=True` is for features that may have any size, and this "
            "model "
            + (
                "reads text, of which an export knows the lengths itself."
                if sources.reads_text
                else f"reads {[tuple(x.shape) for x in sources.specs]}."
            )
            + " Received: lengths=True. Leave it out."
        )
    if lengths:
        warn_of_padding(
            translator.models, sources.specs, translator.pipeline.examples
        )
    if lengths is None and varies:
        warnings.warn(
            "This model reads features of any size. A server that joins the "
            "requests of several clients pads the shorter ones with copies "
            "of their first element, and would answer them wrongly without a "
            "word. `export(lengths=True)` adds an input of lengths, past "
            "which features are zero, for the model to mask. If all are sent "
            "with one size, or nothing is joined, pass `lengths=False`.",
            stacklevel=3,
        )


def _write(translator, directory, names, jit_compile, weights, lengths):
    archive = Archive()
    with tempfile.TemporaryDirectory() as assets:
        texts = {}
        for name in ("source_text", "target_text"):
            text = getattr(translator, name)
            if text is not None:
                file = pathlib.Path(assets, name.replace("_text", ".txt"))
                texts[name] = text.reading(file)
                archive.track_resources(texts[name].resources())
        changes = {"jit_compile": jit_compile}
        if weights != "float32":
            stored = StoredWeights(translator.models, weights)
            changes["scope"] = stored.scope
        pipeline = translator.pipeline.with_texts(**texts, **changes)
        if lengths:
            pipeline = dataclasses.replace(
                pipeline, sources=Measured(pipeline.sources)
            )
        signatures = Signatures(pipeline)
        with _without_cudnn(translator.models):
            for name in names:  # `step` after `encode`, whose outputs it takes
                function = signatures.function(name)
                archive.add(name, function, signatures.specs(name))
            archive.write(directory)
        write_warm_up(directory, archive.functions, signatures)


@contextlib.contextmanager
def _without_cudnn(models):
    """Keras chooses cuDNN when it traces, by the GPUs it sees there."""
    layers = [layer for model in models for layer in layers_within(model)]
    cells = [layer for layer in layers if hasattr(layer, "use_cudnn")]
    before = [layer.use_cudnn for layer in cells]
    try:
        for layer in cells:
            layer.use_cudnn = False
        yield
    finally:
        for layer, use_cudnn in zip(cells, before, strict=True):
            layer.use_cudnn = use_cudnn


def _versions(directory):
    return [
        int(x.name)
        for x in directory.iterdir()
        if x.name.isascii() and x.name.isdecimal()
    ]
