"""`XLASizes`: batches are padded to sizes for which XLA compiles a search."""

import pathlib
import subprocess
import sys
from collections import Counter

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from keras import layers
from support import toys as toy_models
from support import two_texts
from support.compilations import compiled_functions
from support.compilations import logging_compilations

import keras_attn
from keras_attn import XLASizes

LINES = toy_models.LINES
# Few sizes, as each takes seconds; lines and batches lie on both sides.
SIZES = XLASizes(rows=(1, 3), source=(4, 8))


def like(toy, sizes=SIZES, **options):
    """Returns a toy again, with a search that XLA compiles."""
    models = list(toy.models)
    return keras_attn.Translator(
        models if len(models) > 1 else models[0],
        toy.source_text,
        toy.target_text,
        toy.search,
        jit_compile=sizes,
        **options,
    )


def assert_alike(one, other):
    assert one.text == other.text
    for left, right in zip(one, other, strict=True):
        assert left.tokens == right.tokens
        assert left.score == pytest.approx(right.score, abs=1e-4)
        assert left.source_tokens == right.source_tokens
        np.testing.assert_allclose(left.alignment, right.alignment, atol=1e-4)
        assert [x.text for x in left.alternatives] == [
            x.text for x in right.alternatives
        ]


class TestSizes:
    def test_are_ascending_and_each_once(self):
        sizes = XLASizes(rows=[4, 1, 4], source=32)
        assert sizes == XLASizes((1, 4), (32,))
        assert list(sizes) == [(1, 32), (4, 32)]

    @pytest.mark.parametrize(
        "rows, source",
        [((0, 1), (8,)), ((), (8,)), ("4", (8,)), ((1,), (2.5,)), (True, 8)],
    )
    def test_must_be_positive_integers(self, rows, source):
        with pytest.raises(ValueError, match="must be positive integers"):
            XLASizes(rows, source)

    def test_have_defaults_by_the_model(self):
        found = XLASizes().for_model(False, longest=200, varies=True)
        assert found == XLASizes((1, 2, 4, 8), (8, 16, 32, 64))
        found = XLASizes().for_model(True, longest=20, varies=True)
        assert found == XLASizes((2, 4, 8), (8, 16, 20))
        found = XLASizes((9,)).for_model(True, longest=5, varies=True)
        assert found == XLASizes((9,), (5,))
        found = XLASizes().for_model(False, longest=None, varies=False)
        assert list(found) == [(1, None), (2, None), (4, None), (8, None)]

    @pytest.mark.parametrize("wanted", ["yes", 1, (1, 2), None])
    def test_or_true_or_false_are_wanted(self, toys, wanted):
        with pytest.raises(ValueError, match="must be True, False, or the si"):
            like(toys["greedy"], wanted)


@pytest.fixture(scope="module")
def sized(toys):
    made = {}

    def get(name):
        if name not in made:
            made[name] = like(toys[name])
        return made[name]

    return get


KINDS = ["pre", pytest.param("transformer", marks=pytest.mark.full)]
MORE = [
    *KINDS,
    *(pytest.param(x, marks=pytest.mark.full) for x in ["ensemble"]),
]


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_padding_changes_no_result(name, count, toys, sized):
    for first in (0, 3):
        lines = LINES[first : first + count]
        assert_alike(sized(name)(lines), toys[name](lines))


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_nor_do_prefixes_and_options(name, toys, sized):
    for count in (1, 2):
        asked = {
            "prefixes": ["AA", None][:count],
            "options": {"max_length": [3, 7][:count]},
        }
        for some in ({"prefixes": asked["prefixes"]}, asked):
            assert_alike(
                sized(name)(LINES[:count], **some),
                toys[name](LINES[:count], **some),
            )


@pytest.mark.full
@settings(max_examples=10)
@given(lines=st.lists(st.text("abcdeé", max_size=9), min_size=1, max_size=4))
def test_any_lines_find_the_same(lines, toys, sized):
    assert_alike(sized("pre")(lines), toys["pre"](lines))


