"""Prefixes, seeds and options of a request, and forbidden tokens."""

import numpy as np
import pytest
import tensorflow as tf
from support import toys as toy_models
from support.comparisons import assert_same

import keras_attn
from keras_attn.text.special_tokens import END
from keras_attn.text.special_tokens import PAD
from keras_attn.text.special_tokens import START
from keras_attn.text.special_tokens import UNKNOWN

LINES = toy_models.LINES
PREFIXES = ["AA", None, "K D", "", "ñ", "B B B", None, "EH"]


def with_search(toy, search, **options):
    return keras_attn.Translator(
        toy.models, toy.source_text, toy.target_text, search, **options
    )


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "greedy", "ensemble", "compiled"])
def test_a_text_begins_with_its_prefix(name, toys):
    toy = toys[name]
    lines, prefixes = LINES, PREFIXES
    if name == "compiled":  # each shape would be compiled
        lines, prefixes = LINES[:2], PREFIXES[:2]
    found = toy(lines, prefixes=prefixes)
    free = toy(lines)
    for row, other, prefix in zip(found, free, prefixes, strict=True):
        if not prefix:
            assert_same(row, other)
        for hypothesis in (row, *row.alternatives):
            words = (prefix or "").split()
            assert hypothesis.tokens[: len(words)] == words
    assert found.text != free.text


def test_the_batch_changes_nothing_beside_prefixes(toys):
    toy = toys["pre"]
    expected = toy(LINES, prefixes=PREFIXES)
    found = toy(LINES, batch_size=3, prefixes=PREFIXES)
    for row, other in zip(found, expected, strict=True):
        assert_same(row, other)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize(
    "prefixes, message",
    [
        ("AA", "a list with a string, or None, for each source"),
        (["AA"], r"for 2 source\(s\)"),
        (["AA Q", None], "tokens that the target text knows. Received: 'AA Q'"),
        (["<unk>", None], "tokens that the target text knows"),
        (["B " * 10, None], "10 tokens with max_length=10"),
    ],
)
def test_prefixes_that_cannot_be_are_refused(prefixes, message, toys):
    with pytest.raises(ValueError, match=message):
        toys["greedy"](["a", "b"], prefixes=prefixes)


@pytest.mark.full
def test_a_seed_repeats_and_no_seed_does_not(toys):
    toy = toys["sampling"]
    one, two = toy(LINES, seed=7), toy(LINES, seed=7)
    for row, other in zip(one, two, strict=True):
        assert_same(row, other)
    assert toy(LINES, seed=8).text != one.text
    assert toy(LINES).text != toy(LINES).text


def test_a_row_s_draws_do_not_depend_on_the_batch(toys):
    toy = toys["sampling"]
    expected = toy(LINES, seed=3)
    for row, other in zip(
        toy(LINES, batch_size=3, seed=3), expected, strict=True
    ):
        assert_same(row, other)
    for row, other in zip(toy(LINES[:2], seed=3), expected[:2], strict=True):
        assert_same(row, other)


def test_the_same_line_twice_is_drawn_twice(toys):
    found = toys["sampling"](["edcba"] * 20, seed=0)
    assert len(set(found.text)) > 5


def test_a_line_with_a_seed_of_its_own_draws_the_same_alone(toys):
    toy = toys["sampling"]
    seeds = [5, 6, 7, 2**31 - 1, 0, 9, 10, 11]
    together = toy(LINES, seed=seeds, batch_size=3)
    for line, seed, expected in zip(LINES, seeds, together, strict=True):
        (alone,) = toy([line], seed=[seed])
        assert_same(alone, expected)
    back = toy(LINES[::-1], seed=np.array(seeds[::-1]))
    assert back.text == together.text[::-1]
    assert len({*toy(["edcba"] * 5, seed=[4] * 5).text}) == 1  # asked for


