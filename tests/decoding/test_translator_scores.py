"""Scores of given targets, compared with searches and plain arithmetic."""

import math

import numpy as np
import pytest
from support import toys as toy_models

import keras_attn

LINES = toy_models.LINES


def by_log_probability(toy):
    """The same translator, whose scores are log-probabilities."""
    search = keras_attn.BeamSearch(3, num_hypotheses=3, max_length=12)
    return keras_attn.Translator(
        toy.model, toy.source_text, toy.target_text, search
    )


@pytest.mark.full
@pytest.mark.parametrize("name", ["greedy", "pre", "words"])
def test_reported_scores_are_recomputed(name, toys):
    toy = toys[name] if name == "greedy" else by_log_probability(toys[name])
    rows = [
        (line, hypothesis)
        for line, row in zip(LINES, toy(LINES), strict=True)
        for hypothesis in (row, *row.alternatives)
    ]
    scored = toy.score([x for x, _ in rows], [x.text for _, x in rows])
    for i, (_, hypothesis) in enumerate(rows):
        n = len(hypothesis.tokens)  # cut ones lack the end token
        assert len(scored.tokens[i]) == n + (not hypothesis.finished)
        assert scored.tokens[i][:n] == hypothesis.tokens
        score = scored.token_scores[i][:n].sum()
        np.testing.assert_allclose(score, hypothesis.score, atol=1e-4)
        if hypothesis.finished:
            assert scored.scores[i] == pytest.approx(score, abs=1e-4)


def searches(name):
    """Searches whose scores are sums of log-probabilities."""
    return {
        "greedy": keras_attn.GreedySearch(max_length=6),
        "beam": keras_attn.BeamSearch(4, num_hypotheses=4, max_length=6),
        "short": keras_attn.BeamSearch(3, num_hypotheses=3, max_length=2),
        "sampling": keras_attn.Sampling(
            temperature=4.0, num_hypotheses=4, max_length=6
        ),
    }[name]


def hypotheses_of(result):
    """Returns all hypotheses, each with its source."""
    return [
        (line, one)
        for line, row in zip(LINES, result, strict=True)
        for one in (row, *row.alternatives)
    ]


def assert_scored(scored, hypotheses):
    """Each score is what the search reported, token for token."""
    assert len(scored) == len(hypotheses)
    np.testing.assert_allclose(
        scored.scores, [x.score for x in hypotheses], atol=1e-4
    )
    for tokens, each, one in zip(
        scored.tokens, scored.token_scores, hypotheses, strict=True
    ):
        assert len(tokens) == len(each) == len(one.tokens)
        for i, (token, written) in enumerate(
            zip(tokens, one.tokens, strict=True)
        ):
            assert token == ("<unk>" if i in one.replaced else written)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "name, search",
    [
        ("pre", "greedy"),
        ("pre", "beam"),
        ("pre", "short"),
        pytest.param("pre", "sampling", marks=pytest.mark.full),
        pytest.param("ensemble", "beam", marks=pytest.mark.full),
        ("ensemble", "sampling"),
        ("transformer", "short"),
    ],
)
def test_what_a_search_found_scores_as_the_search_says(name, search, toys):
    toy = toys[name]
    toy = keras_attn.Translator(
        toy.models, toy.source_text, toy.target_text, searches(search)
    )
    result = toy(LINES, seed=5) if search == "sampling" else toy(LINES)
    assert_scored(toy.score(LINES, result), list(result))
    assert_scored(toy.score(LINES, list(result), batch_size=3), list(result))
    lines, hypotheses = zip(*hypotheses_of(result), strict=True)
    assert_scored(toy.score(list(lines), list(hypotheses)), hypotheses)
    if search == "short":
        assert not all(x.finished for x in hypotheses)
    if search == "sampling":
        tokens = {t for x in hypotheses for t in x.tokens}
        assert tokens >= {"<unk>", "</s>"}
        assert any(not x.text for x in hypotheses)  # an end token alone


