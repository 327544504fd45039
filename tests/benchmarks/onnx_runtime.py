"""ONNX Runtime beside TensorFlow: the time of one export in each.

    python tests/benchmarks/onnx_runtime.py            some minutes
    python tests/benchmarks/onnx_runtime.py --smoke    half a minute

A translator is exported as a SavedModel and as an ONNX model. Both are loaded
again and decode the same ids: the SavedModel by its signature `ids`, the other
by ONNX Runtime. CPU time of one thread each, median over rounds in which both
take turns, and the median of the rounds' ratios. Both must find the same ids.

The nets have random weights and the sizes of W1, the small translation net of
`run.py`, and of W2, its pronunciation net: LSTMs for both, and a Transformer of
two blocks each way, whose decoder attends to its own past, for W1. All texts
are decoded to the maximum length, so rows neither leave a batch nor are parted
into buckets.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from worker import limit_threads

limit_threads(1)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import layers  # noqa: E402

import keras_attn  # noqa: E402

BEAMS = 5


class Net(NamedTuple):
    """The sizes of a net."""

    vocabulary: int
    units: int
    source: int  # tokens
    target: int


NETS = {
    "W1, LSTM": Net(8000, 512, 25, 25),
    "W2, LSTM": Net(75, 256, 10, 10),
    "W1, Transformer": Net(8000, 512, 25, 25),
}
SMOKE = Net(50, 16, 4, 5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    rounds = 1 if args.smoke else args.rounds
    print(
        f"TensorFlow {tf.__version__}, ONNX Runtime {onnxruntime.__version__}\n"
    )
    print("| net | search | texts | TensorFlow | ONNX Runtime | ratio |")
    print("|---|---|---|---|---|---|")
    for name, net in NETS.items():
        if args.smoke:
            net = SMOKE
        of = transformer if name.endswith("Transformer") else recurrent
        made = of(net)
        for search in ("greedy", "beam"):
            with tempfile.TemporaryDirectory() as folder:
                calls = exported(made, net, search, Path(folder))
                for texts in (1, 2) if args.smoke else (1, 32):
                    random = np.random.default_rng(1)
                    shape = texts, net.source
                    ids = random.integers(4, net.vocabulary, shape, "int32")
                    cells = compare(calls, ids, rounds)
                    print(f"| {name} | {search} | {texts} | {cells} |")
                    sys.stdout.flush()
    return 0


def recurrent(net):
    """A net of LSTMs with Bahdanau's attention."""
    source, target = inputs()
    memory, h, c = layers.LSTM(
        net.units, return_sequences=True, return_state=True
    )(layers.Embedding(net.vocabulary, net.units, mask_zero=True)(source))
    hidden = keras_attn.AttentionDecoder(
        layers.LSTMCell(net.units), keras_attn.BahdanauAttention(net.units)
    )(
        layers.Embedding(net.vocabulary, net.units, mask_zero=True)(target),
        memory,
        initial_state=[h, c],
    )
    logits = layers.Dense(net.vocabulary)(hidden)
    return keras.Model([source, target], logits)


def transformer(net):
    """A Transformer of two blocks each way."""
    source, target = inputs()
    memory = embedded(source, net)
    for _ in range(2):
        memory = attended(memory, memory, net)
        memory = fed_forward(memory, net)
    x = embedded(target, net)
    for _ in range(2):
        x = attended(x, x, net, use_causal_mask=True)
        x = fed_forward(attended(x, memory, net), net)
    return keras.Model([source, target], layers.Dense(net.vocabulary)(x))


def inputs():
    return [
        keras.Input((None,), dtype="int32", name=x)
        for x in ("source", "target")
    ]


def embedded(ids, net):
    x = layers.Embedding(net.vocabulary, net.units, mask_zero=True)(ids)
    return keras_attn.SinePositionEncoding()(x)


def attended(x, memory, net, **options):
    """Attention of 8 heads, normalized before it."""
    query = layers.LayerNormalization()(x)
    # Each attention has a tensor of its own, since it removes the mask.
    value = query if x is memory else layers.LayerNormalization()(memory)
    heads = layers.MultiHeadAttention(8, net.units // 8)
    return layers.Add()([x, heads(query, value, **options)])


def fed_forward(x, net):
    found = layers.LayerNormalization()(x)
    found = layers.Dense(4 * net.units, activation="relu")(found)
    return layers.Add()([x, layers.Dense(net.units)(found)])


def exported(model, net, search, folder):
    """Returns a function of ids for each of the two formats."""
    limits = {"max_length": net.target, "min_length": net.target}
    kind = {
        "greedy": keras_attn.GreedySearch(**limits),
        "beam": keras_attn.BeamSearch(BEAMS, **limits),
    }[search]
    words = [f"w{i}" for i in range(net.vocabulary - 4)]
    text = keras_attn.Text(words, split="whitespace")
    translator = keras_attn.Translator(model, text, text, kind)
    loaded = tf.saved_model.load(str(translator.export(folder / "tf")))
    signature = loaded.signatures["ids"]
    path = translator.export(folder / "onnx", format="onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path / "model.onnx", options)

    def by_tensorflow(ids, lengths, keep=loaded):
        found = signature(ids=tf.constant(ids), lengths=tf.constant(lengths))
        return found["ids"].numpy(), found["scores"].numpy()

    def by_onnx_runtime(ids, lengths):
        given = {"ids": ids, "lengths": lengths}
        return session.run(["target_ids", "scores"], given)

    return by_tensorflow, by_onnx_runtime


def compare(calls, ids, rounds):
    """Returns cells: the CPU times of two calls, and their ratio."""
    lengths = np.full(len(ids), ids.shape[1], "int32")
    (ids_one, scores), (ids_other, others) = (x(ids, lengths) for x in calls)
    np.testing.assert_allclose(scores, others, rtol=1e-3, atol=1e-3)
    # A near tie may break either way.
    assert np.mean(ids_one == ids_other) > 0.9
    times = [[], []]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            start = time.process_time()
            call(ids, lengths)
            found.append(time.process_time() - start)
    one, other = map(median, times)
    ratio = median(y / x for x, y in zip(*times, strict=True))
    return f"{1e3 * one:.1f} ms | {1e3 * other:.1f} ms | {ratio:.2f}"


if __name__ == "__main__":
    sys.exit(main())
