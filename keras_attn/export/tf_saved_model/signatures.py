"""`Signatures`: a function for each signature, of the same name."""

import functools

import tensorflow as tf

from keras_attn.export.tf_saved_model import rows
from keras_attn.export.tf_saved_model.guards import OfText
from keras_attn.export.tf_saved_model.steps import Steps

PLAIN = ("serving_default", "nbest", "align", "ids")
STEPS = ("encode", "step", "strings")
WORDS = "words"
TERMS = "terms"
FURTHER = ("options", "score", *STEPS, WORDS, TERMS)

_IDS = (
    tf.TensorSpec([None, None], tf.int32, name="ids"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)
_PREFIX = tf.TensorSpec([None], tf.string, name="prefix")
_SEED = tf.TensorSpec([None], tf.int32, name="seed")
_PHRASES = (
    tf.TensorSpec([None], tf.string, name="terms"),
    tf.TensorSpec([None], tf.string, name="avoid"),
)
_TARGET = tf.TensorSpec([None], tf.string, name="target")


class Signatures:
    """The functions of an export's signatures, and the specs of their inputs.

    `keras_attn.export` lists the inputs and outputs of each, with shapes.

    Args:
        pipeline: `Pipeline` of a translator, whose texts are read from files.
        max_rows: Most rows of a request, or `None` for any number.
        guards: Guards of the sources, in addition to those of their texts.
        longest: Largest size of a source, or `None` if there is no limit.
    """

    def __init__(self, pipeline, max_rows=None, guards=(), longest=None):
        self.pipeline = pipeline
        self.sources = pipeline.sources.specs
        self._max_rows = max_rows
        texts = pipeline.sources.texts
        of_texts = [OfText(i, x, self.sources[i].name) for i, x in texts]
        self._guards = [*guards, *of_texts]
        self._steps = Steps(pipeline, max_rows, longest)

    @staticmethod
    def names(further, impossible=()) -> tuple[str, ...]:
        """Returns the plain signatures and the further ones requested.

        Args:
            further: The argument `signatures` of an export.
            impossible: The signatures that "all" leaves out.

        Raises:
            ValueError: If `further` is neither "all" nor a list of names.
        """
        if further == "all":
            further = [x for x in FURTHER if x not in impossible]
        if isinstance(further, str) or set(further) - {*PLAIN, *FURTHER}:
            raise ValueError(
                '`signatures` must be "all" or a list of some of '
                f"{list(FURTHER)}; {list(PLAIN)} are always there. Received: "
                f"signatures={further!r}"
            )
        wanted = set(further)
        if wanted & {"encode", "step"}:  # each needs the others
            wanted |= {*STEPS}
        return *PLAIN, *(x for x in FURTHER if x in wanted)

    def specs(self, name) -> tuple[tf.TensorSpec, ...]:
        """Returns the specs of a signature's inputs, in their order."""
        if name == "ids" and self.pipeline.sources.reads_text:
            return _IDS
        if name == "options":
            specs = *self.sources, *self._request_specs()
        elif name == TERMS:
            specs = *self.sources, *self._request_specs(), *_PHRASES
        elif name == "score":
            specs = *self.sources, _TARGET
        elif name == WORDS:
            specs = *self.sources, _PREFIX
        elif name in ("step", "strings"):
            return self._steps.specs(name)
        else:
            return self.sources
        names = [spec.name for spec in specs]
        twice = {x for x in names if names.count(x) > 1}
        if twice:
            raise ValueError(
                f"The signature '{name}' adds inputs to those of the model, "
                "and all names must differ. Received: a model that has inputs "
                f"named {twice} too. Build it with other names, or leave the "
                "signature out."
            )
        return specs

    def function(self, name):
        """Returns the function of a signature, which takes its inputs."""
        run = getattr(self, name)
        if name == "ids" and not self.pipeline.sources.reads_text:
            run = self.ids_of_features

        @functools.wraps(run)
        def checked(*given):
            specs = self.specs(name)
            return run(*rows.required(name, specs, given, self._max_rows))

        return checked

    def serving_default(self, *given):
        decoded = self._decode(given)
        return {
            "text": decoded.texts[:, 0],
            "score": decoded.hypotheses.scores[:, 0],
            "empty": decoded.report.empty,
            **_missing(decoded),
        }

    def nbest(self, *given):
        decoded = self._decode(given)
        return {
            "texts": decoded.texts,
            "scores": decoded.hypotheses.scores,
            "finished": decoded.hypotheses.finished,
            "empty": decoded.report.empty,
            **_missing(decoded),
        }

    def align(self, *given):
        decoded = self._decode(given)
        return {
            "text": decoded.texts[:, 0],
            "score": decoded.hypotheses.scores[:, 0],
            **_aligned(decoded),
            "finished": decoded.hypotheses.finished[:, 0],
            **decoded.report._asdict(),
            **_missing(decoded),
        }

    def ids(self, ids, lengths):
        text, columns = self.pipeline.sources.text, tf.shape(ids)[1]
        longest = text.longest_source
        ids = ids[:, :longest]
        # RNNs refuse a length of zero.
        missing = tf.cast(columns == 0, tf.int32)
        ids = tf.pad(ids, [[0, 0], [0, missing]])
        real = tf.sequence_mask(lengths, tf.shape(ids)[1])
        error = rows.first(
            rows.of_lengths(lengths, columns),
            rows.too_long(lengths, longest, "ids"),
            rows.of_ids(ids, real, text, "ids"),
        )
        ids = tf.where(real, ids, text.special.pad)
        empty = rows.are_empty(ids, text.special)
        ids = rows.harmless_ids(rows.is_bad(error), ids, text.special)
        return self._ids((ids,), error, empty)

    def ids_of_features(self, *given):
        given, error = self._checked(given)
        if error is None:
            error = self._no_error(given)
        sources = self.pipeline.sources
        inputs = sources.inputs(given)
        return self._ids(inputs, error, sources.report(given, inputs).empty)

    def _ids(self, inputs, error, empty):
        request, more = {}, {}
        if self.pipeline.glossary is not None:
            terms = self.pipeline.phrases.glossary_terms(inputs)
            request["terms"] = self.pipeline.phrases.ids_of_terms(terms)
        found = self.pipeline.search_inputs(inputs, request)
        if request:
            more["missing"] = self.pipeline.phrases.missing(terms, found)[:, 0]
        error = rows.first(error, rows.of_found(found))
        bad = rows.is_bad(error)
        found = rows.emptied(found, bad)
        return {
            "ids": found.tokens,
            "lengths": found.lengths,
            "scores": found.scores,
            "empty": empty & ~bad,
            **{name: tf.where(bad, "", x) for name, x in more.items()},
            "error": error,
        }

    def options(self, *tensors):
        return self._asked("options", tensors)

    def terms(self, *tensors):
        return self._asked(TERMS, tensors)

    def _asked(self, name, tensors):
        """Answers a request that sets options, and perhaps phrases."""
        given = tensors[: len(self.sources)]
        names = [spec.name for spec in self.specs(name)]
        asked = dict(zip(names, tensors, strict=True))
        asked = {x: asked[x] for x in names[len(self.sources) :]}
        phrases = {x: asked.pop(x) for x in _names_of_phrases(asked)}
        options = self.pipeline.search.request_options
        asked |= {x: asked.pop(options.in_exports(x)) for x in options}
        given, error = self._checked(given)
        prefix = asked.pop("prefix")
        request, errors = {}, [error, *self._errors_of_prefix(prefix)]
        if self.pipeline.search.draws:
            seed = asked.pop("seed")
            fresh = self.pipeline.fresh_seeds(tf.shape(seed)[0])
            request["seed"] = tf.where(seed < 0, fresh, seed)
        errors += options.errors(asked)
        if phrases:
            errors += self._errors_of_phrases(asked["max_length"], **phrases)
        error = rows.first(*(x for x in errors if x is not None))
        bad = rows.is_bad(error)
        request["prefix"] = tf.where(bad, "", prefix)
        request["options"] = options.with_own(asked, bad)
        request |= {x: tf.where(bad, "", y) for x, y in phrases.items()}
        if not self.pipeline.search.takes_steering:
            request.pop("terms", None)  # rows with terms already have an error
        decoded = self.pipeline.decode(given, request)
        error = rows.first(error, rows.of_found(decoded.hypotheses))
        decoded = _emptied(decoded, rows.is_bad(error))
        scores = decoded.hypotheses.scores
        missing = _missing(decoded)
        if phrases:
            nothing = tf.fill(tf.shape(error), "")
            missing = {"missing": nothing} | missing | _aligned(decoded)
        return {
            "text": decoded.texts[:, 0],
            "score": scores[:, 0],
            "texts": decoded.texts,
            "scores": scores,
            "finished": decoded.hypotheses.finished,
            **decoded.report._asdict(),
            **missing,
            "error": error,
        }

    def words(self, *tensors):
        *given, prefix = tensors
        given, error = self._checked(tuple(given))
        error = rows.first(
            *(
                x
                for x in (error, *self._errors_of_prefix(prefix))
                if x is not None
            )
        )
        prefix = tf.where(rows.is_bad(error), "", prefix)
        decoded, spoken = self.pipeline.words(given, {"prefix": prefix})
        found = rows.of_found(decoded.hypotheses)
        error = rows.first(error, found)
        bad = rows.is_bad(error)
        decoded = _emptied(decoded, bad)
        none = bad[:, None]
        return {
            "text": decoded.texts[:, 0],
            "score": decoded.hypotheses.scores[:, 0],
            "words": tf.where(none, "", spoken.words),
            "starts": tf.where(none, 0.0, spoken.starts),
            "ends": tf.where(none, 0.0, spoken.ends),
            "probabilities": tf.where(none, 0.0, spoken.probabilities),
            "word_count": tf.where(bad, 0, spoken.counts),
            "no_speech": tf.where(bad, 0.0, spoken.no_speech),
            "prompt": tf.where(bad, "", spoken.prompts),
            "finished": decoded.hypotheses.finished[:, 0],
            "truncated": decoded.report.truncated,
            "empty": decoded.report.empty,
            "error": error,
        }

    def score(self, *tensors):
        *given, target = tensors
        given, error = self._checked(tuple(given))
        errors = [
            error,
            rows.of_text(self.pipeline.target_text, target, "target"),
        ]
        errors = [x for x in errors if x is not None]
        error = rows.first(*errors) if errors else self._no_error(given)
        target = tf.where(rows.is_bad(error), "", target)
        scored = self.pipeline.score(given, target)
        error = rows.first(
            error,
            rows.wrong(
                tf.math.is_nan(scored.scores),
                "The model's logits must be finite. Received: NaN. Inputs or "
                "weights that are not finite cause this.",
            ),
        )
        bad = rows.is_bad(error)
        return {
            "score": tf.where(bad, float("-inf"), scored.scores),
            "token_scores": tf.where(bad[:, None], 0.0, scored.token_scores),
            "length": tf.where(bad, 0, scored.lengths),
            **_without(scored.report, bad)._asdict(),
            "error": error,
        }

    def encode(self, *given):
        given, error = self._checked(given)
        if error is None:
            error = self._no_error(given)
        return self._steps.encode(given, error)

    def step(self, *tensors):
        return self._steps.step(*tensors)

    def strings(self, ids, lengths):
        return self._steps.strings(ids, lengths)

    def _decode(self, given):
        """Decodes sources; bad rows get empty results, without an error."""
        given, error = self._checked(given)
        decoded = self.pipeline.decode(given, {})
        if error is None:
            return decoded
        return _emptied(decoded, rows.is_bad(error))

    def _checked(self, given):
        """Replaces bad rows; returns the sources and the errors `(batch,)`.

        The errors are `None` if nothing has to be checked.
        """
        errors = [x for guard in self._guards for x in guard.errors(given)]
        if not errors:
            return given, None
        error = rows.first(*errors)
        for guard in self._guards:
            given = guard.harmless(given, rows.is_bad(error))
        return tuple(given), error

    def _no_error(self, given):
        return tf.fill([tf.shape(given[0])[0]], "")

    def _errors_of_prefix(self, prefix):
        text = self.pipeline.target_text
        too_long = rows.of_text(text, prefix, "prefix")
        if too_long is not None:
            prefix = tf.where(rows.is_bad(too_long), "", prefix)
        ids = text.uncut_ids(prefix)[:, : text.max_length]
        ids = ids.to_tensor(text.special.pad)
        longest = self.pipeline.search.max_length
        return too_long, rows.of_prefix(ids, prefix, longest, self.pipeline)

    def _errors_of_phrases(self, max_length, terms, avoid):
        """Returns the errors of terms, and those of phrases to avoid."""
        search = self.pipeline.search
        longest = tf.where(max_length < 1, search.max_length, max_length)
        if search.takes_steering:
            errors = [rows.of_phrases("terms", terms, self.pipeline, longest)]
        else:
            errors = [
                rows.wrong(
                    tf.strings.strip(terms) != "",
                    "`terms` need a model that was exported with a "
                    "`BeamSearch`. Received: ",
                    terms,
                    f" with {type(search).__name__}. Leave them out.",
                )
            ]
        return [*errors, rows.of_phrases("avoid", avoid, self.pipeline)]

    @property
    def numbers_asked(self) -> list[tf.TensorSpec]:
        """The specs of the numeric inputs of `options`, each `(batch,)`."""
        search = self.pipeline.search
        numbers = [_SEED] if search.draws else []
        options = search.request_options
        for option, dtype in options.items():
            name = options.in_exports(option)
            numbers.append(tf.TensorSpec([None], dtype, name=name))
        return numbers

    def _request_specs(self):
        return [_PREFIX, *self.numbers_asked]


def _emptied(decoded, bad):
    """Returns `Decoded` with empty results for the bad rows."""
    return decoded._replace(
        source_tokens=tf.where(bad[:, None], "", decoded.source_tokens),
        source_lengths=tf.where(bad, 0, decoded.source_lengths),
        texts=tf.where(bad[:, None], "", decoded.texts),
        tokens=tf.where(bad[:, None, None], "", decoded.tokens),
        hypotheses=rows.emptied(decoded.hypotheses, bad),
        report=_without(decoded.report, bad),
        missing=(
            ()
            if isinstance(decoded.missing, tuple)
            else tf.where(bad[:, None], "", decoded.missing)
        ),
    )


def _names_of_phrases(names):
    return [spec.name for spec in _PHRASES if spec.name in names]


def _missing(decoded):
    """Returns the output `missing`, the terms that the best texts lack.

    There is no such output if neither the request nor a glossary has terms.
    """
    if isinstance(decoded.missing, tuple):
        return {}
    return {"missing": decoded.missing[:, 0]}


def _aligned(decoded):
    """Returns the alignments and tokens of the best texts, and the sources'."""
    found = decoded.hypotheses
    return {
        "source_tokens": decoded.source_tokens,
        "source_length": decoded.source_lengths,
        "tokens": decoded.tokens[:, 0],
        "length": found.lengths[:, 0],
        "alignments": found.alignments[:, 0],
    }


def _without(report, bad):
    """Returns a `Report` in which `empty` is false for bad rows.

    Only the text that replaces a bad row is empty, not the row itself.
    """
    return report._replace(empty=report.empty & ~bad)
