"""Several models in one search."""

import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops
from support import cuts
from support import toys as toy_models
from support.comparisons import assert_same

import keras_attn
from keras_attn.text.special_tokens import START

LINES = toy_models.LINES


@pytest.fixture(scope="module")
def members(toys):
    """The ensemble's models, each in a translator of its own."""
    toy = toys["ensemble"]
    return [
        keras_attn.Translator(
            model, toy.source_text, toy.target_text, toy.search
        )
        for model in toy.models
    ]


@pytest.fixture(scope="module")
def result(toys):
    return toys["ensemble"](LINES)


@pytest.mark.full
def test_an_ensemble_of_the_same_model_twice_is_that_model(toys):
    toy = toys["pre"]
    twice = keras_attn.Translator(
        [toy.model, toy.model], toy.source_text, toy.target_text, toy.search
    )
    for row, expected in zip(twice(LINES), toy(LINES), strict=True):
        assert_same(row, expected)


@pytest.mark.full
def test_an_ensemble_is_none_of_its_members(result, members):
    for member in members:
        assert member(LINES).text != result.text


@pytest.mark.full
def test_reported_scores_are_those_of_the_mean_distribution(toys, result):
    toy = toys["ensemble"]
    scored = toy.score(LINES, result.text)
    for i, (line, row) in enumerate(zip(LINES, result, strict=True)):
        ids = [toy.target_text.tokens.index(x) for x in row.tokens]
        target = tf.constant([[START, *ids[:-1]]])
        source = toy.source_text.ids([line])
        logits = [model([source, target])[0] for model in toy.models]
        mean = tf.reduce_mean(tf.nn.log_softmax(logits), axis=0)
        logp = tf.nn.log_softmax(mean).numpy()[np.arange(len(ids)), ids]
        np.testing.assert_allclose(row.score, logp.sum(), atol=1e-4)
        np.testing.assert_allclose(
            scored.token_scores[i][: len(ids)], logp, atol=1e-4
        )


def test_alignments_are_the_mean_of_those_that_attend(toys):
    cuts = [keras_attn.Incremental(x) for x in toys["ensemble"].models]
    ensemble = keras_attn.incremental.Ensemble(cuts)
    ids, tokens = np.array([[4, 5, 2, 0]]), np.array([[1, 5]])

    def step(cut):
        encoded = cut.encode(tf.constant(ids))
        return cut.step(tokens, cut.start(encoded, beams=2), encoded)

    each = [step(cut) for cut in cuts]
    logp = [tf.nn.log_softmax(logits) for logits, _, _ in each]
    logits, alignments, _ = step(ensemble)
    np.testing.assert_allclose(logits, np.mean(logp, axis=0), atol=1e-5)
    np.testing.assert_allclose(
        alignments, np.mean([x for _, x, _ in each], axis=0), atol=1e-6
    )
    mask = ensemble.source_mask(ensemble.encode(tf.constant(ids)))
    np.testing.assert_array_equal(mask, [[True, True, True, False]])


@pytest.mark.full
def test_what_is_saved_is_loaded(toys, result, tmp_path):
    toys["ensemble"].save(tmp_path)
    assert {x.name for x in tmp_path.glob("*.keras")} == {
        "model-1.keras",
        "model-2.keras",
    }
    loaded = keras_attn.Translator.load(tmp_path)
    assert len(loaded.models) == 2
    for row, expected in zip(loaded(LINES), result, strict=True):
        assert_same(row, expected)


def test_the_one_model_of_several_is_not_there(toys):
    with pytest.raises(
        AttributeError, match="has 2 models: `translator.models"
    ):
        _ = toys["ensemble"].model


def test_models_that_do_not_go_together_are_refused(toys):
    texts = toy_models.SOURCE, toy_models.TARGET
    with pytest.raises(ValueError, match="same source inputs.* model 2 with"):
        keras_attn.Translator(
            [toys["pre"].model, toys["spectra"].model], *texts
        )
    with pytest.raises(ValueError, match="needs a model. Received: "):
        keras_attn.Translator([], *texts)


def test_vocabularies_of_different_size_are_refused():
    class Cut:
        def __init__(self, size):
            self.model = self
            self.outputs = [np.zeros((1, 1, size))]

    with pytest.raises(ValueError, match=r"same vocabulary.*\[8, 9\] logits"):
        keras_attn.incremental.Ensemble([Cut(8), Cut(9)])


@pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)
def test_alignments_of_memories_of_other_lengths_are_not_averaged():
    mean = layers.Lambda(
        lambda x: ops.mean(x, axis=1, keepdims=True), output_shape=(None, 6)
    )
    models = [
        cuts.with_path(lambda x, memory: cuts.decoder()(x, memory)),
        cuts.with_path(lambda x, memory: cuts.decoder()(x, mean(memory))),
    ]
    ensemble = keras_attn.incremental.Ensemble(
        [keras_attn.Incremental(x) for x in models]
    )

    def alignments(source):
        encoded = ensemble.encode(source)
        tokens = tf.ones((len(cuts.SOURCE), 1), "int32")
        return ensemble.step(tokens, ensemble.start(encoded), encoded)[1]

    with pytest.raises(ValueError, match=r"same length.* \[5, 1\]"):
        alignments(tf.constant(cuts.SOURCE))
    of_any_size = tf.TensorSpec([None, None], tf.int32)
    in_graph = tf.function(alignments, input_signature=[of_any_size])
    with pytest.raises(tf.errors.InvalidArgumentError, match="hapes of all"):
        in_graph(tf.constant(cuts.SOURCE))
