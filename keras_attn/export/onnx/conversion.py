"""`Conversion`: converts a TensorFlow function to ONNX, and checks the result.

The function's variables become constants and its calls are inlined, but its
loops are kept, as ONNX also has loops. tf2onnx then converts the operations one
by one. It leaves those that it cannot convert in the model, and only logs them.
So this module looks for them, and compares the results of the model with those
of the function.
"""

import contextlib
import importlib
import logging
import warnings

import numpy as np
import tensorflow as tf

# The highest opset that tf2onnx writes. It has the bitwise operations that the
# random draws of a search need.
OPSET = 18
# How far scores may differ: the two runtimes sum in different orders.
TOLERANCE = 1e-3
LEAST_ALIKE = 0.5  # share of the hypotheses with the same ids
LARGEST = 2**31 - 1  # bytes of a protocol buffer
PACKAGES = ("onnx", "onnxruntime", "tf2onnx")


def require_packages() -> None:
    """Raises `ImportError` if one of the packages is not installed."""
    for name in PACKAGES:
        try:
            with _quiet():
                importlib.import_module(name)
        except ImportError as error:
            raise ImportError(
                f"An export to ONNX needs the package `{name}`. Install all "
                'that it needs with `pip install "keras-attn[onnx]"`. The '
                "exported model itself needs only `onnxruntime`."
            ) from error


