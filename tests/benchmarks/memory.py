"""Peak memory of the largest request that each signature answers.

    python tests/benchmarks/memory.py

Serves the README's tour, with random weights, from the development server with
its own limits. Each request asks for as much as passes: as many rows as the
export takes, texts and ids of the greatest length. Its numbers are declared by
one value, which fills the tensor, so that the request itself is small. Prints
the bytes of the request, its sizes, and the resident memory that the server
adds at most while it answers, to what it had before the first request.
"""

import argparse
import tempfile

import grpc
import numpy as np
import tour
from served import Served
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

ROWS = 128  # the default of `max_rows`
LARGEST = 16 * 1024**2  # bytes of a tensor that the server takes
HYPOTHESES = 8  # of a step, for each row of `max_rows`


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--signatures", nargs="*")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    rows, length, units = args.rows, 1000, 128
    if args.smoke:
        rows, length, units = 4, 20, 4
    translator = tour.translator(units, length)
    requests = Requests(translator, rows, length)
    print("| signature | bytes | request | MB more |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as base:
        translator.export(base, signatures="all")
        # A slow machine takes longer than a server allows by default.
        with Served(base, "tour", "--max_run_seconds=600") as server:
            before = server.memory()
            for signature in args.signatures or requests.signatures:
                request, sizes = requests.of(signature, server)
                server.forget_peak()
                ask(server, request)
                more = server.memory("VmHWM") - before
                size = request.ByteSize()
                row = f"| `{signature}` | {size} | {sizes} | {more:.0f} |"
                print(row, flush=True)


class Requests:
    """The largest request of each signature.

    Args:
        translator: The `Translator` that is served.
        rows: Rows of a request.
        length: Most tokens of a text.
    """

    signatures = (
        *("serving_default", "nbest", "align", "ids"),
        *("options", "score", "encode", "step", "strings"),
    )

    def __init__(self, translator, rows, length):
        self._rows, self._length = rows, length
        self._options = translator.search.request_options

    def of(self, signature, server):
        """Returns the request, and its sizes in words."""
        rows, length = self._rows, self._length
        text, of_texts = b"a" * length, f"{rows} texts of {length}"
        if signature == "step":
            return self._step(server)
        request = _request(signature)
        if signature in ("ids", "strings"):
            _fill(request.inputs["ids"], 4, [rows, length + 1])
            _fill(request.inputs["lengths"], length + 1, [rows])
            return request, f"[{rows}, {length + 1}]"
        _fill(request.inputs["text"], text, [rows])
        if signature == "score":
            target = b" ".join([b"P0"] * length)
            _fill(request.inputs["target"], target, [rows])
        if signature == "options":
            _fill(request.inputs["prefix"], b"", [rows])
            for name, dtype in self._options.items():
                value = dtype.as_numpy_dtype(-1)
                name = self._options.in_exports(name)
                _fill(request.inputs[name], value, [rows])
        return request, of_texts

    def _step(self, server):
        """Returns the widest step over the longest source that passes."""
        encode = _request("encode")
        _fill(encode.inputs["text"], b"a" * self._length, [1])
        encoded = ask(server, encode).outputs
        names = [x for x in encoded if x.startswith(("encoded_", "state_"))]
        shapes = {x: _shape(encoded[x]) for x in names}
        largest = 4 * max(np.prod(x) for x in shapes.values())
        rows = max(1, min(self._rows, LARGEST // int(largest)))
        beams = self._rows * HYPOTHESES // rows
        request = _request("step")
        _fill(request.inputs["tokens"], 4, [rows, beams])
        widths = _shape(encoded["widths"])
        _fill(request.inputs["widths"], self._length + 1, [rows, *widths[1:]])
        for name, shape in shapes.items():
            wide = beams if name.startswith("state_") else shape[1]
            value = _KINDS[encoded[name].dtype](0.5)
            _fill(request.inputs[name], value, [rows, wide, *shape[2:]])
        return request, f"{rows} x {beams} hypotheses over {self._length + 1}"


def ask(server, request):
    largest = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.address, largest) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return stub.Predict(request, timeout=600)


def _request(signature):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "tour"
    request.model_spec.signature_name = signature
    return request


_KINDS = {1: np.float32, 3: np.int32, 10: np.bool_}


def _fill(tensor, value, shape):
    """Writes a `TensorProto` that one value fills."""
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    if isinstance(value, bytes):
        tensor.dtype = 7
        tensor.string_val.append(value)
    elif isinstance(value, np.bool_):
        tensor.dtype = 10
        tensor.bool_val.append(bool(value))
    elif isinstance(value, np.floating):
        tensor.dtype = 1
        tensor.float_val.append(value)
    else:
        tensor.dtype = 3
        tensor.int_val.append(int(value))


def _shape(tensor):
    return [x.size for x in tensor.tensor_shape.dim]


if __name__ == "__main__":
    main()
