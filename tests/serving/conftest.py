"""A server for the tests: ours with the toy model, or the one named.

`KERAS_ATTN_SERVING_ADDRESS` names another, such as TensorFlow Serving's own,
and `KERAS_ATTN_SERVING_REST_ADDRESS` its port for REST; `toy_model.py` says
how to give it the model. Tests of what only the development server does take
the fixture `ours`, or `our_rest`, and are skipped then.
"""

import os

import grpc
import pytest
from keras_attn_serving import Client
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from support.serving import toy_model
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

ADDRESS = os.environ.get("KERAS_ATTN_SERVING_ADDRESS")
REST_ADDRESS = os.environ.get("KERAS_ATTN_SERVING_REST_ADDRESS")


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory):
    """The toy model's version directory; its parent is the base path."""
    return toy_model.export(tmp_path_factory.mktemp("models") / toy_model.NAME)


@pytest.fixture(scope="session")
def toy_server(toy_path):
    """The development server with the toy model."""
    base_path = toy_path.parent
    with Server(base_path, toy_model.NAME, port=0, rest=Rest()) as server:
        yield server


@pytest.fixture(scope="session")
def address(request):
    return ADDRESS or request.getfixturevalue("toy_server").address


@pytest.fixture(scope="session")
def rest_address(request):
    if ADDRESS and not REST_ADDRESS:
        pytest.skip("KERAS_ATTN_SERVING_REST_ADDRESS names no port.")
    return REST_ADDRESS or request.getfixturevalue("toy_server").rest_address


@pytest.fixture(scope="session")
def ours(address):
    if ADDRESS:
        pytest.skip("Only the development server does this.")
    return address


@pytest.fixture(scope="session")
def our_rest(rest_address):
    if REST_ADDRESS:
        pytest.skip("Only the development server does this.")
    return rest_address


@pytest.fixture(scope="session")
def client(address):
    with Client(address, model=toy_model.NAME, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def channel(address):
    with grpc.insecure_channel(address) as channel:
        yield channel


@pytest.fixture(scope="session")
def prediction(channel):
    """The official stub of the PredictionService."""
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="session")
def models(channel):
    """The official stub of the ModelService."""
    return model_service_pb2_grpc.ModelServiceStub(channel)
