"""The step of a model, for clients that run their own search.

The encoded tensors and the state are structures; a signature has their tensors
by name. The rows of a step may come from several clients. Each row has its own
position, and padding to the width of other rows does not affect it.
"""

import tensorflow as tf

from keras_attn.caller import warn
from keras_attn.decoding import POSSIBLE
from keras_attn.decoding import Written
from keras_attn.decoding.candidates import log_probabilities
from keras_attn.decoding.rules import Rules
from keras_attn.decoding.translator.sources import open_axes
from keras_attn.export.tf_saved_model import rows
from keras_attn.export.tf_saved_model.border import Border
from keras_attn.export.tf_saved_model.border import sent
from keras_attn.export.tf_saved_model.lengths import cut
from keras_attn.incremental import steps_left
from keras_attn.incremental import with_masks
from keras_attn.incremental import with_positions

# The most hypotheses of a step for each row of `max_rows`; clients often search
# with four or five. A step's memory grows with the rows times the hypotheses.
_HYPOTHESES = 8


def require_rules(search) -> None:
    """Raises `ValueError` if the signature `step` cannot apply a rule.

    Warns if the search has options that `step` leaves to its clients.
    """
    unfit = [x for x in search.rules if not x.reads_logits_alone]
    if unfit:
        raise ValueError(
            "The signature `step` does not know what its clients' hypotheses "
            "contain, so it can apply only rules that read nothing but the "
            f"logits. Received: {unfit}. Leave the rule or the signature out. "
            "If a rule of yours reads only the logits, set "
            "`reads_logits_alone = True` in its class."
        )
    plain = {
        "min_length": 1,
        "min_per_source": None,
        "no_repeat_ngram": 0,
        "repetition_penalty": 1,
    }
    left = [name for name, x in plain.items() if getattr(search, name) != x]
    if left:
        warn(
            f"The signature `step` leaves {' and '.join(left)} to its "
            "clients, which run the search: `step` does not apply these "
            "options.",
        )


