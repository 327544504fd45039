"""The cut in TensorFlow's graphs: compiled by XLA, and without rows."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support.cuts import SOURCE
from support.cuts import SOURCES
from support.cuts import TARGET
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import inputs
from support.cuts import speak_up
from support.cuts import with_path
from support.steppable import PATHS

import keras_attn
from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


def looped(cut, jit_compile, hoist=False):
    """Returns a function of `(source, target)` with the loop in its graph."""

    def run(source, target):
        steps, encoded = cut, cut.encode(source)
        if hoist:
            steps, encoded = cut.hoist(encoded, compiled=jit_compile)
        length, size = target.shape[1], cut.model.outputs[0].shape[-1]

        def step(t, state, logits):
            # Two hypotheses, which change places at every step.
            tokens = tf.gather(target, [t, t], axis=1)
            found, _, state = steps.step(tokens, state, encoded)
            parents = tf.tile([[1, 0]], [tf.shape(source)[0], 1])
            state = tf.nest.map_structure(
                lambda x: tf.gather(x, parents, batch_dims=1), state
            )
            here = tf.range(length)[:, None] == t
            return t + 1, state, tf.where(here, found[:, :1], logits)

        _, _, logits = tf.while_loop(
            lambda t, *_: t < length,
            step,
            (
                tf.constant(0),
                steps.start(encoded, 2, length),
                tf.zeros([tf.shape(source)[0], length, size]),
            ),
            maximum_iterations=length,
        )
        return logits

    return tf.function(
        run,
        input_signature=[
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, TARGET.shape[1]], tf.int32),
        ],
        jit_compile=jit_compile,
        autograph=False,
    )


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_loop_in_the_graph_computes_what_the_whole_does(jit_compile):
    def all_kinds(x, memory):
        for name in ("own, groups", "nested_block", "gru_below_decoder", "hub"):
            x = PATHS[name](x, memory)
        return PATHS["rotary"](x, memory)

    model = speak_up(with_path(all_kinds))
    run = looped(Incremental(model), jit_compile)
    np.testing.assert_allclose(
        run(SOURCE, TARGET), model([SOURCE, TARGET]), atol=1e-4
    )
    if not jit_compile:
        assert run(SOURCE[:0], TARGET[:0]).shape == (0, 4, 9)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("layer", ["decoder", "layer", "context alone"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_few_and_many_hypotheses_get_the_same(layer, jit_compile):
    """With XLA, products stay in the loop for 2 hypotheses, not for 6."""
    source, target = inputs()
    memory = layers.Embedding(SOURCES, 6, mask_zero=True)(source)
    size = 300 if layer == "context alone" else 64  # 300: no table
    x = layers.Embedding(size, 6)(target)
    if layer == "layer":
        x = layers.LSTM(6, return_sequences=True)(x)
        x = keras_attn.BahdanauAttention(4)(x, memory)
    else:
        x = decoder(order="post")(x, memory)
    model = keras.Model([source, target], layers.Dense(TARGETS)(x))
    cut = Incremental(speak_up(model))
    expected = looped(cut, jit_compile)(SOURCE, TARGET)
    hoisted = looped(cut, jit_compile, hoist=True)
    np.testing.assert_allclose(hoisted(SOURCE, TARGET), expected, atol=1e-5)
    for row in range(len(SOURCE)):
        alone = slice(row, row + 1)
        np.testing.assert_allclose(
            hoisted(SOURCE[alone], TARGET[alone]), expected[alone], atol=1e-5
        )
    nodes = {
        node.op
        for function in hoisted.get_concrete_function()
        .graph.as_graph_def()
        .library.function
        for node in function.node_def
    }
    assert bool(nodes & {"Case", "StatelessCase"}) == jit_compile
