"""Models that cannot be decoded token by token are refused by layer.

These tests run on every backend that Keras runs on.
"""

import keras
import keras_hub
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCE
from support.cuts import TARGET
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import with_path

import keras_attn
from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


def target_path(change):
    """A model with something between the target's embedding and the decoder."""

    def build():
        source, target = inputs()
        memory, embedding = embedded(source, target)
        hidden = decoder()(change(embedding), memory)
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    return build


def after_the_decoder(change):
    def build():
        source, target = inputs()
        memory, embedding = embedded(source, target)
        hidden = change(decoder()(embedding, memory))
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    return build


REFUSED = {
    "a bidirectional GRU": target_path(
        layers.Bidirectional(
            layers.GRU(6, return_sequences=True), name="culprit"
        )
    ),
    "a convolution": target_path(
        layers.Conv1D(6, 3, padding="same", name="culprit")
    ),
    "a convolution in a nested model": after_the_decoder(
        keras.Sequential(
            [layers.Dense(6), layers.Conv1D(6, 2, name="culprit")],
            name="nested",
        )
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_that_mixes_target_positions_is_refused_by_its_name(name):
    with pytest.raises(ValueError, match="'culprit' .* mixes target positions"):
        Incremental(REFUSED[name]())


class Summing(layers.Layer):
    """Mixes positions in a way that its class does not show."""

    def call(self, inputs):
        return ops.cumsum(inputs, axis=1)


class Positions(layers.Layer):
    """Adds each position's number, so it depends on the position."""

    def call(self, inputs):
        count = ops.cumsum(ops.ones_like(inputs), axis=1)
        return inputs + count


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("culprit", [Summing, Positions])
@pytest.mark.parametrize("where", [target_path, after_the_decoder])
def test_the_check_finds_whatever_else_mixes_positions(culprit, where):
    cut = Incremental(where(culprit(name="culprit"))())
    with pytest.raises(ValueError, match="'culprit' .* gives another result"):
        cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


def test_a_memory_that_depends_on_the_target_is_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    both = layers.Concatenate(axis=1)([memory, embedding])
    hidden = decoder(name="culprit")(embedding, both)
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    with pytest.raises(
        ValueError, match="'culprit'.* has a `memory` that depends"
    ):
        Incremental(model)


def test_an_initial_state_that_depends_on_the_target_is_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    start = layers.GlobalAveragePooling1D(name="pooled")(embedding)
    hidden = decoder()(embedding, memory, initial_state=start)
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    with pytest.raises(ValueError, match="cannot be decoded token by token"):
        Incremental(model)


def test_a_model_without_a_decoder_is_refused():
    source, target = inputs()
    _, embedding = embedded(source, target)
    model = keras.Model([source, target], layers.Dense(TARGETS)(embedding))
    with pytest.raises(ValueError, match="so there is nothing to decode"):
        Incremental(model)


def test_a_subclass_is_not_taken_for_its_parent():
    class Own(layers.GRU):
        def call(self, sequences, initial_state=None):
            return super().call(sequences)

    def build(x, memory):
        first = layers.Lambda(lambda x: x[:, :1])(memory)
        return Own(6, return_sequences=True)(x) + first

    with pytest.raises(ValueError, match="`Own` has methods of its own.*GRU"):
        Incremental(with_path(build))


def test_inputs_in_the_wrong_order_are_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden = decoder()(embedding, memory)
    model = keras.Model([target, source], layers.Dense(TARGETS)(hidden))
    with pytest.raises(ValueError, match="cannot be decoded token by token"):
        Incremental(model)


def test_what_is_no_functional_model_is_refused():
    class Subclassed(keras.Model):
        def call(self, inputs):
            return inputs

    for model in (Subclassed(), layers.Dense(3), "model"):
        with pytest.raises(ValueError, match="A functional model is needed"):
            Incremental(model)


def test_other_numbers_of_inputs_and_outputs_are_refused():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden, scores = decoder()(embedding, memory, return_attention_scores=True)
    logits = layers.Dense(TARGETS)(hidden)
    with pytest.raises(ValueError, match=r"2 input\(s\).* 2 output\(s\)"):
        Incremental(keras.Model([source, target], [logits, scores]))
    with pytest.raises(ValueError, match=r"1 input\(s\)"):
        Incremental(keras.Model([target], layers.Dense(TARGETS)(embedding)))


def test_inputs_without_an_order_are_refused():
    source, target = inputs()
    memory, embedded_target = embedded(source, target)
    logits = layers.Dense(TARGETS)(decoder()(embedded_target, memory))
    named = keras.Model({"source": source, "target": target}, logits)
    with pytest.raises(ValueError, match="must be a list.*no order"):
        Incremental(named)


def two_halves(x, memory):
    """A model with an output that does not depend on the target."""
    given = keras.Input((None, 6)), keras.Input((None, 6))
    halves = keras.Model(
        given,
        [layers.GRU(6, return_sequences=True)(given[0]), given[1] * 2.0],
        name="culprit",
    )
    hidden, doubled = halves([x, memory])
    return decoder()(layers.Concatenate()([hidden, doubled]), memory)


MULTI_HEAD = {"num_heads": 2, "key_dim": 3, "name": "culprit"}

# Functions that build a path, and a part of the error about it.
SAID = {
    "a GRU's last output": (
        lambda x, memory: layers.GRU(6, name="culprit")(x),
        "pass `return_sequences=True`",
    ),
    "a GRU backwards": (
        lambda x, memory: layers.GRU(
            6, return_sequences=True, go_backwards=True, name="culprit"
        )(x),
        "has `go_backwards=True`",
    ),
    "a GRU's last state": (
        lambda x, memory: layers.GRU(
            6, return_sequences=True, return_state=True, name="culprit"
        )(x)[1],
        "returns its last states",
    ),
    "a state from the target": (
        lambda x, memory: layers.GRU(6, return_sequences=True, name="culprit")(
            x, initial_state=layers.Lambda(lambda x: x[:, 0])(x)
        ),
        "has a `initial_state` that depends on the target",
    ),
    "attention to the future": (
        lambda x, memory: layers.MultiHeadAttention(**MULTI_HEAD)(x, x),
        "call it with `use_causal_mask=True`",
    ),
    "our attention to the future": (
        lambda x, memory: keras_attn.BahdanauAttention(4, name="culprit")(x, x),
        "call it with `use_causal_mask=True`",
    ),
    "Keras's attention to the future": (
        lambda x, memory: layers.Attention(name="culprit")([x, x]),
        "call it with `use_causal_mask=True`",
    ),
    "a mask over the target": (
        lambda x, memory: layers.MultiHeadAttention(**MULTI_HEAD)(
            x, x, use_causal_mask=True, attention_mask=ops.ones_like(x)
        ),
        "`use_causal_mask=True` is enough",
    ),
    "a causal mask over the source": (
        lambda x, memory: layers.MultiHeadAttention(**MULTI_HEAD)(
            x, memory, use_causal_mask=True
        ),
        "attends to the source with `use_causal_mask=True`",
    ),
    "a window on the source": (
        lambda x, memory: layers.MultiHeadAttention(
            **MULTI_HEAD, sliding_window=2
        )(x, memory),
        "attends to the source with a `sliding_window`",
    ),
    "keys of the source, values of the target": (
        lambda x, memory: layers.MultiHeadAttention(**MULTI_HEAD)(x, x, memory),
        "must both come from the source",
    ),
    "queries of the source": (
        lambda x, memory: layers.MultiHeadAttention(**MULTI_HEAD)(memory, x),
        "must both come from the source",
    ),
    "scores by head": (
        lambda x, memory: layers.Reshape((-1, 1))(
            layers.Lambda(lambda x: ops.max(x, axis=(1, 3)))(
                layers.MultiHeadAttention(**MULTI_HEAD)(
                    x, memory, return_attention_scores=True
                )[1]
            )
        ),
        "returns scores by head",
    ),
    "a window that the length of the target moves": (
        lambda x, memory: keras_attn.Attention(
            keras_attn.DotScore(),
            keras_attn.LocalPredictiveAlignment(1),
            name="culprit",
        )(x, x, use_causal_mask=True),
        "in a target that is still growing",
    ),
    "KerasHub's decoder without its mask": (
        lambda x, memory: keras_hub.layers.TransformerDecoder(
            4, 2, name="culprit"
        )(x, memory, use_causal_mask=False),
        "leave `use_causal_mask=False` out",
    ),
    "half a model": (two_halves, "an output that does not depend"),
}


@pytest.mark.parametrize("name", SAID)
def test_it_is_said_what_is_in_the_way_and_what_would_work(name):
    build, said = SAID[name]
    with pytest.raises(ValueError) as refused:
        Incremental(with_path(build))
    message = str(refused.value)
    assert "'culprit'" in message and said in message, message


def test_a_layer_that_remembers_other_batches_is_refused():
    source = keras.Input((None, 6), batch_size=3)
    target = keras.Input((None,), batch_size=3, dtype="int32")
    x = layers.Embedding(TARGETS, 6)(target)
    x = layers.GRU(6, return_sequences=True, stateful=True, name="culprit")(x)
    model = keras.Model([source, target], decoder()(x, source))
    with pytest.raises(ValueError, match="'culprit' .* `stateful=True`"):
        Incremental(model)


@pytest.mark.full
def test_the_check_looks_into_models_within_the_model():
    def build(x, memory):
        given = keras.Input((None, 6))
        inner = keras.Sequential([layers.Dense(6), Summing(name="culprit")])
        nested = keras.Model(given, inner(layers.Dense(6)(given)) * 2.0)
        return decoder()(nested(x), memory)

    cut = Incremental(with_path(build))
    with pytest.raises(ValueError, match="'culprit' .* gives another result"):
        cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


def test_the_check_names_a_layer_that_fails():
    source, target = inputs()
    memory, x = embedded(source, ops.reshape(target, (-1, 4)))
    x = layers.Reshape((4, 6), name="culprit")(x)
    model = keras.Model(
        [source, target], layers.Dense(TARGETS)(decoder()(x, memory))
    )
    cut = Incremental(model)
    with pytest.raises(ValueError, match="fails when it sees one target"):
        cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


@pytest.mark.parametrize(
    "positions",
    [
        keras_attn.PositionEmbedding(4, name="culprit"),
        keras_hub.layers.PositionEmbedding(4, name="culprit"),
    ],
)
def test_more_steps_than_there_are_positions_are_refused(positions):
    cut = Incremental(
        with_path(lambda x, memory: decoder()(x + positions(x), memory))
    )
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    cut.start(encoded, max_length=4)
    with pytest.raises(ValueError, match="'culprit' .* knows 4 positions"):
        cut.start(encoded, max_length=5)


def test_positions_count_from_the_first_that_is_given():
    positions = keras_attn.PositionEmbedding(6, name="culprit")
    cut = Incremental(
        with_path(
            lambda x, memory: decoder()(positions(x, start_index=2), memory)
        )
    )
    assert cut.longest == 4
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    with pytest.raises(
        ValueError, match="knows 4 .*max_length=5, max_length=6"
    ):
        cut.start(encoded, max_length=5)


def test_an_output_in_a_dictionary_is_refused():
    model = with_path(lambda x, memory: decoder()(x, memory))
    model = keras.Model(model.inputs, {"logits": model.output})
    with pytest.raises(ValueError, match=r"the key \['logits'\]"):
        Incremental(model)


@pytest.mark.parametrize(
    "arrays",
    [
        (TARGET,),
        (SOURCE, SOURCE, TARGET),
        (SOURCE[:1], TARGET),
        (SOURCE[:0], TARGET[:0]),
        (SOURCE, TARGET[:, :0]),
    ],
)
def test_the_check_says_what_it_takes(arrays):
    cut = Incremental(with_path(lambda x, memory: decoder()(x, memory)))
    with pytest.raises(ValueError, match=r"`check` takes .*\['source', 'tar"):
        cut.check(*arrays)


def test_encode_takes_no_lists():
    cut = Incremental(with_path(lambda x, memory: decoder()(x, memory)))
    with pytest.raises(ValueError, match="takes arrays, here 'source'.*list"):
        cut.encode(SOURCE.tolist())


def test_a_past_needs_to_know_its_size():
    own = layers.MultiHeadAttention(2, 3, name="culprit")
    cut = Incremental(
        with_path(
            lambda x, memory: decoder()(own(x, x, use_causal_mask=True), memory)
        )
    )
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    with pytest.raises(ValueError, match="'culprit' keeps .* max_length=None"):
        cut.start(encoded)


def own_past(x, memory):
    own = layers.MultiHeadAttention(2, 3)
    return decoder()(own(x, x, use_causal_mask=True), memory)


def own_past_inside(x, memory):
    given = keras.Input((None, 6))
    own = layers.MultiHeadAttention(2, 3)(given, given, use_causal_mask=True)
    return decoder()(keras.Model(given, own)(x), memory)


@pytest.mark.parametrize(
    ("path", "recompute"),
    [(own_past, False), (own_past_inside, False), (own_past, True)],
)
def test_no_more_steps_are_taken_than_there_is_room_for(path, recompute):
    cut = Incremental(with_path(path), recompute=recompute)
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    state = cut.start(encoded, beams=2, max_length=3)
    tokens = ops.ones((len(SOURCE), 2), "int32")
    for _ in range(3):
        _, _, state = cut.step(tokens, state, encoded)
    with pytest.raises(ValueError, match="room .* further step after 3"):
        cut.step(tokens, state, encoded)


def test_logits_that_no_source_matters_to_are_refused():
    with pytest.raises(ValueError, match="depends on the target alone"):
        Incremental(
            with_path(lambda x, _: layers.GRU(6, return_sequences=True)(x))
        )
