"""Requests that ask for too much are refused in the graph, before it runs.

TensorFlow Serving itself takes any number of rows, and a few bytes can declare
a tensor of gigabytes.
"""

import io
import logging
import pathlib
import sys

import grpc
import keras_attn_serving
import numpy as np
import pytest
import tensorflow as tf
from keras_attn_serving.client import row_parts as parts
from support import toys as toy_models
from support.exports import as_bytes
from support.exports import option_inputs
from support.exports import warm_ups
from support.lazily import Answers
from support.lazily import Lazily
from support.lazily import _process
from support.lazily import ask

from keras_attn.export.tf_saved_model import guards
from keras_attn.export.tf_saved_model import lengths

ROWS = 3
LONGEST = 5
OPTIONS = {
    "texts": {"signatures": "all", "max_rows": ROWS},
    "compiled": {"max_rows": ROWS, "jit_compile": True},
    "measured": {"lengths": True, "max_source_length": LONGEST},
    "frames": {
        "lengths": False,
        "max_source_length": {"frames": LONGEST},
        "signatures": "all",
        "max_rows": 1,
    },
}
TOYS = {"texts": "pre", "compiled": "greedy"}
FRAMES = toy_models.sources("spectra")
ALL = "serving_default nbest align ids options score encode strings".split()


@pytest.fixture(scope="module")
def exports(toys, tmp_path_factory):
    return Lazily(
        lambda name: toys[TOYS.get(name, "spectra")].export(
            tmp_path_factory.mktemp("exports"), **OPTIONS[name]
        ),
        OPTIONS,
    )


@pytest.fixture(scope="module")
def answers(toys, exports):
    return Answers(exports, lambda name: CASES[name](toys))


@pytest.fixture(scope="module")
def answers_with_xla(toys, exports):
    return Answers(exports, lambda name: CASES[name](toys), "--xla")


def inputs(signature, rows, search):
    """Returns a good request of so many rows."""
    if signature in ("ids", "strings"):
        ids = np.array([[4, 5, 2]] * rows, "int32")
        return {"ids": ids, "lengths": np.full(rows, 3, "int32")}
    given = {"text": as_bytes(["abc", "", "dead", "b"][:rows])}
    if signature == "score":
        given["target"] = as_bytes(["AA"] * rows)
    if signature == "options":
        given["prefix"] = as_bytes([""] * rows)
        for name, dtype in option_inputs(search).items():
            given[name] = np.full(rows, -1, dtype.as_numpy_dtype)
    return given


def ids_of(width, lengths, signature="ids"):
    ids = np.full((len(lengths), width), 4, "int32")
    lengths = np.array(lengths, "int32")
    return signature, {"ids": ids, "lengths": lengths}


def of_texts(toys):
    search, cases = toys["pre"].search, {}
    for signature in ALL:
        for rows in (ROWS, ROWS + 1):
            given = inputs(signature, rows, search)
            cases[signature, rows] = signature, given
    cases["ids", "long"] = ids_of(1200, [3, 1200, 1001])
    cases["ids", "short"] = ids_of(1001, [3, 0, 1001])
    cases["ids", "empty"] = ids_of(2, [0, 1, 2])
    cases["ids", "empty"][1]["ids"][1] = 2
    cases["strings", "long"] = ids_of(100, [2, 100, 21], "strings")
    return cases


def of_compiled(toys):
    search = toys["greedy"].search
    return {
        ("serving_default", rows): (
            "serving_default",
            inputs("serving_default", rows, search),
        )
        for rows in (ROWS, ROWS + 1)
    }


def of_measured(toys):
    sizes = np.array([7, 5, 3, 0], "int32")
    short = {"frames": FRAMES[:, :5], "lengths": np.minimum(sizes, 5)}
    return {
        (signature, case): (signature, given)
        for signature in ("serving_default", "ids")
        for case, given in {
            "long": {"frames": FRAMES, "lengths": sizes},
            "short": short,
        }.items()
    }


