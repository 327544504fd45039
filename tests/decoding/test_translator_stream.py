"""A stream's tokens are those that a call returns."""

import numpy as np
import pytest
from support import toys as toy_models
from support.comparisons import assert_streams

import keras_attn

LINES = toy_models.LINES
# One of the lines is empty; `test_translator_reports.py` has the warning.
pytestmark = pytest.mark.filterwarnings("ignore:The source is empty")


def variant(toy, search=None, **options):
    return keras_attn.Translator(
        toy.models,
        toy.source_text,
        toy.target_text,
        search or toy.search,
        **options,
    )


@pytest.mark.full
def test_greedy_streams_what_it_returns(toys):
    toy = toys["greedy"]
    for line, expected in zip(LINES, toy(LINES), strict=True):
        assert_streams(toy.stream(line), expected)


@pytest.mark.full
def test_a_sample_streams_by_its_seed(toys):
    search = keras_attn.Sampling(max_length=12, temperature=1.5)
    toy = variant(toys["sampling"], search)
    for seed, line in enumerate(LINES):
        (expected,) = toy([line], seed=seed)
        assert_streams(toy.stream(line, seed=seed), expected)
    *_, expected = toy(LINES, seed=range(len(LINES)))
    assert_streams(toy.stream(LINES[-1], seed=[len(LINES) - 1]), expected)
    texts = {tuple(x.text for x in toy.stream("edcba")) for _ in range(9)}
    assert len(texts) > 1


@pytest.mark.full
def test_limits_rules_prefixes_and_options_hold_in_streams_too(toys):
    search = keras_attn.GreedySearch(
        max_length=11,
        min_per_source=(0.5, 2),
        max_per_source=(1.5, 2),
        no_repeat_ngram=2,
        repetition_penalty=1.3,
    )
    toy = variant(toys["greedy"], search, replace_unknown=True)
    options = {"max_length": 9}
    found = toy(LINES, prefixes=["K D"] * len(LINES), options=options)
    plain = toys["greedy"](LINES)
    assert {len(x.tokens) for x in found} != {len(x.tokens) for x in plain}
    for line, expected in zip(LINES, found, strict=True):
        tokens = toy.stream(line, prefix="K D", options=options)
        assert_streams(tokens, expected)


@pytest.mark.full
@pytest.mark.parametrize("name", ["spectra", "images"])
def test_features_stream(name, toys):
    toy = variant(toys[name], keras_attn.GreedySearch(max_length=6))
    sources = toy_models.sources(name)
    for row, expected in enumerate(toy(sources)):
        if name == "images":
            one = tuple(x[row] for x in sources)
        else:
            one = sources[row]
        assert_streams(toy.stream(one), expected)
    one = {"frames": one} if name == "spectra" else one
    assert_streams(toy.stream(one), expected)


@pytest.mark.full
def test_an_ensemble_streams(toys):
    toy = variant(toys["ensemble"], keras_attn.GreedySearch(max_length=6))
    for line, expected in zip(LINES[:3], toy(LINES[:3]), strict=True):
        assert_streams(toy.stream(line), expected)


def test_tokens_come_one_by_one(toys):
    stream = toys["greedy"].stream("abc")
    first = next(stream)
    assert first.text and first.alignment.shape == (4,)
    stream.close()


@pytest.mark.full
@pytest.mark.parametrize("name", ["pre", "sampling"])
def test_what_settles_its_tokens_late_is_refused_by_name(name, toys):
    with pytest.raises(
        ValueError, match="follows one hypothesis.*_hypotheses="
    ):
        toys[name].stream("abc")


def test_a_stream_checks_what_it_is_given_at_once(toys):
    with pytest.raises(ValueError, match="Received: 'Q'"):
        toys["greedy"].stream("abc", prefix="Q")
    with pytest.raises(ValueError, match="Received in it: 3 .of type int"):
        toys["greedy"].stream(3)


def test_a_stream_without_any_hypothesis_is_an_error_as_in_a_call(toys):
    toy = toys["greedy"]
    tokens = toy.target_text.tokens
    made = variant(
        toy,
        keras_attn.GreedySearch(min_length=2, max_length=5),
        forbidden=[x for x in tokens if not x.startswith("<") or x == "<unk>"],
    )
    with pytest.raises(ValueError, match="needs finite logits"):
        made(["abc"])
    with pytest.raises(ValueError, match="needs finite logits"):
        list(made.stream("abc"))


def test_a_stream_of_logits_that_became_nan_is_an_error():
    decoder = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    model = toy_models.model(decoder)
    search = keras_attn.GreedySearch(max_length=5)
    made = keras_attn.Translator(
        model, toy_models.SOURCE, toy_models.TARGET, search
    )
    stream = made.stream("abc")  # its weights are read at each step
    next(stream)
    kernel = model.layers[-1].kernel
    kernel.assign(np.full(kernel.shape, np.nan))
    with pytest.raises(ValueError, match="needs finite logits"):
        list(stream)
