"""A search of a user's own works wherever a built-in search does."""

import dataclasses
import json
import math
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import own_search
from support import toys as toy_models
from support.comparisons import assert_same as assert_same_translation
from support.comparisons import assert_streams
from support.exports import as_bytes
from support.exports import warm_ups
from support.lazily import ask
from support.own_search import Mirostat
from support.reference_search import numbers_of
from support.spelling import END
from support.spelling import FORBIDDEN
from support.spelling import assert_same
from support.spelling import random_automaton
from support.spelling import spell
from support.spelling import speller
from support.spelling import tokens_of

import keras_attn
from keras_attn.decoding import Choice
from keras_attn.decoding import Integer
from keras_attn.decoding import Option
from keras_attn.decoding import Real

LINES = toy_models.LINES
ROWS = len(LINES)
SEARCH = Mirostat(2.0, rate=0.3, max_length=9)


# Against another implementation


def mirostat(model, row, numbers, search, prefix=()):
    """Algorithm 1 in numpy: tokens and log-probabilities of a hypothesis."""
    bound, tokens, total = 2 * search.target, [], 0.0
    for time in range(search.max_length):
        state = model.path(tokens)[-1]
        logits = model.logits[row, state].astype("float64")
        logp = logits - np.log(np.exp(logits).sum())
        mine = logp.copy()
        mine[list(FORBIDDEN)] = -np.inf
        order = np.argsort(-mine, kind="stable")[: len(mine) - 2]
        first = mine[order][: search.likeliest]
        t = np.log([(i + 2) / (i + 1) for i in range(len(first) - 1)])
        zipf = np.sum(t * (first[:-1] - first[1:])) / np.sum(t * t)
        share = (zipf - 1) / (1 - len(mine) ** -(zipf - 1))
        k = round((share * 2**bound) ** (1 / zipf))
        stays = np.isin(np.arange(len(mine)), order[: max(k, 1)])
        mass = np.cumsum(np.where(stays, np.exp(logp), 0.0))
        token = int(np.argmax(mass > numbers[time] * mass[-1]))
        if time < len(prefix):
            token = prefix[time]
        bound -= search.rate * (-logp[token] / math.log(2) - search.target)
        tokens.append(token)
        total += logp[token]
        if token == END:
            break
    return tuple(tokens), total


def assert_is_mirostat(found, model, search, seeds, prefixes=None):
    for row, seed in enumerate(seeds):
        numbers = numbers_of(int(seed), search.num_hypotheses, 12)
        prefix = () if prefixes is None else [x for x in prefixes[row] if x]
        expected = sorted(
            (mirostat(model, row, x, search, prefix) for x in numbers),
            key=lambda x: -x[1],
        )
        for n, (tokens, score) in enumerate(expected):
            assert int(found.lengths[row, n]) == len(tokens)
            assert tuple(found.tokens.numpy()[row, n, : len(tokens)]) == tokens
            np.testing.assert_allclose(found.scores[row, n], score, rtol=1e-4)


class Fixed(keras_attn.Search):
    """Takes the same token at every step, allowed or not."""

    token: int = Integer(default=0, low=0)

    def choose(self, step, state):
        return tf.zeros_like(step.scores, tf.int32) + self.token


@pytest.mark.parametrize("token", FORBIDDEN)
def test_a_hypothesis_with_a_forbidden_token_is_dropped(token):
    model = random_automaton(5, batch=2, letters=12, layers=12)
    found = Fixed(token, max_length=4)(model.given())
    assert not np.any(found.lengths) and not np.any(found.finished)
    assert np.all(np.isneginf(found.scores))


