"""No model that is cut wrongly passes, and no good one is refused.

A cheat is a layer that steps cannot imitate: it mixes positions of the target
or rows of the batch, or it depends on lengths or positions. Graphs are drawn
from good parts and cheats. Most cheats are layers of these tests, which no list
of refused layers names.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cheating import CHEATS
from support.cheating import SOURCE
from support.cheating import TARGET
from support.cheating import Cheat
from support.cheating import require_refused
from support.cheating import shifted
from support.cheating import with_target_path
from support.cuts import SOURCES
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import speak_up

import keras_attn
from keras_attn import Incremental
from keras_attn.graph.flat_graph import Graph

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings(
        "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
    ),
]


class WindowedAttention(layers.MultiHeadAttention):
    """Sees three positions, by a `call` of its own."""

    def call(self, query, value, key=None, use_causal_mask=False):
        number = ops.arange(ops.shape(query)[1])
        near = (number[:, None] - number[None]) < 3
        return super().call(
            query,
            value,
            attention_mask=near[None],
            use_causal_mask=use_causal_mask,
        )


class DecayingScores(layers.MultiHeadAttention):
    """Changes a method that `call` uses, and not `call` itself."""

    def _masked_softmax(self, attention_scores, attention_mask=None):
        return super()._masked_softmax(attention_scores / 3, attention_mask)


class TwiceDecoded(keras_attn.AttentionDecoder):
    def call(self, inputs, memory, initial_state=None, condition=None):
        return super().call(inputs + shifted(inputs, 1), memory)


class ReversedGRU(layers.GRU):
    def call(self, sequences, initial_state=None):
        return ops.flip(super().call(ops.flip(sequences, 1)), 1)


def plain(build):
    return lambda x, memory: build(x)


KERAS = {
    "a lambda that reverses": plain(
        layers.Lambda(lambda z: z[:, ::-1], name="culprit")
    ),
    "flip": plain(lambda x: ops.flip(x, axis=1)),
    "roll": plain(lambda x: ops.roll(x, 6, axis=1)),
    "all but the last": plain(lambda x: x[:, :-1]),
    "backwards": plain(lambda x: x[..., ::-1, :]),
    "cumulative products": plain(lambda x: ops.cumprod(x, axis=-2)),
    "a mean": plain(lambda x: x - ops.mean(x, axis=1, keepdims=True)),
    "a mean of the batch": plain(lambda x: x - ops.mean(x, axis=0)),
    "a sum of all": plain(lambda x: x * ops.sum(x)),
    "sort": plain(lambda x: ops.sort(x, axis=1)),
    "depthwise, dilated": plain(
        layers.DepthwiseConv1D(3, dilation_rate=4, padding="same")
    ),
    "separable": plain(layers.SeparableConv1D(6, 3, padding="same")),
    "in two dimensions": plain(
        lambda x: layers.Reshape((-1, 6))(
            layers.Conv2D(2, (2, 1), dilation_rate=4, padding="same")(
                layers.Reshape((-1, 3, 2))(x)
            )
        )
    ),
    "pooled": plain(layers.MaxPooling1D(3, strides=1, padding="same")),
    "pooled over all": plain(
        lambda x: x + layers.GlobalAveragePooling1D(keepdims=True)(x)
    ),
    "normalized in groups": plain(layers.GroupNormalization(2)),
    "softmax over time": plain(layers.Softmax(axis=1)),
    "a subclass of attention": lambda x, memory: WindowedAttention(
        2, 3, name="culprit"
    )(x, x, use_causal_mask=True),
    "a method of attention": lambda x, memory: DecayingScores(
        2, 3, name="culprit"
    )(x, x, use_causal_mask=True),
    "a subclass of a decoder": lambda x, memory: TwiceDecoded(
        layers.GRUCell(6), keras_attn.BahdanauAttention(4), name="culprit"
    )(x, memory),
    "a subclass of a GRU": plain(
        ReversedGRU(6, return_sequences=True, name="culprit")
    ),
}


@pytest.mark.sample_cases(4)
@pytest.mark.parametrize("name", CHEATS)
def test_a_layer_that_no_step_can_imitate_is_refused_by_its_name(name):
    cheat = Cheat(CHEATS[name])
    require_refused(
        lambda: with_target_path(lambda x, _: cheat(x)), "'culprit'"
    )


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("name", KERAS)
def test_so_is_a_layer_or_an_operation_of_keras(name):
    require_refused(lambda: with_target_path(KERAS[name]))


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["seven ahead", "the next row", "reversed"])
def test_a_cheat_is_found_however_small_its_share(name):
    compute = CHEATS[name]
    small = Cheat(lambda x: x + 0.01 * compute(x))
    require_refused(lambda: with_target_path(lambda x, _: small(x)), "culprit")


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["one ahead", "rolled", "the next row"])
def test_a_cheat_is_found_within_a_model_within_the_model(name):
    given = keras.Input((None, 6))
    inner = keras.Sequential([layers.Dense(6), Cheat(CHEATS[name])])
    outer = keras.Model(given, inner(layers.Dense(6)(given)) * 2.0)
    require_refused(lambda: with_target_path(lambda x, _: outer(x)), "culprit")


def test_rows_that_an_encoder_mixes_are_refused():
    source, target = inputs()
    memory, x = embedded(source, target)
    memory = Cheat(CHEATS["the mean of the batch"])(memory)
    model = keras.Model(
        [source, target], layers.Dense(TARGETS)(decoder()(x, memory))
    )
    require_refused(lambda: model, "'culprit' (Cheat) mixes the rows")


def test_an_encoder_that_differs_inside_a_graph_is_refused():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("graphs of unknown sizes are TensorFlow's")
    source, target = inputs()
    memory = layers.Embedding(SOURCES, 6)(source)
    memory = layers.TimeDistributed(layers.Dense(6), name="culprit")(memory)
    x = layers.Embedding(TARGETS, 6)(target)
    model = keras.Model(
        [source, target], layers.Dense(TARGETS)(decoder()(x, memory))
    )
    require_refused(lambda: model, "'culprit' (TimeDistributed) gives other")


def test_a_cheat_that_training_switches_on_is_found_when_checked_again():
    class Growing(layers.Layer):
        def build(self, input_shape):
            self.share = self.add_weight(shape=(), initializer="zeros")

        def call(self, inputs):
            return inputs + self.share * ops.cumsum(inputs, axis=1)

    culprit = Growing(name="culprit")
    cut = Incremental(with_target_path(lambda x, _: culprit(x)))
    examples = [*map(ops.convert_to_tensor, [SOURCE, TARGET])]
    cut.check(*examples)
    culprit.share.assign(0.5)
    with pytest.raises(ValueError, match="'culprit' .* one target position"):
        cut.check(*examples)


# Parts of the graphs that are drawn: functions of (x, memory).
GOOD = {
    "dense": plain(lambda x: layers.Dense(6, "tanh")(x)),
    "residual": plain(lambda x: x + layers.Dense(6, "relu")(x)),
    "gru": plain(lambda x: layers.GRU(6, return_sequences=True)(x)),
    "lstm": plain(lambda x: layers.LSTM(6, return_sequences=True)(x)),
    "normalized": plain(lambda x: layers.LayerNormalization()(x)),
    "softmax": plain(lambda x: x * layers.Softmax()(x)),
    "sliced": plain(lambda x: ops.concatenate([x[..., 3:], x[:, :, :3]], -1)),
    "summed": plain(lambda x: x / (1 + ops.sum(x * x, axis=-1, keepdims=True))),
    "reshaped": plain(
        lambda x: layers.Reshape((-1, 6))(layers.Reshape((-1, 2, 3))(x) * 2.0)
    ),
    "one wide": plain(lambda x: layers.Conv1D(6, 1)(x)),
    "causal": plain(
        lambda x: layers.Conv1D(6, 3, padding="causal", dilation_rate=2)(x)
    ),
    "padded": plain(
        lambda x: layers.SeparableConv1D(6, 2)(layers.ZeroPadding1D((1, 0))(x))
    ),
    "positions": plain(lambda x: keras_attn.SinePositionEncoding()(x)),
    "own": plain(
        lambda x: layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    ),
    "source": lambda x, memory: x + layers.MultiHeadAttention(2, 3)(x, memory),
    "ours": lambda x, memory: keras_attn.BahdanauAttention(4)(x, memory),
    "by hand": lambda x, memory: (
        x
        + ops.matmul(
            ops.softmax(ops.matmul(x, ops.swapaxes(memory, 1, 2))), memory
        )
    ),
    "decoder": lambda x, memory: decoder()(x, memory),
    "feeding": lambda x, memory: decoder(
        attention=keras_attn.LuongAttention("general"), order="post"
    )(x, memory),
}


def draw(number):
    """Returns the graph with this number; odd numbers have a cheat."""
    random = np.random.default_rng(number)
    parts = [*random.choice([*GOOD], size=random.integers(1, 4))]
    cheats = [*CHEATS, *KERAS]
    if number % 2:
        cheat = cheats[(number // 2) % len(cheats)]
        parts.insert(random.integers(len(parts) + 1), cheat)
    masked = bool(random.integers(2))

    def build():
        source, target = inputs()
        memory = layers.Embedding(SOURCES, 6, mask_zero=masked)(source)
        x = layers.Embedding(TARGETS, 6, mask_zero=masked)(target)
        for part in parts:
            if part in CHEATS:
                x = Cheat(CHEATS[part])(x)
            elif part in KERAS:
                x = KERAS[part](x, memory)
            else:
                x = GOOD[part](x, memory)
        x = decoder()(x, memory)
        return keras.Model([source, target], layers.Dense(TARGETS)(x))

    return parts, build


def check_drawn(number):
    parts, build = draw(number)
    if number % 2:
        try:
            require_refused(build)
        except pytest.fail.Exception:
            pytest.fail(f"passed: {parts}")
        return
    cut = Incremental(speak_up(build()))
    cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("number", range(12))
def test_of_graphs_drawn_at_random_the_cheats_are_refused(number):
    check_drawn(number)


@pytest.mark.full
@pytest.mark.parametrize("number", range(12, 312))
def test_of_hundreds_of_graphs_the_cheats_are_refused(number):
    check_drawn(number)


# Models that a first version of the check passed or refused wrongly.


class Outlying(layers.Layer):
    """Adds scores of -1e9, which could hide a cheat."""

    def call(self, inputs):
        low = ops.cast(ops.arange(ops.shape(inputs)[2]) < 2, inputs.dtype)
        y = inputs - 1e9 * low
        return y - 2 * ops.cumsum(ops.tanh(y), axis=1)


class Hiding(layers.Layer):
    """Returns a mask that hides a token that is not padding."""

    def call(self, inputs):
        return ops.one_hot(inputs, TARGETS)

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 4)


class OwnCall(keras.Model):
    def call(self, inputs, training=None, mask=None):
        logits = super().call(inputs)
        return logits - 2 * ops.cumsum(ops.tanh(logits), axis=1)


def test_numbers_far_out_hide_no_cheat():
    def build():
        source, target = inputs()
        memory, x = embedded(source, target)
        logits = layers.Dense(TARGETS)(decoder()(x, memory))
        return keras.Model(
            [source, target], Outlying(name="culprit")(logits) * 1.0
        )

    require_refused(build, "'culprit'")


def test_masks_that_hide_real_tokens_are_refused():
    def build():
        source, target = inputs()
        memory, _ = embedded(source, target)
        x = layers.GRU(6, return_sequences=True, name="culprit")(
            Hiding()(target)
        )
        return keras.Model(
            [source, target], layers.Dense(TARGETS)(decoder()(x, memory))
        )

    require_refused(build, "'culprit' (GRU) gives other numbers with the mask")


def test_a_model_with_a_call_of_its_own_is_refused():
    def build():
        whole = with_target_path(lambda x, _: x)
        return OwnCall(whole.inputs, whole.outputs, name="culprit")

    require_refused(build, "a `call` of its own")


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("gain", [2, 4])
def test_a_cheat_behind_a_chaotic_net_is_refused(gain):
    chaotic = layers.SimpleRNN(64, return_sequences=True)

    def build():
        culprit = Cheat(lambda x: x + shifted(x, 20))
        source, target = inputs()
        memory, x = embedded(source, target)
        x = layers.Concatenate()([culprit(chaotic(x)), decoder()(x, memory)])
        model = keras.Model([source, target], layers.Dense(TARGETS)(x))
        recurrent = np.random.default_rng(1).normal(size=(64, 64)) * gain / 8
        speak_up(model)
        kernel, _, bias = chaotic.get_weights()
        chaotic.set_weights([kernel, recurrent, bias])
        return model

    cut = Incremental(build())
    with pytest.raises(ValueError, match="'culprit'"):
        cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]), length=50)


def test_a_good_chaotic_net_is_not():
    chaotic = layers.SimpleRNN(64, return_sequences=True)
    model = with_target_path(lambda x, _: chaotic(x))
    speak_up(model)
    kernel, _, bias = chaotic.get_weights()
    recurrent = np.random.default_rng(1).normal(size=(64, 64)) * 3 / 8
    chaotic.set_weights([kernel, recurrent, bias])
    cut = Incremental(model)
    cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]), length=50)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("rows", ["one", "equal", "rolled by all"])
def test_mixed_rows_are_found_whatever_rows_are_given(rows):
    by = 3 if rows == "rolled by all" else 1
    source, target = inputs()
    memory, x = embedded(source, target)
    memory = Cheat(lambda x: ops.roll(x, by, axis=0))(memory)
    model = keras.Model(
        [source, target], layers.Dense(TARGETS)(decoder()(x, memory))
    )
    given = {
        "one": (SOURCE[:1], TARGET[:1]),
        "equal": (SOURCE[[0, 0, 0]], TARGET[[0, 0, 0]]),
        "rolled by all": (SOURCE, TARGET),
    }[rows]
    with pytest.raises(ValueError, match="'culprit' .* mixes the rows"):
        Incremental(speak_up(model)).check(*map(ops.convert_to_tensor, given))


def test_an_order_is_seen_though_one_token_is_given():
    culprit = Cheat(CHEATS["reversed"])
    cut = Incremental(speak_up(with_target_path(lambda x, _: culprit(x))))
    ones = np.ones((3, 5), "int32")
    with pytest.raises(ValueError, match="'culprit'"):
        cut.check(*map(ops.convert_to_tensor, [SOURCE, ones]))


def test_a_layer_that_both_sides_share_is_refused_where_graphs_are_wrong():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("graphs of unknown sizes are TensorFlow's")
    shared = layers.TimeDistributed(layers.Dense(6), name="culprit")
    source, target = inputs()
    memory = shared(layers.Embedding(SOURCES, 6)(source))
    x = shared(layers.Embedding(TARGETS, 6)(target))
    model = keras.Model(
        [source, target], layers.Dense(TARGETS)(decoder()(x, memory))
    )
    require_refused(lambda: model, "'culprit' (TimeDistributed) gives other")


def test_draws_at_random_are_called_that():
    culprit = Cheat(lambda x: x + keras.random.normal(ops.shape(x)))
    require_refused(
        lambda: with_target_path(lambda x, _: culprit(x)), "draws at random"
    )


class Learned(layers.Layer):
    """One vector for all rows, whatever the source."""

    def build(self, input_shape):
        self.vector = self.add_weight(shape=(1, 1, input_shape[-1]))

    def call(self, inputs):
        return self.vector * 1.0

    def compute_output_shape(self, input_shape):
        return (1, 1, input_shape[-1])


def half_precision_encoder(x, memory):
    memory = layers.Bidirectional(
        layers.GRU(3, return_sequences=True, dtype="mixed_bfloat16")
    )(memory)
    return keras_attn.BahdanauAttention(4)(
        layers.GRU(6, return_sequences=True)(x), memory
    )


GOOD_ONCE_REFUSED = {
    "some logits are impossible": lambda x, memory: layers.Lambda(
        lambda y: ops.where(ops.arange(6) < 2, -np.inf, y)
    )(decoder()(x, memory)),
    "16 bits in the encoder": half_precision_encoder,
    "the same for all rows": lambda x, memory: (
        decoder()(x, memory) + Learned()(memory)
    ),
}


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", GOOD_ONCE_REFUSED)
def test_good_graphs_that_once_were_refused_pass(name):
    source, target = inputs()
    memory, x = embedded(source, target)
    logits = GOOD_ONCE_REFUSED[name](x, memory)
    cut = Incremental(speak_up(keras.Model([source, target], logits)))
    cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


class FailsInGraphs(layers.Layer):
    """Takes many positions only if the number of rows is known."""

    def call(self, inputs):
        rows, length, _ = inputs.shape
        if rows is None and (length or 0) > 3:
            raise ValueError("The number of rows must be known.")
        return inputs * 2.0

    def compute_output_shape(self, input_shape):
        return input_shape


def test_steps_are_compared_again_where_whole_targets_fail_in_graphs():
    cut = Incremental(
        speak_up(with_target_path(lambda x, _: FailsInGraphs()(x)))
    )
    for _ in range(2):
        cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


def test_a_model_called_with_a_dictionary_is_followed_input_by_input():
    first, second = keras.Input((4,), name="b"), keras.Input((4,), name="a")
    within = keras.Model([first, second], first - 2.0 * second)
    x, y = keras.Input((4,)), keras.Input((4,))
    model = keras.Model([x, y], within({"a": y, "b": x}))
    values = np.eye(4, dtype="float32"), np.ones((4, 4), "float32")
    graph = Graph(model)
    found = graph.run(list(map(ops.convert_to_tensor, values)))
    found = found[graph.outputs[0]]
    np.testing.assert_array_equal(found, values[0] - 2 * values[1])
