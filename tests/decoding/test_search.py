"""Search, shown on models that spell words: lengths, pool and stopping.

The other `test_search_*.py` test the searches' other options.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from support import reference_search as reference
from support.spelling import FORBIDDEN
from support.spelling import PAD
from support.spelling import START
from support.spelling import as_reference
from support.spelling import assert_found
from support.spelling import random_automaton
from support.spelling import spell
from support.spelling import speller

from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn.decoding import StepModel

WORDS = {"cat": 0.4, "car": 0.3, "dog": 0.2, "do": 0.1}


def test_greedy_spells_the_likeliest_word_letter_by_letter():
    found = GreedySearch(max_length=8)(speller(WORDS).given())
    assert spell(found) == ["cat"]
    np.testing.assert_allclose(found.scores, [[np.log(0.4)]], rtol=1e-5)


def test_a_beam_finds_the_word_that_greedy_walks_past():
    # "b" begins nothing likely, though it is the likeliest first letter.
    words = {"ba": 0.2, "be": 0.2, "bo": 0.2, "at": 0.4}
    model = speller(words)
    assert spell(GreedySearch(max_length=5)(model.given())) != ["at"]
    assert spell(BeamSearch(2, max_length=5)(model.given())) == ["at"]


def test_the_n_best_come_in_the_order_of_their_probabilities():
    search = BeamSearch(4, num_hypotheses=4, max_length=8)
    found = search(speller(WORDS).given())
    assert spell(found) == ["cat", "car", "dog", "do"]
    np.testing.assert_allclose(
        np.exp(found.scores), [[0.4, 0.3, 0.2, 0.1]], rtol=1e-5
    )


@pytest.mark.parametrize("penalty", ["gnmt", "power"])
def test_a_length_penalty_favours_the_longer_word_by_its_formula(penalty):
    words = {"a": 0.52, "bcdefgh": 0.48}
    search = BeamSearch(
        2,
        num_hypotheses=2,
        length_penalty=0.6,
        penalty=penalty,
        early_stopping="never",
        max_length=9,
    )
    found = search(speller(words).given())
    assert spell(found) == ["bcdefgh", "a"]
    # "a" has two tokens with its end token, "bcdefgh" eight.
    base = {"gnmt": [13 / 6, 7 / 6], "power": [8, 2]}[penalty]
    np.testing.assert_allclose(
        found.scores[0], np.log([0.48, 0.52]) / np.power(base, 0.6), rtol=1e-5
    )


def test_without_a_length_penalty_the_shorter_and_likelier_word_wins():
    words = {"a": 0.52, "bcdefgh": 0.48}
    assert spell(BeamSearch(2, max_length=9)(speller(words).given())) == ["a"]


# With two beams "a" and "ab" fill the pool after three steps. The third word
# is less likely, but has eight tokens, and the penalty divides by them.
STOPPING = {"a": 0.44, "ab": 0.42, "eeeeeee": 0.14}


def stopping(early_stopping):
    return BeamSearch(
        2,
        length_penalty=1.0,
        penalty="power",
        early_stopping=early_stopping,
        max_length=12,
    )


def test_early_stopping_true_stops_as_soon_as_the_pool_is_full():
    # "eee" has the score ln 0.48 / 3 by then, better than the whole pool.
    model = speller({"a": 0.27, "ab": 0.25, "eeeeeee": 0.48})
    assert spell(stopping(True)(model.given())) == ["ab"]
    assert model.steps == 3


def test_early_stopping_false_judges_beginnings_as_if_they_ended_now():
    # "eee" has ln 0.48 / 3, the pool's worst has ln 0.27 / 2: go on.
    model = speller({"a": 0.27, "ab": 0.25, "eeeeeee": 0.48})
    assert spell(stopping(False)(model.given())) == ["eeeeeee"]
    # ln 0.14 / 3 is no better than ln 0.44 / 2: stop.
    model = speller(STOPPING)
    assert spell(stopping(False)(model.given())) == ["ab"]
    assert model.steps == 3


def test_never_waits_for_what_may_still_win_at_the_longest_length():
    # ln 0.14 / 12 would beat ln 0.44 / 2; at its end it counts ln 0.14 / 8.
    found = stopping("never")(speller(STOPPING).given())
    assert spell(found) == ["eeeeeee"]
    np.testing.assert_allclose(found.scores, [[np.log(0.14) / 8]], rtol=1e-5)


def test_never_stops_too_once_nothing_can_beat_the_pool():
    model = speller({"a": 0.5, "b": 0.5})
    search = BeamSearch(2, early_stopping="never", max_length=50)
    assert spell(search(model.given())) in (["a"], ["b"])
    assert model.steps == 2


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize(("count", "steps"), [(1, 2), (2, 3), (3, 6)])
def test_a_source_stops_once_the_wanted_hypotheses_are_certain(
    early_stopping, count, steps
):
    # "a" ends in the second step, "bb" in the third, "ccccc" in the sixth;
    # the pool of four hypotheses is full with the eighth.
    model = speller({"a": 0.4, "bb": 0.3, "ccccc": 0.2, "ddddddd": 0.1})
    search = BeamSearch(
        4, num_hypotheses=count, early_stopping=early_stopping, max_length=50
    )
    assert spell(search(model.given())) == ["a", "bb", "ccccc"][:count]
    assert model.steps == steps


def test_a_source_goes_on_while_a_penalty_may_bring_a_longer_one_to_the_top():
    words = {"a": 0.5, "bbbb": 0.4, "cccccccc": 0.1}
    search = BeamSearch(3, length_penalty=1.0, penalty="power", max_length=12)
    model = speller(words)
    assert spell(search(model.given())) == ["bbbb"]
    # ln 0.4 / 5 is more than ln 0.1 / 12, all that the last word can reach.
    assert model.steps == 5


def test_groups_go_on_since_later_ones_depend_on_them():
    model = speller({"a": 0.4, "bb": 0.3, "ccccc": 0.2, "ddddddd": 0.1})
    options = {"groups": 2, "diversity": 0.5, "max_length": 50}
    BeamSearch(4, **options)(model.given())
    assert model.steps > 3


def test_greedy_stops_when_the_longest_row_has_ended():
    model = speller({"a": 1.0}, {"bcd": 1.0})
    found = GreedySearch(max_length=50)(model.given())
    assert [*spell(found, 0), *spell(found, 1)] == ["a", "bcd"]
    assert model.steps == 4


def test_a_word_longer_than_the_maximum_is_cut_and_flagged():
    model = speller({"abcdef": 1.0})
    for search in (GreedySearch(max_length=3), BeamSearch(1, max_length=3)):
        found = search(model.given())
        assert spell(found) == ["abc-"]
        np.testing.assert_allclose(found.scores, [[0.0]], atol=1e-5)


def test_the_end_token_counts_towards_the_maximum_length():
    model = speller({"abc": 1.0})
    assert spell(BeamSearch(2, max_length=4)(model.given())) == ["abc"]
    assert spell(BeamSearch(2, max_length=3)(model.given())) == ["abc-"]
    assert spell(GreedySearch(max_length=4)(model.given())) == ["abc"]
    assert spell(GreedySearch(max_length=3)(model.given())) == ["abc-"]


def test_what_was_cut_comes_after_what_has_ended_whatever_its_score():
    words = {"a": 0.1, "bcdef": 0.9}
    search = BeamSearch(2, num_hypotheses=2, max_length=3)
    found = search(speller(words).given())
    assert spell(found) == ["a", "bcd-"]
    np.testing.assert_allclose(found.scores, [np.log([0.1, 0.9])], rtol=1e-4)


def test_the_minimum_length_counts_the_end_token():
    words = {"a": 0.6, "ab": 0.3, "abc": 0.1}
    expected = {1: "a", 2: "a", 3: "ab", 4: "abc"}
    for min_length, word in expected.items():
        model = speller(words)
        beam = BeamSearch(3, max_length=6, min_length=min_length)
        greedy = GreedySearch(max_length=6, min_length=min_length)
        assert spell(beam(model.given())) == [word]
        assert spell(greedy(model.given())) == [word]


def test_more_hypotheses_than_there_are_sequences_are_missing_ones():
    search = BeamSearch(5, num_hypotheses=5, max_length=3)
    found = search(speller({"a": 0.7, "b": 0.2, "cde": 0.1}).given())
    assert spell(found) == ["a", "b", "cde-", "-", "-"]
    assert found.lengths.numpy().tolist() == [[2, 2, 3, 0, 0]]
    assert found.finished.numpy().tolist() == [[True, True, *[False] * 3]]
    assert np.all(found.scores.numpy()[0, 3:] == -np.inf)
    assert not found.alignments.numpy()[0, 3:].any()
    assert not found.tokens.numpy()[0, 3:].any()


def test_forbidden_tokens_never_come_however_likely_they_are():
    model = random_automaton(3, batch=4, letters=3)
    model.logits[..., [PAD, START]] = 50.0
    for search in (
        GreedySearch(max_length=6),
        BeamSearch(4, num_hypotheses=4, max_length=6),
    ):
        found = search(model.given())
        real = tf.sequence_mask(found.lengths, 6).numpy()
        tokens = found.tokens.numpy()[real]
        assert tokens.size and not np.isin(tokens, FORBIDDEN).any()
        # Other tokens do not get their share of the probability.
        assert np.all(found.scores < -40)


def test_logits_of_minus_infinity_are_as_good_as_forbidden():
    model = random_automaton(4, batch=2, letters=3)
    model.logits[..., 4] = -np.inf
    for search in (
        GreedySearch(max_length=5),
        BeamSearch(3, num_hypotheses=3, max_length=5),
    ):
        found = search(model.given())
        assert not np.any(found.tokens == 4)
        assert np.all(np.isfinite(found.scores))


def check_against_reference(search, model):
    found = search(model.given())
    for row in range(len(model.logits)):
        expected = reference.beam_search(model.row(row), as_reference(search))
        assert_found(found, row, expected, model)


@pytest.mark.full
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("penalty", ["gnmt", "power"])
@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 4), (3, 7)])
def test_beam_search_is_what_its_documentation_says_in_every_crossing(
    width, alpha, penalty, early_stopping, lengths
):
    min_length, max_length = lengths
    search = BeamSearch(
        width,
        width,
        alpha,
        penalty,
        early_stopping,
        max_length,
        min_length,
    )
    for seed in range(4):
        check_against_reference(
            search, random_automaton(seed, batch=4, letters=3)
        )


@pytest.mark.sample_cases(6)
@pytest.mark.parametrize("penalty", ["gnmt", "power"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 1.7])
@pytest.mark.parametrize("lengths", [(1, 4), (3, 4), (1, 1)])
def test_a_beam_wide_enough_is_exhaustive(penalty, alpha, lengths):
    min_length, max_length = lengths
    model = random_automaton(11, batch=8)
    # There are at most 2 ** 3 partial hypotheses of three extensions each.
    search = BeamSearch(24, 15, alpha, penalty, "never", max_length, min_length)
    found = search(model.given())
    for row in range(8):
        expected = reference.every_hypothesis(
            model.row(row), as_reference(search)
        )
        ended = int(np.sum(found.finished[row]))
        assert ended == len(expected)
        for n, (tokens, score, _) in enumerate(expected):
            assert int(found.lengths[row, n]) == len(tokens)
            assert tuple(found.tokens.numpy()[row, n, : len(tokens)]) == tokens
            np.testing.assert_allclose(
                found.scores[row, n], score, rtol=1e-5, atol=1e-5
            )


@given(
    st.integers(0, 10**6),
    st.sampled_from(
        [
            {"early_stopping": True},
            {"early_stopping": True, "length_penalty": 1.0},
            {"early_stopping": False},
            {"early_stopping": "never"},
        ]
    ),
)
@settings(max_examples=15)
def test_one_beam_is_greedy_if_it_stops_at_once_or_has_no_penalty(seed, how):
    model = random_automaton(seed, batch=4, letters=3)
    greedy = GreedySearch(max_length=6)(model.given())
    search = BeamSearch(1, max_length=6, **how)
    beam = search(model.given())
    for name in ("tokens", "lengths", "finished", "alignments"):
        np.testing.assert_array_equal(
            getattr(beam, name), getattr(greedy, name)
        )
    np.testing.assert_allclose(
        beam.scores, search.normalize(greedy.scores, greedy.lengths), rtol=1e-5
    )


class HalfPrecision(StepModel):
    """Another model, with logits in float16."""

    def __init__(self, model):
        self.rows, self.start, self._model = model.rows, model.start, model

    def step(self, tokens, state):
        logits, alignments, state = self._model.step(tokens, state)
        return tf.cast(logits, tf.float16), alignments, state


def test_half_precision_logits_are_summed_in_float32():
    # In float16 a sum of 60 steps of ln 0.05 and more would lose digits.
    model = random_automaton(9, batch=2, letters=3, sharpness=4.0, layers=60)
    given = model.given()
    given = given._replace(model=HalfPrecision(given.model))
    model.logits = model.logits.astype("float16").astype("float32")
    for search in (
        GreedySearch(max_length=60, min_length=60),
        BeamSearch(2, max_length=60, min_length=60),
    ):
        found = search(given)
        assert found.scores.dtype == tf.float32
        for row in range(2):
            tokens = found.tokens.numpy()[row, 0, : found.lengths[row, 0]]
            logp = reference.log_probability(model.row(row), tuple(tokens))
            np.testing.assert_allclose(found.scores[row, 0], logp, rtol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_beams": 0}, "`num_beams` must be at least 1.*num_beams=0"),
        (
            {"num_beams": 2, "num_hypotheses": 3},
            "`num_hypotheses` must be between 1 and `num_beams`.*, num_beams=2",
        ),
        ({"num_hypotheses": 0}, "`num_hypotheses` must be between 1"),
        ({"length_penalty": -1.0}, "`length_penalty` must be at least 0"),
        ({"penalty": "none"}, '"gnmt" or "power".*penalty=\'none\''),
        ({"early_stopping": 1}, 'True, False or "never".*=1'),
        ({"num_beams": 2.5}, "`num_beams` must be an integer.*2.5"),
        ({"max_length": 9.0}, "`max_length` must be an integer.*9.0"),
        ({"length_penalty": float("nan")}, "`length_penalty` must be a finite"),
        ({"early_stopping": "always"}, "True, False or \"never\".*'always'"),
        ({"max_length": 0}, "`max_length` counts tokens.*max_length=0"),
        ({"max_length": 3, "min_length": 4}, "`min_length` must be between 1"),
        ({"min_length": 0}, "`min_length` must be between 1"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_would_do(
    options, message
):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**options)
    if set(options) <= {"max_length", "min_length"}:
        with pytest.raises(ValueError, match=message):
            GreedySearch(**options)
