"""`MinimumRisk`, held against a loop over candidates and samples."""

from dataclasses import replace

import numpy as np
import pytest
import sacrebleu
from support.ranked import Told
from support.ranked import expected_utilities
from support.ranked import texts_of
from support.toys import LINES
from support.toys import sources

import keras_attn
from keras_attn import BeamSearch
from keras_attn import MinimumRisk
from keras_attn import Sampling
from keras_attn import Translations
from keras_attn.decoding import Real
from keras_attn.reranking import Utility
from keras_attn.reranking.sampling_of import sampling_of

DRAWN = Sampling(num_hypotheses=9, max_length=6)


class Compared(Utility):
    """Keeps what it compares, and says that all is alike."""

    def matrix(self, hypotheses, references):
        self.texts = list(hypotheses), list(references)
        return [[self.of(x, y) for y in references] for x in hypotheses]

    def of(self, one, other):
        return 1 / 3


class Same(Compared):
    def of(self, one, other):
        return float(one == other)


@pytest.fixture(scope="module")
def told():
    """Nine samples for each of some sources, often the same twice."""
    random = np.random.default_rng(1)
    words = ["the", "cat", "sat", "down", "."]

    def line():
        return " ".join(random.choice(words, random.integers(0, 4)))

    return Told(
        {
            "a" * n: [(line(), -float(score)) for score in range(9)]
            for n in range(20)
        },
        DRAWN,
    )


@pytest.fixture(scope="module")
def beams():
    """Candidates of a search that does not draw."""
    best = {"a" * n: [("the cat", -1.0), ("cat", -2.0)] for n in range(20)}
    return Told(best, BeamSearch(2, num_hypotheses=2))


@pytest.fixture(scope="module")
def beam(toys):
    return toys["pre"]


def chrf(hypothesis, reference):
    return sacrebleu.sentence_chrf(hypothesis, [reference]).score


def bleu(hypothesis, reference):
    return sacrebleu.sentence_bleu(hypothesis, [reference]).score


def scores_of(row):
    return [row.score, *(x.score for x in row.alternatives)]


@pytest.mark.parametrize(("name", "metric"), [("chrf", chrf), ("bleu", bleu)])
def test_the_candidate_most_like_the_samples_wins(told, name, metric):
    found = MinimumRisk(told, 9, name, num_hypotheses=None)(list(told.lists))
    for pairs, row in zip(told.lists.values(), found, strict=True):
        samples = [text for text, _ in pairs]
        candidates = list(dict.fromkeys(samples))
        expected = expected_utilities(candidates, samples, metric)
        by_text = dict(zip(candidates, expected, strict=True))
        assert sorted(texts_of(row)) == sorted(candidates)
        assert scores_of(row) == sorted(scores_of(row), reverse=True)
        np.testing.assert_allclose(
            scores_of(row), [by_text[x] for x in texts_of(row)], atol=1e-9
        )


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1.0, 1e15])
def test_metrics_of_any_size_choose_alike(told, scale):
    def scaled(hypothesis, reference):
        return scale * len(set(hypothesis) & set(reference))

    lines = list(told.lists)
    found = MinimumRisk(told, 9, scaled)(lines)
    expected = MinimumRisk(told, 9, lambda x, y: scaled(x, y) / scale)(lines)
    assert found.text == expected.text


@pytest.mark.parametrize("worst", [-1e30, -np.inf])
def test_a_very_bad_hypothesis_makes_others_no_ties(told, worst):
    lines = list(told.lists)

    def same(hypothesis, reference):
        return len(set(hypothesis) & set(reference))

    def metric(hypothesis, reference):
        return worst if hypothesis in bad else same(hypothesis, reference)

    plain = MinimumRisk(told, 9, same, num_hypotheses=None)(lines)
    bad = {x[-1] for x in map(texts_of, plain) if len(x) > 2}
    found = MinimumRisk(told, 9, metric, num_hypotheses=None)(lines)
    for one, other in zip(found, plain, strict=True):
        expected = dict(zip(texts_of(other), scores_of(other), strict=True))
        for text, score in zip(texts_of(one), scores_of(one), strict=True):
            assert score == (worst if text in bad else expected[text])
    assert bad


