"""Encoder-decoders in the shapes in which people publish them.

Each is written anew after the structure of a known example, small, and trained
a little on padded pairs of unlike lengths. `next_logp` asks the model itself,
as its author does, in NumPy and one source at a time; the tests hold searches
equal to what it says.
"""

import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from keras import ops

import keras_attn

TEXT = keras_attn.Text("abcdef", split="characters", max_length=30)
SIZE, PAD, START, END = TEXT.size, 0, 1, 2
UNITS = 12
LENGTH = 9  # of models that take one length alone
LINES = ["abc", "fedcba", "b", "caf", "ddeeb", "aa", "bcdef", "e"]
register = keras.saving.register_keras_serializable("published")


class Published(NamedTuple):
    """A trained model, and how its author asks it.

    Attributes:
        model: The model.
        next_logp: Function of a source line and the ids written so far, that
            returns the log-probabilities of the next token.
        options: What a `Translator` needs to be told of the model.
        recomputed: Whether some of it reads its whole past again.
        source_text: The source's `Text`, or `None` for features.
        sources: The sources on which it is tried.
    """

    model: keras.Model
    next_logp: Callable
    options: dict = {}
    recomputed: bool = False
    source_text: Any = TEXT
    sources: Any = tuple(LINES)
    target_text: Any = TEXT


def ids(line, length=None):
    """Returns the ids of a source line `(1, time)`, with its end token."""
    found = TEXT.source_ids([line]).numpy()
    return found if length is None else padded(found, length)


def padded(rows, length):
    rows = np.asarray(rows)
    return np.pad(rows, [(0, 0), (0, length - rows.shape[1])])


def one_hot(rows, zeros=True):
    found = np.eye(SIZE, dtype="float32")[np.asarray(rows)]
    if zeros:
        found[np.asarray(rows) == PAD] = 0
    return found


def pairs(length=None):
    """Returns sources, what decoders read, and what they write: reversals."""
    random = np.random.default_rng(0)
    rows = [
        "".join(random.choice(list("abcdef"), random.integers(1, 7)))
        for _ in range(48)
    ]
    sources = TEXT.source_ids(rows).numpy()
    written = TEXT.ids([x[::-1] for x in rows]).numpy()
    read = np.concatenate(
        [np.full((len(rows), 1), START), written[:, :-1]], axis=1
    ) * (written != PAD)
    if length is not None:
        sources, read, written = (
            padded(x, length) for x in (sources, read, written)
        )
    return sources, read, written


def trained(model, inputs, outputs, logits=False, epochs=4):
    """Trains a model on padded rows; padding has no weight in the loss."""
    model.compile(
        keras.optimizers.Adam(0.02),
        keras.losses.SparseCategoricalCrossentropy(from_logits=logits),
    )
    weights = (outputs != PAD).astype("float32")
    model.fit(inputs, outputs, sample_weight=weights, epochs=epochs, verbose=0)
    return model


def log(probabilities):
    return np.log(np.maximum(np.asarray(probabilities, "float64"), 1e-37))


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    logits = logits - logits.max()
    return logits - np.log(np.exp(logits).sum())


@functools.cache
def make(name) -> Published:
    """Makes a model once; `NAMES` has the names."""
    keras.utils.set_random_seed(7)
    return _MAKERS[name]()


_MAKERS: dict[str, Callable[[], Published]] = {}


def shape(function):
    _MAKERS[function.__name__] = function
    return function


# 1. One-hot characters, LSTM states passed on, softmax.


@shape
def one_hot_lstm():
    source = keras.Input((None, SIZE))
    _, h, c = layers.LSTM(UNITS, return_state=True)(source)
    target = keras.Input((None, SIZE))
    hidden, _, _ = layers.LSTM(UNITS, return_sequences=True, return_state=True)(
        target, initial_state=[h, c]
    )
    found = layers.Dense(SIZE, activation="softmax")(hidden)
    model = keras.Model([source, target], found)
    x, read, written = pairs()
    trained(model, [one_hot(x), one_hot(read)], written)

    def next_logp(line, so_far):
        given = [one_hot(ids(line)), one_hot([so_far])]
        return log(model(given)[0, -1])

    return Published(model, next_logp)


