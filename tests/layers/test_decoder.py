"""`AttentionDecoder`: its two orders, its states, its masks, its training."""

import math

import keras
import numpy as np
import pytest
from keras import layers
from support import mechanisms
from support.backends import needs_tensorflow
from support.mechanisms import CELLS
from support.mechanisms import INPUT_DIM
from support.mechanisms import QUERY_DIM
from support.mechanisms import WIRINGS
from support.mechanisms import draw
from support.mechanisms import scramble
from support.mechanisms import values

import keras_attn
from keras_attn import AttentionDecoder
from keras_attn import BahdanauAttention
from keras_attn import LuongAttention

LN2 = math.log(2)
# A state of ln 2 attends to these with the weights 2/3 and 1/3.
MEMORY = np.array([[[1.0], [0.0]]], "float32")


def linear_cell():
    """One number of state: kernel · [input; ...] + recurrent · state."""
    return layers.SimpleRNNCell(1, activation=None, use_bias=False)


def decode(kernel, recurrent, inputs, attentional=None, start=None, **options):
    """Outputs and alignments of one row, with all weights set."""
    emit = "concatenated" if attentional is None else "attentional"
    decoder = AttentionDecoder(
        linear_cell(), LuongAttention("dot"), emit=emit, **options
    )
    inputs = np.array([[[x] for x in inputs]], "float32")
    decoder.build(inputs.shape, MEMORY.shape)
    decoder.cell.set_weights(
        [np.array([[x] for x in kernel]), np.array([[recurrent]])]
    )
    if attentional is not None:
        decoder.attentional.set_weights([np.array([[x] for x in attentional])])
    outputs, alignments = decoder(
        inputs,
        MEMORY,
        initial_state=None if start is None else np.array([[start]]),
        return_attention_scores=True,
    )
    return values((outputs[0], alignments[0]))


def test_a_step_in_the_order_pre_is_that_worked_out_by_hand():
    # The start attends: context 2/3. The cell adds 1 x 2, 3 x 2/3 and the
    # start over ln 2: the state is 5.
    outputs, alignments = decode(
        [1, 3], 1 / LN2, inputs=[2], start=LN2, order="pre"
    )
    np.testing.assert_allclose(alignments, [[2 / 3, 1 / 3]], rtol=1e-6)
    np.testing.assert_allclose(outputs, [[5, 2 / 3]], rtol=1e-6)
    # 5 x 0.1 + 2/3 x 0.75 = 1, under the tanh.
    outputs, _ = decode(
        [1, 3], 1 / LN2, [2], [0.1, 0.75], start=LN2, order="pre"
    )
    np.testing.assert_allclose(outputs, [[math.tanh(1)]], rtol=1e-6)


def test_steps_in_the_order_post_are_those_worked_out_by_hand():
    # The first input makes a state of ln 2, which attends: context 2/3, and
    # the output is tanh(2/3 x 1.5). Fed back by a kernel that undoes the
    # tanh, it makes ln 2 again, so the second step attends as the first.
    outputs, alignments = decode(
        [LN2, LN2 / math.tanh(1)], 0, [1, 0], [0, 1.5], order="post"
    )
    np.testing.assert_allclose(alignments, [[2 / 3, 1 / 3]] * 2, rtol=1e-6)
    np.testing.assert_allclose(outputs, [[math.tanh(1)]] * 2, rtol=1e-6)


def test_without_input_feeding_the_last_output_has_no_effect():
    # As above, but the second state is zero, and attends to all alike.
    outputs, alignments = decode(
        [LN2], 0, [1, 0], [0, 1.5], order="post", input_feeding=False
    )
    np.testing.assert_allclose(
        alignments, [[2 / 3, 1 / 3], [1 / 2, 1 / 2]], rtol=1e-6
    )
    np.testing.assert_allclose(
        outputs, [[math.tanh(1)], [math.tanh(0.75)]], rtol=1e-6
    )


def test_what_is_fed_back_is_what_is_emitted():
    # Concatenated, [state; context] comes back: 0 x ln 2 + 3 x 2/3 = 2.
    outputs, _ = decode([LN2, 0, 3], 0, [1, 0], order="post")
    np.testing.assert_allclose(outputs[0], [LN2, 2 / 3], rtol=1e-6)
    np.testing.assert_allclose(outputs[1, 0], 2, rtol=1e-6)


