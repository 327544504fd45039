"""Hosts an export on Triton Inference Server, by its Python backend.

    pip install nvidia-pytriton "tensorflow==2.21.*" "tensorflow-text==2.21.*"
    python host.py --model_base_path=models/pronounce --model_name=pronounce

KServe's protocol V2 is answered by HTTP (port 8000) and gRPC (port 8001). Each
signature is a model of Triton: `serving_default` has the model's name, and
others have a suffix, as `pronounce_align`. What has one value a row, such as
a text, has the shape `[rows, 1]` there.
"""

import argparse
import pathlib

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

    @batch  # one call answers several requests
    def answer(self, **arrays):
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
        """Its shape without the rows; an axis of any size is -1."""
        shape = [-1 if size is None else size for size in spec.shape[1:]]
        is_text = spec.dtype == tf.string
        dtype = bytes if is_text else spec.dtype.as_numpy_dtype
        return Tensor(name=name, dtype=dtype, shape=tuple(shape) or (1,))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model_base_path", type=pathlib.Path, required=True)
    add("--model_name", required=True)
    add("--http_port", type=int, default=8000)
    add("--grpc_port", type=int, default=8001)
    add("--metrics_port", type=int, default=8002)
    add("--max_batch_size", type=int, default=128, help="of rows")
    add("--max_queue_delay_microseconds", type=int, default=2000)
    args = parser.parse_args()

    path = max(
        (x for x in args.model_base_path.iterdir() if x.name.isdecimal()),
        key=lambda x: int(x.name),
    )
    exported = tf.saved_model.load(path)
    config = ModelConfig(
        max_batch_size=args.max_batch_size,
        batcher=DynamicBatcher(
            max_queue_delay_microseconds=args.max_queue_delay_microseconds
        ),
    )
    ports = TritonConfig(
        http_port=args.http_port,
        grpc_port=args.grpc_port,
        metrics_port=args.metrics_port,
    )
    with Triton(config=ports) as triton:
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
        triton.serve()


if __name__ == "__main__":
    main()
