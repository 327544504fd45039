"""`Pipeline`: the TensorFlow functions of a `Translator`.

A call and an export use the same functions, so their results agree. In addition
to its sources, a request may have these entries of a dictionary:

- `"prefix"`: strings `(batch,)` with which the outputs begin, "" for none
- `"seed"`: int32 `(batch,)`, for the random draws of each row
- `"options"`: name -> `(batch,)`, overrides the search's own options
- `"terms"`: strings `(batch,)`, phrases that a text must have, joined by line
  feeds
- `"avoid"`: strings `(batch,)`, phrases that a text must not have, as above

If a request lacks one of these, its graph has no operations for it.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_attn.backend import without_gradients
from keras_attn.decoding import Hypotheses
from keras_attn.decoding import LoopPolicy
from keras_attn.decoding import Search
from keras_attn.decoding import SearchInput
from keras_attn.decoding.batching import MOST
from keras_attn.decoding.batching import Buckets
from keras_attn.decoding.language_prompt import LanguagePrompt
from keras_attn.decoding.loop import Loop
from keras_attn.decoding.phrases.glossary import Glossary
from keras_attn.decoding.shortlist import Shortlist
from keras_attn.decoding.translator.cut_model import CutModel
from keras_attn.decoding.translator.model_trial import Examples
from keras_attn.decoding.translator.model_trial import xla_sizes
from keras_attn.decoding.translator.most_attended import most_attended
from keras_attn.decoding.translator.prompts import Prompts
from keras_attn.decoding.translator.request_phrases import RequestPhrases
from keras_attn.decoding.translator.results import Decoded
from keras_attn.decoding.translator.scoring import Scored
from keras_attn.decoding.translator.scoring import Scorer
from keras_attn.decoding.translator.several import Several
from keras_attn.decoding.translator.sources import FeatureSource
from keras_attn.decoding.translator.sources import LineSource
from keras_attn.decoding.translator.sources import open_axes
from keras_attn.decoding.translator.sources import report_of
from keras_attn.decoding.translator.spoken import Reader
from keras_attn.decoding.translator.spoken import Spoken
from keras_attn.decoding.word_times import WordTimes
from keras_attn.decoding.xla_sizes import Sized
from keras_attn.decoding.xla_sizes import XLASizes
from keras_attn.text.text import Text


@dataclasses.dataclass
class Pipeline:
    """Models, texts and a search, joined in TensorFlow functions."""

    models: tuple  # the whole models, which score
    cut: Any  # `Incremental` or `Ensemble`, which decodes
    sources: LineSource | FeatureSource | Several
    examples: Examples  # of the models' inputs
    target_text: Text
    search: Search
    forbidden: tuple = ()  # ids
    replace_unknown: bool = False
    sizes: XLASizes | None = None  # for which XLA compiles the search
    shortlist: Shortlist | None = None
    word_times: WordTimes | None = None
    language_prompt: LanguagePrompt | None = None
    glossary: Glossary | None = None
    buckets: int = 1  # most buckets into which a batch is split, by length
    # Whether padding changes what the models compute, so that only sources of
    # one length are run together.
    of_one_length: bool = False
    for_onnx: bool = False  # whether the graph is to be converted to ONNX
    # Returns the context in which the models compute. An export with compressed
    # weights sets it.
    scope: Callable = contextlib.nullcontext

    def __post_init__(self):
        self._searches = {}

    @property
    def special(self):
        """The `SpecialTokens` of the target text."""
        return self.target_text.special

    @property
    def steps(self) -> int:
        """Most steps of a decoder, those of the start tokens included."""
        more = len(self.special.start) - 1 + self.prompts.length
        return self.search.max_length + more

    @functools.cached_property
    def phrases(self) -> RequestPhrases:
        """The phrases that outputs must have or avoid."""
        leading = None if self.glossary is None else self.sources.leading
        return RequestPhrases(
            self.target_text, self.search.max_length, leading, self.glossary
        )

    @functools.cached_property
    def prompts(self) -> Prompts:
        """The `Prompts`, which add tokens before each target."""
        return Prompts(self.language_prompt, self.cut, self.special, self.scope)

    @functools.cached_property
    def scorer(self) -> Scorer:
        """The whole models, which score targets."""
        return Scorer(self.models, self.special, self.scope)

    def with_texts(self, source_text=None, target_text=None):
        """Returns this pipeline with other `Text`s of the same ids."""
        sources = self.sources
        if source_text is not None:
            sources = sources.with_texts(source_text)
        return dataclasses.replace(
            self, sources=sources, target_text=target_text
        )

    def for_export(self, sizes, buckets=None):
        """Returns this pipeline as it is exported.

        Args:
            sizes: The `XLASizes` for which XLA compiles the search, or None.
            buckets: Most buckets of a batch. By default 4 for texts, and 1 for
                features.
        """
        if buckets is None:
            buckets = MOST if self.sources.texts else 1
        return dataclasses.replace(self, sizes=sizes, buckets=buckets)

    def sizes_by_model(self, sizes: XLASizes) -> XLASizes:
        """Returns sizes for XLA with the defaults for these models filled in.

        Raises:
            ValueError: If the models cannot be padded to such sizes.
        """
        return xla_sizes(
            sizes,
            self.models,
            self.cut,
            self.search,
            self.sources,
            self.examples,
            padding_matters=self.of_one_length,
        )

    def decode(self, given: tuple, request: dict) -> Decoded:
        """Decodes a batch.

        Args:
            given: The tensors that `sources` takes, batch first.
            request: The request; see the module.
        """
        inputs = self.sources.inputs(given)
        report = self.sources.report(given, inputs)
        terms = self.phrases.terms(given, request)
        strings, request = request.get("prefix"), self.with_ids(request)
        if terms is not None:
            request["terms"] = self.phrases.ids_of_terms(terms)
        if strings is not None and strings.dtype == tf.string:
            report = report.beside(self._report_prefixes(strings, request))
        request = self.prompts.completed(inputs, request)
        found = self.search_inputs(inputs, request)
        source_tokens, source_lengths = self.sources.tokens(
            given, found.columns, tf.shape(found.alignments)[3]
        )
        text = self.target_text
        tokens = text.lookup(found.tokens)
        if self.replace_unknown:
            tokens = tf.where(
                found.tokens == text.special.unknown,
                most_attended(
                    found.alignments,
                    source_tokens,
                    source_lengths,
                    first=self.sources.first,
                    last=self.sources.last,
                    unknown=text.tokens[text.special.unknown],
                ),
                tokens,
            )
            texts = text.join(tokens, found.tokens)
        else:
            texts = text.strings(found.tokens, tokens)
        real = tf.sequence_mask(found.lengths, self.search.max_length)
        return Decoded(
            source_tokens=source_tokens,
            source_lengths=source_lengths,
            texts=texts,
            tokens=tf.where(real, tokens, ""),
            hypotheses=found,
            report=report,
            missing=() if terms is None else self.phrases.missing(terms, found),
        )

    def words(self, given: tuple, request: dict) -> tuple[Decoded, Spoken]:
        """Decodes a batch of sounds, and finds when each word is spoken."""
        inputs = self.sources.inputs(given)
        if self.language_prompt is None:
            begun = tf.zeros([tf.shape(inputs[0])[0], 0], tf.int32)
        else:
            request = self.prompts.completed(inputs, self.with_ids(request))
            begun = request["begun"]
        decoded = self.decode(given, request)
        with self.scope():
            found = decoded.hypotheses
            return decoded, self._reader(inputs, begun, found)

    @functools.cached_property
    def _reader(self):
        times: Any = self.word_times
        return Reader(self.cut, times, self.target_text, self.sources)

    def require_word_times(self) -> None:
        """Raises `ValueError` unless words can be timed."""
        if self.word_times is None:
            raise ValueError(
                "Times of words need attention heads of the model that follow "
                "the speech. Received: a translator without `word_times`. Pass "
                "`Translator(..., word_times=WordTimes(heads))`; for Whisper, "
                "`Translator.from_hugging_face` sets them."
            )
        _ = self._reader  # raises what is wrong with the heads

    def _report_prefixes(self, strings, request):
        """Reports which prefixes were cut, and their unknown tokens."""
        ids = request["prefix"]
        report = report_of(self.target_text, strings, ids)
        options = request.get("options", {})
        longest = options.get("max_length", self.search.max_length)
        real = ids != self.special.pad
        lengths = tf.reduce_sum(tf.cast(real, tf.int32), axis=1)
        lengths -= self.prompts.lengths_in(ids)
        return report._replace(truncated=report.truncated | (lengths > longest))

    def with_ids(self, request: dict) -> dict:
        """Returns a request with ids instead of strings.

        The ids of prefixes are `(batch, length)`. The ids of phrases have the
        form that a `PhraseMatcher` takes.
        """
        found = self.phrases.ids_of(request)
        if "prefix" in request and request["prefix"].dtype == tf.string:
            ids = self.target_text.ids(request["prefix"], end=False)
            found["prefix"] = ids
        return {**request, **found}

    def search_inputs(self, inputs: tuple, request: dict) -> Hypotheses:
        """Decodes the model's source inputs; XLA may compile this part.

        Args:
            inputs: The model's inputs but the last.
            request: The result of `with_ids()`.
        """
        request = self.prompts.completed(inputs, request)
        if "seed" not in request:
            request = request | self._drawn(inputs)
        if self.glossary is not None and "terms" not in request:
            terms = self.phrases.ids_of_terms(
                self.phrases.glossary_terms(inputs)
            )
            request = {**request, "terms": terms}
        search = self._in_buckets(self._search(request), self.buckets)
        plain = functools.partial(search, inputs, request)
        # XLA compiles no search with phrases, since their number varies.
        if self.sizes is None or {"terms", "avoid"} & set(request):
            return plain()
        request = self._completed(request, inputs)
        compiled = self._search(request, compiled=True)
        return self._sized.run(
            compiled, plain, inputs, request, self.sources.attended
        )

    @property
    def _sized(self):
        texts = dict(self.sources.texts)
        numbers = range(len(self.sources.input_specs))
        return Sized(
            self.sizes,
            axes=open_axes(self.sources.input_specs),
            padding=[
                texts[i].special.pad if i in texts else 0 for i in numbers
            ],
            longest=[
                texts[i].longest_source if i in texts else None for i in numbers
            ],
            prefix=(self.search.max_length, self.special.pad),
        )

    def warm_up(self) -> None:
        """Compiles the search for all sizes."""
        if self.sizes is None:
            raise ValueError(
                "`warm_up` compiles a search by XLA. Received: a translator "
                "without XLA. Make it with `jit_compile=True`."
            )

        # In a graph, as XLA compiles what is called outside of one separately.
        @tf.function(
            input_signature=[self.sources.input_specs], autograph=False
        )
        def search(inputs):
            return self.search_inputs(inputs, {})

        for rows, size in self.sizes:
            search(tuple(self._example(rows, size)))

    def _example(self, rows, size):
        """Returns source inputs with `rows` rows, and open axes of one size."""
        found, texts = [], dict(self.sources.texts)
        for i, (spec, x) in enumerate(
            zip(self.sources.input_specs, self.examples.sources, strict=True)
        ):
            wide = min(size, texts[i].longest_source) if i in texts else size
            shape = [rows, *(n or wide for n in spec.shape[1:])]
            found.append(tf.constant(np.resize(x, shape), spec.dtype))
        return found

    def _completed(self, request, inputs):
        """Returns a request with a prefix and all options filled in.

        Otherwise XLA would compile a search for each combination of these. One
        search for all combinations takes 3 % more time.
        """
        rows = tf.shape(inputs[0])[0]
        own = self.search.request_options.own(rows)
        return {
            "prefix": tf.zeros([rows, 0], tf.int32),
            **request,
            "options": own | request.get("options", {}),
        }

    def _in_buckets(self, function, most=1):
        """Returns a function of rows that runs them in at most `most` buckets.

        Rows of different lengths always run separately if padding matters.
        """
        alone = self.of_one_length and not self.for_onnx
        if most == 1 and not alone:
            return function
        most = None if alone else most
        buckets = Buckets(self.sources.texts, self.search.max_length, most)
        return functools.partial(buckets, function)

    def _drawn(self, inputs) -> dict:
        """Returns a request of new seeds, empty if the search draws nothing."""
        if not self.search.draws:
            return {}
        return {"seed": self.fresh_seeds(tf.shape(inputs[0])[0])}

    def fresh_seeds(self, rows) -> tf.Tensor:
        """Draws seeds `(rows,)`, new for every request and in every process.

        With `seed` and `seed2` zero, the operation takes its seeds from the
        system. `tf.random` would store seeds in the graph, the same in every
        process that loads an export.
        """
        return tf.raw_ops.RandomUniformInt(
            shape=[rows], minval=0, maxval=tf.int32.max, seed=0, seed2=0
        )

    def _search(self, request, compiled=False):
        """Returns the function for requests with these keys, traced once."""
        options = sorted(request.get("options", ()))
        key = (compiled, *sorted(request), *options)
        if key not in self._searches:
            specs = {}
            if "prefix" in request:
                specs["prefix"] = tf.TensorSpec([None, None], tf.int32)
            if "begun" in request:
                count = request["begun"].shape[1]
                specs["begun"] = tf.TensorSpec([None, count], tf.int32)
            specs |= self.phrases.specs(request)
            if "seed" in request:
                specs["seed"] = tf.TensorSpec([None], tf.int32)
            if "options" in request:
                specs["options"] = self.search.request_options.specs(options)

            search: Any = functools.partial(
                self.decode_inputs, compiled=compiled
            )
            search.__name__ = "search"  # in graphs and their errors
            self._searches[key] = tf.function(
                search,
                input_signature=[self.sources.input_specs, specs],
                jit_compile=compiled or None,
                autograph=False,
                # As one operation, since in a branch that is not taken each
                # operation costs time.
                experimental_attributes={"_noinline": True},
            )
        return self._searches[key]

    def decode_ids(self, inputs: tuple) -> Hypotheses:
        """Decodes the model's source inputs in a caller's graph."""
        asks = self.language_prompt is not None or self.glossary is not None
        if self.of_one_length or asks:
            return self.search_inputs(inputs, {})
        if self.sizes is None:
            return self.decode_inputs(inputs, self._drawn(inputs))
        # XLA may compile the caller's graph. Is one row slower than two there?
        rows = tf.shape(inputs[0])[0]
        if min(self.sizes.rows or (1,)) > 1:
            twice = tf.range(tf.where(rows == 1, 2, rows)) % tf.maximum(rows, 1)
            inputs = tuple(tf.gather(x, twice) for x in inputs)
        found = self.decode_inputs(inputs, self._drawn(inputs), compiled=True)
        return tf.nest.map_structure(lambda x: x[:rows], found)

    def decode_inputs(
        self, inputs: tuple, request: dict, compiled: bool = False
    ) -> Hypotheses:
        """Encodes and searches: the function that `search_inputs` compiles.

        Args:
            inputs: The model's source inputs.
            request: The result of `with_ids()`.
            compiled: Whether XLA may compile it.
        """
        with self.scope(), without_gradients():
            encoded = self.cut.encode(*inputs)
            search_input, subset = self.search_input(
                inputs, encoded, request, hoists=True, compiled=compiled
            )
            found = Loop(self.search, search_input)()
            width = tf.shape(found.alignments)[3]
            return found._replace(
                tokens=self._ids(found, subset),
                columns=self.columns(inputs, encoded, width),
            )

    def _ids(self, found, subset):
        """Returns the ids of tokens, padded with the target text's `pad`."""
        tokens, pad = found.tokens, self.special.pad
        if subset is None and pad == 0:  # searches pad with 0
            return tokens
        real = tf.sequence_mask(found.lengths, tokens.shape[2])
        if subset is not None:
            tokens = subset.ids_of(tokens, real)
        return tf.where(real, tokens, pad)

    def search_input(
        self,
        inputs: tuple,
        encoded,
        request: dict,
        hoists: bool = False,
        compiled: bool = False,
    ) -> tuple:
        """Returns the input of the search.

        Args:
            inputs: The model's source inputs.
            encoded: The sources as encoded by the cut model.
            request: The result of `with_ids()`.
            hoists: Whether constant products are moved out of the steps, which
                is faster in a loop.
            compiled: Whether XLA may compile the loop.

        Returns:
            The `SearchInput`, and the `VocabularySubset` whose columns are its
            tokens; None without a shortlist.
        """
        attended, nowhere = self.sources.attended, 0
        if attended is not None:
            nowhere = tf.shape(inputs[attended])[1]
        rows = tf.shape(inputs[0])[0]
        begun = request.get("begun")
        model = self.step_model(encoded, rows, begun, nowhere=nowhere)
        if hoists:
            model = model.hoisted(compiled)
        found = SearchInput(
            model=model,
            start_token=(
                self.special.start[-1] if begun is None else begun[:, -1]
            ),
            end_token=self.special.end,
            forbidden=(*self.special.never_written, *self.forbidden),
            source_mask=self.cut.source_mask(encoded),
            source_lengths=self._source_lengths(inputs, encoded),
            prefix=request.get("prefix"),
            seed=request.get("seed"),
            options=request.get("options"),
            padding=self.special.pad,
            policy=self._policy(inputs, compiled),
            rules=self.phrases.rules(request),
        )
        if self.shortlist is None:
            return found, None
        leading: Any = self.sources.leading  # there is a text, as was checked
        number, text = leading
        subset = self.shortlist.subset(
            inputs[number],
            text,
            self.target_text,
            self.forbidden,
            self._asked_ids(request),
        )
        found = found._replace(model=model.restricted(subset))
        return subset.restrict(found), subset

    def _asked_ids(self, request):
        """Returns all ids that outputs of a request must have, padded."""
        found = [request[x] for x in ("prefix", "terms") if x in request]
        if not found:
            return None
        rows = tf.shape(found[0])[0]
        counts = [tf.reduce_prod(tf.shape(x)[1:]) for x in found]
        ids = tf.concat(
            [
                tf.reshape(x, tf.stack([rows, count]))
                for x, count in zip(found, counts, strict=True)
            ],
            axis=1,
        )
        return tf.where(ids < 0, self.special.pad, ids)

    def _policy(self, inputs, compiled):
        if tf.executing_eagerly():
            # All places: Keras warns of a softmax over a single position.
            return LoopPolicy("fixed")
        if compiled:
            return LoopPolicy("two loops")
        return LoopPolicy(
            "growing",
            rows_leave=(
                not self.for_onnx  # no loop in a loop, nor rows that leave
                and self.cut.rows_leave
                and inputs[0].shape[0] is None
            ),
            records_end=self.for_onnx,
        )

    def step_model(self, encoded, rows, begun=None, **options) -> CutModel:
        """Returns the models on encoded sources.

        Args:
            encoded: The sources as encoded by the cut model.
            rows: Number of sources.
            begun: Ids `(batch, n)` that follow the start tokens, those of a
                `LanguagePrompt`, or `None`.
            **options: As for `CutModel`.
        """
        start: tuple = self.special.start
        if begun is not None:
            start = *start, *tf.unstack(begun, axis=1)
        return CutModel(self.cut, encoded, rows, start, self.steps, **options)

    def width(self, inputs, encoded):
        """Returns the number of columns of the alignments."""
        mask = self.cut.source_mask(encoded)
        if mask is not None:
            return tf.shape(mask)[1]
        if self.sources.attended is not None:
            return tf.shape(inputs[self.sources.attended])[1]
        # Only the shape of this step is used.
        model = self.step_model(encoded, tf.shape(inputs[0])[0])
        tokens = tf.fill([model.rows, 1], self.special.start[-1])
        _, alignments, _ = model.step(tokens, model.start(1))
        return tf.shape(alignments)[2]

    def columns(self, inputs, encoded, width):
        """Returns each row's number of columns up to the last real one."""
        mask = self.cut.source_mask(encoded)
        if mask is None:
            return tf.fill([tf.shape(inputs[0])[0]], width)
        return tf.reduce_max(tf.where(mask, tf.range(1, width + 1), 0), axis=1)

    def _source_lengths(self, inputs, encoded):
        """Returns the sources' lengths `(batch,)`, or None if not needed."""
        search = self.search
        if search.max_per_source is None and search.min_per_source is None:
            return None
        if self.sources.leading:  # the end token counted
            number, text = self.sources.leading
            real = inputs[number] != text.special.pad
            real = real[:, len(text.special.source_start) :]
        else:
            real = self.cut.source_mask(encoded)
        if real is None:
            width = self.width(inputs, encoded)
            return tf.fill([tf.shape(inputs[0])[0]], width)
        return tf.reduce_sum(tf.cast(real, tf.int32), axis=1)

    def score(self, given: tuple, targets: tf.Tensor) -> Scored:
        """Scores target strings `(batch,)` with the whole models."""
        ids = self.target_text.ids(targets)
        report = report_of(self.target_text, targets, ids)
        return self.score_ids(given, (ids, report))

    def score_ids(self, given: tuple, targets: tuple) -> Scored:
        """Scores targets given as ids `(batch, time)`, padded.

        The log-probability of an end token counts if there is one.

        Args:
            given: The tensors that `sources` takes.
            targets: The ids and their `Report`.
        """
        ids, report = targets
        inputs = self.sources.inputs(given)
        report = self.sources.report(given, inputs).beside(report)
        # The model finds the language, unless the target begins with it.
        request = self.prompts.completed(inputs, {"prefix": ids})
        ids = request["prefix"]
        real = ids != self.special.pad
        read = self.scorer.read_for(ids, request.get("begun"))
        logp = self._in_buckets(self._score_rows())(inputs, (read, ids))
        return Scored(
            tokens=tf.where(real, self.target_text.lookup(ids), ""),
            token_scores=logp,
            lengths=tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            scores=tf.reduce_sum(logp, axis=1),
            report=report,
        )

    def _score_rows(self):
        """Returns a function that scores rows, traced once if split."""
        if not self.of_one_length:
            return self.scorer
        ids = tf.TensorSpec([None, None], tf.int32)
        return tf.function(
            self.scorer.__call__,
            input_signature=[self.sources.input_specs, (ids, ids)],
            autograph=False,
        )
