"""Writes the warm-up requests, which a server runs before all others.

There is one for each signature, since a signature's first run is slow, and one
for each size for which XLA compiles the search.
"""

import pathlib

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_log_pb2

_FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")
# The tone's lowest and highest frequency in cycles per sample; its amplitude
_LOWEST, _HIGHEST, _LOUDNESS = 1 / 80, 1 / 10, 0.3
# The most sizes of XLA. A server reads at most 1,000 requests, and some of them
# are those of the signatures.
MOST_SIZES = 980


def write_warm_up(directory, endpoints, signatures, most, longest) -> None:
    """Writes a request for each signature, and for each size of XLA.

    Args:
        directory: The version's directory, a `pathlib.Path`.
        endpoints: The signatures' functions by their names.
        signatures: The `Signatures`.
        most: Most rows of a request, or `None`.
        longest: Largest sizes of features, the result of `longest_of()`.
    """
    path = directory / _FILE
    path.parent.mkdir()
    pipeline = signatures.pipeline
    answers: dict = {}
    size = pipeline.sources.open_size(pipeline.examples.sources)
    size = min([size, *longest.values()])
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, endpoint in endpoints.items():
            known = answers if name == "step" else {}
            # `strings` takes target ids, which need not have a source's size.
            own = 2 if name == "strings" else size
            inputs = {
                spec.name: known.get(spec.name, _example(spec, own))
                for spec in signatures.specs(name)
            }
            if name == "words":
                inputs["prefix"] = tf.constant(["", ""])
            # -1 selects the search's own options, and a new seed.
            if name in ("options", "terms"):
                inputs |= {
                    spec.name: tf.fill([2], tf.cast(-1, spec.dtype))
                    for spec in signatures.numbers_asked
                }
                inputs["prefix"] = tf.constant(["", _prefix(pipeline)])
            if name == "terms":
                inputs |= dict.fromkeys(
                    ("terms", "avoid"), tf.constant(["", ""])
                )
            inputs = {
                name: x[-min(2, most or 2) :] for name, x in inputs.items()
            }
            if name == "encode":  # its outputs are inputs of `step`
                answers = endpoint(*inputs.values())
            writer.write(_log(name, inputs).SerializeToString())
        for count, wide in pipeline.sizes or ():
            if most is not None:  # the export pads requests to `count` rows
                count = min(count, most)
            if pipeline.sources.reads_text:
                log = _log("ids", _ids(pipeline, count, wide))
            else:
                log = _log("serving_default", _sized(signatures, count, wide))
            writer.write(log.SerializeToString())


def _ids(pipeline, rows, size):
    """Returns inputs of `ids` with a size for which XLA compiles."""
    text = pipeline.sources.text
    *_, known = text.special.of_text(text.size)
    return {
        "ids": tf.fill([rows, size], known),
        "lengths": tf.fill([rows], size),
    }


def _sized(signatures, rows, size):
    """Returns inputs of `serving_default` with such a size."""
    sources = signatures.pipeline.sources
    lines = {
        sources.specs[i].name: line_of(text, _before(signatures, size), size)
        for i, text in sources.texts
    }
    inputs = {}
    for spec in signatures.specs("serving_default"):
        if spec.name in lines:
            inputs[spec.name] = tf.fill([rows], lines[spec.name])
        else:
            inputs[spec.name] = tf.tile(
                _example(spec, size)[:1],
                [rows, *[1] * (len(spec.shape) - 1)],
            )
    return inputs


def _before(signatures, size):
    """Returns the next smaller size for which XLA compiles, 0 if none."""
    smaller = [x for x in signatures.pipeline.sizes.source if x < size]
    return max(smaller, default=0)


def line_of(text, above: int, most: int) -> tf.Tensor:
    """Returns a line that a `Text` turns into a given number of ids.

    Args:
        text: The `Text`.
        above: The line has more ids than this, including special tokens.
        most: The line has at most this number of ids.

    Returns:
        The line, a scalar string tensor.

    Raises:
        ValueError: If no such line is found.
    """
    special = text.special
    framing = len(special.source_start) + len(special.ends_source)
    known = [x for x in special.of_text(text.size) if x != special.unknown]
    counts = range(most - framing, max(0, above - framing), -1)
    random = np.random.default_rng(0)
    for chosen in [known[:1], known[-1:], known, known[: len(known) // 2]]:
        if not chosen:
            continue
        ids = [random.choice(chosen, count) for count in counts]
        for row in ids:
            line = text.strings(tf.constant(row[None], tf.int32))[0]
            if above < text.source_ids(line[None]).shape[1] <= most:
                return line
    raise ValueError(
        f"No line was found that is split into {above + 1} to {most} tokens. "
        "It is needed for the warm-up request of a size that XLA compiles for. "
        f"Received: {text}. Pass other sizes, `XLASizes(source=...)`."
    )


def _log(signature, inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return prediction_log_pb2.PredictionLog(
        predict_log=prediction_log_pb2.PredictLog(request=request)
    )


def _prefix(pipeline):
    """Returns a token as a prefix, or "" if there is none or no room for it."""
    text = pipeline.target_text
    *_, last = text.special.of_text(text.size)
    room = pipeline.search.max_length > 1 and last != text.special.unknown
    return text.tokens[last] if room else ""


def _example(spec, size):
    """Returns two rows for an input, with `size` for axes of unknown size.

    Numbers are zeros. Features that may be sound are a rising tone, since a
    speech model writes the longest text that it can if it hears only silence.
    """
    if spec.dtype == tf.string:
        return tf.constant(["", "warm up"])
    shape = [size if x is None else x for x in spec.shape[1:]]
    if spec.name == "lengths":  # all columns
        return tf.fill([2, *shape], size)
    if spec.dtype.is_floating and spec.shape[1:].as_list() == [None]:
        place = np.arange(size)
        turns = _LOWEST * place + (_HIGHEST - _LOWEST) * place**2 / (2 * size)
        tone = _LOUDNESS * np.sin(2 * np.pi * turns)
        return tf.constant(np.stack([tone, tone]), spec.dtype)
    return tf.zeros([2, *shape], spec.dtype)
