"""`Translator`: trained models, their texts and a search, joined.

Strings or features in; strings, scores and alignments out. All of it runs in
one pipeline, the same that an export holds.
"""

import dataclasses
import pathlib
import threading
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attn.incremental import Ensemble
from keras_attn.incremental import Incremental
from keras_attn.placement import anywhere
from keras_attn.search import BeamSearch
from keras_attn.search import Hypotheses
from keras_attn.search import Search
from keras_attn.text import Text
from keras_attn.translator import requests
from keras_attn.translator import saving
from keras_attn.translator import trial
from keras_attn.translator.pipeline import Pipeline
from keras_attn.translator.results import Scores
from keras_attn.translator.results import Token
from keras_attn.translator.results import Translation
from keras_attn.translator.results import Translations
from keras_attn.translator.results import strings
from keras_attn.translator.results import translations
from keras_attn.translator.stream import Stream
from keras_attn.translator.stream import require_streamable
from keras_attn.translator.stream import run
from keras_attn.translator.targets import read as targets_of
from keras_attn.translator.watch import Watch

# One thread traces, the others wait: Keras's layers are not safe to trace
# from two at once, and translators may share a model.
_TRACING = threading.RLock()


class Translator:
    """Turns sources into target texts with a trained model, or with several.

    The sources are lines of text, or arrays: spectrograms, images, whatever
    the model's inputs but the last take. A model is cut, and the
    cut compared with the whole on random inputs, in one to two seconds.
    A translator may be called from several threads.

    Args:
        model: The trained functional `keras.Model`: its last input is the
            target's ids, those before are the source, and it outputs the
            logits. See `Incremental`. A list of models decodes as an
            `Ensemble`.
        source_text: `Text` of the source, or `None` where it is no text.
        target_text: `Text` of the target.
        search: A `Search`: `GreedySearch`, `BeamSearch`, `Sampling` or one
            of your own. Defaults to `BeamSearch()`.
        jit_compile: Whether XLA compiles the search, once for each shape of
            a batch. It pays for small models that see few shapes.
        forbidden: List of target tokens that may not come, such as
            `"<unk>"`.
        replace_unknown: Whether the source token with most attention stands
            in the place of an `<unk>`
            ([Luong et al., 2015b](https://arxiv.org/abs/1410.8206)).

    Raises:
        ValueError: If a model cannot be cut, or does not fit the texts.
        RuntimeError: If Keras does not run on TensorFlow.

    Example:

    >>> text = keras_attn.Text.from_lines(["ab"], split="characters")
    >>> source = keras.Input((None,), dtype="int32")
    >>> target = keras.Input((None,), dtype="int32")
    >>> embed = keras.layers.Embedding(text.size, 8, mask_zero=True)
    >>> hidden = keras_attn.AttentionDecoder(
    ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
    ...     embed(target), embed(source))
    >>> model = keras.Model(
    ...     [source, target], keras.layers.Dense(text.size)(hidden))
    >>> copy = keras_attn.Translator(
    ...     model, text, text, keras_attn.GreedySearch(max_length=5))
    >>> result = copy(["abba", "b"])
    >>> len(result.text), result[0].alignment.shape[1]
    (2, 5)
    """

    def __init__(
        self,
        model: keras.Model | Sequence[keras.Model],
        source_text: Text | None,
        target_text: Text,
        search: Search | None = None,
        jit_compile: bool = False,
        forbidden: Sequence[str] = (),
        replace_unknown: bool = False,
    ):
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "`Translator` decodes and exports with TensorFlow. Received: "
                f"the Keras backend '{keras.backend.backend()}'. Load the "
                "saved model in a process with KERAS_BACKEND=tensorflow; "
                "weights trained on another backend carry over."
            )
        self.models = (
            tuple(model) if isinstance(model, (list, tuple)) else (model,)
        )
        trial.require_texts(source_text, target_text)
        self.source_text = source_text
        self.target_text = target_text
        self.search = _search(search)
        self.jit_compile = jit_compile
        forbidden_ids = trial.forbidden_ids(forbidden, target_text)
        self.forbidden = tuple(forbidden)
        self.replace_unknown = replace_unknown
        if replace_unknown:
            trial.require_joining(source_text, target_text)
        cut = _cut(self.models)
        sources = trial.sources_of(self.models, source_text)
        trial.require_vocabulary(self.models, target_text)
        examples = trial.Examples.make(cut, sources, target_text, self.search)
        columns_are_tokens = trial.check(
            self.models,
            cut,
            sources,
            target_text,
            examples,
            replace_unknown,
        )
        self._scorable = False  # until it was looked at
        self.pipeline = Pipeline(
            models=self.models,
            cut=cut,
            sources=sources.with_columns(columns_are_tokens),
            examples=examples,
            target_text=target_text,
            search=self.search,
            forbidden=forbidden_ids,
            replace_unknown=replace_unknown,
            jit_compile=jit_compile,
        )
        self._functions: dict = {}
        self._watch = Watch(self.models)

    @property
    def model(self) -> keras.Model:
        """The model, where it is one."""
        if len(self.models) > 1:
            raise AttributeError(
                f"This translator has {len(self.models)} models: "
                "`translator.models`."
            )
        return self.models[0]

    def check(self) -> None:
        """Compares decoding with the whole models again.

        Training may make a layer mix positions that did not before. So this
        happens when a translator is made, saved and exported, and in the
        first call after the weights moved. Call it when something else in a
        model has changed, such as an attribute of a layer: all graphs are
        then traced anew.

        Raises:
            ValueError: If they differ. The message names the first layer
                whose output does.
        """
        with _TRACING:
            self.pipeline.cut.forget()
            self._functions.clear()
            self.pipeline = dataclasses.replace(self.pipeline)
            self._check_again()

    def _check_again(self):
        """The same where nothing but weights has changed."""
        sources, target = self.pipeline.examples
        with _TRACING:
            self._watch.unsettle()  # until it is found to be right
            self.pipeline.cut.check(*sources, target)
            self._watch.settle()

    def __call__(
        self,
        sources: Any,
        batch_size: int = 64,
        prefixes: Sequence[str | None] | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Translations:
        """Translates a number of sources.

        Args:
            sources: List of strings. Without a `source_text`: an array, batch
                first; of models with several source inputs a tuple of
                arrays, or a dictionary by the inputs' names.
            batch_size: How many are decoded together, which changes speed
                and memory and not the results. Like lengths go together.
            prefixes: List with a string or `None` for each source: what its
                target begins with, such as a token of the language wanted.
            seed: Integer that makes a search that draws, such as `Sampling`,
                repeat itself. Defaults to another one each time.
            options: Dictionary of options in place of the search's own, for
                all sources or a list with a value for each:
                `{"length_penalty": 0.6}`. `search.request_options` has the
                names.

        Returns:
            `Translations`, one `Translation` a source, which also tell which
            sources were cut and how many of their tokens were unknown.
        """
        rows, request = self._read(
            sources, batch_size, prefixes=prefixes, seed=seed, options=options
        )
        decode = self._compiled(
            "decode", self.pipeline.decode, requests.specs(self.search, request)
        )
        found: list = [None] * self.pipeline.sources.count(rows)
        for batch in self._batches(rows, batch_size):
            given = self.pipeline.sources.take(rows, batch)
            decoded = decode(given, requests.take(request, batch))
            for i, row in zip(batch, translations(decoded), strict=True):
                found[i] = row
        return Translations(found)

    def score(
        self,
        sources: Any,
        targets: Sequence[str] | Sequence[Translation],
        batch_size: int = 64,
    ) -> Scores:
        """Scores given targets, for re-ranking or perplexity.

        The whole model reads each target. Strings are split by the target
        text, what it lacks is read as `<unk>`, and each ends with the end
        token. What a translator returned is scored token by token, as its
        search made it: without an end where it was cut, and with the `<unk>`
        that the model wrote where that was replaced. So its score is what a
        search with a length penalty of 0 reports.

        Args:
            sources: As in a call.
            targets: For each source a string; or what a translator returned
                for these sources, `Translations` or a list of `Translation`,
                such as the alternatives of a source.
            batch_size: How many are scored together.

        Returns:
            `Scores`, which also tell what was cut or unknown.

        Raises:
            ValueError: If there are not as many targets as sources, or
                strings and translations among them.
        """
        self._require_scorable()
        rows, _ = self._read(sources, batch_size)
        count = self.pipeline.sources.count(rows)
        given = targets_of(targets, count, self.target_text)
        score = self._compiled(
            given.name, getattr(self.pipeline, given.name), given.specs
        )
        tokens: list = [None] * count
        token_scores: list = [None] * count
        scores = np.zeros(count, "float32")
        truncated, unknown = [False] * count, [0] * count
        for batch in self._batches(rows, batch_size):
            found = score(
                self.pipeline.sources.take(rows, batch), given.take(batch)
            )
            arrays = tf.nest.map_structure(lambda x: x.numpy(), found)
            for n, i in enumerate(batch):
                length = arrays.lengths[n]
                tokens[i] = strings(arrays.tokens[n, :length])
                token_scores[i] = arrays.token_scores[n, :length]
                scores[i] = arrays.scores[n]
                truncated[i] = bool(arrays.report.truncated[n])
                unknown[i] = int(arrays.report.unknown[n])
        return Scores(tokens, token_scores, scores, truncated, unknown)

    def stream(
        self,
        source: Any,
        prefix: str | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Iterator[Token]:
        """Yields the tokens of one source's text as they come.

        With a search that `streams`, such as `GreedySearch` or `Sampling`: a
        beam search does not know its first token until it knows its last.
        The texts of the tokens, joined, are the text that a call returns. A
        source that is cut at its text's `max_length` is warned of with the
        first token.

        Args:
            source: A string, or an array without a batch axis.
            prefix: What the target begins with; yielded too.
            seed: As in a call.
            options: As in a call.
        """
        require_streamable(self.search)
        sources = self.pipeline.sources.batch_of_one(source)
        rows, request = self._read(
            sources,
            batch_size=1,
            prefixes=[prefix] if prefix else None,
            seed=seed,
            options=options,
        )
        specs = requests.specs(self.search, request)
        key = "stream", str(specs)
        with _TRACING:
            if key not in self._functions:
                self._functions[key] = Stream(self.pipeline, specs)
        return run(
            self._functions[key],
            self.pipeline,
            self.pipeline.sources.take(rows, [0]),
            requests.take(request, [0]),
        )

    def _require_scorable(self):
        if not self._scorable:
            sources, target = self.pipeline.examples
            with _TRACING:
                self.pipeline.cut.check_in_graph(*sources, target)
            self._scorable = True

    def _read(self, sources, batch_size, **request):
        """Checks what a caller gave: rows of sources, and a request."""
        if (
            isinstance(batch_size, bool)
            or not isinstance(batch_size, (int, np.integer))
            or batch_size < 1
        ):
            raise ValueError(
                "`batch_size` must be at least 1, an integer. Received: "
                f"batch_size={batch_size!r}"
            )
        self._refresh()
        rows = self.pipeline.sources.collect(sources)
        if not request:
            return rows, {}
        count = self.pipeline.sources.count(rows)
        return rows, requests.read(
            self.search, self.target_text, count, **request
        )

    def _refresh(self, compare=True):
        """Forgets graphs of layers that have other variables by now.

        Args:
            compare: Whether to check the cut if the weights moved.
        """
        with _TRACING:
            if self._watch.changed():
                self._functions.clear()
                self.pipeline = dataclasses.replace(self.pipeline)
                self._watch.unsettle()
            if compare and self._watch.moved():
                self._check_again()

    def _batches(self, rows, batch_size):
        order = self.pipeline.sources.order(rows)
        for i in range(0, len(order), batch_size):
            yield order[i : i + batch_size]

    def _compiled(self, name, function, specs):
        """The graph of a function of sources and what the specs describe."""
        key = name, str(specs)
        with _TRACING:
            if key not in self._functions:
                self._functions[key] = tf.function(
                    function,
                    input_signature=[self.pipeline.sources.specs, specs],
                    autograph=False,
                ).get_concrete_function()
        return self._functions[key]

    def decode_ids(self, *inputs: tf.Tensor) -> Hypotheses:
        """Decodes the model's source inputs, in a graph of the caller's."""
        self._refresh(compare=False)  # it may stand within a graph
        return self.pipeline.decode_inputs(inputs, {}).hypotheses

    def save(self, directory) -> None:
        """Writes models, texts and search options, for `load()`.

        The models go without optimizer, loss and metrics, which decoding
        does not need; `model.save()` keeps these. What was in the directory
        before is replaced when all is written.

        Args:
            directory: Path of a directory, which is made.

        Raises:
            ValueError: If Keras could not load what it would write.
        """
        self._refresh(compare=False)
        self._check_again()
        saving.save(self, saving.path_of(directory))

    @classmethod
    def load(cls, directory, custom_objects=None) -> "Translator":
        """Reads what `save()` wrote.

        Args:
            directory: Path of the directory.
            custom_objects: Dictionary of the classes and functions in the
                models and texts, and the class of the search, that are not
                registered with Keras, by their names.
        """
        loaded = saving.load(saving.path_of(directory, True), custom_objects)
        return cls(**loaded)

    def export(
        self,
        directory,
        version: int | None = None,
        signatures: Sequence[str] | str = (),
        jit_compile: bool = False,
        weights: str = "float32",
        lengths: bool | None = None,
    ) -> pathlib.Path:
        """Writes a SavedModel for TF Serving; see `keras_attn.export`.

        Args:
            directory: Where the versions are, `model_base_path` to a server.
            version: Number of the version. Defaults to the next one.
            signatures: Names of further signatures, or `"all"`: `"options"`,
                `"score"`, and `"step"`, which brings `"encode"` and
                `"strings"`.
            jit_compile: Whether XLA compiles the search there. The server
                then needs a flag: `--xla_cpu_compilation_enabled` or
                `--xla_gpu_compilation_enabled`.
            weights: How matrices are stored: `"float32"`, `"bfloat16"`, half
                as large, or `"int8"`, a quarter. They are float32 again
                before a search begins.
            lengths: Whether features of any size have an input `lengths`
                beside them, past which they are zero. A server that joins
                requests of different sizes needs it; `False` says that
                there is none.

        Returns:
            The path of the version, `directory/version`.
        """
        from keras_attn.export import export

        directory = saving.path_of(directory)
        self._refresh(compare=False)
        self.check()
        if signatures == "all" or "score" in signatures:
            self._require_scorable()
        with _TRACING, anywhere():
            return export(
                self,
                directory,
                version,
                signatures,
                jit_compile,
                weights,
                lengths,
            )


def _cut(models):
    if not models:
        raise ValueError("A `Translator` needs a model. Received: [].")
    members = [Incremental(model) for model in models]
    return members[0] if len(members) == 1 else Ensemble(members)


def _search(search):
    if search is None:
        return BeamSearch()
    if not isinstance(search, Search):
        raise ValueError(
            "`search` must be a `Search`, such as a `BeamSearch` or a "
            f"`GreedySearch`. Received: search={search!r}. Pass for example "
            "`BeamSearch(5)`."
        )
    return search
