"""Translators of arrays: spectra with padding, images with numbers beside."""

import keras
import numpy as np
import pytest
from keras import layers
from support import toys as toy_models
from support.comparisons import assert_same

import keras_attn

IMAGES, STYLES = toy_models.sources("images")
FRAMES = toy_models.sources("spectra")
REAL = [7, 3, 5, 1]  # frames that are no padding


@pytest.fixture(scope="module")
def results(toys):
    return {
        name: toys[name](toy_models.sources(name))
        for name in ("spectra", "images")
    }


@pytest.mark.full
def test_arrays_are_turned_into_texts(results):
    for result in results.values():
        assert len(result) == 4
        assert len(set(result.text)) > 1


@pytest.mark.full
def test_an_alignment_has_a_column_for_each_real_position(results):
    for row, length in zip(results["spectra"], REAL, strict=True):
        for one in (row, *row.alternatives):
            assert one.source_tokens == [str(i) for i in range(length)]
            assert one.alignment.shape == (len(one.tokens), length)
            np.testing.assert_allclose(one.alignment.sum(-1), 1, atol=1e-5)
    for row in results["images"]:
        assert row.source_tokens == ["0", "1", "2", "3", "4", "5"]
        assert row.alignment.shape == (len(row.tokens), 6)


def test_a_result_of_features_is_drawn(results):
    figure = keras_attn.plot_attention(results["spectra"][0])
    labels = [x.get_text() for x in figure.axes[0].get_xticklabels()]
    assert labels == [str(i) for i in range(7)]


@pytest.mark.parametrize("name", ["spectra", "images"])
def test_arrays_decode_alone_as_in_any_batch(name, toys, results):
    sources = toy_models.sources(name)
    for row, expected in zip(
        toys[name](sources, batch_size=3), results[name], strict=True
    ):
        assert_same(row, expected)
    one = (IMAGES[2:3], STYLES[2:3]) if name == "images" else FRAMES[2:3, :5]
    assert_same(toys[name](one)[0], results[name][2])


def test_several_arrays_go_by_name_too(toys, results):
    found = toys["images"]({"style": STYLES.tolist(), "image": IMAGES})
    for row, expected in zip(found, results["images"], strict=True):
        assert_same(row, expected)


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["spectra", "images"])
def test_scores_of_features_are_what_teacher_forcing_gives(name, toys, results):
    translator = toys[name]
    scored = translator.score(toy_models.sources(name), results[name].text)
    for i, row in enumerate(results[name]):
        n = len(row.tokens)
        assert scored.tokens[i][:n] == row.tokens
        np.testing.assert_allclose(
            scored.token_scores[i][:n].sum(), row.score, atol=1e-4
        )


@pytest.mark.full
def test_limits_by_the_source_count_real_positions(toys):
    for name, lengths in (("spectra", REAL), ("images", [6] * 4)):
        toy = toys[name]
        search = keras_attn.GreedySearch(
            max_length=9, max_per_source=(1, 1), min_per_source=(1, 1)
        )
        found = keras_attn.Translator(toy.model, None, toy.target_text, search)(
            toy_models.sources(name)
        )
        assert [len(x.tokens) for x in found] == [n + 1 for n in lengths]


@pytest.mark.full
def test_a_saved_translator_of_features_is_loaded(toys, results, tmp_path):
    toys["images"].save(tmp_path)
    assert not (tmp_path / "source.txt").exists()
    loaded = keras_attn.Translator.load(tmp_path)
    assert loaded.source_text is None
    found = loaded({"image": IMAGES, "style": STYLES})
    for row, expected in zip(found, results["images"], strict=True):
        assert_same(row, expected)


@pytest.mark.parametrize(
    "sources, message",
    [
        (["abc"], r"'frames' of shape \(None, None, 3\), float32"),
        (FRAMES[0], r"array of shape \(7, 3\)\. For one .*array\[None\]"),
        (FRAMES[:, :, :2], r"array of shape \(4, 7, 2\)"),
        ([FRAMES[0], FRAMES[1][:3]], "Pad rows of unequal length first"),
        ((FRAMES, FRAMES), r"for each source input of the model, \['frames'\]"),
        ({"sound": FRAMES}, r"names of .*\['frames'\]. Received: \['sound'\]"),
    ],
)
def test_other_arrays_are_refused(sources, message, toys):
    with pytest.raises(ValueError, match=message):
        toys["spectra"](sources)


@pytest.mark.parametrize(
    "sources, message",
    [
        ((IMAGES, STYLES[:3]), "must all have the same number of rows"),
        ((IMAGES / 255, STYLES), r"dtype float64. Convert it, .*'uint8'"),
        (IMAGES, "Received: 1. Pass several as a tuple"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(sources, message, toys):
    with pytest.raises(ValueError, match=message):
        toys["images"](sources)


@pytest.mark.full
def test_a_model_that_takes_few_positions_is_tried_on_few():
    source = keras.Input((None, 3), name="frames")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = keras_attn.PositionEmbedding(9)(layers.Dense(4)(source))
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(4)
    )(layers.Embedding(toy_models.TARGET.size, 4)(target), memory)
    model = keras.Model(
        [source, target], layers.Dense(toy_models.TARGET.size)(hidden)
    )
    translator = keras_attn.Translator(model, None, toy_models.TARGET)
    (frames,) = translator.pipeline.examples.sources
    assert frames.shape == (3, 8, 3)
    assert len(translator(FRAMES)) == 4


@pytest.mark.full
def test_a_text_encoder_that_joins_positions_has_their_numbers(toys):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(toy_models.SOURCE.size, 4)(source)
    memory = layers.Conv1D(6, 3, strides=2, padding="same")(memory)
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(4)
    )(layers.Embedding(toy_models.TARGET.size, 4)(target), memory)
    model = keras.Model(
        [source, target], layers.Dense(toy_models.TARGET.size)(hidden)
    )
    texts = toy_models.SOURCE, toy_models.TARGET
    with pytest.warns(UserWarning, match="Padding changes"):
        translator = keras_attn.Translator(
            model, *texts, keras_attn.GreedySearch(max_length=3)
        )
    (found,) = translator(["abcde"])  # and the end token: six
    assert found.source_tokens == ["0", "1", "2"]
    assert found.alignment.shape == (len(found.tokens), 3)
    with (
        pytest.warns(UserWarning, match="Padding changes"),
        pytest.raises(ValueError, match="attends to 4 positions of a text of"),
    ):
        keras_attn.Translator(model, *texts, replace_unknown=True)


@pytest.mark.full
def test_targets_of_one_length_alone_are_decoded_and_exported(tmp_path):
    source = keras.Input((None, 3))
    target = keras.Input((5,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(
        layers.Embedding(toy_models.TARGET.size, 6)(target),
        layers.Masking()(source),
    )
    logits = layers.Dense(toy_models.TARGET.size)(hidden)
    translator = keras_attn.Translator(
        keras.Model([source, target], logits),
        None,
        toy_models.TARGET,
        keras_attn.GreedySearch(max_length=5),
    )
    assert len(translator(FRAMES)) == 4
    assert translator.export(tmp_path, lengths=True).is_dir()
