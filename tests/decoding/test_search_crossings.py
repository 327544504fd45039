"""Combines all options of the searches, and compares with the reference.

For all options, too, a row alone finds the same as in a batch, and a graph
finds the same as eager execution and XLA.
"""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from support import reference_search as reference
from support.reference_search import numbers_of
from support.spelling import END
from support.spelling import as_reference
from support.spelling import assert_found
from support.spelling import assert_same
from support.spelling import random_automaton

from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn import Sampling
from keras_attn.decoding import StepModel
from keras_attn.decoding import candidates
from keras_attn.decoding import draws

ROWS = 3
PAIRS = st.sampled_from([None, None, (0.5, 1), (1, -2), (2, 0)])
COMMON = {
    "max_length": st.integers(1, 6),
    "max_per_source": PAIRS,
    "min_per_source": PAIRS,
    "no_repeat_ngram": st.sampled_from([0, 0, 1, 2, 3]),
    "repetition_penalty": st.sampled_from([1.0, 1.0, 1.7]),
}
BEAM = {
    "length_penalty": st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    "penalty": st.sampled_from(["gnmt", "power"]),
    "early_stopping": st.sampled_from([True, False, "never"]),
    "coverage_penalty": st.sampled_from([0.0, 0.0, 0.3]),
    "length_offset": st.integers(0, 2),
}
SAMPLING = {
    "temperature": st.sampled_from([1.0, 0.6, 2.5]),
    "top_k": st.integers(0, 4),
    "top_p": st.sampled_from([1.0, 0.35, 0.8]),
    "num_hypotheses": st.integers(1, 4),
}


def some(draw, strategies):
    return {name: draw(strategy) for name, strategy in strategies.items()}


