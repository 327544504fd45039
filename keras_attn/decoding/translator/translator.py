"""`Translator`: decodes with trained models, their texts and a search.

It takes strings or features and returns strings, scores and alignments. An
export contains the same pipeline.
"""

import dataclasses
import os
import pathlib
import threading
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attn.caller import without_warnings_of_keras
from keras_attn.decoding import Hypotheses
from keras_attn.decoding import Search
from keras_attn.decoding import batching
from keras_attn.decoding.language_prompt import LanguagePrompt
from keras_attn.decoding.phrases.glossary import Glossary
from keras_attn.decoding.search_trial import try_search
from keras_attn.decoding.shortlist import Shortlist
from keras_attn.decoding.translator import model_trial
from keras_attn.decoding.translator import requests
from keras_attn.decoding.translator import requirements
from keras_attn.decoding.translator import saving
from keras_attn.decoding.translator.aligned import alignments_of
from keras_attn.decoding.translator.model_changes import ModelChanges
from keras_attn.decoding.translator.pipeline import Pipeline
from keras_attn.decoding.translator.preparing import prepare
from keras_attn.decoding.translator.results import Scores
from keras_attn.decoding.translator.results import Token
from keras_attn.decoding.translator.results import Translation
from keras_attn.decoding.translator.results import Translations
from keras_attn.decoding.translator.results import strings
from keras_attn.decoding.translator.results import translations
from keras_attn.decoding.translator.results import with_words
from keras_attn.decoding.translator.stream import Stream
from keras_attn.decoding.translator.stream import require_streamable
from keras_attn.decoding.translator.stream import run
from keras_attn.decoding.translator.targets import read as targets_of
from keras_attn.decoding.word_times import WordTimes
from keras_attn.decoding.xla_sizes import XLASizes
from keras_attn.models.adopted import Options
from keras_attn.placement import anywhere
from keras_attn.text.text import Text

# Only one thread traces at a time: Keras's layers are not safe to trace from
# two threads, and translators may share a model.
_TRACING = threading.RLock()

# Arguments that are kept as attributes. The others say how to convert a model
# to standard form, which is done only once.
_KEPT = (
    "source_text",
    "target_text",
    "search",
    "jit_compile",
    "forbidden",
    "replace_unknown",
    "shortlist",
    "recompute",
    "word_times",
    "language_prompt",
    "glossary",
)


