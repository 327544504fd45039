"""Scores of given targets, held to the search and to plain arithmetic."""

import math

import numpy as np
import pytest
import toys as toy_models

import keras_attn

LINES = toy_models.LINES


def by_log_probability(toy):
    """The same translator, whose scores are log-probabilities."""
    search = keras_attn.BeamSearch(3, num_hypotheses=3, max_length=12)
    return keras_attn.Translator(
        toy.model, toy.source_text, toy.target_text, search
    )


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
