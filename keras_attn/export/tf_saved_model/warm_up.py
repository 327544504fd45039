"""Writes the warm-up requests, which a server runs before any others.

There is one for each signature, since a signature's first run is slow.
"""

import pathlib

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_log_pb2

_FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")


def write_warm_up(directory, endpoints, signatures, rows, longest) -> None:
    """Writes a request for each signature.

    Args:
        directory: The version's directory.
        endpoints: The functions of the signatures by name.
        signatures: The `Signatures`.
        rows: Number of rows of a request, at most 2.
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
            if name == "options":  # -1: the search's own options
                inputs |= {
                    spec.name: tf.fill([2], tf.cast(-1, spec.dtype))
                    for spec in signatures.numbers_asked
                }
                inputs["prefix"] = tf.constant(["", _prefix(pipeline)])
            inputs = {name: x[-rows:] for name, x in inputs.items()}
            if name == "encode":  # its outputs are inputs of `step`
                answers = endpoint(*inputs.values())
            writer.write(_log(name, inputs).SerializeToString())


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
    """Returns two rows of zeros, of `size` along axes without a size."""
    if spec.dtype == tf.string:
        return tf.constant(["", "warm up"])
    shape = [size if x is None else x for x in spec.shape[1:]]
    if spec.name == "lengths":  # all columns
        return tf.fill([2, *shape], size)
    return tf.zeros([2, *shape], spec.dtype)
