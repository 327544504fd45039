"""Parts of a model on devices of their own."""

import os
import pathlib
import subprocess
import sys

import keras
import pytest

import keras_attn

ROOT = pathlib.Path(__file__).parents[2]

# Logical devices can be made only before TensorFlow starts.
PLACED = """
import sys

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 3
)
import keras
from keras import layers

import keras_attn
from keras_attn import on_device

lines = ["a b", "b c d", "d"]
text = keras_attn.Text.from_lines(lines, split="whitespace")
source = keras.Input((None,), dtype="int32")
target = keras.Input((None,), dtype="int32")
encoder = on_device(layers.GRU(4, return_sequences=True), "cpu:0")
attention = on_device(keras_attn.BahdanauAttention(4), "cpu:2")
decoder = on_device(
    keras_attn.AttentionDecoder(layers.GRUCell(4), attention), "cpu:1"
)
memory = encoder(layers.Embedding(text.size, 4, mask_zero=True)(source))
hidden = decoder(layers.Embedding(text.size, 4, mask_zero=True)(target), memory)
model = keras.Model([source, target], layers.Dense(text.size)(hidden))

for layer, device in (encoder, 0), (decoder, 1), (attention, 2):
    inner = attention.weights if layer is decoder else []
    for weight in layer.weights:
        if not any(weight is x for x in inner):
            assert weight.value.device.endswith(f"CPU:{device}"), weight.path

# Where the operations were traced, and that their results are as they were.
graph = tf.function(model).get_concrete_function(
    [tf.TensorSpec([None, None], tf.int32)] * 2
)
def operations(graph):
    yield from graph.get_operations()
    for function in graph._functions.values():
        if hasattr(function, "graph"):
            yield from function.graph.get_operations()
devices = {}
for operation in operations(graph.graph):
    devices.setdefault(operation.device[-5:], set()).add(operation.type)
assert "MatMul" in devices["CPU:0"] and "MatMul" in devices["CPU:1"]
cell = on_device(layers.GRUCell(4), "cpu:2")
cell.build((None, 4))
run = keras_attn.layers.cells.run
step = tf.function(lambda x, h: run(cell, x, [h], False)[0])
graph = step.get_concrete_function(*[tf.TensorSpec([2, 1, 4])] * 2).graph
products = [x for x in graph.get_operations() if x.type == "MatMul"]
assert {x.device[-5:] for x in products} == {"CPU:2"}
assert "Tanh" in devices["CPU:2"], devices
ids = [np.array([[4, 5, 2], [6, 2, 0]]), np.array([[1, 4, 5], [1, 6, 0]])]
answer = model(ids)

assert not decoder.supports_jit  # as on a machine with GPUs Keras would
model.compile("sgd", loss=keras_attn.SequenceCrossentropy())
model.fit(ids, ids[0], verbose=0)
translator = keras_attn.Translator(
    model, text, text, keras_attn.GreedySearch(max_length=4)
)
before = translator(lines)
translator.export(sys.argv[1])
translator.save(sys.argv[2])
print(*before.text, sep="|")
"""

LOADED = """
import sys

import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import saved_model_pb2

import keras_attn

lines = ["a b", "b c d", "d"]
proto = saved_model_pb2.SavedModel()
proto.ParseFromString(open(f"{sys.argv[1]}/1/saved_model.pb", "rb").read())
graph = proto.meta_graphs[0].graph_def
nodes = [graph.node, *(x.node_def for x in graph.library.function)]
for node in (node for some in nodes for node in some):
    assert not node.device.endswith((":1", ":2")), node
served = tf.saved_model.load(f"{sys.argv[1]}/1").signatures["serving_default"]
found = served(text=tf.constant(lines))["text"].numpy()
print(*[x.decode() for x in found], sep="|")
print(*keras_attn.Translator.load(sys.argv[2])(lines).text, sep="|")
"""


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.full
def test_three_devices_share_a_model_that_loads_on_one(tmp_path):
    paths = tmp_path / "export", tmp_path / "saved"
    (placed,) = run(PLACED, *paths)
    assert run(LOADED, *paths) == [placed, placed]


def test_what_is_no_layer_or_no_device_is_refused():
    with pytest.raises(ValueError, match="places a Keras layer"):
        keras_attn.on_device(lambda x: x, "cpu:0")
    with pytest.raises(ValueError, match="must be a device's name"):
        keras_attn.on_device(keras.layers.Dense(1), 0)
