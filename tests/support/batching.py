"""Merges the requests of several clients as TensorFlow Serving does.

With `pad_variable_length_inputs`, as in serving/deploy/batching.pbtxt:
tensors of one input are concatenated along their first axis, and along the
others a smaller one is padded to the largest with copies of its own first
element. Outputs are split by rows and keep the merged width. See
`batching_session.cc` and `batching_util.cc` of tensorflow/serving.
"""

import numpy as np


def merge(requests):
    """Merges requests, dictionaries of arrays by the same names."""
    return {
        name: _concatenate([request[name] for request in requests])
        for name in requests[0]
    }


def run(ask, signature, requests):
    """Returns the answers to requests that are merged; `ask` answers one."""
    (names, *others) = [set(x) for x in requests]
    assert all(x == names for x in others)
    return split(ask(signature, merge(requests)), [_rows(x) for x in requests])


def split(answer, counts):
    """Splits a merged answer into those of requests of `counts` rows."""
    ends = np.cumsum(counts)
    assert all(len(x) == ends[-1] for x in answer.values())
    return [
        {name: x[end - count : end] for name, x in answer.items()}
        for count, end in zip(counts, ends, strict=True)
    ]


def together(ask, searches, delays):
    """Runs searches of several clients, whose requests are merged.

    Args:
        ask: Function of a signature and inputs.
        searches: Generators, as in `client_loop`.
        delays: After how many rounds each of them begins. In a round each
            makes a request; those for the same signature are merged.

    Returns:
        What each search returns.
    """
    results = [None] * len(searches)
    answers = [None] * len(searches)
    running, clock = set(range(len(searches))), 0
    while running:
        asked = {}
        for i in sorted(x for x in running if delays[x] <= clock):
            try:
                signature, inputs = searches[i].send(answers[i])
            except StopIteration as end:
                results[i] = end.value
                running.remove(i)
                continue
            asked.setdefault(signature, {})[i] = inputs
        for signature, inputs in asked.items():
            found = run(ask, signature, list(inputs.values()))
            answers = [
                dict(zip(inputs, found, strict=True)).get(i, answers[i])
                for i in range(len(searches))
            ]
        clock += 1
    return results


def _concatenate(arrays):
    arrays = [np.asarray(x) for x in arrays]
    shape = np.max([x.shape[1:] for x in arrays], axis=0, initial=0)
    return np.concatenate([_pad(x, [int(n) for n in shape]) for x in arrays])


def _pad(x, shape):
    if list(x.shape[1:]) == shape:
        return x
    padded = np.full([len(x), *shape], x.flat[0], x.dtype)
    padded[tuple(slice(n) for n in x.shape)] = x
    return padded


def _rows(request):
    return len(next(iter(request.values())))
