"""`Ids`: the function that becomes an ONNX model."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_attn.export.tf_saved_model import rows

_SEED = tf.TensorSpec([None], tf.int32, name="seed")
OUTPUTS = ("target_ids", "target_lengths", "scores", "error")


class Ids:
    """The signature `ids`, written with operations that ONNX has.

    A call takes a tensor for each of `specs`, and returns a dictionary of the
    outputs, with the keys and sizes of `sizes`.

    Errors are constant strings, since ONNX cannot join strings here. An empty
    batch is decoded as one row, since ONNX cannot infer a size when it reshapes
    a tensor without elements.

    Args:
        pipeline: `Pipeline` of a translator.

    Attributes:
        specs: A `tf.TensorSpec` for each input.
        names_of_texts: The names of the inputs that are ids of a source text,
            in the order of the inputs.

    Raises:
        ValueError: If an input has the name of another input or of an output.
    """

    def __init__(self, pipeline):
        self._pipeline = dataclasses.replace(
            pipeline, for_onnx=True, buckets=1, sizes=None
        )
        self._sources = pipeline.sources
        self.specs = tuple(self._sources.input_specs)
        if self._sources.reads_text:
            lengths = tf.TensorSpec([None], tf.int32, name="lengths")
            self.specs = *self.specs, lengths
        if pipeline.search.draws:
            self.specs = *self.specs, _SEED
        self.names_of_texts = [
            self.specs[i].name for i, _ in self._sources.texts
        ]
        self._require_names()

    def _require_names(self):
        names = [spec.name for spec in self.specs]
        twice = {x for x in names if [*names, *OUTPUTS].count(x) > 1}
        if twice:
            raise ValueError(
                f"An ONNX model has the outputs {list(OUTPUTS)}, and an input "
                "'seed' if its search draws; the model's inputs must have "
                "other names. Received: a model with inputs named "
                f"{sorted(twice)}. Build it with other names."
            )

    @property
    def sizes(self) -> dict:
        """The sizes of each output by its name; "B" is the batch size."""
        search = self._pipeline.search
        found = "B", search.num_hypotheses
        sizes = (*found, search.max_length), found, found, ("B",)
        return dict(zip(OUTPUTS, sizes, strict=True))

    def examples(self) -> list[tuple]:
        """Returns two tuples of arrays for the inputs, of 3 rows and of 1."""
        inputs = [np.array(x) for x in self._pipeline.examples.sources]
        if self._sources.reads_text:
            (ids,) = inputs
            width = ids.shape[1]
            lengths = [width, 1 + width // 2, 1][: len(ids)]
            inputs.append(np.array(lengths, "int32"))
        if self._pipeline.search.draws:
            inputs.append(np.arange(len(inputs[0]), dtype="int32"))
        return [tuple(inputs), tuple(x[:1] for x in inputs)]

    def __call__(self, *given):
        batch = tf.shape(given[0])[0]
        missing = tf.cast(batch == 0, tf.int32)
        given = [_more(_of_rows(x, batch), 0, missing) for x in given]
        request = {"seed": given.pop()} if self._pipeline.search.draws else {}
        inputs, wrong = self._checked(given)
        found = self._pipeline.search_inputs(inputs, request)
        wrong.append((found.lengths[:, 0] == 0, rows.NOTHING_FOUND))
        bad, error = wrong[-1][0], ""
        for is_bad, message in reversed(wrong):
            bad, error = bad | is_bad, tf.where(is_bad, message, error)
        found = rows.emptied(found, bad)
        outputs = found.tokens, found.lengths, found.scores, error
        named = zip(OUTPUTS, outputs, strict=True)
        return {name: x[:batch] for name, x in named}

    def _checked(self, given):
        """Replaces the texts of bad rows by empty ones.

        Args:
            given: A list of the input tensors, without `seed`.

        Returns:
            The model's source inputs, and a pair for each rule: whether each
            row breaks it, `(batch,)`, and the message.
        """
        lengths = given.pop() if self._sources.reads_text else None
        wrong = []
        for i, text in self._sources.texts:
            name, columns = self.specs[i].name, tf.shape(given[i])[1]
            longest, pad = text.longest_source, text.special.pad
            # RNNs refuse a length of zero.
            missing = tf.cast(columns == 0, tf.int32)
            ids = _more(given[i][:, :longest], 1, missing)
            if lengths is None:
                further = given[i][:, longest:] != pad
                is_long = tf.reduce_any(further, axis=1)
            else:
                wrong.append(_wrong_lengths(lengths, columns))
                is_long = lengths > longest
                real = tf.sequence_mask(lengths, tf.shape(ids)[1])
                ids = tf.where(real, ids, pad)
            wrong.append(_too_long(is_long, longest, name))
            wrong.append(_wrong_ids(ids, text, name))
            given[i] = ids
        for i, text in self._sources.texts:
            for bad, _ in wrong:
                given[i] = rows.harmless_ids(bad, given[i], text.special)
        return tuple(given), wrong


def _wrong_lengths(lengths, columns):
    return (
        (lengths < 0) | (lengths > columns),
        "`lengths` must be between 0 and the number of columns of `ids`.",
    )


def _too_long(is_long, longest, name):
    return (
        is_long,
        f"A row of `{name}` may have at most {longest} ids in this export. "
        "Split it.",
    )


def _wrong_ids(ids, text, name):
    unknown = text.special.unknown
    advice = f" {unknown} stands for an unknown token." if unknown >= 0 else ""
    return (
        tf.reduce_any((ids < 0) | (ids >= text.size), axis=1),
        f"`{name}` must be ids of the vocabulary, between 0 and "
        f"{text.size - 1}.{advice}",
    )


def _of_rows(x, batch):
    """Returns a tensor whose computation fails unless it has `batch` rows."""
    return tf.reshape(x, tf.concat([[batch], tf.shape(x)[1:]], 0))


def _more(x, axis, count):
    """Appends zeros along an axis."""
    return tf.pad(x, [[0, count * (i == axis)] for i in range(len(x.shape))])