@pytest.mark.full
def test_prefixes_forbidden_tokens_and_rules_score_as_the_search_says(toys):
    toy = toys["pre"]
    search = keras_attn.BeamSearch(
        3,
        num_hypotheses=3,
        max_length=7,
        min_length=3,
        no_repeat_ngram=2,
        repetition_penalty=1,
    )
    toy = keras_attn.Translator(
        toy.models,
        toy.source_text,
        toy.target_text,
        search,
        forbidden=["<unk>", "D"],
    )
    result = toy(LINES, prefixes=["K", None, "EH D", "B"] * 2)
    lines, hypotheses = zip(*hypotheses_of(result), strict=True)
    assert_scored(toy.score(list(lines), list(hypotheses)), hypotheses)
    for source in range(len(LINES)):
        found = result.alternatives[source]
        assert_scored(toy.score([LINES[source]] * len(found), found), found)


@pytest.mark.full
def test_a_cut_hypothesis_gets_no_end_that_it_does_not_have(toys):
    toy = toys["pre"]
    search = keras_attn.GreedySearch(max_length=2)
    toy = keras_attn.Translator(
        toy.models, toy.source_text, toy.target_text, search
    )
    result = toy(LINES)
    cut = [i for i, row in enumerate(result) if not row.finished]
    assert cut
    as_text, as_found = toy.score(LINES, result.text), toy.score(LINES, result)
    for i in cut:
        assert as_found.tokens[i] == result[i].tokens
        assert as_text.tokens[i] == [*result[i].tokens, "</s>"]
        assert as_text.scores[i] < as_found.scores[i] - 1e-3


def characters(toy, search, **options):
    """A toy that writes letters: `<unk>` is one token, not five letters."""
    text = keras_attn.Text("<unk>a", split="characters")
    return keras_attn.Translator(
        toy.models, toy.source_text, text, search, **options
    )


@pytest.mark.full
def test_a_written_unk_is_one_token_and_not_split_into_letters(toys):
    toy = characters(toys["pre"], searches("sampling"))
    result = toy(LINES, seed=5)
    lines, hypotheses = zip(*hypotheses_of(result), strict=True)
    assert any("<unk>" in x.tokens for x in hypotheses)
    scored = toy.score(list(lines), list(hypotheses))
    assert_scored(scored, hypotheses)
    assert not any(scored.truncated)
    # The `<unk>` that the model wrote is in the vocabulary, so not unknown.
    assert scored.unknown == [x.unknown for x in hypotheses]
    i = next(i for i, x in enumerate(hypotheses) if "<unk>" in x.tokens)
    split = toy.score([lines[i]], [hypotheses[i].text])
    assert len(split.tokens[0]) > len(hypotheses[i].tokens)


@pytest.mark.full
@pytest.mark.parametrize("name", ["pre", "words", "letters"])
def test_a_replaced_token_scores_as_the_unk_that_was_written(name, toys):
    if name == "letters":  # the source's letters are the target's, too
        toy = characters(
            toys["pre"], searches("sampling"), replace_unknown=True
        )
    else:
        toy = toys[name]
        toy = keras_attn.Translator(
            toy.models,
            toy.source_text,
            toy.target_text,
            searches("sampling"),
            replace_unknown=True,
        )
    result = toy(LINES, seed=5)
    lines, hypotheses = zip(*hypotheses_of(result), strict=True)
    assert any(x.replaced for x in hypotheses)
    assert_scored(toy.score(list(lines), list(hypotheses)), hypotheses)


@pytest.mark.full
def test_a_score_of_what_was_found_reports_the_source(toys):
    text = keras_attn.Text("abcdeé", split="characters", max_length=4)
    toy = keras_attn.Translator(
        toys["pre"].models, text, toys["pre"].target_text, searches("greedy")
    )
    result = toy(LINES)
    scored = toy.score(LINES, result)
    assert scored.truncated == result.truncated
    assert scored.unknown == result.unknown
    assert any(scored.truncated) and any(scored.unknown)


@pytest.mark.full
def test_what_one_translator_found_another_scores_by_its_own_vocabulary(toys):
    toy = toys["pre"]
    order = ["ñ", "EH", "K", "B", "AA", "?"]  # other ids, and no D
    other = keras_attn.Translator(
        toy.models,
        toy.source_text,
        keras_attn.Text(order, split="whitespace"),
        searches("greedy"),
    )
    found = by_log_probability(toy)(LINES)
    assert any("D" in row.tokens for row in found)
    scored = other.score(LINES, found)
    as_text = other.score(LINES, found.text)
    for i, row in enumerate(found):
        tokens = ["<unk>" if x == "D" else x for x in row.tokens]
        assert scored.tokens[i] == tokens
        assert scored.unknown[i] == row.tokens.count("D") + row.unknown
        if row.finished:
            assert scored.scores[i] == pytest.approx(
                as_text.scores[i], abs=1e-4
            )


