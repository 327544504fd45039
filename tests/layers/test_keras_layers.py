"""Our layers pass the test that Keras runs on its own layers.

`run_layer_test` builds, calls symbolically and eagerly, saves and revives a
layer, and runs it in mixed precision. It is not public but ships with Keras.
"""

import keras
import pytest
from keras import layers
from keras.src import testing
from support import mechanisms

import keras_attn

ADDITIVE = {"score": keras_attn.AdditiveScore(4)}


class Checks(testing.TestCase):
    """Makes Keras's checks callable from a test function."""

    def runTest(self):
        """Runs no test by itself."""


@pytest.mark.parametrize(
    "layer, arguments, weights",
    [
        (keras_attn.BahdanauAttention, {"units": 4}, 3),
        (keras_attn.LuongAttention, {"score": "dot"}, 0),
        (keras_attn.LuongAttention, {"score": "general"}, 1),
        (keras_attn.LuongAttention, {"score": "concat", "units": 4}, 2),
        (keras_attn.ScaledDotAttention, {}, 0),
        (keras_attn.Attention, ADDITIVE, 3),
    ],
)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_attentions_are_layers_as_keras_wants_them(
    layer, arguments, weights, dropout
):
    Checks().run_layer_test(
        layer,
        init_kwargs={**arguments, "dropout": dropout},
        input_shape={"query_shape": (2, 3, 4), "value_shape": (2, 5, 4)},
        expected_output_shape=(2, 3, 4),
        expected_num_trainable_weights=weights,
        expected_num_non_trainable_weights=0,
        expected_num_seed_generators=1 if dropout else 0,
        expected_num_losses=0,
        supports_masking=True,
        run_training_check=False,  # it knows one input only
    )


@pytest.mark.parametrize("wiring", mechanisms.WIRINGS)
@pytest.mark.parametrize("emit", ["attentional", "concatenated"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_decoders_are_layers_as_keras_wants_them(wiring, emit, cell):
    attentional = emit == "attentional"
    Checks().run_layer_test(
        keras_attn.AttentionDecoder,
        init_kwargs={
            "cell": mechanisms.CELLS[cell](),
            "attention": keras_attn.LuongAttention("general"),
            "emit": emit,
            **mechanisms.WIRINGS[wiring],
        },
        input_shape={"inputs_shape": (2, 3, 4), "memory_shape": (2, 5, 6)},
        expected_output_shape=(2, 3, 4 if attentional else 10),
        expected_num_trainable_weights=3 + 1 + attentional,
        expected_num_non_trainable_weights=0,
        expected_num_losses=0,
        supports_masking=True,
        run_training_check=False,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "make",
    [
        lambda x: keras_attn.BahdanauAttention(4, dropout=0.1)(x, x),
        lambda x: keras_attn.AttentionDecoder(
            layers.GRUCell(4), keras_attn.BahdanauAttention(4)
        )(x, x),
    ],
)
def test_layers_train_with_the_compilation_keras_chooses(make):
    x = keras.Input((3, 4))
    model = keras.Model(x, make(x))
    model.compile("sgd", "mse", jit_compile="auto")
    data = mechanisms.draw(2, 3, 4)
    before = [w.copy() for w in model.get_weights()]
    model.fit(data, data, verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        assert (a != b).any()