def test_the_order_pre_is_the_default_and_post_feeds_its_input():
    decoder = AttentionDecoder(layers.GRUCell(4), BahdanauAttention(4))
    assert (decoder.order, decoder.input_feeding) == ("pre", False)
    decoder = AttentionDecoder(
        layers.GRUCell(4), BahdanauAttention(4), order="post"
    )
    assert decoder.input_feeding


class LoopedScore(keras_attn.GeneralScore):
    """Looks back, so that the decoder must go step by step."""

    def call(self, query, keys, history):
        return super().call(query, keys)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("mask", ["none", "inner"])
def test_attending_to_the_whole_target_at_once_is_attending_in_the_loop(
    cell, mask
):
    inputs, source = draw(3, 4, INPUT_DIM), draw(3, 5, 6, seed=1)
    target_mask, source_mask = mechanisms.masks(mask)
    results = []
    for score in (keras_attn.GeneralScore(), LoopedScore()):
        decoder = AttentionDecoder(
            CELLS[cell](),
            keras_attn.Attention(score),
            order="post",
            input_feeding=False,
        )
        decoder.build(inputs.shape, source.shape)
        scramble(decoder)
        results += values(
            decoder(
                inputs,
                source,
                inputs_mask=target_mask,
                memory_mask=source_mask,
                return_attention_scores=True,
            )
        )
    outputs, alignments, looped_outputs, looped_alignments = results
    np.testing.assert_allclose(outputs, looped_outputs, atol=1e-6)
    np.testing.assert_allclose(alignments, looped_alignments, atol=1e-6)


def test_a_stack_attends_with_the_hidden_state_of_its_top_cell():
    # States: the GRU's, the LSTM's hidden one and its carry. The dot of the
    # query with unit vectors reads the query off the scores.
    decoder = AttentionDecoder(
        [layers.GRUCell(3), layers.LSTMCell(2)], LuongAttention("dot")
    )
    assert decoder.state_width == 2
    source = np.array([[[1.0, 0.0], [0.0, 1.0]]], "float32")
    states = [
        np.full((1, 3), 9.0),
        np.array([[LN2, 0.0]]),
        np.full((1, 2), 7.0),
    ]
    _, alignments = decoder(
        np.ones((1, 1, 4)),
        source,
        initial_state=states,
        return_attention_scores=True,
    )
    np.testing.assert_allclose(
        values(alignments), [[[2 / 3, 1 / 3]]], rtol=1e-6
    )


@pytest.mark.sample_cases(9)
@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize(
    "cell, nest",
    [
        ("gru", lambda a: a),
        ("gru", lambda a: [a]),
        ("lstm", lambda a, b: [a, b]),
        ("stack", lambda a, b, c: [a, b, c]),
        ("stack", lambda a, b, c: [a, [b, c]]),
        ("user's", lambda a, b: (a, b)),
    ],
)
def test_an_initial_state_starts_the_cell(wiring, cell, nest):
    mechanism = mechanisms.named("bahdanau")
    decoder = mechanisms.decoder(mechanism, cell, wiring)
    inputs, source = draw(2, 3, INPUT_DIM), draw(2, 5, 6)
    sizes = {"gru": [4], "lstm": [4, 4], "stack": [3, 4, 4], "user's": [4, 2]}
    states = [draw(2, size, seed=size) for size in sizes[cell]]
    zeros = [0 * x for x in states]

    def run(*start):
        return values(decoder(inputs, source, initial_state=nest(*start)))

    outputs, from_zeros = run(*states), run(*zeros)
    np.testing.assert_allclose(
        values(decoder(inputs, source)), from_zeros, atol=1e-7
    )
    assert not np.allclose(outputs, from_zeros)
    # Every one of the states counts.
    for i in range(len(states)):
        some = [0 * x if i == j else x for j, x in enumerate(states)]
        assert not np.allclose(outputs, run(*some))
    # The same in a functional model.
    tensors = [keras.Input((size,)) for size in sizes[cell]]
    x, memory = keras.Input((None, INPUT_DIM)), keras.Input((None, 6))
    model = keras.Model(
        [x, memory, *tensors], decoder(x, memory, initial_state=nest(*tensors))
    )
    np.testing.assert_allclose(
        values(model([inputs, source, *states])), outputs, atol=1e-6
    )


