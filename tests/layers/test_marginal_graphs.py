"""`MarginalDecoder` in TensorFlow's graphs: gradients, searches, exports."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support.cuts import SOURCE
from support.cuts import TARGET
from support.marginals import KINDS
from support.marginals import MASK
from support.marginals import each_kind
from support.marginals import layer
from support.marginals import model_of
from support.mechanisms import draw

import keras_attn

SPOKEN = np.array([[4, 2, 3, 5], [3, 3, 2, 1]])  # the ids after the inputs
IDS = np.concatenate([[[1], [1]], SPOKEN[:, :-1]], axis=1)


def loss_of(made):
    """Returns a function of inputs and memory: the text's `-log p`."""

    def loss(x, memory, mask):
        found = made(x, memory, IDS, memory_mask=mask)
        return -tf.reduce_sum(tf.gather(found, SPOKEN, batch_dims=2))

    return loss


def gradients_of(made):
    """Returns a function of inputs and memory: loss and all gradients."""

    def gradients(x, memory, mask):
        weights = [w.value for w in made.trainable_weights]
        with tf.GradientTape() as tape:
            tape.watch([x, memory])
            loss = loss_of(made)(x, memory, mask)
        return loss, *tape.gradient(loss, [x, memory, *weights])

    return gradients


@pytest.mark.full
@pytest.mark.sample_cases(2)
@each_kind
def test_gradients_are_those_of_differences(kind):
    cell = layers.GRUCell(3, dtype="float64")
    made = layer(kind, cell, dtype="float64")
    x = tf.constant(draw(2, 4, 5), "float64")
    memory = tf.constant(draw(2, 5, 4, seed=1), "float64")
    mask = tf.constant(MASK)
    found = tf.function(gradients_of(made))(x, memory, mask)
    loss = tf.function(loss_of(made))
    random = np.random.default_rng(0)
    weights = made.trainable_weights
    for i, gradient in enumerate(found[1:]):
        # Along a random direction of one tensor.
        change = 1e-5 * random.normal(size=gradient.shape)
        losses = []
        for sign in (1, -1):
            inputs = [x, memory]
            if i < 2:
                inputs[i] = inputs[i] + sign * change
            else:
                weights[i - 2].assign_add(sign * change)
            losses.append(loss(*inputs, mask).numpy())
            if i >= 2:
                weights[i - 2].assign_sub(sign * change)
        expected = (losses[0] - losses[1]) / 2
        along = np.sum(gradient * change)
        np.testing.assert_allclose(along, expected, rtol=1e-4, atol=1e-9)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("jit_compile", [False, True])