@st.composite
def searches(draw):
    options = some(draw, COMMON)
    options["min_length"] = draw(st.integers(1, options["max_length"]))
    kind = draw(
        st.sampled_from([BeamSearch, BeamSearch, GreedySearch, Sampling])
    )
    if kind is Sampling:
        options |= some(draw, SAMPLING)
    if kind is BeamSearch:
        options |= some(draw, BEAM)
        groups = draw(st.sampled_from([1, 1, 2, 3]))
        if groups == 1:
            options["cut"] = draw(st.sampled_from(["last", "by_score"]))
        width = groups * draw(st.integers(1, 5 // groups))
        options |= {
            "num_beams": width,
            "num_hypotheses": draw(st.integers(1, width)),
            "groups": groups,
            "diversity": draw(st.sampled_from([0.4, 2.0])) if groups > 1 else 0,
        }
    return kind(**options)


def rows(values):
    return st.lists(values, min_size=ROWS, max_size=ROWS)


@st.composite
def inputs(draw, search, states, letters):
    """Draws the inputs of some rows, and options of the request."""
    made = {"source_lengths": np.array(draw(rows(st.integers(1, 5))), "int32")}
    if draw(st.booleans()):
        mask = np.arange(states) < draw(st.integers(1, states))
        made["source_mask"] = np.stack([mask] * ROWS)
    if draw(st.booleans()):
        length = draw(st.integers(0, 4))
        token = st.integers(END, END + letters)
        prefix = np.array(
            draw(rows(st.lists(token, min_size=length, max_size=length))),
            "int32",
        ).reshape(ROWS, length)
        lengths = np.array(draw(rows(st.integers(0, length))))
        made["prefix"] = prefix * (np.arange(length) < lengths[:, None])
    if isinstance(search, Sampling):
        seed = draw(rows(st.integers(-(2**31), 2**31 - 1)))
        made["seed"] = np.array(seed, "int32")
    if draw(st.booleans()):
        made["options"] = draw(requests(search))
    return made


@st.composite
def requests(draw, search):
    longest = search.max_length
    values = {
        "max_length": st.integers(1, longest),
        "min_length": st.integers(1, longest),
        "num_beams": st.integers(1, getattr(search, "num_beams", 1)),
        "length_penalty": st.sampled_from([0.0, 0.7, 1.5]),
        "coverage_penalty": st.sampled_from([0.0, 0.4]),
        "temperature": st.sampled_from([0.5, 1.0, 2.0]),
        "top_k": st.integers(0, 4),
        "top_p": st.sampled_from([0.3, 0.75, 1.0]),
    }
    known = search.request_options
    names = draw(st.sets(st.sampled_from(sorted(known))))
    return {
        name: np.array(draw(rows(values[name])), known[name].as_numpy_dtype)
        for name in sorted(names)
    }


def expected_of(search, model, row, made):
    options = as_reference(search, row, made.get("options"))
    row_ = model.row(row, **made)
    if isinstance(search, GreedySearch):
        return reference.greedy_search(row_, options)
    if isinstance(search, Sampling):
        numbers = numbers_of(
            int(made["seed"][row]), search.num_hypotheses, search.max_length
        )
        return reference.sampling(row_, options, numbers)
    return reference.beam_search(row_, options)


def check(search, model, made, by_chunks):
    """Compares searches, with chunks small enough for the vocabulary too."""
    large = 1 if by_chunks else 10**6
    with (
        mock.patch.multiple(candidates, LARGE=large, CHUNK=2),
        mock.patch.multiple(draws, CHUNK=2, FIRST=large),
    ):
        found = search(model.given(**made))
    for row in range(ROWS):
        expected = expected_of(search, model, row, made)
        assert_found(found, row, expected, model)


@st.composite
def cases(draw):
    search = draw(searches())
    letters = draw(st.integers(1, 4))
    model = random_automaton(draw(st.integers(0, 10**6)), ROWS, letters)
    made = draw(inputs(search, model.logits.shape[1], letters))
    return search, model, made, draw(st.booleans())


@pytest.mark.full
@given(cases())
@settings(max_examples=150)
def test_a_search_is_what_its_documentation_says(case):
    check(*case)


@pytest.mark.full
@given(cases())
@settings(max_examples=2000)
def test_a_search_is_what_its_documentation_says_in_many_crossings(case):
    check(*case)


# Found by trying many: in each case a search with the fault that its name
# describes finds something else.
CORNERS = {
    "the likeliest beam of a group need not be its first": (
        BeamSearch(
            6,
            5,
            early_stopping=False,
            max_length=3,
            max_per_source=(1, 0),
            no_repeat_ngram=1,
            groups=3,
            diversity=2.0,
        ),
        (529985, 4, [6, 5, 4]),
    ),
    "what a group has to cut is sorted by score": (
        BeamSearch(
            6,
            6,
            early_stopping=True,
            max_length=5,
            max_per_source=(1, 0),
            groups=3,
            diversity=2.0,
        ),
        (94041, 4, [5, 1, 6]),
    ),
    "a group that has stopped chooses no tokens": (
        BeamSearch(
            4,
            1,
            early_stopping=True,
            max_length=5,
            coverage_penalty=0.5,
            groups=2,
            diversity=2.0,
        ),
        (386740, 4, [5, 4, 1]),
    ),
    "beams that are none choose no tokens": (
        BeamSearch(
            6,
            3,
            1.0,
            "power",
            max_length=5,
            max_per_source=(1, 0),
            no_repeat_ngram=2,
            coverage_penalty=0.5,
            groups=3,
            diversity=2.0,
        ),
        (134973, 2, [6, 4, 3]),
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_groups_keep_their_rules_in_the_corners(name):
    search, (seed, letters, lengths) = CORNERS[name]
    model = random_automaton(seed, ROWS, letters)
    made = {"source_lengths": np.array(lengths, "int32")}
    check(search, model, made, by_chunks=False)


ROWS_OF_INPUTS = {
    "source_lengths": np.array([1, 5, 3], "int32"),
    "source_mask": np.arange(28) < np.array([[9], [28], [20]]),
    "prefix": np.array([[3, 4], [0, 0], [5, 0]], "int32"),
    "seed": np.array([7, 8, 7], "int32"),
}
RULES = {
    "max_length": 6,
    "max_per_source": (1, 2),
    "min_per_source": (0.5, 1),
    "no_repeat_ngram": 2,
    "repetition_penalty": 1.3,
}
COVERING = [
    (GreedySearch(max_length=6), {}),
    (GreedySearch(max_length=5, min_length=3), {}),
    (GreedySearch(**RULES), {"max_length": [2, 6, 4]}),
    (BeamSearch(1, max_length=5), {}),
    (BeamSearch(3, 3, 0.6, "gnmt", False, 6, 2), {}),
    (BeamSearch(6, 6, 1.0, "power", "never", 4), {}),
    (
        BeamSearch(5, 5, coverage_penalty=0.3, **RULES),
        {"num_beams": [5, 2, 3], "length_penalty": [0.0, 1.0, 0.5]},
    ),
    (BeamSearch(4, 3, groups=2, diversity=0.5, **RULES), {}),
    (Sampling(num_hypotheses=2, max_length=6), {}),
    (
        Sampling(1.3, 3, 0.8, 3, **RULES),
        {"temperature": [0.5, 1.0, 2.0], "top_p": [1.0, 0.4, 0.7]},
    ),
]
covering = pytest.mark.parametrize(
    "search, options", COVERING, ids=lambda x: type(x).__name__
)


def inputs_of(search, options):
    """Returns the inputs that a search's options need, and a seed."""
    made = {"seed": ROWS_OF_INPUTS["seed"]}
    if search.max_per_source:
        made = dict(ROWS_OF_INPUTS)
    if options:
        made["options"] = {
            name: np.array(x, search.request_options[name].as_numpy_dtype)
            for name, x in options.items()
        }
    return made


@covering
def test_a_row_alone_finds_what_it_finds_in_a_batch(search, options):
    model = random_automaton(5, batch=3, letters=3)
    made = inputs_of(search, options)
    together = search(model.given(**made))
    for row in range(3):
        alone = search(model.given([row], **made))
        assert_same(
            alone,
            tf.nest.map_structure(lambda x, row=row: x[row, None], together),
        )


@pytest.mark.sample_cases(2)
@covering
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "XLA"])
def test_a_graph_finds_what_eager_execution_finds(search, options, jit_compile):
    model = random_automaton(6, batch=3, letters=3)
    made = inputs_of(search, options)
    eager = search(model.given(**made))
    graph = tf.function(
        lambda: search(model.given(**made)),
        jit_compile=jit_compile,
        autograph=False,
    )
    assert_same(graph(), eager)


@pytest.mark.sample_cases(7)
@covering
@pytest.mark.parametrize("graph", [True, False], ids=["graph", "eager"])
def test_a_batch_without_rows_finds_nothing(search, options, graph):
    model = random_automaton(7, batch=3, letters=2)
    made = inputs_of(search, options)
    number, length = search.num_hypotheses, search.max_length

    def run():
        return search(model.given(slice(0, 0), **made))

    found = tf.function(run, autograph=False)() if graph else run()
    assert found.tokens.shape == (0, number, length)
    assert found.scores.shape == (0, number)
    assert found.lengths.shape == (0, number)
    assert found.finished.shape == (0, number)
    assert found.alignments.shape == (0, number, length, 28)


@covering
def test_shapes_and_dtypes_are_as_documented(search, options):
    model = random_automaton(8, batch=3, letters=3)
    made = inputs_of(search, options)
    found = (
        tf.function(lambda: search(model.given(**made)), autograph=False)
        .get_concrete_function()
        .structured_outputs
    )
    number, length = search.num_hypotheses, search.max_length
    *found, columns = found
    assert columns == ()
    assert [x.shape for x in found] == [
        (3, number, length),
        (3, number),
        (3, number),
        (3, number),
        (3, number, length, 28),
    ]
    assert [x.dtype for x in found] == [
        tf.int32,
        tf.int32,
        tf.float32,
        tf.bool,
        tf.float32,
    ]


class Forgetful(StepModel):
    """Another model, with more in its state, of which a part is None."""

    def __init__(self, model):
        self.rows, self._model = model.rows, model

    def start(self, beams, places=None):
        return {"states": self._model.start(beams), "mask": None}

    def step(self, tokens, state):
        logits, alignments, new = self._model.step(tokens, state["states"])
        return logits, alignments, {"states": new, "mask": state["mask"]}


def test_what_a_model_need_not_remember_may_be_none():
    given = random_automaton(9, batch=2).given()
    for search in (GreedySearch(max_length=4), BeamSearch(3, max_length=4)):
        expected = search(given)
        other = given._replace(model=Forgetful(given.model))
        assert_same(search(other), expected)
        graph = tf.function(lambda s=search, x=other: s(x), autograph=False)
        assert_same(graph(), expected)
