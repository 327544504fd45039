"""Buffers of past positions grow during a search; results do not change.

The oracle is the whole model, which reads each output at once and has no
buffers.
"""

import copy
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support import toys
from support.toys import LINES
from support.toys import SOURCE
from support.toys import TARGET
from support.transformers import transformer

import keras_attn
from keras_attn import structures
from keras_attn.decoding import loop

pytestmark = pytest.mark.full

LONG = 37  # more than any output needs


def decoder(self_attention, **options):
    return toys.model(
        keras_attn.AttentionDecoder(
            [layers.LSTMCell(6), layers.GRUCell(6)],
            keras_attn.BahdanauAttention(5),
            self_attention=self_attention,
            bridge="dense",
            **options,
        )
    )


MODELS = {
    "heads": lambda: transformer(layers.MultiHeadAttention(2, 4)),
    "heads with a window": lambda: transformer(
        layers.MultiHeadAttention(2, 4, sliding_window=3)
    ),
    "groups of heads with a window": lambda: transformer(
        layers.GroupQueryAttention(4, 4, 2, sliding_window=2), seed=5
    ),
    "a decoder's own past": lambda: decoder(
        keras_attn.ScaledDotAttention(num_heads=2)
    ),
    "additive, fed back": lambda: decoder(
        keras_attn.BahdanauAttention(4), order="post"
    ),
}
SEARCHES = {
    "greedy": lambda longest: keras_attn.GreedySearch(
        max_length=longest, max_per_source=(2, 4)
    ),
    "beam": lambda longest: keras_attn.BeamSearch(
        3,
        num_hypotheses=2,
        min_length=5,
        max_length=longest,
        max_per_source=(2, 4),
    ),
}


@pytest.fixture(scope="module")
def models():
    made = {}

    def model(name):
        if name not in made:
            made[name] = MODELS[name]()
        return made[name]

    return model


def translator(model, search, longest=LONG, **options):
    return keras_attn.Translator(
        model, SOURCE, TARGET, SEARCHES[search](longest), **options
    )


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_whole_model(name, search, models):
    made = translator(models(name), search)
    found = made(LINES)
    assert len(set(found.text)) > 4 and max(map(len, found.text)) > 6
    whole = made.score(LINES, list(found))
    np.testing.assert_allclose(
        [x.score for x in found], whole.scores, rtol=2e-5, atol=2e-5
    )


def assert_same(one, other):
    """Requires the same; XLA rounds a little differently."""
    assert one.text == other.text
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5, atol=1e-4)
    for x, y in zip(one.alignments, other.alignments, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", MODELS)
def test_the_longest_length_has_no_effect(name, search, models):
    one, other = (
        translator(models(name), search, longest)(LINES)
        for longest in (LONG, 26)
    )
    assert_same(one, other)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", MODELS)
def test_xla_finds_the_same_in_two_loops(name, search, models):
    one, other = (
        translator(models(name), search, jit_compile=compiled)(LINES)
        for compiled in (False, True)
    )
    assert_same(one, other)
    assert max(len(x.tokens) for x in one) > loop.FIRST


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["heads", "additive, fed back"])
def test_xla_decodes_a_single_text_twice_where_that_is_faster(name, models):
    made = translator(models(name), "greedy", 9, jit_compile=True)
    assert made.pipeline.sizes.rows[0] == (2 if name == "heads" else 1)
    beams = translator(models(name), "beam", 9, jit_compile=True)
    assert beams.pipeline.sizes.rows[0] == 1
    plain = translator(models(name), "greedy", 9)
    for lines in ([LINES[4]], [], LINES[:2]):
        found = made(lines)
        assert found.text == plain(lines).text
        assert len(found) == len(lines)
    ids = tf.constant(SOURCE.ids(LINES[4:5]))
    assert made.decode_ids(ids).tokens.shape[0] == 1


def test_there_is_a_place_for_each_step_and_no_more(models):
    pipeline = translator(models("heads"), "beam").pipeline

    @tf.function(input_signature=[pipeline.sources.input_specs])
    def places(inputs):
        encoded = pipeline.cut.encode(*inputs)
        model = pipeline.step_model(encoded, tf.shape(inputs[0])[0])
        fixed, state, found = model.start(3), model.start(3, 0), []
        assert len(model.caches(fixed)) == 4
        for _ in range(4):
            last = tf.ones([len(LINES), 3], tf.int32)
            _, _, state = model.step(last, state)
            state = model.reorder(state, tf.zeros_like(last))
            found += [tf.shape(x)[-2] for x in model.caches(state)]
        return found, [tf.shape(x) for x in structures.flatten(fixed)]

    found, fixed = places(pipeline.sources.inputs((tf.constant(LINES),)))
    assert [int(x) for x in found] == np.repeat([1, 2, 3, 4], 4).tolist()
    assert sum(LONG in x for x in fixed) == 4


def test_a_search_runs_eagerly_too(models):
    made = translator(models("heads"), "beam")
    expected = made(LINES)
    inputs = made.pipeline.sources.inputs((tf.constant(LINES),))
    found = made.pipeline.decode_inputs(inputs, {})
    np.testing.assert_allclose(
        found.scores[:, 0], [x.score for x in expected], rtol=1e-5, atol=1e-5
    )


# A batch of known size has a cache of one place when the first token is read.
@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
def test_several_start_tokens_are_read_in_a_batch_of_known_size(models):
    text = copy.copy(TARGET)
    text.special = dataclasses.replace(TARGET.special, start=(1, 6))
    made = keras_attn.Translator(
        models("heads"), SOURCE, text, keras_attn.GreedySearch(max_length=8)
    )
    ids = tf.constant(SOURCE.ids(LINES[:2]))
    expected = made.decode_ids(ids).tokens
    for shape in ([None, None], [2, None], ids.shape):
        decode = tf.function(
            lambda x: made.decode_ids(x).tokens,
            input_signature=[tf.TensorSpec(shape, tf.int32)],
        )
        np.testing.assert_array_equal(decode(ids), expected)