def test_a_cells_own_first_state_is_taken():
    class Warm(layers.SimpleRNNCell):
        def get_initial_state(self, batch_size=None):
            return [keras.ops.full((batch_size, self.units), LN2)]

    decoder = AttentionDecoder(Warm(1), LuongAttention("dot"))
    _, alignments = decoder(
        np.ones((1, 1, 2)), MEMORY, return_attention_scores=True
    )
    np.testing.assert_allclose(
        values(alignments), [[[2 / 3, 1 / 3]]], rtol=1e-6
    )


@pytest.mark.parametrize(
    "cell, widths, received",
    [
        ("gru", [3], r"1 state\(s\), of widths \[4\].*of widths \[3\]"),
        ("lstm", [4], r"2 state\(s\), of widths \[4, 4\].*of widths \[4\]"),
        ("gru", [4, 4], r"1 state\(s\).*of widths \[4, 4\]"),
        ("stack", [4, 4, 3], r"\[3, 4, 4\].*in this order.*\[4, 4, 3\]"),
    ],
)
@pytest.mark.parametrize("built", [False, True])
def test_an_initial_state_that_does_not_fit_is_refused(
    cell, widths, received, built
):
    decoder = mechanisms.decoder(mechanisms.named("bahdanau"), cell)
    inputs, source = draw(2, 3, INPUT_DIM), draw(2, 5, 6)
    if built:
        decoder.build(inputs.shape, source.shape)
    states = [draw(2, width) for width in widths]
    states = states[0] if len(states) == 1 else states
    remedy = r"[\s\S]*`bridge=\"dense\"`"
    with pytest.raises(ValueError, match=received + remedy):
        decoder(inputs, source, initial_state=states)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"cell": layers.GRU(4)},
            "`cell` must be a Keras RNN cell.*<GRU.*do not fit",
        ),
        (
            {"cell": [layers.GRUCell(4), layers.LSTM(4)]},
            "`cell` must be a Keras RNN cell.*<LSTM.*do not fit",
        ),
        ({"cell": "gru"}, "`cell` must be.*Received: 'gru'.*GRUCell"),
        (
            {"attention": layers.AdditiveAttention()},
            r"must be a `keras_attn.Attention`.*Additive.*BahdanauAttention\(",
        ),
        (
            {"order": "before"},
            "`order` must be one of 'pre', 'post'. Received: order='before'",
        ),
        (
            {"emit": "context"},
            "`emit` must be one of 'attentional', 'concatenated'. Received: "
            "emit='context'",
        ),
        (
            {"order": "pre", "input_feeding": True},
            "would have no effect. Received: input_feeding=True.*Leave it out",
        ),
        (
            {"order": "pre", "input_feeding": False},
            'would have no effect. Received: input_feeding=False.*order="post"',
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    fitting = {"cell": layers.GRUCell(4), "attention": BahdanauAttention(4)}
    with pytest.raises(ValueError, match=message):
        AttentionDecoder(**{**fitting, **arguments})


@pytest.mark.parametrize("name", ["inputs", "memory"])
def test_inputs_without_a_time_axis_are_refused(name):
    shapes = {"inputs": (2, 3, 4), "memory": (2, 5, 4), name: (2, 4)}
    decoder = AttentionDecoder(layers.GRUCell(4), BahdanauAttention(4))
    with pytest.raises(ValueError, match=rf"`{name}`.*{name}_shape=\(2, 4\)"):
        decoder(*(np.ones(shape, "float32") for shape in shapes.values()))


def test_outputs_are_as_wide_as_the_state_or_as_state_and_context():
    for emit, width in (("attentional", 4), ("concatenated", 4 + 6)):
        decoder = mechanisms.decoder(mechanisms.named("bahdanau"), emit=emit)
        for target, source in ((3, 5), (None, None)):
            outputs, alignments = decoder(
                keras.Input((target, INPUT_DIM)),
                keras.Input((source, 6)),
                return_attention_scores=True,
            )
            assert outputs.shape == (None, target, width)
            assert alignments.shape == (None, target, source)
        assert decoder(draw(2, 3, INPUT_DIM), draw(2, 5, 6)).shape == (
            2,
            3,
            width,
        )


IDS = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0]])


