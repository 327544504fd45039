"""Searches by a client, over the signatures `encode`, `step` and `strings`.

A search here is a generator, which needs numpy alone: it yields the name of a
signature and the inputs for it, and is sent the answer. `alone()` runs one;
`batching.together()` runs several whose requests are merged.
"""

import numpy as np

# Outputs of `encode` and `step` that the next step does not take.
SAID = {
    "source_tokens",
    "source_length",
    "end",
    "log_probabilities",
    "alignments",
    "error",
    "truncated",
    "unknown",
}


def alone(run, search):
    """Runs a search; `run(signature, inputs)` asks whoever serves it."""
    answer = None
    while True:
        try:
            signature, inputs = search.send(answer)
        except StopIteration as end:
            return end.value
        answer = run(signature, inputs)


def greedy(run, inputs, max_length):
    """Decodes a batch with one hypothesis a source."""
    return alone(run, beam_search(inputs, max_length))


def beam_search(inputs, max_length, width=1):
    """Decodes a batch.

    Args:
        inputs: What `encode` takes.
        max_length: Most tokens, the end token counted.
        width: Number of hypotheses; with one it is greedy search.

    Returns:
        A dictionary of `text`, `score` and the `alignments` of the last
        step, of the best hypothesis, as far as the source is long.
    """
    answer = yield "encode", inputs
    source_length = answer["source_length"]
    # Older exports do not name it.
    end = next(iter(answer.get("end", [])), 2)
    carried = {k: x for k, x in answer.items() if k not in SAID}
    rows = np.arange(len(carried["tokens"]))[:, None]
    scores = np.zeros((len(rows), 1), "float32")
    done = np.zeros((len(rows), 1), bool)
    ids = np.zeros((len(rows), 1, 0), "int32")
    alignments = None
    while ids.shape[2] < max_length and not done.all():
        answer = yield "step", carried
        # Merged with a wider search, an answer has more hypotheses.
        count = done.shape[1]
        logp = answer["log_probabilities"][:, :count]
        vocabulary = logp.shape[-1]
        # A finished hypothesis is extended with end tokens, at no cost.
        free = np.where(np.arange(vocabulary) == end, 0, -np.inf)
        logp = np.where(done[..., None], free, logp)
        total = (scores[..., None] + logp).reshape(len(rows), -1)
        best = np.argsort(-total, axis=1, kind="stable")[:, :width]
        scores = np.take_along_axis(total, best, 1).astype("float32")
        parents, tokens = np.divmod(best, vocabulary)
        tokens = tokens.astype("int32")
        done = done[rows, parents] | (tokens == end)
        ids = np.concatenate([ids[rows, parents], tokens[..., None]], axis=2)
        alignments = answer["alignments"][rows, parents][:, 0]
        carried |= {
            name: x[rows, parents]
            for name, x in answer.items()
            if name.startswith("state_")
        }
        carried |= {"tokens": tokens}
    ids = ids[:, 0]
    ended = ids == end
    lengths = np.where(ended.any(1), ended.argmax(1) + 1, ids.shape[1])
    answer = yield "strings", {"ids": ids, "lengths": lengths.astype("int32")}
    return {
        "text": answer["text"],
        "score": scores[:, 0],
        "alignments": [
            row[:length]
            for row, length in zip(alignments, source_length, strict=True)
        ],
    }
