"""`tune`: held against all weights, one after another."""

import dataclasses
import itertools

import numpy as np
import pytest
from support.ranked import results

from keras_attn import Translations
from keras_attn import rerank
from keras_attn import tune
from keras_attn.reranking import own_score
from keras_attn.reranking.line_search import LineSearch
from keras_attn.reranking.metrics import utility_of
from keras_attn.training import metrics

NAMES = "bleu", "chrf", "wer", "cer", "ser"
WORDS = "the a cat dog sat ran on under mat tree today".split()


def sign(name):
    return 1 if name in ("bleu", "chrf") else -1


class Planted:
    """Random hypotheses, with scores of which some know the references."""

    def __init__(self, seed, sources=12, hypotheses=6, scorers=2):
        random = np.random.default_rng(seed)

        def line():
            return " ".join(random.choice(WORDS, random.integers(5, 9)))

        self.references = [line() for _ in range(sources)]
        self.lists, self.scores, self._known = [], [], {}
        for reference in self.references:
            texts = []
            for _ in range(int(random.integers(2, hypotheses + 1))):
                words = reference.split()
                for place in range(len(words)):
                    if random.random() < 0.4:
                        words[place] = random.choice(WORDS)
                texts.append(" ".join(words))
            self.lists.append(texts)
            own = -np.sort(random.exponential(size=len(texts)))
            others = random.normal(size=(len(texts), scorers))
            self.scores.append(np.column_stack([np.sort(own)[::-1], others]))
        self.results = results(
            *(
                list(zip(texts, some[:, 0].tolist(), strict=True))
                for texts, some in zip(self.lists, self.scores, strict=True)
            )
        )

    def scorers(self):
        """Returns the scorers beside the results' own."""

        def scorer(number):
            return lambda sources, hypotheses: np.concatenate(
                [x[:, number] for x in self.scores]
            )

        return [scorer(n) for n in range(1, self.scores[0].shape[1])]

    def value(self, weights, name):
        """Returns the metric of what weights choose."""
        chosen = tuple(
            texts[int(np.argmax(some @ weights))]
            for texts, some in zip(self.lists, self.scores, strict=True)
        )
        return self.metric(chosen, name)

    def metric(self, chosen, name):
        if (chosen, name) not in self._known:  # many weights choose the same
            value = metrics.BY_NAME[name](chosen, self.references)
            self._known[chosen, name] = value
        return self._known[chosen, name]


@pytest.mark.parametrize("name", NAMES)
def test_no_weights_of_a_fine_grid_are_better(name):
    planted = Planted(seed=1, scorers=1)
    scorers = planted.scorers()
    weights = tune(planted.results, planted.references, name, scorers)
    found = planted.value([x for _, x in weights], name)
    angles = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    grid = [planted.value([np.cos(x), np.sin(x)], name) for x in angles]
    best = max(sign(name) * x for x in grid)
    assert sign(name) * found >= best - 1e-9
    before = sign(name) * planted.value([1, 0], name)
    assert sign(name) * found > before or name == "ser"


def test_rerank_with_the_weights_is_what_was_promised():
    planted = Planted(seed=2)
    references, scorers = planted.references, planted.scorers()
    weights = tune(planted.results, references, "bleu", scorers)
    assert weights[0][0] is own_score
    found = metrics.bleu(rerank(planted.results, weights).text, references)
    promised = planted.value([x for _, x in weights], "bleu")
    assert found == pytest.approx(promised)
    assert found > metrics.bleu(planted.results.text, references)


@pytest.mark.parametrize("name", NAMES)
def test_a_score_that_knows_the_references_finds_all_that_there_is(name):
    planted = Planted(seed=3, sources=5, hypotheses=4)
    utility = utility_of(name)

    def knows(sources, hypotheses):
        texts = [x.text for x in hypotheses]
        right = [
            y
            for several, y in zip(
                planted.lists, planted.references, strict=True
            )
            for _ in several
        ]
        return [
            utility.matrix([x], [y])[0, 0]
            for x, y in zip(texts, right, strict=True)
        ]

    weights = tune(
        planted.results,
        planted.references,
        name,
        [planted.scorers()[0], knows],
    )
    found = metrics.BY_NAME[name](
        rerank(planted.results, weights).text, planted.references
    )
    best = max(
        sign(name) * metrics.BY_NAME[name](choice, planted.references)
        for choice in itertools.product(*planted.lists)
    )
    alone = rerank(planted.results, [(own_score, 0), (knows, 1)]).text
    known = sign(name) * metrics.BY_NAME[name](alone, planted.references)
    assert known - 1e-9 <= sign(name) * found <= best + 1e-9


