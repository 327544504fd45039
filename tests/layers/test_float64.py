"""The whole table in double precision, by `floatx` and by a layer's dtype."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops
from support.mechanisms import MECHANISMS
from support.mechanisms import QUERY_DIM

import keras_attn

TEXT = keras_attn.Text("abcd", split="characters")
QUERY = np.random.default_rng(0).normal(size=(3, 4, QUERY_DIM))


@pytest.fixture(params=["floatx", "dtype"])
def arguments(request):
    """Makes layers compute in float64."""
    if request.param == "dtype":
        yield {"dtype": "float64"}
        return
    before, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    # It decides only while no policy was set, as other tests do.
    keras.config.set_dtype_policy("float64")
    try:
        yield {}
    finally:
        keras.config.set_floatx(before)
        keras.config.set_dtype_policy(policy)


def value_of(mechanism):
    shape = (3, 5, mechanism.value_dim)
    return np.random.default_rng(1).normal(size=shape)


@pytest.mark.sample_cases(6)
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda x: x.name)
def test_a_layer_attends_learns_and_steps(mechanism, arguments):
    attention = mechanism.make(**arguments)
    value = value_of(mechanism)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], bool)
    with tf.GradientTape() as tape:
        context, weights = attention(
            QUERY,
            value,
            value_mask=mask,
            return_attention_scores=True,
            training=True,
        )
        loss = ops.sum(ops.square(context))
    assert context.dtype == weights.dtype == "float64"
    assert np.isfinite(context).all()
    gradients = tape.gradient(loss, attention.trainable_variables)
    assert all(np.isfinite(x).all() for x in gradients if x is not None)
    _, expected = attention(
        QUERY, value, value_mask=mask, return_attention_scores=True
    )
    memory = attention.prepare(
        ops.convert_to_tensor(value, "float64"),
        value_mask=ops.convert_to_tensor(mask),
    )
    history = attention.initial_history(memory)
    for t in range(QUERY.shape[1]):
        query = ops.convert_to_tensor(QUERY[:, t : t + 1], "float64")
        _, found, history = attention.step(query, memory, history)
        np.testing.assert_allclose(found[:, 0], expected[:, t], atol=1e-5)


FIRST = "floatx", "pre"
# Rows that once mixed float32 with `floatx`; `make test-all` runs the others.
ONCE_BROKEN = {
    "luong local-m",
    "luong local-p",
    "sparsemax",
    "entmax",
    "monotonic, recursive",
}


@pytest.mark.full
@pytest.mark.parametrize(
    "mechanism, arguments, order",
    [
        pytest.param(
            mechanism,
            kind,
            order,
            id=f"{mechanism.name}-{kind}-{order}",
            marks=()
            if mechanism.name in ONCE_BROKEN and (kind, order) == FIRST
            else pytest.mark.full,
        )
        for mechanism in MECHANISMS
        for kind, order in [FIRST, ("floatx", "post"), ("dtype", "pre")]
    ],
    indirect=["arguments"],
)
def test_a_model_trains_and_is_decoded(mechanism, order, arguments):
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")

    def embed(ids, dim):
        made = layers.Embedding(TEXT.size, dim, mask_zero=True, **arguments)
        return made(ids)

    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(QUERY_DIM, **arguments),
        mechanism.make(**arguments),
        order=order,
        **arguments,
    )
    hidden = decoder(embed(target, 3), embed(source, mechanism.value_dim))
    logits = layers.Dense(TEXT.size, **arguments)(hidden)
    model = keras.Model([source, target], logits)
    assert model.outputs[0].dtype == "float64"
    model.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    data = keras_attn.pairs(
        ["abc", "d"], ["ab", "cda"], TEXT, TEXT, batch_size=2
    )
    history = model.fit(data, verbose=0, shuffle=False)
    assert np.isfinite(history.history["loss"]).all()
    search = keras_attn.BeamSearch(2, max_length=3)
    found = keras_attn.Translator(model, TEXT, TEXT, search)(["abc", "d"])
    assert np.isfinite(found.scores).all()


PARTS = {
    "PositionEmbedding": lambda **k: keras_attn.PositionEmbedding(9, **k),
    "SinePositionEncoding": lambda **k: keras_attn.SinePositionEncoding(**k),
    "GRUCell": lambda **k: layers.RNN(keras_attn.GRUCell(4, **k), **k),
    "LayerNormGRUCell": lambda **k: layers.RNN(
        keras_attn.LayerNormGRUCell(4, **k), **k
    ),
    "LayerNormLSTMCell": lambda **k: layers.RNN(
        keras_attn.LayerNormLSTMCell(4, **k), **k
    ),
    "ResidualCell": lambda **k: layers.RNN(
        keras_attn.ResidualCell(layers.GRUCell(4, **k), **k), **k
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_other_layers_compute_in_float64_too(name, arguments):
    found = PARTS[name](**arguments)(QUERY)
    assert found.dtype == "float64"
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    "options",
    [
        {"self_attention": True},
        {"self_attention": True, "order": "post", "input_feeding": False},
        {"bridge": "dense"},
        {"query": ("state", "condition")},
        {"regularizer": keras_attn.CoverageLoss(1.0)},
        {"regularizer": keras_attn.DoublyStochastic(1.0)},
        {"dropout": 0.2},
    ],
    ids=lambda x: "-".join(x),
)
def test_a_decoder_computes_in_float64_with_any_option(options, arguments):
    options = dict(options)
    of_attention = {
        name: options.pop(name)
        for name in ("regularizer", "dropout")
        if name in options
    }
    given = {}
    if options.get("self_attention"):
        options["self_attention"] = keras_attn.ScaledDotAttention(**arguments)
    if "bridge" in options:
        given["initial_state"] = np.ones((3, 7))
    if "query" in options:
        given["condition"] = np.ones((3, 2))
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(4, **arguments),
        keras_attn.BahdanauAttention(5, **of_attention, **arguments),
        **options,
        **arguments,
    )
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1]], bool)
    found = decoder(
        QUERY, np.ones((3, 5, 6)), inputs_mask=mask, training=True, **given
    )
    assert found.dtype == "float64"
    assert np.isfinite(found).all()
