"""Additive scores in blocks are additive scores, with their gradients."""

import functools
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn.layers.scores import AdditiveScore
from keras_attn.layers.scores import ConcatScore
from keras_attn.layers.scores import blockwise
from keras_attn.layers.scores.blockwise import additive

SHAPES = [  # batch, target, source, units
    (1, 2, 1, 1),
    (3, 5, 7, 4),
    (2, 9, 4, 3),
    (7, 2, 3, 5),
]
BENCHMARK = pathlib.Path(__file__).parents[1] / "benchmarks" / "additive.py"
BACKEND = keras.backend.backend()
tensorflow_only = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="tf.function"
)


@pytest.fixture
def small_blocks(monkeypatch):
    """Sets small limits for large tensors and blocks, to test on small data."""
    monkeypatch.setattr(blockwise, "LARGE", 0)
    monkeypatch.setattr(blockwise, "BLOCK", 30)


def draw(batch, target, source, units, dtype="float32"):
    """Returns a query, keys, v and a gradient of the scores."""
    random = np.random.default_rng(0)
    shapes = (
        (batch, target, units),
        (batch, source, units),
        (units, 1),
        (batch, target, source),
    )
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


def plain(query, keys, v):
    return additive(query, keys, v, block_size="all")


def with_gradients(function, query, keys, v, gradient, **compiled):
    """The scores and the gradients of query, keys and v."""
    inputs = query, keys, v
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def both(gradient, *inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                scores = function(*inputs)
            return scores, *tape.gradient(scores, inputs, gradient)

        if compiled:
            both = tf.function(both, **compiled)
        found = both(*map(tf.constant, (gradient, *inputs)))
    elif BACKEND == "jax":
        import jax

        def both(gradient, *inputs):
            scores, pull = jax.vjp(function, *inputs)
            return scores, *pull(gradient)

        found = (jax.jit(both) if compiled else both)(gradient, *inputs)
    else:
        import torch

        inputs = [torch.tensor(x, requires_grad=True) for x in inputs]
        scores = function(*inputs)
        scores.backward(torch.tensor(gradient))
        found = [scores.detach(), *(x.grad for x in inputs)]
    return [np.array(x) for x in found]


def same(found, expected, **tolerance):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, **tolerance)


def test_blocks_have_the_scores_worked_out_by_hand():
    # tanh 0 = 0 and tanh(ln 3) = 4/5, and v is 5.
    ln3 = np.log(3)
    query, keys = [[[0.0], [ln3]]], [[[0.0], [ln3], [-ln3]]]
    for block_size in (1, 2, "all", None):
        scores = additive(
            np.array(query, "float32"),
            np.array(keys, "float32"),
            np.array([[5.0]], "float32"),
            block_size=block_size,
        )
        # tanh(2 ln 3) = 40/41.
        np.testing.assert_allclose(
            ops.convert_to_numpy(scores),
            [[[0, 4, -4], [4, 200 / 41, 0]]],
            atol=1e-6,
        )


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("compiled", [{}, {"jit_compile": True}], ids=str)
@pytest.mark.parametrize("block_size", [None, 1, 2, 4, 100])
def test_blocks_have_the_plain_scores_and_gradients(
    shape, compiled, block_size, small_blocks
):
    drawn = draw(*shape)
    found = with_gradients(
        lambda *x: additive(*x, block_size=block_size), *drawn, **compiled
    )
    same(found, with_gradients(plain, *drawn), rtol=1e-5, atol=1e-5)


