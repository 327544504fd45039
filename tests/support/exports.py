"""Reads SavedModels, their warm-up requests and their answers."""

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

# All operations that an export may use. TF Serving links TensorFlow's own and,
# from 2.20.0 on, those of tensorflow-text 2.20.
CORE_OPERATIONS = """
AddN AddV2 All Any ArgMax ArgMin AsString Assert AssignVariableOp BatchMatMulV2
BiasAdd Bitcast BitwiseOr BitwiseXor BroadcastTo Case Cast ConcatV2 Const Cos
Cumsum DenseBincount DisableCopyOnRead Einsum EnsureShape Equal Exp ExpandDims
Fill Floor FloorDiv FloorMod GatherV2 Greater GreaterEqual HashTableV2 Identity
IdentityN If InitializeTableFromTextFileV2 IsFinite IsNan LeftShift Less
LessEqual Log LogSoftmax LogicalAnd LogicalNot LogicalOr LookupTableFindV2
MatMul Max Maximum Mean MergeV2Checkpoints Min Minimum Mul Neg NoOp NotEqual
OneHot OnesLike Pack Pad PadV2 PartitionedCall Placeholder Pow Prod
RaggedGather RaggedRange RaggedTensorToTensor RandomUniformInt Range
ReadVariableOp RealDiv ReduceJoin Reshape ResourceGather RestoreV2 ReverseV2
RightShift Rsqrt SaveV2 Select SelectV2 Shape ShardedFilename Sigmoid Sin Size
Slice Softmax Split SplitV Sqrt SquaredDifference Squeeze
StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile
StaticRegexFullMatch StaticRegexReplace StopGradient StridedSlice StringJoin
StringLower StringSplitV2 StringStrip Sub Substr Sum Tanh TanhGrad
TensorListFromTensor TensorListGetItem TensorListReserve TensorListSetItem
TensorListStack TensorScatterMin TensorScatterUpdate Tile TopKV2 Transpose
UnicodeDecode UnicodeEncode UnicodeTranscode Unique UniqueWithCounts Unpack
UnsortedSegmentJoin UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
VarHandleOp VarIsInitializedOp Where While ZerosLike
""".split()


TEXT_OPERATIONS = """
NormalizeUTF8 TFText>WhitespaceTokenizeWithOffsetsV2
""".split()


def as_bytes(lines):
    return np.array(
        [x if isinstance(x, bytes) else x.encode() for x in lines], object
    )


def warm_ups(path):
    """Signatures and inputs of an export's warm-up requests."""
    file = path / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(file)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        yield request.model_spec.signature_name, inputs


def ids_of(text, lines):
    ids = text.ids(tf.constant(lines, tf.string)).numpy()
    return {"ids": ids, "lengths": (ids != 0).sum(1).astype("int32")}


def saved_model(path):
    data = (path / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(data)


def nodes(path):
    """All nodes of the graph, and of the functions it calls."""
    (meta_graph,) = saved_model(path).meta_graphs
    yield from meta_graph.graph_def.node
    for function in meta_graph.graph_def.library.function:
        yield from function.node_def


def option_inputs(search):
    """Returns the dtypes of a search's options by their inputs' names."""
    options = search.request_options
    return {options.in_exports(x): dtype for x, dtype in options.items()}


def own_options(made, lines):
    """Returns inputs of `options`, which differ in each row."""
    count = len(lines)
    asked = {
        "text": as_bytes(lines),
        "prefix": as_bytes(["B K " if n % 3 else "" for n in range(count)]),
    }
    known = made.search.request_options
    for name, dtype in known.items():
        own = getattr(made.search, name)
        values = np.full(count, own, dtype.as_numpy_dtype)
        if name == "max_length":
            values[::2] = 9
        asked[known.in_exports(name)] = values
    if made.search.draws:
        asked["seed"] = np.arange(count, dtype="int32")
    return asked