@pytest.mark.parametrize(
    "seed", [[1], [1, 2, 3], [1, -1], [1, 2**31], ["1", 2], [1.5, 2], "12", 1.5]
)
def test_seeds_that_cannot_be_are_refused(seed, toys):
    with pytest.raises(ValueError, match="`seed` must be an integer.*seed="):
        toys["sampling"](["a", "b"], seed=seed)


def test_a_seed_for_what_draws_nothing_is_an_error(toys):
    with pytest.raises(ValueError, match="GreedySearch, which draws nothing"):
        toys["greedy"](LINES, seed=1)
    with pytest.raises(ValueError, match="`seed` must be an integer, at least"):
        toys["sampling"](LINES, seed=-1)


@pytest.mark.full
@pytest.mark.parametrize("name", ["pre", "ensemble"])
def test_an_option_for_all_is_that_of_the_search(name, toys):
    toy = toys[name]
    options = {"length_penalty": 1.5, "max_length": 5}
    search = keras_attn.BeamSearch(
        toy.search.num_beams, toy.search.num_hypotheses, **options
    )
    expected = keras_attn.Translator(
        toy.models, toy.source_text, toy.target_text, search
    )(LINES)
    for row, other in zip(toy(LINES, options=options), expected, strict=True):
        assert_same(row, other)


