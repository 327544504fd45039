"""`export`: writes a version of a SavedModel, complete or not at all."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile
import warnings
from collections.abc import Mapping

from keras_attn import arguments
from keras_attn.export.archive import Archive
from keras_attn.export.lengths import Measured
from keras_attn.export.lengths import open_axes
from keras_attn.export.lengths import warn_of_padding
from keras_attn.export.signatures import Signatures
from keras_attn.export.warm_up import write_warm_up
from keras_attn.export.weights import StoredWeights
from keras_attn.export.weights import require_stored
from keras_attn.keras_internals import layers_within
from keras_attn.text import files_of_sources


def export(
    translator,
    directory,
    version: int | None = None,
    signatures=(),
    jit_compile: bool = False,
    weights: str = "float32",
    lengths: bool | None = None,
    buckets: int | None = None,
) -> pathlib.Path:
    """Writes a version of a SavedModel.

    The version is written under a temporary name and renamed when complete,
    so that a server polling the directory never loads half of it. Weights are
    stored once, vocabularies as assets. By default XLA compiles nothing, since
    TF Serving has it switched off. Recurrent layers run without cuDNN
    kernels, so that the export loads on CPU and GPU, wherever it was written.

    Args:
        translator: A `Translator`.
        directory: Directory of the versions, a server's `model_base_path`.
        version: Number of the version. Defaults to the next one.
        signatures: Names of signatures beside the plain ones, or `"all"`.
        jit_compile: Whether XLA compiles the search.
        weights: How float32 matrices are stored: `"float32"`, `"bfloat16"`
            or `"int8"`. They are float32 again before they are used.
        lengths: Whether features of any size get an additional input
            `lengths`; the export sets features past these to zero. Pass
            `False` if all requests are unpadded and of one size. The default,
            `None`, means the same but warns.
        buckets: Most buckets into which a batch of texts is parted by length.
            They are decoded one after another, each padded to its own longest
            text, which keeps a long text from slowing short ones down. 1
            decodes all together. Defaults to 4, and under XLA to 1, as XLA
            compiles a search for the sizes of each bucket.

    Returns:
        The path of the version, `directory/version`.

    Raises:
        FileExistsError: If this version exists already.
        ValueError: If an argument is invalid, or does not fit the model.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    names = Signatures.names(signatures)
    if jit_compile and translator.shortlist is not None:
        raise ValueError(
            "XLA cannot compile a search with a shortlist, whose number of "
            "tokens varies. Received: jit_compile=True. Leave it out."
        )
    require_stored(weights)
    _check_lengths(translator, lengths)
    _check_buckets(translator, buckets)
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
            "`version` must be the number of a new version. Received: "
            f"version={version}. There is a version {version} in {directory} "
            "already. Leave `version` out to write the next one."
        )
    # Servers ignore directories whose names are not numbers.
    unfinished = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{version}-unfinished-", dir=directory)
    )
    try:
        pipeline = translator.pipeline.for_export(jit_compile, buckets)
        _write(translator, unfinished, pipeline, names, weights, lengths)
        os.chmod(unfinished, 0o755)
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return path


def _check_lengths(translator, lengths):
    """Checks `lengths`, and warns of features that a server may pad."""
    sources = translator.pipeline.sources
    varies = not sources.reads_text and open_axes(sources.specs)
    if lengths and not varies:
        raise ValueError(
            "`lengths=True` needs a model of features that may have any size. "
            "Received: lengths=True and a model that reads "
            + (
                "text, whose lengths an export knows itself."
                if sources.reads_text
                else f"{[tuple(x.shape) for x in sources.specs]}."
            )
            + " Leave `lengths` out."
        )
    if lengths:
        warn_of_padding(
            translator.models, sources.specs, translator.pipeline.examples
        )
    if lengths is None and varies:
        warnings.warn(
            "This model reads features of any size. A server that joins the "
            "requests of several clients pads the shorter ones with copies "
            "of their first element, and would answer them wrongly, without "
            "an error. `export(lengths=True)` adds an input `lengths` and "
            "sets features past these to zero, for the model to mask. If all "
            "requests have one size, or the server does not join them, pass "
            "`lengths=False`.",
            stacklevel=3,
        )


def _check_buckets(translator, buckets):
    """Checks `buckets`, into which only sources of text can be parted."""
    if buckets is None:
        return
    arguments.positive(buckets, "buckets")
    if buckets > 1 and not translator.pipeline.sources.texts:
        raise ValueError(
            "`buckets` needs sources of text, which have different lengths. "
            f"Received: buckets={buckets} and a model that reads features. "
            "Leave it out."
        )


def _write(translator, directory, pipeline, names, weights, lengths):
    archive = Archive()
    with tempfile.TemporaryDirectory() as assets:
        files = {"target.txt": translator.target_text}
        files |= files_of_sources(translator.source_text)
        read = {}
        for name, text in files.items():
            read[name] = text.reading(pathlib.Path(assets, name))
            archive.track_resources(read[name].resources())
        texts: dict = {"target_text": read.pop("target.txt")}
        if isinstance(translator.source_text, Mapping):
            names_of = translator.source_text
            texts["source_text"] = dict(
                zip(names_of, read.values(), strict=True)
            )
        elif read:
            (texts["source_text"],) = read.values()
        if weights != "float32":
            stored = StoredWeights(translator.models, weights)
            pipeline = dataclasses.replace(pipeline, scope=stored.scope)
        pipeline = pipeline.with_texts(**texts)
        if lengths:
            pipeline = dataclasses.replace(
                pipeline, sources=Measured(pipeline.sources)
            )
        signatures = Signatures(pipeline)
        with _without_cudnn(translator.models):
            for name in names:  # `step` takes what `encode` returns
                function = signatures.function(name)
                archive.add(name, function, signatures.specs(name))
            archive.write(directory)
        write_warm_up(directory, archive.functions, signatures)


@contextlib.contextmanager
def _without_cudnn(models):
    """Traces without cuDNN, which Keras would choose if it sees a GPU."""
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
