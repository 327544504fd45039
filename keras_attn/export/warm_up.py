"""Requests that a server runs before it takes others.

One for each signature: the first run of each prepares its pipeline.
"""

import pathlib

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_log_pb2

from keras_attn.text import SPECIAL_TOKENS

_FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")


def write_warm_up(directory, endpoints, signatures) -> None:
    """Writes a request for each endpoint, a function by its name."""
    path = directory / _FILE
    path.parent.mkdir()
    pipeline = signatures.pipeline
    answers: dict = {}
    size = pipeline.sources.open_size(pipeline.examples.sources)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, endpoint in endpoints.items():
            known = answers if name == "step" else {}
            inputs = {
                spec.name: known.get(spec.name, _example(spec, size))
                for spec in signatures.specs(name)
            }
            if name == "options":  # all as the search itself has them
                inputs |= {
                    spec.name: tf.fill([2], tf.cast(-1, spec.dtype))
                    for spec in signatures.numbers_asked
                }
                inputs["prefix"] = tf.constant(["", _prefix(pipeline)])
            if name == "encode":  # of which `step` wants the answer
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
    """A token that a text may begin with, where there is room for it."""
    *_, last = pipeline.target_text.tokens
    room = pipeline.search.max_length > 1 and last not in SPECIAL_TOKENS
    return last if room else ""


def _example(spec, size):
    """Two rows, of zeros, which are padding; open axes have this size."""
    if spec.dtype == tf.string:
        return tf.constant(["", "warm up"])
    shape = [size if x is None else x for x in spec.shape[1:]]
    if spec.name == "lengths":  # all columns
        return tf.fill([2, *shape], size)
    return tf.zeros([2, *shape], spec.dtype)
