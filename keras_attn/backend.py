"""Operations that `keras.ops` lacks, for every backend."""

import contextlib
import contextvars
import functools

import keras
from keras import ops


def take_rows(x, positions):
    """Gathers entries of axis 1, with different positions in each row.

    Args:
        x: Tensor of shape `(batch, length, ...)`.
        positions: Integer tensor of shape `(batch, ...)`, each at least 0
            and below `length`.

    Returns:
        Tensor of shape `(*positions.shape, *x.shape[2:])`.
    """
    # Indexes all rows concatenated. `take_along_axis` would repeat the
    # positions for every entry, and its gradient fails inside `cond` under
    # XLA.
    batch, length, *trailing = ops.shape(x)
    first = ops.reshape(
        ops.arange(batch, dtype="int32") * length,
        (-1,) + (1,) * (len(positions.shape) - 1),
    )
    index = ops.reshape(ops.cast(positions, "int32") + first, (-1,))
    taken = ops.take(ops.reshape(x, (-1, *trailing)), index, axis=0)
    return ops.reshape(taken, (*ops.shape(positions), *trailing))


def take_beams(structure, beams):
    """Gathers entries of axis 1 of every tensor of a structure.

    Args:
        structure: Structure of tensors of shape `(batch, beams, ...)`, and of
            `None`.
        beams: Integer tensor of shape `(batch, new_beams)`.

    Returns:
        The structure, with tensors of shape `(batch, new_beams, ...)`.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        def take(x):
            return tf.gather(x, beams, batch_dims=1)

    else:

        def take(x):
            return take_rows(x, beams)

    return keras.tree.map_structure(
        lambda x: None if x is None else take(x), structure
    )


def reshape(x, shape):
    """Reshapes like `ops.reshape`, but passes a single unknown size as -1.

    In a graph, looking up a size costs three operations.

    Args:
        x: Tensor.
        shape: Tuple of sizes: an integer if the size is known, else an
            integer scalar tensor.
    """
    sizes = list(shape)
    unknown = [i for i, x in enumerate(sizes) if not isinstance(x, int)]
    # TensorFlow cannot infer -1 if another size is zero.
    if len(unknown) == 1 and 0 not in [x for x in sizes if isinstance(x, int)]:
        sizes[unknown[0]] = -1
    return ops.reshape(x, sizes)


def times_transposed(x, matrix):
    """Returns `x @ transpose(matrix)`, without a copy of the matrix.

    Args:
        x: Tensor `(..., n)`.
        matrix: Tensor `(m, n)`.
    """

    if keras.backend.backend() != "tensorflow":
        return ops.einsum("...n,mn->...m", x, matrix)
    import tensorflow as tf

    kinds = {keras.backend.standardize_dtype(t.dtype) for t in (x, matrix)}
    shape = [*ops.shape(x)[:-1], matrix.shape[0]]
    if kinds != {"float32"}:
        # With "..." TensorFlow 2.21 returns wrong numbers in float16 on CPUs
        # that multiply such numbers.
        x = reshape(x, [-1, x.shape[-1]])
        return reshape(ops.einsum("rn,mn->rm", x, matrix), shape)

    def of_few_rows():
        # tf2onnx loses the shape of a tensor that a branch captures, and then
        # does not transpose it.
        known = tf.ensure_shape(matrix, matrix.shape)
        return tf.matmul(flat, known, transpose_b=True)

    # For one or two rows, as when a single text is decoded, oneDNN takes 0.7
    # of the einsum's time. For more rows it takes longer.
    flat = tf.reshape(x, [-1, x.shape[-1]])
    product = tf.cond(
        tf.shape(flat)[0] <= 2,
        of_few_rows,
        lambda: tf.einsum("rn,mn->rm", flat, matrix),
    )
    return reshape(product, shape)


def zero_where_masked(x, mask):
    """Sets `x (batch, length, ...)` to zero where the mask is False."""
    if mask is None:
        return x
    shape = (*ops.shape(mask), *(1,) * (len(x.shape) - 2))
    return ops.where(ops.reshape(mask, shape), x, ops.zeros_like(x))


def finite(x, dtype=None):
    """Casts to a dtype, and clips what would be infinite in float16.

    The difference of two infinite numbers is NaN. The dtype defaults to that
    of `x`.
    """
    dtype = keras.backend.standardize_dtype(dtype or x.dtype)
    if dtype == "float16":
        x = ops.clip(x, -65504.0, 65504.0)
    return ops.cast(x, dtype)


def never_empty(x, axis):
    """Pads an empty axis to one position; some operations need at least one.

    If the size is known and not zero, returns `x` itself.
    """
    size = ops.shape(x)[axis]
    if isinstance(size, int):
        missing = int(size == 0)
        if not missing:
            return x
    else:
        missing = ops.cast(size == 0, "int32")
    widths = [(0, 0)] * len(x.shape)
    widths[axis] = (0, missing)
    return ops.pad(x, widths)


def cumulative_logsumexp(x):
    """Returns `log(exp(x[0]) + ... + exp(x[i]))` along the last axis."""
    name = keras.backend.backend()
    if name == "tensorflow":
        import tensorflow as tf

        return tf.math.cumulative_logsumexp(x, axis=-1)
    if name == "jax":
        import jax

        return jax.lax.cumlogsumexp(x, axis=x.ndim - 1)
    import torch

    return torch.logcumsumexp(x, dim=-1)


def tanh_gradient(y, upstream):
    """Returns the gradient of `x`, given that of `y = tanh(x)`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # One pass over the numbers instead of three.
        return tf.raw_ops.TanhGrad(y=y, dy=upstream)
    return upstream * (1 - y * y)


