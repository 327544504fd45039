"""Asks Triton by both protocols; runs where `nvidia-pytriton` is installed.

Reads from standard input `{"http": url, "grpc": url, "calls": [[model, inputs],
...]}`, with inputs as `{name: [dtype, rows]}`, and sends all calls at a time.
Prints `{protocol: [{output: rows} or the error's text, ...]}`.
"""

import concurrent.futures
import json
import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from tritonclient.utils import np_to_triton_dtype


def array(dtype, rows):
    if dtype == "str":
        return np.vectorize(str.encode, otypes=[object])(np.array(rows, object))
    return np.array(rows, dtype)


def plain(values):
    if values.dtype == object:
        values = np.vectorize(bytes.decode, otypes=[object])(values)
    return values.tolist()


def ask(module, client, model, inputs):
    sent = []
    for name, (dtype, rows) in inputs.items():
        values = array(dtype, rows)
        kind = np_to_triton_dtype(values.dtype)
        sent.append(module.InferInput(name, values.shape, kind))
        sent[-1].set_data_from_numpy(values)
    try:
        answer = client.infer(model, sent)
    except InferenceServerException as error:
        return error.message()
    described = answer.get_response()
    if module is tritonclient.http:
        names = [output["name"] for output in described["outputs"]]
    else:
        names = [output.name for output in described.outputs]
    return {name: plain(answer.as_numpy(name)) for name in names}


def main():
    given = json.load(sys.stdin)
    answers = {}
    for name in ("http", "grpc"):
        module = getattr(tritonclient, name)
        own = {"concurrency": 16} if name == "http" else {}
        client = module.InferenceServerClient(given[name], **own)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers[name] = list(
                pool.map(
                    lambda call: ask(module, client, *call),  # noqa: B023
                    given["calls"],
                )
            )
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