def test_a_sample_counts_as_often_as_it_was_drawn(told):
    found = MinimumRisk(told, 9, Same(), num_hypotheses=None)(list(told.lists))
    for pairs, row in zip(told.lists.values(), found, strict=True):
        samples = [text for text, _ in pairs]
        shares = [samples.count(x) / 9 for x in texts_of(row)]
        np.testing.assert_allclose(scores_of(row), shares)


def test_so_many_results_are_returned_as_are_wanted(told):
    every = MinimumRisk(told, 9, num_hypotheses=None)(list(told.lists))
    for count in 1, 2:
        risk = MinimumRisk(told, 9, num_hypotheses=count)
        found = risk(told.lists.keys())
        assert isinstance(found, keras_attn.Translations)
        assert [texts_of(x) for x in found] == [
            texts_of(x)[:count] for x in every
        ]
    assert MinimumRisk(told, 9)(list(told.lists)).text == every.text
    assert len(MinimumRisk(told, 9)([])) == 0


def test_of_equals_the_likelier_wins_then_the_first():
    pairs = [("b", -2.0), ("c", -1.0), ("a", -1.0), ("b", -0.5)]
    told = Told({"x": pairs}, Sampling(num_hypotheses=4))
    (row,) = MinimumRisk(told, 4, Compared(), num_hypotheses=None)(["x"])
    assert texts_of(row) == ["b", "c", "a"]


def test_candidates_come_from_other_searches(told, beams):
    compared = Compared()
    risk = MinimumRisk(told, 9, compared, candidates=beams)
    assert risk.samples is told and risk.candidates == (beams,)
    (row,) = risk(["aaa"])
    candidates, samples = compared.texts
    assert candidates == ["the cat", "cat"]
    assert samples == list(dict.fromkeys(x for x, _ in told.lists["aaa"]))
    assert row.text == "the cat"


def test_equal_searches_run_once_and_lists_are_joined(told, beams):
    compared = Compared()
    search = Sampling(num_hypotheses=9, max_length=6)
    risk = MinimumRisk(told, search, compared, candidates=[search, beams])
    assert risk.samples is told and risk.candidates == (told, beams)
    told.asked.clear()
    risk(["aaa"])
    assert len(told.asked) == 1
    candidates, samples = compared.texts
    assert candidates[: len(samples)] == samples
    assert set(candidates) == {*samples, "the cat", "cat"}


def test_searches_get_their_own_part_of_a_request(told, beams):
    more = Told(told.lists, Sampling(num_hypotheses=9, top_k=2))
    risk = MinimumRisk(told, 9, candidates=[beams, more])
    lines = ["a", "aaa", "aa"]
    options = {"temperature": [0.1, 0.2, 0.3], "num_beams": 2}
    every = told, beams, more
    for one in every:
        one.asked.clear()
    risk(lines, 2, ["p", None, "q"], seed=1, options=options)
    # The longest sources come first.
    assert [x for x, _ in told.asked] == [["aaa", "aa"], ["a"]]
    of_beams, _ = [x for _, x in beams.asked]
    assert of_beams == {"options": {"num_beams": 2}, "prefixes": [None, "q"]}
    _, last = [x for _, x in told.asked]
    assert last["options"] == {"temperature": [0.1]}
    assert last["prefixes"] == ["p"]
    seeds = [x["seed"] for one in (told, more) for _, x in one.asked]
    assert len({y for x in seeds for y in x}) == 6
    told.asked.clear()
    risk(lines, seed=1)
    ((_, asked),) = told.asked
    assert asked == {"seed": [*seeds[0], *seeds[1]]}
    told.asked.clear()
    beams.asked.clear()
    terms, avoid = [["t"], None, []], [None, ["v"], None]
    MinimumRisk(told, 9, candidates=beams)(lines, terms=terms, avoid=avoid)
    ((_, asked),) = beams.asked
    assert asked == {"terms": [None, [], ["t"]], "avoid": [["v"], None, None]}
    ((_, asked),) = told.asked
    assert asked.pop("seed") and asked == {"avoid": [["v"], None, None]}
    with pytest.raises(ValueError, match="`seed` needs a search that draws"):
        MinimumRisk(beams, beams)(lines, seed=1)


