"""The cut in TensorFlow's graphs: compiled by XLA, and without rows."""

import numpy as np
import pytest
import tensorflow as tf
from cuts import SOURCE
from cuts import TARGET
from cuts import speak_up
from cuts import with_path
from test_incremental_layers import PATHS

from keras_attn import Incremental

# Keras warns where a layer lets a mask go; here that is often the point.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


def looped(cut, jit_compile):
    """A function of `(source, target)` to logits: a loop within the graph."""

    def run(source, target):
        encoded = cut.encode(source)
        length, size = target.shape[1], cut.model.outputs[0].shape[-1]

        def step(t, state, logits):
            # Two hypotheses, which change places at every step.
            tokens = tf.gather(target, [t, t], axis=1)
            found, _, state = cut.step(tokens, state, encoded)
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
                cut.start(encoded, 2, length),
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
