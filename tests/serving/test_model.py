"""`Model.run`: arrays in, arrays out, and nothing of any protocol."""

import ast
import contextlib
import itertools
import pathlib

import keras_attn_serving
import numpy as np
import pytest
import tensorflow as tf
from keras_attn_serving.server import engine
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.model import DEFAULT_SIGNATURE
from keras_attn_serving.server.model import Model
from support.serving import toy_model

TEXT = np.array([b"hello", b"cat world"], object)


@pytest.fixture(scope="module")
def model(toy_path):
    model = Model(toy_model.NAME, toy_model.VERSION, str(toy_path))
    yield model
    model.close()


def test_arrays_by_name_come_back_as_arrays_by_name(model):
    found = model.run(DEFAULT_SIGNATURE, {"text": TEXT})
    assert found.keys() == {"text", "score"}
    assert found["text"].tolist() == [b"bonjour", b"chat monde"]
    np.testing.assert_array_equal(found["score"], np.float32([-0.5, -1.0]))


def test_outputs_are_those_asked_for_in_their_order(model):
    assert list(model.run("align", {"text": TEXT}, ["text"])) == ["text"]
    names = ["score", "length", "text"]
    assert list(model.run("align", {"text": TEXT}, names)) == names


def test_no_choice_of_outputs_fills_the_memory(toy_path, monkeypatch):
    """TensorFlow keeps a graph for each for ever."""
    monkeypatch.setattr(engine, "_MOST_CHOICES", 3)
    model = Model(toy_model.NAME, toy_model.VERSION, str(toy_path))
    with contextlib.closing(model):
        runs = model._engine._runs
        names = ["score", "length", "text", "tokens"]
        whole = model.run("align", {"text": TEXT})
        for order in itertools.permutations(names):
            found = model.run("align", {"text": TEXT}, order)
            assert list(found) == list(order)
            for name in names:
                np.testing.assert_array_equal(found[name], whole[name])
        assert len(runs) == 2
        for chosen in itertools.combinations(names, 2):
            found = model.run("align", {"text": TEXT}, chosen)
            assert list(found) == list(chosen)
            for name in chosen:
                np.testing.assert_array_equal(found[name], whole[name])
        assert len(runs) == 3
        model.run(DEFAULT_SIGNATURE, {"text": TEXT}, ["score"])
        model.run(DEFAULT_SIGNATURE, {"text": TEXT}, ["text"])
        assert len(runs) == 4  # all outputs of this signature


def test_strings_may_be_str_and_lists(model):
    for text in (["hello"], np.array(["hello"]), np.array(["hello"], object)):
        assert model.run(DEFAULT_SIGNATURE, {"text": text})["text"] == [
            b"bonjour"
        ]


def echo(**changed):
    arrays = {
        dtype.name: np.zeros([2], dtype.as_numpy_dtype)
        for dtype in toy_model.DTYPES
    }
    arrays["string"] = np.array([b"", b"\0"], object)
    return arrays | changed


def test_every_dtype_stays_what_it_is(model):
    arrays = echo(
        bfloat16=np.array([1.5, -2], tf.bfloat16.as_numpy_dtype),
        complex64=np.array([1 + 2j, 0], np.complex64),
    )
    found = model.run("echo", arrays)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_single_text_is_an_array_too(model):
    text = np.array(b"a\0", object)
    found = model.run("echo", echo(string=text))["string"]
    assert (found.shape, found.dtype, found[()]) == ((), object, b"a\0")


def test_the_model_knows_its_signatures(model):
    assert model.version == toy_model.VERSION
    assert pathlib.Path(model.path).name == str(toy_model.VERSION)
    signature = model.signatures["add"]
    assert signature.inputs["ids"].dtype == tf.int32
    assert signature.inputs["ids"].shape == (None, 2)
    assert model.signatures["echo"].inputs["bool"].shape is None
    assert signature.defaults == {}
    assert model.definitions.keys() == model.signatures.keys()


@pytest.mark.parametrize(
    ("signature", "arrays", "outputs", "code", "details"),
    [
        ("S", {}, [], Code.FAILED_PRECONDITION, 'key "S" not found'),
        ("", {}, [], Code.FAILED_PRECONDITION, 'key "" not found'),
        ("nbest", {}, [], Code.INVALID_ARGUMENT, "0!=1 len({}) != len({text})"),
        ("nbest", {"b": TEXT}, [], Code.INVALID_ARGUMENT, "alias: text(feed"),
        (
            "nbest",
            {"text": TEXT},
            ["Z"],
            Code.INVALID_ARGUMENT,
            "alias not found in signature: Z",
        ),
        (
            "nbest",
            {"text": np.zeros(2, np.float16)},
            [],
            Code.INVALID_ARGUMENT,
            "Expects arg[0] to be string but half is provided",
        ),
        (
            "nbest",
            {"text": np.zeros(2, "datetime64[s]")},
            [],
            Code.INVALID_ARGUMENT,
            "an array of dtype datetime64[s] is provided",
        ),
        (
            "nbest",
            {"text": b"cat"},
            [],
            Code.INVALID_ARGUMENT,
            "must have shape [?] (? is any size). Received shape: [].",
        ),
        (
            "number",
            {"text": TEXT},
            [],
            Code.INVALID_ARGUMENT,
            "could not correctly convert string",
        ),
    ],
)
def test_a_refusal_has_a_code_and_tensorflow_servings_words(
    model, signature, arrays, outputs, code, details
):
    with pytest.raises(StatusError) as caught:
        model.run(signature, arrays, outputs)
    assert caught.value.code is code
    assert details in caught.value.details


def test_a_run_that_takes_too_long_is_cancelled(model):
    steps = np.array([10**12], np.int64)
    for timeout in (0.2, 0.0):
        with pytest.raises(StatusError) as caught:
            model.run("slow", {"steps": steps}, timeout=timeout)
        assert caught.value.code is Code.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "name", ["model", "engine", "signatures", "validation", "errors"]
)
def test_what_runs_a_model_knows_no_protocol(name):
    folder = pathlib.Path(keras_attn_serving.__file__).parent
    tree = ast.parse((folder / "server" / f"{name}.py").read_text())
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for imported in names:
            for protocol in ("grpc", "google", "tensorflow_serving"):
                assert imported.partition(".")[0] != protocol
            for ours in ("protocol", "wire_pb2", "predict", "service"):
                assert f"keras_attn_serving.{ours}" not in imported
