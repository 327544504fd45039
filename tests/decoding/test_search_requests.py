"""Options that a request sets, row by row."""

import numpy as np
import pytest
import tensorflow as tf
from support.spelling import assert_same
from support.spelling import random_automaton
from support.spelling import speller

from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn import Sampling


def first(found, row, number):
    """Returns a row's first hypotheses."""
    return tf.nest.map_structure(lambda x: x[row, None, :number], found)


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_a_row_with_fewer_beams_finds_what_a_search_with_so_many_finds(
    early_stopping,
):
    model = random_automaton(31, batch=5, letters=3)
    options = {
        "length_penalty": 1.0,
        "penalty": "power",
        "early_stopping": early_stopping,
        "max_length": 6,
    }
    search = BeamSearch(5, 5, **options)
    widths = np.array([1, 2, 3, 4, 5], "int32")
    found = search(model.given(options={"num_beams": widths}))
    for row, width in enumerate(widths):
        width = int(width)
        alone = BeamSearch(width, width, **options)(model.given([row]))
        assert_same(first(found, row, width), alone)
        assert not found.lengths[row, width:].numpy().any()
        assert np.all(found.scores[row, width:] == -np.inf)


@pytest.mark.parametrize(
    "search, options",
    [
        (
            BeamSearch(3, 2, max_length=7),
            {
                "length_penalty": [0.0, 0.6, 2.0],
                "coverage_penalty": [0.5, 0.0, 0.2],
                "max_length": [7, 3, 5],
                "min_length": [4, 1, 5],
            },
        ),
        (
            BeamSearch(4, 2, max_length=6, groups=2, diversity=0.7),
            {"length_penalty": [0.0, 0.6, 2.0], "max_length": [1, 6, 4]},
        ),
        (
            GreedySearch(max_length=7),
            {"max_length": [7, 3, 5], "min_length": [4, 1, 5]},
        ),
        (
            Sampling(num_hypotheses=3, max_length=6),
            {
                "temperature": [0.3, 1.0, 3.0],
                "top_k": [0, 2, 3],
                "top_p": [1.0, 0.9, 0.4],
                "max_length": [6, 4, 2],
                "min_length": [1, 3, 2],
            },
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_row_finds_what_a_search_of_its_options_finds(search, options):
    model = random_automaton(32, batch=3, letters=3)
    inputs = {"seed": np.array([8, 9, 8], "int32")}
    asked = {
        name: np.array(values, search.request_options[name].as_numpy_dtype)
        for name, values in options.items()
    }
    found = search(model.given(options=asked, **inputs))
    for row in range(3):
        own = {name: values[row] for name, values in options.items()}
        longest = own["max_length"]
        fields = {
            name: getattr(search, name) for name in type(search).__match_args__
        }
        alone = type(search)(**(fields | own))(model.given([row], **inputs))
        here = first(found, row, search.num_hypotheses)
        assert not here.tokens[..., longest:].numpy().any()
        cut = here._replace(
            tokens=here.tokens[..., :longest],
            alignments=here.alignments[:, :, :longest],
        )
        assert_same(cut, alone)


def test_without_options_the_graph_has_nothing_for_them():
    model = random_automaton(33, batch=2)
    for search, options in (
        (GreedySearch(max_length=4), {"min_length": [2, 2]}),
        (BeamSearch(2, max_length=4), {"num_beams": [1, 2]}),
    ):
        sizes = [
            len(graph_of(search, model.given()).get_operations()),
            len(
                graph_of(
                    search, model.given()._replace(options={})
                ).get_operations()
            ),
            len(
                graph_of(
                    search,
                    model.given(
                        options={
                            k: np.array(v, "int32") for k, v in options.items()
                        }
                    ),
                ).get_operations()
            ),
        ]
        assert sizes[0] == sizes[1] < sizes[2]


def graph_of(search, given):
    run = tf.function(lambda: search(given), autograph=False)
    return run.get_concrete_function().graph


def test_an_option_that_is_none_of_the_request_is_refused():
    model = speller({"a": 1.0})
    beams = BeamSearch(4, groups=2, diversity=1.0)
    for search, name in (
        (GreedySearch(), "num_beams"),
        (beams, "num_beams"),
        (Sampling(), "num_hypotheses"),
        (BeamSearch(), "penalty"),
    ):
        given = model.given()._replace(
            options={name: tf.constant([1])}, seed=tf.constant([1])
        )
        message = (
            f"A request to .* may set these options: .*Received: \\['{name}'"
        )
        with pytest.raises(ValueError, match=message):
            search(given)
        with pytest.raises(ValueError, match=message):
            search.check_options({name: [1]})


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "eager"])
@pytest.mark.parametrize(
    "search, name, good, bad, message",
    [
        (BeamSearch(4), "num_beams", [1, 4], [1, 5], "between 1 and 4"),
        (BeamSearch(4), "num_beams", [1, 4], [0, 4], "between 1 and 4"),
        (
            BeamSearch(),
            "length_penalty",
            [0.0, 9.0],
            [-0.5, 1],
            "at least 0 and finite",
        ),
        (
            BeamSearch(),
            "length_penalty",
            [0],
            [np.nan],
            "at least 0 and finite",
        ),
        (
            BeamSearch(),
            "coverage_penalty",
            [0.2],
            [np.inf],
            "at least 0 and finite",
        ),
        (GreedySearch(9), "max_length", [1, 9], [10, 9], "between 1 and 9"),
        (GreedySearch(9), "min_length", [1, 9], [0, 9], "between 1 and 9"),
        (Sampling(), "temperature", [0.1, 9], [0.0, 1], "above 0 and finite"),
        (Sampling(), "top_k", [0, 10**6], [-1, 2], "at least 0 and finite"),
        (Sampling(), "top_p", [0.1, 1.0], [0.0, 1], "above 0 and at most 1"),
        (Sampling(), "top_p", [0.1, 1.0], [0.5, 1.1], "above 0 and at most 1"),
    ],
)
def test_values_out_of_range_are_refused_by_name(
    search, name, good, bad, message, graph
):
    def check(values):
        return search.check_options({name: values})[name]

    if graph:
        check = tf.function(check, autograph=False)
    dtype = search.request_options[name]
    checked = check(tf.constant(good, dtype))
    assert checked.dtype == dtype
    np.testing.assert_allclose(checked, np.array(good, "float32"))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f"`{name}` must be .*{message} in every row. Received: {name}=",
    ):
        check(tf.constant(bad, dtype))