@each_kind
def test_graphs_of_unknown_sizes_have_the_same_gradients(kind, jit_compile):
    made = layer(kind)
    inputs = draw(2, 4, 5), draw(2, 5, 4, seed=1)
    mask = MASK & [[True], [False]]  # the second source is empty
    inputs = [*map(tf.constant, (*inputs, mask))]
    graph = tf.function(
        gradients_of(made),
        input_signature=[
            tf.TensorSpec((None, None, 5)),
            tf.TensorSpec((None, None, 4)),
            tf.TensorSpec((None, None), "bool"),
        ],
        jit_compile=jit_compile,
    )
    expected = gradients_of(made)(*inputs)
    for one, other in zip(graph(*inputs), expected, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    assert not np.asarray(expected[2])[~mask].any()


@pytest.mark.full
@each_kind
def test_a_model_is_trained_and_found_sound(kind):
    model = model_of(kind)
    model.compile(
        keras.optimizers.Adam(0.03), loss=keras_attn.SequenceCrossentropy()
    )
    after = np.roll(TARGET, -1, axis=1)
    assert keras_attn.check(model, ([SOURCE, TARGET], after)) == []
    history = model.fit([SOURCE, TARGET], after, epochs=15, verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < losses[0] / 2


TEXT = keras_attn.Text("ab", split="characters")
LINES = ["ab", "bba", ""]


def translator(search, kind="order 1, monotonic", jit_compile=False):
    """A translator of a few characters, with weights for varied texts."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(TEXT.size, 4, mask_zero=True)(source)
    embedding = layers.Embedding(TEXT.size, 5, mask_zero=True)(target)
    found, alignments = keras_attn.MarginalDecoder(
        layers.LSTMCell(6), TEXT.size, **KINDS[kind]
    )(embedding, memory, target, return_attention_scores=True)
    model = keras.Model([source, target], found)
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(random.normal(0, 0.8, weight.shape))
    made = keras_attn.Translator(
        model,
        TEXT,
        TEXT,
        search,
        forbidden=["<unk>"],
        jit_compile=jit_compile,
    )
    return made, keras.Model([source, target], [found, alignments])


def best_of_all(whole, line, length):
    """Returns the likeliest text of up to `length` tokens, with its score.

    The whole model scores every text.
    """
    letters = [i for i, token in enumerate(TEXT.tokens) if token in "ab"]
    best = -np.inf, ""
    for count in range(length):
        ids = np.array([*itertools.product(letters, repeat=count)], int)
        start, end = (
            np.full((len(ids), 1), x)
            for x in (*TEXT.special.start, TEXT.special.end)
        )
        source = np.repeat(np.asarray(TEXT.ids([line])), len(ids), axis=0)
        found, _ = whole([source, np.concatenate([start, ids], axis=1)])
        spoken = np.concatenate([ids, end], axis=1)[..., None]
        scores = np.take_along_axis(np.asarray(found), spoken, 2).sum((1, 2))
        text = "".join(TEXT.tokens[i] for i in ids[np.argmax(scores)])
        best = max(best, (scores.max(), text))
    return best


@pytest.fixture(scope="module")
def beam():
    """A translator with so wide a beam that it misses no text, and its model.

    It finds texts of up to three characters.
    """
    search = keras_attn.BeamSearch(12, max_length=4, early_stopping="never")
    return translator(search)


def assert_best_of_all(made, whole):
    for line, one in zip(LINES, made(LINES), strict=True):
        score, text = best_of_all(whole, line, 4)
        assert one.text == text
        np.testing.assert_allclose(one.score, score, atol=1e-5)


def assert_aligned_as_the_whole(made, whole):
    found = made(LINES)
    assert np.std(found.scores) > 1e-3  # they differ
    for line, one in zip(LINES, found, strict=True):
        ids = np.asarray(TEXT.ids([one.text]))[:, : len(one.tokens)]
        inputs = np.concatenate([[TEXT.special.start], ids], axis=1)[:, :-1]
        logits, alignments = whole([np.asarray(TEXT.ids([line])), inputs])
        spoken = np.take_along_axis(np.asarray(logits), ids[..., None], 2)
        np.testing.assert_allclose(one.score, spoken.sum(), atol=1e-4)
        np.testing.assert_allclose(one.alignment, alignments[0], atol=1e-5)


@pytest.mark.full
def test_a_wide_beam_finds_the_best_of_all_texts(beam):
    assert_best_of_all(*beam)


@pytest.mark.full
def test_a_text_has_the_alignments_of_the_whole_model(beam):
    assert_aligned_as_the_whole(*beam)


@pytest.mark.full
@each_kind
def test_greedy_and_compiled_searches_agree_with_the_whole_model(kind):
    greedy = keras_attn.GreedySearch(max_length=5)
    assert_aligned_as_the_whole(*translator(greedy, kind))
    search = keras_attn.BeamSearch(12, max_length=4, early_stopping="never")
    assert_best_of_all(*translator(search, kind, jit_compile=True))


@pytest.mark.full
def test_a_saved_translator_answers_the_same(beam, tmp_path):
    made, _ = beam
    expected = made(LINES)
    made.save(tmp_path / "saved")
    again = keras_attn.Translator.load(tmp_path / "saved")(LINES)
    assert list(again.text) == list(expected.text)
    np.testing.assert_allclose(again.scores, expected.scores, atol=1e-6)