class Translator:
    """Turns sources into target texts with one trained model or several.

    The sources are lines of text, or arrays, such as spectrograms or images,
    for all the model's inputs but the last. The constructor cuts the model
    into an encoder and a step, and compares the cut with the whole model on
    random inputs, which takes one to two seconds. Several threads may call
    a translator at once.

    Args:
        model: The trained `keras.Model`, functional or subclassed. Its last
            input is the target written so far, its other inputs are the
            source, and its output is logits or probabilities. The page
            `models` lists the accepted shapes. A list of models is decoded as
            an `Ensemble`.
        source_text: `Text` of the source, or `None` if it is not text. For a
            model with several source inputs, a dictionary from the names of
            those that read text to their `Text`s; the others take arrays.
        target_text: `Text` of the target.
        search: A `Search`: `GreedySearch`, `BeamSearch`, `Sampling` or a
            custom one. Defaults to `BeamSearch()`, with shorter outputs if the
            model takes no longer targets.
        jit_compile: Whether XLA compiles the search, which speeds up batches
            of few rows. `True` compiles for the default sizes of
            `keras_attn.XLASizes`; pass such an object for other sizes. Batches
            are padded to the next size, and larger ones run without XLA.
            `warm_up()` compiles all sizes in advance; otherwise the first batch
            of each size takes seconds.
        forbidden: List of target tokens that no output may contain, such as
            `"<unk>"`.
        replace_unknown: Whether the source token with most attention
            replaces an `<unk>` in the output
            ([Luong et al., 2015b](https://arxiv.org/abs/1410.8206)).
        shortlist: `Shortlist` of the target tokens that a source could mean,
            for large vocabularies.
        recompute: Whether layers that cannot run one token at a time may be
            recomputed over all tokens so far at each step. This is slower. A
            warning names the layers.
        target: Name of the model's input that takes the target. Defaults to
            the last one; the inputs of a dictionary have no order.
        output: Name or number of the output that holds the logits or
            probabilities. Defaults to the only one, or to the one as wide as
            the target's vocabulary.
        pad_to: Length to which every source is padded, for models that were
            trained with such padding, without masks. An integer, or a
            dictionary by the names of inputs.
        padding: Token that pads sources, such as `" "`, if the model was not
            trained with the text's padding token.
        word_times: `WordTimes` of a model that reads sound, for `words()`.
        language_prompt: `LanguagePrompt` with which targets begin. A request's
            prefix may replace parts of it.
        glossary: `Glossary` of terms that a target must contain if its source
            contains certain phrases.

    Raises:
        ValueError: If a model cannot be cut, or if models, texts and options
            do not fit together.
        RuntimeError: If the Keras backend is not TensorFlow.

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
        source_text: Text | Mapping[str, Text] | None,
        target_text: Text,
        search: Search | None = None,
        jit_compile: bool | XLASizes = False,
        forbidden: Sequence[str] = (),
        replace_unknown: bool = False,
        shortlist: Shortlist | None = None,
        recompute: bool = True,
        target: str | None = None,
        output: str | int | None = None,
        pad_to: int | Mapping[str, int] | None = None,
        padding: str | None = None,
        word_times: WordTimes | None = None,
        language_prompt: LanguagePrompt | None = None,
        glossary: Glossary | None = None,
    ):
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "`Translator` needs TensorFlow to decode and to export. "
                f"Received: the Keras backend "
                f"'{keras.backend.backend()}'. Load the saved model in a "
                "process with KERAS_BACKEND=tensorflow; weights trained on "
                "another backend work there."
            )
        models = _models(model)
        if not isinstance(recompute, bool):
            raise ValueError(
                "`recompute` must be True or False. Received: "
                f"recompute={recompute!r}"
            )
        requirements.require_texts(source_text, target_text)
        sizes = XLASizes.of(jit_compile)
        self.jit_compile = jit_compile
        forbidden_ids = requirements.forbidden_ids(forbidden, target_text)
        self.forbidden = tuple(forbidden)
        self.replace_unknown = replace_unknown
        if replace_unknown:
            requirements.require_joining(source_text, target_text)
        self.recompute = recompute
        if search is not None:
            _require_search(search)
            search = search.bound(target_text)
            try_search(search, target_text.size)
        prepared = prepare(
            models,
            source_text,
            target_text,
            search,
            Options(target, output, pad_to, padding),
            recompute,
        )
        self.models, cut = prepared.models, prepared.cut
        self.source_text = source_text = prepared.source_text
        self.target_text = target_text = prepared.target_text
        self.search = prepared.search
        if jit_compile:
            requirements.require_compilable(self.models)
        examples = prepared.examples
        with without_warnings_of_keras():
            sources, padding_matters = model_trial.check(
                self.models,
                cut,
                prepared.sources,
                target_text,
                examples,
                replace_unknown,
            )
        self._scorable = False  # until `score` is called and checked
        self.shortlist = shortlist
        if shortlist is not None:
            requirements.require_listable(
                shortlist, sources, target_text, self.search, jit_compile
            )
        self.pipeline = Pipeline(
            models=self.models,
            cut=cut,
            sources=sources,
            examples=examples,
            target_text=target_text,
            search=self.search,
            forbidden=forbidden_ids,
            replace_unknown=replace_unknown,
            shortlist=shortlist,
            of_one_length=padding_matters,
            word_times=word_times,
            language_prompt=language_prompt,
            glossary=glossary,
        )
        self.glossary = glossary
        if glossary is not None:
            requirements.require_glossary(
                glossary, sources, self.search, self.pipeline, jit_compile
            )
        self.word_times, self.language_prompt = word_times, language_prompt
        if language_prompt is not None:
            requirements.require_promptable(
                language_prompt, cut, target_text, self.search, shortlist
            )
        if word_times is not None:
            self.pipeline.require_word_times()
        if sizes is not None:
            self.pipeline.sizes = self.pipeline.sizes_by_model(sizes)
        self._functions: dict = {}
        self._changes = ModelChanges(self.models)

    @classmethod
    def from_keras_hub(
        cls,
        model: Any,
        search: Search | None = None,
        preprocessor: Any = None,
        audio_converter: Any = None,
        prompt: Sequence[str] = (),
        **options: Any,
    ) -> "Translator":
        """Makes a translator from an encoder-decoder of KerasHub.

        The translator shares the weights of `model`, so it follows further
        training. Its sources are lines of text, or sound: an array `(batch,
        samples)`, padded with zeros. The page `models/keras_hub` has examples
        and lists differences from KerasHub's `generate`.

        Args:
            model: A `keras_hub.models.Seq2SeqLM`, such as `BartSeq2SeqLM`,
                or its backbone. The page `models/keras_hub` lists the families.
            search: As for `Translator`. Defaults to `BeamSearch()`, with the
                longest targets that the model can write if these are
                shorter.
            preprocessor: How text becomes ids: a preprocessor of KerasHub, or
                a tokenizer for backbones without a task, such as
                `WhisperBackbone`. With the model's `SpecialTokens`, texts are
                ids written as numbers; see `IntegerIds`. Defaults to the
                preprocessor of the task.
            audio_converter: For a model that reads features of sound, such as
                Whisper, the `AudioConverter` that computes them; the
                translator then takes sound. Defaults to that of the
                preprocessor. Without one it takes the features.
            prompt: List of tokens with which every target begins, after its
                start token, such as Whisper's `["<|en|>", "<|transcribe|>",
                "<|notimestamps|>"]`. Prefixes may have such tokens too.
            **options: Further arguments of `Translator`.

        Raises:
            ValueError: If the model is not an encoder-decoder, or if it is not
                known how text becomes ids.

        Example:
            >>> import keras_hub
            >>> special = keras_attn.SpecialTokens(
            ...     pad=0, start=(1,), end=2, unknown=3)
            >>> backbone = keras_hub.models.BartBackbone(
            ...     vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8,
            ...     intermediate_dim=8, max_sequence_length=12)
            >>> translator = keras_attn.Translator.from_keras_hub(
            ...     backbone, keras_attn.BeamSearch(3, max_length=5), special)
            >>> len(translator(["7 4 5", "8"]).text)
            2
        """
        from keras_attn.models.keras_hub.translator_arguments import (
            arguments_of,
        )

        found = arguments_of(
            model, search, preprocessor, audio_converter, prompt
        )
        _refuse_twice("from_keras_hub", found, options)
        return cls(**found, **options)

    @classmethod
    def from_hugging_face(
        cls,
        directory: str | os.PathLike,
        search: Search | Mapping[str, Any] | None = None,
        source: str | None = None,
        target: str | None = None,
        ids: bool = False,
        dtype: Any = None,
        special_tokens: bool = False,
        **options: Any,
    ) -> "Translator":
        """Makes a translator from an encoder-decoder of Hugging Face.

        It reads a directory that `save_pretrained` of transformers wrote, or a
        download of the same files. Nothing is downloaded. The model consists of
        plain Keras layers with the weights of the directory, and can be
        trained, saved and exported like any other. The page
        `models/hugging_face` lists the families and the differences from
        `generate`.

        Args:
            directory: The directory.
            search: As for `Translator`, or a dictionary of fields that
                override those of the directory's `generation_config.json`,
                such as `{"num_beams": 1}`. Defaults to the settings of this
                file; a warning names fields without a counterpart.
            source, target: Names of the languages for multilingual models, as
                in the tokenizer's files, such as `"eng_Latn"` or `"fr"`.
                Without `target`, each Marian source begins with a language
                code, `">>fra<< How are you?"`; other models take the target
                language as a prefix.
            ids: Whether texts are ids written as numbers, instead of text for
                the tokenizer; see `IntegerIds`.
            dtype: Dtype policy of the model's layers, such as `"bfloat16"`.
                Defaults to Keras's, to which all weights are cast.
            special_tokens: Whether a source that spells a special token, such
                as `"<mask>"`, `"</s>"` or T5's `"<extra_id_0>"`, means this
                token, as for the tokenizers of Hugging Face. Otherwise it is
                plain text, so users of a server cannot insert special tokens.
            **options: Further arguments of `Translator`.

        Raises:
            ImportError: If a package that reads the files is missing.
            ValueError: If the files are not those of such a model, if one is
                missing, or if they contain something unknown that would change
                results.
        """
        from keras_attn.models.hugging_face.translator_arguments import (
            arguments_of,
        )

        found = arguments_of(
            directory, search, source, target, ids, dtype, special_tokens
        )
        _refuse_twice("from_hugging_face", found, options)
        return cls(**found, **options)

    def replace(self, **changes: Any) -> "Translator":
        """Returns a translator with other arguments, which shares the models.

        As for any new translator, its steps are compared with the models,
        which takes one to two seconds. A subclass with its own constructor
        becomes a plain `Translator`.

        Args:
            **changes: Arguments of `Translator` to change, except `model`,
                `target`, `output`, `pad_to` and `padding`. The other arguments
                are those of this translator.

        Raises:
            TypeError: If an argument is not one of these.
            ValueError: As for `Translator`.

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
            >>> greedy = keras_attn.Translator(
            ...     model, text, text, keras_attn.GreedySearch(max_length=5))
            >>> beams = greedy.replace(
            ...     search=keras_attn.BeamSearch(3, max_length=5))
            >>> beams.model is greedy.model
            True
        """
        if unknown := sorted(changes.keys() - {*_KEPT}):
            raise TypeError(
                "`replace` takes these arguments of `Translator`: "
                f"{', '.join(_KEPT)}. Received: {unknown}. Make a new "
                "`Translator` for others."
            )
        models = self.models
        kept = {name: getattr(self, name) for name in _KEPT}
        kept["model"] = models[0] if len(models) == 1 else list(models)
        has_own = type(self).__init__ is not Translator.__init__
        kind = Translator if has_own else type(self)
        return kind(**(kept | changes))

    def __repr__(self) -> str:
        if len(self.models) == 1:
            shown = {"model": self.models[0]}
        else:
            shown = {"models": list(self.models)}
        shown |= {name: getattr(self, name) for name in _KEPT}
        for name in ("word_times", "language_prompt", "glossary"):
            if shown[name] is None:
                del shown[name]
        lines = [f"  {name}={value!r}" for name, value in shown.items()]
        return "\n".join([f"<{type(self).__name__}", *lines]) + ">"

    @property
    def model(self) -> keras.Model:
        """The model, if the translator has a single one."""
        if len(self.models) > 1:
            raise AttributeError(
                "`translator.model` needs a translator of one model. "
                f"Received: one that has {len(self.models)} models: "
                "`translator.models` lists them."
            )
        return self.models[0]

    def check(self) -> None:
        """Compares decoding with the whole models again.

        After training, a layer may mix positions although it did not before.
        So the comparison runs when a translator is made, saved or exported,
        and in the first call after the weights changed. Call `check()`
        yourself after any other change to a model, such as to an attribute of
        a layer. All graphs are then traced again.

        Raises:
            ValueError: If the results differ. The message names the first
                layer whose output differs.
        """
        with _TRACING:
            self.pipeline.cut.forget()
            self._functions.clear()
            self.pipeline = dataclasses.replace(self.pipeline)
            self._check_again()

    def _check_again(self):
        """Compares decoding with the models, without tracing again."""
        sources, target = self.pipeline.examples
        with _TRACING, without_warnings_of_keras():
            self._changes.unsettle()  # until the comparison succeeds
            self.pipeline.cut.check(*sources, target)
            model_trial.require_alike(
                self.models, self.pipeline.cut, (*sources, target)
            )
            self._changes.settle()

    def __call__(
        self,
        sources: Any,
        batch_size: int = 64,
        prefixes: Sequence[str | None] | None = None,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        terms: Sequence[Sequence[str] | None] | None = None,
        avoid: Sequence[Sequence[str] | None] | None = None,
    ) -> Translations:
        """Translates sources.

        Args:
            sources: List of strings. Without a `source_text`: an array, batch
                first. For models with several source inputs, a tuple of these
                in the order of the inputs, or a dictionary by their names.
            batch_size: Most sources to decode together. It changes speed and
                memory use, but not the results. Sources of similar length are
                batched together, and a batch whose lengths still differ much is
                split.
            prefixes: List with a string or `None` for each source: its target
                begins with this string, such as a token for the wanted
                language.
            seed: Seed for searches that draw, such as `Sampling`. An integer
                repeats the draws of a call: source number `i` has the same
                seed again, and equal sources have different ones. A list has
                a seed for each source, which then draws the same alone, in
                any batch and in an export. Defaults to new seeds in each
                call.
            options: Dictionary of options that override the search's own, such
                as `{"length_penalty": 0.6}`. Each value is one number for all
                sources, or a list with a number for each source.
                `search.request_options` has the names.
            terms: List with a list of phrases, or `None`, for each source. Its
                text should contain all of them, in any order; `missing` lists
                the phrases that it lacks. This needs a `BeamSearch`.
            avoid: List with a list of phrases, or `None`, for each source. Its
                text contains none of them; see `Without`.

        Returns:
            `Translations`, one `Translation` for each source. They also
            report which sources were cut, the number of their unknown tokens,
            and which sources are empty. The model invents a text for empty
            sources.

        Raises:
            ValueError: If an argument is invalid, or has another number of
                values than there are sources.
        """
        rows, request = self._read(
            sources,
            batch_size,
            prefixes=prefixes,
            seed=seed,
            options=options,
            terms=terms,
            avoid=avoid,
        )
        run = self._compiled("decode", requests.specs(self.search, request))
        return self._decoded(run, rows, request, batch_size)

    def words(
        self,
        sources: Any,
        batch_size: int = 8,
        prefixes: Sequence[str | None] | None = None,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Translations:
        """Transcribes sounds, and finds when each word is spoken.

        The translator needs `word_times`, which `from_hugging_face` reads
        from the files of Whisper. The model reads each of its texts once more
        to find the times.

        Args:
            sources: Array of sounds `(batch, samples)`, padded with zeros.
            batch_size, prefixes, seed, options: As in a call.

        Returns:
            `Translations` as a call returns them. In each, `words` is a list
            of `Word`s, and `no_speech` is the probability that nobody speaks.
            The `alternatives` have neither.

        Raises:
            ValueError: If the translator has no `word_times`.
        """
        self.pipeline.require_word_times()
        rows, request = self._read(
            sources, batch_size, prefixes=prefixes, seed=seed, options=options
        )
        run = self._compiled("words", requests.specs(self.search, request))
        return self._decoded(run, rows, request, batch_size, with_times=True)

    def _decoded(self, run, rows, request, batch_size, with_times=False):
        """Returns the results of a graph for rows."""
        found: list = [None] * self.pipeline.sources.count(rows)
        for batch in self._batches(rows, batch_size):
            given = self.pipeline.sources.take(rows, batch)
            returned = run(given, requests.take(request, batch))
            decoded, spoken = returned if with_times else (returned, None)
            texts = translations(decoded, self.target_text)
            if spoken is not None:
                texts = with_words(texts, spoken)
            for i, row in zip(batch, texts, strict=True):
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
        text, unknown tokens are read as `<unk>`, and each string gets an end
        token. A `Translation` is scored token by token, as the search wrote
        it: without an end token if it was cut, and with the model's `<unk>`
        if `replace_unknown` replaced it. So its score equals that of a search
        with a length penalty of 0.

        Args:
            sources: As in a call.
            targets: A string for each source; or a translator's results for
                these sources, `Translations` or a list of `Translation`, such
                as the alternatives of a source.
            batch_size: Number of targets that are scored together.

        Returns:
            `Scores`, which also report cut targets, unknown tokens and empty
            sources.

        Raises:
            ValueError: If the numbers of targets and sources differ, or
                if strings and translations are mixed.
        """
        self._require_scorable()
        rows, _ = self._read(sources, batch_size)
        count = self.pipeline.sources.count(rows)
        given = targets_of(targets, count, self.target_text)
        score = self._compiled(given.name, given.specs)
        tokens: list = [None] * count
        token_scores: list = [None] * count
        scores = np.zeros(count, "float32")
        truncated, unknown = [False] * count, [0] * count
        empty = [False] * count
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
                empty[i] = bool(arrays.report.empty[n])
        return Scores(tokens, token_scores, scores, truncated, unknown, empty)

    @property
    def attended_text(self) -> Text:
        """The source `Text` whose tokens are the columns of alignments."""
        sources = self.pipeline.sources
        if sources.attended is None:
            raise ValueError(
                "`attended_text` needs a model that attends to each token of "
                "a source text. Received: a model that reads features, or "
                "whose encoder merges positions."
            )
        return dict(sources.texts)[sources.attended]

    def alignments_of(
        self,
        sources: Any,
        targets: Sequence[str],
        batch_size: int = 64,
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields the model's alignments of given targets to their sources.

        The pairs are ordered by length, not as in the arguments.

        Args:
            sources: As in a call.
            targets: A string for each source.
            batch_size: Number of pairs that are aligned together.

        Yields:
            The ids of a source `(source,)`, those of its target `(target,)`,
            both with the end token, and the weights `(target, source)`. A
            `language_prompt` stands before the target, and is left out.
        """
        source_text = self.attended_text
        rows, _ = self._read(sources, batch_size)
        count = self.pipeline.sources.count(rows)
        given = targets_of(targets, count, self.target_text)
        if given.name != "score":
            raise ValueError(
                "`targets` must be strings. Received: `Translation`s. Pass "
                "`result.text`."
            )
        batches = self._batches(rows, batch_size)
        yield from alignments_of(
            self.pipeline, source_text, rows, given, batches
        )

    def stream(
        self,
        source: Any,
        prefix: str | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        avoid: Sequence[str] | None = None,
    ) -> Iterator[Token]:
        """Yields the tokens of one source's target as they are decoded.

        The search must have `streams` set, as `GreedySearch` and `Sampling`
        with one hypothesis have: in a beam search no token is final before the
        end. The tokens' texts, joined, are the text that a call returns. A
        warning is given if the source is empty, or is cut at its text's
        `max_length`.

        Args:
            source: A string, an array without a batch axis, or, for several
                inputs, a tuple or dictionary of these as in a call.
            prefix: String with which the target begins; its tokens are
                yielded too.
            seed: As in a call.
            options: As in a call.
            avoid: List of phrases that the text must not contain.

        Yields:
            `Token`s, the end token included.

        Raises:
            ValueError: If the search does not stream, or an argument is
                invalid.
        """
        require_streamable(self.search)
        sources = self.pipeline.sources.batch_of_one(source)
        rows, request = self._read(
            sources,
            batch_size=1,
            prefixes=[prefix] if prefix else None,
            seed=seed,
            options=options,
            avoid=None if avoid is None else [avoid],
        )
        specs = requests.specs(self.search, request)
        key = "stream", str(specs)
        with _TRACING, without_warnings_of_keras():
            if key not in self._functions:
                self._functions[key] = Stream(self.pipeline, specs)
            stream = self._functions[key]
        return run(
            stream,
            self.pipeline,
            self.pipeline.sources.take(rows, [0]),
            requests.take(request, [0]),
        )

    def _require_scorable(self):
        if not self._scorable:
            sources, target = self.pipeline.examples
            with _TRACING, without_warnings_of_keras():
                self.pipeline.cut.check_in_graph(*sources, target)
            self._scorable = True

    def _read(self, sources, batch_size, **request):
        """Checks a caller's sources and request; returns rows of both."""
        if (
            isinstance(batch_size, bool)
            or not isinstance(batch_size, (int, np.integer))
            or batch_size < 1
        ):
            raise ValueError(
                "`batch_size` must be an integer, at least 1. Received: "
                f"batch_size={batch_size!r}"
            )
        self._refresh()
        rows = self.pipeline.sources.collect(sources)
        if not request:
            return rows, {}
        count = self.pipeline.sources.count(rows)
        return rows, requests.read(
            self.search,
            self.target_text,
            count,
            spellings=lambda: self.pipeline.phrases.spellings,
            prompts=self.pipeline.prompts,
            **request,
        )

    def _refresh(self, compare=True):
        """Drops the graphs if a layer's variables were replaced.

        Args:
            compare: Whether to check the cut if the weights changed.
        """
        with _TRACING:
            if self._changes.changed():
                self._functions.clear()
                self.pipeline = dataclasses.replace(self.pipeline)
                self._changes.unsettle()
            if compare and self._changes.moved():
                self._check_again()

    def _batches(self, rows, batch_size):
        if self.pipeline.of_one_length:
            return batching.batches_of_one_length(
                self.pipeline.sources.token_lengths(rows), batch_size
            )
        return batching.batches(
            self.pipeline.sources.lengths(rows),
            batch_size,
            self.search.max_length,
        )

    def _compiled(self, name, specs):
        """Returns the graph of a pipeline's function, for `_batches`."""
        key = name, str(specs)
        with _TRACING, without_warnings_of_keras():
            if key not in self._functions:
                # `_batches` yields rows of one length, so no graph splits them.
                pipeline = self.pipeline
                if pipeline.of_one_length:
                    pipeline = dataclasses.replace(
                        pipeline, of_one_length=False
                    )
                self._functions[key] = tf.function(
                    getattr(pipeline, name),
                    input_signature=[self.pipeline.sources.specs, specs],
                    autograph=False,
                ).get_concrete_function()
            # Another thread may drop the graphs as soon as the lock is free.
            return self._functions[key]

    def warm_up(self) -> None:
        """Compiles the search for all its `XLASizes` in advance.

        This takes a few seconds for each size. Later calls need not wait.

        Raises:
            ValueError: If XLA does not compile the search.
        """
        self._refresh()
        with _TRACING, without_warnings_of_keras():
            self.pipeline.warm_up()

    def decode_ids(self, *inputs: tf.Tensor) -> Hypotheses:
        """Decodes the model's source inputs; this also works in a graph.

        Args:
            *inputs: The model's source inputs, such as ids `(batch, source)`.

        Returns:
            `Hypotheses`, with tokens as ids.
        """
        self._refresh(compare=False)  # a comparison cannot run in a graph
        return self.pipeline.decode_ids(inputs)

    def module(self) -> tf.Module:
        """Returns a `tf.Module` to use inside your own `tf.Module`.

        It is for custom exports, with your own tokenizer or signatures. The
        module has `decode_ids`, `decode` and `strings`, and holds everything
        that a server needs. See `keras_attn.export`.

        Example:
            >>> import tensorflow as tf
            >>> strings = tf.TensorSpec([None], tf.string, name="text")
            >>> class Own(tf.Module):
            ...     def __init__(self, translator):
            ...         super().__init__()
            ...         self.inner = translator.module()
            ...     @tf.function(input_signature=[strings])
            ...     def serve(self, text):
            ...         return self.inner.decode(tf.strings.lower(text))
        """
        from keras_attn.export import Module

        self._refresh(compare=False)
        return Module(self)

    def save(self, directory) -> None:
        """Writes models, texts and search options, for `load()`.

        The models are written without optimizer, loss and metrics, which
        decoding does not need; `model.save()` keeps these. A translator that
        was saved there is replaced once all files are written.

        Args:
            directory: Path of a directory, created if missing.

        Raises:
            ValueError: If Keras could not load the models again.
        """
        self._refresh(compare=False)
        self._check_again()
        with without_warnings_of_keras():
            saving.save(self, saving.path_of(directory))

    @classmethod
    def load(
        cls, directory, custom_objects=None, safe_mode: bool = True
    ) -> "Translator":
        """Reads what `save()` wrote.

        No file may name a file in another directory. Symbolic links in the
        directory are followed, since model caches consist of them.

        Args:
            directory: Path of the directory.
            custom_objects: Dictionary from names to the classes and functions
                of models, texts and search that are not registered with Keras.
            safe_mode: Whether models may not hold code, such as that of a
                `Lambda` with a Python `lambda`. Pass `False` only for files
                that you trust.

        Raises:
            FileNotFoundError: If there is no saved translator.
            ValueError: If a file names a file in another directory, or if a
                class is not known.
        """
        directory = saving.path_of(directory, True)
        loaded = saving.load(directory, custom_objects, safe_mode)
        return cls(**loaded)

    def export(
        self,
        directory,
        version: int | None = None,
        signatures: Sequence[str] | str = (),
        jit_compile: bool | XLASizes | None = None,
        weights: str = "float32",
        lengths: bool | None = None,
        buckets: int | None = None,
        format: str = "tf_saved_model",
        max_rows: int | None = 128,
        max_source_length: int | Mapping[str, Any] | None = None,
        verbose: str | int = "auto",
    ) -> pathlib.Path:
        """Writes a SavedModel for TF Serving; see `keras_attn.export`.

        With `format="onnx"` it writes the signature `ids` as an ONNX model,
        the vocabularies as JSON and a `README.txt`; see
        `keras_attn.export.onnx`.

        Args:
            directory: Directory of the versions, a server's
                `model_base_path`.
            version: Number of the version. Defaults to the next one.
            signatures: Names of further signatures, or `"all"`: `"options"`,
                `"terms"`, `"score"`, `"words"` for a translator with
                `word_times`, and `"step"`, which includes `"encode"` and
                `"strings"`.
            jit_compile: Whether XLA compiles the search on the server, which
                then needs a flag: `--xla_cpu_compilation_enabled` or
                `--xla_gpu_compilation_enabled`. As for the translator,
                `XLASizes` may be passed; the server compiles all of them
                before it answers. Defaults to `False`, with a warning if the
                translator itself compiles.
            weights: How matrices are stored: `"float32"`, `"bfloat16"` (half as
                large) or `"int8"` (a quarter as large). They are converted back
                to float32 before a search begins.
            lengths: Whether features of any size get an additional input
                `lengths`; the export sets features past these to zero. A
                server that joins requests of different sizes needs it. Pass
                `False` if your server does not join requests.
            buckets: Most buckets into which a batch of texts is split by
                length. They are decoded one after another, so a long text does
                not slow down short ones. 1 decodes all together, which may be
                faster on a GPU. Defaults to 4.
            format: `"tf_saved_model"` or `"onnx"`. An ONNX model has none of
                the other options but `verbose`.
            max_rows: Most rows of a request. A larger request is refused before
                it takes memory, also in TensorFlow Serving, which has no such
                limit itself. A server that joins requests must not join more
                rows than this. `None` for any number.
            max_source_length: Largest size of features of any size; a longer
                row is cut before anything is computed, and has an `error`. An
                integer for all axes of any size; or a dictionary from names of
                inputs to an integer, or to a list with one for each such axis.
                Texts and ids are limited by their `Text`.
            verbose: Whether to print a line for each step: 0, 1, or `"auto"`,
                which prints on a terminal.

        Returns:
            The path of the version, `directory/version`.
        """
        from keras_attn.export import export

        directory = saving.path_of(directory)
        if jit_compile:
            requirements.require_compilable(self.models)
        self._refresh(compare=False)
        self.check()
        if signatures == "all" or "score" in signatures:
            self._require_scorable()
        with _TRACING, anywhere(), without_warnings_of_keras():
            return export(
                self,
                directory,
                version=version,
                signatures=signatures,
                jit_compile=jit_compile,
                weights=weights,
                lengths=lengths,
                buckets=buckets,
                format=format,
                max_rows=max_rows,
                max_source_length=max_source_length,
                verbose=verbose,
            )


def _models(given):
    models = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not models:
        raise ValueError(
            "A `Translator` needs a model. Received: []. Pass a "
            "`keras.Model`, or a list of models."
        )
    return models


def _require_search(search):
    if not isinstance(search, Search):
        raise ValueError(
            "`search` must be a `Search`, such as a `BeamSearch` or a "
            f"`GreedySearch`. Received: search={search!r}. Pass for example "
            "`BeamSearch(5)`."
        )


def _refuse_twice(method, found, options):
    """Refuses arguments that a `from_...` method sets itself."""
    twice = [name for name in found if name in options]
    if twice:
        raise ValueError(
            f"`{method}` makes the model and its texts itself. Received: "
            f"{twice} among its arguments. Leave them out, or call "
            "`Translator` directly."
        )