@shape
def one_hot_lstm_padded_with_blanks():
    made = one_hot_lstm()
    blank = TEXT.tokens.index("f")

    def next_logp(line, so_far):
        source = ids(line, LENGTH)
        source = np.where(source == PAD, blank, source)
        given = [one_hot(source, zeros=False), one_hot([so_far])]
        return log(made.model(given)[0, -1])

    options = {"pad_to": LENGTH, "padding": "f"}
    return Published(made.model, next_logp, options)


# 2. Layers of one's own around `MultiHeadAttention`, a causal mask from the
# shape, sinusoid-free position embeddings, softmax.


@register
class OwnPositions(layers.Layer):
    def __init__(self, length, size, width, **kwargs):
        super().__init__(**kwargs)
        self.tokens = layers.Embedding(size, width)
        self.positions = layers.Embedding(length, width)
        self.sizes = length, size, width

    def call(self, inputs):
        places = ops.arange(0, ops.shape(inputs)[-1], 1)
        return self.tokens(inputs) + self.positions(places)

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 0)

    def get_config(self):
        names = "length", "size", "width"
        own = dict(zip(names, self.sizes, strict=True))
        return super().get_config() | own


@register
class OwnEncoder(layers.Layer):
    def __init__(self, width, heads, **kwargs):
        super().__init__(**kwargs)
        self.sizes = width, heads
        self.attention = layers.MultiHeadAttention(heads, width)
        self.dense = keras.Sequential(
            [layers.Dense(2 * width, "relu"), layers.Dense(width)]
        )
        self.first, self.second = (layers.LayerNormalization() for _ in "12")
        self.supports_masking = True

    def call(self, inputs, mask=None):
        padding = None
        if mask is not None:
            padding = ops.cast(mask[:, None, :], "int32")
        x = self.attention(inputs, inputs, inputs, attention_mask=padding)
        x = self.first(inputs + x)
        return self.second(x + self.dense(x))

    def get_config(self):
        own = dict(zip(("width", "heads"), self.sizes, strict=True))
        return super().get_config() | own


@register
class OwnDecoder(layers.Layer):
    def __init__(self, width, heads, needs_mask=False, **kwargs):
        super().__init__(**kwargs)
        self.sizes = width, heads, needs_mask
        self.attention = layers.MultiHeadAttention(heads, width)
        self.cross = layers.MultiHeadAttention(heads, width)
        self.dense = keras.Sequential(
            [layers.Dense(2 * width, "relu"), layers.Dense(width)]
        )
        self.norms = [layers.LayerNormalization() for _ in "123"]
        self.supports_masking = True

    def call(self, inputs, mask=None):
        inputs, memory = inputs
        causal, padding = self.causal_mask(inputs), None
        if mask is not None and mask[0] is not None:
            padding = ops.cast(mask[0][:, None, :], "int32")
            padding = ops.minimum(padding, causal)
        elif self.sizes[2]:
            raise ValueError("this decoder needs a mask")
        allowed = None
        if mask is not None and mask[1] is not None:
            allowed = ops.cast(mask[1][:, None, :], "int32")
        x = self.attention(inputs, inputs, inputs, attention_mask=causal)
        x = self.norms[0](inputs + x)
        y = self.cross(x, memory, memory, attention_mask=allowed)
        x = self.norms[1](x + y)
        return self.norms[2](x + self.dense(x))

    def causal_mask(self, inputs):
        batch, length = ops.shape(inputs)[0], ops.shape(inputs)[1]
        i = ops.arange(length)[:, None]
        mask = ops.cast(i >= ops.arange(length), "int32")
        mask = ops.reshape(mask, (1, length, length))
        more = tf.concat(
            [tf.expand_dims(batch, -1), tf.constant([1, 1])], axis=0
        )
        return tf.tile(mask, more)

    def get_config(self):
        names = "width", "heads", "needs_mask"
        own = dict(zip(names, self.sizes, strict=True))
        return super().get_config() | own


