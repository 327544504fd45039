"""Scheduled sampling: what is drawn, when, and what is trained on."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_attn
from keras_attn import ScheduledSamplingModel
from keras_attn import SequenceCrossentropy

SIZE = 7
SOURCE = np.array([[4, 5, 6], [6, 0, 0], [5, 4, 0], [6, 6, 5]], "int32")
TARGET = np.array(
    [[1, 4, 5, 6, 4], [1, 6, 0, 0, 0], [1, 5, 5, 4, 0], [1, 4, 6, 5, 6]],
    "int32",
)
RIGHT = np.array(
    [[4, 5, 6, 4, 2], [6, 2, 0, 0, 0], [5, 5, 4, 2, 0], [4, 6, 5, 6, 2]],
    "int32",
)
tensorflow_alone = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="needs TensorFlow"
)


def rnn(target, source, dropout=0.0):
    embed = layers.Embedding(SIZE, 6, mask_zero=True)
    memory = embed(source)
    return keras_attn.AttentionDecoder(
        layers.GRUCell(8, dropout=dropout), keras_attn.BahdanauAttention(8)
    )(embed(target), memory)


def feeding(target, source):
    embed = layers.Embedding(SIZE, 6, mask_zero=True)
    return keras_attn.AttentionDecoder(
        layers.LSTMCell(8), keras_attn.LuongAttention("general"), "post"
    )(embed(target), embed(source))


def transformer(target, source):
    embed = layers.Embedding(SIZE, 8, mask_zero=True)
    x = keras_attn.SinePositionEncoding()(embed(target))
    x += layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization()(x)
    return x + layers.MultiHeadAttention(2, 4)(x, embed(source))


def graph(make=rnn, **options):
    """Returns inputs and logits, with large seeded weights."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    logits = layers.Dense(SIZE)(make(target, source, **options))
    plain = keras.Model([source, target], logits)
    random = np.random.default_rng(5)
    plain.set_weights(
        [random.normal(scale=0.9, size=x.shape) for x in plain.get_weights()]
    )
    return plain


def sampling(plain, probability=0.5, **options):
    return ScheduledSamplingModel(
        plain.inputs, plain.outputs, probability, seed=3, **options
    )


def numbers(x):
    return keras.ops.convert_to_numpy(x)


def decoded(plain, source, target, start=1):
    """The likeliest tokens, position by position, by the whole model."""
    found = target.copy()
    for t in range(start, target.shape[1]):
        logits = numbers(plain([source, found], training=False)).copy()
        logits[..., 0] = -np.inf
        best = logits[:, t - 1].argmax(-1)
        found[:, t] = np.where(target[:, t] == 0, 0, best)
    return found


@pytest.mark.parametrize("make", [rnn, feeding, transformer])
def test_what_is_drawn_follows_what_was_drawn(make):
    plain = graph(make)
    found = numbers(sampling(plain, 0, draw="argmax").mixed(SOURCE, TARGET))
    expected = decoded(plain, SOURCE, TARGET)
    np.testing.assert_array_equal(found, expected)
    assert (found != TARGET).any()


def test_several_start_tokens_stay():
    plain = graph()
    model = sampling(plain, 0, draw="argmax", start_tokens=2)
    found = numbers(model.mixed(SOURCE, TARGET))
    expected = decoded(plain, SOURCE, TARGET, start=2)
    np.testing.assert_array_equal(found, expected)
    assert (found != decoded(plain, SOURCE, TARGET)).any()


def test_with_the_probability_one_training_is_as_ever():
    plain = graph()
    model = sampling(plain, 1.0)
    np.testing.assert_array_equal(numbers(model.mixed(SOURCE, TARGET)), TARGET)
    np.testing.assert_array_equal(
        numbers(model([SOURCE, TARGET], training=True)),
        numbers(plain([SOURCE, TARGET], training=True)),
    )


