"""Refusals: TensorFlow Serving's codes and texts, word for word.

The requests go by the official stub, since our client builds no wrong ones.
"""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from keras_attn_serving import Client
from keras_attn_serving import ServingError
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.rpcs import cut
from support.serving import toy_model
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import inference_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import regression_pb2

TEXT = tf.make_tensor_proto(["cat"])
SPEC = f"name: '{toy_model.NAME}'"

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION

# case: model spec, inputs, output filter, code, text
PREDICT = {
    "no model spec": (None, {"text": TEXT}, [], INVALID, "Missing ModelSpec"),
    "empty name": (
        "",
        {"text": TEXT},
        [],
        INVALID,
        "ModelSpec has no name specified.",
    ),
    "unknown model": (
        "name: 'nobody'",
        {"text": TEXT},
        [],
        NOT_FOUND,
        "Servable not found for request: Latest(nobody)",
    ),
    "unknown version": (
        SPEC + " version { value: 7 }",
        {"text": TEXT},
        [],
        NOT_FOUND,
        "Servable not found for request: Specific(toy, 7)",
    ),
    "version zero": (
        SPEC + " version { }",
        {"text": TEXT},
        [],
        NOT_FOUND,
        "Servable not found for request: Specific(toy, 0)",
    ),
    "unknown label": (
        SPEC + " version_label: 'stable'",
        {"text": TEXT},
        [],
        INVALID,
        "Unrecognized servable version label: stable",
    ),
    "unknown signature": (
        SPEC + " signature_name: 'S'",
        {"text": TEXT},
        [],
        PRECONDITION,
        'Serving signature key "S" not found.',
    ),
    "missing input": (
        SPEC,
        {},
        [],
        INVALID,
        "input size does not match signature: 0!=1 len({}) != len({text}). "
        "Sent extra: {}. Missing but required: {text}.",
    ),
    "extra inputs": (
        SPEC,
        {"text": TEXT, "b": TEXT, "a": TEXT},
        [],
        INVALID,
        "input size does not match signature: 3!=1 len({a,b,text}) != "
        "len({text}). Sent extra: {a,b}. Missing but required: {}.",
    ),
    "wrong alias": (
        SPEC,
        {"foo": TEXT},
        [],
        INVALID,
        "Signature input alias: text(feed name: serving_default_text:0) not "
        "found in request and no default value provided. Inputs expected to "
        "be in the request {foo}, or default input alias set: ",
    ),
    "undecodable tensor": (
        SPEC,
        {"text": tf.make_tensor_proto([1.0]).__class__(dtype=0)},
        [],
        INVALID,
        "tensor parsing error: text",
    ),
    "wrong dtype": (
        SPEC,
        {"text": tf.make_tensor_proto([1.0])},
        [],
        INVALID,
        "Expects arg[0] to be string but float is provided",
    ),
    "wrong dtype of the second feed": (
        SPEC + " signature_name: 'add'",
        {
            "ids": tf.make_tensor_proto([[1, 2]]),
            "lengths": tf.make_tensor_proto([1], tf.int64),
        },
        [],
        INVALID,
        "Expects arg[1] to be int32 but int64 is provided",
    ),
    "unknown output": (
        SPEC,
        {"text": TEXT},
        ["Z"],
        INVALID,
        "output tensor alias not found in signature: Z Outputs expected to be "
        "in the set {score,text}.",
    ),
    "repeated output": (
        SPEC,
        {"text": TEXT},
        ["text", "text"],
        INVALID,
        "duplicate output tensor alias: text",
    ),
    "long text": (
        f"name: '{'n' * 2000}'",
        {"text": TEXT},
        [],
        NOT_FOUND,
        ("Servable not found for request: Latest(" + "n" * 2000)[:1024]
        + "...TRUNCATED",
    ),
    "failing operation": (
        SPEC + " signature_name: 'number'",
        {"text": TEXT},
        [],
        INVALID,
        "StringToNumberOp could not correctly convert string: cat\n\t [[{{",
    ),
}