class Conversion:
    """A function, and the ONNX model that it was converted to.

    Args:
        function: An `Ids`: a function with `specs` of its inputs and `sizes`
            of its outputs.

    Raises:
        ValueError: If the function cannot be converted, or its variables have
            2 GB or more.
    """

    def __init__(self, function):
        self._specs, self._sizes = function.specs, function.sizes
        self._traced = tf.function(
            function, input_signature=function.specs, autograph=False
        ).get_concrete_function()
        self._require_small()
        self._model = self._converted()
        self._require_known_operations()
        self._name_sizes()

    def _require_small(self):
        size = sum(
            x.dtype.size * x.shape.num_elements()
            for x in self._traced.variables
        )
        if size > LARGEST:
            raise ValueError(
                "The weights of an ONNX model must be smaller than 2 GB. "
                f"Received: {size} bytes. Export a SavedModel: leave out "
                '`format="onnx"`.'
            )

    def _converted(self):
        with _quiet():
            import tf2onnx
            from tensorflow.python.framework import convert_to_constants

            frozen = convert_to_constants.convert_variables_to_constants_v2(
                self._traced,
                lower_control_flow=False,
                aggressive_inlining=True,
            )
            inputs = [x.name for x in frozen.inputs]
            # TensorFlow orders the tensors of a dictionary by sorted keys.
            outputs = dict(
                zip(
                    sorted(self._sizes),
                    (x.name for x in frozen.outputs),
                    strict=True,
                )
            )
            names = [spec.name for spec in self._specs]
            renamed = dict(zip(inputs, names, strict=True))
            renamed |= {outputs[name]: name for name in self._sizes}
            try:
                with _without_wrong_pass():
                    model, _ = tf2onnx.convert.from_graph_def(
                        frozen.graph.as_graph_def(),
                        name="translator",
                        input_names=inputs,
                        output_names=[outputs[name] for name in self._sizes],
                        opset=OPSET,
                        tensors_to_rename=renamed,
                        custom_op_handlers={"Erfc": (_erfc, [])},
                    )
            except Exception as error:
                raise ValueError(_refusal(f"{error!s:.300}")) from error
        return model

    def _require_known_operations(self):
        import onnx

        unknown = {
            node.op_type
            for node in _nodes(self._model.graph)
            if not onnx.defs.has(node.op_type, node.domain)
        }
        if unknown:
            raise ValueError(_refusal(f"operations {sorted(unknown)}"))

    def _name_sizes(self):
        """Sets the sizes of all axes, with the names used in `README.txt`."""
        graph = self._model.graph
        shapes = {spec.name: sizes_of(spec) for spec in self._specs}
        shapes |= self._sizes
        for tensor in [*graph.input, *graph.output]:
            sizes = shapes[tensor.name]
            axes = tensor.type.tensor_type.shape
            del axes.dim[:]
            for size in sizes:
                key = "dim_param" if isinstance(size, str) else "dim_value"
                axes.dim.add(**{key: size})

    def require_alike(self, examples) -> None:
        """Raises `ValueError` unless ONNX Runtime and TensorFlow agree.

        Args:
            examples: Tuples of arrays, one for each input, in their order.
        """
        run = self._runner()
        for given in examples:
            wanted = self._traced(*map(tf.constant, given))
            wanted = {name: x.numpy() for name, x in wanted.items()}
            found = run(given)
            near = np.allclose(
                found["scores"],
                wanted["scores"],
                atol=TOLERANCE,
                rtol=TOLERANCE,
            )
            same = found["target_ids"] == wanted["target_ids"]
            # The runtimes may order nearly equal scores differently. This is
            # rare.
            if not near or np.mean(np.all(same, axis=-1)) < LEAST_ALIKE:
                found, wanted = (
                    {
                        name: x[name].tolist()
                        for name in ("target_ids", "scores")
                    }
                    for x in (found, wanted)
                )
                raise ValueError(
                    _refusal(
                        f"{found!r:.200} in ONNX Runtime and {wanted!r:.200} "
                        "in TensorFlow"
                    )
                )

    def _runner(self):
        """Returns a function that runs the model on a tuple of arrays."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised; no need to log them
        options.intra_op_num_threads = 1
        names = [spec.name for spec in self._specs]
        try:
            session = onnxruntime.InferenceSession(
                self._model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
            )
        except Exception as error:
            raise ValueError(_refusal(f"{error!s:.300}")) from error

        def run(given):
            try:
                found = session.run(None, dict(zip(names, given, strict=True)))
            except Exception as error:
                raise ValueError(_refusal(f"{error!s:.300}")) from error
            outputs = [x.name for x in session.get_outputs()]
            return dict(zip(outputs, found, strict=True))

        return run

    def write(self, path) -> None:
        """Writes the model to a file, whose path is a `pathlib.Path`."""
        path.write_bytes(self._model.SerializeToString())


def _erfc(graph, node, name, arguments):
    """Writes `Erfc`, which exact GELU uses, as `1 - Erf`.

    tf2onnx cannot convert this operation itself. It calls this function like
    one of its own handlers.
    """
    (found,) = node.output
    one = graph.make_const(f"{name}/one", np.array(1, "float32"))
    node.type = "Erf"
    graph.insert_new_node_on_output("Sub", found, inputs=[one.output[0], found])


@contextlib.contextmanager
def _without_wrong_pass():
    """Disables a wrong optimizer pass of tf2onnx, which has no option for this.

    tf2onnx 1.17 removes the first of two consecutive reshapes, although the
    second may copy a size from the result of the first. A `Dense` followed by
    a reshape to heads is such a pair.
    """
    from tf2onnx.optimizer import BackToBackOptimizer

    before = BackToBackOptimizer.optimize
    try:
        BackToBackOptimizer.optimize = lambda self, graph, iteration: graph
        yield
    finally:
        BackToBackOptimizer.optimize = before


def sizes_of(spec) -> tuple:
    """Returns the sizes of an input, with a name for each unknown size."""
    free = {"ids": "S"}
    return tuple(
        size
        if size is not None
        else "B"
        if axis == 0
        else free.get(spec.name, f"{spec.name}_{axis}")
        for axis, size in enumerate(spec.shape)
    )


def _refusal(reason):
    return (
        "This translator cannot be an ONNX model: each of its operations must "
        "exist in ONNX and give the same results there. Received: "
        f"{reason}. Export a SavedModel, or leave out the layer or the option "
        "of the search that causes this. A `Sampling` with `top_p` over more "
        "than 256 tokens needs a `top_k` too."
    )


def _nodes(graph):
    """Yields the nodes of a graph and, recursively, of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


@contextlib.contextmanager
def _quiet():
    """Silences the messages of the converter and of TensorFlow.

    Both call deprecated functions of TensorFlow. For each operation that it
    cannot convert, tf2onnx also logs a stack trace and continues.
    """
    loggers = [logging.getLogger(x) for x in ("tensorflow", "tf2onnx")]
    before = [x.level for x in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings():
            for module in (*PACKAGES, "tensorflow"):
                warnings.filterwarnings("ignore", module=rf"{module}(\..*)?")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
