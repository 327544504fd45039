"""Writes the warm-up requests, which a server runs before any others.

There is one for each signature, since a signature's first run is slow, and one
for each size for which XLA compiles the search.
"""

import pathlib

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_log_pb2

_FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")
# Of a tone: turns per sample, and the largest sample
_LOWEST, _HIGHEST, _LOUDNESS = 1 / 80, 1 / 10, 0.3
MOST_SIZES = 980  # requests: a server reads 1,000, with those of signatures


def write_warm_up(directory, endpoints, signatures, most, longest) -> None:
    """Writes a request for each signature.

    Args:
        directory: The version's directory.
        endpoints: The functions of the signatures by name.
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
            # `strings` takes ids of a target, which are not a source's.
            own = 2 if name == "strings" else size
            inputs = {
                spec.name: known.get(spec.name, _example(spec, own))
                for spec in signatures.specs(name)
            }
            if name == "words":
                inputs["prefix"] = tf.constant(["", ""])
            if name in ("options", "terms"):  # -1: the search's own options
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
            if most is not None:  # rows are added to those of a request
                count = min(count, most)
            if pipeline.sources.reads_text:
                log = _log("ids", _ids(pipeline, count, wide))
            else:
                log = _log("serving_default", _sized(signatures, count, wide))
            writer.write(log.SerializeToString())


def _ids(pipeline, rows, size):
    """Returns the inputs of `ids` for which XLA compiles the search."""
    text = pipeline.sources.text
    *_, known = text.special.of_text(text.size)
    return {
        "ids": tf.fill([rows, size], known),
        "lengths": tf.fill([rows], size),
    }


def _sized(signatures, rows, size):
    """Returns inputs of other sources for which XLA compiles the search."""
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
    """Returns the next smaller size, whose search is another."""
    smaller = [x for x in signatures.pipeline.sizes.source if x < size]
    return max(smaller, default=0)


def line_of(text, above: int, most: int) -> str:
    """Returns a line of more than `above` source ids, at most `most`.

    Args:
        text: A `Text`.
        above, most: Numbers of ids, special tokens counted.
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
        f"No line was found that is split into {above + 1} to {most} tokens, "
        "for the warm-up request of a size that XLA compiles for. Received: "
        f"{text}. Pass other sizes, `XLASizes(source=...)`."
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
    """Returns a token to begin a text with, "" if there is no room for it."""
    text = pipeline.target_text
    *_, last = text.special.of_text(text.size)
    room = pipeline.search.max_length > 1 and last != text.special.unknown
    return text.tokens[last] if room else ""


def _example(spec, size):
    """Returns two rows, of `size` along axes without a size.

    They are zeros, or a tone that rises if they may be sound: of silence a
    model of speech writes the longest text that it can.
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
