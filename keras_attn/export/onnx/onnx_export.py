"""`Onnx`: writes the files of an ONNX export."""

import pathlib

from keras_attn.export.onnx.conversion import Conversion
from keras_attn.export.onnx.conversion import require_packages
from keras_attn.export.onnx.ids import Ids
from keras_attn.export.onnx.readme import readme
from keras_attn.export.onnx.vocabularies import VocabularyFile
from keras_attn.export.tf_saved_model.rows import MAX_ROWS
from keras_attn.export.tf_saved_model.signatures import PLAIN
from keras_attn.export.tracing import without_cudnn
from keras_attn.text.files import files_of_sources


class Onnx:
    """Writes a translator's signature `ids` as ONNX, with its vocabularies.

    Args:
        translator: A `Translator`.
        progress: `keras_attn.progress.Steps`, with `STEPS` steps.

    Raises:
        ImportError: If packages for ONNX are not installed.
        ValueError: If the translator has a shortlist, a glossary, or a rule
            with variables.
    """

    STEPS = 3

    def __init__(self, translator, progress):
        require_packages()
        if translator.shortlist is not None:
            raise ValueError(
                'An export with format="onnx" cannot have a shortlist, whose '
                "number of tokens varies. Received: a translator with one. "
                "Make a `Translator` of the same model without it, or export "
                "a SavedModel."
            )
        if translator.glossary is not None:
            raise ValueError(
                'An export with format="onnx" cannot have a glossary, which '
                "needs the words of a text, while an ONNX model reads ids. "
                "Received: a translator with one. Make a `Translator` of the "
                "same model without it, or export a SavedModel."
            )
        for rule in translator.search.rules:
            if rule.variables:
                raise ValueError(
                    "An export to ONNX cannot have a rule with variables. "
                    f'Received: format="onnx" and {rule!r:.200}. Export a '
                    "SavedModel, or make a `Translator` without the rule."
                )
        self._translator, self._progress = translator, progress

    @staticmethod
    def require_options(
        names,
        jit_compile,
        weights,
        lengths,
        buckets,
        max_rows,
        max_source_length,
    ):
        """Raises `ValueError` for options that only a SavedModel has.

        Args:
            names: Names of all signatures requested, including the plain ones.
            jit_compile: Whether XLA is to compile the search.
            weights, lengths, buckets, max_rows, max_source_length: As for
                `export()`.
        """
        further = [name for name in names if name not in PLAIN]
        own = "the model runs in the client, which can limit its own inputs"
        refused = {
            "signatures": (further, not further, "only 'ids' is converted"),
            "jit_compile": (jit_compile, not jit_compile, "it has no XLA"),
            "weights": (
                weights,
                weights == "float32",
                "ONNX Runtime's own tools quantize an ONNX model",
            ),
            "lengths": (
                lengths,
                not lengths,
                "no server pads the features between client and model",
            ),
            "buckets": (
                buckets,
                buckets in (None, 1),
                "a batch is decoded together; send similar lengths together",
            ),
            "max_rows": (max_rows, max_rows in (None, MAX_ROWS), own),
            "max_source_length": (
                max_source_length,
                max_source_length is None,
                own,
            ),
        }
        for name, (given, fine, reason) in refused.items():
            if not fine:
                raise ValueError(
                    f'format="onnx" has no option `{name}`: {reason}. '
                    f"Received: {name}={given!r}. Leave it out, or export a "
                    "SavedModel."
                )

    def write(self, directory: pathlib.Path) -> None:
        """Writes all files to a directory."""
        pipeline = self._translator.pipeline
        ids = Ids(pipeline)
        with self._progress.step("tracing and converting ids"):
            with without_cudnn(self._translator.models):
                conversion = Conversion(ids)
        with self._progress.step("comparing with ONNX Runtime"):
            conversion.require_alike(ids.examples())
        with self._progress.step("writing the files"):
            conversion.write(directory / "model.onnx")
            vocabularies = self._vocabularies(ids)
            for vocabulary in vocabularies:
                vocabulary.write(directory)
            content = readme(self._translator, ids, vocabularies)
            (directory / "README.txt").write_text(content, encoding="utf-8")

    def _vocabularies(self, ids):
        """Returns a `VocabularyFile` for each source text and the target."""
        files = files_of_sources(self._translator.source_text)
        return [
            *(
                VocabularyFile(text, file.replace(".txt", ".json"), name)
                for name, (file, text) in zip(
                    ids.names_of_texts, files.items(), strict=True
                )
            ),
            VocabularyFile(self._translator.target_text, "target.json"),
        ]