def test_without_training_it_is_the_plain_model():
    plain = graph()
    model = sampling(plain, 0.0)
    np.testing.assert_array_equal(
        numbers(model([SOURCE, TARGET], training=False)),
        numbers(plain([SOURCE, TARGET], training=False)),
    )
    np.testing.assert_allclose(
        model.predict([SOURCE, TARGET], verbose=0),
        plain.predict([SOURCE, TARGET], verbose=0),
        rtol=1e-6,
        atol=1e-6,
    )
    assert int(model.updates) == 0


def test_tokens_are_drawn_by_their_probabilities():
    rows = 20_000
    plain = graph()
    model = sampling(plain, 0.25)
    source = np.tile(SOURCE[:1], (rows, 1))
    target = np.tile(TARGET[:1, :3], (rows, 1))
    found = numbers(model.mixed(source, target))
    assert (found[:, 0] == 1).all()
    counts = np.bincount(found[:, 1], minlength=SIZE)
    # After the right token, and after the other that was drawn most often.
    for first in np.argsort(counts)[-2:]:
        chosen = found[found[:, 1] == first]
        prefix = np.array([[1, first, 0]], "int32")
        logits = numbers(plain([SOURCE[:1], prefix], training=False))
        for t, given in ((1, found), (2, chosen)):
            weights = np.exp(logits[0, t - 1].astype("float64"))
            weights[0] = 0  # padding is never drawn
            expected = 0.75 * weights / weights.sum()
            expected[target[0, t]] += 0.25
            shares = np.bincount(given[:, t], minlength=SIZE) / len(given)
            noise = np.sqrt(expected * (1 - expected) / len(given))
            assert (abs(shares - expected) <= 4 * noise + 1e-9).all()
            assert len(given) > 500


@pytest.mark.parametrize("draw", ["sample", "argmax"])
def test_padding_stays_and_is_never_drawn(draw):
    plain = graph()
    *_, dense = plain.layers
    kernel, bias = dense.get_weights()
    dense.set_weights([kernel, bias + np.eye(SIZE)[0] * 100])
    model = sampling(plain, 0.0, draw=draw)
    for _ in range(5):
        found = numbers(model.mixed(SOURCE, TARGET))
        np.testing.assert_array_equal(found == 0, TARGET == 0)


def test_another_id_of_padding_is_heeded():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embed = layers.Embedding(SIZE, 6)
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(
        embed(target),
        embed(source),
        inputs_mask=keras.ops.not_equal(target, 3),
        memory_mask=keras.ops.not_equal(source, 3),
    )
    plain = keras.Model([source, target], layers.Dense(SIZE)(hidden))
    model = sampling(plain, 0.0, padding_id=3)
    given = np.where(TARGET == 0, 3, TARGET)
    found = [numbers(model.mixed(SOURCE, given)) for _ in range(20)]
    for each in found:
        np.testing.assert_array_equal(each == 3, given == 3)
    assert (np.stack(found) == 0).any()


@pytest.mark.full
def test_an_update_is_that_of_the_mixed_targets():
    losses, weights = [], []
    for mixes in (True, False):
        plain = graph()
        model = sampling(plain, 0.4)
        target = TARGET
        if not mixes:
            target, model = numbers(model.mixed(SOURCE, TARGET)), plain
            assert (target != TARGET).any()
        model.compile(keras.optimizers.SGD(0.1), SequenceCrossentropy())
        losses.append(float(model.train_on_batch([SOURCE, target], RIGHT)))
        weights.append(plain.get_weights())
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_schedule_counts_the_updates():
    asked = []

    def probability(updates):
        asked.append(updates)
        return keras.ops.where(updates < 2, 1.0, 0.0)

    plain = graph()
    model = sampling(plain, probability, draw="argmax")
    model.compile("sgd", SequenceCrossentropy(), run_eagerly=True)
    expected = decoded(plain, SOURCE, TARGET)
    for updates in range(3):
        assert int(model.updates) == updates
        found = numbers(model.mixed(SOURCE, TARGET))
        wanted = TARGET if updates < 2 else decoded(plain, SOURCE, TARGET)
        np.testing.assert_array_equal(found, wanted)
        model.evaluate([SOURCE, TARGET], RIGHT, verbose=0)
        model.fit([SOURCE, TARGET], RIGHT, batch_size=4, verbose=0)
    assert int(model.updates) == 3 and len(asked) >= 3
    assert (expected != TARGET).any()


