"""`rerank`: the order of weighted sums."""

import dataclasses
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ranked import results
from support.ranked import texts_of
from support.toys import LINES

import keras_attn
from keras_attn import rerank
from keras_attn.reranking import own_score

NUMBERS = st.integers(-3, 3)


def length(sources, hypotheses):
    return [len(x.tokens) for x in hypotheses]


def scores_of(row):
    return [row.score, *(x.score for x in row.alternatives)]


def test_sums_are_worked_out_by_hand():
    given = results([("a b c", -1.0), ("a", -1.5), ("a b c d e", -2.0)])
    (row,) = rerank(given, by=[(length, 0.5)])
    # Lengths with the end token are 4, 2 and 6.
    assert texts_of(row) == ["a b c", "a b c d e", "a"]
    assert scores_of(row) == [1.0, 1.0, -0.5]
    (row,) = rerank(given, by=[(length, -0.3)])
    assert texts_of(row) == ["a", "a b c", "a b c d e"]
    np.testing.assert_allclose(scores_of(row), [-2.1, -2.2, -3.8])
    assert texts_of(given[0]) == ["a b c", "a", "a b c d e"]  # as it was


@given(
    st.lists(
        st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5),
        max_size=4,
    ),
    NUMBERS,
    NUMBERS,
)
def test_the_order_is_that_of_python_s_sorted(lists, own, weight):
    made = results(
        *(
            [(f"{i} {other}", float(one)) for i, (one, other) in enumerate(x)]
            for x in lists
        )
    )

    def other(sources, hypotheses):
        return [float(x.text.split()[1]) for x in hypotheses]

    found = rerank(made, [(other, weight), (own_score, own)])
    for row, before, x in zip(found, made, lists, strict=True):
        values = [own * one + weight * two for one, two in x]
        order = sorted(range(len(x)), key=lambda i: -values[i])
        assert texts_of(row) == [texts_of(before)[i] for i in order]
        assert scores_of(row) == [values[i] for i in order]


def test_hypotheses_with_the_terms_stay_first():
    (row,) = results([("a b", -2.0), ("a", -1.0), ("a b c", -3.0)])
    likelier, longer = row.alternatives
    likelier = dataclasses.replace(likelier, missing=["b"])
    row = dataclasses.replace(row, alternatives=[likelier, longer])
    (found,) = rerank(keras_attn.Translations([row]), by=[(length, 0.0)])
    assert texts_of(found) == ["a b", "a b c", "a"]
    (found,) = rerank(keras_attn.Translations([row]), by=[(length, 9.0)])
    assert texts_of(found) == ["a b c", "a b", "a"]


def test_weights_of_zero_keep_the_order_and_ask_nobody():
    def never(sources, hypotheses):
        raise AssertionError("it has no weight")

    made = results([("a", -1.0), ("b", -1.0), ("c", -2.0)], [("d", 0.0)])
    for by in [], [(never, 0)], [(never, 0.0), (own_score, 0)]:
        found = rerank(made, by)
        assert list(map(texts_of, found)) == list(map(texts_of, made))
    assert len(rerank(results(), [(never, 1.0)])) == 0


def test_a_scorer_gets_each_source_beside_its_hypotheses():
    made = results([("a", 0.0), ("b", 0.0)], [("c", 0.0)])
    seen = []

    def scorer(sources, hypotheses):
        seen.append((sources, [x.text for x in hypotheses]))
        return np.zeros(len(hypotheses))

    rerank(made, [(scorer, 1)], sources=["one", "two"])
    rerank(made, [(scorer, 1)], sources=iter(["one", "two"]))
    assert seen == [(["one", "one", "two"], ["a", "b", "c"])] * 2
    seen.clear()
    array = np.arange(4).reshape(2, 2)
    rerank(made, [(scorer, 1)], sources={"x": array, "y": ["p", "q"]})
    ((sources, _),) = seen
    assert sources["y"] == ["p", "p", "q"]
    np.testing.assert_array_equal(sources["x"], array[[0, 0, 1]])
    seen.clear()
    rerank(made, [(scorer, 1)], sources=(array, ["p", "q"]))
    assert seen[0][0][1] == ["p", "p", "q"]
    seen.clear()
    rerank(made, [(scorer, 1)])
    assert seen[0][0] is None


def test_a_translator_s_scores_are_added(toys):
    toy = toys["pre"]  # whose own scores have a length penalty
    made = toy(LINES)
    found = rerank(made, by=[(toy.score, 0.5)], sources=LINES)
    for line, before, row in zip(LINES, made, found, strict=True):
        hypotheses = [before, *before.alternatives]
        scored = toy.score([line] * len(hypotheses), hypotheses).scores
        sums = np.array([x.score for x in hypotheses]) + 0.5 * scored
        order = np.argsort(-sums, kind="stable")
        assert texts_of(row) == [hypotheses[i].text for i in order]
        np.testing.assert_allclose(scores_of(row), sums[order], rtol=1e-5)


def test_a_model_with_other_tokens_splits_the_texts_itself(toys):
    seen = []

    def score(self, sources, targets):
        seen.extend(targets)
        return np.zeros(len(targets))

    scorer = types.MethodType(score, toys["pre"])
    rerank(results([("AA B", 0.0), ("K", 0.0)]), [(scorer, 1)], ["a"])
    assert isinstance(seen[0], keras_attn.Translation)
    seen.clear()
    rerank(results([("AA B", 0.0), ("AAB", 0.0)]), [(scorer, 1)], ["a"])
    assert seen == ["AA B", "AAB"]


def test_what_cannot_be_is_refused(toys):
    made = results([("a", 0.0), ("b", 0.0)])
    for wrong in None, 3, "score", [length], [(length,)], [(length, "1")]:
        with pytest.raises(ValueError, match="`by` must be a list of pairs"):
            rerank(made, wrong)
    for wrong in [("score", 1)], [(length, float("nan"))], [(length, 1, 2)]:
        with pytest.raises(ValueError, match="`by` must be a list of pairs"):
            rerank(made, wrong)
    for wrong in ["a"], "a", None, 3:
        with pytest.raises(ValueError, match="`results` must be `Transl"):
            rerank(wrong, [(length, 1)])
    for wrong in ["a", "b"], "a", [], 3:
        with pytest.raises(ValueError, match="a source for each of the res"):
            rerank(made, [(length, 1)], wrong)
    with pytest.raises(ValueError, match="Pass `sources=`"):
        rerank(made, [(toys["pre"].score, 1)])
    for wrong in (
        lambda *_: 1.0,
        lambda *_: [1.0],
        lambda *_: [1.0, float("nan")],
        lambda *_: [1.0, float("-inf")],
        lambda *_: ["a", "b"],
        lambda *_: None,
    ):
        with pytest.raises(ValueError, match="A scorer is a function of"):
            rerank(made, [(wrong, 1)])
