"""Several replicas train as one worker does with the same global batch."""

import concurrent.futures
import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = pathlib.Path(__file__).parents[1] / "support" / "distributed.py"
ROOT = PROGRAM.parents[2]


def run(how, what="arrays", **environment):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, PROGRAM, how, what],
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def alone():
    return run("one")


def assert_alike(found, alone, but=()):
    assert found["history"].keys() == alone["history"].keys()
    for name, values in alone["history"].items():
        if name in but:
            continue
        np.testing.assert_allclose(
            found["history"][name], values, rtol=1e-4, err_msg=name
        )
    np.testing.assert_allclose(found["weights"], alone["weights"], rtol=1e-4)


@pytest.mark.full
def test_two_replicas_in_a_process(alone):
    assert_alike(run("mirrored"), alone)


@pytest.mark.full
@pytest.mark.parametrize("what", ["pairs", "sampling", "rows"])
def test_two_replicas_of_other_data_tokens_and_losses(what, alone):
    expected = run("one", what)
    # Keras logs a mean of the replicas' losses by their rows, and halves of
    # the batches of `pairs` may differ in rows.
    but = ["loss"] if what == "pairs" else []
    assert_alike(run("mirrored", what), expected, but)
    # Neither is what the arrays give, by mistake.
    losses = [x["history"]["loss"] for x in (expected, alone)]
    assert not np.allclose(*losses, rtol=1e-3)


# A model of Keras's own that evaluates seven rows, on two devices.
UNEVEN = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
for run in model.fit, model.evaluate:
    for batch_size in 4, 7:  # 2 + 2 rows and 2 + 1; or 4 + 3
        try:
            x, y = np.ones((7, 4), "float32"), np.ones((7, 3), "float32")
            run(x, y, batch_size=batch_size, verbose=0)
            print("fine")
        except tf.errors.InvalidArgumentError as error:
            assert "AddN" in str(error), error
            print("uneven")
"""


@pytest.mark.full
def test_keras_fails_itself_where_a_first_batch_divides_unevenly():
    """If this fails, Keras has mended it: change the page on training."""
    done = subprocess.run(
        [sys.executable, "-c", UNEVEN],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == ["fine", "uneven"] * 2


@pytest.mark.full
def test_two_processes(alone):
    with socket.socket() as one, socket.socket() as other:
        for x in (one, other):
            x.bind(("localhost", 0))
        addresses = [f"localhost:{x.getsockname()[1]}" for x in (one, other)]
    configs = [
        {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": index},
        }
        for index in range(2)
    ]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        workers = [
            pool.submit(run, "worker", TF_CONFIG=json.dumps(config))
            for config in configs
        ]
    for worker in workers:
        weights = worker.result()["weights"]
        np.testing.assert_allclose(weights, alone["weights"], rtol=1e-4)


@pytest.mark.full
def test_two_devices_of_jax():
    pytest.importorskip("jax")
    alone = run("one", KERAS_BACKEND="jax")
    assert_alike(run("sharded"), alone)
