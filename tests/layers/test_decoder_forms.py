"""All forms of a decoder: what it attends to and how it is built.

Each form is a model that is trained, cut, decoded step by step, saved and
loaded. Its own results are then compared with numbers from another computation.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.mechanisms import draw
from support.mechanisms import nth
from support.mechanisms import scramble
from support.mechanisms import scramble_weights_of
from support.mechanisms import values

import keras_attn
from keras_attn import AttentionDecoder
from keras_attn import BahdanauAttention
from keras_attn import Incremental
from keras_attn import LuongAttention
from keras_attn import ScaledDotAttention

# Keras makes arrays of its variables in a way that NumPy deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)

SIZE = 6
SOURCE = np.array([[3, 4, 5, 2, 1], [5, 2, 0, 0, 0]], "int32")
TARGET = np.array([[1, 4, 5, 2], [1, 3, 3, 5]], "int32")


def model_of(
    decoder, memories=1, states=(), condition=False, target_is_padded=True
):
    """A functional model around a decoder, with embeddings for encoders."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = [
        layers.Embedding(SIZE, 4 + i, mask_zero=True)(source)
        for i in range(memories)
    ]
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(SIZE, 5)(source))
    arguments = {}
    if memories:
        arguments["memory"] = memory[0] if memories == 1 else memory
    if states:
        arguments["initial_state"] = [
            layers.Dense(width)(pooled) for width in states
        ]
    if condition:
        arguments["condition"] = layers.Dense(3)(pooled)
    embedding = layers.Embedding(SIZE, 3, mask_zero=target_is_padded)(target)
    hidden = decoder(embedding, **arguments)
    model = keras.Model([source, target], layers.Dense(SIZE)(hidden))
    scramble_weights_of(model, seed=1)
    return model


def gru(units=4):
    return layers.GRUCell(units, recurrent_initializer="glorot_uniform")


def lstm(units=4):
    return layers.LSTMCell(units, recurrent_initializer="glorot_uniform")


def stack_with_residuals():
    residual = keras_attn.ResidualCell
    return [lstm(), residual(gru()), residual(lstm())]


class OwnBridge(layers.Layer):
    """A bridge as a user may write it: a state for each half."""

    def call(self, inputs):
        return ops.split(inputs, 2, axis=-1)


def form(cell=gru, attention=lambda: BahdanauAttention(5), **options):
    """Makes a model whose decoder has these parts."""
    of_model = {
        name: options.pop(name)
        for name in ("memories", "states", "condition")
        if name in options
    }

    def build():
        own = options.get("self_attention")
        made = {**options, **({"self_attention": own()} if own else {})}
        parts = attention and attention()
        return model_of(AttentionDecoder(cell(), parts, **made), **of_model)

    return build


def two_attentions():
    return [
        BahdanauAttention(5),
        keras_attn.Attention(keras_attn.CoverageScore(3, kind="learned")),
    ]


