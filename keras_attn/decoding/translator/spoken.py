"""`Spoken`: the words that a speech model wrote, and their times."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.backend import without_gradients
from keras_attn.decoding.word_times import WordTimes
from keras_attn.text.text import Text
from keras_attn.text.word_groups import WordGroups


class Spoken(NamedTuple):
    """The words of the best hypotheses, padded beyond `counts`."""

    words: tf.Tensor  # (batch, words), strings
    starts: tf.Tensor  # (batch, words), seconds, float32
    ends: tf.Tensor  # (batch, words), seconds, float32
    probabilities: tf.Tensor  # (batch, words), float32
    counts: tf.Tensor  # (batch,), int32
    no_speech: tf.Tensor  # (batch,), float32, the probability of silence
    prompts: tf.Tensor  # (batch,), strings: the tokens before the text


class Reader:
    """Reads the best hypotheses once more to find when they are spoken.

    Each row is read alone, so padding cannot change its times.

    Args:
        cut: The `Incremental`.
        times: The `WordTimes`.
        text: `Text` of the targets.
        sources: The `FeatureSource`.

    Raises:
        ValueError: If there are several models, if the model does not read
            sound, or if it does not have one of the heads or ids.
    """

    def __init__(self, cut: Any, times: WordTimes, text: Text, sources: Any):
        if not hasattr(cut, "heads_at_once"):
            raise ValueError(
                "`word_times` needs a translator of one model. Received: "
                f"{len(cut.models)} models. Leave `word_times` out, or pass "
                "one model."
            )
        specs = sources.input_specs
        first, *others = specs
        if others or first.dtype.is_integer or first.shape.rank != 2:
            raise ValueError(
                "`word_times` needs a model that reads sound, `(batch, "
                f"samples)`. Received: one that reads {list(specs)}."
            )
        ids = [x for x in (*times.before, times.no_speech) if x is not None]
        if max(ids, default=0) >= text.size:
            raise ValueError(
                "`before` and `no_speech` of `word_times` must be ids of the "
                f"target text, below {text.size}. Received: {times}"
            )
        self._times, self._special = times, text.special
        self._text, self._longest = text, cut.longest
        self._heads = cut.heads_at_once(times.heads)
        self._groups = WordGroups(text)
        spelled = {*text.special.spelled_tokens}
        usual = {*text.special.of_text(text.size)} - spelled
        self._is_text = [i in usual for i in range(text.size)]
        self._is_time = [i in spelled for i in range(text.size)]

    def __call__(self, inputs: tuple, begun, found) -> Spoken:
        """Returns the words of the best hypotheses, and their times.

        Args:
            inputs: The model's source inputs.
            begun: Ids `(batch, n)` that follow the start tokens.
            found: The `Hypotheses`.
        """
        with without_gradients():
            border = self._heads.encode(inputs)
            columns = self._times.columns(*inputs)
            ids, lengths = found.tokens[:, 0], found.lengths[:, 0]
            most = tf.shape(ids)[1]

            def row(given):
                border, begun, columns, ids, length = given
                border = [x[None] for x in border]
                read = self._row(border, begun, columns, ids[:length])
                return tf.nest.map_structure(lambda x: _padded(x, most), read)

            some = tf.TensorSpec([None], tf.float32)
            return tf.map_fn(
                row,
                (border, begun, columns, ids, lengths),
                fn_output_signature=Spoken(
                    words=tf.TensorSpec([None], tf.string),
                    starts=some,
                    ends=some,
                    probabilities=some,
                    counts=tf.TensorSpec([], tf.int32),
                    no_speech=tf.TensorSpec([], tf.float32),
                    prompts=tf.TensorSpec([], tf.string),
                ),
            )

    def _row(self, border, begun, columns, ids):
        ids = tf.boolean_mask(ids, ids != self._special.end)
        ids = tf.boolean_mask(ids, ~tf.gather(self._is_time, ids))
        is_text = tf.gather(tf.constant(self._is_text), ids)
        written = tf.boolean_mask(ids, is_text)
        leads = tf.cumsum(tf.cast(is_text, tf.int32)) == 0
        prompt = tf.concat([begun, tf.boolean_mask(ids, leads)], axis=0)
        begun = tf.concat(
            [
                self._special.start,
                prompt,
                tf.constant(self._times.before, tf.int32),
            ],
            axis=0,
        )
        if self._longest is not None:  # the text may have been cut there
            written = written[: self._longest - tf.size(begun) - 1]
        first = tf.size(begun) - 1
        read = tf.concat([begun, written, [self._special.end]], axis=0)
        logits, weights = self._heads(border, read[None])
        logits = tf.cast(logits[0], tf.float32)
        starts = self._times.starts(weights[0], columns, first)
        count = tf.size(written)
        logp = tf.nn.log_softmax(logits[first : first + count])
        chosen = tf.exp(tf.gather(logp, written, batch_dims=1))
        words = self._groups(written)
        sums = tf.concat([[0.0], tf.cumsum(chosen)], axis=0)
        total = tf.gather(sums, words.after) - tf.gather(sums, words.first)
        no_speech = tf.constant(0.0)
        if self._times.no_speech is not None:
            no_speech = tf.nn.softmax(logits[0])[self._times.no_speech]
        length = tf.cast(words.after - words.first, tf.float32)
        return Spoken(
            words=words.text,
            starts=tf.gather(starts, words.first),
            ends=tf.gather(starts, words.after),
            probabilities=total / length,
            counts=tf.size(words.text),
            no_speech=no_speech,
            prompts=tf.strings.reduce_join(self._text.lookup(prompt)),
        )


def _padded(x, size):
    """Returns a vector padded to a size; scalars are unchanged."""
    return tf.pad(x, [[0, size - tf.shape(x)[0]]]) if x.shape.rank else x