def of_frames(toys):
    return {
        (signature, width): (signature, {"frames": FRAMES[:1, :width]})
        for signature in ("serving_default", "ids", "encode")
        for width in (5, 6)
    }


CASES = {
    "texts": of_texts,
    "compiled": of_compiled,
    "measured": of_measured,
    "frames": of_frames,
}


def said(answer):
    return [x.decode() for x in answer["error"]]


@pytest.mark.full
@pytest.mark.parametrize("signature", ALL)
def test_more_rows_than_an_export_allows_are_refused(signature, answers):
    assert isinstance(answers["texts", signature, ROWS], dict)
    code, message = answers["texts", signature, ROWS + 1]
    assert code == 3  # INVALID_ARGUMENT
    assert "may have at most 3 rows. Received:] [4]" in message
    assert "export with a larger `max_rows`" in message


@pytest.mark.full
def test_a_client_sends_such_a_request_in_parts(answers):
    code, message = answers["texts", "nbest", ROWS + 1]
    error = keras_attn_serving.ServingError(
        next(x for x in grpc.StatusCode if x.value[0] == code), message
    )
    assert parts.rows_allowed(error, ROWS + 1) == ROWS


@pytest.mark.full
def test_more_rows_are_refused_under_xla_too(answers_with_xla):
    found = answers_with_xla["compiled", "serving_default", ROWS]
    assert isinstance(found, dict), found
    _, message = answers_with_xla["compiled", "serving_default", ROWS + 1]
    assert "may have at most 3 rows" in message


def test_ids_longer_than_a_text_may_be_fail_alone(answers):
    long, short = (answers["texts", "ids", x] for x in ("long", "short"))
    assert said(long) == [
        "",
        "A row of `ids` may have a length of at most 1001 in this export. "
        "Received: one of 1200. Split it.",
        "",
    ]
    assert not long["lengths"][1].any()
    for name in ("ids", "lengths", "scores"):
        np.testing.assert_array_equal(long[name][[0, 2]], short[name][[0, 2]])


def test_ids_that_a_few_bytes_declare_take_no_memory(exports, answers):
    def run(width):
        """Returns the megabytes that a request takes, and its answer."""
        signature, given = ids_of(width, [1, width])
        folder = pathlib.Path("/proc", str(_process(()).pid))
        (folder / "clear_refs").write_text("5")  # the peak begins anew
        before = memory(folder, "VmRSS")
        (found,) = ask([(str(exports["texts"]), signature, given, "c")])
        return memory(folder, "VmHWM") - before, found

    run(10)
    took, found = run(2**20)  # 8 MB, and 4 of a million steps each way
    assert "Received: one of 1048576" in said(found)[1]
    assert took < 100


def memory(folder, name):
    lines = (folder / "status").read_text().splitlines()
    (line,) = (x for x in lines if x.startswith(name))
    return int(line.split()[1]) / 1024


def test_ids_of_texts_longer_than_a_target_fail_alone(answers):
    found = answers["texts", "strings", "long"]
    first, second, third = said(found)
    assert first == third == ""
    assert "at most 21 in this export. Received: one of 100." in second
    texts = found["text"].tolist()
    assert texts == [b"AA AA", b"", b" ".join([b"AA"] * 21)]


def test_ids_without_a_token_are_empty(answers):
    found = answers["texts", "ids", "empty"]
    assert found["empty"].tolist() == [True, True, False]


def first_step(exports, rows=2):
    """Returns the inputs of a first step."""
    text = as_bytes(["abc", "dead"][:rows])
    (encoded,) = ask([(str(exports["texts"]), "encode", {"text": text}, "c")])
    for name in ("source_tokens", "source_length", "end", "error"):
        del encoded[name]
    return encoded


