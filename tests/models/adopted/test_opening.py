"""Layers of a user's own are opened: what is inside runs a token at a time."""

import re
import threading

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support import half_models
from support import published
from support.published import SIZE
from support.published import TEXT

import keras_attn
from keras_attn.models.adopted import Options
from keras_attn.models.adopted import standard_model
from keras_attn.models.adopted.opening import opened_model
from keras_attn.models.adopted.opening import own_layers

# The models' authors are warned when they build and train.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
UNITS = 12
SEARCH = keras_attn.BeamSearch(3, max_length=7)


class Learned(layers.Layer):
    """Embeds ids, and positions by a layer of its own."""

    def __init__(self, length=30):
        super().__init__()
        self.tokens = layers.Embedding(SIZE, UNITS, mask_zero=True)
        self.places = layers.Embedding(length, UNITS)
        self.supports_masking = True

    def call(self, x):
        places = self.places(self.positions(x))
        return self.tokens(x) * UNITS**0.5 + places

    def positions(self, x):
        return ops.arange(ops.shape(x)[-1])

    def compute_mask(self, x, mask=None):
        return self.tokens.compute_mask(x)


class FromTwo(Learned):
    """Its first position has the number two, as in some models of speech."""

    def positions(self, x):
        return ops.expand_dims(ops.arange(2, 2 + ops.shape(x)[1]), 0)


class Summed(Learned):
    def positions(self, x):
        return ops.cumsum(ops.ones_like(x), axis=1) - 1


def sinusoids(length):
    angles = np.arange(length)[:, None] / 100 ** (np.arange(UNITS) / UNITS)
    return np.sin(angles).astype("float32")


class Sinusoids(Learned):
    """Adds numbers of a table that is a constant."""

    def __init__(self, length=300):
        super().__init__()
        self.table = ops.convert_to_tensor(sinusoids(length))

    def call(self, x):
        return self.tokens(x) + self.table[None, : ops.shape(x)[1]]


class Weights(Learned):
    """Adds rows of its own weights."""

    def build(self, shape):
        self.table = self.add_weight(shape=(300, UNITS), name="table")
        self.tokens.build(shape)

    def call(self, x):
        return self.tokens(x) + self.table[None, : ops.shape(x)[1]]


class Decoder(layers.Layer):
    """A block of a Transformer, with a causal mask made from the shape."""

    causal = True

    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, UNITS)
        self.cross = layers.MultiHeadAttention(2, UNITS)
        self.dense = keras.Sequential([layers.Dense(UNITS, "relu")])
        self.norms = [layers.LayerNormalization() for _ in "12"]
        self.dropout = layers.Dropout(0.5)
        self.supports_masking = True

    def mask(self, x, padding):
        n = ops.shape(x)[1]
        mask = ops.arange(n)[:, None] >= ops.arange(n)
        return ops.tile(mask[None], [ops.shape(x)[0], 1, 1])

    def call(self, inputs, training=None, mask=None):
        x, memory = inputs
        of_target = of_source = None
        if mask is not None:
            of_target, of_source = mask
        y = self.attention(
            x, x, attention_mask=self.mask(x, of_target), training=training
        )
        x = self.norms[0](x + y)
        allowed = None if of_source is None else of_source[:, None]
        y, scores = self.cross(
            x, memory, attention_mask=allowed, return_attention_scores=True
        )
        self.last_scores = scores
        x = self.norms[1](x + self.dropout(y, training=training))
        return x + self.dense(x)


class OfPadding(Decoder):
    """Its mask hides padding, too."""

    def mask(self, x, padding):
        causal = ops.cast(super().mask(x, padding), "int32")
        if padding is None:
            return causal
        return ops.minimum(causal, ops.cast(padding[:, None, :], "int32"))


class LooksAhead(Decoder):
    def mask(self, x, padding):
        return ops.ones_like(super().mask(x, padding))


class Windowed(Decoder):
    """Looks at a few positions alone, which is no causal mask."""

    def mask(self, x, padding):
        n = ops.shape(x)[1]
        distance = ops.arange(n)[:, None] - ops.arange(n)
        return ((distance >= 0) & (distance < 3))[None]


class Stacked(layers.Layer):
    """Layers of a user's own within one."""

    def __init__(self, kinds):
        super().__init__()
        self.embed, *self.blocks = [kind() for kind in kinds]

    def call(self, inputs):
        target, memory = inputs
        x = self.embed(target)
        for block in self.blocks:
            x = block([x, memory])
        return x