def test_a_bar_counts_the_sources(told, capsys):
    risk = MinimumRisk(told, 9)
    risk(["a", "aa", "aaa"])
    assert capsys.readouterr().out == ""  # no terminal
    risk(["a", "aa", "aaa"], verbose=1, batch_size=2)
    printed = capsys.readouterr().out
    assert "2/3" in printed and "3/3" in printed and "s/source" in printed


def test_samples_keep_the_limits_of_a_search_or_all_if_it_draws():
    search = BeamSearch(2, max_length=5, min_length=3, no_repeat_ngram=2)
    assert sampling_of(search, 4) == Sampling(
        num_hypotheses=4, max_length=5, min_length=3, no_repeat_ngram=2
    )
    search = Sampling(top_p=0.9, num_hypotheses=3, repetition_penalty=1.2)
    assert sampling_of(search, 3) is search
    assert sampling_of(search, 8) == Sampling(
        top_p=0.9, num_hypotheses=8, repetition_penalty=1.2
    )


def test_a_drawing_search_without_a_number_of_draws_is_refused():
    class One(keras_attn.Search):
        draws = True

        def choose(self, step, state):
            return step.argmax()

    assert sampling_of(One(max_length=4), 1) == One(max_length=4)
    with pytest.raises(ValueError, match="an option `num_hypotheses`"):
        sampling_of(One(max_length=4), 3)


def test_an_option_of_a_search_of_ones_own_is_none_of_sampling():
    class Cold(keras_attn.Search):
        temperature: float = Real(default=0.1, low=0)

        def choose(self, step, state):
            return step.argmax()

    found = sampling_of(Cold(max_length=4), 3)
    assert found == Sampling(max_length=4, num_hypotheses=3)


@pytest.mark.full
def test_a_model_is_sampled_and_a_seed_repeats_it_in_any_batch(beam):
    risk = MinimumRisk(beam, samples=5, num_hypotheses=None)
    assert risk.samples.search == Sampling(num_hypotheses=5, max_length=12)
    assert risk.samples.model is beam.model
    assert repr(risk).startswith("<MinimumRisk\n  samples=Sampling(")
    one, again = risk(LINES, seed=5), risk(LINES, seed=5, batch_size=2)
    assert list(map(texts_of, one)) == list(map(texts_of, again))
    np.testing.assert_allclose(one.scores, again.scores, rtol=1e-6)
    for other in risk(LINES, seed=6), risk(LINES):
        assert list(map(texts_of, one)) != list(map(texts_of, other))
    for line, row in zip(LINES, one, strict=True):
        assert len(row.source_tokens) == len(line) + 1
        for x in (row, *row.alternatives):
            assert x.alignment.shape == (len(x.tokens), len(x.source_tokens))
            assert x.alignment.base is None  # not a part of all samples'


@pytest.mark.full
def test_prefixes_and_options_reach_the_searches(beam):
    draw = Sampling(num_hypotheses=3, max_length=9)
    risk = MinimumRisk(beam, draw, candidates=[beam, draw])
    lines, prefixes, most = ["abc", "dead", "b"], ["AA", None, "B K"], [4, 3, 5]
    found = risk(
        lines,
        prefixes=prefixes,
        seed=1,
        options={"max_length": most, "temperature": 0.7, "num_beams": 2},
    )
    for row, prefix, length in zip(found, prefixes, most, strict=True):
        assert row.text.startswith(prefix or "")
        assert len(row.tokens) <= length