def own_transformer(needs_mask=False, nested=False):
    source = keras.Input((None,), dtype="int64", name="encoder_inputs")
    x = OwnPositions(20, SIZE, UNITS)(source)
    memory = OwnEncoder(UNITS, 2)(x)
    target = keras.Input((None,), dtype="int64", name="decoder_inputs")
    given = memory
    if nested:
        given = keras.Input((None, UNITS), name="decoder_state_inputs")
    x = OwnPositions(20, SIZE, UNITS)(target)
    x = OwnDecoder(UNITS, 2, needs_mask)([x, given])
    x = layers.Dropout(0.5)(x)
    found = layers.Dense(SIZE, activation="softmax")(x)
    if nested:
        found = keras.Model([target, given], found)([target, memory])
    model = keras.Model([source, target], found, name="transformer")
    x, read, written = pairs()
    return trained(model, [x, read], written)


def by_ids(model, line, so_far):
    return model([ids(line), np.array([so_far])])[0, -1]


@shape
def own_layers():
    model = own_transformer()
    return Published(model, lambda *x: log(by_ids(model, *x)))


@shape
def own_layers_that_need_masks():
    model = own_transformer(needs_mask=True)
    return Published(model, lambda *x: log(by_ids(model, *x)))


@shape
def own_layers_in_a_nested_decoder():
    model = own_transformer(nested=True)
    return Published(model, lambda *x: log(by_ids(model, *x)))


@shape
def own_layers_of_named_inputs():
    inner = own_transformer()
    source, target = inner.inputs
    named = {"zz_source": source, "a_target": target}
    model = keras.Model(named, inner.output)

    def next_logp(line, so_far):
        given = {"zz_source": ids(line), "a_target": np.array([so_far])}
        return log(model(given)[0, -1])

    return Published(model, next_logp, {"target": "a_target"})


# 3. A `Bidirectional` encoder whose last output is the first state, softmax.


@shape
def bidirectional_gru():
    source = keras.Input((None,), dtype="int64", name="english")
    x = layers.Embedding(SIZE, UNITS, mask_zero=True)(source)
    state = layers.Bidirectional(layers.GRU(UNITS), merge_mode="sum")(x)
    target = keras.Input((None,), dtype="int64", name="spanish")
    x = layers.Embedding(SIZE, UNITS, mask_zero=True)(target)
    x = layers.GRU(UNITS, return_sequences=True)(x, initial_state=state)
    x = layers.Dropout(0.5)(x)
    found = layers.Dense(SIZE, activation="softmax")(x)
    model = keras.Model([source, target], found)
    x, read, written = pairs()
    trained(model, [x, read], written)
    return Published(model, lambda *x: log(by_ids(model, *x)))


# 4. KerasHub's layers, softmax.


@shape
def keras_hub_layers():
    import keras_hub

    source = keras.Input((None,), name="encoder_inputs")
    x = keras_hub.layers.TokenAndPositionEmbedding(
        vocabulary_size=SIZE, sequence_length=40, embedding_dim=UNITS
    )(source)
    memory = keras_hub.layers.TransformerEncoder(
        intermediate_dim=2 * UNITS, num_heads=2
    )(inputs=x)
    target = keras.Input((None,), name="decoder_inputs")
    given = keras.Input((None, UNITS), name="decoder_state_inputs")
    x = keras_hub.layers.TokenAndPositionEmbedding(
        vocabulary_size=SIZE,
        sequence_length=40,
        embedding_dim=UNITS,
        mask_zero=True,
    )(target)
    x = keras_hub.layers.TransformerDecoder(
        intermediate_dim=2 * UNITS, num_heads=2
    )(decoder_sequence=x, encoder_sequence=given)
    found = layers.Dense(SIZE, activation="softmax")(layers.Dropout(0.5)(x))
    decoder = keras.Model([target, given], found)
    model = keras.Model([source, target], decoder([target, memory]))
    x, read, written = pairs()
    trained(model, [x, read], written)
    return Published(model, lambda *x: log(by_ids(model, *x)))