@pytest.mark.sample_cases(1)
@tensorflow_only
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("large", [0, 2**22])
def test_sizes_may_be_unknown_until_the_graph_runs(
    shape, jit_compile, large, small_blocks, monkeypatch
):
    import tensorflow as tf

    monkeypatch.setattr(blockwise, "LARGE", large)
    drawn = draw(*shape)
    free, units = tf.TensorSpec((None, None, None)), shape[-1]
    found = with_gradients(
        additive,
        *drawn,
        jit_compile=jit_compile,
        input_signature=[
            free,
            tf.TensorSpec((None, None, units)),
            tf.TensorSpec((None, None, units)),
            tf.TensorSpec((units, 1)),
        ],
    )
    same(found, with_gradients(plain, *drawn), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block_size", [None, 1, 2])
def test_gradients_are_those_of_finite_differences(block_size, small_blocks):
    drawn = draw(2, 3, 4, 3, "float64")
    *inputs, gradient = drawn
    exact = with_gradients(
        lambda *x: additive(*x, block_size=block_size),
        *(x.astype("float32") for x in drawn),
    )[1:]

    def loss():
        query, keys, v = inputs
        return np.sum(
            np.tanh(query[:, :, None] + keys[:, None]) @ v[:, 0] * gradient
        )

    for x, dx in zip(inputs, exact, strict=True):
        for index in np.ndindex(x.shape):
            before, losses = x[index], []
            for step in (1e-4, -1e-4):
                x[index] = before + step
                losses.append(loss())
            x[index] = before
            slope = (losses[0] - losses[1]) / 2e-4
            np.testing.assert_allclose(dx[index], slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("score", [AdditiveScore, ConcatScore])
def test_half_precision_is_kept_and_close(dtype, score):
    query, keys, *_ = draw(2, 6, 5, 8)
    both = []
    for block_size in (2, "all"):
        keras.utils.set_random_seed(0)
        part = score(8, block_size=block_size, dtype=f"mixed_{dtype}")
        part.build(query.shape, keys.shape)
        scores = part(query, keys)
        assert keras.backend.standardize_dtype(scores.dtype) == dtype
        both.append(ops.convert_to_numpy(ops.cast(scores, "float32")))
    np.testing.assert_allclose(*both, rtol=2e-2, atol=2e-2)


@pytest.mark.sample_cases(1)
@tensorflow_only
@pytest.mark.parametrize("large", [0, 2**22])
def test_an_empty_batch_has_no_scores(large, small_blocks, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(blockwise, "LARGE", large)
    free = tf.TensorSpec((None, None, None))
    wide = tf.TensorSpec((None, None, 3))
    signature = [free, wide, wide, tf.TensorSpec((3, 1))]
    for batch, target, source in ((0, 2, 4), (2, 0, 4), (0, 0, 0)):
        drawn = draw(batch, target, source, 3)
        for function in (additive, plain):
            scores, dq, dk, dv = with_gradients(
                function, *drawn, input_signature=signature
            )
            assert scores.shape == (batch, target, source)
            assert dq.shape == (batch, target, 3)
            assert not dk.any() and not dv.any()


@tensorflow_only
@pytest.mark.parametrize("large, loops", [(0, True), (2**22, False)])
def test_xla_compiles_the_one_form_that_the_sizes_want(
    large, loops, small_blocks, monkeypatch
):
    import tensorflow as tf

    monkeypatch.setattr(blockwise, "LARGE", large)
    free = tf.TensorSpec((None, None, 4))

    @tf.function(
        jit_compile=True,
        input_signature=[free, free, tf.TensorSpec((4, 1))],
    )
    def both(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            scores = additive(*inputs)
        return tape.gradient(scores, inputs)

    *inputs, _ = map(tf.constant, draw(3, 9, 5, 4))
    compiled = both.experimental_get_compiler_ir(*inputs)(stage="hlo")
    # Such as `%while.2 = (s32[], ...) while(...)`; names in it may say more.
    assert (") while(" in compiled) == loops


@tensorflow_only
@pytest.mark.parametrize(
    "target, block_size", [(1, None), (1, 4), (5, None), (None, "all")]
)
def test_steps_and_beams_are_compared_without_a_loop(target, block_size):
    import tensorflow as tf

    graph = tf.function(lambda *x: additive(*x, block_size=block_size))
    graph = graph.get_concrete_function(
        tf.TensorSpec((None, target, 8)),
        tf.TensorSpec((None, None, 8)),
        tf.TensorSpec((8, 1)),
    ).graph
    kinds = {op.type for op in graph.get_operations()}
    assert not kinds & {"While", "StatelessWhile", "If", "StatelessIf"}


@tensorflow_only
@pytest.mark.parametrize("units", [8, 64])
def test_no_tensor_of_all_pairs_and_units_is_made(units, small_blocks):
    import tensorflow as tf

    batch, target, source = 3, 10, 12

    @tf.function
    def both(query, keys, v):
        with tf.GradientTape() as tape:
            tape.watch([query, keys, v])
            scores = additive(query, keys, v)
        return tape.gradient(scores, [query, keys, v])

    query, keys, v, _ = draw(batch, target, source, units)
    graphs = [both.get_concrete_function(query, keys, v).graph]
    sizes = []
    while graphs:
        graph = graphs.pop()
        for op in graph.get_operations():
            shapes = [x.shape for x in op.outputs if x.shape.is_fully_defined()]
            sizes += [shape.num_elements() for shape in shapes]
            for name in ("body", "then_branch", "else_branch"):
                if name in op.node_def.attr:
                    called = op.get_attr(name).name
                    graphs.append(graph._get_function(called).graph)
    assert max(sizes) < batch * target * source * units / 2


@pytest.mark.parametrize("score", [AdditiveScore, ConcatScore])
def test_the_attention_of_blocks_is_that_of_all(score):
    query, value, *_ = draw(3, 7, 5, 6)
    attention = keras_attn.Attention(score(4, block_size=2))
    found = attention(query, value)
    config = attention.get_config()
    assert config["score"]["config"]["block_size"] == 2
    twin = keras_attn.Attention(score(4, block_size="all"))
    twin.build(query.shape, value.shape)
    twin.set_weights(attention.get_weights())
    np.testing.assert_allclose(
        ops.convert_to_numpy(found),
        ops.convert_to_numpy(twin(query, value)),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("score", [AdditiveScore, ConcatScore])
def test_a_model_of_unknown_sizes_trains_and_answers(score, small_blocks):
    inputs = keras.Input((None, 6)), keras.Input((None, 6))
    outputs = keras_attn.Attention(score(4))(*inputs)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", jit_compile=False)
    query, value, *_ = draw(3, 7, 5, 6)
    before = model.get_weights()
    model.fit([query, value], query, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        assert np.abs(old - new).max() > 0
    assert model.predict([query, value], verbose=0).shape == (3, 7, 6)


@pytest.mark.parametrize("score", [AdditiveScore, ConcatScore])
@pytest.mark.parametrize("block_size", [0, -1, 2.5, "none", True])
def test_block_size_must_be_a_positive_integer_or_all(score, block_size):
    with pytest.raises(
        ValueError,
        match=rf"`block_size` must be a positive integer.*{block_size!r}",
    ):
        score(4, block_size=block_size)


@pytest.mark.parametrize(
    "score",
    [keras_attn.LocationSensitiveScore, keras_attn.CoverageScore],
)
@pytest.mark.parametrize("block_size", [4, "all"])
def test_scores_of_more_than_query_and_keys_have_no_blocks(score, block_size):
    with pytest.raises(ValueError, match=f"keys. {score.__name__} adds"):
        score(4, block_size=block_size)
    assert score.from_config(score(4).get_config()).block_size is None


def test_blocks_with_one_more_term_are_refused():
    query, keys, v, _ = draw(1, 2, 3, 4)
    with pytest.raises(ValueError, match="Blocks are for scores that compare"):
        additive(query, keys, v, np.zeros((1, 2, 3, 4)), block_size=1)


@pytest.mark.full
@tensorflow_only
def test_the_benchmark_finds_the_same_numbers_in_every_form(tmp_path):
    command = [sys.executable, BENCHMARK, "--smoke"]
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for mode in ("graph", "XLA"):
        assert f"| keras_attn, {mode} |" in done.stdout


@pytest.mark.parametrize("block_size", [None, 2])
@pytest.mark.parametrize("one", ["query", "keys"])
@pytest.mark.parametrize(
    "unknown_sizes", [False, pytest.param(True, marks=tensorflow_only)]
)
def test_one_sentence_serves_all_of_the_batch(
    one, block_size, unknown_sizes, small_blocks
):
    query, keys, v, gradient = draw(3, 9, 4, 5)
    if one == "query":
        query = query[:1]
    else:
        keys = keys[:1]
    expected = plain(query, keys, v)
    function = functools.partial(additive, block_size=block_size)
    if unknown_sizes:
        import tensorflow as tf

        sizes = [None, None, 5], [None, None, 5], [5, 1]
        function = tf.function(
            function, input_signature=list(map(tf.TensorSpec, sizes))
        )
    np.testing.assert_allclose(function(query, keys, v), expected, atol=1e-6)
    # The gradient of what serves all is a sum.
    found = with_gradients(function, query, keys, v, gradient)
    wanted = with_gradients(
        plain,
        *(np.repeat(x, 3 // len(x), 0) for x in (query, keys)),
        v,
        gradient,
    )
    shapes = [np.shape(x) for x in (query, keys, v)]
    for x, y, shape in zip(found[1:], wanted[1:], shapes, strict=True):
        y = np.asarray(y)
        if shape[0] == 1:
            y = y.sum(0, keepdims=True)
        np.testing.assert_allclose(x, y, atol=1e-4)
