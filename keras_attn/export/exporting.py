"""`export`: writes a version of a SavedModel, or of an ONNX model."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Mapping

from keras_attn import arguments
from keras_attn.backend import without_gradients
from keras_attn.caller import warn
from keras_attn.decoding.translator.sources import open_axes
from keras_attn.decoding.xla_sizes import XLASizes
from keras_attn.export.onnx import Onnx
from keras_attn.export.tf_saved_model.archive import Archive
from keras_attn.export.tf_saved_model.guards import OfLengths
from keras_attn.export.tf_saved_model.guards import OfSizes
from keras_attn.export.tf_saved_model.lengths import Measured
from keras_attn.export.tf_saved_model.lengths import longest_of
from keras_attn.export.tf_saved_model.lengths import warn_of_padding
from keras_attn.export.tf_saved_model.rows import MAX_ROWS
from keras_attn.export.tf_saved_model.signatures import STEPS
from keras_attn.export.tf_saved_model.signatures import WORDS
from keras_attn.export.tf_saved_model.signatures import Signatures
from keras_attn.export.tf_saved_model.steps import require_rules
from keras_attn.export.tf_saved_model.warm_up import MOST_SIZES
from keras_attn.export.tf_saved_model.warm_up import write_warm_up
from keras_attn.export.tf_saved_model.weights import StoredWeights
from keras_attn.export.tf_saved_model.weights import require_stored
from keras_attn.export.tracing import without_cudnn
from keras_attn.export.versions import write_version
from keras_attn.progress import Steps
from keras_attn.progress import is_shown
from keras_attn.text.files import files_of_sources

FORMATS = ("tf_saved_model", "onnx")


def export(
    translator,
    directory,
    version: int | None = None,
    signatures=(),
    jit_compile: bool | XLASizes | None = None,
    weights: str = "float32",
    lengths: bool | None = None,
    buckets: int | None = None,
    format: str = "tf_saved_model",
    max_rows: int | None = MAX_ROWS,
    max_source_length=None,
    verbose: str | int = "auto",
) -> pathlib.Path:
    """Writes a version of a SavedModel, or of an ONNX model.

    The version is written under a temporary name and renamed when complete,
    so a server that polls the directory never loads half of it. Weights are
    stored once, vocabularies as assets. By default XLA compiles nothing, since
    TF Serving has it switched off. Recurrent layers run without cuDNN
    kernels, so an export written on a machine with a GPU also runs on a CPU.

    An ONNX model has only the signature `ids`, and takes only the options
    `version` and `verbose`. `keras_attn.export.onnx` describes its files.

    Args:
        translator: A `Translator`.
        directory: Directory of the versions, a server's `model_base_path`.
        version: Number of the version. Defaults to the next one.
        signatures: Names of signatures in addition to `serving_default`,
            `nbest`, `align` and `ids`; or `"all"`, for all that this
            translator can have.
        jit_compile: Whether XLA compiles the search, or the `XLASizes` for
            which it does. `True` means the sizes of the translator if it has
            some, else the default ones. Requests are padded to these sizes,
            and larger ones run without XLA. The warm-up requests compile all
            sizes before a server answers. Defaults to `False`, with a warning
            if the translator itself compiles.
        weights: How float32 matrices are stored: `"float32"`, `"bfloat16"`
            or `"int8"`. They are float32 again before they are used.
        lengths: Whether a model whose features may have any size gets an
            additional input `lengths`. The export sets features past a row's
            length to zero. Pass `False` if all requests are unpadded and of
            one size. The default, `None`, is like `False` but warns.
        buckets: Most buckets into which a batch of texts is split by length.
            They are decoded one after another, each padded to its own longest
            text, so a long text does not slow short ones down. 1 decodes all
            together, as always with features. Defaults to 4.
        format: `"tf_saved_model"` or `"onnx"`.
        max_rows: Most rows of a request, 128 by default, or `None` for any
            number. A request with more rows is refused before it takes
            memory. A server that joins requests must not join more rows.
        max_source_length: Largest size of the axes of features that may have
            any size: an integer for all of them; or a dictionary from names
            of inputs to an integer, or to a list of integers, one for each
            such axis. A longer row is cut before anything is computed, and
            has an error. The default, `None`, sets no limit. Texts and ids
            are limited by their `Text`.
        verbose: Whether to print a line for each step: 0, 1, or `"auto"`, the
            default, which prints on a terminal.

    Returns:
        The path of the version, `directory/version`.

    Raises:
        FileExistsError: If this version exists already.
        ImportError: If packages for ONNX are not installed.
        ValueError: If an argument is invalid, or does not fit the model.
    """
    require_format(format)
    is_shown(verbose)  # refuses other values
    names = Signatures.names(signatures, _impossible(translator))
    if WORDS in names:
        translator.pipeline.require_word_times()
    if jit_compile is None and translator.jit_compile and format != "onnx":
        warn(
            "The translator compiles its search with XLA, but this export does "
            "not: TensorFlow Serving has XLA switched off, unless a flag "
            "switches it on. For a server with XLA, "
            "`export(jit_compile=True)` exports a compiled search; "
            "`jit_compile=False` exports without XLA and without this warning."
        )
    if jit_compile is True and translator.jit_compile:
        jit_compile = translator.jit_compile
    sizes = XLASizes.of(jit_compile or False)
    if translator.pipeline.of_one_length:
        _warn_of_lengths(names, format)
    if format == "onnx":
        Onnx.require_options(
            names,
            jit_compile=sizes is not None,
            weights=weights,
            lengths=lengths,
            buckets=buckets,
            max_rows=max_rows,
            max_source_length=max_source_length,
        )
        progress = Steps(verbose, Onnx.STEPS)
        onnx = Onnx(translator, progress)
        return write_version(directory, version, onnx.write)
    if sizes is not None and translator.shortlist is not None:
        raise ValueError(
            "XLA cannot compile a search with a shortlist, whose number of "
            "tokens varies. Received: jit_compile=True. Leave it out."
        )
    if sizes is not None and translator.glossary is not None:
        raise ValueError(
            "XLA cannot compile a search with a glossary, whose number of "
            "terms varies. Received: jit_compile=True. Leave it out."
        )
    if "step" in names and translator.glossary is not None:
        raise ValueError(
            "The signature `step` cannot apply a glossary, as it does not know "
            "which terms a client's hypotheses already contain. Received: a "
            "translator with a glossary. Leave `encode` and `step` out."
        )
    if "step" in names and translator.language_prompt is not None:
        raise ValueError(
            "The signature `step` begins with the start tokens alone, so it "
            "cannot find the language. Received: a translator with a "
            "`language_prompt`. Name the language, "
            "`from_hugging_face(directory, source=...)`, or leave `encode` and "
            "`step` out."
        )
    if "step" in names:
        require_rules(translator.search)
    require_stored(weights)
    if max_rows is not None:
        arguments.positive(max_rows, "max_rows", "`None` is for any number.")
    longest = longest_of(translator.pipeline.sources.specs, max_source_length)
    _check_lengths(translator, lengths)
    _check_buckets(translator, buckets)
    if sizes is not None:
        sizes = _sizes_of(translator.pipeline, sizes, max_rows)
    pipeline = translator.pipeline.for_export(sizes, buckets)

    def write(unfinished):
        options = weights, max_rows, lengths, longest, verbose
        _write(translator, unfinished, pipeline, names, *options)

    return write_version(directory, version, write)


def _impossible(translator) -> list[str]:
    """Returns the signatures that "all" leaves out for a translator."""
    found = [] if translator.word_times is not None else [WORDS]
    steps = translator.language_prompt is None and translator.glossary is None
    return found if steps else [*found, *STEPS]


def require_format(format):
    """Raises `ValueError` unless `format` is one of `FORMATS`."""
    if format == "saved_model":
        raise ValueError(
            'The format "saved_model" is called "tf_saved_model" since '
            'version 0.4. Pass `format="tf_saved_model"`, or leave it out.'
        )
    if format not in FORMATS:
        raise ValueError(
            f"`format` must be one of {FORMATS}. Received: format={format!r}. "
            "TensorFlow Serving loads the first, ONNX Runtime the second."
        )


def _sizes_of(pipeline, sizes, max_rows):
    """Returns the sizes for which XLA compiles the search of an export."""
    by_default = sizes.rows is None
    sizes = pipeline.sizes_by_model(sizes)
    if max_rows is not None:  # a smaller size is enough for the largest request
        before = zip(sizes.rows, (0, *sizes.rows), strict=False)
        rows = tuple(x for x, smaller in before if smaller < max_rows)
        if rows != sizes.rows and not by_default:
            raise ValueError(
                "XLA need not compile for more rows than a request may have. "
                f"Received: {sizes} and max_rows={max_rows}. Leave larger "
                "numbers out of `XLASizes(rows=...)`, or raise `max_rows`."
            )
        sizes = dataclasses.replace(sizes, rows=rows)
    if len([*sizes]) > MOST_SIZES:
        raise ValueError(
            f"An export has at most {MOST_SIZES} sizes that XLA compiles for, "
            "since each needs a warm-up request, and TensorFlow Serving reads "
            f"at most 1,000 of them. Received: {len([*sizes])} sizes, {sizes}. "
            "Pass fewer."
        )
    return sizes


def _warn_of_lengths(names, format):
    """Warns that outputs depend on the padding that a client adds."""
    what = "An ONNX model" if format == "onnx" else "The signature `step`"
    if format == "onnx" or "step" in names:
        warn(
            f"{what} decodes all rows of a batch together, and padding changes "
            "the output of this model. A client must put only texts of the "
            "same length into a batch, or send one at a time."
        )


def _check_lengths(translator, lengths):
    """Checks `lengths`, and warns of features that a server may pad."""
    sources = translator.pipeline.sources
    varies = not sources.reads_text and open_axes(sources.specs)
    if lengths and not varies:
        raise ValueError(
            "`lengths=True` needs a model whose features may have any size. "
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
        warn(
            "This model reads features of any size. A server that joins the "
            "requests of several clients pads the shorter ones with copies "
            "of their first element, and their answers would be wrong, without "
            "an error. `export(lengths=True)` adds an input `lengths` and sets "
            "features past a row's length to zero, for the model to mask. If "
            "all requests have one size, or the server does not join them, "
            "pass `lengths=False`.",
        )


def _check_buckets(translator, buckets):
    """Checks `buckets`, into which only sources of text can be split."""
    if buckets is None:
        return
    arguments.positive(buckets, "buckets")
    if buckets > 1 and not translator.pipeline.sources.texts:
        raise ValueError(
            "`buckets` needs sources of text, which have different lengths. "
            f"Received: buckets={buckets} and a model that reads features. "
            "Leave it out."
        )


def _write(
    translator,
    directory,
    pipeline,
    names,
    weights,
    max_rows,
    lengths,
    longest,
    verbose,
):
    progress = Steps(verbose, len(names) + 2)
    with tempfile.TemporaryDirectory() as assets:
        archive = Archive()
        read = _reading(translator, pipeline, pathlib.Path(assets), archive)
        if weights != "float32":
            stored = StoredWeights(translator.models, weights)
            read = dataclasses.replace(read, scope=stored.scope)
        signatures = _signatures(read, max_rows, lengths, longest)
        with without_cudnn(translator.models), without_gradients():
            for name in names:  # `encode` before `step`, which needs its specs
                function = signatures.function(name)
                with progress.step(f"tracing {name}"):
                    archive.add(name, function, signatures.specs(name))
            with progress.step("writing the SavedModel"):
                archive.write(directory)
        with progress.step("writing the warm-up"):
            write_warm_up(
                directory,
                archive.functions,
                signatures,
                most=max_rows,
                longest=longest,
            )


def _reading(translator, pipeline, folder, archive):
    """Returns a pipeline whose texts read their vocabularies from a folder.

    The files become assets of the export.
    """
    files = {"target.txt": translator.target_text}
    files |= files_of_sources(translator.source_text)
    read = {}
    for name, text in files.items():
        read[name] = text.reading(folder / name)
        archive.track_resources(read[name].resources())
    if pipeline.glossary is not None:
        archive.track_resources([pipeline.glossary.table])
    texts: dict = {"target_text": read.pop("target.txt")}
    if isinstance(translator.source_text, Mapping):
        names_of = translator.source_text
        texts["source_text"] = dict(zip(names_of, read.values(), strict=True))
    elif read:
        (texts["source_text"],) = read.values()
    return pipeline.with_texts(**texts)


def _signatures(pipeline, max_rows, lengths, longest) -> Signatures:
    """Returns the signatures, with guards that limit the sizes of requests.

    Args:
        pipeline: The `Pipeline`.
        max_rows, lengths: The arguments of `export()`.
        longest: The result of `longest_of()`.
    """
    sources = pipeline.sources
    sizes = [text.longest_source for _, text in sources.texts]
    sizes += longest.values()
    if len(longest) < len(open_axes(sources.specs)):
        sizes = []  # features of any size
    guard: OfSizes | OfLengths = OfSizes(sources.specs, longest)
    if lengths:
        sources = Measured(sources)
        pipeline = dataclasses.replace(pipeline, sources=sources)
        guard = OfLengths(sources, longest)
    return Signatures(pipeline, max_rows, [guard], max(sizes, default=None))
