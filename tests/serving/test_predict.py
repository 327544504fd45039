"""Predict over the wire, by our client and by TensorFlow Serving's own stub."""

import concurrent.futures

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from keras_attn_serving import Client
from support.serving import contract
from support.serving import toy_model
from tensorflow_serving.apis import predict_pb2

# A dtype's numpy values that survive every conversion; bfloat16 holds them.
VALUES = [[0, 1, 2], [3, 5, 7]]


def request(signature="", **inputs):
    result = predict_pb2.PredictRequest()
    result.model_spec.name = toy_model.NAME
    result.model_spec.signature_name = signature
    for name, values in inputs.items():
        result.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    return result


def test_client_returns_texts_and_scores_a_row_each(client):
    result = client.predict(["hello world", "a cat", ""])
    assert result["text"] == ["bonjour monde", "? chat", ""]
    np.testing.assert_array_equal(result["score"], [-1.0, -1.0, 0.0])
    assert result["score"].dtype == np.float32


def test_result_names_the_model_version_and_signature_that_answered(client):
    result = client.predict(["hello"])
    assert result.model == toy_model.NAME
    assert result.version == toy_model.VERSION
    assert result.signature == "serving_default"


def test_official_stub_gets_the_same_answer_in_typed_fields(prediction):
    response = prediction.Predict(request(text=["hello world", "cat"]))
    assert response.outputs.keys() == {"text", "score"}
    assert list(response.outputs["text"].string_val) == [
        b"bonjour monde",
        b"chat",
    ]
    assert list(response.outputs["score"].float_val) == [-1.0, -0.5]
    assert tf.make_ndarray(response.outputs["score"]).shape == (2,)
    assert response.model_spec.name == toy_model.NAME
    assert response.model_spec.signature_name == "serving_default"
    assert response.model_spec.version.value == toy_model.VERSION
    assert response.model_spec.WhichOneof("version_choice") == "version"


@pytest.mark.parametrize("names", [["score"], ["text"], ["score", "text"]])
def test_only_the_outputs_asked_for_are_returned(client, names):
    assert client.predict(["cat"], outputs=names).keys() == set(names)


def test_one_output_may_be_asked_for_by_its_name(client):
    assert client.predict(["cat"], outputs="text") == {"text": ["chat"]}


def test_missing_alternatives_are_empty_texts_scored_minus_infinity(client):
    result = client.predict(["cat", "hello"], "nbest")
    assert result["texts"] == [["chat", "", ""], ["bonjour", "", ""]]
    np.testing.assert_array_equal(
        result["scores"], [[-0.5, -np.inf, -np.inf]] * 2
    )


def test_alignments_are_trimmed_to_each_text(client):
    long, short, empty = client.align(["hello cat world", "cat", ""])
    assert long.source_tokens == ["hello", "cat", "world"]
    assert long.tokens == ["bonjour", "chat", "monde"]
    np.testing.assert_array_equal(long.alignment, np.eye(3))
    assert short.text == "chat"
    assert short.score == -0.5
    assert short.source_tokens == ["cat"]
    np.testing.assert_array_equal(short.alignment, [[1.0]])
    assert empty.tokens == [] and empty.alignment.shape == (0, 0)
    # This model lacks these outputs, as exports before keras-attn 0.2 do.
    for each in (long, short, empty):
        assert (each.truncated, each.unknown, each.empty) == (False, 0, False)
        assert each.finished is None


def test_signatures_keep_the_contract_of_an_export(client):
    contract.check_signatures(client, ["hello world", "", "cat dog"])


def test_several_inputs_go_by_name(client):
    result = client.predict(
        {"ids": [[1, 2], [3, 4]], "lengths": [10, 20]}, "add"
    )
    np.testing.assert_array_equal(result["sum"], [13, 27])
    assert result["sum"].dtype == np.int32


def test_every_dtype_survives_the_way_there_and_back(client):
    inputs = {
        each.name: np.array(VALUES).astype(each.as_numpy_dtype)
        for each in toy_model.DTYPES
        if each != tf.string
    }
    result = client.predict(
        {**inputs, "string": [["a", "é"], ["", "\0"]]}, "echo"
    )
    assert result.pop("string") == [["a", "é"], ["", "\0"]]
    assert inputs["bfloat16"].dtype == ml_dtypes.bfloat16
    for name, array in inputs.items():
        wanted = np.float32 if name == "bfloat16" else array.dtype
        assert result[name].dtype == wanted
        np.testing.assert_array_equal(result[name], array.astype(wanted))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0), (2, 1, 3)])
def test_every_rank_survives_the_way_there_and_back(client, shape):
    inputs = {
        each.name: np.zeros(shape, each.as_numpy_dtype)
        for each in toy_model.DTYPES
        if each != tf.string
    }
    strings = np.full(shape, "x", dtype=object)
    result = client.predict({**inputs, "string": strings}, "echo")
    assert result.pop("string") == strings.tolist()
    assert {array.shape for array in result.values()} == {shape}


def test_an_empty_batch_gets_an_empty_answer(client):
    result = client.predict([])
    assert result["text"] == []
    assert result["score"].shape == (0,)


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe cat",
        "a\0b cat",
        "\n\t cat",
        "x" * 10_000 + " cat",
        "日本 cat",
    ],
    ids=["invalid UTF-8", "NUL", "blanks", "long", "other script"],
)
def test_a_hostile_text_leaves_the_other_rows_alone(client, text):
    result = client.predict(["hello", text, "world"])
    assert result["text"][::2] == ["bonjour", "monde"]
    assert result["text"][1].endswith("chat")


def test_bytes_pass_unchanged_and_undecodable_ones_are_marked(client):
    raw = b"\xff\0"
    inputs = {
        each.name: np.zeros((), each.as_numpy_dtype)
        for each in toy_model.DTYPES
        if each != tf.string
    }
    result = client.predict({**inputs, "string": [raw]}, "echo", ["string"])
    assert result["string"] == ["\ufffd\0"]


def test_messages_of_more_than_four_mebibytes_come_back(client):
    inputs = {
        each.name: np.zeros((), each.as_numpy_dtype)
        for each in toy_model.DTYPES
        if each != tf.string
    }
    # 2 MB and three times 1 MB; each may have 128,000 elements.
    names = "complex128", "complex64", "float64", "int64"
    many = {x: np.arange(128_000).astype(x) for x in names}
    given = {**inputs, "string": ["x"], **many}
    assert sum(x.nbytes for x in many.values()) > 2**22
    result = client.predict(given, "echo", names)
    for name in names:
        np.testing.assert_array_equal(result[name], many[name])


def test_threads_share_a_client_and_get_their_own_answers(client):
    def ask(number):
        texts = ["cat"] * (number % 5 + 1) + ["hello" * (number % 3)]
        return texts, client.predict(texts)

    known = {"cat": "chat", "hello": "bonjour", "hellohello": "?", "": ""}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for texts, result in pool.map(ask, range(100)):
            assert result["text"] == [known[text] for text in texts]


def test_the_version_can_be_named(address):
    with Client(address, toy_model.NAME, version=toy_model.VERSION) as client:
        assert client.predict(["cat"]).version == toy_model.VERSION


def test_a_call_may_wait_for_ever(address):
    with Client(address, toy_model.NAME, timeout=None) as client:
        assert client.predict(["cat"])["text"] == ["chat"]