_FORWARD_ONLY = contextvars.ContextVar("forward only", default=False)


@contextlib.contextmanager
def without_gradients():
    """Traces functions of `custom_gradient` without their gradients.

    TensorFlow registers each such gradient of a graph for good, and the
    gradient keeps the whole graph alive. Decoding needs no gradients.
    """
    token = _FORWARD_ONLY.set(True)
    try:
        yield
    finally:
        _FORWARD_ONLY.reset(token)


def custom_gradient(function):
    """Like `ops.custom_gradient`, but respects `without_gradients`."""
    differentiable = ops.custom_gradient(function)

    @functools.wraps(function)
    def either(*args):
        if _FORWARD_ONLY.get():
            found, _ = function(*args)
            return found
        return differentiable(*args)

    return either


def as_one_operation(function):
    """Makes a graph call a function instead of inlining its operations.

    Inlined operations cost time even in a branch of `cond` that is not taken.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    return tf.function(
        function,
        autograph=False,
        experimental_attributes={"_noinline": True},
    )


def as_graph(function, inputs):
    """Returns a graph of a function for unknown sizes, like that of a search.

    On backends other than TensorFlow it returns the function itself.

    Args:
        function: Function of tensors.
        inputs: Symbolic tensors with the shapes and dtypes of its arguments.
            The first size, and each size that is `None`, is unknown in the
            graph.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    return tf.function(
        without_gradients()(function),
        input_signature=[
            tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in inputs
        ],
        autograph=False,
    )


def has_value(x) -> bool:
    """Whether the numbers of a tensor are known: it is in no graph or trace."""
    if keras.backend.backend() == "jax":
        import jax

        return not isinstance(x, jax.core.Tracer)
    return hasattr(x, "numpy")


def require(condition, message):
    """Raises an error with `message` unless a condition on tensors holds.

    Args:
        condition: A Python bool, or a boolean scalar tensor whose value may be
            known only when the graph runs. TensorFlow checks a tensor, but
            not under XLA, JAX only outside of `jax.jit`, and PyTorch never.
        message: Text of the error.
    """
    if keras.backend.backend() == "jax":
        import jax

        if not isinstance(condition, (bool, jax.core.Tracer)):
            condition = bool(condition)
    if isinstance(condition, bool):
        if not condition:
            raise ValueError(message)
        return
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.debugging.Assert(condition, [message])


