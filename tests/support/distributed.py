"""A small training on one worker or several, for `test_distribution.py`.

As a program: `distributed.py HOW WHAT` prints what it measured in JSON. HOW is
"one", "mirrored" (two replicas in this process), "worker" (one of several
processes, which `TF_CONFIG` names) or "sharded" (two devices of JAX). WHAT is
"arrays", "rows" (the same, with a loss per row), "pairs" (lines, by
`keras_attn.pairs`) or "sampling" (a model that reads the tokens that it thinks
likeliest).
"""

import json
import os
import sys

HOW, WHAT = sys.argv[1:]
if HOW == "sharded":
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import contextlib  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

import keras_attn  # noqa: E402

SIZE, ROWS, BATCH, EPOCHS = 9, 20, 8, 3


def arrays():
    """Rows of very different lengths: halves of a batch differ in tokens."""
    random = np.random.default_rng(4)
    lengths = random.integers(1, 12, ROWS)
    target = np.zeros((ROWS, 13), "int32")
    for row, length in zip(target, lengths, strict=True):
        row[:length] = random.integers(4, SIZE, length)
        row[length] = 2
    source = target[:, ::-1].copy()
    shifted = np.concatenate([np.ones((ROWS, 1), "int32"), target[:, :-1]], 1)
    return source, np.where(target == 0, 0, shifted), target


def build():
    keras.utils.set_random_seed(7)
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embed = layers.Embedding(SIZE, 8, mask_zero=True)
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(embed(target), embed(source))
    inputs, logits = [source, target], layers.Dense(SIZE)(hidden)
    model = (
        keras_attn.ScheduledSamplingModel(inputs, logits, 0.0, draw="argmax")
        if WHAT == "sampling"
        else keras.Model(inputs, logits)
    )
    model.compile(
        keras.optimizers.SGD(0.5),
        keras_attn.SequenceCrossentropy(
            per="row" if WHAT == "rows" else "token"
        ),
        metrics=[keras_attn.TokenAccuracy(), keras_attn.Perplexity()],
    )
    return model


def lines():
    """The same rows as arrays, as text."""
    text = keras_attn.Text(list("abcde"), split="characters")
    assert text.size == SIZE
    sources, _, targets = (text.strings(x).numpy() for x in arrays())
    sides = ([x.decode() for x in some] for some in (sources, targets))
    return *sides, text, text


def data(tensorflow):
    source, target, right = arrays()
    if WHAT == "pairs":
        pairs = keras_attn.pairs(*lines(), BATCH, seed=3, buckets=2)
        # Under a strategy Keras reads a batch before the first epoch.
        numbered = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, _: pairs.set_epoch(epoch)
        )
        return {"x": pairs, "callbacks": [numbered]}
    if not tensorflow:
        return {"x": [source, target], "y": right, "batch_size": BATCH}
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices(((source, target), right))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return {"x": rows.batch(BATCH).with_options(options)}


def scope():
    """Returns the context to build the model in."""
    if HOW == "one":
        return contextlib.nullcontext()
    if HOW == "sharded":
        devices = keras.distribution.list_devices()
        assert len(devices) == 2
        keras.distribution.set_distribution(keras.distribution.DataParallel())
        return contextlib.nullcontext()
    import tensorflow as tf

    if HOW == "worker":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    return strategy.scope()


def train_on_own_share(model):
    """Trains with this worker's half of each batch.

    `fit` and `train_on_batch` of Keras 3.15 fail on several workers, because
    they sum up the logs in a way that needs a single process.
    """
    import tensorflow as tf

    strategy = model.distribute_strategy
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def step(batch):
        strategy.run(model.train_step, args=(batch,))

    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    half = slice(index, None, 2)
    for _ in range(EPOCHS):
        for first in range(0, ROWS, BATCH):
            source, target, right = (
                tf.constant(x[first : first + BATCH][half]) for x in arrays()
            )
            step(((source, target), right))
    return {}


def main():
    with scope():
        model = build()
    if HOW == "worker":
        history = train_on_own_share(model)
    else:
        given = data(keras.backend.backend() == "tensorflow")
        history = model.fit(
            **given, epochs=EPOCHS, shuffle=False, verbose=0
        ).history
    sums = [float(np.abs(x).sum()) for x in model.get_weights()]
    print(json.dumps({"history": history, "weights": sums}))


if __name__ == "__main__":
    main()
