"""Internals of Keras that a new version has to keep, a test for each.

A failing test names the change, and `keras_attn/keras_internals.py` is the only
file to adapt.
"""

import keras
import keras_hub
import numpy as np
import pytest
from keras import layers
from keras import ops

from keras_attn import keras_internals


def functional():
    """`(model, its input, its hidden tensor)`."""
    x = keras.Input((3,))
    hidden = layers.Dense(4, name="hidden")(x)
    return keras.Model(x, layers.Dense(2, name="last")(hidden)), x, hidden


def test_the_scope_in_which_weights_are_cast():
    class Scaled(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(1,))

    layer = Scaled()
    layer.build((1,))
    with keras_internals.AutocastScope("float16"):
        inside = ops.convert_to_tensor(layer.scale * 1.0)
    assert keras.backend.standardize_dtype(inside.dtype) == "float16"


def test_masks_are_attributes_of_tensors():
    x = layers.Embedding(4, 2, mask_zero=True)(np.array([[3, 0]]))
    mask = keras_internals.get_keras_mask(x)
    np.testing.assert_array_equal(mask, [[True, False]])
    keras_internals.set_keras_mask(x, None)
    assert keras_internals.get_keras_mask(x) is None
    assert keras_internals.get_keras_mask(np.zeros(2)) is None
    keras_internals.set_keras_mask(x, mask)
    assert keras_internals.get_keras_mask(x) is mask


@pytest.mark.parametrize("cell", [layers.GRUCell, layers.LSTMCell])
def test_a_cell_that_drops_draws_its_masks_once_until_told(cell):
    made = cell(2, dropout=0.5, recurrent_dropout=0.5)
    assert isinstance(made, keras_internals.DropoutRNNCell)
    for kind in ("dropout", "recurrent_dropout"):
        draw = getattr(made, f"get_{kind}_mask")
        first = draw(np.ones((1, 2), "float32"))
        assert draw(np.ones((1, 2), "float32")) is first
        getattr(made, f"reset_{kind}_mask")()
        assert draw(np.ones((1, 2), "float32")) is not first


def test_what_compile_gives_a_model_has_these_names():
    model, *_ = functional()
    model.compile("adam", "mse", metrics=["mae"])
    for name in keras_internals.COMPILED:
        assert vars(model)[name] is not None


def test_a_model_lists_itself_and_all_layers_within():
    model, *_ = functional()
    outer = keras.Sequential([layers.Dense(3), model])
    found = keras_internals.layers_within(outer)
    assert isinstance(found, list) and found[0] is outer
    for layer in (model, *outer.layers, *model.layers):
        assert any(layer is x for x in found)


def test_a_layer_tells_its_own_variables_from_those_within():
    class Both(layers.Layer):
        def build(self, shape):
            self.weight = self.add_weight(shape=(1,))
            self.fixed = self.add_weight(shape=(1,), trainable=False)
            self.inner = layers.Dense(2)
            self.inner.build(shape)

    layer = Both()
    layer.build((1, 2))
    own = keras_internals.own_variables(layer)
    assert len(own) == 2
    assert own[0] is layer.weight and own[1] is layer.fixed


def test_the_state_of_a_seed_is_known_by_its_path():
    dropout, dense = layers.Dropout(0.5), layers.Dense(2)
    dense.build((1, 2))
    assert [keras_internals.is_seed(x) for x in dropout.variables] == [True]
    assert not any(keras_internals.is_seed(x) for x in dense.variables)


def test_draws_without_a_seed_share_a_generator():
    keras.random.normal((2,))
    (state,) = keras_internals.shared_seeds()
    assert keras_internals.is_seed(state)
    before = ops.convert_to_numpy(state.value)
    keras.random.normal((2,))
    assert (ops.convert_to_numpy(state.value) != before).any()


class OwnCall(keras.Model):
    def call(self, inputs):
        return inputs


def test_a_callback_makes_fit_start_at_another_epoch():
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    start = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: keras_internals.start_at(model, 2)
    )
    x = np.ones((2, 1), "float32")
    history = model.fit(x, x, epochs=4, verbose=0, callbacks=[start])
    assert history.epoch == [2, 3]
    # Keras does not forget it by itself.
    assert model.fit(x, x, epochs=3, verbose=0).epoch == [2]
    keras_internals.forget_start(model)
    assert model.fit(x, x, epochs=1, verbose=0).epoch == [0]


def test_a_callback_finds_the_fit_that_runs():
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    found = []
    spy = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: found.append(
            keras_internals.running_fit(model)
        )
    )
    x = np.ones((4, 1), "float32")
    for steps in None, 1:
        model.fit(
            x,
            x,
            batch_size=2,
            steps_per_epoch=steps,
            verbose=0,
            callbacks=[keras.callbacks.TerminateOnNaN(), spy],
        )
    assert [x.steps for x in found] == [None, 1]
    assert [x.batches for x in found] == [2, 2]
    assert all(x.callbacks[1] is spy for x in found)
    assert keras_internals.running_fit(model) is None