def model_of(embed=Learned, *blocks, seed=0):
    keras.utils.set_random_seed(seed)
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(SIZE, UNITS, mask_zero=True)(source)
    memory = layers.Bidirectional(
        layers.GRU(UNITS // 2, return_sequences=True)
    )(memory)
    x = embed()(target)
    for block in blocks or (Decoder,):
        x = block()([x, memory])
    return keras.Model([source, target], layers.Dense(SIZE)(x))


class Subclass(keras.Model):
    def __init__(self, embed=Learned, *blocks):
        super().__init__()
        self.source = layers.Embedding(SIZE, UNITS, mask_zero=True)
        self.encoder = layers.GRU(UNITS, return_sequences=True)
        self.decoder = Stacked([embed, *(blocks or (Decoder, Decoder))])
        self.out = layers.Dense(SIZE)

    def call(self, inputs):
        source, target = inputs
        memory = self.encoder(self.source(source))
        return self.out(self.decoder([target, memory]))


def subclassed(*kinds, seed=0):
    keras.utils.set_random_seed(seed)
    model, ids = Subclass(*kinds), np.ones((2, 3), "int32")
    model((ids, ids))
    return model


def some_ids(length, rows=3):
    random = np.random.default_rng(0)
    return random.integers(4, SIZE, (rows, length)).astype("int32")


def translator(model, recompute=False):
    """A translator, of which nothing may be read again."""
    return keras_attn.Translator(model, TEXT, TEXT, SEARCH, recompute=recompute)


def logits_of(model, source, target):
    return np.asarray(model([source, target], training=False))


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def require_right(made, model):
    """Compares hypotheses with the whole model, alone and together."""
    lines = ["abcdef", "b", "fade"]
    found = made(lines)
    for line, one in zip(lines, found, strict=True):
        assert made([line])[0].text == one.text
        for hypothesis in [one, *one.alternatives]:
            ids = [TEXT.tokens.index(x) for x in hypothesis.tokens]
            read = [TEXT.special.start[-1], *ids[:-1]]
            given = TEXT.source_ids([line]).numpy(), np.array([read], "int32")
            logp = log_softmax(logits_of(model, *given)[0])
            expected = logp[np.arange(len(ids)), ids].sum()
            np.testing.assert_allclose(hypothesis.score, expected, atol=1e-4)


MODELS = {
    "learned": lambda: model_of(),
    "from two": lambda: model_of(FromTwo),
    "summed": lambda: model_of(Summed),
    "sinusoids": lambda: model_of(Sinusoids),
    "padding": lambda: model_of(Learned, OfPadding),
    "several blocks": lambda: model_of(Sinusoids, OfPadding, Decoder, Decoder),
    "within each other": lambda: subclassed(),
    "within each other, by shape": lambda: subclassed(Summed, OfPadding),
}


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_what_is_inside_runs_a_token_at_a_time(name):
    model = MODELS[name]()
    made = translator(model)
    assert made.pipeline.cut.attends
    assert not own_layers(made.pipeline.cut.model)
    require_right(made, model)
    assert made(["abc"]).alignments[0].shape[1] == 4  # and the end token


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "own_layers",
        "own_layers_that_need_masks",
        "own_layers_in_a_nested_decoder",
        "own_layers_of_named_inputs",
    ],
)
def test_published_layers_are_opened(name):
    made = published.make(name)
    options = {k: v for k, v in made.options.items() if k in Options._fields}
    model = standard_model(
        made.model, made.source_text, made.target_text, Options(**options)
    ).model
    found = opened_model(model)
    assert not own_layers(found)
    for length in (1, 2, 7, 19):
        given = some_ids(5), some_ids(length)
        np.testing.assert_allclose(
            logits_of(found, *given), logits_of(model, *given), atol=1e-5
        )
    assert {id(x) for x in found.variables} <= {id(x) for x in model.variables}


@pytest.mark.full
@pytest.mark.parametrize("make", [model_of, subclassed])
def test_it_follows_the_training(make):
    model = make()
    made = translator(model)
    before = made(["abc"])[0].score
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    ids = some_ids(6)
    model.fit((ids, ids), ids, epochs=3, verbose=0)
    assert made(["abc"])[0].score != before
    require_right(made, model)


