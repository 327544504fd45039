"""Python's prompt shows the objects that users make and get in words."""

import keras
import numpy as np
import pytest
from support import toys

import keras_attn
from keras_attn.decoding.translator import Scores
from keras_attn.decoding.translator import Translation
from keras_attn.decoding.translator import Translations


@pytest.fixture(scope="module")
def text():
    return keras_attn.Text(["a", "b"], split="characters", lowercase=True)


def translation(**changes):
    fields = {
        "text": "ba",
        "score": -0.5,
        "source_tokens": ["a", "b", "</s>"],
        "tokens": ["b", "a", "</s>"],
        "alignment": np.full((3, 3), 1 / 3),
        "finished": True,
    }
    return Translation(**fields | changes)


def test_a_text_shows_its_size_and_how_it_reads(text):
    assert repr(text) == (
        "<Text size=6, split='characters', lowercase=True, max_length=1000, "
        "too_long='truncate', normalization='NFC'>"
    )


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "splitter",
    [
        keras_attn.Bytes(),
        keras_attn.WordPiece(["un", "##do"]),
        keras_attn.BytePair({"a": 0, "b": 1}, []),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_splitter_shows_its_name(splitter):
    assert repr(splitter) == f"<{type(splitter).__name__}>"
    text = repr(keras_attn.Text(split=splitter))
    assert f"split=<{type(splitter).__name__}>" in text


@pytest.mark.full
def test_a_translator_shows_models_texts_search_and_options():
    translator = toys.words()
    lines = repr(translator).splitlines()
    assert lines[0] == "<Translator"
    assert lines[1] == f"  model={translator.model!r}"
    assert lines[2] == f"  source_text={translator.source_text!r}"
    assert lines[3] == f"  target_text={translator.target_text!r}"
    assert lines[4] == f"  search={translator.search!r}"
    assert lines[5] == "  jit_compile=False"
    assert len(lines) == 10 and lines[-1].endswith(">")
    assert " at 0x" not in repr(translator)


@pytest.mark.full
def test_an_ensemble_shows_all_its_models():
    translator = toys.ensemble()
    assert repr(translator).count(repr(translator.models[0])) == 1
    assert f"  models={list(translator.models)!r}\n" in repr(translator)


def test_a_translation_shows_its_text_and_score_and_no_table():
    assert repr(translation()) == (
        "Translation(text='ba', score=-0.5, finished=True, truncated=False, "
        "unknown=0, empty=False, missing=[])"
    )


def test_translations_show_a_line_each_and_at_most_ten():
    rows = [translation(score=-float(i)) for i in range(12)]
    assert repr(Translations(rows[:2])) == (
        f"Translations([\n  {rows[0]!r},\n  {rows[1]!r},\n])"
    )
    lines = repr(Translations(rows)).splitlines()
    assert lines[10] == f"  {rows[9]!r},"
    assert lines[11:] == ["  ... and 2 more", "])"]
    assert repr(Translations([])) == "Translations([])"


def test_scores_show_the_sums_and_not_every_token():
    scores = Scores(
        tokens=[["a"]],
        token_scores=[np.array([-0.5])],
        scores=np.array([-0.5]),
        truncated=[False],
        unknown=[0],
        empty=[False],
    )
    assert repr(scores) == (
        "Scores(scores=array([-0.5]), truncated=[False], unknown=[0], "
        "empty=[False])"
    )


def test_a_shortlist_shows_its_sizes(text):
    shortlist = keras_attn.Shortlist.from_tokens(text, text, {"a": "ab"}, "b")
    assert repr(shortlist) == (
        "<Shortlist of up to 2 target tokens for each of 6 source tokens, and "
        "1 always>"
    )


def test_nothing_that_a_user_passes_or_gets_shows_an_address(text):
    shown = [
        keras_attn.BeamSearch(),
        keras_attn.GreedySearch(),
        keras_attn.Sampling(),
        keras_attn.SpecialTokens(),
        keras_attn.pairs(["a"], ["b"], text, text, batch_size=1),
        keras_attn.BahdanauAttention(2),
        keras_attn.AttentionDecoder(
            keras.layers.GRUCell(2), keras_attn.LuongAttention("dot")
        ),
    ]
    assert [x for x in map(repr, shown) if " at 0x" in x] == []
