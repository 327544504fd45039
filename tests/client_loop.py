"""Greedy search by a client, over the signatures `encode` and `step`.

`run(signature, inputs)` asks whoever serves them; the loop needs numpy alone.
"""

import numpy as np

END = 2


def greedy(run, inputs, max_length):
    """Decodes a batch.

    Args:
        run: Function of a signature's name and a dictionary of arrays, which
            returns a dictionary of arrays.
        inputs: What `encode` takes.
        max_length: Most tokens, the end token counted.

    Returns:
        A dictionary of `text` and `score`.
    """
    carried = run("encode", inputs)
    for name in ("source_tokens", "source_length"):
        del carried[name]
    done = np.zeros(len(carried["tokens"]), bool)
    scores = np.zeros(len(done), "float32")
    ids = []
    while len(ids) < max_length and not done.all():
        answer = run("step", carried)
        logp = answer.pop("log_probabilities")[:, 0]
        del answer["alignments"]
        token = logp.argmax(-1).astype("int32")
        scores += np.where(done, 0, logp.max(-1))
        ids.append(token)
        done |= token == END
        carried |= answer | {"tokens": token[:, None]}
    text = run("strings", {"ids": np.stack(ids, axis=1)})["text"]
    return {"text": text, "score": scores}
