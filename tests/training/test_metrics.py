import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_attn.training.metrics import edit_distance
from keras_attn.training.metrics import error_rates

tokens = st.lists(st.sampled_from(["AH", "K", "T"]), max_size=5)


def edits_by_definition(a, b):
    if not a or not b:
        return len(a) + len(b)
    return min(
        edits_by_definition(a[1:], b) + 1,
        edits_by_definition(a, b[1:]) + 1,
        edits_by_definition(a[1:], b[1:]) + (a[0] != b[0]),
    )


@given(tokens, tokens)
def test_the_edit_distance_is_the_fewest_edits(a, b):
    assert edit_distance(a, b) == edits_by_definition(a, b)


def test_tokens_are_compared_whole():
    assert edit_distance(["AH", "T"], ["AE", "T"]) == 1
    assert edit_distance(["A", "H"], ["AH"]) == 2
    assert edit_distance("kitten", "sitting") == 3


def test_the_nearest_reference_counts_and_lends_its_length():
    rates = error_rates(
        [["K", "AE", "T"], ["D", "AO", "G", "Z"]],
        [
            [["K", "AH", "T", "S"], ["K", "AE", "T"]],  # the second: 0 of 3
            [["D", "AO", "G"], ["D", "AA", "G"]],  # the first: 1 of 3
        ],
    )
    assert rates.sequence == 1 / 2
    assert rates.token == 1 / 6


def test_of_equally_near_references_the_first_lends_its_length():
    rates = error_rates([["K"]], [[["K", "T"], []]])
    assert rates == (1.0, 1 / 2)
    rates = error_rates([["K"]], [[["T"], ["K", "T"]]])
    assert rates == (1.0, 1 / 1)


def test_a_long_hypothesis_makes_more_errors_than_there_are_tokens():
    assert error_rates([["A", "B", "C"]], [[["A"]]]) == (1.0, 2.0)


def test_empty_references():
    assert error_rates([[]], [[[]]]) == (0.0, 0.0)
    assert error_rates([["A"]], [[[]]]) == (1.0, float("inf"))


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_one_text_in_two_encodings_is_no_error():
    for a, b in ((COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)):
        assert error_rates([a], [[b]]) == (0.0, 0.0)
        assert error_rates([[a, "x"]], [[[b, "x"]]]) == (0.0, 0.0)
    # Lengths are counted after normalization: four characters, not five.
    assert error_rates(["cafs"], [[DECOMPOSED]]) == (1.0, 1 / 4)
    assert error_rates([(1, 2)], [[(1, 3)]]) == (1.0, 1 / 2)  # no strings


def test_what_a_normalization_takes_away_is_an_error_unless_asked_for():
    assert error_rates([["kh"]], [[["k\u02b0"]]]) == (1.0, 1.0)
    rates = error_rates([["kh"]], [[["k\u02b0"]]], normalization="NFKC")
    assert rates == (0.0, 0.0)


def test_code_points_are_compared_as_they_are_where_asked_for():
    rates = error_rates([COMPOSED], [[DECOMPOSED]], normalization=None)
    assert rates == (1.0, 2 / 5)
    assert edit_distance(COMPOSED, DECOMPOSED) == 2


@pytest.mark.parametrize("bad", ["nfc", "NFD", False])
def test_a_normalization_that_there_is_not_is_refused(bad):
    with pytest.raises(ValueError, match='"NFC", "NFKC" or None.*Received'):
        error_rates(["a"], [["a"]], normalization=bad)


def test_strings_are_scored_by_character():
    assert error_rates(["kitten"], [["sitting"]]) == (1.0, 3 / 7)


@pytest.mark.parametrize(
    "hypotheses, references, message",
    [
        ([["K"]], [], "1 hypotheses and 0 references"),
        ([], [], "at least one row"),
        ([["K"]], [[]], "at least one reference"),
        ([["K"]], ["K"], "at least one reference"),
        ([["K", "T"]], [["K", "T"]], r"in a list: \[reference\]"),
        (["K T"], [[["K", "T"]]], "Split the strings"),
    ],
)
def test_rows_that_cannot_be_scored_are_refused(
    hypotheses, references, message
):
    with pytest.raises(ValueError, match=message):
        error_rates(hypotheses, references)


def test_without_rapidfuzz_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(ImportError, match="extra `metrics`"):
        edit_distance(["K"], ["T"])
