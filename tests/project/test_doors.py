"""Mistakes of those who write parts of their own: each is named, or warned of.

A part is a score, an alignment, a stepper, a search or a splitter.
"""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops
from support.splitters import Bytes

import keras_attn
from keras_attn import Text
from keras_attn.decoding import Choice
from keras_attn.decoding import Integer
from keras_attn.decoding import Option
from keras_attn.decoding import Real
from keras_attn.decoding.search_trial import try_search
from keras_attn.text.built_in import Characters

# Scores and alignments

DIM = 4


def scored(call, base=keras_attn.DotScore, **methods):
    kind = type("Mine", (base,), {"call": call, **methods})
    return keras_attn.Attention(kind())


def attend(attention, target=3, source=5):
    return attention(np.ones((2, target, DIM)), np.ones((2, source, DIM)))


@pytest.mark.parametrize(
    "call",
    [
        lambda self, query, keys: ops.mean(query, -1, keepdims=True),
        lambda self, query, keys: ops.mean(keys, -1),
        lambda self, query, keys: ops.mean(keys, -1)[:, None],
        lambda self, query, keys: ops.matmul(keys, ops.swapaxes(query, 1, 2)),
        lambda self, query, keys: query,
    ],
    ids=["one a query", "no target", "one a key", "swapped", "other width"],
)
@pytest.mark.parametrize("lengths", [(3, 5), (5, 5)])
def test_a_score_that_is_none_for_each_pair_is_refused(call, lengths):
    with pytest.raises(ValueError, match="`Mine.call` must return a score"):
        attend(scored(call), *lengths)


def test_a_score_that_looks_at_positions_is_refused_in_its_calls():
    def call(self, query, keys, position):
        return ops.mean(query, -1, keepdims=True)

    attention = scored(call)
    with pytest.raises(ValueError, match=r"here \(batch, 3, 5\)"):
        attend(attention)
    function = tf.function(lambda query, value: attention(query, value))
    spec = tf.TensorSpec([None, None, DIM])
    with pytest.raises(ValueError, match=r"here \(batch, None, None\)"):
        function.get_concrete_function(spec, spec)


def test_a_score_may_name_only_what_is_passed():
    def call(self, query, keys, histroy):
        return ops.matmul(query, ops.swapaxes(keys, 1, 2))

    with pytest.raises(ValueError, match="Received: `histroy`, which nothing"):
        scored(call)


