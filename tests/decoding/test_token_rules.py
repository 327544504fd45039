"""Rules that force a token or forbid sequences of them."""

import numpy as np
import pytest
import tensorflow as tf
from support.spelling import random_automaton

from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn.decoding import ForbiddenSequences
from keras_attn.decoding import ForcedToken
from keras_attn.decoding import PairedTimestamps
from keras_attn.decoding import Written


def test_a_sequence_may_begin_in_the_start_tokens():
    # After the start 4 and the token 5, 6 is forbidden; after 5 alone not.
    rule = ForbiddenSequences([[4, 5, 6], [5, 5, 1]], begun=(4,))
    logits = tf.zeros([1, 2, 8])
    tokens = tf.constant([[[5, 0, 0], [3, 0, 0]]])
    found = rule.apply(logits, Written(tf.constant(1), tokens), None)
    forbidden = np.argwhere(found.numpy() < -1e8)
    assert forbidden.tolist() == [[0, 0, 6]]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ForcedToken(-1, 7), "place must be an integer"),
        (lambda: ForcedToken(0.5, 7), "place must be an integer"),
        (lambda: ForcedToken(0, True), "token must be an integer"),
        (lambda: ForbiddenSequences([4, 5]), "a list of sequences"),
        (lambda: ForbiddenSequences("ab"), "a list of sequences"),
        (lambda: ForbiddenSequences([[1.7]]), "an id must be an integer"),
        (lambda: ForbiddenSequences([[]]), "an id at least"),
        (lambda: ForbiddenSequences(first=5), "a list of sequences"),
    ],
)
def test_rules_take_ids(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "other",
    [
        ForcedToken(2, 8),
        ForbiddenSequences([[5], [7]]),
    ],
)
def test_rules_that_leave_no_token_are_refused(other):
    for rules in ([ForcedToken(2, 7), other], [other, ForcedToken(2, 7)]):
        with pytest.raises(ValueError, match="a token at each place. Received"):
            GreedySearch(rules=rules)


def test_a_first_token_is_not_both_forced_and_forbidden():
    never = ForbiddenSequences([[7, 8]], first=[7])
    with pytest.raises(ValueError, match="a token at each place. Received"):
        GreedySearch(rules=[ForcedToken(0, 7), never])
    same = [ForcedToken(1, 7), ForcedToken(1, 7), ForcedToken(2, 8), never]
    assert len(GreedySearch(rules=same).rules) == 4


@pytest.mark.parametrize(
    "rule",
    [
        ForcedToken(0, 9999),
        ForbiddenSequences([[5, 9999]]),
        ForbiddenSequences([[9999, 5]]),
        ForbiddenSequences([[9999]]),
        PairedTimestamps(9999, 2),
    ],
)
def test_rules_name_ids_of_the_vocabulary(rule):
    search = GreedySearch(max_length=3, rules=[rule])
    with pytest.raises(ValueError, match="must name ids of the vocabulary"):
        search(random_automaton(5).given())


@pytest.mark.parametrize(
    "make", [GreedySearch, lambda **x: BeamSearch(3, **x)], ids=["one", "beams"]
)
@pytest.mark.parametrize("prefix", [None, [[9, 3], [0, 0], [4, 0]]])
def test_many_forbidden_tokens_are_as_a_few(make, prefix, monkeypatch):
    model = random_automaton(5, batch=3, letters=20)
    given = model.given()
    if prefix is not None:
        given = given._replace(prefix=tf.constant(prefix))
    never = [5, 7, *range(9, 19)]
    rule = ForbiddenSequences([[x] for x in never], first=[4])
    search = make(max_length=5, rules=[rule])
    found = search(given)
    monkeypatch.setattr("keras_attn.decoding.rules._MANY", 100)
    expected = search(given)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_array_equal(found.finished, expected.finished)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    first = 0 if prefix is None else 1  # 9 is forced once
    assert not {*never} & {*found.tokens.numpy()[:, :, first:].ravel()}
    assert 4 not in found.tokens.numpy()[1, :, 0]