def refusal(call, message, **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(message, **options)
    return caught.value.code(), caught.value.details()


def spec(message, text):
    if text is not None:
        message.model_spec.SetInParent()
        text_format.Parse(text, message.model_spec)
    return message


@pytest.mark.parametrize("case", PREDICT)
def test_predict_refuses_in_tensorflow_servings_words(prediction, case):
    model_spec, inputs, output_filter, code, text = PREDICT[case]
    request = spec(predict_pb2.PredictRequest(), model_spec)
    request.output_filter.extend(output_filter)
    for name, tensor in inputs.items():
        request.inputs[name].CopyFrom(tensor)
    assert refusal(prediction.Predict, request)[0] == code
    details = refusal(prediction.Predict, request)[1]
    # Behind "[[{{" stand the node's name and number, which are TensorFlow's.
    assert details == text or text.endswith("{{") and details.startswith(text)


@pytest.mark.parametrize(
    ("inputs", "shape", "advice"),
    [
        ({"text": "cat"}, "[]", "Send a list"),
        ({"text": [["cat"]]}, "[1, 1]", "Send one flat list"),
    ],
    ids=["scalar", "matrix"],
)
def test_a_wrong_rank_is_refused_before_it_can_crash(
    ours, client, inputs, shape, advice
):
    with pytest.raises(ServingError) as caught:
        client.predict(inputs)
    assert caught.value.code == INVALID
    assert caught.value.message.startswith(
        'Input "text" must have shape [?] (? is any size). '
        f"Received shape: {shape}. {advice}"
    )
    assert client.predict(["cat"])["text"] == ["chat"]


def test_an_error_about_bytes_that_are_no_text_can_be_read(ours, client):
    with pytest.raises(ServingError, match="could not correctly") as caught:
        client.predict([b"\xff\xfe"], "number")
    assert caught.value.code == INVALID


@pytest.mark.parametrize("text", [33, 1])
def test_axes_that_would_end_the_process_are_refused(ours, client, text):
    inputs = {
        each.name: np.zeros([1] * 33, each.as_numpy_dtype)
        for each in toy_model.DTYPES
    }
    inputs["string"] = np.full([1] * text, b"", object)
    with pytest.raises(ServingError, match="at most 32 axes") as caught:
        client.predict(inputs, "echo")
    assert caught.value.code == INVALID


def test_a_wrong_size_is_refused(ours, client):
    with pytest.raises(
        ServingError, match=r"shape \[\?, 2\].*\[1, 3\]"
    ) as caught:
        client.predict({"ids": [[1, 2, 3]], "lengths": [0]}, "add")
    assert caught.value.code == INVALID


def test_a_few_bytes_cannot_claim_a_huge_tensor(ours, prediction):
    request = spec(predict_pb2.PredictRequest(), SPEC)
    tensor = request.inputs["text"]
    tensor.dtype = TEXT.dtype
    tensor.tensor_shape.dim.add(size=2**60)
    code, _ = refusal(prediction.Predict, request)
    assert code == INVALID
    tensor.tensor_shape.dim.add(size=2**60)
    assert refusal(prediction.Predict, request) == (
        INVALID,
        "tensor parsing error: text",
    )


def test_a_deadline_ends_the_run_and_frees_the_server(prediction, client):
    request = spec(
        predict_pb2.PredictRequest(), SPEC + " signature_name: 'slow'"
    )
    # Counting this far takes days: only cancelling can end it.
    request.inputs["steps"].CopyFrom(
        tf.make_tensor_proto([10**15], dtype=tf.int64)
    )
    code, _ = refusal(prediction.Predict, request, timeout=0.3)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert client.predict(["cat"])["text"] == ["chat"]


METADATA = {
    "no model spec": (None, ["signature_def"], INVALID, "Missing ModelSpec"),
    "no field": (
        SPEC,
        [],
        INVALID,
        "GetModelMetadataRequest must specify at least one metadata_field",
    ),
    "unknown field": (
        SPEC,
        ["signature_def", "X"],
        INVALID,
        "Metadata field X is not supported",
    ),
    "unknown field of an unknown model": (
        "name: 'nobody'",
        ["X"],
        INVALID,
        "Metadata field X is not supported",
    ),
    "unknown model": (
        "name: 'nobody'",
        ["signature_def"],
        NOT_FOUND,
        "Servable not found for request: Latest(nobody)",
    ),
    "unknown version": (
        SPEC + " version { value: 7 }",
        ["signature_def"],
        NOT_FOUND,
        "Servable not found for request: Specific(toy, 7)",
    ),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_is_refused_in_tensorflow_servings_words(prediction, case):
    model_spec, fields, code, text = METADATA[case]
    request = spec(get_model_metadata_pb2.GetModelMetadataRequest(), model_spec)
    request.metadata_field.extend(fields)
    assert refusal(prediction.GetModelMetadata, request) == (code, text)


STATUS = {
    "no model spec": (None, INVALID, "Missing ModelSpec"),
    "empty name": ("", NOT_FOUND, "Could not find any versions of model "),
    "unknown model": (
        "name: 'nobody'",
        NOT_FOUND,
        "Could not find any versions of model nobody",
    ),
    "unknown version": (
        SPEC + " version { value: 7 }",
        NOT_FOUND,
        "Could not find version 7 of model toy",
    ),
}


@pytest.mark.parametrize("case", STATUS)
def test_status_is_refused_in_tensorflow_servings_words(models, case):
    model_spec, code, text = STATUS[case]
    request = spec(get_model_status_pb2.GetModelStatusRequest(), model_spec)
    assert refusal(models.GetModelStatus, request) == (code, text)


CLASSIFY = "tensorflow/serving/classify"

# name of the call: signature, text
EXAMPLES = {
    "Classify": {
        "S": "No signature was found with the name: S",
        "add": "Expected one input Tensor.",
        "align": "Expected one or two output Tensors, found 7",
        "": "No classification inputs found in SignatureDef: inputs",
    },
    "Regress": {
        "S": "No signature was found with the name: S",
        "": "Expected one output Tensor.",
        "number": "No regression inputs found in SignatureDef: inputs",
    },
    "MultiInference": {
        "S": "Requested signature not found in model graph: S",
        "add": "Expected one input Tensor.",
        "number": "No classification inputs found in SignatureDef: inputs",
    },
}
MESSAGES = {
    "Classify": classification_pb2.ClassificationRequest,
    "Regress": regression_pb2.RegressionRequest,
}


@pytest.mark.parametrize(
    ("name", "signature"),
    [(name, signature) for name in EXAMPLES for signature in EXAMPLES[name]],
)
def test_calls_on_examples_are_refused_in_tensorflow_servings_words(
    prediction, name, signature
):
    task = inference_pb2.InferenceTask(method_name=CLASSIFY)
    message = MESSAGES[name]() if name in MESSAGES else task
    spec(message, f"{SPEC} signature_name: '{signature}'")
    if message is task:
        message = inference_pb2.MultiInferenceRequest(tasks=[task])
    code, details = refusal(getattr(prediction, name), message)
    assert code == INVALID
    assert details.startswith(EXAMPLES[name][signature])


@pytest.mark.parametrize(
    ("tasks", "code", "text"),
    [
        ([], INVALID, "Missing ModelSpec"),
        (
            [("toy", "number", CLASSIFY), ("other", "number", CLASSIFY)],
            INVALID,
            "No classification inputs found",
        ),
        (
            [("toy", "number", "X")],
            grpc.StatusCode.UNIMPLEMENTED,
            "Unsupported signature method_name: X",
        ),
        (
            [("nobody", "number", CLASSIFY)],
            NOT_FOUND,
            "Servable not found for request: Latest(nobody)",
        ),
    ],
    ids=["no task", "first task", "other method", "unknown model"],
)
def test_several_inferences_are_refused(prediction, tasks, code, text):
    request = inference_pb2.MultiInferenceRequest()
    for name, signature, method in tasks:
        task = request.tasks.add(method_name=method)
        task.model_spec.name = name
        task.model_spec.signature_name = signature
    found, details = refusal(prediction.MultiInference, request)
    assert found == code
    assert details.startswith(text)


def test_a_cut_text_stays_valid_utf8():
    text = "é" * 600 + "x"  # two bytes each
    assert cut(text) == "é" * 512 + "...TRUNCATED"
    assert cut("e" * 1024) == "e" * 1024
    # Other protocols have no such limit.
    assert StatusError(Code.INVALID_ARGUMENT, text).details == text


def test_codes_are_grpc_s():
    assert {x.name: x.value[0] for x in grpc.StatusCode} == {
        x.name: x.value for x in Code
    }
    assert Code(99) == Code.UNKNOWN


def test_client_raises_the_servers_code_and_words(client):
    with pytest.raises(ServingError) as caught:
        client.predict(["cat"], model="nobody")
    assert caught.value.code == NOT_FOUND
    assert caught.value.message == (
        "Servable not found for request: Latest(nobody)"
    )
    assert "NOT_FOUND: Servable not found" in str(caught.value)


def test_client_says_what_to_do_when_no_server_answers():
    with Client("localhost:1", model="toy") as client:
        with pytest.raises(ServingError, match="python -m keras_attn_serving"):
            client.predict(["cat"])
        with pytest.raises(ServingError, match="No server became ready"):
            client.wait_until_ready(timeout=0.1)


def test_client_says_what_to_do_when_time_is_over(client):
    with pytest.raises(ServingError, match="longer than 1e-06 sec") as caught:
        client.predict(["cat"], timeout=1e-6)
    assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED


def test_client_asks_which_model(address):
    with Client(address) as client:
        with pytest.raises(ValueError, match="needs the name of a model"):
            client.predict(["cat"])
        result = client.predict(["cat"], model=toy_model.NAME)
    assert result["text"] == ["chat"]


def test_client_names_the_input_of_another_dtype(client):
    inputs = {"ids": np.ones((2, 2), "int32"), "lengths": np.ones(2, "int64")}
    with pytest.raises(ServingError) as caught:
        client.predict(inputs, "add")
    assert caught.value.code == INVALID
    assert caught.value.hint == (
        "The input 'lengths' must be int32. Received: an array of int64. "
        "Pass `array.astype('int32')`."
    )
    assert str(caught.value).endswith(caught.value.hint)
    inputs["lengths"] = inputs["lengths"].astype("int32")
    np.testing.assert_array_equal(client.predict(inputs, "add")["sum"], [3, 3])


def test_client_refuses_one_text_where_a_batch_is_due(client):
    with pytest.raises(ValueError, match="the text 'cat'.*pass a list of one"):
        client.predict("cat")
