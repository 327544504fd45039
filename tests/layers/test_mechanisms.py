"""Promises of every attention, tested for each row of the table."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops
from support import mechanisms
from support.mechanisms import BATCH
from support.mechanisms import CELLS
from support.mechanisms import INPUT_DIM
from support.mechanisms import MASKS
from support.mechanisms import MECHANISMS
from support.mechanisms import QUERY_DIM
from support.mechanisms import SOURCE
from support.mechanisms import TARGET
from support.mechanisms import WIRINGS
from support.mechanisms import crossing
from support.mechanisms import draw
from support.mechanisms import each_mechanism
from support.mechanisms import each_of
from support.mechanisms import in_turn
from support.mechanisms import scramble
from support.mechanisms import some_ids
from support.mechanisms import values

import keras_attn

TESTS = pathlib.Path(__file__).parents[1]

# Keras makes arrays of its variables in a way that NumPy deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)


def layer_and_inputs(mechanism, batch=BATCH, source=SOURCE, **options):
    """Returns an attention with random weights, a query and a value."""
    query = draw(batch, TARGET, QUERY_DIM, seed=3)
    value = draw(batch, source, mechanism.value_dim, seed=4)
    attention = mechanism.make(**options)
    attention.build(query.shape, value.shape)
    scramble(attention)
    return attention, query, value


@pytest.mark.sample_cases(10)
@in_turn(mechanism=MECHANISMS, mask=MASKS)
def test_attending_step_by_step_is_attending_to_all_at_once(mechanism, mask):
    attention, query, value = layer_and_inputs(mechanism)
    target_mask, source_mask = mechanisms.masks(mask)
    context, alignments = attention(
        query,
        value,
        query_mask=target_mask,
        value_mask=source_mask,
        return_attention_scores=True,
    )
    memory = attention.prepare(value, value_mask=source_mask)
    history = attention.initial_history(memory)
    for t in range(TARGET):
        real = (
            np.ones(BATCH, bool) if target_mask is None else target_mask[:, t]
        )
        step_context, step_alignments, new_history = attention.step(
            ops.convert_to_tensor(query[:, t : t + 1]), memory, history
        )
        for whole, step in (
            (context, step_context),
            (alignments, step_alignments),
        ):
            np.testing.assert_allclose(
                values(whole)[real, t],
                values(step)[real, 0],
                rtol=1e-5,
                atol=1e-6,
            )
        history = hold(new_history, history, real)


def hold(new, old, real):
    """Returns the new state at real steps, the old state at padding."""

    def choose(new, old):
        rows = real.reshape((-1,) + (1,) * (len(new.shape) - 1))
        return ops.where(rows, new, old)

    return keras.tree.map_structure(choose, new, old)


@pytest.mark.sample_cases(16)
@crossing(
    mechanism=MECHANISMS,
    wiring=WIRINGS,
    cell=CELLS,
    mask=MASKS,
    emit=["attentional", "concatenated"],
)
def test_decoding_step_by_step_is_decoding_the_whole_target(
    mechanism, wiring, cell, mask, emit
):
    decoder = mechanisms.decoder(mechanism, cell, wiring, emit)
    inputs = draw(BATCH, TARGET, INPUT_DIM, seed=5)
    source = draw(BATCH, SOURCE, mechanism.value_dim, seed=6)
    target_mask, source_mask = mechanisms.masks(mask)
    decoder.build(inputs.shape, source.shape)
    scramble(decoder)
    outputs, alignments = decoder(
        inputs,
        source,
        inputs_mask=target_mask,
        memory_mask=source_mask,
        return_attention_scores=True,
    )
    memory = decoder.prepare(ops.convert_to_tensor(source), source_mask)
    state = decoder.start(memory)
    for t in range(TARGET):
        real = (
            np.ones(BATCH, bool) if target_mask is None else target_mask[:, t]
        )
        step_outputs, step_alignments, new_state = decoder.step(
            ops.convert_to_tensor(inputs[:, t : t + 1]), state, memory
        )
        for whole, step in (
            (outputs, step_outputs),
            (alignments, step_alignments),
        ):
            np.testing.assert_allclose(
                values(whole)[real, t], values(step)[real, 0], atol=1e-5
            )
        assert not values(outputs)[~real, t].any()
        state = hold(new_state, state, real)


@pytest.mark.sample_cases(5)
@each_mechanism
def test_beams_are_queries(mechanism):
    # A step with three hypotheses is three steps with one each.
    beams = 3
    decoder = mechanisms.decoder(mechanism, "lstm", "post")
    source = draw(BATCH, SOURCE, mechanism.value_dim, seed=6)
    _, source_mask = mechanisms.masks("right")
    inputs = draw(2, BATCH, beams, INPUT_DIM, seed=7)
    decoder.build(inputs[0].shape, source.shape)
    scramble(decoder)
    memory = decoder.prepare(ops.convert_to_tensor(source), source_mask)
    together = decoder.start(memory, beams=beams)
    alone = [decoder.start(memory) for _ in range(beams)]
    for step_inputs in ops.convert_to_tensor(inputs):
        outputs, alignments, together = decoder.step(
            step_inputs, together, memory
        )
        for k in range(beams):
            one_output, one_alignment, alone[k] = decoder.step(
                step_inputs[:, k : k + 1], alone[k], memory
            )
            np.testing.assert_allclose(
                values(outputs)[:, k], values(one_output)[:, 0], atol=1e-5
            )
            np.testing.assert_allclose(
                values(alignments)[:, k], values(one_alignment)[:, 0], atol=1e-5
            )


@pytest.mark.sample_cases(10)
@each_mechanism
def test_padding_gets_no_weight_and_changes_nothing(mechanism):
    attention, query, value = layer_and_inputs(mechanism)
    expected, expected_weights = attention(
        query, value, return_attention_scores=True
    )
    garbage = 100 * draw(BATCH, 2, mechanism.value_dim, seed=8)
    real = np.arange(SOURCE + 2) < SOURCE
    context, weights = attention(
        query,
        np.concatenate([value, garbage], axis=1),
        value_mask=np.tile(real, (BATCH, 1)),
        return_attention_scores=True,
    )
    assert not values(weights)[:, :, SOURCE:].any()
    np.testing.assert_allclose(
        values(weights)[:, :, :SOURCE], values(expected_weights), atol=1e-6
    )
    np.testing.assert_allclose(values(context), values(expected), atol=1e-5)


@pytest.mark.sample_cases(10)
@each_mechanism
def test_a_row_does_not_depend_on_the_other_rows_of_its_batch(mechanism):
    attention, query, value = layer_and_inputs(mechanism)
    together = values(attention(query, value))
    for i in range(BATCH):
        alone = attention(query[i : i + 1], value[i : i + 1])
        np.testing.assert_allclose(values(alone)[0], together[i], atol=1e-6)


@pytest.mark.sample_cases(10)
@each_mechanism
def test_weights_are_shares_of_sources_longer_and_shorter_than_targets(
    mechanism,
):
    for source in (1, TARGET - 1, TARGET, TARGET + 3):
        attention, query, value = layer_and_inputs(mechanism, source=source)
        context, weights = attention(query, value, return_attention_scores=True)
        assert context.shape == (BATCH, TARGET, mechanism.value_dim)
        assert weights.shape == (BATCH, TARGET, source)
        sums = values(weights).sum(-1)
        assert (values(weights) >= 0).all() and (sums <= 1 + 1e-5).all()
        if mechanism.sums_to_one:
            np.testing.assert_allclose(sums, 1, atol=1e-5)


@pytest.mark.sample_cases(10)
@crossing(
    mechanism=MECHANISMS,
    wiring=WIRINGS,
    dtype=["float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"],
)
def test_rows_of_padding_are_zero_and_train_without_nan(
    mechanism, wiring, dtype
):
    import tensorflow as tf

    model = mechanisms.model_of(mechanism, wiring, dtype=dtype)
    with tf.GradientTape() as tape:
        outputs = model(some_ids())
        loss = sum(ops.sum(ops.cast(x, "float32") ** 2) for x in outputs)
    for output in outputs:
        assert output.dtype == keras.DTypePolicy(dtype).compute_dtype
        assert np.isfinite(ops.cast(output, "float32")).all()
        assert not values(ops.cast(output, "float32"))[2].any()
    gradients = tape.gradient(loss, model.trainable_variables)
    for gradient, variable in zip(
        gradients, model.trainable_variables, strict=True
    ):
        if gradient is None and not mechanism.differentiable:
            continue
        gradient = ops.cast(tf.convert_to_tensor(gradient), "float32")
        assert np.isfinite(gradient).all(), variable.path
        if mechanism.differentiable:
            assert np.any(gradient), f"{variable.path} does not learn"


@pytest.mark.sample_cases(5)
@each_mechanism
def test_mixed_precision_is_float32_but_for_rounding(mechanism):
    exact = mechanisms.model_of(mechanism)(some_ids())
    rounded = mechanisms.model_of(mechanism, dtype="mixed_bfloat16")(some_ids())
    for a, b in zip(exact, rounded, strict=True):
        np.testing.assert_allclose(a, ops.cast(b, "float32"), atol=0.15)


def trained(mechanism, wiring, rows=3, **options):
    """The weights before and after an epoch in batches of three."""
    keras.utils.set_random_seed(9)
    model = mechanisms.trainable_model_of(mechanism, wiring)
    before = model.get_weights()
    model.compile(
        keras.optimizers.SGD(0.5),
        loss=keras_attn.SequenceCrossentropy(),
        **options,
    )
    source, target = some_ids(rows)
    model.fit([source, target], target, batch_size=3, shuffle=False, verbose=0)
    return before, model.get_weights()


def assert_trained_alike(one, other):
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.full
@pytest.mark.sample_cases(2)
@in_turn(mechanism=[m for m in MECHANISMS if m.learns], wiring=WIRINGS)
def test_training_changes_every_weight(mechanism, wiring):
    # Nine rows, since a row that draws its alignments may teach no score. By
    # XLA where the test below cannot compare it.
    found = trained(mechanism, wiring, rows=9, jit_compile=mechanism.random)
    for before, after in zip(*found, strict=True):
        assert np.isfinite(after).all()
        assert np.abs(after - before).max() > 1e-6


@pytest.mark.sample_cases(1)
@in_turn(every=8, mechanism=[m for m in MECHANISMS if m.learns], wiring=WIRINGS)
def test_training_is_the_same_in_a_graph_and_eagerly(mechanism, wiring):
    # Four rows in batches of three: the last batch is a single row.
    assert_trained_alike(
        trained(mechanism, wiring, rows=4, run_eagerly=True),
        trained(mechanism, wiring, rows=4, jit_compile=False),
    )


# XLA draws other random numbers.
@pytest.mark.full
@in_turn(
    every=8,
    mechanism=[m for m in MECHANISMS if m.learns and not m.random],
    wiring=WIRINGS,
)
def test_training_is_the_same_with_xla(mechanism, wiring):
    assert_trained_alike(
        trained(mechanism, wiring, jit_compile=True),
        trained(mechanism, wiring, jit_compile=False),
    )


@pytest.mark.sample_cases(1)
@in_turn(every=8, mechanism=MECHANISMS, wiring=WIRINGS)
def test_answers_are_the_same_with_xla(mechanism, wiring):
    import tensorflow as tf

    model = mechanisms.model_of(mechanism, wiring)
    compiled = tf.function(model, jit_compile=True, autograph=False)
    ids = [tf.constant(x) for x in some_ids()]
    for a, b in zip(compiled(ids), model(ids), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.full
def test_saved_models_answer_the_same_in_a_fresh_process(tmp_path):
    # All mechanisms in one process, because starting it takes most time.
    mechanisms.save_models(tmp_path)
    checked = in_fresh_process(
        "import pathlib, sys\n"
        "from support import mechanisms\n"
        "print(mechanisms.check_models(pathlib.Path(sys.argv[1])))",
        tmp_path,
    )
    assert int(checked) == len(MECHANISMS)


@pytest.mark.sample_cases(4)
@each_mechanism
def test_weights_alone_are_saved_and_loaded(mechanism, tmp_path):
    model = mechanisms.model_of(mechanism)
    model.save_weights(tmp_path / "model.weights.h5")
    other = mechanisms.model_of(mechanism, seed=2)
    before = values(other(some_ids()))
    other.load_weights(tmp_path / "model.weights.h5")
    after, expected = values(other(some_ids())), values(model(some_ids()))
    assert not np.allclose(before[0], expected[0])
    for a, b in zip(after, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.sample_cases(10)
@crossing(mechanism=MECHANISMS, wiring=WIRINGS, cell=CELLS)
def test_a_config_makes_a_layer_that_does_the_same(mechanism, wiring, cell):
    decoder = mechanisms.decoder(mechanism, cell, wiring, "concatenated")
    other = keras_attn.AttentionDecoder.from_config(
        json.loads(json.dumps(decoder.get_config()))
    )
    inputs = draw(BATCH, TARGET, INPUT_DIM, seed=5)
    source = draw(BATCH, SOURCE, mechanism.value_dim, seed=6)
    for layer in (decoder, other):
        layer.build(inputs.shape, source.shape)
        scramble(layer)
    assert type(other.attention) is type(decoder.attention)
    np.testing.assert_array_equal(
        values(other(inputs, source)), values(decoder(inputs, source))
    )


@pytest.mark.sample_cases(3)
@each_of([m for m in MECHANISMS if m.differentiable])
def test_gradients_are_those_of_finite_differences(mechanism):
    import tensorflow as tf

    attention, query, value = layer_and_inputs(mechanism)
    _, source_mask = mechanisms.masks("inner")
    variables = [tf.Variable(query), tf.Variable(value)]
    variables += [x.value for x in attention.trainable_variables]
    aim = draw(BATCH, TARGET, mechanism.value_dim, seed=10)

    def loss():
        query, value = (tf.convert_to_tensor(x) for x in variables[:2])
        context = attention(query, value, value_mask=source_mask)
        return tf.reduce_sum(aim * context)

    with tf.GradientTape() as tape:
        start = loss()
    gradients = tape.gradient(start, variables)
    for i, (variable, gradient) in enumerate(
        zip(variables, gradients, strict=True)
    ):
        direction = draw(*variable.shape, seed=20 + i)
        direction /= np.linalg.norm(direction)
        before, step = tf.identity(variable), 1e-2
        variable.assign(before + step * direction)
        ahead = loss()
        variable.assign(before - step * direction)
        behind = loss()
        variable.assign(before)
        np.testing.assert_allclose(
            (ahead - behind) / (2 * step),
            tf.reduce_sum(gradient * direction),
            rtol=2e-3,
            atol=2e-3,
        )


@pytest.mark.sample_cases(10)
@each_of([m for m in MECHANISMS if m.learns])
def test_dropout_drops_weights_and_returns_those_before(mechanism):
    attention, query, value = layer_and_inputs(mechanism, dropout=0.5)
    ones = np.ones_like(value)
    expected, expected_weights = attention(
        query, ones, key=value, return_attention_scores=True
    )
    context, weights = attention(
        query, ones, key=value, return_attention_scores=True, training=True
    )
    assert np.abs(values(context) - values(expected)).max() > 0.01
    if not mechanism.random:
        np.testing.assert_allclose(weights, expected_weights, atol=1e-6)
    if attention.num_heads == 1:
        # Each value is one and all weights are equal, so every column of the
        # context is the kept share of the weights, times two.
        shares = values(context) / values(expected)
        np.testing.assert_allclose(
            shares, shares[..., :1] * ones[:, :1], rtol=1e-4
        )


@pytest.mark.sample_cases(10)
@each_of([m for m in MECHANISMS if m.learns])
def test_dropout_is_drawn_anew_and_repeats_with_its_seed(mechanism):
    def two_draws(seed):
        attention, query, value = layer_and_inputs(
            mechanism, dropout=0.5, seed=seed
        )
        return [values(attention(query, value, training=True)) for _ in "ab"]

    first, second = two_draws(seed=7)
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(two_draws(seed=7), [first, second])
    assert not np.allclose(two_draws(seed=8)[0], first)


def in_fresh_process(code, *arguments):
    """Returns the output of a new Python that can import the tests' modules."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
