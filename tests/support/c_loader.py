"""Runs SavedModels as TensorFlow Serving does, in a process of their own.

    PYTHONPATH=tests python -m support.c_loader [--xla]

`CLoader` is TensorFlow's C API by ctypes, out of the TensorFlow wheel: the
same `LoadSavedModel` and `Session::Run` as in the server, with XLA switched
off as there unless it is told otherwise. `tf.saved_model.load` is more
lenient and hides what the server refuses. As a program it reads pickled lists
of requests `(path, signature, inputs, loader)`, where the loader is "c" or
"python" and the inputs are a dictionary of arrays, and writes pickled lists
of answers: dictionaries of arrays, or `(code, message)` of an error. In the
place of a signature may stand a number, the maximum length of a client's own
search; see `client_loop.py`. In the place of inputs may stand a list of them,
of several clients whose requests are merged; see `batching.py`. Their own
searches are `(inputs, width, delay)` then. Neither Keras nor keras_attn can
be imported there.
"""

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import pickle
import sys

import numpy as np

from support import batching
from support import client_loop

UNREACHABLE = ("keras", "keras_attn", "tf_keras")


class Block(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages above, as TensorFlow asks for, but loads none."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in UNREACHABLE:
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        raise ModuleNotFoundError(f"{spec.name} is blocked", name=spec.name)

    def exec_module(self, module):
        raise NotImplementedError


class CLoader:
    """A SavedModel, loaded by the C API."""

    def __init__(self, path):
        self.api = _api()
        options = self.api.TF_NewSessionOptions()
        self.graph = self.api.TF_NewGraph()
        meta = self.api.TF_NewBuffer()
        status = self.api.TF_NewStatus()
        tags = (ctypes.c_char_p * 1)(b"serve")
        self.session = self.api.TF_LoadSessionFromSavedModel(
            options,
            None,
            str(path).encode(),
            tags,
            1,
            self.graph,
            meta,
            status,
        )
        self._check(status)
        from tensorflow.core.protobuf import meta_graph_pb2

        data = ctypes.string_at(meta.contents.data, meta.contents.length)
        meta_graph = meta_graph_pb2.MetaGraphDef.FromString(data)
        self.signatures = meta_graph.signature_def

    def run(self, signature, inputs):
        """Runs a signature: arrays in and out, by its own names."""
        signature = self.signatures[signature]
        outputs = sorted(signature.outputs)
        feeds = [self._output(signature.inputs[name].name) for name in inputs]
        fetches = [self._output(signature.outputs[n].name) for n in outputs]
        values = [self._tensor(value) for value in inputs.values()]
        results = (ctypes.c_void_p * len(fetches))()
        status = self.api.TF_NewStatus()
        self.api.TF_SessionRun(
            self.session,
            None,
            (_Output * len(feeds))(*feeds),
            (ctypes.c_void_p * len(feeds))(*values),
            len(feeds),
            (_Output * len(fetches))(*fetches),
            results,
            len(fetches),
            None,
            0,
            None,
            status,
        )
        self._check(status)
        return {
            name: self._array(result)
            for name, result in zip(outputs, results, strict=True)
        }

    def _output(self, name):
        operation, _, index = name.partition(":")
        found = self.api.TF_GraphOperationByName(self.graph, operation.encode())
        if not found:
            raise KeyError(name)
        return _Output(found, int(index))

    def _tensor(self, value):
        value = np.asarray(value)
        shape = (ctypes.c_int64 * value.ndim)(*value.shape)
        strings = value.dtype.kind in "OSU"
        size = value.size * (_STRING_SIZE if strings else value.itemsize)
        tensor = self.api.TF_AllocateTensor(
            _TF_STRING if strings else _NUMBERS[value.dtype.name],
            shape,
            value.ndim,
            size,
        )
        start = self.api.TF_TensorData(tensor)
        if strings:
            for i, item in enumerate(value.ravel().tolist()):
                here = start + i * _STRING_SIZE
                self.api.TF_StringInit(here)
                self.api.TF_StringCopy(here, item, len(item))
        else:
            ctypes.memmove(start, value.tobytes(), size)
        return tensor

    def _array(self, tensor):
        shape = [
            self.api.TF_Dim(tensor, axis)
            for axis in range(self.api.TF_NumDims(tensor))
        ]
        start = self.api.TF_TensorData(tensor)
        kind = self.api.TF_TensorType(tensor)
        if kind != _TF_STRING:
            dtype = {i: name for name, i in _NUMBERS.items()}[kind]
            data = ctypes.string_at(start, self.api.TF_TensorByteSize(tensor))
            return np.frombuffer(data, dtype).reshape(shape)
        array = np.empty(shape, object)
        for i in range(array.size):
            here = start + i * _STRING_SIZE
            array.flat[i] = ctypes.string_at(
                self.api.TF_StringGetDataPointer(here),
                self.api.TF_StringGetSize(here),
            )
        return array

    def _check(self, status):
        code = self.api.TF_GetCode(status)
        if code:
            raise CLoaderError(code, self.api.TF_Message(status).decode())


class CLoaderError(Exception):
    """A status of TensorFlow: its code and message."""


INVALID_ARGUMENT = 3
_TF_STRING = 7
_STRING_SIZE = 24  # of a TF_TString
_NUMBERS = {"float32": 1, "int32": 3, "uint8": 4, "int64": 9, "bool": 10}


class _Output(ctypes.Structure):
    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("deallocator", ctypes.c_void_p),
    ]