def test_each_point_of_a_line_has_the_value_that_the_search_says():
    planted = Planted(seed=4, sources=8)
    utility = utility_of("bleu")
    counts = [
        utility.counts(x, [y])
        for x, y in zip(planted.lists, planted.references, strict=True)
    ]
    search = LineSearch(planted.scores, counts, utility.of_corpus)
    random = np.random.default_rng(1)
    for _ in range(5):
        weights, line = random.normal(size=(2, 3))
        best = search.value(search.best_on(weights, line))
        steps = np.linspace(-20, 20, 3000)
        tried = [planted.value(weights + x * line, "bleu") for x in steps]
        assert best >= max(tried) - 1e-9
        for step in steps[::500]:
            value = planted.value(weights + step * line, "bleu")
            assert search.value(weights + step * line) == pytest.approx(value)


def test_the_seed_repeats_the_weights():
    planted = Planted(seed=5)
    scorers = planted.scorers()
    one, again = (
        tune(planted.results, planted.references, "chrf", scorers, seed=7)
        for _ in range(2)
    )
    assert one == again


def test_without_anything_better_the_order_stays():
    made = results([("a b", -1.0), ("b b", -2.0)], [("c", -1.0)])
    noise = iter(range(100))

    def other(sources, hypotheses):
        return [float(next(noise)) for _ in hypotheses]

    weights = tune(made, ["a b", "c"], "chrf", [other], restarts=2)
    assert weights == [(own_score, 1.0), (other, 0.0)]
    same = tune(made, ["a b", "c"], "wer", [lambda *_: [1.0, 1.0, 1.0]])
    assert [x for _, x in same] == [1.0, 0.0]


def test_a_hypothesis_that_lacks_a_term_is_not_tuned_for():
    (row,) = results([("a b", -2.0), ("c d", -1.0)])
    lacking = dataclasses.replace(row.alternatives[0], missing=["a"])
    made = Translations([dataclasses.replace(row, alternatives=[lacking])])

    def other(sources, hypotheses):
        return [float(x.text == "c d") for x in hypotheses]

    # The reference is out of reach, so that no weight is better.
    assert tune(made, ["c d"], "chrf", [other])[1] == (other, 0.0)


def test_of_several_references_all_count():
    made = results([("a b c d", -1.0), ("x y z w", -2.0)])

    def later(sources, hypotheses):
        return np.arange(len(hypotheses))

    references = [["p q r s", "x y z w"]]
    weights = tune(made, references, "bleu", [later])
    assert rerank(made, weights).text == ["x y z w"]


def test_a_function_of_pairs_has_its_mean_raised():
    made = results([("a", -1.0), ("bbb", -2.0)], [("cc", -1.0), ("d", -3.0)])

    def length(sources, hypotheses):
        return [len(x.text) for x in hypotheses]

    def longer(hypothesis, reference):
        return len(hypothesis) - len(reference)

    weights = tune(made, ["", ""], longer, [length])
    assert rerank(made, weights).text == ["bbb", "cc"]
    weights = tune(made, ["", ""], lambda x, y: -len(x), [length])
    assert rerank(made, weights).text == ["a", "d"]


def test_a_bar_shows_the_best_value(capsys):
    planted = Planted(seed=6, sources=4)
    arguments = planted.results, planted.references, "bleu", planted.scorers()
    tune(*arguments, restarts=1)
    assert capsys.readouterr().out == ""  # no terminal
    weights = tune(*arguments, restarts=1, verbose=1)
    printed = capsys.readouterr().out
    value = planted.value([x for _, x in weights], "bleu")
    assert "2/2" in printed and f"bleu: {value:.4f}" in printed


def test_a_metric_may_have_any_name(capsys):
    made = results([("a", -1.0), ("b", -2.0)])

    def count(hypothesis, reference):
        return float(hypothesis == reference)

    tune(made, ["b"], count, [lambda *_: [0.0, 1.0]], verbose=1)
    assert "mean count: 1.0000" in capsys.readouterr().out


def test_what_cannot_be_is_refused():
    made = results([("a", -1.0), ("b", -2.0)])

    def one(sources, hypotheses):
        return [0.0, 1.0]

    for wrong in [], None, [(one, 1.0)], "score", one:
        with pytest.raises(ValueError, match="`by` must be a list of scorers"):
            tune(made, ["a"], by=wrong)
    for wrong in "a", ["a", "b"], None, 3:
        with pytest.raises(ValueError, match="`references` must be a list"):
            tune(made, wrong, by=[one])
    for wrong in [[]], [None], [["a", 3]]:
        with pytest.raises(ValueError, match=r"at least one reference.*\[0\]="):
            tune(made, wrong, by=[one])
    with pytest.raises(ValueError, match='`metric` must be one of "chrf"'):
        tune(made, ["a"], "comet", [one])
    with pytest.raises(ValueError, match="`restarts` must be an integer"):
        tune(made, ["a"], by=[one], restarts=-1)
    with pytest.raises(ValueError, match="`seed` must be an integer"):
        tune(made, ["a"], by=[one], seed=None)
    with pytest.raises(ValueError, match="needs results"):
        tune(results(), [], by=[one])
    with pytest.raises(ValueError, match='`verbose` must be "auto"'):
        tune(made, ["a"], by=[one], verbose="yes")
