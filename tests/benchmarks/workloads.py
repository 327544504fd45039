"""The nets that are timed, their weights and their data: numpy alone.

Every peer builds the same canonical net and loads the same arrays. The
attention vector of step t - 1 is fed back into the cell:

    x[t] = [embedding(y[t-1]); a[t-1]]           a[-1] = 0
    h[t] = cell(x[t], h[t-1])                    h[-1] = encoder's last state
    e[t, s] = v . tanh(Wq h[t] + Wm m[s])        additive attention
    a[t] = tanh(Wc [h[t]; context[t]])           the attention vector
    logits[t] = Wo a[t] + b
"""

from dataclasses import dataclass
from dataclasses import replace

import numpy as np

PAD, START, END, UNKNOWN = range(4)
NEVER = -1e9  # the logit of tokens that no hypothesis may contain


@dataclass(frozen=True)
class Workload:
    """Sizes of one net; `units` of the decoder equal both encoder halves."""

    name: str
    cell: str  # "lstm" or "gru"
    source_size: int  # vocabulary
    target_size: int
    embedding: int
    encoder: int  # units of each direction
    attention: int
    source_length: int
    target_length: int
    train_batch: int
    greedy_batches: tuple = (1, 64)
    beam_batches: tuple = (1, 32)
    width: int = 5

    @property
    def units(self):
        return 2 * self.encoder

    @property
    def gates(self):
        return {"lstm": 4, "gru": 3}[self.cell]

    def cases(self):
        """`(kind, batch)` of everything that is timed."""
        yield "train", self.train_batch
        for batch in self.greedy_batches:
            yield "greedy", batch
        for batch in self.beam_batches:
            yield "beam", batch


WORKLOADS = {
    w.name: w
    for w in [
        Workload("W1", "lstm", 8000, 8000, 256, 256, 256, 25, 25, 64),
        Workload("W2", "gru", 32, 75, 128, 128, 128, 10, 10, 256),
    ]
}
WORKLOADS["smoke"] = replace(
    WORKLOADS["W2"],
    name="smoke",
    target_size=20,
    embedding=8,
    encoder=8,
    attention=8,
    source_length=4,
    target_length=4,
    train_batch=4,
    greedy_batches=(2,),
    beam_batches=(2,),
)


def weights(workload, seed=0):
    """Random weights by name, in Keras's layout (inputs, outputs)."""
    w, random = workload, np.random.default_rng(seed)

    def matrix(rows, columns):
        limit = np.sqrt(6 / (rows + columns))
        values = random.uniform(-limit, limit, (rows, columns))
        return values.astype("float32")

    def cell(name, inputs, units):
        # Keras's GRU has a bias for the inputs and one for the state.
        bias = (2, 3 * units) if w.cell == "gru" else (4 * units,)
        return {
            f"{name}/kernel": matrix(inputs, w.gates * units),
            f"{name}/recurrent": matrix(units, w.gates * units),
            f"{name}/bias": np.zeros(bias, "float32"),
        }

    output_bias = np.zeros(w.target_size, "float32")
    # So that every decoder runs all its steps and keeps all its books.
    output_bias[[PAD, START, END]] = NEVER
    return {
        "source_embedding": matrix(w.source_size, w.embedding),
        **cell("forward", w.embedding, w.encoder),
        **cell("backward", w.embedding, w.encoder),
        "target_embedding": matrix(w.target_size, w.embedding),
        **cell("cell", w.embedding + w.units, w.units),
        "memory_kernel": matrix(w.units, w.attention),
        "query_kernel": matrix(w.units, w.attention),
        "score_vector": matrix(w.attention, 1)[:, 0],
        "vector_kernel": matrix(2 * w.units, w.units),
        "output_kernel": matrix(w.units, w.target_size),
        "output_bias": output_bias,
    }


def batch(workload, size, seed=1):
    """`source`, `target` (starts with START) and `labels`, all of full length.

    Full length, so that a library that packs its sequences does the same
    work; masks are computed and applied all the same.
    """
    w, random = workload, np.random.default_rng(seed)
    source = random.integers(UNKNOWN, w.source_size, (size, w.source_length))
    labels = random.integers(UNKNOWN, w.target_size, (size, w.target_length))
    target = np.roll(labels, 1, axis=1)
    target[:, 0] = START
    return [a.astype("int32") for a in (source, target, labels)]


def gigaflops(workload, kind, batch):
    """Multiply-adds of the matrix products alone, counted as two each."""
    w = workload
    step = 2 * (
        (w.embedding + 2 * w.units) * w.gates * w.units
        + w.units * w.attention
        + w.source_length * (w.attention + w.units)
        + 2 * w.units * w.units
        + w.units * w.target_size
    )
    direction = 2 * (w.embedding + w.encoder) * w.gates * w.encoder
    encoder = w.source_length * (2 * direction + 2 * w.units * w.attention)
    rows = w.width if kind == "beam" else 1
    sentence = encoder + rows * w.target_length * step
    passes = 3 if kind == "train" else 1  # forward, and twice that backward
    return passes * batch * sentence / 1e9