def test_draws_repeat_with_their_seed_and_differ_by_the_call():
    plain = graph()
    model, again = sampling(plain), sampling(plain)
    found = [numbers(model.mixed(SOURCE, TARGET)) for _ in range(4)]
    others = [numbers(again.mixed(SOURCE, TARGET)) for _ in range(4)]
    np.testing.assert_array_equal(found, others)
    assert len({x.tobytes() for x in found}) > 1


def test_it_draws_without_dropout_and_trains_with_it():
    plain = graph(dropout=0.5)
    model = sampling(plain, 0, draw="argmax")
    expected = decoded(plain, SOURCE, TARGET)
    for _ in range(3):
        found = numbers(model.mixed(SOURCE, TARGET))
        np.testing.assert_array_equal(found, expected)
    one, other = (
        numbers(model([SOURCE, TARGET], training=True)) for _ in range(2)
    )
    assert abs(one - other).max() > 1e-3


@pytest.mark.full
def test_it_is_saved_and_goes_on(tmp_path):
    plain = graph()
    decay = keras_attn.InverseSigmoidDecay(2.0)
    model = sampling(plain, decay, start_tokens=2)
    model.compile("sgd", SequenceCrossentropy())
    model.fit([SOURCE, TARGET], RIGHT, epochs=3, batch_size=4, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.updates) == 3
    assert loaded.probability.k == 2.0 and loaded.draw == "sample"
    assert loaded.start_tokens == 2
    # Keras saves no states of draws; `keras_attn.ResumeTraining` does.
    for one, other in zip(model.variables, loaded.variables, strict=True):
        if "seed_generator_state" in one.path:
            other.assign(one)
    for _ in range(3):
        np.testing.assert_array_equal(
            numbers(loaded.mixed(SOURCE, TARGET)),
            numbers(model.mixed(SOURCE, TARGET)),
        )


@tensorflow_alone
def test_a_translator_steps_it_as_the_plain_model():
    text = keras_attn.Text("abc", split="characters")
    search = keras_attn.GreedySearch(max_length=6)
    model = sampling(graph(), 0.8)
    made = keras_attn.Translator(model, text, text, search, recompute=False)
    assert made.model is model


@pytest.mark.full
@tensorflow_alone
@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_learns_in_a_graph_from_lengths_that_change(jit_compile):
    text = keras_attn.Text("abc", split="characters")
    lines = ["ab", "abc", "cab", "b", "ccab", "a", "bbca", "ca"] * 4
    data = keras_attn.pairs(lines, lines, text, text, batch_size=8, seed=1)
    plain = graph()
    model = sampling(plain, 0.8)
    model.compile(
        keras.optimizers.Adam(0.01),
        SequenceCrossentropy(),
        jit_compile=jit_compile,
    )
    losses = model.fit(data, epochs=15, shuffle=False, verbose=0).history
    assert losses["loss"][-1] < 0.8 * losses["loss"][0]
    search = keras_attn.GreedySearch(max_length=6)
    translations = [
        keras_attn.Translator(x, text, text, search)(["ab", "cab"]).text
        for x in (model, plain)
    ]
    assert translations[0] == translations[1]


@pytest.mark.parametrize("probability", [-0.1, 1.5, "high", None])
def test_a_probability_that_is_none_is_refused(probability):
    with pytest.raises(ValueError, match="`probability` is that of the right"):
        sampling(graph(), probability)


def test_no_start_token_is_refused():
    with pytest.raises(ValueError, match="`start_tokens` must be"):
        sampling(graph(), start_tokens=0)


def test_another_way_to_draw_is_refused():
    with pytest.raises(ValueError, match="'sample' or 'argmax'"):
        sampling(graph(), draw="greedy")


def test_a_model_that_cannot_be_cut_is_refused():
    def reversing(target, source):
        x = layers.Embedding(SIZE, 6)(target)
        return layers.Bidirectional(layers.GRU(4, return_sequences=True))(x)

    with pytest.raises(ValueError, match="bidirectional"):
        sampling(graph(reversing))