class Scaled(Learned):
    """Multiplies by a number that it computes of a weight."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), name="scale")
        super().build(shape)

    def call(self, x):
        return super().call(x) * ops.exp(self.scale)


class Centred(Weights):
    """Adds weights less their mean, which are all zero at first."""

    def build(self, shape):
        super().build(shape)
        self.table.assign(0 * self.table)

    def call(self, x):
        table = self.table - ops.mean(self.table, axis=0)
        return self.tokens(x) + table[None, : ops.shape(x)[1]]


class Shifted(Learned):
    """Multiplies by a number that it computes of an integer."""

    def build(self, shape):
        self.shift = self.add_weight(
            shape=(), dtype="int32", trainable=False, initializer="zeros"
        )
        super().build(shape)

    def call(self, x):
        return super().call(x) * ops.cast(self.shift + 1, "float32")


class Tied(layers.Layer):
    """Computes logits by the weights of an embedding."""

    def __init__(self):
        super().__init__()
        self.tokens = layers.Embedding(SIZE, UNITS)
        self.block = Decoder()

    def call(self, inputs):
        x = self.block([self.tokens(inputs[0]), inputs[1]])
        return ops.matmul(x, ops.transpose(self.tokens.embeddings))


def tied():
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(SIZE, UNITS)(source)
    return keras.Model([source, target], Tied()([target, memory]))


def test_weights_that_are_zero_at_first_are_no_fixed_numbers():
    model = model_of(Centred)
    assert any(type(x) is Centred for x in own_layers(opened_model(model)))


@pytest.mark.full
@pytest.mark.parametrize(
    "make",
    [
        model_of,
        lambda: model_of(FromTwo),
        lambda: model_of(Summed),
        lambda: model_of(Weights),
        lambda: model_of(Scaled),
        lambda: model_of(Shifted),
        tied,
    ],
)
def test_numbers_that_come_of_weights_change_with_them(make):
    model = make()
    made = translator(model, recompute=True)
    random = np.random.default_rng(0)
    for variable in model.variables:
        if "float" in variable.dtype:
            variable.assign(variable + random.normal(size=variable.shape) / 3)
        elif "seed" not in variable.path:
            variable.assign(variable + 2)
    require_right(made, model)


class OfWidth(Decoder):
    """Looks at so many positions that a short mask is causal."""

    def mask(self, x, padding):
        n = ops.shape(x)[1]
        distance = ops.arange(n)[:, None] - ops.arange(n)
        return ((distance >= 0) & (distance < 45))[None]


@pytest.mark.full
def test_a_wide_window_is_no_causal_mask():
    keras.utils.set_random_seed(0)
    model = model_of(lambda: Learned(200), OfWidth)
    assert any(type(x) is OfWidth for x in own_layers(opened_model(model)))
    model = model_of(lambda: Learned(60), OfWidth)
    assert any(type(x) is OfWidth for x in own_layers(opened_model(model)))


class Named(Decoder):
    """Its layers have the names of those in other blocks."""

    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, UNITS, name="attention")
        self.cross = layers.MultiHeadAttention(2, UNITS, name="attention")
        self.dense = layers.Dense(UNITS, name="dense")


class MyAttention(layers.MultiHeadAttention):
    pass


class OfSubclass(Decoder):
    def __init__(self):
        super().__init__()
        self.attention = MyAttention(2, UNITS)


class DroppedOut(Learned):
    def __init__(self):
        super().__init__()
        self.dropout = layers.Dropout(0.5)

    def call(self, x):
        places = self.dropout(self.places(self.positions(x)))
        return self.tokens(x) + places


class Twice(Decoder):
    """Calls its attention and its norms twice."""

    def call(self, inputs, mask=None):
        x = super().call(inputs, mask=mask)
        return super().call([x, inputs[1]], mask=mask)


class NamedTwice(Named):
    def call(self, inputs, mask=None):
        x = super().call(inputs, mask=mask)
        return super().call([x, inputs[1]], mask=mask)


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "kinds",
    [
        (Learned, Named, Named),
        (Learned, Named, NamedTwice),
        (Learned, OfSubclass),
        (DroppedOut, Decoder),
        (Learned, Twice),
    ],
)
def test_usual_forms_are_opened(kinds):
    model = model_of(*kinds)
    made = translator(model)
    require_right(made, model)
    for variable in model.variables:
        if "float" in variable.dtype:
            variable.assign(variable * 1.5 + 0.01)
    require_right(made, model)


class Attribute(Decoder):
    alpha = 1.0

    def call(self, inputs, mask=None):
        return super().call(inputs, mask=mask) * self.alpha


@pytest.mark.full
@pytest.mark.parametrize(
    "policy", ["float32", "mixed_float16", "mixed_bfloat16"]
)
def test_a_changed_attribute_is_noticed(policy):
    with half_models.policy(policy):
        model = model_of(Learned, Attribute)
    made = translator(model)
    made.check()
    next(x for x in model.layers if isinstance(x, Attribute)).alpha = 3.0
    with pytest.raises(ValueError, match="Make another `Translator`"):
        made.check()


@pytest.mark.full
def test_what_cannot_be_opened_is_read_again_alone():
    with pytest.warns(UserWarning, match=r"'windowed\w*' \(Windowed\) reads"):
        made = keras_attn.Translator(
            model_of(Learned, Decoder, Windowed), TEXT, TEXT, SEARCH
        )
    assert made.pipeline.cut.attends
    with pytest.raises(ValueError, match="nothing to decode"):
        translator(model_of(Learned, Windowed))


@pytest.mark.full
def test_layers_with_operations_of_tensorflow_are_read_again_alone():
    made = published.make("subclassed_transformer")
    with pytest.warns(UserWarning, match="At each step") as caught:
        found = keras_attn.Translator(made.model, TEXT, TEXT, SEARCH)
    (said,) = [x for x in caught if "At each step" in str(x.message)]
    assert re.search(r"\(TutorialPositions\) reads again", str(said.message))
    # The encoder's layer of this class is not among them.
    assert len(own_layers(found.pipeline.cut.model)) == 1
    require_right(found, found.models[0])


@pytest.mark.full
def test_a_layer_that_looks_ahead_is_refused():
    with pytest.raises(ValueError, match="looks at later tokens"):
        keras_attn.Translator(model_of(Learned, LooksAhead), TEXT, TEXT, SEARCH)


def test_layers_with_a_stepper_of_a_users_own_stay_closed():
    class Mine(Decoder):
        pass

    @keras_attn.stepper_for(Mine)
    class MyStepper(keras_attn.Stepper):
        def step(self, inputs, prepared, state, position):
            raise AssertionError

    model = model_of(Learned, Mine)
    assert [type(x) for x in own_layers(opened_model(model))] == []
    assert any(type(x) is Mine for x in opened_model(model).layers)


class Storing(Decoder):
    """Stores, counts and adds losses as it is called."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.dense.layers[0].activity_regularizer = keras.regularizers.L2(0.1)

    def call(self, inputs, mask=None):
        self.calls += 1
        self.seen = inputs
        self.add_loss(ops.mean(inputs[0]))
        return super().call(inputs, mask=mask)


