"""A gRPC server that answers Predict with its inputs; needs no TensorFlow.

    python tests/support/serving/tiny_server.py [PORT]

prints its port and answers until it is killed.
"""

import concurrent.futures
import sys
import time

import grpc
from keras_attn_serving.wire import wire_pb2 as wire


def serve(credentials=None, port=0, predict=None):
    """Returns a server that runs, and its port.

    Args:
        credentials: For TLS.
        port: The port, 0 for any.
        predict: Answers a request and its context; by default with the inputs.
    """
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(4),
        options=[("grpc.so_reuseport", 0)],
    )
    method = grpc.unary_unary_rpc_method_handler(
        predict or _echo,
        wire.PredictRequest.FromString,
        wire.PredictResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.PredictionService", {"Predict": method}
            ),
        )
    )
    address = f"localhost:{port}"
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, credentials)
    server.start()
    return server, port


def _echo(request, context):
    response = wire.PredictResponse(model_spec=request.model_spec)
    for name, tensor in request.inputs.items():
        response.outputs[name].CopyFrom(tensor)
    return response


if __name__ == "__main__":
    kept, number = serve(port=int(sys.argv[1]) if sys.argv[1:] else 0)
    print(number, flush=True)
    time.sleep(600)
