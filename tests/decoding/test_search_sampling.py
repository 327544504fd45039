"""Sampling: its random numbers, its distribution, its filters."""

import numpy as np
import pytest
import tensorflow as tf
from support import reference_search as reference
from support.reference_search import numbers_of
from support.reference_search import threefry
from support.spelling import as_reference
from support.spelling import assert_found
from support.spelling import assert_same
from support.spelling import babbler
from support.spelling import random_automaton
from support.spelling import spell
from support.spelling import speller

from keras_attn import Sampling
from keras_attn.decoding import threefry as generator
from keras_attn.decoding.draws import draw


def seeds(number, start=0):
    return tf.range(start, start + number)


def sample(search, model, seed):
    """Samples from one model, with a row for each seed."""
    rows = [0] * len(seed)
    return search(model.given(rows)._replace(seed=tf.constant(seed)))


# Known answers that come with the authors' Random123, key and counter first.
@pytest.mark.parametrize(
    "words",
    [
        "00000000 00000000 00000000 00000000 6b200159 99ba4efe",
        "ffffffff ffffffff ffffffff ffffffff 1cb996fc bb002be7",
        "13198a2e 03707344 243f6a88 85a308d3 c4923a9c 483df7a0",
    ],
)
def test_threefry_gives_the_known_answers(words):
    words = [int(word, 16) for word in words.split()]
    key, counter, expected = words[:2], words[2:4], tuple(words[4:])
    assert threefry(key, counter) == expected
    tensors = [tf.constant(word, tf.uint32) for word in words]
    found = generator.threefry(tensors[:2], tensors[2:4])
    assert tuple(int(x) for x in found) == expected


def test_numbers_are_made_of_seed_hypothesis_and_time_alone():
    seed = tf.constant([3, -4, 2**31 - 1, 3])
    found = generator.uniform(seed, 3, 5)
    assert found.shape == (5, 4, 3)
    for row in range(4):
        expected = np.transpose(numbers_of(int(seed[row]), 3, 5))
        np.testing.assert_array_equal(found[:, row], expected)
    longer = generator.uniform(seed[1:2], 7, 9)
    np.testing.assert_array_equal(longer[:5, :, :3], found[:, 1:2])
    for jit_compile in (False, True):
        graph = tf.function(
            generator.uniform, jit_compile=jit_compile, autograph=False
        )
        np.testing.assert_array_equal(graph(seed, 3, 5), found)


def test_numbers_of_successive_seeds_are_uniform_and_unrelated():
    numbers = generator.uniform(seeds(4000), 2, 2).numpy().reshape(2, 4000, 2)
    numbers = numbers.transpose(0, 2, 1).reshape(4, 4000)
    assert numbers.min() >= 0 and numbers.max() < 1
    for own in numbers:
        counts, _ = np.histogram(own, 20, (0, 1))
        assert chi_square(counts, np.full(20, 200.0)) < 43.8  # 99.9%, 19
    correlations = np.corrcoef(numbers) - np.eye(4)
    assert np.abs(correlations).max() < 0.06
    after = np.corrcoef(numbers[0, 1:], numbers[0, :-1])[0, 1]
    assert abs(after) < 0.06


def chi_square(counts, expected):
    return np.sum((counts - expected) ** 2 / expected)


@pytest.mark.parametrize(
    "options, chances",
    [
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"temperature": 0.5}, [0.25, 0.09, 0.0225, 0.0025]),
        ({"top_k": 2}, [0.5, 0.3, 0, 0]),
        ({"top_k": 9}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_p": 0.79}, [0.5, 0.3, 0, 0]),
        ({"top_p": 0.81}, [0.5, 0.3, 0.15, 0]),
        ({"top_p": 0.001}, [1, 0, 0, 0]),
        # At temperature 2 the first two have .5 / (.5 + .387 + .274) and so
        # on, .63 together; of the nucleus' share, .51, one is too little.
        ({"temperature": 2.0, "top_k": 3, "top_p": 0.6}, [0.707, 0.548, 0, 0]),
    ],
    ids=str,
)
def test_letters_come_as_often_as_their_probabilities_say(options, chances):
    model = speller({"a": 0.15, "b": 0.5, "c": 0.05, "d": 0.3})
    search = Sampling(num_hypotheses=4, max_length=2, **options)
    found = sample(search, model, np.arange(2500))
    letters = [x for row in range(2500) for x in spell(found, row)]
    counts = np.array([letters.count(x) for x in "bdac"])
    chances = np.array(chances) / np.sum(chances)
    assert counts.sum() == 10_000
    assert not counts[chances == 0].any()
    possible = chances > 0
    # 99.9% of three degrees of freedom
    assert chi_square(counts[possible], 1e4 * chances[possible]) < 16.3


def test_the_score_is_the_model_s_own_log_probability():
    words = {"ab": 0.5, "ac": 0.2, "db": 0.3}
    search = Sampling(0.7, 5, 0.95, num_hypotheses=9, max_length=5)
    found = sample(search, speller(words), [7])
    scores = [np.log(words[word]) for word in spell(found)]
    np.testing.assert_allclose(found.scores[0], scores, rtol=1e-5)
    assert len(set(scores)) > 1
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("number", [0.0, 0.2499, 0.25, 0.9999999])
def test_a_number_picks_the_first_token_past_it(number):
    logits = tf.math.log([[[0.25, 0.0, 0.5, 0.25, 0.0]]])
    token = draw(logits, tf.constant([[number]]), 1.0, 0, 1.0)
    assert token == [[{0.0: 0, 0.2499: 0, 0.25: 2}.get(number, 3)]]