def test_a_mechanism_without_its_method_is_refused_where_it_is_passed():
    class NoScore(keras_attn.Score):
        pass

    class NoAlignment(keras_attn.Alignment):
        pass

    class NoWindow(keras_attn.SoftmaxAlignment):
        window_width = 3

    for parts, message in (
        ([NoScore()], r"`NoScore` needs a method `call\(self, query, keys\)`"),
        (
            [keras_attn.DotScore(), NoAlignment()],
            r"`NoAlignment` needs a method `call\(self, scores, allowed=None",
        ),
        (
            [keras_attn.DotScore(), NoWindow()],
            r"needs a method `choose\(self, .*`NoWindow`, which has none",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            keras_attn.Attention(*parts)


def test_a_state_that_no_call_reads_is_refused():
    with pytest.raises(ValueError, match="whose `call` does not name it"):
        scored(
            lambda self, query, keys: query,
            initial_carry=lambda self, keys, beams: ops.zeros((1, beams, 2)),
        )


def test_weights_of_another_shape_are_refused():
    class Mine(keras_attn.Alignment):
        def call(self, scores, allowed=None):
            return ops.mean(scores, axis=-1, keepdims=True)

    attention = keras_attn.Attention(keras_attn.DotScore(), Mine())
    with pytest.raises(ValueError, match="`Mine.call` must return a weight"):
        attend(attention)


@keras.saving.register_keras_serializable("tests_doors")
class Careless(keras_attn.Alignment):
    """Gives weight to padding."""

    def call(self, scores, allowed=None):
        return ops.softmax(ops.cast(scores, "float32"), axis=-1)


def model_with(layer):
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory = layers.Embedding(9, 8, mask_zero=True)(source)
    hidden = layer(layers.Embedding(9, 8)(target), memory)
    return keras.Model([source, target], layers.Dense(9)(hidden))


def text():
    return Text("abcde", split="characters")


@pytest.mark.full
def test_an_alignment_that_gives_weight_to_padding_is_blamed():
    def layer(hidden, memory):
        attention = keras_attn.Attention(keras_attn.GeneralScore(), Careless())
        context = attention(hidden, memory)
        return layers.GRU(8, return_sequences=True)(context)

    with pytest.warns(UserWarning, match="its alignment gives weight to pad"):
        keras_attn.Translator(model_with(layer), text(), text())


# Steppers


class Decay(layers.Layer):
    """`y[t] = x[t] + y[t - 1] / 2`, position by position."""

    def call(self, inputs):
        def step(before, now):
            after = now + before / 2
            return after, after

        by_time = ops.swapaxes(inputs, 0, 1)
        _, outputs = ops.scan(step, ops.zeros_like(by_time[0]), by_time)
        return ops.swapaxes(outputs, 0, 1)


def decode(start, step, **attributes):
    """Cuts and decodes a model whose stepper has these methods."""
    layer = type("Mine", (Decay,), {"call": Decay.call})
    methods = {"start": start, "step": step, **attributes}
    stepper = type("MineStepper", (keras_attn.Stepper,), methods)
    keras_attn.stepper_for(layer)(stepper)

    def path(hidden, memory):
        changed = layer(name="culprit")(hidden)
        return keras_attn.Attention(keras_attn.GeneralScore())(changed, memory)

    cut = keras_attn.Incremental(model_with(path))
    source = np.ones((2, 3), "int32")
    cut.check(source, np.ones((2, 4), "int32"))


def zeros(self, prepared, batch, beams, max_length):
    return ops.zeros((batch, beams, 8))


def halved(self, inputs, prepared, state, position):
    now = inputs["inputs"] + state / 2
    return now, None, now


def test_the_stepper_without_a_mistake_is_taken():
    decode(zeros, halved)


@pytest.mark.parametrize(
    ("start", "step", "others"),
    [
        (
            lambda self, *given: {"a": zeros(self, *given), "b": None},
            lambda self, inputs, _, state, position: (
                *halved(self, inputs, _, state["a"], position)[:2],
                {"a": inputs["inputs"] + state["a"] / 2, "b": None},
            ),
            {},
        ),
        (
            lambda self, *given: [zeros(self, *given)],
            lambda self, inputs, _, state, position: (
                *halved(self, inputs, _, state[0], position)[:2],
                (inputs["inputs"] + state[0] / 2,),
            ),
            {},
        ),
        (
            lambda self, *given: (zeros(self, *given), ops.zeros((), "int32")),
            lambda self, inputs, _, state, position: (
                *halved(self, inputs, _, state[0], position)[:2],
                (inputs["inputs"] + state[0] / 2, state[1] + 1),
            ),
            {
                "reorder": lambda self, state, parents: (
                    keras_attn.Stepper.reorder(self, state[0], parents),
                    state[1],
                )
            },
        ),
    ],
    ids=["None", "tuple for list", "scalar"],
)
def test_a_stepper_may_keep_what_it_likes(start, step, others):
    decode(start, step, **others)


@pytest.mark.parametrize(
    ("start", "step", "message"),
    [
        (lambda self, *_: None, halved, "start` must return the first state"),
        (
            lambda self, prepared, batch, beams, _: ops.zeros(
                (batch * beams, 8)
            ),
            halved,
            "first axes are batch and beams",
        ),
        (
            lambda self, prepared, batch, beams, _: ops.zeros((beams,)),
            halved,
            "first axes are batch and beams",
        ),
        (
            zeros,
            lambda self, inputs, *_: (inputs["inputs"], _[1]),
            "three results.* Received: 2 results",
        ),
        (zeros, lambda self, inputs, *_: inputs["inputs"], "three results"),
        (
            zeros,
            lambda self, inputs, *_: (inputs["inputs"][..., :3], None, _[1]),
            r"here \(batch, beams, 8\). Received: a tensor \(.*, 3\)",
        ),
        (
            zeros,
            lambda self, inputs, prepared, state, _: (
                state,
                None,
                ops.concatenate([state, state], -1),
            ),
            "sizes and dtypes that it got",
        ),
        (
            zeros,
            lambda self, inputs, prepared, state, _: (
                state,
                None,
                ops.cast(state, "float16"),
            ),
            "of float16 after .* of float32",
        ),
        (
            zeros,
            lambda self, inputs, prepared, state, _: (state, None, [state] * 2),
            "state of the structure that it got",
        ),
        (
            zeros,
            lambda self, inputs, prepared, state, position: (
                state * position,
                None,
                state,
            ),
            "`position` is None here",
        ),
        (
            zeros,
            lambda self, inputs, prepared, state, _: (
                state,
                state[..., :3],
                state,
            ),
            "which would be lost",
        ),
    ],
)
def test_a_stepper_that_breaks_a_rule_is_named(start, step, message):
    with pytest.raises(ValueError, match=message) as raised:
        decode(start, step)
    assert "MineStepper" in str(raised.value)


def test_a_stepper_that_attends_returns_alignments():
    with pytest.raises(ValueError, match="since it sets `attends = True`"):
        decode(zeros, halved, attends=True)


def test_a_stepper_without_a_step_is_refused_where_it_is_written():
    with pytest.raises(ValueError, match="Received: NoStep, which has none"):

        @keras_attn.stepper_for(Decay)
        class NoStep(keras_attn.Stepper):
            pass


def test_a_stepper_is_for_some_layer():
    with pytest.raises(ValueError, match="Received: none"):
        keras_attn.stepper_for()


# Searches


class Draws(keras_attn.Search):
    """Draws from the likeliest tokens.

    Args:
        margin: Largest distance from the likeliest, as a logarithm.
            Defaults to `1.0`.
        num_hypotheses: Number of draws per source. Defaults to `1`.
    """

    margin: float = Real(default=1.0, low=0, request=True)
    num_hypotheses: int = Integer(default=1, low=1)
    draws = True

    def near(self, step, margin):
        logp = step.log_probabilities
        best = tf.reduce_max(logp, axis=-1, keepdims=True)
        return tf.where(logp >= best - margin, tf.exp(logp), 0.0)

    def choose(self, step, state):
        return step.pick(self.near(step, step.for_all_tokens(self.margin)))


class OneAxisShort(Draws):
    """Its option lies along the hypotheses."""

    def choose(self, step, state):
        return step.pick(self.near(step, self.margin))


class Mixes(Draws):
    """Lets rows see each other."""

    def choose(self, step, state):
        best = tf.reduce_max(step.log_probabilities, axis=[0, 1], keepdims=True)
        stays = step.log_probabilities >= best - 1.0
        likeliest = tf.one_hot(step.argmax(), stays.shape[-1])
        return step.pick(tf.where(stays, 1.0, likeliest))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_search_may_be_tried(count):
    try_search(Draws(num_hypotheses=count), 11)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_an_option_that_falls_on_hypotheses_is_found(count):
    with pytest.raises(ValueError, match="`step.for_all_tokens"):
        try_search(OneAxisShort(num_hypotheses=count), 11)


def test_a_search_that_mixes_rows_is_found():
    with pytest.raises(ValueError, match="each row of a batch by itself"):
        try_search(Mixes(), 11)


def test_a_translator_tries_a_search_first():
    with pytest.raises(ValueError, match="each row of a batch by itself"):
        keras_attn.Translator(
            model_with(keras_attn.BahdanauAttention(8)), text(), text(), Mixes()
        )


def test_drawing_without_random_numbers_is_refused():
    class Still(Draws):
        draws = False

    with pytest.raises(ValueError, match="Set `draws = True`"):
        try_search(Still(), 11)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_weights_that_are_none_are_refused(weight):
    class Wrong(Draws):
        def choose(self, step, state):
            return step.pick(tf.fill(tf.shape(step.logits), weight))

    with pytest.raises(ValueError, match="weights that are finite"):
        try_search(Wrong(), 11)


class Schedule:
    def __init__(self, rate):
        self.rate = rate


class Unusual(Draws):
    """Has what a search may well have.

    Args:
        schedule: An object. Defaults to `None`.
        far: A large number. Defaults to `1e7`.
    """

    schedule: object = Option(default=None)
    far: float = Real(default=1e7, low=2e6, request=True)
    steep: float = Real(default=1.0, low=0, high=1000, request=True)
    num_hypotheses: int = Choice(1, 2, default=2)

    def check(self):
        ramp = tf.linspace(1.0, 2.0, self.max_length)
        object.__setattr__(self, "_ramp", ramp)

    def get_config(self):
        return super().get_config() | {"schedule": {"rate": 2.0}}

    def start(self, search_input):
        assert search_input.source_mask.dtype == tf.bool
        return tf.zeros([search_input.batch, 2, self.max_length])

    def choose(self, step, state):
        logits = step.choices * self.schedule.rate
        logits += 0 * tf.reduce_sum(state * self._ramp, -1, keepdims=True)
        weights = tf.nn.softmax(logits) ** step.for_all_tokens(self.steep)
        return step.pick(tf.where(step.done[..., None], 0.0, weights))


def test_a_search_may_be_unusual():
    try_search(Unusual(schedule=Schedule(2.0), max_length=9), 11)


def test_a_search_that_draws_by_itself_is_not_compared():
    class Own(keras_attn.Search):
        def choose(self, step, state):
            uniform = tf.random.uniform(tf.shape(step.choices))
            return tf.argmax(step.choices + 9 * uniform, -1)

    try_search(Own(), 11)


def test_a_constructor_without_options_of_its_own_is_left_alone():
    class Own(keras_attn.GreedySearch):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            object.__setattr__(self, "log", [])

    try_search(Own(max_length=3), 11)


@pytest.mark.parametrize("token", [-1, 11, 999])
def test_ids_that_no_token_has_are_refused(token):
    class Beyond(Draws):
        def choose(self, step, state):
            return tf.zeros_like(step.argmax()) + token

    with pytest.raises(ValueError, match="ids of the vocabulary, 0 to 10"):
        try_search(Beyond(), 11)


def declare(name="width", option=None, **others):
    return type("Mine", (keras_attn.Search,), {name: option, **others})


@pytest.mark.parametrize("name", ["class", "_hidden", "self", "text", "run"])
def test_an_option_has_a_name_that_an_argument_can_have(name):
    with pytest.raises(TypeError, match=f"{name!r}"):
        declare(name, Option(1))


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("num_hypotheses", Real(1.0, low=1)),
        ("num_hypotheses", Integer(1)),
        ("max_length", Real(5.0, low=1)),
        ("no_repeat_ngram", Option(1)),
    ],
)
def test_an_option_that_all_searches_have_keeps_its_kind(name, option):
    with pytest.raises(TypeError, match=f"`{name}` must be"):
        declare(name, option)


