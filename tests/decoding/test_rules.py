"""Rules of a user's own, in every search and at every door."""

import json

import numpy as np
import pytest
import tensorflow as tf
from support.comparisons import assert_same as assert_same_translation
from support.comparisons import assert_streams
from support.exports import own_options
from support.lazily import ask
from support.own_rules import Colder
from support.own_rules import Once
from support.own_rules import OnceByTokens
from support.own_rules import Without
from support.own_search import Mirostat
from support.spelling import END
from support.spelling import assert_same
from support.spelling import random_automaton
from support.spelling import spell
from support.spelling import tokens_of
from support.stochastic_beams import StochasticBeamSearch
from support.toys import LINES

import keras_attn
from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn import Sampling
from keras_attn.decoding import NEVER
from keras_attn.decoding import ForbiddenSequences
from keras_attn.decoding import Renormalized
from keras_attn.decoding import Rule

SEARCHES = {
    "greedy": GreedySearch,
    "beam": lambda **options: BeamSearch(4, 4, **options),
    "groups": lambda **options: BeamSearch(
        4, 3, groups=2, diversity=0.5, coverage_penalty=0.2, **options
    ),
    "draws": lambda **options: Sampling(num_hypotheses=3, **options),
    "mirostat": lambda **options: Mirostat(num_hypotheses=2, **options),
    "stochastic": lambda **options: StochasticBeamSearch(3, **options),
}
SIZE = 6  # ids of an automaton of three letters


def given(model, rows=None):
    return model.given(
        rows,
        seed=np.array([3, 1, 4], "int32"),
        prefix=tokens_of("", "a", "bc"),
        source_lengths=np.array([3, 1, 2]),
        options={"min_length": np.array([1, 3, 2], "int32")},
    )


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("rule", [Once(SIZE, END), OnceByTokens(END)], ids=str)
def test_a_rule_with_a_state_or_tokens_is_that_of_the_package(name, rule):
    model = random_automaton(5, batch=3, letters=3)
    make = SEARCHES[name]
    expected = make(max_length=7, no_repeat_ngram=1)(given(model))
    found = make(max_length=7, rules=[rule])(given(model))
    assert_same(found, expected)
    without = make(max_length=7)(given(model))
    assert any(spell(without, row) != spell(found, row) for row in range(3))


@pytest.mark.parametrize("name", SEARCHES)
def test_rules_before_the_softmax_come_first_and_change_scores(name):
    model = random_automaton(5, batch=3, letters=3)
    rules = [Without([4]), Colder(0.5), Once(SIZE, END)]
    search = SEARCHES[name](max_length=5, rules=rules)
    # A forced token keeps the model's own log-probability.
    inputs = given(model)._replace(prefix=None)
    found = search(inputs)
    model.logits *= 2
    other = SEARCHES[name](max_length=5, no_repeat_ngram=1)
    inputs = given(model)._replace(prefix=None)
    expected = other(inputs._replace(forbidden=(*inputs.forbidden, 4)))
    assert_same(found, expected)


@pytest.mark.parametrize("name", SEARCHES)
def test_renormalized_probabilities_are_those_of_allowed_tokens(name):
    model = random_automaton(5, batch=3, letters=3)
    rules = [ForbiddenSequences([[4]]), Renormalized()]
    search = SEARCHES[name](max_length=5, rules=rules)
    seed = np.array([3, 1, 4], "int32")
    inputs = model.given(seed=seed)
    found = search(inputs)
    model.logits[..., [*inputs.forbidden, 4]] = NEVER
    expected = SEARCHES[name](max_length=5)(model.given(seed=seed))
    assert_same(found, expected)


def test_nothing_is_renormalized_where_no_token_is_allowed():
    model = random_automaton(5, batch=3, letters=3)
    rules = [ForbiddenSequences([[x] for x in range(SIZE)], [], [])]
    for search in (GreedySearch, BeamSearch):
        plain = search(max_length=5, rules=rules)(model.given())
        rules_too = [*rules, Renormalized()]
        found = search(max_length=5, rules=rules_too)(model.given())
        assert_same(found, plain)


def test_a_large_vocabulary_is_ruled_alike(monkeypatch):
    model = random_automaton(7, batch=3, letters=3)
    searches = [
        make(max_length=5, rules=[Without([4]), Once(SIZE, END)])
        for make in SEARCHES.values()
    ]
    expected = [search(given(model)) for search in searches]
    monkeypatch.setattr("keras_attn.decoding.candidates.LARGE", 0)
    monkeypatch.setattr("keras_attn.decoding.candidates.CHUNK", 2)
    monkeypatch.setattr("keras_attn.decoding.draws.CHUNK", 2)
    for search, other in zip(searches, expected, strict=True):
        assert_same(search(given(model)), other)