def test_of_equally_likely_tokens_filters_keep_the_lower_ids():
    logits = tf.zeros([1, 1, 8])
    numbers = tf.constant([[0.9999999]])
    for top_k in (3, tf.constant([3])):
        assert draw(logits, numbers, 1.0, top_k, 1.0) == [[2]]
    assert draw(logits, numbers, 1.0, 0, 0.3) == [[2]]
    assert draw(logits, numbers, 1.0, 5, 0.5) == [[2]]


def test_the_nucleus_is_a_share_of_what_top_k_left():
    # Of 0.5 and 0.3 the first has 0.625, enough for 0.6 though 0.5 is not.
    logits = tf.math.log([[[0.05, 0.3, 0.5, 0.15]]])
    numbers = tf.constant([[0.1]])
    for top_k in (2, tf.constant([2])):
        for top_p in (0.6, tf.constant([0.6])):
            assert draw(logits, numbers, 1.0, top_k, top_p) == [[2]]
            assert draw(logits, numbers, 1.0, top_k, top_p + 0.1) == [[1]]


def test_a_row_s_top_p_of_1_keeps_even_the_last_token():
    # In float32 the shares before the last six add up to more than all do.
    logits = tf.math.log(tf.linspace(1.0, 0.03, 300_000))[None, None]
    numbers = tf.constant([[1 - 2.0**-23]])
    plain = draw(logits, numbers, 1.0, 0, 1.0)
    assert plain > 300_000 - 6
    assert draw(logits, numbers, 1.0, 0, tf.constant([1.0])) == plain
    assert draw(logits, numbers, 1.0, tf.constant([0]), 1.0) == plain


@pytest.mark.parametrize("temperature", [1e-40, 1e-30, 1e30])
def test_no_temperature_makes_what_is_forbidden_possible_or_nan(temperature):
    model = babbler(a=5.0, b=-5.0, end=-80.0, _=90.0)
    search = Sampling(temperature, num_hypotheses=50, max_length=3)
    found = sample(search, model, [1, 2])
    words = [*spell(found, 0), *spell(found, 1)]
    assert not any("_" in word for word in words)
    assert np.all(np.isfinite(found.scores))
    if temperature < 1:
        assert set(words) == {"aaa-"}
    else:  # all three are as likely, so a third has ended at once
        assert 20 < words.count("") < 46


def test_a_hypothesis_stays_when_others_are_drawn_beside_it():
    model = random_automaton(3, letters=4)
    few = sample(Sampling(num_hypotheses=2, max_length=4), model, [11])
    many = sample(Sampling(num_hypotheses=5, max_length=7), model, [11])
    few, many = (
        {tuple(tokens[:4]) for tokens in found.tokens.numpy()[0]}
        for found in (few, many)
    )
    assert len(few) == 2 and few <= many


def test_the_same_seed_draws_the_same_wherever_the_row_stands():
    model = random_automaton(4, letters=4)
    search = Sampling(top_p=0.9, num_hypotheses=3, max_length=7, min_length=4)
    together = sample(search, model, [5, 6, 5, 7])
    for row, seed in enumerate([5, 6, 5, 7]):
        alone = sample(search, model, [seed])
        assert_same(
            alone,
            tf.nest.map_structure(lambda x, row=row: x[row, None], together),
        )
    assert spell(together, 0) != spell(together, 1)


def test_a_vocabulary_of_thousands_is_drawn_from_as_the_reference_does():
    model = random_automaton(5, letters=3000, sharpness=3.0, layers=3)
    for options in ({}, {"top_k": 50, "top_p": 0.9}, {"no_repeat_ngram": 1}):
        search = Sampling(num_hypotheses=3, max_length=3, **options)
        found = sample(search, model, [9])
        expected = reference.sampling(
            model.row(0), as_reference(search), numbers_of(9, 3, 3)
        )
        assert_found(found, 0, expected, model)


def test_of_a_large_vocabulary_only_as_much_is_sorted_as_is_kept():
    # The nucleus of 0.9 ends after 3 tokens in one row, 2700 in the other.
    narrow, wide = np.zeros([2, 3000], "float32")
    narrow[[7, 2900, 1500]] = 12.0
    numbers = tf.constant([[0.5], [0.5]])
    top_p = tf.constant([0.9, 0.9])
    for rows, expected in (
        ([narrow, narrow], [[1500], [1500]]),
        ([narrow, wide], [[1500], [1350]]),
    ):
        logits = tf.constant(np.stack(rows))[:, None]
        for top_k in (0, tf.constant([0, 0])):
            for share in (0.9, top_p):
                found = draw(logits, numbers, 1.0, top_k, share)
                np.testing.assert_array_equal(found, expected)
        for size in (3, 127, 128, 129, 2999):
            known = draw(logits, numbers, 1.0, size, 0.9)
            asked = draw(logits, numbers, 1.0, tf.fill([2], size), top_p)
            np.testing.assert_array_equal(known, asked)


def test_without_a_seed_there_is_no_sample():
    with pytest.raises(ValueError, match="needs a seed for each row.*=None"):
        Sampling()(speller({"a": 1.0}).given())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": 0.0}, "above 0.*temperature=0.0.*`GreedySearch`"),
        ({"temperature": float("nan")}, "`temperature` must be a finite"),
        ({"temperature": True}, "`temperature` must be a finite number.*True"),
        ({"top_k": -1}, "`top_k` is a number of tokens.*=-1. 0 keeps all"),
        ({"top_k": 2.5}, "`top_k` must be an integer"),
        ({"top_p": 0.0}, "above 0 and at most 1.*top_p=0.0"),
        ({"top_p": 1.5}, "above 0 and at most 1.*top_p=1.5"),
        ({"num_hypotheses": 0}, "`num_hypotheses` is the number of draws.*=0"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_would_do(
    options, message
):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)