def register_text_operations():
    """Loads tensorflow-text's operations; its `import` would need Keras."""
    import tensorflow as tf

    for library in _folder("tensorflow_text").glob("python/ops/*.so"):
        tf.load_op_library(str(library))


def _folder(package):
    return pathlib.Path(importlib.util.find_spec(package).origin).parent


def _api():
    """Returns the C API as in the server: tensorflow-text in, XLA off."""
    register_text_operations()
    (library,) = _folder("tensorflow").glob("libtensorflow_cc.*")
    api = ctypes.CDLL(str(library))
    if "--xla" not in sys.argv:
        api._ZN10tensorflow21DisableXlaCompilationEv()
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
        ("TF_NewSessionOptions", pointer, []),
        ("TF_NewGraph", pointer, []),
        ("TF_NewBuffer", ctypes.POINTER(_Buffer), []),
        ("TF_NewStatus", pointer, []),
        ("TF_GetCode", ctypes.c_int, [pointer]),
        ("TF_Message", ctypes.c_char_p, [pointer]),
        ("TF_LoadSessionFromSavedModel", pointer, None),
        ("TF_SessionRun", None, None),
        ("TF_GraphOperationByName", pointer, [pointer, ctypes.c_char_p]),
        (
            "TF_AllocateTensor",
            pointer,
            [ctypes.c_int, pointer, ctypes.c_int, size],
        ),
        ("TF_TensorData", pointer, [pointer]),
        ("TF_TensorType", ctypes.c_int, [pointer]),
        ("TF_TensorByteSize", size, [pointer]),
        ("TF_NumDims", ctypes.c_int, [pointer]),
        ("TF_Dim", ctypes.c_int64, [pointer, ctypes.c_int]),
        ("TF_StringInit", None, [pointer]),
        ("TF_StringCopy", None, [pointer, ctypes.c_char_p, size]),
        ("TF_StringGetDataPointer", pointer, [pointer]),
        ("TF_StringGetSize", size, [pointer]),
    ):
        function = getattr(api, name)
        function.restype = result
        function.argtypes = arguments
    # These two take pointers only, and counts that fit an int.
    api.TF_LoadSessionFromSavedModel.argtypes = [
        pointer,
        pointer,
        ctypes.c_char_p,
        pointer,
        ctypes.c_int,
        pointer,
        ctypes.POINTER(_Buffer),
        pointer,
    ]
    arrays = [pointer, pointer, ctypes.c_int]
    api.TF_SessionRun.argtypes = [
        pointer,
        pointer,
        *arrays,
        *arrays,
        pointer,
        ctypes.c_int,
        pointer,
        pointer,
    ]
    return api


class PythonLoader:
    """A SavedModel, loaded by `tf.saved_model.load`."""

    def __init__(self, path):
        import tensorflow as tf

        register_text_operations()
        self.loaded = tf.saved_model.load(str(path))

    def run(self, signature, inputs):
        import tensorflow as tf

        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        outputs = self.loaded.signatures[signature](**tensors)
        return {name: value.numpy() for name, value in outputs.items()}


def answer(requests, loaded):
    """Yields an answer to each request; keeps what it loads in `loaded`."""
    loaders = {"c": CLoader, "python": PythonLoader}
    for path, signature, inputs, loader in requests:
        try:
            if (path, loader) not in loaded:
                loaded[path, loader] = loaders[loader](path)
            run = loaded[path, loader].run
            if isinstance(signature, int) and isinstance(inputs, list):
                searches = [
                    client_loop.beam_search(each, signature, width)
                    for each, width, _ in inputs
                ]
                delays = [delay for *_, delay in inputs]
                yield batching.together(run, searches, delays)
            elif isinstance(signature, int):
                yield client_loop.greedy(run, inputs, signature)
            elif isinstance(inputs, list):
                yield batching.run(run, signature, inputs)
            else:
                yield run(signature, inputs)
        except CLoaderError as error:
            yield error.args


if __name__ == "__main__":
    sys.meta_path.insert(0, Block())
    # What libraries print goes to the standard error, not among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    loaded = {}
    while True:
        try:
            requests = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        found = list(answer(requests, loaded))
        assert not set(UNREACHABLE) & set(sys.modules)
        pickle.dump(found, answers)
        answers.flush()
