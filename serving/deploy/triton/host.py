"""Hosts an export on Triton Inference Server, with its Python backend.

    pip install nvidia-pytriton "tensorflow==2.21.*" "tensorflow-text==2.21.*"
    python host.py --model_base_path=models/pronounce --model_name=pronounce

The server speaks KServe's V2 protocol over HTTP (port 8000) and gRPC (port
8001). Each signature becomes a Triton model: `serving_default` has the model's
name, the others add a suffix, such as `pronounce_align`. Inputs and outputs
with one value per row, such as a text, have the shape `[rows, 1]`.
"""

import argparse
import pathlib
import signal
import socket
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers operations of exports)
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher
from pytriton.model_config import ModelConfig
from pytriton.model_config import Tensor
from pytriton.triton import Triton
from pytriton.triton import TritonConfig


class Signature:
    """A signature of an export as Triton runs it."""

    def __init__(self, signature):
        self.signature = signature
        self.takes = signature.structured_input_signature[1]
        self.gives = signature.structured_outputs

    @property
    def inputs(self):
        return [self._tensor(*item) for item in self.takes.items()]

    @property
    def outputs(self):
        return [self._tensor(*item) for item in self.gives.items()]

    def answer(self, requests):
        """Answers several requests by one call of the signature.

        An export limits the rows of a call, and `step` the hypotheses. If the
        requests exceed such a limit together, each is answered alone. If one
        does so alone, all fail: Triton's binding has no errors by request.
        """
        try:
            return self._answer_together(requests)
        except tf.errors.InvalidArgumentError as error:
            if len(requests) > 1:
                return [self.answer([each])[0] for each in requests]
            lines = [x for x in error.message.splitlines() if x.strip()]
            # The others say where in the graph it failed.
            reason = next((x for x in lines[::-1] if "[[{{" not in x), "")
            raise ValueError(reason) from None

    @batch
    def _answer_together(self, **arrays):
        inputs = {}
        for name, array in arrays.items():
            spec = self.takes[name]
            shape = array.shape[: spec.shape.rank]  # [rows, 1] becomes [rows]
            inputs[name] = tf.constant(array.reshape(shape), spec.dtype)
        outputs = {}
        for name, tensor in self.signature(**inputs).items():
            array = tensor.numpy()
            outputs[name] = array[:, None] if array.ndim == 1 else array
        return outputs

    @staticmethod
    def _tensor(name, spec):
        """Describes a tensor for Triton: no batch axis, -1 for any size."""
        shape = [-1 if size is None else size for size in spec.shape[1:]]
        is_text = spec.dtype == tf.string
        dtype = bytes if is_text else spec.dtype.as_numpy_dtype
        return Tensor(name=name, dtype=dtype, shape=tuple(shape) or (1,))


def newest(base_path):
    """Returns the directory of the newest version of an export."""
    versions = [
        x
        for x in base_path.glob("*")
        if x.name.isdecimal() and (x / "saved_model.pb").exists()
    ]
    if not versions:
        sys.exit(
            f"{base_path} must have a version: a directory named by a number, "
            "with a saved_model.pb. `Translator.export()` writes one."
        )
    return max(versions, key=lambda x: int(x.name))


def require_free(host, ports):
    """Ends the program if a port is in use; Triton's own message is long."""
    for name, port in ports.items():
        with socket.socket() as tried:
            # Ports of connections that ended a moment ago are free.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((host, port))
            except OSError as error:
                sys.exit(f"--{name}={port} cannot be used: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model_base_path", type=pathlib.Path, required=True)
    add("--model_name", required=True)
    add("--host", default="127.0.0.1", help="0.0.0.0 for all interfaces")
    add("--http_port", type=int, default=8000)
    add("--grpc_port", type=int, default=8001)
    add("--metrics_port", type=int, default=8002)
    add(
        "--max_batch_size",
        type=int,
        default=128,
        help="rows of a batch, at most the export's `max_rows`",
    )
    add("--max_queue_delay_microseconds", type=int, default=2000)
    args = parser.parse_args()

    path = newest(args.model_base_path)
    names = "http_port", "grpc_port", "metrics_port"
    ports = {name: getattr(args, name) for name in names}
    require_free(args.host, ports)
    exported = tf.saved_model.load(path)
    config = ModelConfig(
        max_batch_size=args.max_batch_size,
        batcher=DynamicBatcher(
            max_queue_delay_microseconds=args.max_queue_delay_microseconds
        ),
    )
    addresses = dict.fromkeys(
        ("http_address", "grpc_address", "metrics_address"), args.host
    )
    asked_to_end = []

    def end(number, frame):
        asked_to_end.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    with Triton(config=TritonConfig(**ports, **addresses)) as triton:
        for name, signature in exported.signatures.items():
            suffix = "" if name == "serving_default" else f"_{name}"
            hosted = Signature(signature)
            triton.bind(
                model_name=args.model_name + suffix,
                model_version=int(path.name),
                infer_func=hosted.answer,
                inputs=hosted.inputs,
                outputs=hosted.outputs,
                config=config,
                strict=True,
            )
        triton.serve()  # until a signal ends it, or Triton ends by itself
    if not asked_to_end:
        sys.exit("Triton ended by itself.")


if __name__ == "__main__":
    main()