def test_a_rule_that_forbids_all_tokens_cuts_the_hypothesis():
    class Nothing(Rule):
        def apply(self, logits, written, state):
            late = tf.cast(written.time >= 2, tf.float32)
            return logits + NEVER * late

    model = random_automaton(5, batch=3, letters=3)
    for name, make in SEARCHES.items():
        if name == "stochastic":  # drops the hypothesis instead
            continue
        found = make(max_length=5, rules=[Nothing()])(given(model))
        assert np.max(found.lengths) == 2
        cut = ~found.finished & (found.lengths > 0)
        assert np.any(cut) and np.all(found.lengths[cut] == 2)


def test_rules_are_compared_shown_and_hashed_by_their_arguments():
    one, same, other = (
        BeamSearch(3, rules=[Without(ids)]) for ids in ([4], [4], [5])
    )
    assert one == same and hash(one) == hash(same) and one != other
    assert "rules=(Without(ids=[4]),)" in repr(one)
    assert BeamSearch.from_config(one.get_config()) == one
    assert one != BeamSearch(3)


@pytest.mark.parametrize("rules", [Without([4]), "no digits", [3], [Without]])
def test_what_are_no_rules_is_refused(rules):
    with pytest.raises(ValueError, match="`rules` must be a list of .*Rule"):
        GreedySearch(rules=rules)


class Broken(Rule):
    """A rule of which a test breaks a method."""


def broken(**methods):
    return type("Broken", (Broken,), methods)()


