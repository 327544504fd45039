"""Cutting a functional model: step by step it computes what it was trained on.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

import keras_attn
from keras_attn import Incremental

# Keras warns where a layer lets a mask go; here that is often the point.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)

SOURCES, TARGETS = 7, 9  # sizes of the vocabularies

SOURCE = np.array([[3, 4, 5, 6, 2], [5, 2, 0, 0, 0], [2, 0, 0, 0, 0]], "int32")
TARGET = np.array([[1, 4, 5, 8], [1, 7, 7, 3], [1, 3, 6, 4]], "int32")


def decoder(cell=None, attention=None, **options):
    return keras_attn.AttentionDecoder(
        cell or layers.GRUCell(6),
        attention or keras_attn.BahdanauAttention(5),
        **options,
    )


def inputs():
    return (
        keras.Input((None,), dtype="int32", name="source"),
        keras.Input((None,), dtype="int32", name="target"),
    )


def embedded(source, target):
    return (
        layers.Embedding(SOURCES, 6, mask_zero=True)(source),
        layers.Embedding(TARGETS, 6, mask_zero=True)(target),
    )


def gru_encoder(memory):
    memory, state = layers.GRU(6, return_sequences=True, return_state=True)(
        memory
    )
    return memory, state


def simple(**options):
    def build():
        source, target = inputs()
        memory, embedding = embedded(source, target)
        memory, state = gru_encoder(memory)
        hidden = decoder(**options)(embedding, memory, initial_state=state)
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    return build


def lstm_with_both_states():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory, h, c = layers.LSTM(6, return_sequences=True, return_state=True)(
        memory
    )
    hidden = decoder(layers.LSTMCell(6), order="post")(
        embedding, memory, initial_state=[h, c]
    )
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def stack_without_states():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    stack = [layers.LSTMCell(3), layers.GRUCell(6)]
    hidden = decoder(stack, emit="concatenated")(embedding, memory)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def memory_straight_from_the_input():
    source = keras.Input((None, 4), name="source")
    _, target = inputs()
    embedding = layers.Embedding(TARGETS, 6)(target)
    hidden = decoder()(embedding, source)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def layers_between():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory, state = gru_encoder(memory)
    embedding = layers.LayerNormalization()(embedding)
    embedding = layers.Dropout(0.5)(embedding)
    hidden = decoder()(embedding, memory, initial_state=state)
    hidden = layers.Add()([hidden, embedding])  # a residual
    hidden = layers.LayerNormalization()(hidden)
    hidden = layers.Activation("relu")(layers.Dense(8)(hidden))
    hidden = layers.Concatenate()([hidden, embedding])
    logits = layers.TimeDistributed(layers.Dense(TARGETS))(hidden)
    return keras.Model([source, target], logits * 0.5)


def shared_embedding():
    source, target = inputs()
    embed = layers.Embedding(TARGETS, 6, mask_zero=True)
    memory, state = gru_encoder(embed(source))
    hidden = decoder()(embed(target), memory, initial_state=state)
    # Tied weights: the same layer turns states into logits.
    logits = ops.matmul(hidden, ops.transpose(embed.embeddings))
    return keras.Model([source, target], logits)


def nested_encoder_and_head():
    source, target = inputs()
    ids = keras.Input((None,), dtype="int32")
    encoder = keras.Model(
        ids, gru_encoder(layers.Embedding(SOURCES, 6, mask_zero=True)(ids))
    )
    head = keras.Sequential([layers.Dense(5, "relu"), layers.Dense(TARGETS)])
    memory, state = encoder(source)
    embedding = layers.Embedding(TARGETS, 6, mask_zero=True)(target)
    hidden = decoder()(embedding, memory, initial_state=state)
    return keras.Model([source, target], head(hidden))


def convolutional_encoder():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory = layers.Conv1D(6, 3, padding="same", activation="relu")(memory)
    start = layers.GlobalAveragePooling1D()(memory)
    hidden = decoder()(embedding, memory, initial_state=start)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def mask_given_by_hand():
    source, target = inputs()
    memory = layers.Embedding(SOURCES, 6)(source)
    embedding = layers.Embedding(TARGETS, 6)(target)
    hidden = decoder()(embedding, memory, memory_mask=ops.not_equal(source, 0))
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def with_attention_scores():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden, _ = decoder()(embedding, memory, return_attention_scores=True)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def two_decoders():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden = decoder()(embedding, memory)
    hidden = decoder(layers.LSTMCell(6), order="post")(hidden, memory)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def two_sources():
    source, target = inputs()
    other = keras.Input((3,), name="speaker")
    memory, embedding = embedded(source, target)
    start = layers.Dense(6)(other)
    hidden = decoder()(embedding, memory, initial_state=start)
    return keras.Model([source, other, target], layers.Dense(TARGETS)(hidden))


MODELS = {
    "pre": simple(),
    "post": simple(order="post", input_feeding=False),
    "feeding": simple(order="post"),
    "luong": simple(
        attention=keras_attn.LuongAttention("concat", 4), order="post"
    ),
    "dot": simple(attention=keras_attn.ScaledDotAttention(), order="post"),
    "dropout": simple(
        cell=layers.GRUCell(6, dropout=0.5, recurrent_dropout=0.5),
        attention=keras_attn.BahdanauAttention(5, dropout=0.5),
    ),
} | {
    build.__name__: build
    for build in (
        lstm_with_both_states,
        stack_without_states,
        memory_straight_from_the_input,
        layers_between,
        shared_embedding,
        nested_encoder_and_head,
        convolutional_encoder,
        mask_given_by_hand,
        with_attention_scores,
        two_decoders,
        two_sources,
    )
}


def arguments(model):
    """Something for each input of a model, the target last."""
    random = np.random.default_rng(0)
    sources = {
        "source": SOURCE
        if len(model.inputs[0].shape) == 2
        else random.normal(size=(3, 5, 4)).astype("float32"),
        "speaker": random.normal(size=(3, 3)).astype("float32"),
    }
    return [*[sources[x.name] for x in model.inputs[:-1]], TARGET]


def run_by_steps(cut, arrays):
    *sources, target = arrays
    encoded = cut.encode(*map(ops.convert_to_tensor, sources))
    state = cut.start(encoded)
    logits, alignments = [], []
    for t in range(target.shape[1]):
        step, attended, state = cut.step(target[:, t : t + 1], state, encoded)
        logits.append(ops.convert_to_numpy(step))
        alignments.append(ops.convert_to_numpy(attended))
    return np.concatenate(logits, 1), np.concatenate(alignments, 1)


def assert_cut_equals_whole(model):
    arrays = arguments(model)
    stepwise, alignments = run_by_steps(Incremental(model), arrays)
    whole = ops.convert_to_numpy(model(arrays))
    np.testing.assert_allclose(stepwise, whole, atol=1e-5)
    assert np.std(whole) > 1e-4  # it does compute something
    np.testing.assert_allclose(alignments.sum(-1), 1.0, atol=1e-5)
    return stepwise


@pytest.mark.parametrize("name", MODELS)
def test_step_by_step_it_computes_what_the_whole_model_does(name):
    model = MODELS[name]()
    assert_cut_equals_whole(model)
    Incremental(model).check(*map(ops.convert_to_tensor, arguments(model)))


@pytest.mark.parametrize("name", ["pre", "feeding", "two_decoders", "luong"])
def test_beams_go_their_own_ways(name):
    model = MODELS[name]()
    cut = Incremental(model)
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    state = cut.start(encoded, beams=2)
    other = TARGET[:, ::-1]
    both = np.stack([TARGET, other], axis=1)  # (batch, beams, time)
    for t in range(TARGET.shape[1]):
        logits, alignments, state = cut.step(both[:, :, t], state, encoded)
        for beam, target in enumerate((TARGET, other)):
            whole = model([SOURCE, np.ascontiguousarray(target)])
            np.testing.assert_allclose(
                ops.convert_to_numpy(logits)[:, beam],
                ops.convert_to_numpy(whole)[:, t],
                atol=1e-5,
            )
        assert alignments.shape == (3, 2, SOURCE.shape[1])


@pytest.mark.parametrize("name", ["pre", "mask_given_by_hand", "feeding"])
def test_padding_of_a_source_is_never_attended_to(name):
    model = MODELS[name]()
    stepwise, alignments = run_by_steps(Incremental(model), [SOURCE, TARGET])
    padding = np.broadcast_to((SOURCE == 0)[:, None], alignments.shape)
    assert not alignments[padding].any()
    alone, _ = run_by_steps(Incremental(model), [SOURCE[1:2, :2], TARGET[1:2]])
    np.testing.assert_allclose(stepwise[1:2], alone, atol=1e-5)


@pytest.mark.parametrize("name", ["feeding", "layers_between", "two_decoders"])
def test_a_model_that_was_saved_and_loaded_is_cut_as_well(name, tmp_path):
    model = MODELS[name]()
    expected = assert_cut_equals_whole(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        assert_cut_equals_whole(loaded), expected, atol=1e-6
    )


def test_a_cut_follows_the_weights_of_its_model():
    model = MODELS["pre"]()
    cut = Incremental(model)
    before, _ = run_by_steps(cut, [SOURCE, TARGET])
    model.set_weights([1.5 * x for x in model.get_weights()])
    after, _ = run_by_steps(cut, [SOURCE, TARGET])
    assert np.abs(before - after).max() > 1e-3
    whole = ops.convert_to_numpy(model([SOURCE, TARGET]))
    np.testing.assert_allclose(after, whole, atol=1e-5)


def test_mixed_precision_is_cut_as_well():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = MODELS["pre"]()
    finally:
        keras.config.set_dtype_policy("float32")
    Incremental(model).check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


def target_path(change):
    """A model with something between the target's embedding and the decoder."""

    def build():
        source, target = inputs()
        memory, embedding = embedded(source, target)
        hidden = decoder()(change(embedding), memory)
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    return build