FORMS = {
    "query: input": form(query=("state", "input")),
    "query: input, post": form(query=("input", "state"), order="post"),
    "query: last context": form(query=("state", "context")),
    "query: last context, not fed": form(
        query=("state", "context"), order="post", input_feeding=False
    ),
    "query: language": form(query=("state", "condition"), condition=True),
    "query: language, not fed": form(
        query=("state", "condition"),
        condition=True,
        order="post",
        input_feeding=False,
    ),
    "query: all": form(
        query=("condition", "context", "input", "state"), condition=True
    ),
    "query: no state": form(query="input"),
    "two attentions": form(attention=two_attentions, memories=2),
    "two attentions, fed": form(
        attention=two_attentions, memories=2, order="post"
    ),
    "two attentions, not fed": form(
        attention=lambda: [BahdanauAttention(5), LuongAttention("general")],
        memories=2,
        order="post",
        input_feeding=False,
    ),
    "own past": form(self_attention=ScaledDotAttention),
    "own past, fed": form(self_attention=ScaledDotAttention, order="post"),
    "own past, not fed": form(
        self_attention=lambda: BahdanauAttention(3),
        order="post",
        input_feeding=False,
    ),
    "own past, several heads": form(
        self_attention=lambda: ScaledDotAttention(num_heads=2)
    ),
    "own past, projected": form(
        self_attention=lambda: keras_attn.Attention(
            keras_attn.GeneralScore(), value_dim=3, gate=True
        )
    ),
    "own past alone": form(
        attention=None,
        memories=0,
        states=(4,),
        self_attention=ScaledDotAttention,
    ),
    "bottom": form(stack_with_residuals, attend="bottom"),
    "bottom, fed": form(stack_with_residuals, attend="bottom", order="post"),
    "bottom, not fed": form(
        stack_with_residuals,
        attend="bottom",
        order="post",
        input_feeding=False,
        emit="concatenated",
    ),
    "residual top": form(stack_with_residuals),
    "residual top, not fed": form(
        stack_with_residuals, order="post", input_feeding=False
    ),
    "layer-normed lstm": form(lambda: keras_attn.LayerNormLSTMCell(4)),
    "layer-normed gru": form(
        lambda: keras_attn.LayerNormGRUCell(4), order="post"
    ),
    "dense bridge": form(lstm, bridge="dense", states=(2, 5)),
    "own bridge": form(lstm, bridge=OwnBridge(), states=(5, 3)),
    "last states": form(lstm, states=(4, 4)),
    "no attention": form(lstm, attention=None, memories=0, states=(4, 4)),
    "no attention, a cell without a layer": form(
        stack_with_residuals,
        attention=None,
        memories=0,
        bridge="dense",
        states=(3,),
    ),
    "Keras's own gru": form(order="post", input_feeding=False),
    "Keras's own lstm": form(lstm, order="post", input_feeding=False),
    "our gru": form(
        lambda: keras_attn.GRUCell(4), order="post", input_feeding=False
    ),
}

each_form = pytest.mark.parametrize("name", FORMS)


def steps_of(model, source, targets):
    """Logits `(batch, beams, time, vocabulary)` of decoding step by step."""
    cut = Incremental(model)
    encoded = cut.encode(ops.convert_to_tensor(source))
    state = cut.start(encoded, targets.shape[1], max_length=targets.shape[2])
    logits = []
    for t in range(targets.shape[2]):
        step, _, state = cut.step(targets[:, :, t], state, encoded)
        logits.append(values(step))
    return np.stack(logits, axis=2)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", nth(3, FORMS))
def test_beams_decoded_step_by_step_are_whole_targets_decoded(name):
    model = FORMS[name]()
    other = np.where(TARGET == 1, 1, 6 - TARGET)
    stepwise = steps_of(model, SOURCE, np.stack([TARGET, other], axis=1))
    for beam, target in enumerate((TARGET, other)):
        whole = values(model([SOURCE, target]))
        np.testing.assert_allclose(stepwise[:, beam], whole, atol=1e-5)
    assert np.abs(stepwise[:, 0] - stepwise[:, 1]).max() > 1e-3
    Incremental(model).check(*map(ops.convert_to_tensor, (SOURCE, TARGET)))


@pytest.mark.sample_cases(2)
@each_form
def test_a_form_is_saved_and_loaded(name, tmp_path):
    model = FORMS[name]()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(
        tmp_path / "model.keras", custom_objects={"OwnBridge": OwnBridge}
    )
    expected = values(model([SOURCE, TARGET]))
    np.testing.assert_allclose(
        values(loaded([SOURCE, TARGET])), expected, atol=1e-6
    )


@pytest.mark.sample_cases(4)
@each_form
def test_padding_in_the_target_changes_nothing(name):
    model = FORMS[name]()
    expected = values(model([SOURCE, TARGET]))
    padded = np.insert(TARGET, [2, 4], 0, axis=1)
    real = padded[0] != 0
    outputs = values(model([SOURCE, padded]))
    np.testing.assert_allclose(outputs[:, real], expected, atol=1e-5)


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("name", nth(3, FORMS))
@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.full)]
)
def test_a_form_trains_all_its_weights(name, jit_compile):
    keras.utils.set_random_seed(1)
    model = FORMS[name]()
    before = model.get_weights()
    model.compile(
        keras.optimizers.SGD(0.5),
        loss=keras_attn.SequenceCrossentropy(),
        jit_compile=jit_compile,
    )
    model.fit([SOURCE, TARGET], TARGET, epochs=2, batch_size=2, verbose=0)
    for variable, old in zip(model.weights, before, strict=True):
        assert np.isfinite(variable).all()
        assert np.abs(variable - old).max() > 1e-7, variable.path


