"""Rules, coverage and diversity, shown on models that spell words."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from support import reference_search as reference
from support.spelling import LETTERS
from support.spelling import as_reference
from support.spelling import assert_found
from support.spelling import babbler
from support.spelling import random_automaton
from support.spelling import spell
from support.spelling import speller
from support.spelling import tokens_of

from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn import Sampling

WORDS = {"cat": 0.4, "car": 0.3, "dog": 0.2, "do": 0.1}


def every_search(**options):
    """Returns one of each kind; top_k=1 makes the sampler greedy."""
    return (
        GreedySearch(**options),
        BeamSearch(1, **options),
        Sampling(top_k=1, **options),
    )


def spelled(search, model, row=0, **inputs):
    if isinstance(search, Sampling):
        inputs["seed"] = np.zeros(len(model.logits), "int32")
    return spell(search(model.given(**inputs)), row)


# Lengths that depend on the source


def test_the_maximum_may_depend_on_the_length_of_the_source():
    model = speller(*[{"abcdefgh": 1.0}] * 3)
    # 0.5 * 2 + 1 = 2, 0.5 * 5 + 1 = 3.5, 0.5 * 40 + 1 = 21
    for search in every_search(max_length=6, max_per_source=(0.5, 1)):
        for row, word in enumerate(["ab-", "abc-", "abcdef-"]):
            lengths = np.array([2, 5, 40])
            assert spelled(search, model, row, source_lengths=lengths) == [word]


def test_at_least_one_token_comes_whatever_the_source():
    model = speller({"abc": 1.0})
    for search in every_search(max_length=6, max_per_source=(1, -9)):
        assert spelled(search, model, source_lengths=np.array([2])) == ["a-"]


def test_the_minimum_may_depend_on_the_length_of_the_source():
    words = {"a": 0.6, "ab": 0.3, "abc": 0.1}
    model = speller(words, words)
    for search in every_search(max_length=6, min_per_source=(1, 1)):
        for row, word in enumerate(["a", "abc"]):
            lengths = np.array([1, 3])
            assert spelled(search, model, row, source_lengths=lengths) == [word]


def test_a_minimum_beyond_the_row_s_maximum_is_as_long_as_may_be():
    model = speller({"a": 0.6, "ab": 0.3, "abc": 0.1})
    for options in (
        {"min_length": 5, "max_per_source": (1, 0)},
        {"max_per_source": (1, 0), "min_per_source": (2, 0)},
    ):
        for search in every_search(max_length=6, **options):
            found = spelled(search, model, source_lengths=np.array([3]))
            assert found == ["ab"]


def test_a_row_cut_early_stays_while_longer_rows_go_on():
    words = {"abcdef": 0.6, "bcdefa": 0.4}
    search = BeamSearch(2, 2, max_length=9, max_per_source=(1, 0))
    found = search(speller(words, words).given(source_lengths=np.array([2, 9])))
    assert spell(found, 0) == ["ab-", "bc-"]
    assert spell(found, 1) == ["abcdef", "bcdefa"]
    np.testing.assert_allclose(found.scores[0], np.log([0.6, 0.4]), rtol=1e-5)


def test_never_waits_no_longer_than_the_row_s_own_maximum():
    # ln 0.14 / 12 would beat ln 0.44 / 2, but at length 4 it is ln 0.14 / 4.
    words = {"a": 0.44, "ab": 0.42, "eeeeeee": 0.14}
    options = {"length_penalty": 1.0, "penalty": "power", "max_length": 12}
    search = BeamSearch(
        2, early_stopping="never", max_per_source=(1, 0), **options
    )
    model = speller(words)
    assert spell(search(model.given(source_lengths=np.array([12])))) == [
        "eeeeeee"
    ]
    model.steps = 0
    found = search(model.given(source_lengths=np.array([4])))
    assert spell(found) == ["ab"] and model.steps == 3


@pytest.mark.parametrize("name", ["max_per_source", "min_per_source"])
def test_lengths_of_sources_that_nobody_gave_are_missed(name):
    for search in every_search(**{name: (1, 0)}):
        with pytest.raises(ValueError, match=f"`{name}` needs the lengths of"):
            spelled(search, speller(WORDS))


# Prefixes


def test_every_hypothesis_begins_with_the_prefix_of_its_row():
    model = speller(WORDS, WORDS, WORDS)
    prefix = tokens_of("do", "c", "")
    for search in every_search(max_length=8):
        words = [spelled(search, model, row, prefix=prefix) for row in range(3)]
        assert words == [["dog"], ["cat"], ["cat"]]
    search = BeamSearch(4, 4, max_length=8)
    found = search(model.given(prefix=prefix))
    assert spell(found, 0) == ["dog", "do", "-", "-"]
    assert spell(found, 1) == ["cat", "car", "-", "-"]
    assert spell(found, 2) == ["cat", "car", "dog", "do"]
    # Forced tokens count with their log-probability.
    np.testing.assert_allclose(
        np.exp(found.scores),
        [[0.2, 0.1, 0, 0], [0.4, 0.3, 0, 0], [0.4, 0.3, 0.2, 0.1]],
        rtol=1e-5,
    )


def test_rules_do_not_apply_to_what_is_forced_but_see_it():
    # The repeated "a" and the forbidden "^" are forced; then "a" is banned.
    model = babbler(**{"a": 3.0, "b": 1.0, "end": 0.0, "^": 0.0})
    prefix = tokens_of("aa^a")
    for search in every_search(
        max_length=7, no_repeat_ngram=1, repetition_penalty=5.0
    ):
        given = model.given(prefix=prefix)._replace(
            seed=tf.zeros([1], tf.int32)
        )
        found = search(given)
        assert spell(found) == ["aa^ab"]
        logits = np.array([3.0, 1.0, 0.0, 0.0])
        forced = 2 * 3 + 0 + 3 - 4 * np.log(np.exp(logits).sum())
        # Now "a" and "^" are penalised, and next "b" too, but never the end.
        then = 1 - np.log(np.exp([0.6, 1.0, 0.0, 0.0]).sum())
        last = 0 - np.log(np.exp([0.6, 0.2, 0.0, 0.0]).sum())
        np.testing.assert_allclose(
            found.scores, [[forced + then + last]], rtol=1e-5
        )


def test_an_end_token_in_the_prefix_ends_the_hypothesis_there():
    model = speller(WORDS, WORDS)
    prefix = tokens_of("do.cat", "ca")
    for search in every_search(max_length=8, min_length=4):
        assert spelled(search, model, 0, prefix=prefix) == ["do"]
        assert spelled(search, model, 1, prefix=prefix) == ["cat"]
    model = speller(WORDS)
    search = BeamSearch(3, 3, max_length=50)
    assert spell(search(model.given(prefix=prefix[:1]))) == ["do", "-", "-"]
    assert model.steps == 3  # all tokens are forbidden


def test_a_prefix_longer_than_the_maximum_is_cut_and_flagged():
    model = speller(WORDS, WORDS)
    prefix = tokens_of("dog", "")
    for search in every_search(max_length=2):
        assert spelled(search, model, 0, prefix=prefix) == ["do-"]
        assert spelled(search, model, 1, prefix=prefix) == ["ca-"]


def test_a_prefix_that_the_model_rules_out_is_cut_before():
    model = speller(WORDS, WORDS)
    prefix = tokens_of("cot", "to")
    for search in every_search(max_length=6):
        assert spelled(search, model, 0, prefix=prefix) == ["c-"]
        assert spelled(search, model, 1, prefix=prefix) == ["-"]


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "eager"])
def test_a_prefix_without_columns_forces_nothing(graph):
    model = speller(WORDS)
    search = GreedySearch(max_length=6)

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([1, None], tf.int32)]
    )
    def run(prefix):
        return search(model.given()._replace(prefix=prefix))

    nothing = tf.zeros([1, 0], tf.int32)
    if graph:
        assert spell(run(nothing)) == ["cat"]
        assert spell(run(tf.constant(tokens_of("do")))) == ["dog"]
    else:
        assert spelled(search, model, prefix=nothing) == ["cat"]


# Repetition


@pytest.mark.parametrize(
    "n, word",
    [(0, "aaaaaaaa-"), (1, "abc"), (2, "aabaca"), (3, "aaabaaca-")],
)
def test_no_ngram_comes_twice(n, word):
    model = babbler(a=3.0, b=2.0, c=1.0, end=-5.0)
    for search in every_search(max_length=8, no_repeat_ngram=n):
        found = spelled(search, model)
        assert found == [word]


def test_a_longer_ngram_than_the_output_bans_nothing():
    model = babbler(a=3.0, b=2.0, end=-5.0)
    for search in every_search(max_length=3, no_repeat_ngram=4):
        assert spelled(search, model) == ["aaa-"]


def test_a_hypothesis_with_nothing_left_to_say_is_cut():
    # No letter may repeat, and the end token is forbidden before length 6.
    model = babbler(a=3.0, b=2.0, c=1.0, end=5.0)
    for search in every_search(max_length=9, min_length=6, no_repeat_ngram=1):
        assert spelled(search, model) == ["abc-"]
    # All orders of three letters are cut; the likeliest are returned.
    found = BeamSearch(9, 7, max_length=9, min_length=6, no_repeat_ngram=1)(
        model.given()
    )
    orders = {"".join(order) + "-" for order in itertools.permutations("abc")}
    assert {*spell(found)} == orders | {"-"}
    assert np.all(np.isfinite(found.scores[0, :6]))
    assert found.scores[0, 6] == -np.inf


def test_a_beam_with_nothing_left_gives_way_to_one_that_goes_on():
    # After "a" only the end is possible, too early.
    model = speller({"a": 0.6, "bcd": 0.4})
    found = BeamSearch(2, 2, max_length=6, min_length=3)(model.given())
    assert spell(found) == ["bcd", "-"]
    for search in every_search(max_length=6, min_length=3):
        assert spelled(search, model) == ["a-"]


def test_with_nothing_to_begin_with_there_is_no_hypothesis():
    model = babbler(end=0.0)
    for search in (
        *every_search(max_length=4, min_length=2),
        BeamSearch(
            2, 2, 1.0, "power", max_length=4, min_length=2, coverage_penalty=1.0
        ),
    ):
        given = model.given()._replace(seed=tf.zeros([1], tf.int32))
        found = search(given)
        assert {*spell(found)} == {"-"}
        assert np.all(found.scores == -np.inf)
        assert not np.any(np.isnan(found.alignments))


def test_a_model_that_wants_only_what_is_forbidden_finds_nothing():
    model = babbler(_=0.0)
    for search in every_search(max_length=4):
        found = search(model.given()._replace(seed=tf.zeros([1], tf.int32)))
        assert spell(found) == ["-"]
        assert np.all(found.scores == -np.inf)


def test_the_repetition_penalty_divides_positive_and_multiplies_negative():
    # a: 2, then 1; b: -0.5, then -1. Softmaxes over a, b and the end.
    model = babbler(a=2.0, b=-0.5, end=-9.0)
    prefix = tokens_of("ab")
    before = np.log(np.exp([2.0, -0.5, -9.0]).sum())
    after_a = np.log(np.exp([1.0, -0.5, -9.0]).sum())
    after_b = np.log(np.exp([1.0, -1.0, -9.0]).sum())
    for search in every_search(max_length=3, repetition_penalty=2.0):
        given = model.given(prefix=prefix)._replace(
            seed=tf.zeros([1], tf.int32)
        )
        np.testing.assert_allclose(
            search(given).scores,
            [[2 - before - 0.5 - before + 1 - after_b]],
            rtol=1e-5,
        )
        given = model.given(prefix=prefix[:, :1])
        given = given._replace(seed=tf.zeros([1], tf.int32))
        np.testing.assert_allclose(
            search(given).scores, [[2 - before + 2 * (1 - after_a)]], rtol=1e-5
        )


def test_a_repetition_penalty_makes_room_for_another_letter():
    model = babbler(a=2.0, b=1.5, end=-9.0)
    assert spelled(GreedySearch(3), model) == ["aaa-"]
    assert spelled(GreedySearch(3, repetition_penalty=2.0), model) == ["aba-"]


# Coverage


def looking(*words):
    """Returns a model of the words, with the given attention of each."""
    model = speller({word: p for word, p, _ in words})
    model.attention = np.zeros([len(model.attention), 3], "float32")
    for word, _, places in words:
        path = model.path([LETTERS[x] for x in word])
        model.attention[path[1:]] = places
    return model


def test_the_coverage_penalty_is_the_paper_s():
    # At the start both look nowhere; "ab" sums to (1, 2, 0.5), cut at 1,
    # "cd" to (2, 1, 0), where 0 counts as 1e-6.
    model = looking(("ab", 0.4, [0.5, 1, 0.25]), ("cd", 0.6, [1, 0.5, 0]))
    for beta, order in ((0.0, ["cd", "ab"]), (0.3, ["ab", "cd"])):
        search = BeamSearch(2, 2, max_length=5, coverage_penalty=beta)
        found = search(model.given())
        assert spell(found) == order
        scores = {
            "ab": np.log(0.4) + beta * np.log(0.5),
            "cd": np.log(0.6) + beta * np.log(1e-6),
        }
        np.testing.assert_allclose(
            found.scores[0], [scores[word] for word in order], rtol=1e-5
        )


def test_coverage_is_asked_of_real_source_positions_alone():
    model = looking(("ab", 0.4, [0.5, 1, 0.25]), ("cd", 0.6, [1, 0.5, 0]))
    search = BeamSearch(2, 2, max_length=5, coverage_penalty=0.3)
    found = search(model.given(source_mask=np.array([[True, True, False]])))
    assert spell(found) == ["cd", "ab"]
    np.testing.assert_allclose(found.scores, np.log([[0.6, 0.4]]), rtol=1e-5)


def test_what_was_cut_has_its_coverage_penalty_too():
    model = looking(("abab", 0.4, [0.5, 1, 0.25]), ("cdcd", 0.6, [1, 0.5, 0]))
    search = BeamSearch(2, 2, max_length=3, coverage_penalty=0.3)
    found = search(model.given())
    assert spell(found) == ["aba-", "cdc-"]
    scores = [np.log(0.4 * 0.5**0.3), np.log(0.6) + 0.3 * np.log(1e-6)]
    np.testing.assert_allclose(found.scores[0], scores, rtol=1e-5)


# Diverse groups


def test_groups_with_a_high_price_find_different_first_letters():
    words = {"ca": 0.3, "cb": 0.25, "da": 0.2, "db": 0.15, "ea": 0.1}
    model = speller(words)
    plain = BeamSearch(4, 4, max_length=5)
    assert spell(plain(model.given())) == ["ca", "cb", "da", "db"]
    search = BeamSearch(2, 2, max_length=5, groups=2, diversity=5.0)
    found = search(model.given())
    # Neither "c" nor, next, "a" repeats. The cost is not in the score.
    assert spell(found) == ["ca", "db"]
    np.testing.assert_allclose(found.scores, np.log([[0.3, 0.15]]), rtol=1e-5)


def test_a_price_too_low_to_change_a_choice_changes_nothing():
    # ln 0.55 - ln 0.2 is 1.01, the difference between "c" and "d".
    model = speller({"ca": 0.55, "da": 0.2, "ea": 0.25})
    for diversity, words in ((0.7, ["ca", "ca"]), (0.9, ["ca", "ea"])):
        search = BeamSearch(2, 2, groups=2, diversity=diversity, max_length=5)
        assert spell(search(model.given())) == words


def test_a_third_group_pays_for_both_before_it():
    model = speller({"ca": 0.5, "da": 0.3, "ea": 0.2})
    search = BeamSearch(3, 3, groups=3, diversity=0.6, max_length=5)
    # c: ln 0.5; d: ln 0.3 beats ln 0.5 - 0.6; e: ln 0.2 beats ln 0.5 - 0.6 ..
    assert np.log(0.5) - 0.6 > np.log(0.2) and np.log(0.5) - 0.6 < np.log(0.3)
    assert spell(search(model.given())) == ["ca", "ca", "da"]


def test_scores_of_groups_can_be_recomputed_from_the_model():
    model = random_automaton(12, batch=3, letters=4)
    search = BeamSearch(6, 6, 0.7, max_length=6, groups=3, diversity=1.5)
    found = search(model.given())
    different = set()
    for row in range(3):
        for n in range(6):
            length = int(found.lengths[row, n])
            tokens = tuple(found.tokens.numpy()[row, n, :length])
            logp = reference.log_probability(model.row(row), tokens)
            np.testing.assert_allclose(
                found.scores[row, n],
                search.normalize(logp, length),
                rtol=1e-5,
            )
            different.add((row, tokens))
    assert len(different) > 3 * 2  # as many as one group finds


# Brute force


@pytest.mark.parametrize(
    "options",
    [
        {"no_repeat_ngram": 1},
        {"no_repeat_ngram": 2, "min_length": 3},
        {"repetition_penalty": 1.8, "length_penalty": 1.0},
        {"coverage_penalty": 0.4, "length_penalty": 0.6},
        {"min_per_source": (1, 0), "max_per_source": (1, 2)},
    ],
    ids=str,
)
def test_a_beam_wide_enough_is_exhaustive_under_every_rule(options):
    model = random_automaton(21, batch=4)
    search = BeamSearch(24, 15, early_stopping="never", max_length=4, **options)
    inputs = {
        "source_lengths": np.array([1, 2, 3, 1]),
        "prefix": tokens_of("", "a", "b", "ab"),
    }
    found = search(model.given(**inputs))
    for row in range(4):
        expected = reference.every_hypothesis(
            model.row(row, **inputs), as_reference(search)
        )
        assert int(np.sum(found.finished[row])) == len(expected) > 0
        ended = [x[:, : len(expected)] for x in found[:5]]
        assert_found(type(found)(*ended), row, expected, model)


# Refusals


@pytest.mark.parametrize("kind", [BeamSearch, GreedySearch, Sampling])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_per_source": 2}, "`max_per_source` must be a pair.*=2. For a l"),
        ({"min_per_source": (0, 5)}, "a > 0.*=\\(0, 5\\).*use `min_length`"),
        ({"max_per_source": (1, 2, 3)}, "must be a pair"),
        ({"max_per_source": (1, float("inf"))}, "must be a pair"),
        ({"no_repeat_ngram": -1}, "`no_repeat_ngram` is the length.*=-1"),
        ({"no_repeat_ngram": 2.0}, "`no_repeat_ngram` must be an integer"),
        ({"repetition_penalty": 0.9}, "must be at least 1.*=0.9. 1.0 changes"),
        ({"repetition_penalty": None}, "must be a finite number.*=None"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_what_would_do(
    kind, options, message
):
    with pytest.raises(ValueError, match=message):
        kind(**options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"coverage_penalty": -0.1}, "`coverage_penalty` must be at least 0"),
        ({"coverage_penalty": float("nan")}, "must be a finite number.*=nan"),
        (
            {"groups": 2},
            "`groups` must divide `num_beams`.*groups=2, num_beams=5",
        ),
        ({"groups": 0}, "`groups` must divide `num_beams`"),
        ({"groups": 5}, "above 0 with several groups.*groups=5, diversity=0.0"),
        ({"diversity": 0.5}, "and 0 with one.*groups=1, diversity=0.5"),
        ({"groups": 5, "diversity": -1.0}, "above 0 with several"),
        ({"groups": 2.5}, "`groups` must be an integer"),
    ],
)
def test_an_option_of_the_beam_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**options)


def test_pairs_may_come_from_json_as_lists():
    search = GreedySearch(max_per_source=[1.5, 3])
    assert search == GreedySearch(max_per_source=(1.5, 3))
    assert hash(search) == hash(GreedySearch(max_per_source=(1.5, 3)))