@pytest.mark.full
def test_seeds_draw_the_same_in_each_size(toys, sized):
    drawn = sized("sampling")
    many = drawn(LINES[:4], seed=[5, 6, 7, 8])  # more rows than a size has
    for i, line in enumerate(LINES[:4]):
        (alone,) = drawn([line], seed=[5 + i])
        assert alone.text == toys["sampling"]([line], seed=[5 + i])[0].text
        assert alone.text == many[i].text


@pytest.mark.full
def test_features_are_padded_with_zeros(toys):
    frames = toy_models.sources("spectra")
    made = like(toys["spectra"], XLASizes((2,), (5, 9)))
    for some in (frames[1:2, :3], frames[:2], frames[:, :1], frames):
        assert_alike(made(some), toys["spectra"](some))


@pytest.mark.full
def test_features_of_one_size_have_sizes_of_rows(toys):
    image, style = toy_models.sources("images")
    made = like(toys["images"], True)
    assert made.pipeline.sizes == XLASizes((1, 2, 4, 8), ())
    for count in (1, 3, 4):
        some = image[:count], style[:count]
        assert_alike(made(some), toys["images"](some))
    with pytest.raises(ValueError, match="whose sources have one size"):
        like(toys["images"])


@pytest.mark.full
@pytest.mark.parametrize("features", [False, True])
def test_several_sources_are_padded_to_the_longest(features):
    model = two_texts.made(features)
    search = keras_attn.BeamSearch(2, max_length=6)
    plain, made = (
        keras_attn.Translator(
            model, two_texts.TEXTS, toy_models.TARGET, search, jit_compile=x
        )
        for x in (False, SIZES)
    )
    sources = {"question": ["abc", "é"], "hint": ["bad cab", ""]}
    if features:
        sources["speaker"] = np.ones((2, 3), "float32")
    assert_alike(made(sources), plain(sources))
    one = {name: x[:1] for name, x in sources.items()}
    assert_alike(made(one), plain(one))


@pytest.mark.full
def test_scores_and_streams_need_no_size(toys, sized):
    targets = ["AA B", "K"]
    one, other = (
        x.score(LINES[:2], targets) for x in (sized("pre"), toys["pre"])
    )
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
    greedy = like(toys["greedy"])
    (found,) = greedy(["abc"])
    assert "".join(x.text for x in greedy.stream("abc")) == found.text


class TestRefusals:
    def test_a_model_that_padding_changes(self):
        source = keras.Input((None,), dtype="int32")
        target = keras.Input((None,), dtype="int32")
        text = toy_models.SOURCE
        state = layers.GRU(8)(layers.Embedding(text.size, 8)(source))
        hidden = layers.GRU(8, return_sequences=True)(
            layers.Embedding(text.size, 8)(target), initial_state=state
        )
        model = keras.Model([source, target], layers.Dense(text.size)(hidden))
        with pytest.warns(UserWarning, match="Padding changes"):
            with pytest.raises(ValueError, match="padding must not change"):
                keras_attn.Translator(model, text, text, jit_compile=True)

    @pytest.mark.full
    def test_features_that_zeros_change(self):
        source = keras.Input((None, 3))
        target = keras.Input((None,), dtype="int32")
        text = toy_models.TARGET
        hidden = layers.GRU(8, return_sequences=True)(
            layers.Embedding(text.size, 8)(target),
            initial_state=layers.GRU(8)(source),
        )
        model = keras.Model([source, target], layers.Dense(text.size)(hidden))
        with pytest.raises(ValueError, match="whose output they change"):
            keras_attn.Translator(
                model, None, text, jit_compile=XLASizes(source=9)
            )
        search = keras_attn.GreedySearch(max_length=6)
        plain, exact = (
            keras_attn.Translator(model, None, text, search, jit_compile=x)
            for x in (False, XLASizes(2, (4, 7), exact=True))
        )
        frames = np.random.default_rng(0).normal(size=(3, 7, 3))
        for some in (frames[:2], frames[:1, :4], frames[:2, :5], frames):
            assert_alike(exact(some), plain(some))

    @pytest.mark.full
    def test_exact_sizes_that_are_not_given(self, toys):
        with pytest.raises(ValueError, match="`exact=True` needs the sizes"):
            like(toys["spectra"], XLASizes(exact=True))
        with pytest.raises(ValueError, match="whose sources have one size"):
            like(toys["images"], XLASizes(exact=True))

    @pytest.mark.full
    def test_features_of_any_size_without_sizes(self, toys):
        with pytest.raises(ValueError, match="which sizes of the features"):
            like(toys["spectra"], True)

    def test_warming_up_without_xla(self, toys):
        with pytest.raises(ValueError, match="with `jit_compile=True`"):
            toys["pre"].warm_up()

    @pytest.mark.full
    def test_sizes_that_no_request_may_have(self, toys, tmp_path):
        with pytest.raises(ValueError, match="more rows than a request"):
            toys["pre"].export(tmp_path, jit_compile=SIZES, max_rows=1)
        with pytest.raises(ValueError, match="at most 980 sizes"):
            many = XLASizes(range(1, 100), range(1, 11))
            toys["pre"].export(tmp_path, jit_compile=many)