def test_a_step_of_more_hypotheses_than_rows_may_have_is_refused(exports):
    """It takes eight for each row that a request may have."""
    given = first_step(exports)
    wide, wider = (
        {
            name: np.repeat(x, count, axis=1)
            if name == "tokens" or name.startswith("state_")
            else x
            for name, x in given.items()
        }
        for count in (12, 13)
    )
    path = str(exports["texts"])
    found, (code, message) = ask(
        [(path, "step", x, "c") for x in (wide, wider)]
    )
    assert found["alignments"].shape[:2] == (2, 12)
    assert code == 3 and "at most 24 hypotheses together" in message
    assert "Received:] [26]" in message


def test_a_step_over_a_source_longer_than_any_fails_alone(exports):
    given = first_step(exports)
    names = [x for x in given if x.startswith("encoded_")]
    open_ones = [x for x in names if given[x].shape[1] == 5]  # "dead</s>"
    assert len(open_ones) == given["widths"].shape[1] == 3
    wide = dict(given)
    for name in open_ones:
        padding = np.repeat(given[name][:, :1], 1000, axis=1)
        wide[name] = np.concatenate([given[name], padding], axis=1)
    wide["widths"] = given["widths"] + np.array([[0], [1000]], "int32")
    path = str(exports["texts"])
    alone, beside = ask([(path, "step", x, "c") for x in (given, wide)])
    error = [x.decode() for x in beside["error"][:, 0]]
    assert error[0] == ""
    assert "at most 1001 in this export. Received: one of 1005" in error[1]
    assert beside["alignments"].shape[2] == 1001
    np.testing.assert_allclose(
        beside["log_probabilities"][0], alone["log_probabilities"][0], rtol=1e-5
    )
    assert np.all(beside["log_probabilities"][1] == -np.inf)


@pytest.mark.full
@pytest.mark.parametrize("signature", ["serving_default", "ids"])
def test_features_longer_than_an_export_reads_fail_alone(signature, answers):
    long, short = (answers["measured", signature, x] for x in ("long", "short"))
    scores = "scores" if signature == "ids" else "score"
    assert np.all(long[scores][0] == -np.inf)
    np.testing.assert_allclose(long[scores][1:], short[scores][1:], rtol=1e-5)
    assert long["empty"].tolist() == [False, False, False, True]
    if signature == "ids":
        assert said(long)[1:] == [""] * 3
        assert said(long)[0] == (
            "A row of `frames` may have a length of at most 5 in this export. "
            "Received: one of 7. Split it."
        )


@pytest.mark.full
def test_features_without_lengths_are_as_long_as_their_tensor(answers):
    for signature in ("ids", "encode"):
        assert said(answers["frames", signature, 5]) == [""]
        (error,) = said(answers["frames", signature, 6])
        assert "`frames` may have a length of at most 5" in error
    assert answers["frames", "encode", 6]["source_length"].tolist() == [0]
    found = answers["frames", "serving_default", 6]
    assert found["score"].tolist() == [-np.inf]


@pytest.mark.full
@pytest.mark.parametrize("name", ["texts", "frames"])
def test_warm_up_requests_keep_to_the_limits(name, exports):
    path, requests = exports[name], [*warm_ups(exports[name])]
    asked = [
        (str(path), signature, given, "c") for signature, given in requests
    ]
    for (signature, _), found in zip(requests, ask(asked), strict=True):
        assert isinstance(found, dict), (signature, found)
        assert not any(found.get("error", np.array([b""])).ravel())


SPECS = (
    tf.TensorSpec([None, None, None, 3], tf.float32, name="image"),
    tf.TensorSpec([None, 2], tf.float32, name="style"),
    tf.TensorSpec([None, None], tf.float32, name="wave"),
)


