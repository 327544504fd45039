"""A search whose hypotheses replace each other, written from outside."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from support.comparisons import assert_same as assert_same_translation
from support.exports import own_options
from support.lazily import ask
from support.spelling import assert_same
from support.spelling import random_automaton
from support.spelling import spell
from support.spelling import speller
from support.spelling import tokens_of
from support.stochastic_beams import StochasticBeamSearch
from support.stochastic_beams import StochasticRun
from support.toys import LINES

import keras_attn
from keras_attn import decoding

WORDS = {"ab": 0.4, "ac": 0.3, "b": 0.2, "cab": 0.1}


def test_with_beams_enough_every_word_comes_once():
    found = StochasticBeamSearch(6, max_length=5)(
        speller(WORDS).given(seed=np.array([7], "int32"))
    )
    assert spell(found) == ["ab", "ac", "b", "cab", "-", "-"]
    shares = [*WORDS.values()]
    np.testing.assert_allclose(found.scores[0, :4], np.log(shares), rtol=1e-5)
    assert np.isneginf(found.scores[0, 4:]).all()
    assert found.finished.numpy().tolist() == [[True] * 4 + [False] * 2]


def test_words_come_as_often_as_drawn_without_replacement():
    rows = 3000
    found = StochasticBeamSearch(2, max_length=5)(
        speller(*[WORDS] * rows).given(seed=np.arange(rows, dtype="int32"))
    )
    expected = collections.Counter()
    for (one, p), (other, q) in itertools.permutations(WORDS.items(), 2):
        expected[frozenset((one, other))] += p * q / (1 - p)
    seen = collections.Counter(
        frozenset(spell(found, row)) for row in range(rows)
    )
    assert len(seen) == len(expected) == 6
    for pair, share in expected.items():
        error = np.sqrt(share * (1 - share) / rows)
        assert abs(seen[pair] / rows - share) < 4 * error


@pytest.mark.full
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_row_is_searched_as_if_alone(jit_compile):
    model = random_automaton(3, batch=3, letters=3)
    search = StochasticBeamSearch(3, max_length=6, no_repeat_ngram=2)
    inputs = {
        "seed": np.array([5, 6, 7], "int32"),
        "prefix": tokens_of("", "a", "bc"),
        "options": {"max_length": np.array([6, 3, 5], "int32")},
    }

    def run(rows):
        decode = tf.function(
            lambda: search(model.given(rows, **inputs)),
            autograph=False,
            jit_compile=jit_compile,
        )
        return decode()

    together = run([0, 1, 2])
    words = [spell(together, row) for row in range(3)]
    assert all(len({*x}) == 3 for x in words)
    assert all(x.startswith("a") for x in words[1])
    assert all(x.startswith("bc") for x in words[2])
    for row in range(3):
        assert_same(
            run([row]),
            tf.nest.map_structure(lambda x, i=row: x[i, None], together),
        )
    # The path that its attention took is that of its own tokens.
    for n in range(3):
        length = int(together.lengths[0, n])
        tokens = together.tokens[0, n, :length].numpy()
        np.testing.assert_allclose(
            together.alignments[0, n, :length],
            model.attention[model.path(tokens[:-1])],
        )


def test_a_run_lacks_nothing():
    class Lacking(decoding.Run):
        pass

    class Half(StochasticRun):
        def advance(self, state, logits, alignments):
            return super().advance(state, logits, alignments)[0]

    class Fewer(StochasticRun):
        def results(self, state, alignments):
            found = super().results(state, alignments)
            return found._replace(scores=found.scores[:, 1:])

    class Nothing(StochasticRun):
        def results(self, state, alignments):
            return state.tokens

    class Bare(StochasticRun):
        results = decoding.Run.results

    for kind, error, message in (
        (Lacking, NotImplementedError, "`Lacking` needs a method `first`, whi"),
        (Bare, NotImplementedError, "a method `results`, which returns `Hypo"),
        (Half, TypeError, "`Half.advance` must return the state, the parents"),
        (Fewer, TypeError, "with the search's num_hypotheses=5"),
        (Nothing, TypeError, "`Nothing.results` must return `Hypotheses`"),
        (lambda *_: None, TypeError, "run` must return a `keras_attn.decod"),
    ):

        class Search(StochasticBeamSearch):
            def run(self, search_input, kind=kind):
                return kind(self, search_input, self.num_hypotheses)

        with pytest.raises(error, match=message):
            Search(max_length=3)(
                speller(WORDS).given(seed=np.array([7], "int32"))
            )


def test_what_may_still_be_replaced_is_not_streamed():
    assert not StochasticBeamSearch(1).streams


def test_what_cannot_go_on_is_cut():
    class Short(decoding.Rule):
        def apply(self, logits, written, state):
            late = tf.cast(written.time >= 1, tf.float32)
            return logits + decoding.NEVER * late

    found = StochasticBeamSearch(3, max_length=5, rules=[Short()])(
        speller(WORDS).given(seed=np.array([7], "int32"))
    )
    assert spell(found) == ["a-", "b-", "c-"]


@pytest.mark.full
def test_it_translates_and_is_saved_and_exported(toys, tmp_path):
    toy = toys["greedy"]
    made = keras_attn.Translator(
        toy.models,
        toy.source_text,
        toy.target_text,
        StochasticBeamSearch(3, max_length=9),
    )
    found = made(LINES, seed=3)
    for row, other in zip(
        found, made(LINES, seed=3, batch_size=2), strict=True
    ):
        assert_same_translation(row, other)
    assert all(
        len({x.text, *(y.text for y in x.alternatives)}) > 1 for x in found
    )
    with pytest.raises(ValueError, match="needs a search"):
        made.stream(LINES[0])
    made.save(tmp_path / "saved")
    loaded = keras_attn.Translator.load(tmp_path / "saved")
    assert loaded(LINES, seed=3).text == found.text
    path = made.export(tmp_path / "exported", signatures=["options"])
    asked = own_options(made, LINES)
    (answer,) = ask([(path, "options", asked, "c")])
    expected = made(
        LINES,
        seed=asked["seed"].tolist(),
        prefixes=[x.decode() for x in asked["prefix"]],
        options={"max_length": asked["max_length"].tolist()},
    )
    assert [x.decode() for x in answer["text"]] == expected.text


def test_a_model_lacks_nothing():
    class Lacking(decoding.StepModel):
        rows = 1

    class Starting(Lacking):
        def start(self, beams, places=None):
            return None

    given = speller(WORDS).given()
    for model, message in (
        (Lacking(), "`Lacking` needs a method `start`, which returns the sta"),
        (Starting(), "`Starting` needs a method `step`, which returns logits"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            keras_attn.GreedySearch(3)(given._replace(model=model))
    with pytest.raises(NotImplementedError, match="`take_rows`"):
        Lacking().take_rows([0])