def built(decoder, *shapes):
    decoder.build(*shapes)
    scramble(decoder)
    return decoder


def test_the_parts_of_a_query_are_laid_end_to_end():
    # The score is a matrix over [input; condition], so its rows can be cut.
    decoder = AttentionDecoder(
        gru(), LuongAttention("general"), query=("input", "condition")
    )
    inputs, memory, condition = draw(2, 1, 3), draw(2, 5, 4), draw(2, 2, seed=5)
    built(decoder, inputs.shape, memory.shape, None, condition.shape)
    _, alignments = decoder(
        inputs, memory, condition=condition, return_attention_scores=True
    )
    kernel = values(decoder.attention.score.kernel)  # (memory, query)
    scores = np.einsum("bsm,mq,bq->bs", memory, kernel[:, :3], inputs[:, 0])
    scores += np.einsum("bsm,mq,bq->bs", memory, kernel[:, 3:], condition)
    np.testing.assert_allclose(
        values(alignments)[:, 0], values(ops.softmax(scores)), atol=1e-5
    )


def test_the_contexts_of_several_attentions_are_emitted_in_their_order():
    decoder = AttentionDecoder(
        gru(),
        [LuongAttention("general"), BahdanauAttention(5)],
        emit="concatenated",
    )
    inputs, one, two = draw(2, 3, 3), draw(2, 5, 4), draw(2, 7, 2, seed=5)
    built(decoder, inputs.shape, [one.shape, two.shape])
    outputs, (first, second) = decoder(
        inputs, [one, two], return_attention_scores=True
    )
    assert first.shape == (2, 3, 5) and second.shape == (2, 3, 7)
    contexts = [values(first) @ one, values(second) @ two]
    np.testing.assert_allclose(
        values(outputs)[..., 4:], np.concatenate(contexts, -1), atol=1e-5
    )


def test_a_decoder_finds_its_own_states_of_the_steps_before():
    # An LSTM whose state is emitted first: [state; context; own context].
    decoder = AttentionDecoder(
        lstm(),
        LuongAttention("general"),
        order="post",
        emit="concatenated",
        input_feeding=False,
        self_attention=ScaledDotAttention(),
    )
    inputs, memory = draw(2, 4, 3), draw(2, 5, 4)
    built(decoder, inputs.shape, memory.shape)
    outputs = values(decoder(inputs, memory))
    states, found = outputs[..., :4], outputs[..., 8:]
    assert not found[:, 0].any()  # there is nothing before the first
    for t in range(1, 4):
        past = states[:, :t]
        scores = np.einsum("bd,bsd->bs", states[:, t], past) / 2  # sqrt(4)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        expected = np.einsum("bs,bsd->bd", weights, past)
        np.testing.assert_allclose(found[:, t], expected, atol=1e-5)


def test_a_context_from_the_bottom_enters_every_cell_above():
    cells = [gru(3), gru(2), gru(5)]
    decoder = AttentionDecoder(
        cells, BahdanauAttention(4), attend="bottom", emit="concatenated"
    )
    inputs, memory = draw(2, 1, 3), draw(2, 5, 7)
    built(decoder, inputs.shape, memory.shape)
    outputs = values(decoder(inputs, memory))
    context = outputs[:, 0, 5:]
    below = inputs[:, 0]
    for cell in cells:
        both = ops.convert_to_tensor(np.concatenate([below, context], -1))
        below = values(cell(both, [ops.zeros((2, cell.units))])[0])
    np.testing.assert_allclose(outputs[:, 0, :5], below, atol=1e-6)


def test_a_residual_cell_adds_its_inputs_to_its_output_not_to_its_state():
    cell = keras_attn.ResidualCell(gru())
    inputs, state = draw(2, 4), draw(2, 4, seed=5)
    cell.build((2, 4))
    output, (new_state,) = cell(inputs, [state])
    plain, _ = cell.cell(inputs, [state])
    np.testing.assert_allclose(values(new_state), values(plain), atol=1e-6)
    np.testing.assert_allclose(
        values(output), values(plain) + inputs, atol=1e-6
    )


def test_a_residual_cell_needs_inputs_as_wide_as_its_output():
    with pytest.raises(ValueError, match="width 3 for an output of width 4"):
        keras_attn.ResidualCell(gru()).build((None, 3))