BROKEN = {
    "no result": (
        broken(apply=lambda self, logits, written, state: None),
        r"`Broken.apply` must return logits.*float32 of shape .*None of type",
    ),
    "one beam for all": (
        broken(apply=lambda self, logits, written, state: logits[:, :1]),
        r"`Broken.apply` must return logits.*Received: a tensor",
    ),
    "no beams": (
        broken(apply=lambda self, logits, written, state: logits[:, 0]),
        r"`Broken.apply` must return logits",
    ),
    "a column less": (
        broken(apply=lambda self, logits, written, state: logits[..., 1:]),
        r"`Broken.apply` must return logits",
    ),
    "another dtype": (
        broken(
            apply=lambda self, logits, written, state: tf.cast(
                logits, tf.float64
            )
        ),
        r"`Broken.apply` must return logits.*dtype float64",
    ),
    "a state without beams": (
        broken(start=lambda self, batch, beams: tf.zeros([SIZE])),
        r"`Broken.start` must return tensors whose first axes.*shape \(6,\)",
    ),
    "a state of other beams": (
        broken(start=lambda self, batch, beams: tf.zeros([batch, beams + 1])),
        r"`Broken.start` must return tensors whose first axes",
    ),
    "another state": (
        broken(
            start=lambda self, batch, beams: tf.zeros([batch, beams]),
            update=lambda self, tokens, state: tf.cast(state, tf.int32),
        ),
        r"`Broken.update` must return a state like .*int32.* after .*float32",
    ),
    "no state": (
        broken(
            start=lambda self, batch, beams: tf.zeros([batch, beams]),
            update=lambda self, tokens, state: None,
        ),
        r"`Broken.update` must return a state like",
    ),
    "no pairs": (
        broken(penalties=lambda self, time: {3: NEVER}),
        r"`Broken.penalties` must return a list of pairs",
    ),
    "no id": (
        broken(penalties=lambda self, time: [(99, NEVER)]),
        r"`Broken.penalties` must name ids .*0 to 6, excluded. Received: 99",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_refused_by_name(name):
    rule, message = BROKEN[name]
    model = random_automaton(5, batch=3, letters=3)
    for kind, make in SEARCHES.items():
        if kind == "greedy" and name == "one beam for all":
            continue  # it has no other
        search = make(max_length=5, no_repeat_ngram=1, rules=[rule])
        with pytest.raises(ValueError, match=message):
            search(given(model))


def test_a_rule_that_reads_tokens_must_say_so():
    class Reading(Rule):
        def apply(self, logits, written, state):
            assert written.tokens is None
            return logits

    model = random_automaton(5, batch=3, letters=3)
    for make in SEARCHES.values():
        make(max_length=3, rules=[Reading()])(given(model))


def test_arguments_of_a_rule_must_be_in_its_config():
    class Quiet(Rule):
        def __init__(self, ids=()):
            self.ids = ids

    with pytest.raises(ValueError, match="`Quiet` takes 'ids', so it needs"):
        GreedySearch(rules=[Quiet([4])])


def test_numbers_of_numpy_are_saved():
    search = GreedySearch(rules=[Without(np.array([4, 5]))])
    config = json.loads(json.dumps(search.get_config()))
    assert GreedySearch.from_config(config) == search
    assert search != GreedySearch(rules=[Without(np.array([4, 6]))])


def with_rules(toys, name, rules, make=GreedySearch):
    toy = toys[name]
    return keras_attn.Translator(
        toy.models, toy.source_text, toy.target_text, make(9, rules=rules)
    )


@pytest.mark.full
def test_a_rule_that_mixes_rows_is_refused(toys):
    class Mixing(Rule):
        def apply(self, logits, written, state):
            return logits - tf.reduce_max(tf.abs(logits), axis=0)

    with pytest.raises(ValueError, match="must decode each row") as caught:
        with_rules(toys, "greedy", [Mixing()])
    assert "tries a search" in caught.value.__notes__[0]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The source is empty")
def test_rules_translate_stream_save_and_export(toys, tmp_path):
    text = toys["greedy"].target_text
    rules = [Once(text.size, text.special.end), Colder(0.7)]
    made = with_rules(toys, "greedy", rules)
    found = made(LINES)
    assert all(len({*x.tokens}) == len(x.tokens) for x in found)
    assert found.text != toys["greedy"](LINES).text
    for line, row in zip(LINES[:3], found, strict=False):
        assert_streams(made.stream(line), row)
    made.save(tmp_path / "saved")
    loaded = keras_attn.Translator.load(tmp_path / "saved")
    assert loaded.search == made.search
    for row, other in zip(loaded(LINES), found, strict=True):
        assert_same_translation(row, other)
    path = made.export(tmp_path / "exported", signatures=["options"])
    asked = own_options(made, LINES)
    answers = ask(
        [
            (path, "options", asked, "c"),
            (path, "serving_default", {"text": asked["text"]}, "c"),
        ]
    )
    expected = made(
        LINES,
        prefixes=[x.decode() for x in asked["prefix"]],
        options={"max_length": asked["max_length"].tolist()},
    )
    assert [x.decode() for x in answers[0]["text"]] == expected.text
    assert [x.decode() for x in answers[1]["text"]] == found.text
    with pytest.raises(ValueError, match=r"`step` does not know .*Once\(size"):
        made.export(tmp_path / "steps", signatures=["step"])


@pytest.mark.full
def test_a_rule_loads_only_if_its_class_is_known(toys, tmp_path):
    class Local(Without):
        pass

    made = with_rules(toys, "greedy", [Local([5])])
    made.save(tmp_path)
    with pytest.raises(ValueError, match="custom_objects={'Local': Local}"):
        keras_attn.Translator.load(tmp_path)
    loaded = keras_attn.Translator.load(
        tmp_path, custom_objects={"Local": Local}
    )
    assert loaded.search == made.search


@pytest.mark.full
def test_the_signature_step_applies_rules_on_logits(toys, tmp_path):
    plain = with_rules(toys, "greedy", [])
    ruled = with_rules(toys, "greedy", [Without([5]), Colder(0.5)])
    lines = {"text": np.array([b"abc", b"ab"], object)}
    answers = []
    for made, name in (plain, "plain"), (ruled, "ruled"):
        path = made.export(tmp_path / name, signatures=["step"])
        (encoded,) = ask([(path, "encode", lines, "c")])
        given = {
            name: x
            for name, x in encoded.items()
            if name not in ("source_tokens", "source_length", "end", "error")
        }
        (answer,) = ask([(path, "step", given, "c")])
        answers.append(answer["log_probabilities"])
    before, after = answers
    assert np.isfinite(before[..., 5]).all()
    before[..., 5] = -np.inf
    # Both among the tokens that are allowed.
    expected, found = map(tf.nn.log_softmax, (before / 0.5, after))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_the_signature_step_names_options_that_it_leaves_alone(toys, tmp_path):
    toy = toys["greedy"]
    made = keras_attn.Translator(
        toy.models,
        toy.source_text,
        toy.target_text,
        GreedySearch(9, min_length=2, no_repeat_ngram=2),
    )
    with pytest.warns(UserWarning, match="leaves min_length and no_repeat_n"):
        made.export(tmp_path, signatures=["step"])


@pytest.mark.full
def test_a_shortlist_takes_no_rules(toys):
    toy = toys["greedy"]
    short = keras_attn.Shortlist.from_tokens(
        toy.source_text, toy.target_text, {}, toy.target_text.tokens
    )
    with pytest.raises(ValueError, match="needs a search without rules"):
        keras_attn.Translator(
            toy.models,
            toy.source_text,
            toy.target_text,
            GreedySearch(9, rules=[Without([5])]),
            shortlist=short,
        )


class Bonus(Rule):
    """Raises the logit of a token."""

    def apply(self, logits, written, state):
        return logits + 5 * tf.one_hot(6, tf.shape(logits)[-1])


def test_a_rule_after_the_softmax_may_not_raise_logits(toys):
    toy = toys["greedy"]
    search = GreedySearch(max_length=4, rules=[Bonus()])
    with pytest.raises(ValueError, match="must not raise logits.*up to 5"):
        keras_attn.Translator(
            toy.models, toy.source_text, toy.target_text, search
        )