@pytest.mark.full
def test_results_longer_than_the_text_s_maximum_are_scored_whole(toys):
    toy = toys["pre"]
    text = keras_attn.Text(
        toy.target_text.tokens[4:], split="whitespace", max_length=1
    )
    toy = keras_attn.Translator(
        toy.models, toy.source_text, text, searches("beam")
    )
    result = toy(LINES)
    scored = toy.score(LINES, result)
    assert_scored(scored, list(result))
    assert max(map(len, scored.tokens)) > 2
    assert not any(scored.truncated)


@pytest.mark.full
def test_translations_made_by_hand_are_scored_by_their_tokens(toys):
    toy = toys["pre"]

    def made(*tokens):
        return keras_attn.Translation("", 0.0, [], list(tokens), None, True)

    targets = [made("AA", "B", "</s>"), made("</s>"), made("AA"), made()]
    scored = toy.score(["abc"] * 4, targets)
    texts = toy.score(["abc"] * 2, ["AA B", ""])
    np.testing.assert_allclose(scored.scores[:2], texts.scores, atol=1e-5)
    assert scored.token_scores[2] == pytest.approx(
        texts.token_scores[0][:1], abs=1e-5
    )
    assert scored.tokens[3] == [] and scored.scores[3] == 0
    # Names of special tokens that no search writes are unknown words.
    odd = toy.score(["abc"], [made("<pad>", "</s>", "<s>", "</s>")])
    assert odd.tokens == [["<unk>", "<unk>", "<unk>", "</s>"]]
    assert odd.unknown == [3]


@pytest.mark.full
def test_what_was_found_for_features_is_scored_too(toys):
    toy, sources = toys["spectra"], toy_models.sources("spectra")
    result = toy(sources)
    assert_scored(toy.score(sources, result), list(result))


@pytest.mark.full
def test_targets_of_two_kinds_or_of_none_are_refused(toys):
    toy = toys["greedy"]
    result = toy(["a", "b"])
    for targets, message in (
        (["AA", result[0]], r"targets\[1\].*Translation.*targets\[0\].*str"),
        ([result[0], "AA"], r"targets\[1\].*str.*targets\[0\].*Translation"),
        (result[0], "a list.*Received: targets=Translation.*a list of one"),
        (result[:1], r"for 2 source\(s\)"),
        (result.alternatives, r"targets\[0\]=\[\].*in one flat list"),
        ([3, 4], r"targets\[0\]=3 .of type int"),
        (iter(["AA", "B"]), r"a list.*Received: targets=<list_iterator"),
        (None, "a list.*Received: targets=None"),
    ):
        with pytest.raises(ValueError, match=message):
            toy.score(["a", "b"], targets)


@pytest.mark.full
def test_a_perplexity_is_what_it_says(toys):
    scored = toys["greedy"].score(["abc", "b"], ["AA", "B D"])
    assert [len(x) for x in scored.tokens] == [2, 3]
    assert len(scored) == 2
    total = sum(x.sum() for x in scored.token_scores)
    assert scored.perplexity == pytest.approx(math.exp(-total / 5))
    assert scored.scores.dtype == np.float32


def test_a_pair_scores_alone_as_in_any_batch(toys):
    targets = ["AA B", "", "D", "K " * 15, "ñ", "EH EH", "B", "AA"]
    scored = toys["pre"].score(LINES, targets)
    np.testing.assert_allclose(
        toys["pre"].score(LINES, targets, batch_size=1).scores,
        scored.scores,
        atol=1e-5,
    )
    assert scored.tokens[1] == ["</s>"]


def test_unknown_tokens_score_as_unknown(toys):
    one, two = toys["pre"].score(["abc", "abc"], ["AA ?", "AA <unk>"]).scores
    assert one == two


def test_nothing_scores_nothing(toys):
    scored = toys["greedy"].score([], [])
    assert len(scored) == 0 and math.isnan(scored.perplexity)


@pytest.mark.parametrize("targets", ["AA", ["AA"]])
def test_a_target_for_each_source_is_asked_for(targets, toys):
    with pytest.raises(ValueError, match=r"for 2 source\(s\)"):
        toys["greedy"].score(["a", "b"], targets)
