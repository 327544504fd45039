import sys

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

import keras_attn
from keras_attn import metrics

SAID = ["the cat sat on a mat", "it rains today .", "no"]
ONE = ["the cat sat on the mat", "it is raining today .", "no"]
SEVERAL = [[ONE[0], "a cat sat on a mat"], [ONE[1]], ["yes", "no", "nay"]]


def test_error_rates_are_rapidfuzz_s_edits_over_lengths():
    for rate, split in (
        (metrics.word_error_rate, str.split),
        (metrics.character_error_rate, list),
    ):
        pairs = [(split(x), split(y)) for x, y in zip(SAID, ONE, strict=True)]
        edits = sum(Levenshtein.distance(x, y) for x, y in pairs)
        assert rate(SAID, ONE) == edits / sum(len(y) for _, y in pairs)
    assert metrics.sequence_error_rate(SAID, ONE) == 2 / 3


def test_the_nearest_of_several_references_counts():
    assert metrics.sequence_error_rate(SAID, SEVERAL) == 2 / 3
    assert metrics.word_error_rate(SAID, SEVERAL) == (1 + 2) / (6 + 5 + 1)


@pytest.mark.parametrize("options", [{}, {"lowercase": True}])
def test_bleu_and_chrf_are_sacrebleu_s(options):
    for ours, theirs in (
        (metrics.bleu, sacrebleu.BLEU),
        (metrics.chrf, sacrebleu.CHRF),
    ):
        expected = theirs(**options).corpus_score(SAID, [ONE]).score
        assert ours(SAID, ONE, **options) == expected
        assert ours(SAID, [[x] for x in ONE], **options) == expected


def test_rows_may_have_different_numbers_of_references():
    # sacreBLEU's own functions take a list for each number of reference. A
    # second copy of a reference changes nothing.
    filled = [[*x, *x[:1] * (3 - len(x))] for x in SEVERAL]
    streams = [list(x) for x in zip(*filled, strict=True)]
    expected = sacrebleu.BLEU().corpus_score(SAID, streams).score
    assert metrics.bleu(SAID, SEVERAL) == pytest.approx(expected)
    expected = sacrebleu.CHRF().corpus_score(SAID, streams).score
    assert metrics.chrf(SAID, SEVERAL) == pytest.approx(expected)


@pytest.mark.parametrize("name", metrics.BY_NAME)
def test_all_by_name_take_the_same_lists_and_refuse_the_same(name):
    rate = metrics.BY_NAME[name]
    best = 100 if name in ("bleu", "chrf") else 0
    assert rate(ONE, ONE) == pytest.approx(best)
    with pytest.raises(ValueError, match="`hypotheses` must be a list"):
        rate("a", ["a"])
    with pytest.raises(ValueError, match="2 hypotheses and 1 references"):
        rate(["a", "b"], ["a"])
    with pytest.raises(ValueError, match=r"hypotheses\[0\]=\['a'\]"):
        rate([["a"]], ["a"])
    with pytest.raises(ValueError, match="at least one reference"):
        rate(["a"], [[]])


EVERY = {
    **metrics.BY_NAME,
    "tokens": lambda *rows: metrics.error_rates(*rows).token,
    "links": metrics.alignment_error_rate,
}
FITTING = {
    "tokens": ([["a", "b"], ["c"]], [[["a", "d"]], [["c"], ["b"]]]),
    "links": ([{(0, 0)}, {(1, 1)}], [{(0, 0)}, {(1, 0)}]),
}


@pytest.mark.parametrize("name", EVERY)
def test_metrics_take_generators_and_refuse_what_has_no_rows(name):
    metric = EVERY[name]
    said, right = FITTING.get(name, (SAID, SEVERAL))
    found = metric((x for x in said), (x for x in right))
    assert found == metric(said, right)
    for none in [], (), iter([]):
        with pytest.raises(ValueError, match="at least one row.*Received: no"):
            metric(none, [])
    with pytest.raises(ValueError, match=f"{len(said)} .* and 1 "):
        metric(iter(said), iter(right[:1]))
    for wrong in "a", b"a", 3, None:
        with pytest.raises(ValueError, match=r"must be a list.*list of one\."):
            metric(said, wrong)


def test_a_reference_that_is_no_text_is_refused():
    for right in [["a", 3]], [None], [[]]:
        with pytest.raises(ValueError, match=r"references\[0\]="):
            metrics.bleu(["a"], right)


def test_without_sacrebleu_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ImportError, match="`chrf` counts.*extra `metrics`"):
        metrics.chrf(["a"], ["a"])


pairs = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)))


@given(st.lists(st.tuples(pairs, pairs, pairs), max_size=3))
def test_the_alignment_error_rate_is_its_formula(rows):
    def table(links):
        x = np.zeros((4, 4))
        for source, target in links:
            x[source, target] = 1
        return x

    both = total = 0
    for found, sure, possible in rows:
        a, s, p = table(found), table(sure), table(possible | sure)
        both += (a * s).sum() + (a * p).sum()
        total += a.sum() + s.sum()
    expected = 1 - both / total if total else 0
    rate = (
        keras_attn.alignment_error_rate(*zip(*rows, strict=True))
        if (rows)
        else 0
    )
    assert rate == pytest.approx(expected)


def test_an_alignment_without_a_wrong_link_has_no_errors():
    sure, possible = {(0, 0), (2, 1)}, {(1, 1)}
    rate = keras_attn.alignment_error_rate
    assert rate([sure], [sure], [possible]) == 0
    assert rate([sure | possible], [sure], [possible]) == 0
    assert rate([{(3, 3)}], [sure]) == 1
    # 1 - (1 + 1) / (2 + 2)
    assert rate([{(0, 0), (3, 3)}], [sure]) == 0.5


def test_links_go_to_the_token_that_is_attended_to_most():
    soft = [[0.4, 0.6, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.1, 0.9], [0, 0, 0, 1]]
    assert metrics.alignment_links(soft) == {(1, 0), (0, 1)}
    assert metrics.alignment_links(soft, end=False) == {
        (1, 0),
        (0, 1),
        (3, 2),
        (3, 3),
    }
    assert metrics.alignment_links(np.zeros((3, 3))) == set()
    assert metrics.alignment_links(np.zeros((0, 0))) == set()


def test_links_of_the_wrong_kind_are_refused():
    rate = keras_attn.alignment_error_rate
    with pytest.raises(ValueError, match=r"call `alignment_links"):
        rate([np.full((2, 2), 0.5)], [{(0, 0)}])
    with pytest.raises(ValueError, match="1 found and 2 sure"):
        rate([set()], [set(), set()])
    with pytest.raises(ValueError, match=r"\(target, source\)"):
        metrics.alignment_links(np.zeros(3))
    line = "0-0 2-1"
    assert rate([{(0, 0), (2, 1)}], [[x.split("-") for x in line.split()]]) == 0