def test_each_row_may_have_options_of_its_own(toys):
    toy = toys["pre"]
    longest = np.array([3, 1, 5, 2, 12, 4, 6, 7])
    found = toy(LINES, options={"max_length": longest}, batch_size=3)
    for line, length, row in zip(LINES, longest, found, strict=True):
        assert_same(row, toy([line], options={"max_length": int(length)})[0])
        assert len(row.tokens) <= length


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"beam_width": 3},
            r"\['coverage_penalty', .*'num_beams'\].*'beam_width'",
        ),
        ({"length_penalty": "1"}, "a number of dtype float32, or one for each"),
        ({"max_length": 2.5}, "a number of dtype int32"),
        ({"max_length": [1, 2, 3]}, r"each of the 2 source\(s\)"),
        (
            {"max_length": [4, 99]},
            "^`max_length` must be between 1 and 12 for each source. Received: "
            "max_length=99 for source 1. Leave it out for the search's own",
        ),
        (
            {"length_penalty": -5},
            "^`length_penalty` must be at least 0 and finite .*=-5.0 for so",
        ),
        ({"length_penalty": [0.1, float("nan")]}, "=nan for source 1"),
        ({"coverage_penalty": 1e39}, "=inf for source 0"),
        ({"max_length": 2**32 + 4}, f"int32.*max_length={2**32 + 4}"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message, toys):
    toy = toys["pre"]
    for call in (
        lambda: toy(["a", "b"], options=options),
        lambda: toy(["a", "b"], options=options, prefixes=["AA", None]),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert type(caught.value) is ValueError
        assert "tf.Tensor" not in str(caught.value)


def test_a_stream_s_option_that_cannot_be_is_refused(toys):
    with pytest.raises(ValueError, match="^`min_length` must be .*=0 for so"):
        toys["greedy"].stream("a", options={"min_length": 0})


@pytest.mark.full
def test_a_text_too_long_is_refused_in_the_words_of_its_text(toys):
    toy = toys["greedy"]
    strict = keras_attn.Text(
        toy_models.SOURCE.tokens[4:],
        "characters",
        max_length=3,
        too_long="error",
    )
    made = keras_attn.Translator(
        toy.models, strict, toy.target_text, toy.search
    )
    message = "^A text may have at most 3 tokens.*tokens: 4$"
    for call in (
        lambda: strict.ids(["abc", "abca"]),
        lambda: made(["abc", "abca"]),
        lambda: made.stream("abca"),
        lambda: made.score(["abca"], ["AA"]),
        lambda: keras_attn.pairs(["a"], ["abca"], strict, strict),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_no_lines_take_no_requests(toys):
    found = toys["sampling"]([], prefixes=[], seed=1, options={"top_k": 3})
    assert len(found) == 0


@pytest.mark.full
@pytest.mark.parametrize("name", ["pre", "greedy"])
def test_forbidden_tokens_never_come(name, toys):
    toy = toys[name]
    free = {
        t for x in toy(LINES) for y in (x, *x.alternatives) for t in y.tokens
    }
    assert "D" in free
    never = with_search(toy, toy.search, forbidden=["<unk>", "D"])
    for row in never(LINES):
        for one in (row, *row.alternatives):
            assert not {"<unk>", "D"} & set(one.tokens)


@pytest.mark.full
def test_what_is_forbidden_is_saved(toys, tmp_path):
    toy = toys["greedy"]
    with_search(toy, toy.search, forbidden=["D"], replace_unknown=True).save(
        tmp_path
    )
    loaded = keras_attn.Translator.load(tmp_path)
    assert loaded.forbidden == ("D",)
    assert loaded.replace_unknown


@pytest.mark.parametrize(
    "forbidden, message",
    [
        ("<unk>", "must be a list of tokens"),
        (["Q"], "tokens of the target text. Received: 'Q'"),
        (["<pad>"], "Received: '<pad>'. Leave it out: no output contains it"),
        (["</s>"], "Received: '</s>'. Without it no text could end"),
    ],
)
def test_tokens_that_cannot_be_forbidden_are_named(forbidden, message, toys):
    toy = toys["greedy"]
    with pytest.raises(ValueError, match=message):
        with_search(toy, toy.search, forbidden=forbidden)


@pytest.mark.full
@pytest.mark.parametrize("name", ["greedy", "ensemble"])
def test_an_unknown_word_becomes_the_source_s_most_attended(name, toys):
    toy = toys[name]
    plain = toy(LINES)
    replaced = with_search(toy, toy.search, replace_unknown=True)(LINES)
    changed = 0
    for row, other in zip(replaced, plain, strict=True):
        for one, before in zip(
            (row, *row.alternatives), (other, *other.alternatives), strict=True
        ):
            words = one.source_tokens[:-1]
            expected = list(before.tokens)
            for t, token in enumerate(before.tokens):
                if token == "<unk>" and words:
                    best = np.argmax(before.alignment[t, :-1])
                    expected[t] = words[best]
                    changed += 1
            assert one.tokens == expected
            ended = expected[-1] == "</s>"
            assert one.text == " ".join(expected[:-1] if ended else expected)
            assert one.score == pytest.approx(before.score, abs=1e-5)
    assert changed


@pytest.mark.full
def test_unknown_words_of_features_are_not_replaced(toys):
    toy = toys["spectra"]
    with pytest.raises(ValueError, match="reads features. .forbidden="):
        with_search(toy, toy.search, replace_unknown=True)


def test_ids_begin_and_end_as_asked_for():
    text = toy_models.TARGET
    assert text.ids(["AA ?", ""], end=False).numpy().tolist() == [
        [4, UNKNOWN],
        [PAD, PAD],
    ]
    assert text.ids(["AA"], start=True).numpy().tolist() == [[START, 4, END]]
    tokens = tf.constant([["AA", "x", "</s>"]])
    assert text.join(tokens, [[4, UNKNOWN, END]]).numpy() == [b"AA x"]


def test_ids_are_sampled_without_a_seed(toys):
    toy = toys["sampling"]
    ids = toy.source_text.source_ids(LINES)
    drawn = {toy.decode_ids(ids).tokens.numpy().tobytes() for _ in range(4)}
    assert len(drawn) > 1


def test_the_order_of_options_makes_no_other_graph(toys):
    toy = with_search(toys["greedy"], keras_attn.GreedySearch(max_length=5))
    options = {"min_length": 1, "max_length": 3}
    toy(["abc"], options=options)
    before = len(toy._functions)
    toy(["abc"], options=dict(reversed(options.items())))
    assert len(toy._functions) == before