@pytest.mark.parametrize(
    "given, expected",
    [
        (None, {}),
        (9, {(0, 1): 9, (0, 2): 9, (2, 1): 9}),
        ({"image": 8, "wave": 99}, {(0, 1): 8, (0, 2): 8, (2, 1): 99}),
        ({"image": [8, 4], "wave": 99}, {(0, 1): 8, (0, 2): 4, (2, 1): 99}),
    ],
)
def test_each_open_axis_of_each_input_has_a_largest_size(given, expected):
    found = lengths.longest_of(SPECS, given)
    assert found == expected
    image, wave = np.ones((2, 6, 7, 3), "f"), np.ones((2, 100), "f")
    tensors = image, np.ones((2, 2), "f"), wave
    guard = guards.OfSizes(SPECS, found)
    cut = guard.harmless([tf.constant(x) for x in tensors], bad=None)
    for i, (whole, part) in enumerate(zip(tensors, cut, strict=True)):
        sizes = [
            min(size, found.get((i, axis), size))
            for axis, size in enumerate(whole.shape)
        ]
        assert part.shape == tuple(sizes)
    errors = [x.numpy()[0].decode() for x in guard.errors(tensors)]
    assert bool(errors) == bool(found)
    if found:
        assert "`wave`" in errors[-1] and "Received: one of 100" in errors[-1]


@pytest.mark.parametrize(
    "given, words",
    [
        (0, "must be a positive integer. Received: max_source_length=0"),
        (
            {"image": 8},
            r"any size, \['image', 'wave'\]. Received",
        ),
        ({"image": [8], "wave": 9}, r"2 of them. Received: image=\[8\]."),
        ({"image": 8, "wave": 9, "style": 2}, "An integer is for all"),
    ],
)
def test_a_largest_size_that_fits_no_input_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        lengths.longest_of(SPECS, given)


@pytest.mark.full
@pytest.mark.sample_cases(2)
@pytest.mark.parametrize(
    "options, words",
    [
        ({"max_rows": 0}, "`max_rows` must be a positive integer"),
        ({"max_rows": True}, "Received: max_rows=True. `None` is for any"),
        ({"max_source_length": 5}, "the `max_length` of its `Text`"),
        ({"verbose": 2}, '`verbose` must be "auto", 0 or 1. Received: verb'),
        ({"verbose": "yes", "format": "onnx"}, "Received: verbose='yes'"),
    ],
)
def test_a_wrong_limit_is_refused(options, words, toys, tmp_path):
    with pytest.raises(ValueError, match=words):
        toys["greedy"].export(tmp_path, **options)
    assert not [*tmp_path.iterdir()]


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("verbose", [1, "auto", 0])
def test_an_export_says_what_it_does(verbose, toys, tmp_path, capsys):
    toys["greedy"].export(tmp_path, verbose=verbose)
    printed = capsys.readouterr().out.splitlines()
    if verbose != 1:  # the output of a test is no terminal
        assert not printed
        return
    assert [x.partition(" - ")[0] for x in printed] == [
        "1/6 tracing serving_default",
        "2/6 tracing nbest",
        "3/6 tracing align",
        "4/6 tracing ids",
        "5/6 writing the SavedModel",
        "6/6 writing the warm-up",
    ]


@pytest.mark.full
def test_an_export_names_no_place_that_it_leaves(toys, tmp_path, caplog):
    logger = tf.get_logger()
    with caplog.at_level(logging.INFO, logger.name):
        logger.addHandler(caplog.handler)
        try:
            toys["greedy"].export(tmp_path, verbose=0)
            assert "written" not in caplog.text
            logger.info("Assets written to: %s", "elsewhere")
            assert "Assets written to: elsewhere" in caplog.text
        finally:
            logger.removeHandler(caplog.handler)


@pytest.mark.full
def test_a_terminal_is_told_without_being_asked(toys, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdout", Terminal())
    toys["greedy"].export(tmp_path)
    assert "6/6 writing the warm-up - " in sys.stdout.getvalue()


@pytest.mark.full
def test_an_export_without_the_translator_s_xla_warns(toys, tmp_path):
    with pytest.warns(UserWarning, match=r"`export\(jit_compile=True\)`"):
        toys["compiled"].export(tmp_path)
    toys["compiled"].export(tmp_path, jit_compile=False)  # warnings are errors