# 5. and 6. Subclassed models with `call((context, x))`, `tf.*` inside.


@register
class TutorialEncoder(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(SIZE, units, mask_zero=True)
        self.rnn = layers.Bidirectional(
            layers.GRU(units, return_sequences=True), merge_mode="sum"
        )

    def call(self, x):
        return self.rnn(self.embedding(x))


@register
class TutorialAttention(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.mha = layers.MultiHeadAttention(num_heads=1, key_dim=units)
        self.norm, self.add = layers.LayerNormalization(), layers.Add()

    def call(self, x, context):
        found, scores = self.mha(
            query=x, value=context, return_attention_scores=True
        )
        self.last_attention_weights = tf.reduce_mean(scores, axis=1)
        return self.norm(self.add([x, found]))


@register
class TutorialTranslator(keras.Model):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.encoder = TutorialEncoder(units)
        self.embedding = layers.Embedding(SIZE, units, mask_zero=True)
        self.rnn = layers.GRU(units, return_sequences=True, return_state=True)
        self.attention = TutorialAttention(units)
        self.output_layer = layers.Dense(SIZE)

    def call(self, inputs):
        context, x = inputs
        context = self.encoder(context)
        x, _ = self.rnn(self.embedding(x))
        x = self.attention(x, context)
        logits = self.output_layer(x)
        try:
            del logits._keras_mask
        except AttributeError:
            pass
        return logits

    def get_config(self):
        return super().get_config() | {"units": self.units}


@shape
def subclassed_with_attention():
    model = TutorialTranslator(UNITS)
    x, read, written = pairs()
    trained(model, (x, read), written, logits=True)

    def next_logp(line, so_far):
        return log_softmax(model((ids(line), np.array([so_far])))[0, -1])

    return Published(model, next_logp)


def sinusoids(length, depth):
    places = np.arange(length)[:, None] / 10_000 ** (
        np.arange(depth / 2)[None] / (depth / 2)
    )
    return tf.cast(
        np.concatenate([np.sin(places), np.cos(places)], -1), "float32"
    )


@register
class TutorialPositions(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(SIZE, UNITS, mask_zero=True)
        self.encoding = sinusoids(64, UNITS)

    def compute_mask(self, *args, **kwargs):
        return self.embedding.compute_mask(*args, **kwargs)

    def call(self, x):
        length = tf.shape(x)[1]
        x = self.embedding(x) * tf.math.sqrt(tf.cast(UNITS, tf.float32))
        return x + self.encoding[tf.newaxis, :length, :]


@register
class TutorialBlock(layers.Layer):
    def __init__(self, decodes, **kwargs):
        super().__init__(**kwargs)
        self.decodes = decodes
        self.own = layers.MultiHeadAttention(2, UNITS)
        self.cross = layers.MultiHeadAttention(2, UNITS)
        self.norms = [layers.LayerNormalization() for _ in "123"]
        self.adds = [layers.Add() for _ in "123"]
        self.dense = keras.Sequential(
            [layers.Dense(2 * UNITS, "relu"), layers.Dense(UNITS)]
        )

    def call(self, x, context=None):
        y = self.own(x, x, x, use_causal_mask=self.decodes)
        x = self.norms[0](self.adds[0]([x, y]))
        if self.decodes:
            y, self.last_attn_scores = self.cross(
                query=x,
                key=context,
                value=context,
                return_attention_scores=True,
            )
            x = self.norms[1](self.adds[1]([x, y]))
        return self.norms[2](self.adds[2]([x, self.dense(x)]))


@register
class TutorialTransformer(keras.Model):
    def __init__(self, as_two=False, **kwargs):
        super().__init__(**kwargs)
        self.places = [TutorialPositions() for _ in "12"]
        self.blocks = [TutorialBlock(False), TutorialBlock(True)]
        self.final_layer = layers.Dense(SIZE)

    def call(self, inputs):
        context, x = inputs
        context = self.blocks[0](self.places[0](context))
        x = self.blocks[1](self.places[1](x), context=context)
        logits = self.final_layer(x)
        try:
            del logits._keras_mask
        except AttributeError:
            pass
        return logits


@shape
def subclassed_transformer():
    model = TutorialTransformer()
    x, read, written = pairs()
    trained(model, (x, read), written, logits=True, epochs=6)

    def next_logp(line, so_far):
        return log_softmax(model((ids(line), np.array([so_far])))[0, -1])

    return Published(model, next_logp, recomputed=True)


@register
class TwoArguments(TutorialTransformer):
    def call(self, source, target):
        return super().call((source, target))


@shape
def subclassed_with_two_arguments():
    model = TwoArguments()
    x, read, _ = pairs()
    model(x, read)

    def next_logp(line, so_far):
        return log_softmax(model(ids(line), np.array([so_far]))[0, -1])

    return Published(model, next_logp, recomputed=True)


@register
class OfADictionary(TutorialTransformer):
    def call(self, inputs):
        return super().call((inputs["context"], inputs["before"]))


@shape
def subclassed_with_a_dictionary():
    model = OfADictionary()
    x, read, written = pairs()
    given = {"before": read, "context": x}
    trained(model, given, written, logits=True, epochs=6)

    def next_logp(line, so_far):
        given = {"context": ids(line), "before": np.array([so_far])}
        return log_softmax(model(given)[0, -1])

    return Published(model, next_logp, {"target": "before"}, recomputed=True)


@register
class DropsTheLast(TutorialTransformer):
    def call(self, inputs):
        context, written = inputs
        return super().call((context, written[:, :-1]))


@shape
def subclassed_that_drops_the_last_token():
    model = DropsTheLast()
    x, read, _ = pairs()
    model((x, read))

    def next_logp(line, so_far):
        given = np.array([[*so_far, PAD]])
        return log_softmax(model((ids(line), given))[0, -1])

    return Published(model, next_logp, recomputed=True)


# 7. Luong's attention from `Dot`; one length; `TimeDistributed`.


@shape
def luong_from_dot():
    source, target = (keras.Input((LENGTH,)) for _ in "12")
    x = layers.Embedding(SIZE, UNITS)(source)
    memory, h, c = layers.LSTM(UNITS, return_sequences=True, return_state=True)(
        x
    )
    x = layers.Embedding(SIZE, UNITS)(target)
    hidden = layers.LSTM(UNITS, return_sequences=True)(x, initial_state=[h, c])
    scores = layers.Dot(axes=[2, 2])([hidden, memory])
    weights = layers.Activation("softmax", name="attention")(scores)
    context = layers.Dot(axes=[2, 1])([weights, memory])
    x = layers.Concatenate()([context, hidden])
    x = layers.TimeDistributed(layers.Dense(UNITS, activation="tanh"))(x)
    found = layers.TimeDistributed(layers.Dense(SIZE, activation="softmax"))(x)
    model = keras.Model([source, target], found)
    x, read, written = pairs(LENGTH)
    trained(model, [x, read], written)

    def next_logp(line, so_far):
        given = [ids(line, LENGTH), padded([so_far], LENGTH)]
        return log(model(given)[0, len(so_far) - 1])

    return Published(model, next_logp)


# 8. `AdditiveAttention`, a fixed source length, no masks.


@shape
def additive_without_masks():
    source = keras.Input((LENGTH,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory, h, c = layers.LSTM(UNITS, return_sequences=True, return_state=True)(
        layers.Embedding(SIZE, UNITS)(source)
    )
    hidden, _, _ = layers.LSTM(UNITS, return_sequences=True, return_state=True)(
        layers.Embedding(SIZE, UNITS)(target), initial_state=[h, c]
    )
    context = layers.AdditiveAttention()([hidden, memory])
    x = layers.Concatenate(axis=-1)([hidden, context])
    found = layers.TimeDistributed(layers.Dense(SIZE, activation="softmax"))(x)
    model = keras.Model([source, target], found)
    x, read, written = pairs()
    trained(model, [padded(x, LENGTH), read], written)

    def next_logp(line, so_far):
        given = [ids(line, LENGTH), np.array([so_far])]
        return log(model(given)[0, -1])

    return Published(model, next_logp)


# 9. An attention layer with a Python loop, one-hot inputs, fixed lengths.


@register
class LoopedAttention(layers.Layer):
    def build(self, shape):
        (_, _, width), _ = shape
        options = {"shape": (width, width), "initializer": "glorot_uniform"}
        self.w = self.add_weight(name="w", **options)
        self.u = self.add_weight(name="u", **options)
        self.v = self.add_weight(
            name="v", shape=(width, 1), initializer="glorot_uniform"
        )

    def call(self, inputs):
        memory, hidden = inputs
        keys, contexts, weights = ops.matmul(memory, self.w), [], []
        for t in range(hidden.shape[1]):
            query = ops.matmul(hidden[:, t], self.u)[:, None]
            energy = ops.matmul(ops.tanh(keys + query), self.v)[..., 0]
            weights.append(ops.softmax(energy))
            contexts.append(ops.einsum("bs,bsd->bd", weights[-1], memory))
        return ops.stack(contexts, axis=1), ops.stack(weights, axis=1)


@shape
def looped_attention():
    source = keras.Input((LENGTH, SIZE), name="encoder_inputs")
    target = keras.Input((LENGTH - 1, SIZE), name="decoder_inputs")
    memory, state = layers.GRU(UNITS, return_sequences=True, return_state=True)(
        source
    )
    hidden, _ = layers.GRU(UNITS, return_sequences=True, return_state=True)(
        target, initial_state=state
    )
    context, weights = LoopedAttention()([memory, hidden])
    x = layers.Concatenate(axis=-1)([hidden, context])
    found = layers.TimeDistributed(layers.Dense(SIZE, activation="softmax"))(x)
    model = keras.Model([source, target], found)
    x, read, written = pairs(LENGTH)
    read, written = read[:, : LENGTH - 1], written[:, : LENGTH - 1]
    trained(model, [one_hot(x), one_hot(read)], written)

    def next_logp(line, so_far):
        given = [
            one_hot(ids(line, LENGTH)),
            one_hot(padded([so_far], LENGTH - 1)),
        ]
        return log(model(given)[0, len(so_far) - 1])

    return Published(model, next_logp)


# 10. A chatbot's Transformer with masks by `Lambda`.


def padding_mask(x):
    mask = ops.cast(ops.equal(x, 0), "float32")
    return mask[:, None, None, :]


def look_ahead_mask(x):
    length = ops.shape(x)[1]
    ahead = 1 - ops.tril(ops.ones((length, length)))
    return ops.maximum(ahead, padding_mask(x))


@register
class ChatAttention(layers.Layer):
    def __init__(self, width, heads, **kwargs):
        super().__init__(**kwargs)
        self.width, self.heads = width, heads
        self.query_dense, self.key_dense, self.value_dense, self.dense = (
            layers.Dense(width) for _ in range(4)
        )

    def split(self, x):
        batch = ops.shape(x)[0]
        depth = self.width // self.heads
        x = ops.reshape(x, (batch, -1, self.heads, depth))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, inputs):
        query = self.split(self.query_dense(inputs["query"]))
        key = self.split(self.key_dense(inputs["key"]))
        value = self.split(self.value_dense(inputs["value"]))
        logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        logits = logits / float(np.sqrt(self.width // self.heads))
        logits += inputs["mask"] * -1e9
        found = ops.matmul(ops.softmax(logits), value)
        found = ops.transpose(found, (0, 2, 1, 3))
        batch = ops.shape(found)[0]
        return self.dense(ops.reshape(found, (batch, -1, self.width)))


@register
class ChatPositions(layers.Layer):
    def __init__(self, length, width, **kwargs):
        super().__init__(**kwargs)
        self.encoding = sinusoids(length, width)[None]

    def call(self, x):
        x = x * tf.math.sqrt(tf.cast(UNITS, tf.float32))
        return x + self.encoding[:, : tf.shape(x)[1], :]


def chat_block(x, memory, masks):
    own = {"query": x, "key": x, "value": x, "mask": masks[0]}
    x = layers.LayerNormalization()(x + ChatAttention(UNITS, 2)(own))
    if memory is not None:
        other = {"query": x, "key": memory, "value": memory, "mask": masks[1]}
        x = layers.LayerNormalization()(x + ChatAttention(UNITS, 2)(other))
    y = layers.Dense(UNITS)(layers.Dense(2 * UNITS, activation="relu")(x))
    return layers.LayerNormalization()(x + y)


@shape
def chatbot_with_lambda_masks():
    source = keras.Input((None,), name="inputs")
    target = keras.Input((None,), name="dec_inputs")
    padding = layers.Lambda(
        padding_mask, output_shape=(1, 1, None), name="enc_padding_mask"
    )(source)
    ahead = layers.Lambda(
        look_ahead_mask, output_shape=(1, None, None), name="look_ahead_mask"
    )(target)

    def embedded(x):
        return ChatPositions(64, UNITS)(layers.Embedding(SIZE, UNITS)(x))

    memory = chat_block(embedded(source), None, [padding])
    x = chat_block(embedded(target), memory, [ahead, padding])
    model = keras.Model([source, target], layers.Dense(SIZE)(x))
    x, read, written = pairs()
    trained(model, [x, read], written, logits=True)
    return Published(
        model, lambda *x: log_softmax(by_ids(model, *x)), {}, recomputed=True
    )


# More of what is found in the wild.


def simple(target=None, mask=True):
    """Returns inputs and hidden states of a plain encoder-decoder."""
    source = keras.Input((None,), dtype="int32", name="source")
    x = layers.Embedding(SIZE, UNITS, mask_zero=mask)(source)
    memory, state = layers.GRU(UNITS, return_sequences=True, return_state=True)(
        x
    )
    if target is None:
        target = keras.Input((None,), dtype="int32", name="target")
    return source, target, memory, state


@shape
def functional_that_drops_the_last_token():
    source, target, _, state = simple()
    x = layers.Embedding(SIZE, UNITS)(target[:, :-1])
    x = layers.GRU(UNITS, return_sequences=True)(x, initial_state=state)
    model = keras.Model([source, target], layers.Dense(SIZE)(x))
    x, read, written = pairs()
    whole = np.concatenate([read, written[:, -1:]], axis=1)
    trained(model, [x, whole], written, logits=True)

    def next_logp(line, so_far):
        return log_softmax(by_ids(model, line, [*so_far, PAD]))

    return Published(model, next_logp, recomputed=True)


@shape
def several_outputs():
    source, target, memory, state = simple()
    x = layers.Embedding(SIZE, UNITS)(target)
    x, last = layers.GRU(UNITS, return_sequences=True, return_state=True)(
        x, initial_state=state
    )
    y, weights = layers.MultiHeadAttention(2, UNITS)(
        x, memory, return_attention_scores=True
    )
    found = layers.Dense(SIZE, activation="softmax")(layers.Add()([x, y]))
    model = keras.Model([source, target], [weights, found, last])
    keras.Model([source, target], found)
    x, read, written = pairs()
    trained(keras.Model(model.inputs, found), [x, read], written)

    def next_logp(line, so_far):
        given = [ids(line), np.array([so_far])]
        return log(model(given)[1][0, -1])

    return Published(model, next_logp)


@shape
def named_outputs():
    inner = several_outputs()
    weights, found, last = inner.model.outputs
    outputs = {"weights": weights, "tokens": found, "last": last}
    model = keras.Model(inner.model.inputs, outputs)
    return Published(model, inner.next_logp, {"output": "tokens"})


@register
class Speech(keras.Model):
    """Convolutions over frames, then blocks, as a speech Transformer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.convolutions = [
            layers.Conv1D(
                UNITS, 3, strides=2, padding="same", activation="relu"
            )
            for _ in "12"
        ]
        self.places = TutorialPositions()
        self.blocks = [TutorialBlock(False), TutorialBlock(True)]
        self.classifier = layers.Dense(SIZE)

    def call(self, inputs):
        source, target = inputs
        for convolution in self.convolutions:
            source = convolution(source)
        y = self.places(target)
        y = self.blocks[1](y, context=self.blocks[0](source))
        return self.classifier(y)


@shape
def speech():
    model = Speech()
    random = np.random.default_rng(0)
    frames = random.normal(size=(4, 16, 5)).astype("float32")
    model([frames, np.ones((4, 3), "int32")])

    def next_logp(frames, so_far):
        given = [frames[None], np.array([so_far])]
        return log_softmax(model(given)[0, -1])

    return Published(model, next_logp, {}, True, None, frames)


@shape
def bare_lstm_with_repeated_context():
    """The source's state is repeated beside each token of the target."""
    source = keras.Input((LENGTH,), name="source")
    target = keras.Input((LENGTH,), name="target")
    state = layers.LSTM(UNITS)(layers.Embedding(SIZE, UNITS)(source))
    repeated = layers.RepeatVector(LENGTH)(state)
    x = layers.Concatenate()([layers.Embedding(SIZE, UNITS)(target), repeated])
    x = layers.LSTM(UNITS, return_sequences=True)(x)
    found = layers.TimeDistributed(layers.Dense(SIZE, "softmax"))(x)
    model = keras.Model([source, target], found)
    x, read, written = pairs(LENGTH)
    trained(model, [x, read], written)

    def next_logp(line, so_far):
        given = [ids(line, LENGTH), padded([so_far], LENGTH)]
        return log(model(given)[0, len(so_far) - 1])

    return Published(model, next_logp, recomputed=True)


@shape
def weights_of_the_embedding_as_output():
    source, target, _, state = simple()
    embedding = layers.Embedding(SIZE, UNITS)
    x = layers.GRU(UNITS, return_sequences=True)(
        embedding(target), initial_state=state
    )

    @register
    class Tied(layers.Layer):
        def call(self, inputs):
            return ops.matmul(inputs, ops.transpose(embedding.embeddings))

    model = keras.Model([source, target], Tied()(x))
    x, read, written = pairs()
    trained(model, [x, read], written, logits=True)
    return Published(model, lambda *x: log_softmax(by_ids(model, *x)))


VOCABULARY = layers.TextVectorization(
    standardize=None,
    split="character",
    vocabulary=["^", "$", *"abcdef"],
    output_sequence_length=LENGTH,
)


@shape
def vectorization_inside():
    """Strings go in; `TextVectorization` pads them to one length."""
    line = keras.Input((1,), dtype="string", name="line")
    target = keras.Input((None,), dtype="int64", name="before")
    x = layers.Embedding(SIZE, UNITS)(VOCABULARY(line))
    state = layers.GRU(UNITS)(x)
    x = layers.Embedding(SIZE, UNITS)(target)
    x = layers.GRU(UNITS, return_sequences=True)(x, initial_state=state)
    model = keras.Model([line, target], layers.Dense(SIZE, "softmax")(x))

    def next_logp(line, so_far):
        given = [tf.constant([[line]]), tf.constant([so_far])]
        return log(model(given)[0, -1])

    return Published(
        model,
        next_logp,
        source_text=keras_attn.Text.from_text_vectorization(VOCABULARY),
        target_text=keras_attn.Text.from_text_vectorization(
            VOCABULARY, start="^", end="$"
        ),
    )


NAMES = tuple(_MAKERS)
FUNCTIONS = padding_mask, look_ahead_mask  # that files name


def has_text(name):
    return name != "speech"
