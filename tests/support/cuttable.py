"""Models that can be cut into `encode` and `step`."""

import keras
from keras import layers
from keras import ops

import keras_attn
from support.cuts import SOURCES
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs


def gru_encoder(memory):
    memory, state = layers.GRU(6, return_sequences=True, return_state=True)(
        memory
    )
    return memory, state


def simple(**options):
    def build():
        source, target = inputs()
        memory, embedding = embedded(source, target)
        memory, state = gru_encoder(memory)
        hidden = decoder(**options)(embedding, memory, initial_state=state)
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    return build


def lstm_with_both_states():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory, h, c = layers.LSTM(6, return_sequences=True, return_state=True)(
        memory
    )
    hidden = decoder(layers.LSTMCell(6), order="post")(
        embedding, memory, initial_state=[h, c]
    )
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def stack_without_states():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    stack = [layers.LSTMCell(3), layers.GRUCell(6)]
    hidden = decoder(stack, emit="concatenated")(embedding, memory)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def memory_straight_from_the_input():
    source = keras.Input((None, 4), name="source")
    _, target = inputs()
    embedding = layers.Embedding(TARGETS, 6)(target)
    hidden = decoder()(embedding, source)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def layers_between():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory, state = gru_encoder(memory)
    embedding = layers.LayerNormalization()(embedding)
    embedding = layers.Dropout(0.5)(embedding)
    hidden = decoder()(embedding, memory, initial_state=state)
    hidden = layers.Add()([hidden, embedding])  # a residual
    hidden = layers.LayerNormalization()(hidden)
    hidden = layers.Activation("relu")(layers.Dense(8)(hidden))
    hidden = layers.Concatenate()([hidden, embedding])
    logits = layers.TimeDistributed(layers.Dense(TARGETS))(hidden)
    return keras.Model([source, target], logits * 0.5)


def shared_embedding():
    source, target = inputs()
    embed = layers.Embedding(TARGETS, 6, mask_zero=True)
    memory, state = gru_encoder(embed(source))
    hidden = decoder()(embed(target), memory, initial_state=state)
    # Tied weights: the same layer turns states into logits.
    logits = ops.matmul(hidden, ops.transpose(embed.embeddings))
    return keras.Model([source, target], logits)


def nested_encoder_and_head():
    source, target = inputs()
    ids = keras.Input((None,), dtype="int32")
    encoder = keras.Model(
        ids, gru_encoder(layers.Embedding(SOURCES, 6, mask_zero=True)(ids))
    )
    head = keras.Sequential([layers.Dense(5, "relu"), layers.Dense(TARGETS)])
    memory, state = encoder(source)
    embedding = layers.Embedding(TARGETS, 6, mask_zero=True)(target)
    hidden = decoder()(embedding, memory, initial_state=state)
    return keras.Model([source, target], head(hidden))


def convolutional_encoder():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory = layers.Conv1D(6, 3, padding="same", activation="relu")(memory)
    start = layers.GlobalAveragePooling1D()(memory)
    hidden = decoder()(embedding, memory, initial_state=start)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def mask_given_by_hand():
    source, target = inputs()
    memory = layers.Embedding(SOURCES, 6)(source)
    embedding = layers.Embedding(TARGETS, 6)(target)
    hidden = decoder()(embedding, memory, memory_mask=ops.not_equal(source, 0))
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def with_attention_scores():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden, _ = decoder()(embedding, memory, return_attention_scores=True)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def two_decoders():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden = decoder()(embedding, memory)
    hidden = decoder(layers.LSTMCell(6), order="post")(hidden, memory)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def two_sources():
    source, target = inputs()
    other = keras.Input((3,), name="speaker")
    memory, embedding = embedded(source, target)
    start = layers.Dense(6)(other)
    hidden = decoder()(embedding, memory, initial_state=start)
    return keras.Model([source, other, target], layers.Dense(TARGETS)(hidden))


MODELS = {
    "pre": simple(),
    "post": simple(order="post", input_feeding=False),
    "feeding": simple(order="post"),
    "luong": simple(
        attention=keras_attn.LuongAttention("concat", 4), order="post"
    ),
    "dot": simple(attention=keras_attn.ScaledDotAttention(), order="post"),
    "dropout": simple(
        cell=layers.GRUCell(6, dropout=0.5, recurrent_dropout=0.5),
        attention=keras_attn.BahdanauAttention(5, dropout=0.5),
    ),
} | {
    build.__name__: build
    for build in (
        lstm_with_both_states,
        stack_without_states,
        memory_straight_from_the_input,
        layers_between,
        shared_embedding,
        nested_encoder_and_head,
        convolutional_encoder,
        mask_given_by_hand,
        with_attention_scores,
        two_decoders,
        two_sources,
    )
}