class Steps:
    """The functions behind `encode`, `step` and `strings`.

    `encode` must be traced before `step`, as its outputs are inputs of `step`.
    `keras_attn.export` lists the inputs and outputs of each, with shapes.

    Args:
        pipeline: `Pipeline` of a translator.
        max_rows: Most rows of a request, or `None` for any number.
        longest: Largest size of a source, or `None` if there is no limit.
    """

    def __init__(self, pipeline, max_rows=None, longest=None):
        self.pipeline = pipeline
        self._max_rows, self._longest = max_rows, longest
        self._encoded = self._state = None  # `Border`s
        self._widest = None  # largest size of an open axis of `_encoded`

    def specs(self, name) -> tuple[tf.TensorSpec, ...]:
        """Returns the specs of the inputs of `step` or `strings`."""
        if name == "strings":
            return (
                tf.TensorSpec([None, None], tf.int32, name="ids"),
                tf.TensorSpec([None], tf.int32, name="lengths"),
            )
        widths = []
        if self._open:
            shape = [None, len(self._open)]
            widths = [tf.TensorSpec(shape, tf.int32, name="widths")]
        return (
            tf.TensorSpec([None, None], tf.int32, name="tokens"),
            *widths,
            *self._state.specs,
            *self._encoded.specs,
        )

    def encode(self, given, error):
        """Encodes sources.

        Args:
            given: The sources' tensors, with bad rows replaced.
            error: Errors of the rows `(batch,)`.

        Returns:
            A dictionary of the outputs of `encode`: all inputs of the first
            step, `source_tokens`, `source_length`, `end` and `error`.
        """
        pipeline = self.pipeline
        inputs = pipeline.sources.inputs(given)
        with pipeline.scope():
            found = pipeline.cut.encode(*inputs)
            width = pipeline.width(inputs, found)
            encoded = with_masks(found)
            rows_ = tf.shape(inputs[0])[0]
            state = pipeline.step_model(encoded, rows_).start(1)
        self._encoded = Border("encoded", encoded, arranged=1)
        self._state = Border("state", state, arranged=2)
        self._widest = self._width_of_longest()
        columns = pipeline.columns(inputs, found, width)
        tokens, lengths = pipeline.sources.tokens(given, columns, width)
        batch = tf.shape(inputs[0])[0]
        widths = {}
        if self._open:
            row = [
                *self._state.widths(state),
                *self._encoded.widths(encoded),
            ]
            widths = {"widths": tf.tile(tf.stack(row)[None], [batch, 1])}
        bad = rows.is_bad(error)
        return {
            "source_tokens": tf.where(bad[:, None], "", tokens),
            "source_length": tf.where(bad, 0, lengths),
            "end": tf.fill([batch], pipeline.special.end),
            "error": error,
            "tokens": tf.fill([batch, 1], pipeline.special.start[-1]),
            **widths,
            **self._state.named(state),
            **self._encoded.named(encoded),
        }

    def _width_of_longest(self):
        """Returns the largest size of an open axis of the encoded tensors.

        An encoder may return fewer or more positions than its source has. The
        ratio, rounded up, is found by encoding the examples. Returns `None` if
        the sizes of sources have no limit.
        """
        if self._longest is None:
            return None
        given = self.pipeline.examples.sources

        def sizes(*inputs):  # traced with unknown sizes, which give open axes
            encoded = with_masks(self.pipeline.cut.encode(*inputs))
            return self._encoded.widths(encoded)

        with tf.init_scope(), self.pipeline.scope():
            specs = self.pipeline.sources.input_specs
            run = tf.function(sizes, input_signature=specs, autograph=False)
            widths = [int(x) for x in run(*map(tf.constant, given))]
        axes = open_axes(self.pipeline.sources.input_specs)
        size = max(given[i].shape[axis] for i, axis in axes)
        return self._longest * -(-max(widths, default=1) // size)

    def step(self, tokens, *tensors):
        if self._max_rows is not None:
            most = self._max_rows * _HYPOTHESES
            count = tf.size(tokens, tf.int64)
            few = rows.at_most(count, most, "hypotheses together")
            with tf.control_dependencies([few]):
                tokens, *tensors = map(tf.identity, (tokens, *tensors))
        error, state, encoded = self._received(tokens, tensors)
        error = rows.first(self._errors(tokens, state), error[:, None])
        bad = rows.is_bad(error)
        tokens = tf.where(bad, self.pipeline.special.pad, tokens)
        state = with_positions(state, lambda x: tf.where(bad, 0, x))
        with self.pipeline.scope():
            model = self.pipeline.step_model(
                encoded, tf.shape(tokens)[0], per_row_position=True
            )
            logits, alignments, state = model.step(tokens, state)
        logp = self._by_rules(logits)
        error = rows.first(
            error,
            rows.wrong(
                tf.reduce_any(tf.math.is_nan(logp), axis=2),
                "The model's logits must be finite. Received: NaN. Inputs or "
                "weights that are not finite cause this.",
            ),
        )
        never = [*self.pipeline.special.never_written, *self.pipeline.forbidden]
        never = tf.reduce_any(
            tf.one_hot(never, logp.shape[-1], True, False), axis=0
        )
        never |= rows.is_bad(error)[..., None]
        return {
            "log_probabilities": tf.where(never, float("-inf"), logp),
            "alignments": tf.cast(alignments, sent(alignments.dtype)),
            "error": error,
            **self._state.named(state),
        }

    def _by_rules(self, logits):
        """Returns log-probabilities, minus infinity where a rule forbids it."""
        rules = Rules(self.pipeline.search.rules)
        nothing = Written(None, None)  # unknown here; only clients have it
        ruled = rules.apply(logits, nothing, rules.start(0, 1))
        logp = log_probabilities(ruled.logits, ruled.penalties, ruled.allowed)
        return tf.where(logp <= POSSIBLE, float("-inf"), logp)

    def strings(self, ids, lengths):
        text, columns = self.pipeline.target_text, tf.shape(ids)[1]
        longest = max(text.max_length + 1, self.pipeline.steps)
        # `of_ids` needs at least one column.
        ids = tf.pad(ids[:, :longest], [[0, 0], [0, 1]])
        real = tf.sequence_mask(lengths, tf.shape(ids)[1])
        # Ids after the end token do not belong to the text.
        ended = tf.cast(ids == text.special.end, tf.int32)
        ended = tf.cumsum(ended, axis=1) > 0
        real &= ~ended
        error = rows.first(
            rows.of_lengths(lengths, columns),
            rows.too_long(lengths, longest, "ids"),
            rows.of_ids(ids, real, text, "ids"),
        )
        real &= ~rows.is_bad(error)[:, None]
        ids = tf.where(real, ids, text.special.pad)
        return {"text": text.strings(ids), "error": error}

    @property
    def _open(self):
        return [*self._state.open, *self._encoded.open]

    def _received(self, tokens, tensors):
        """Restores the structures from the tensors that a client sent.

        Returns:
            Errors `(batch,)` of rows whose encoded tensors are too wide, the
            state, and the encoded tensors. Both are zero past a row's widths.
        """
        tensors, widths = list(tensors), []
        error = tf.fill([tf.shape(tokens)[0]], "")
        if self._open:
            widths = tf.unstack(tensors.pop(0), axis=1)
        states, opens = len(self._state.names), len(self._state.open)
        if self._widest is not None:
            most = dict.fromkeys(self._encoded.open, self._widest)
            tensors[states:] = cut(tensors[states:], most)
            for (i, _), width in zip(
                self._encoded.open, widths[opens:], strict=True
            ):
                name = self._encoded.names[i]
                found = rows.too_long(width, self._widest, name)
                error = rows.first(error, found)
        encoded = self._encoded.packed(tensors[states:], widths[opens:])
        state = self._state.packed(tensors[:states], widths[:opens])
        with self.pipeline.scope():
            like = self.pipeline.cut.start(
                encoded, tf.shape(tokens)[1], self.pipeline.steps
            )
        return error, self._state.cut(state, like), encoded

    def _errors(self, tokens, state):
        """Returns the errors of hypotheses, strings `(batch, beams)`."""
        size = self.pipeline.target_text.size
        error = rows.wrong(
            (tokens < 0) | (tokens >= size),
            f"`tokens` must be ids of the target's vocabulary, between 0 and "
            f"{size - 1}. Received: ",
            tokens,
            ".",
        )
        longest = self.pipeline.search.max_length
        left = steps_left(state, self.pipeline.steps)
        if left is None:
            return error
        return rows.first(
            error,
            rows.wrong(
                left <= 0,
                f"This export allows {longest} steps, the `max_length` of its "
                "search. Received: one step more. Stop after that many steps, "
                "or export with a larger `max_length`.",
            ),
        )