@pytest.mark.full
def test_terms_and_a_glossary_need_candidates_of_beam_searches(toys):
    beam, lines = toys["pre"], ["abc", "dead", "b"]
    glossary = keras_attn.Glossary({"dead": "EH K"})
    kept = beam.replace(glossary=glossary)
    with pytest.raises(
        ValueError, match="A translator with a glossary of.*Sam"
    ):
        MinimumRisk(kept, 4)
    risk = MinimumRisk(kept, 4, candidates=BeamSearch(8, 3, max_length=9))
    assert risk.samples.glossary is None
    assert risk.candidates[0].glossary is glossary
    found = risk(
        lines, terms=[["B B"], None, None], avoid=[["AA"], None, None], seed=1
    )
    assert not any(row.missing for row in found)
    assert "B B" in found[0].text and "AA" not in found[0].text
    assert "EH K" in found[1].text


class Lacking(Told):
    """Lacks a term in the best hypothesis of each source."""

    def __call__(self, sources, batch_size=64, **request):
        found = super().__call__(sources, batch_size, **request)
        return Translations([replace(row, missing=["cat"]) for row in found])


def test_a_candidate_that_has_the_terms_comes_first(told):
    beams = Lacking({"a": [("the", -1.0), ("cat", -2.0)]}, BeamSearch(2, 2))

    def most_alike(hypothesis, reference):
        return float(hypothesis == "the")

    risk = MinimumRisk(told, told, most_alike, beams, num_hypotheses=2)
    (row,) = risk(["a"])
    assert texts_of(row) == ["cat", "the"]
    assert scores_of(row) == [0.0, 1.0]


@pytest.mark.full
@pytest.mark.parametrize("name", ["images", "spectra"])
def test_sources_may_be_arrays(toys, name):
    given, risk = sources(name), MinimumRisk(toys[name], samples=4)
    found, again = risk(given, seed=1, batch_size=3), risk(given, seed=1)
    assert len(found) == 4 and found.text == again.text


def test_a_wrong_part_is_refused(told):
    with pytest.raises(ValueError, match="needs a `Translator`.*Received"):
        MinimumRisk(DRAWN)
    for wrong in 0, -1, 2.5, "8", True, None:
        with pytest.raises(ValueError, match="`samples` must be an integer"):
            MinimumRisk(told, wrong)
    with pytest.raises(ValueError, match="`num_hypotheses`.*or None"):
        MinimumRisk(told, num_hypotheses=0)
    with pytest.raises(ValueError, match='`metric` must be one of "chrf"'):
        MinimumRisk(told, metric="comet")
    for wrong in [], "beam", [3], 5, ["a"]:
        with pytest.raises(ValueError, match="`candidates` must be a `Search"):
            MinimumRisk(told, 9, candidates=wrong)


def test_a_wrong_request_is_refused(told):
    risk, lines = MinimumRisk(told, 9), ["a", "aa", "aaa"]
    with pytest.raises(ValueError, match="takes a list of strings"):
        risk("abc")
    with pytest.raises(ValueError, match="`batch_size` must be an integer"):
        risk(lines, batch_size=0)
    for wrong in -1, 1.5, "a", [1, 2]:
        with pytest.raises(ValueError, match="`seed` must be an integer"):
            risk(lines, seed=wrong)
    for wrong in {"num_beams": 3}, 3, ["temperature"]:
        with pytest.raises(ValueError, match="`options` must be a dictionary"):
            risk(lines, options=wrong)
    with pytest.raises(ValueError, match="an item for each source"):
        risk(lines, options={"temperature": [0.5]})
    for name in "prefixes", "avoid":
        with pytest.raises(ValueError, match=f"`{name}` must be a list"):
            risk(lines, **{name: [["AA"]]})
    with pytest.raises(ValueError, match="`terms` of.*needs candidates of bea"):
        risk(lines, terms=[["AA"], None, None])
    with pytest.raises(ValueError, match='`verbose` must be "auto"'):
        risk(lines, verbose=2)


def test_a_metric_that_gives_no_numbers_is_refused(told):
    class Wrong(Compared):
        def of(self, one, other):
            return float("nan")

    with pytest.raises(ValueError, match="a number for each.*NaN"):
        MinimumRisk(told, 9, Wrong())(["a"])