def test_the_limit_of_an_option_is_declared_before_it():
    with pytest.raises(TypeError, match="high='nothing'"):
        declare(option=Integer(1, high="nothing"))
    assert declare(option=Integer(1, high="max_length"))(3).width == 3


def test_an_option_needs_a_range():
    with pytest.raises(ValueError, match="`low` of at most `high`"):
        Real(1.0, low=2, high=1)


def test_a_search_has_no_constructor_of_its_own():
    with pytest.raises(TypeError, match="options and an `__init__`"):
        declare(option=Option(1), __init__=lambda self: None)


# Splitters


class Part(keras_attn.Splitter):
    """Characters, some of which are lost."""

    separator = ""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.characters = Characters()

    def split(self, strings):
        return self.function(self.characters.split(strings))

    def get_config(self):
        return {"function": None}


def without_digits(pieces):
    digit = tf.strings.regex_full_match(pieces, "[0-9]")
    return tf.ragged.boolean_mask(pieces, ~digit)


@pytest.mark.parametrize(
    "function", [lambda x: x[:, :5], without_digits], ids=["first", "letters"]
)
def test_a_splitter_that_loses_text_is_warned_of(function):
    with pytest.warns(UserWarning, match="`Part` loses text: .* comes back as"):
        Text("abc", split=Part(function))