def test_a_layer_normed_cell_does_not_see_the_scale_of_its_weights():
    # The rows before normalization may be a hundred times as large.
    for cell in (
        keras_attn.LayerNormGRUCell(4, epsilon=1e-9),
        keras_attn.LayerNormLSTMCell(4, epsilon=1e-9),
    ):
        cell.build((2, 3))
        states = [draw(2, 4, seed=i) for i in range(len(cell.weights) and 2)]
        states = states[: len(keras.tree.flatten(cell.state_size))]
        before, _ = cell(draw(2, 3, seed=5), states)
        cell.kernel.assign(100 * cell.kernel)
        cell.recurrent_kernel.assign(100 * cell.recurrent_kernel)
        after, _ = cell(draw(2, 3, seed=5), states)
        np.testing.assert_allclose(values(before), values(after), atol=1e-4)


def test_a_layer_normed_lstm_is_the_one_of_the_paper():
    cell = keras_attn.LayerNormLSTMCell(2, epsilon=1e-9)
    cell.build((1, 3))
    scramble(cell)
    inputs, hidden, memory = draw(1, 3), draw(1, 2, seed=5), draw(1, 2, seed=6)

    def norm(x, gain, shift=0.0):
        return (x - x.mean()) / x.std() * values(gain) + shift

    gates = norm(inputs @ values(cell.kernel), cell.input_norm.gamma)
    gates += norm(
        hidden @ values(cell.recurrent_kernel), cell.recurrent_norm.gamma
    )
    i, f, g, o = np.split(gates + values(cell.bias), 4, axis=-1)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    expected = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
    norm_state = norm(
        expected, cell.state_norm.gamma, values(cell.state_norm.beta)
    )
    output, (_, new_memory) = cell(inputs, [hidden, memory])
    np.testing.assert_allclose(values(new_memory), expected, rtol=1e-4)
    np.testing.assert_allclose(
        values(output), sigmoid(o) * np.tanh(norm_state), rtol=1e-4
    )


@pytest.mark.parametrize("make", [gru, lstm])
def test_without_attention_it_is_keras_s_rnn(make):
    cell = make()
    decoder = AttentionDecoder(cell)
    inputs = draw(2, 4, 3)
    built(decoder, inputs.shape)
    expected = layers.RNN(cell, return_sequences=True)(inputs)
    np.testing.assert_allclose(
        values(decoder(inputs)), values(expected), atol=1e-6
    )