def after_the_decoder(change):
    def build():
        source, target = inputs()
        memory, embedding = embedded(source, target)
        hidden = change(decoder()(embedding, memory))
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    return build


REFUSED = {
    "a GRU": target_path(layers.GRU(6, return_sequences=True, name="culprit")),
    "a bidirectional GRU": target_path(
        layers.Bidirectional(
            layers.GRU(6, return_sequences=True), name="culprit"
        )
    ),
    "a convolution": target_path(
        layers.Conv1D(6, 3, padding="causal", name="culprit")
    ),
    "self-attention": target_path(
        lambda x: layers.MultiHeadAttention(2, 3, name="culprit")(x, x)
    ),
    "our own self-attention": after_the_decoder(
        lambda x: keras_attn.BahdanauAttention(4, name="culprit")(x, x)
    ),
    "a convolution in a nested model": after_the_decoder(
        keras.Sequential(
            [layers.Dense(6), layers.Conv1D(6, 2, name="culprit")],
            name="nested",
        )
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_that_mixes_target_positions_is_refused_by_its_name(name):
    with pytest.raises(ValueError, match="'culprit' .* mixes target positions"):
        Incremental(REFUSED[name]())


class Summing(layers.Layer):
    """Mixes positions where nobody can see it from outside."""

    def call(self, inputs):
        return ops.cumsum(inputs, axis=1)


class Positions(layers.Layer):
    """Adds each position's number, so it depends on where it stands."""

    def call(self, inputs):
        count = ops.cumsum(ops.ones_like(inputs), axis=1)
        return inputs + count


@pytest.mark.parametrize("culprit", [Summing, Positions])
@pytest.mark.parametrize("where", [target_path, after_the_decoder])
def test_the_check_finds_whatever_else_mixes_positions(culprit, where):
    cut = Incremental(where(culprit(name="culprit"))())
    with pytest.raises(ValueError, match="'culprit' .* gives another result"):
        cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


def test_a_decoder_inside_a_nested_model_is_refused_by_both_names():
    hidden = keras.Input((None, 6))
    memory = keras.Input((None, 6))
    inner = keras.Model(
        [hidden, memory], decoder(name="hidden_one")(hidden, memory)
    )
    inner.name = "outer_one"
    source, target = inputs()
    source_embedding, embedding = embedded(source, target)
    model = keras.Model(
        [source, target],
        layers.Dense(TARGETS)(inner([embedding, source_embedding])),
    )
    with pytest.raises(
        ValueError, match="'outer_one'.* hides the decoder 'hidden_one'"
    ):
        Incremental(model)


def test_a_memory_that_depends_on_the_target_is_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    both = layers.Concatenate(axis=1)([memory, embedding])
    hidden = decoder(name="culprit")(embedding, both)
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    with pytest.raises(
        ValueError, match="'culprit'.* has a `memory` that depends"
    ):
        Incremental(model)


def test_an_initial_state_that_depends_on_the_target_is_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    start = layers.GlobalAveragePooling1D(name="pooled")(embedding)
    hidden = decoder()(embedding, memory, initial_state=start)
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    with pytest.raises(ValueError, match="cannot be decoded token by token"):
        Incremental(model)


def test_a_model_without_a_decoder_is_refused():
    source, target = inputs()
    _, embedding = embedded(source, target)
    model = keras.Model([source, target], layers.Dense(TARGETS)(embedding))
    with pytest.raises(ValueError, match="no `AttentionDecoder` between"):
        Incremental(model)


def test_inputs_in_the_wrong_order_are_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden = decoder()(embedding, memory)
    model = keras.Model([target, source], layers.Dense(TARGETS)(hidden))
    with pytest.raises(ValueError, match="cannot be decoded token by token"):
        Incremental(model)


def test_what_is_no_functional_model_is_refused():
    class Subclassed(keras.Model):
        def call(self, inputs):
            return inputs

    for model in (Subclassed(), layers.Dense(3), "model"):
        with pytest.raises(ValueError, match="A functional model is needed"):
            Incremental(model)


def test_other_numbers_of_inputs_and_outputs_are_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden, scores = decoder()(embedding, memory, return_attention_scores=True)
    logits = layers.Dense(TARGETS)(hidden)
    with pytest.raises(ValueError, match=r"2 input\(s\).* 2 output\(s\)"):
        Incremental(keras.Model([source, target], [logits, scores]))
    with pytest.raises(ValueError, match=r"1 input\(s\)"):
        Incremental(keras.Model([target], layers.Dense(TARGETS)(embedding)))


def test_inputs_without_an_order_are_refused():
    source, target = inputs()
    memory, embedded_target = embedded(source, target)
    logits = layers.Dense(TARGETS)(decoder()(embedded_target, memory))
    named = keras.Model({"source": source, "target": target}, logits)
    with pytest.raises(ValueError, match="must be a list.*no order"):
        Incremental(named)


class DroppedUnlessTold(layers.Layer):
    """Trains by default, as `keras.layers.Layer` allows."""

    def call(self, inputs, training=True):
        return 2 * inputs if training else inputs


def test_a_layer_that_trains_unless_told_otherwise_is_told():
    source, target = inputs()
    memory, embedded_target = embedded(source, target)
    hidden = DroppedUnlessTold()(decoder()(embedded_target, memory))
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    stepwise, _ = run_by_steps(Incremental(model), [SOURCE, TARGET])
    whole = model([SOURCE, TARGET], training=False)
    np.testing.assert_allclose(stepwise, whole, atol=1e-5)


class ConvolvedKeys(keras_attn.Score):
    """Uses a weight in `project` as a `call` would, in one precision."""

    def build(self, query_shape, key_shape):
        self.kernel = self.add_weight(shape=(3, key_shape[-1], query_shape[-1]))

    def project(self, key):
        return ops.conv(key, self.kernel, padding="same")

    def call(self, query, keys):
        return ops.matmul(query, ops.swapaxes(keys, 1, 2))


def test_keys_are_projected_in_the_precision_of_training():
    attention = keras_attn.Attention(
        ConvolvedKeys(dtype="mixed_float16"), dtype="mixed_float16"
    )
    source, target = inputs()
    memory, embedded_target = embedded(source, target)
    half = decoder(attention=attention, dtype="mixed_float16")
    logits = layers.Dense(TARGETS)(half(embedded_target, memory))
    Incremental(keras.Model([source, target], logits)).encode(SOURCE)
    keys, *_ = attention.prepare(np.ones((1, 4, 6), "float32"))
    assert keras.backend.standardize_dtype(keys.dtype) == "float16"
