"""Writes a `Translator` as a SavedModel that TF Serving hosts.

| signature | inputs | outputs |
|---|---|---|
| `serving_default` | text `[B]` | text `[B]`, score `[B]` |
| `nbest` | text `[B]` | texts `[B, N]`, scores `[B, N]` |
| `align` | text `[B]` | text, score `[B]`, source_tokens `[B, S]`, \
source_length `[B]`, tokens `[B, T]`, length `[B]`, alignments `[B, T, S]` |
| `ids` | ids `[B, S]`, lengths `[B]` | ids `[B, N, T]`, \
lengths `[B, N]`, scores `[B, N]` |

`T` is the search's maximum length, `S` the batch's longest source, both with
their end token. In `nbest` a hypothesis that does not exist is an empty text
with a score of minus infinity. Every output is batch first, as server-side
batching demands.
"""

import contextlib
import os
import pathlib
import shutil
import tempfile

import keras
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_log_pb2

from keras_attn.text import PAD
from keras_attn.text import Text

_TEXT = (tf.TensorSpec([None], tf.string, name="text"),)
_IDS = (
    tf.TensorSpec([None, None], tf.int32, name="ids"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)
_WARM_UP = pathlib.Path("assets.extra", "tf_serving_warmup_requests")


def export(translator, directory, version: int | None = None) -> pathlib.Path:
    """Writes a version of a SavedModel with the four signatures.

    It is written under a temporary name and renamed when complete, so that a
    server polling the directory never loads half of it. Weights are stored
    once, vocabularies as assets. Nothing in it is compiled by XLA, which TF
    Serving has off, and recurrent layers run without cuDNN kernels, so that
    it loads on CPU and GPU alike, wherever it was exported.

    Args:
        translator: A `Translator`.
        directory: Where the versions are, `model_base_path` to a server.
        version: Number of the version. Defaults to the next one.

    Returns:
        The path of the version, `directory/version`.

    Raises:
        FileExistsError: If there is this version already.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if version is None:
        version = 1 + max(_versions(directory), default=0)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise ValueError(
            "`version` must be an integer, at least 0: TF Serving reads only "
            f"directories with such names. Received: version={version!r}"
        )
    path = directory / str(version)
    if path.exists():
        raise FileExistsError(
            f"There is a version {version} in {directory} already. Leave "
            "`version` out to write the next one."
        )
    # A name that is no number: servers leave it alone.
    unfinished = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{version}-unfinished-", dir=directory)
    )
    try:
        _write(translator, unfinished)
        os.chmod(unfinished, 0o755)
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return path


def _write(translator, directory):
    archive = keras.export.ExportArchive()
    with tempfile.TemporaryDirectory() as assets:
        texts = []
        for name in ("source", "target"):
            file = pathlib.Path(assets, f"{name}.txt")
            getattr(translator, f"{name}_text").save(file)
            texts.append(Text.load(file))  # its tables read the file
            for table in texts[-1].tables():
                archive.track(table)
        signatures = _Signatures(translator.for_export(*texts))
        with _without_cudnn(translator.model):
            for name, inputs in (
                ("serving_default", _TEXT),
                ("nbest", _TEXT),
                ("align", _TEXT),
                ("ids", _IDS),
            ):
                archive.add_endpoint(name, getattr(signatures, name), inputs)
        archive.write_out(directory, verbose=False)
    _write_warm_up(directory)


class _Signatures:
    """The functions behind the signatures, named as they are."""

    def __init__(self, translator):
        self.translator = translator

    def serving_default(self, text):
        decoded = self.translator.decode(text)
        return {
            "text": decoded.texts[:, 0],
            "score": decoded.hypotheses.scores[:, 0],
        }

    def nbest(self, text):
        decoded = self.translator.decode(text)
        return {"texts": decoded.texts, "scores": decoded.hypotheses.scores}

    def align(self, text):
        decoded = self.translator.decode(text)
        found = decoded.hypotheses
        return {
            "text": decoded.texts[:, 0],
            "score": found.scores[:, 0],
            "source_tokens": decoded.source_tokens,
            "source_length": decoded.source_lengths,
            "tokens": decoded.tokens[:, 0],
            "length": found.lengths[:, 0],
            "alignments": found.alignments[:, 0],
        }

    def ids(self, ids, lengths):
        rows, columns = tf.shape(ids)[0], tf.shape(ids)[1]
        as_many = tf.debugging.Assert(
            rows == tf.shape(lengths)[0],
            ["ids needs one length for each row. Rows, lengths:"]
            + [rows, tf.shape(lengths)[0]],
        )
        with tf.control_dependencies([as_many]):
            real = tf.sequence_mask(lengths, columns)
        # RNNs refuse a length of zero.
        missing = tf.cast(columns == 0, tf.int32)
        ids = tf.pad(tf.where(real, ids, PAD), [[0, 0], [0, missing]])
        found = self.translator.search_ids(ids)
        return {
            "ids": found.tokens,
            "lengths": found.lengths,
            "scores": found.scores,
        }


@contextlib.contextmanager
def _without_cudnn(model):
    """Keras chooses cuDNN when it traces, by the GPUs it sees there."""
    cells = [x for x in model._flatten_layers() if hasattr(x, "use_cudnn")]
    before = [layer.use_cudnn for layer in cells]
    try:
        for layer in cells:
            layer.use_cudnn = False
        yield
    finally:
        for layer, use_cudnn in zip(cells, before, strict=True):
            layer.use_cudnn = use_cudnn


def _write_warm_up(directory):
    """Requests that a server runs before it takes others.

    One for each signature: the first run of each prepares its graph.
    """
    path = directory / _WARM_UP
    path.parent.mkdir()
    requests = [
        (name, {"text": tf.constant(["", "warm up"])})
        for name in ("serving_default", "nbest", "align")
    ]
    ids = {"ids": tf.fill([1, 2], PAD), "lengths": tf.constant([2])}
    requests.append(("ids", ids))
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = signature
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())


def _versions(directory):
    return [
        int(x.name)
        for x in directory.iterdir()
        if x.name.isascii() and x.name.isdecimal()
    ]
