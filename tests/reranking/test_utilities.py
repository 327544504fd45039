"""Similarities of many pairs at once, held against sacreBLEU and RapidFuzz."""

import sys

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from keras_attn import metrics
from keras_attn.reranking import Utility
from keras_attn.reranking.metrics import BY_NAME
from keras_attn.reranking.metrics import utility_of
from keras_attn.reranking.ngrams import Ngrams

LINES = [
    "The cat sat on the mat.",
    "the cat sat on the  mat ,  the mat",
    "Le chat s'est assis sur le tapis.",
    "a a a a",
    "a a",
    "b",
    "",
    "  ",
    "naïve café ☃ 𝄞𝄞",
    "1,000.5 % of it -- really?",
    "aaaaaaaaaaaa",
]

# Few letters, so that texts share n-grams and repeat them.
texts = st.lists(
    st.text("ab .", max_size=12), min_size=1, max_size=4, unique=True
)


def sentence_chrf(hypothesis, references):
    return sacrebleu.sentence_chrf(hypothesis, references).score


def sentence_bleu(hypothesis, references):
    return sacrebleu.sentence_bleu(hypothesis, references).score


SENTENCES = {"chrf": sentence_chrf, "bleu": sentence_bleu}


def matrix_of(score, hypotheses, references):
    return [[score(x, [y]) for y in references] for x in hypotheses]


@pytest.mark.parametrize("name", SENTENCES)
def test_all_pairs_are_what_sacrebleu_says_of_each_sentence(name):
    found = utility_of(name).matrix(LINES, LINES[::-1])
    expected = matrix_of(SENTENCES[name], LINES, LINES[::-1])
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("name", SENTENCES)
@given(texts, texts)
def test_so_they_are_of_any_texts(name, hypotheses, references):
    found = utility_of(name).matrix(hypotheses, references)
    expected = matrix_of(SENTENCES[name], hypotheses, references)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", BY_NAME)
@given(st.lists(st.tuples(st.text("ab .", min_size=1, max_size=9), texts)))
def test_counts_add_up_to_the_metric_of_a_corpus(name, rows):
    rows = [*rows, ("a b ab", ["a b a b"])]
    utility = utility_of(name)
    counts = [utility.counts([x], several)[0] for x, several in rows]
    found = utility.of_corpus(np.sum(counts, axis=0))
    expected = metrics.BY_NAME[name](*zip(*rows, strict=True))
    sign = 1 if name in ("chrf", "bleu") else -1
    assert found == pytest.approx(sign * expected, abs=1e-9)


def test_counts_of_many_corpora_are_valued_together():
    for name in BY_NAME:
        utility = utility_of(name)
        counts = utility.counts(LINES, [LINES[0], LINES[4]])
        assert len(counts) == len(LINES)
        each = [float(utility.of_corpus(x)) for x in counts]
        np.testing.assert_allclose(utility.of_corpus(counts), each)


def test_error_rates_are_negative_shares_of_the_reference():
    said, right = ["a b", "a c"], ["a b", "a d e f"]
    words = utility_of("wer").matrix(said, right)
    np.testing.assert_allclose(words, [[0, -0.75], [-0.5, -0.75]])
    whole = utility_of("ser").matrix(said, right)
    np.testing.assert_allclose(whole, [[0, -1], [-1, -1]])
    characters = utility_of("cer").matrix(["ab", "a"], ["ab", ""])
    np.testing.assert_allclose(characters, [[0, -2], [-0.5, -1]])


def test_an_ngram_is_common_as_often_as_both_have_it():
    # "aaab" has a 3 times and aa 2 times; "aaca" has a 3 times and aa once.
    ngrams = Ngrams([[0, 0, 0, 1], [0, 0, 2, 0], []], 3)
    np.testing.assert_array_equal(
        ngrams.totals, [[4, 3, 2], [4, 3, 2], [0, 0, 0]]
    )
    common = ngrams.common([0, 2], [0, 1, 2])
    np.testing.assert_array_equal(common[0], [[4, 3, 2], [3, 1, 0], [0, 0, 0]])
    assert not common[1].any()
    np.testing.assert_array_equal(
        ngrams.common_with_all([0, 1], [1, 2]), [[3, 1, 0], [4, 3, 2]]
    )


def test_a_function_compares_each_pair():
    found = utility_of(lambda x, y: len(x) - len(y)).matrix(["ab"], ["", "a"])
    np.testing.assert_array_equal(found, [[2, 1]])
    with pytest.raises(ValueError, match='of two strings.*"chrf"'):
        utility_of(lambda x, y: [1, 2]).matrix(["a"], ["b"])


def test_another_metric_is_refused():
    for wrong in "rouge", 3, None, Utility:
        with pytest.raises(ValueError, match='"chrf", "bleu", "wer".*Received'):
            utility_of(wrong)
    with pytest.raises(NotImplementedError, match="`matrix`"):
        type("Empty", (Utility,), {})().matrix(["a"], ["b"])


def test_without_sacrebleu_chrf_works_and_bleu_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    assert utility_of("chrf").matrix(["a"], ["a"]) == 100
    with pytest.raises(ImportError, match="extra `metrics`"):
        utility_of("bleu")