def required(x, condition, message, shown=()):
    """Returns `x` after a check of a condition on tensors.

    Like `require`, but computations on the returned `x` wait for the check,
    so no other error comes first. On TensorFlow, the error shows the tensors
    `shown` after the message.
    """
    if keras.backend.backend() != "tensorflow" or isinstance(condition, bool):
        require(condition, message)
        return x
    import tensorflow as tf

    shown = [tf.stack(each) for each in shown]
    check = tf.debugging.Assert(condition, [message, *shown])
    with tf.control_dependencies([check]):
        return tf.identity(x)


def fold(step, state, inputs, outputs=1):
    """Runs `step` over axis 0 of the inputs, carrying a state.

    The loop need not be differentiable, because custom gradients use it.

    Args:
        step: Function from `(state, inputs_i)` to `(state, outputs_i)`. The
            outputs are a tuple of tensors of the first input's dtype.
        state: Tuple of tensors, possibly empty.
        inputs: Tuple of tensors of shape `(steps, ...)`.
        outputs: Number of a step's outputs.

    Returns:
        The last state, and a tuple of outputs stacked along axis 0.
    """
    name = keras.backend.backend()
    if name == "tensorflow":
        return _fold_tensorflow(step, state, inputs, outputs)
    if name == "jax":
        import jax

        return jax.lax.scan(step, state, inputs)
    every = []
    for inputs_i in zip(*inputs, strict=True):
        state, outputs_i = step(state, inputs_i)
        every.append(outputs_i)
    return state, tuple(map(ops.stack, zip(*every, strict=True)))


def _fold_tensorflow(step, state, inputs, outputs):
    import tensorflow as tf

    steps = tf.shape(inputs[0])[0]
    dtype = inputs[0].dtype
    writers = tuple(tf.TensorArray(dtype, steps) for _ in range(outputs))

    def body(i, state, writers):
        state, outputs_i = step(state, tuple(x[i] for x in inputs))
        written = (
            writer.write(i, output)
            for writer, output in zip(writers, outputs_i, strict=True)
        )
        return i + 1, state, tuple(written)

    # One step at a time, because parallel steps would hold several blocks.
    _, state, writers = tf.while_loop(
        lambda i, *_: i < steps,
        body,
        (tf.constant(0), state, writers),
        maximum_iterations=steps,
        parallel_iterations=1,
    )
    return state, tuple(writer.stack() for writer in writers)


def has_fused_attention():
    """Whether `keras.ops.dot_product_attention` has a fast fused kernel.

    It has none on TensorFlow, and on JAX only on accelerators. On a CPU JAX's
    function takes 1.3 times as long as a softmax between two products.
    """
    name = keras.backend.backend()
    if name == "jax":
        import jax

        return jax.default_backend() != "cpu"
    return name == "torch"


def over_replicas(number):
    """Returns the sum of a number over the replicas that train together.

    Under `tf.distribute` Keras adds up the gradients of the replicas. So each
    replica divides its summed loss by the number of tokens of all replicas.
    The result is the gradient of one worker with the whole batch.
    """
    if keras.backend.backend() != "tensorflow":
        return number
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return number
    return context.all_reduce(tf.distribute.ReduceOp.SUM, number)


def as_array(x):
    """Returns the numpy array of a tensor.

    `keras.ops.convert_to_numpy` warns about bfloat16 tensors of TensorFlow.
    """
    is_brief = keras.backend.standardize_dtype(x.dtype) == "bfloat16"
    if is_brief and keras.backend.backend() == "tensorflow":
        return x.numpy()
    return ops.convert_to_numpy(x)