def test_a_functional_model_is_told_from_others():
    model, x, _ = functional()
    sequential = keras.Sequential([x, layers.Dense(2)])
    for one in (model, sequential):
        assert keras_internals.is_functional(one)
    subclass = OwnCall(x, model.output)
    assert isinstance(subclass, keras_internals.Functional)
    for one in (subclass, layers.Dense(2), ops.add):
        assert not keras_internals.is_functional(one)


def test_a_sequential_model_keeps_a_functional_one_within():
    model, x, _ = functional()
    sequential = keras.Sequential([x, layers.Dense(2)])
    assert keras_internals.graph_of(model) is model
    found = keras_internals.graph_of(sequential)
    assert isinstance(found, keras_internals.Functional)
    assert found.outputs[0] is sequential.outputs[0]
    assert keras_internals.graph_of(layers.Dense(2)) is None


def test_a_symbolic_tensor_remembers_the_call_that_gave_it():
    model, x, hidden = functional()
    assert keras_internals.in_graph(hidden)
    assert not keras_internals.in_graph(keras.KerasTensor((1,)))
    node = keras_internals.producer(hidden)
    assert node.operation is model.get_layer("hidden")
    assert node.outputs[0] is hidden and node.input_tensors[0] is x
    assert node.arguments.args[0] is x and node.arguments.kwargs == {}
    args, _ = node.arguments.fill_in({id(x): "a value"})
    assert args == ("a value",)
    (parent,) = node.parent_nodes
    assert parent.is_input and not node.is_input


def test_a_functional_model_tells_the_order_in_which_it_runs():
    model, *_ = functional()
    found = keras_internals.nodes_in_order(model)
    assert [x.operation.name for x in found] == ["hidden", "last"]


def test_an_operation_is_told_that_it_does_not_train():
    class Told(layers.Layer):
        def call(self, inputs, training=True):
            return 2 * inputs if training else inputs

    told = keras_internals.without_training(Told())
    assert float(told(np.ones(1))[0]) == 1.0
    untold = keras_internals.without_training(layers.Flatten())
    assert untold(np.ones((1, 2, 3))).shape == (1, 6)


def test_operations_of_keras_ops_are_told_from_layers():
    found = keras_internals.producer(ops.flip(keras.Input((3,)))).operation
    assert keras_internals.is_operation_of_keras(found)
    assert type(found).__name__ == "Flip"
    assert not keras_internals.is_operation_of_keras(layers.Flatten())


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize(
    "kind", [layers.MultiHeadAttention, layers.GroupQueryAttention]
)
def test_attention_projects_by_layers_of_its_own(kind, gate):
    heads = (2, 3) if kind is layers.MultiHeadAttention else (3, 4, 2)
    attention = kind(*heads, use_gate=gate)
    x = np.ones((1, 5, 6), "float32")
    attention(x, x)
    found = keras_internals.projections(attention)
    assert found.query(x).shape[-1] == found.key(x).shape[-1] == 3
    count = 2 if kind is layers.MultiHeadAttention else 4
    assert found.query(x).shape == (1, 5, count, 3)
    assert found.key(x).shape == found.value(x).shape == (1, 5, 2, 3)
    assert found.output(found.query(x)).shape == x.shape
    assert (found.gate is not None) == gate


def test_attention_tells_its_window():
    many = layers.MultiHeadAttention(2, 3, sliding_window=4)
    groups = layers.GroupQueryAttention(3, 4, 2, sliding_window=5)
    assert keras_internals.sliding_window(many) == 4
    assert keras_internals.sliding_window(groups) == 5
    assert keras_internals.sliding_window(layers.Attention()) is None


@pytest.mark.parametrize("reads_source", [False, True])
def test_kerashubs_decoder_is_made_of_these_parts(reads_source):
    block = keras_hub.layers.TransformerDecoder(8, 2)
    x = np.ones((1, 3, 4), "float32")
    expected = block(x, x) if reads_source else block(x)
    parts = keras_internals.hub_decoder_parts(block)
    y = parts.self_attention_norm(x + parts.self_attention(x, x))
    if reads_source:
        attended = parts.cross_attention(y, x)
        y = parts.cross_attention_norm(y + attended)
    else:
        assert parts.cross_attention is None
    fed = parts.output_dense(parts.intermediate_dense(y))
    y = parts.feedforward_norm(y + fed)
    # All positions are equal, so that a mask makes no difference.
    np.testing.assert_allclose(y, expected, atol=1e-6)


def test_files_are_read_and_written_by_keras_s_functions(tmp_path):
    path = str(tmp_path / "x.json")
    files = keras_internals.file_utils
    assert not files.exists(path) and not files.is_remote_path(path)
    assert files.is_remote_path("gs://bucket/x.json")
    with files.File(path, "w") as file:
        file.write("1")
    with files.File(path) as file:
        assert file.read() == "1"
    files.remove(path)
    assert not files.exists(path)