class Raising(Decoder):
    def call(self, inputs, mask=None):
        self.before = inputs
        found = super().call(inputs, mask=mask)
        if isinstance(inputs[0], keras.KerasTensor):
            raise RuntimeError("no symbols, please")
        return found


@pytest.mark.full
@pytest.mark.parametrize("kind", [Decoder, Storing, Raising])
def test_the_layers_stay_as_they_were(kind):
    model = model_of(Learned, kind)
    given = some_ids(4), some_ids(5)
    expected = logits_of(model, *given)
    block = next(x for x in model.layers if isinstance(x, kind))
    within = list(block._flatten_layers())
    attributes = [dict(vars(x)) for x in within]
    losses = [np.asarray(x) for x in model.losses]
    weights = [id(x) for x in model.weights]
    opened_model(model)
    for x, before in zip(within, attributes, strict=True):
        assert vars(x).keys() == before.keys()
        changed = [n for n in before if vars(x)[n] is not before[n]]
        assert not changed
    np.testing.assert_array_equal(logits_of(model, *given), expected)
    assert len(model.losses) == len(losses)
    assert [id(x) for x in model.weights] == weights
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    history = model.fit(list(given[:1]) + [given[1]], given[1], verbose=0)
    assert np.isfinite(history.history["loss"][0])


@pytest.mark.full
def test_other_threads_notice_nothing():
    model = model_of(Learned, Decoder)
    given = some_ids(4), some_ids(5)
    expected = logits_of(model, *given)
    done, failed = threading.Event(), []

    def ask():
        while not done.is_set():
            try:
                np.testing.assert_allclose(
                    logits_of(model, *given), expected, atol=1e-5
                )
            except BaseException as error:
                failed.append(error)
                return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(3):
            assert opened_model(model) is not None
    finally:
        done.set()
        thread.join()
    assert not failed


@pytest.mark.full
def test_a_table_of_numbers_ends_the_search():
    model = model_of(lambda: Sinusoids(40))
    made = translator(model)
    assert made.pipeline.cut.model is not None
    assert made.target_text.max_length < 40