def test_no_search_repeats_what_a_rule_forbids():
    model = random_automaton(5, batch=2, letters=12, layers=12)
    found = Fixed(5, no_repeat_ngram=1, max_length=4)(model.given())
    np.testing.assert_array_equal(found.lengths, [[1], [1]])
    for row in range(2):
        logits = model.logits[row, model.path([])[-1]].astype("float64")
        expected = logits[5] - np.log(np.exp(logits).sum())
        np.testing.assert_allclose(found.scores[row, 0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "returned, received",
    [
        (
            lambda tokens: (tokens, tf.zeros_like(tokens, tf.float32)),
            r"a tuple of 2 \(a tensor of dtype int32, shape \(2, 1\).*float32",
        ),
        (
            lambda tokens: tf.cast(tokens, tf.float32),
            r"a tensor of dtype float32, shape \(2, 1\), values \d+.0, \d+.0\.",
        ),
        (lambda tokens: tokens[:, 0], r"a tensor of dtype int32, shape \(2,\)"),
        (
            lambda tokens: tf.repeat(tokens, 30_000, axis=1),
            r"a tensor of dtype int32, shape \(2, 30000\), values (\d+, ){8}…",
        ),
        (
            lambda tokens: tokens.numpy(),
            r"an array of dtype int32, shape \(2, 1\), values \d+, \d+\.",
        ),
        (lambda tokens: None, "None of type NoneType"),
    ],
    ids=["scores too", "floats", "one axis", "too many", "array", "nothing"],
)
def test_what_is_not_tokens_is_refused_by_name(returned, received):
    class Wrong(keras_attn.Search):
        def choose(self, step, state):
            return returned(step.argmax())

    model = random_automaton(5, batch=2, letters=12, layers=12)
    message = f"`Wrong.choose` must return the tokens .*Received: {received}"
    with pytest.raises(TypeError, match=message) as caught:
        Wrong(max_length=4)(model.given())
    assert len(str(caught.value)) < 600


@pytest.mark.full
def test_a_graph_s_tensor_that_is_no_token_is_refused_by_shape_and_dtype():
    class Wrong(keras_attn.Search):
        def choose(self, step, state):
            return tf.cast(step.argmax(), tf.float32)

    model = random_automaton(5, batch=2, letters=12, layers=12)
    run = tf.function(lambda: Wrong(max_length=4)(model.given()))
    message = r"Received: a tensor of dtype float32, shape \((2|None), 1\)\. "
    with pytest.raises(TypeError, match=message):
        run()


def test_an_id_that_is_none_is_named_and_not_all_of_them():
    class Wrong(keras_attn.Search):
        num_hypotheses = 3_000

        def choose(self, step, state):
            return tf.fill(tf.shape(step.scores), 99)

    model = random_automaton(5, batch=2, letters=12, layers=12)
    message = r"shape \(2, 3000\), values (99, ){8}…, in which 99 is outside"
    with pytest.raises(ValueError, match=message):
        Wrong(max_length=4)(model.given())


@pytest.mark.full
@pytest.mark.parametrize("jit_compile", [False, True])
def test_it_finds_what_an_implementation_in_numpy_finds(jit_compile):
    model = random_automaton(5, batch=6, letters=12, layers=12)
    seeds = np.arange(6, dtype="int32")
    search = Mirostat(1.5, rate=0.4, num_hypotheses=3, max_length=10)
    run = tf.function(
        lambda: search(model.given(seed=seeds)), jit_compile=jit_compile
    )
    assert_is_mirostat(run(), model, search, seeds)


def test_its_state_follows_the_prefix_of_a_row():
    model = random_automaton(6, batch=3, letters=12, layers=12)
    inputs = {
        "seed": np.array([3, 4, 5], "int32"),
        "prefix": tokens_of("abc", "b", ""),
    }
    search = Mirostat(1.5, rate=0.9, max_length=10)
    found = search(model.given(**inputs))
    assert_is_mirostat(found, model, search, inputs["seed"], inputs["prefix"])


def test_a_row_s_options_are_those_of_a_search_of_its_own():
    model = random_automaton(7, batch=3, letters=12, layers=12)
    seeds = {"seed": np.array([1, 2, 3], "int32")}
    options = {
        "target": np.array([0.3, 2.0, 5.0], "float32"),
        "rate": np.array([0.0, 0.5, 1.0], "float32"),
        "max_length": np.array([10, 4, 7], "int32"),
    }
    search = Mirostat(num_hypotheses=2, max_length=10)
    found = search(model.given(options=options, **seeds))
    for row in range(3):
        own = {name: x[row].item() for name, x in options.items()}
        alone = dataclasses.replace(search, **own)
        expected = alone(model.given([row], **seeds))
        length = own["max_length"]
        cut = tf.nest.map_structure(lambda x, row=row: x[row, None], found)
        assert_same(
            cut._replace(
                tokens=cut.tokens[..., :length],
                alignments=cut.alignments[:, :, :length],
            ),
            expected,
        )


def test_the_rules_of_all_searches_hold_for_it():
    model = speller({"abcabc": 1.0})
    given = model.given(seed=np.array([1], "int32"))
    assert spell(Mirostat(max_length=4)(given)) == ["abca-"]
    assert spell(Mirostat(no_repeat_ngram=1)(given)) == ["abc-"]


# In a translator


@pytest.fixture(scope="module")
def translator(toys):
    return with_search(toys["greedy"], SEARCH)


def with_search(toy, search):
    return keras_attn.Translator(
        toy.models, toy.source_text, toy.target_text, search
    )


@pytest.mark.full
def test_it_translates_by_seeds_prefixes_and_options(translator):
    found = translator(LINES, seed=1)
    for row, other in zip(
        translator(LINES, seed=1, batch_size=3), found, strict=True
    ):
        assert_same_translation(row, other)
    assert translator(LINES, seed=2).text != found.text
    # So low a target keeps the likeliest token alone.
    low = translator(LINES, seed=1, options={"target": 1e-4, "rate": 0})
    greedy = with_search(translator, keras_attn.GreedySearch(9))(LINES)
    assert low.text == greedy.text
    prefixed = translator(LINES, seed=1, prefixes=["AA"] * ROWS)
    assert all(row.tokens[0] == "AA" for row in prefixed)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The source is empty")
def test_it_streams_what_it_returns(translator):
    for line in LINES[:4]:
        (expected,) = translator([line], seed=5)
        assert_streams(translator.stream(line, seed=5), expected)


@pytest.mark.full
def test_several_hypotheses_and_a_late_search_do_not_stream(toys):
    class Late(keras_attn.GreedySearch):
        streams = False

    for search in (Mirostat(num_hypotheses=2), Late()):
        name = type(search).__name__
        with pytest.raises(
            ValueError, match=rf"needs a search.*search=.*{name}\("
        ):
            with_search(toys["greedy"], search).stream("abc")


@pytest.mark.full
def test_it_is_saved_and_loaded_by_custom_objects(translator, tmp_path):
    translator.save(tmp_path)
    with pytest.raises(
        ValueError, match="custom_objects={'Mirostat': Mirostat}`"
    ):
        keras_attn.Translator.load(tmp_path)
    loaded = keras_attn.Translator.load(
        tmp_path, custom_objects={"Mirostat": Mirostat}
    )
    assert loaded.search == SEARCH and type(loaded.search) is Mirostat
    expected = translator(LINES, seed=3)
    for row, other in zip(loaded(LINES, seed=3), expected, strict=True):
        assert_same_translation(row, other)


@pytest.mark.full
def test_a_registered_search_is_loaded_by_another_process(toys, tmp_path):
    registered = keras.saving.register_keras_serializable("tests")(
        type("Registered", (Mirostat,), {})
    )
    toy = with_search(toys["greedy"], registered(2.0, max_length=9))
    toy.save(tmp_path)
    program = f"""
import keras, keras_attn
from support import own_search
@keras.saving.register_keras_serializable("tests")
class Registered(own_search.Mirostat):
    pass
loaded = keras_attn.Translator.load({str(tmp_path)!r})
assert type(loaded.search) is Registered
print(loaded({LINES!r}, seed=3).text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=own_search.__file__.rpartition("/support/")[0],
    )
    assert done.stdout.splitlines()[-1] == repr(toy(LINES, seed=3).text)
    # Given under its short name, the class need not be registered.
    loaded = keras_attn.Translator.load(
        tmp_path, custom_objects={"Registered": Mirostat}
    )
    assert loaded.search == Mirostat(2.0, max_length=9)


@pytest.mark.full
def test_options_that_json_cannot_hold_are_refused_before_anything_is_written(
    toys, tmp_path
):
    class Odd(keras_attn.GreedySearch):
        tokens: tuple = Option(default=())

    toy = with_search(toys["greedy"], Odd(tokens=(1, 2)))
    with pytest.raises(ValueError, match=r", which became .*Odd.*\[1, 2\]"):
        toy.save(tmp_path / "new")
    toy = with_search(toys["greedy"], Odd(tokens={1, 2}))
    with pytest.raises(ValueError, match="not JSON serializable"):
        toy.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.full
def test_a_search_that_is_named_as_another_is_not_saved(toys, tmp_path):
    impostor = type("BeamSearch", (keras_attn.GreedySearch,), {})
    toy = with_search(toys["greedy"], impostor(max_length=4))
    with pytest.raises(ValueError, match="whose name 'BeamSearch' is that of"):
        toy.save(tmp_path / "new")


@pytest.mark.full
def test_our_searches_are_saved_as_they_ever_were(toys, tmp_path):
    toys["greedy"].save(tmp_path)
    saved = json.loads((tmp_path / "translator.json").read_text())
    assert saved["search"] == "GreedySearch"
    assert saved["search_options"]["max_length"] == 10


@pytest.mark.full
def test_an_export_answers_by_it_through_serving_s_own_loader(
    translator, tmp_path
):
    path = str(translator.export(tmp_path / "models", signatures="all"))
    text = {"text": as_bytes(LINES)}
    asked = text | {
        "prefix": as_bytes(["AA", *[""] * (ROWS - 1)]),
        "seed": np.arange(ROWS, dtype="int32"),
        "target": np.array([2, -1, 0.5, 9, 1e-3, -1, 2, -3], "float32"),
        "rate": np.full(ROWS, -1, "float32"),
        "max_length": np.full(ROWS, -1, "int32"),
        "min_length": np.full(ROWS, -1, "int32"),
    }
    requests = [
        (path, "options", asked, "c"),
        *((path, x, text, "c") for x in ("serving_default", "nbest", "align")),
        (path, SEARCH.max_length, text, "c"),  # a client's own, by steps
        (path, "score", text | {"target": as_bytes(["AA B"] * ROWS)}, "c"),
        *((path, *x, "c") for x in warm_ups(tmp_path / "models" / "1")),
    ]
    answer, *others = ask(requests)
    assert not [x for x in others if isinstance(x, tuple)]
    for row in range(ROWS - 1):
        task_seed = asked["seed"][row]
        target = asked["target"][row]
        expected = decoded(
            translator,
            LINES[row],
            task_seed,
            SEARCH.target if target < 0 else target,
            asked["prefix"][row].decode(),
        )
        assert answer["text"][row].decode() == expected[0]
        np.testing.assert_allclose(answer["score"][row], expected[1], atol=1e-5)
        assert not answer["error"][row]
    assert b"`target` must be above 0 and finite" in answer["error"][-1]
    score = others[4]["score"]
    expected = translator.score(LINES, ["AA B"] * ROWS).scores
    np.testing.assert_allclose(score, expected, atol=1e-5)


def decoded(translator, line, seed, target, prefix):
    """Returns text and score for the seed that the search itself gets."""
    found = translator.pipeline.decode(
        (tf.constant([line]),),
        {
            "seed": tf.constant([seed]),
            "prefix": tf.constant([prefix]),
            "options": {"target": tf.constant([target], tf.float32)},
        },
    )
    return found.texts.numpy()[0, 0].decode(), found.hypotheses.scores[0, 0]


# What a search states once


class Wordy(keras_attn.Search):
    """Declares an option of each kind."""

    share: float = Real(
        default=0.5,
        low=0,
        high=1,
        above=True,
        meaning="is a share",
        advice="0.5 is half.",
    )
    mode: str = Choice("a", "b", default="a")
    count: int = Integer(default=2, low=1, high="max_length", last=True)
    anything: object = Option(default=None, last=True)


def test_options_are_arguments_in_order_own_ones_first():
    names = [x.name for x in dataclasses.fields(Wordy)]
    assert names[:3] == ["share", "mode", "max_length"]
    assert names[-3:] == ["count", "anything", "rules"]
    search = Wordy(0.25, "b", 9, count=9)
    assert search == Wordy(mode="b", share=0.25, count=9, max_length=9)
    assert search != Wordy() and hash(search) == hash(
        Wordy(0.25, "b", 9, count=9)
    )
    assert repr(search).startswith("Wordy(share=0.25, mode='b', max_length=9,")
    assert Wordy.from_config(search.get_config()) == search
    with pytest.raises(dataclasses.FrozenInstanceError):
        search.share = 0.5


@pytest.mark.parametrize(
    "options, message",
    [
        ({"share": 0}, "`share` is a share and must be above 0 and at most 1"),
        ({"share": 2}, r"Received: share=2. 0.5 is half."),
        ({"share": "1"}, "`share` must be a finite number. Received: sh.*'1'"),
        ({"mode": "c"}, '`mode` must be "a" or "b". Received: mode=\'c\''),
        ({"count": 2.0}, "`count` must be an integer. Received: count=2.0"),
        ({"count": 8, "max_length": 7}, "1 and `max_length`.*=8, max_length=7"),
        ({"max_length": 0}, "`max_length` counts tokens"),
    ],
)
def test_an_option_s_range_makes_its_check(options, message):
    with pytest.raises(ValueError, match=message):
        Wordy(**options)


def test_the_docstring_of_a_search_of_one_s_own_stays_as_written():
    assert Wordy.__doc__ == "Declares an option of each kind."


def test_an_option_needs_room_for_the_sign_of_the_search_s_own():
    with pytest.raises(ValueError, match="-1 stands for the search's own"):
        Real(default=0.0, low=-2, request=True)
    with pytest.raises(ValueError, match="-1 stands for the search's own"):
        Real(default=0.0, request=True)


@pytest.mark.parametrize("name", ["seed", "prefix", "draws", "streams"])
def test_an_option_may_not_take_another_s_name(name):
    with pytest.raises(TypeError, match=f"may not be named '{name}'"):
        type("Mine", (keras_attn.Search,), {name: Real(default=0.5)})


def test_a_name_of_every_search_may_not_be_something_else():
    for name in ("rules", "max_length"):
        with pytest.raises(TypeError, match=f"`{name}` is an option of every"):
            type("Mine", (keras_attn.Search,), {name: 7})


def test_fields_that_are_no_options_are_in_the_configuration():
    class Scaled(keras_attn.Search):
        rate: float = Real(default=0.5)
        scale: float = 2.0

    search = Scaled(1.0, scale=3.0)
    assert search.get_config()["scale"] == 3.0
    assert Scaled.from_config(search.get_config()) == search


def test_options_of_a_subclass_stand_where_they_stood_before_rules():
    class Longer(keras_attn.GreedySearch):
        mine: int = Integer(default=1)

    search = Longer(100, 1, None, None, 0, 1.0, 5)
    assert search.mine == 5 and search.rules == ()
    with pytest.raises(TypeError, match="positional"):
        keras_attn.GreedySearch(100, 1, None, None, 0, 1.0, ())


def test_a_step_tells_the_new_name_of_what_is_banned():
    class Looking(keras_attn.Search):
        def choose(self, step, state):
            assert step.allowed is None and len(step.penalties) == 2
            with pytest.raises(AttributeError, match="`penalties` since"):
                _ = step.banned
            return step.argmax()

    assert spell(Looking(max_length=3)(speller({"a": 1.0}).given())) == ["a"]


def test_the_base_is_no_search_and_a_search_needs_a_choice():
    with pytest.raises(
        TypeError, match="abstract base class.*Received: a call"
    ):
        keras_attn.Search()
    with pytest.raises(NotImplementedError, match="Wordy, which has none"):
        Wordy()(speller({"a": 1.0}).given())


def test_a_search_that_draws_needs_seeds():
    with pytest.raises(ValueError, match="`Mirostat` needs a seed for each"):
        Mirostat()(speller({"a": 1.0}).given())