@pytest.mark.full
def test_sizes_are_saved(sized, tmp_path):
    made = sized("pre")
    made.save(tmp_path)
    loaded = keras_attn.Translator.load(tmp_path)
    assert loaded.jit_compile == SIZES
    assert loaded.pipeline.sizes == made.pipeline.sizes
    written = "XLASizes(rows=(1, 3), source=(4, 8), exact=False)"
    assert written == repr(SIZES)
    assert written in repr(loaded)


@pytest.mark.full
def test_after_the_warm_up_no_call_compiles(tmp_path):
    program = pathlib.Path(__file__).parents[1] / "support" / "warmed.py"
    log = tmp_path / "log.txt"
    with open(log, "wb") as file:
        subprocess.run(
            [sys.executable, program],
            env=logging_compilations(),
            stderr=file,
            check=True,
            timeout=500,
        )
    before, after = log.read_text(errors="replace").split("warmed up")
    # Each of two sizes, of one function.
    assert [*Counter(compiled_functions(before)).values()] == [2]
    assert compiled_functions(after) == []


def with_positions(features, positions):
    """A model with learned positions in its source, of which there are few."""
    keras.utils.set_random_seed(4)
    if features:
        source = keras.Input((None, 3), name="source")
        x = layers.Dense(8)(layers.Masking()(source))
    else:
        source = keras.Input((None,), dtype="int32", name="source")
        size = toy_models.SOURCE.size
        x = layers.Embedding(size, 8, mask_zero=True)(source)
    x = keras_attn.PositionEmbedding(positions)(x)
    target = keras.Input((None,), dtype="int32", name="target")
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    size = toy_models.TARGET.size
    hidden = decoder(layers.Embedding(size, 8)(target), x)
    made = keras.Model([source, target], layers.Dense(size)(hidden))
    toy_models.speak_up(made, seed=4)
    return made


@pytest.mark.full
def test_no_text_is_padded_beyond_the_longest():
    text = keras_attn.Text(list("abcdeé"), split="characters", max_length=6)
    model = with_positions(False, text.longest_source)
    search = keras_attn.GreedySearch(max_length=5)
    plain, sized = (
        keras_attn.Translator(
            model, text, toy_models.TARGET, search, jit_compile=x
        )
        for x in (False, XLASizes(2, (4, 64)))
    )
    assert sized.pipeline.sizes.source == (4, text.longest_source)
    sized.warm_up()
    for lines in (["abcdea", "a"], ["ab"]):
        assert_alike(sized(lines), plain(lines))


def test_sizes_that_a_model_of_features_does_not_take():
    model = with_positions(True, 10)
    with pytest.raises(ValueError, match="up to 16, which the model does not"):
        keras_attn.Translator(
            model, None, toy_models.TARGET, jit_compile=XLASizes(2, (8, 16))
        )