@pytest.mark.parametrize("wiring", WIRINGS)
def test_masks_survive_an_initial_state(wiring):
    embedded = layers.Embedding(5, 4, mask_zero=True)(IDS)
    start = draw(2, 4)
    # Keras's layers with an initial state ignore the mask and go on at padding.
    gru = layers.GRU(4, return_state=True)
    _, forgetful = gru(embedded, initial_state=start)
    _, mindful = gru(embedded, initial_state=start, mask=IDS != 0)
    assert not np.allclose(values(forgetful), values(mindful))
    # Ours keep the mask: the inputs at padding have no effect.
    decoder = mechanisms.decoder(
        mechanisms.Mechanism("", lambda: BahdanauAttention(5)), wiring=wiring
    )
    outputs, alignments = decoder(
        embedded, embedded, initial_state=start, return_attention_scores=True
    )
    expected, expected_alignments = decoder(
        values(embedded),
        values(embedded),
        initial_state=start,
        inputs_mask=IDS != 0,
        memory_mask=IDS != 0,
        return_attention_scores=True,
    )
    np.testing.assert_array_equal(values(outputs._keras_mask), IDS != 0)
    outputs, alignments = values((outputs, alignments))
    np.testing.assert_allclose(outputs, values(expected), atol=1e-6)
    np.testing.assert_allclose(
        alignments, values(expected_alignments), atol=1e-6
    )
    assert not outputs[IDS == 0].any()
    assert not alignments.swapaxes(1, 2)[IDS == 0].any()


@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize("cell", ["gru", "stack"])
def test_masked_targets_hold_the_state_and_emit_zeros(wiring, cell):
    # A target with holes is the target without them.
    decoder = mechanisms.decoder(mechanisms.named("tired"), cell, wiring)
    inputs, source = draw(1, 3, INPUT_DIM), draw(1, 5, 6)
    with_holes = 100 * draw(1, 6, INPUT_DIM, seed=1)
    real = np.array([[False, True, False, True, True, False]])
    with_holes[real] = inputs[0]
    outputs, alignments = values(
        decoder(
            with_holes, source, inputs_mask=real, return_attention_scores=True
        )
    )
    expected, expected_alignments = values(
        decoder(inputs, source, return_attention_scores=True)
    )
    np.testing.assert_allclose(outputs[real], expected[0], atol=1e-6)
    np.testing.assert_allclose(
        alignments[real], expected_alignments[0], atol=1e-6
    )
    assert not outputs[~real].any()


@pytest.mark.parametrize("wiring", WIRINGS)
def test_an_empty_batch_decodes_to_an_empty_batch(wiring):
    decoder = mechanisms.decoder(mechanisms.named("tired"), wiring=wiring)
    outputs, alignments = decoder(
        draw(0, 3, INPUT_DIM), draw(0, 5, 6), return_attention_scores=True
    )
    assert outputs.shape == (0, 3, QUERY_DIM)
    assert alignments.shape == (0, 3, 5)


def dropping(cell, wiring, **options):
    """Makes a decoder whose cells have dropout, which loops must handle."""
    keras.utils.set_random_seed(3)
    drop = {"dropout": 0.4, "recurrent_dropout": 0.4}
    decoder = AttentionDecoder(
        CELLS[cell](**drop),
        BahdanauAttention(5, dropout=0.3),
        **WIRINGS[wiring],
        **options,
    )
    decoder.build((None, None, INPUT_DIM), (None, None, 6))
    return decoder


@pytest.mark.full
@pytest.mark.sample_cases(1)
@needs_tensorflow("`tf.function`")
@mechanisms.crossing(
    wiring=WIRINGS, cell=["gru", "stack"], jit_compile=[False, True]
)
def test_cells_drop_in_training_only_and_in_every_trace(
    wiring, cell, jit_compile
):
    import tensorflow as tf

    decoder = dropping(cell, wiring)
    source = draw(2, 5, 6)

    @tf.function(jit_compile=jit_compile, reduce_retracing=False)
    def run(inputs):
        return decoder(inputs, source, training=True)

    # Each length is a trace of its own; a mask kept from the first would be
    # out of scope in the second.
    for length in (3, 4):
        inputs = tf.constant(draw(2, length, INPUT_DIM))
        expected = decoder(inputs, source)
        np.testing.assert_array_equal(decoder(inputs, source), expected)
        first, second = run(inputs), run(inputs)
        assert np.isfinite(first).all()
        assert not np.allclose(first, expected)
        assert not np.allclose(first, second)
    np.testing.assert_array_equal(
        run(inputs).shape, decoder(inputs, source, training=True).shape
    )