@pytest.mark.parametrize("make", [gru, lstm])
def test_keras_s_own_layer_and_our_loop_compute_the_same(make):
    decoder = AttentionDecoder(
        make(), BahdanauAttention(5), order="post", input_feeding=False
    )
    inputs, memory = draw(2, 4, 3), draw(2, 5, 4)
    built(decoder, inputs.shape, memory.shape)
    mask = np.array([[True] * 4, [True, True, False, False]])
    fused = values(decoder(inputs, memory, inputs_mask=mask))
    assert decoder._run_sequence
    decoder._run_sequence = None
    looped = values(decoder(inputs, memory, inputs_mask=mask))
    np.testing.assert_allclose(fused, looped, atol=1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"query": "stat"}, r"one of 'state', 'input'.*query='stat'"),
        ({"query": ()}, r"query=None"),
        ({"attend": "middle"}, r"one of 'top', 'bottom'"),
        ({"attend": "bottom"}, "Pass a list of cells"),
        ({"bridge": "copy"}, r'None, "dense" or a Keras layer'),
        ({"self_attention": "mine"}, "must be a `keras_attn.Attention`"),
        (
            {"self_attention": LuongAttention("general", alignment="local-m")},
            "must not need past alignments or positions",
        ),
        (
            {"self_attention": LuongAttention("location", max_source=9)},
            "must not need past alignments or positions",
        ),
        (
            {
                "self_attention": ScaledDotAttention(
                    regularizer=keras_attn.CoverageLoss(1.0)
                )
            },
            "a regularizer or samples would have no effect",
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AttentionDecoder(gru(), BahdanauAttention(4), **options)


@pytest.mark.parametrize(
    "option",
    [
        {"order": "post"},
        {"emit": "concatenated"},
        {"query": "input"},
        {"input_feeding": True},
    ],
)
def test_without_attention_its_options_are_refused(option):
    with pytest.raises(ValueError, match="would have no effect"):
        AttentionDecoder(gru(), **option)


def test_calls_that_miss_something_are_refused():
    inputs, memory = draw(2, 4, 3), draw(2, 5, 4)
    with pytest.raises(ValueError, match="needs a `memory` for each"):
        AttentionDecoder(gru(), BahdanauAttention(4))(inputs)
    with pytest.raises(ValueError, match="2 attention.*Received: 1"):
        AttentionDecoder(gru(), [BahdanauAttention(4), BahdanauAttention(4)])(
            inputs, memory
        )
    with pytest.raises(ValueError, match="0 attention.*Received: 1"):
        AttentionDecoder(gru())(inputs, memory)
    with pytest.raises(ValueError, match="if and only if the query names it"):
        AttentionDecoder(
            gru(), BahdanauAttention(4), query=("state", "condition")
        )(inputs, memory)
    with pytest.raises(ValueError, match="if and only if the query names it"):
        AttentionDecoder(gru(), BahdanauAttention(4))(
            inputs, memory, condition=draw(2, 3)
        )
    with pytest.raises(ValueError, match="no initial_state"):
        AttentionDecoder(gru(), BahdanauAttention(4), bridge="dense")(
            inputs, memory
        )
    with pytest.raises(ValueError, match="no scores to return"):
        AttentionDecoder(gru())(inputs, return_attention_scores=True)
    with pytest.raises(ValueError, match="has samples to return"):
        AttentionDecoder(gru(), BahdanauAttention(4))(
            inputs, memory, return_samples=True
        )


def test_a_decoder_returns_the_mean_of_heads_and_says_so():
    decoder = AttentionDecoder(gru(), ScaledDotAttention(num_heads=2))
    with pytest.raises(ValueError, match="the mean of several heads"):
        decoder(draw(2, 4, 3), draw(2, 5, 4), return_attention_scores="heads")


def test_one_mask_for_several_memories_is_refused():
    memory = draw(2, 5, 4)
    decoder = AttentionDecoder(
        gru(), [BahdanauAttention(4), BahdanauAttention(4)]
    )
    mask = np.ones((2, 5), bool)
    with pytest.raises(ValueError, match="`memory_mask` is a list too"):
        decoder(draw(2, 4, 3), [memory, memory], memory_mask=mask)


def test_a_decoder_without_a_memory_minds_the_mask_of_its_inputs():
    ids = np.array([[1, 2, 0, 3]])
    embedding = layers.Embedding(5, 3, mask_zero=True)
    decoder = AttentionDecoder(gru())
    outputs = values(decoder(embedding(ids)))
    assert not outputs[:, 2].any()
    expected = values(decoder(embedding(ids[:, [0, 1, 3]])))
    np.testing.assert_allclose(outputs[:, [0, 1, 3]], expected, atol=1e-6)


@pytest.mark.full
def test_a_residual_cell_in_an_rnn_of_keras_draws_dropout_anew():
    cell = keras_attn.ResidualCell(layers.GRUCell(4, dropout=0.5, seed=1))
    rnn = layers.RNN(cell, return_sequences=True)
    one, two = (values(rnn(draw(2, 5, 4), training=True)) for _ in "ab")
    assert np.abs(one - two).max() > 1e-3
    assert rnn(draw(3, 5, 4), training=True).shape == (3, 5, 4)
    inputs = keras.Input((None, 4))
    model = keras.Model(inputs, layers.Bidirectional(rnn)(inputs))
    model.compile("sgd", "mse")
    for length in (4, 3):  # traced twice
        model.fit(draw(2, length, 4), draw(2, length, 8), verbose=0)


def test_a_residual_cell_goes_around_one_cell():
    with pytest.raises(ValueError, match="wraps a single cell"):
        keras_attn.ResidualCell(layers.StackedRNNCells([gru(), gru()]))


def test_a_past_needs_to_know_its_length():
    decoder = AttentionDecoder(
        gru(), BahdanauAttention(4), self_attention=ScaledDotAttention()
    )
    inputs, memory = draw(2, 4, 3), draw(2, 5, 4)
    built(decoder, inputs.shape, memory.shape)
    source = decoder.prepare(ops.convert_to_tensor(memory))
    with pytest.raises(ValueError, match="length of the longest output"):
        decoder.start(source)