def test_a_splitter_may_lose_text_on_purpose():
    part = Part(without_digits)
    part.keeps_text = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Text("abc", split=part)
        Text("abc", split=Part(lambda x: x))


def test_lines_that_lose_letters_are_warned_of():
    def no_accents(pieces):
        return tf.ragged.boolean_mask(pieces, pieces != "é")

    with pytest.warns(UserWarning, match="'café' comes back as 'caf'"):
        Text.from_lines(["café"], split=Part(no_accents))


class Forgetful(keras_attn.Splitter):
    """Has an id for each letter, and writes nothing for one of them."""

    def __init__(self, lost=""):
        super().__init__()
        self.lost = lost
        self.tokens = list("abcdefghijklmnopqrstuvwxyz")

    def ids(self, strings):
        letters = tf.strings.unicode_split(strings, "UTF-8")
        places = tf.argmax(
            letters.flat_values[:, None] == tf.constant(self.tokens), axis=-1
        )
        known = tf.strings.regex_full_match(letters.flat_values, "[a-z]")
        places = tf.where(known, 4 + places, 3)
        return letters.with_flat_values(tf.cast(places, tf.int32))

    def strings(self, ids):
        written = ["", "", "", "?", *self.tokens]
        written = ["" if x == self.lost else x for x in written]
        letters = tf.gather(tf.constant(written), ids.flat_values)
        return tf.strings.reduce_join(ids.with_flat_values(letters), axis=-1)

    def get_config(self):
        return {"lost": self.lost}


def test_a_token_that_is_never_written_is_warned_of():
    with pytest.warns(UserWarning, match="returns '' for the token 'z'"):
        Text(split=Forgetful("z"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Text(split=Forgetful())
        Text(split=Bytes())


def test_a_search_without_a_choice_is_refused_by_its_translator():
    class NoChoice(keras_attn.Search):
        pass

    def layer(hidden, memory):
        return keras_attn.ScaledDotAttention()(hidden, memory)

    message = "needs a method `choose` .*Received: NoChoice, which has none"
    with pytest.raises(NotImplementedError, match=message):
        keras_attn.Translator(model_with(layer), text(), text(), NoChoice())