@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize(
    "graph",
    [False, pytest.param(True, marks=needs_tensorflow("`tf.function`"))],
)
def test_a_cells_dropout_is_one_mask_for_all_steps(wiring, graph):
    # Equal inputs to a cell without memory give equal states, however many
    # were dropped: the mask is not drawn again at every step.
    decoder = AttentionDecoder(
        layers.SimpleRNNCell(16, dropout=0.5, recurrent_initializer="zeros"),
        BahdanauAttention(4),
        **WIRINGS[wiring],
    )
    inputs, source = (
        np.ones((1, 4, 8), "float32"),
        np.ones((1, 5, 6), "float32"),
    )
    decoder.build(inputs.shape, source.shape)
    kernel, *others = decoder.cell.get_weights()
    kernel[8:] = 0  # nothing fed back, so that the input alone counts
    decoder.cell.set_weights([kernel, *others])
    run = decoder
    if graph:
        import tensorflow as tf

        run = tf.function(decoder)
    outputs = values(run(inputs, source, training=True))[0]
    assert not np.allclose(outputs[0], values(decoder(inputs, source))[0, 0])
    np.testing.assert_allclose(outputs, outputs[:1].repeat(4, 0), atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.full)]
)
def test_a_decoder_that_drops_trains_in_batches_of_changing_size(jit_compile):
    x, memory = keras.Input((None, INPUT_DIM)), keras.Input((None, 6))
    model = keras.Model([x, memory], dropping("stack", "post")(x, memory))
    model.compile("sgd", "mse", jit_compile=jit_compile)
    data = [draw(3, 4, INPUT_DIM), draw(3, 5, 6)]
    history = model.fit(data, draw(3, 4, 4), batch_size=2, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    np.testing.assert_array_equal(
        model.predict(data, verbose=0), model.predict(data, verbose=0)
    )


def test_the_policy_of_the_decoder_need_not_be_that_of_its_parts():
    for wiring in WIRINGS:
        for emit in ("attentional", "concatenated"):
            decoder = mechanisms.decoder(
                mechanisms.named("bahdanau"),
                "lstm",
                wiring,
                emit,
                dtype="mixed_float16",
            )
            outputs = decoder(draw(2, 3, INPUT_DIM), draw(2, 5, 6))
            assert keras.backend.standardize_dtype(outputs.dtype) == "float16"


@pytest.mark.full
@pytest.mark.parametrize("wiring", WIRINGS)
def test_fit_learns_to_reverse(wiring):
    random = np.random.default_rng(0)
    source = random.integers(3, 7, (256, 4))
    targets = source[:, ::-1]
    shifted = np.concatenate([np.ones((256, 1), int), targets[:, :-1]], axis=1)
    s, t = (
        keras.Input((None,), dtype="int32"),
        keras.Input((None,), dtype="int32"),
    )
    memory, *states = layers.Bidirectional(
        layers.GRU(16, return_sequences=True, return_state=True)
    )(layers.Embedding(7, 16, mask_zero=True)(s))
    hidden = AttentionDecoder(
        layers.GRUCell(32), BahdanauAttention(32), **WIRINGS[wiring]
    )(
        layers.Embedding(7, 16, mask_zero=True)(t),
        memory,
        initial_state=layers.Concatenate()(states),
    )
    model = keras.Model([s, t], layers.Dense(7)(hidden))
    model.compile(
        keras.optimizers.Adam(0.02),
        loss=keras_attn.SequenceCrossentropy(),
        metrics=["accuracy"],
        # TensorFlow compiles for longer than it trains; JAX without is slow.
        jit_compile=keras.backend.backend() == "jax",
    )
    history = model.fit(
        [source, shifted], targets, batch_size=32, epochs=12, verbose=0
    )
    assert history.history["accuracy"][-1] > 0.95
