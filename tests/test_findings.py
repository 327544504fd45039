"""`check()`: each mistake is found and its layer named; good models pass.

These tests run on every backend that Keras runs on.
"""

import warnings

import keras
import numpy as np
import pytest
from cuts import SOURCES
from cuts import TARGETS
from cuts import decoder
from cuts import embedded
from cuts import inputs
from cuts import with_path
from keras import layers
from keras import ops
from mechanisms import nth

import keras_attn

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)

NAMED = {"name": "culprit"}
WHOLE = {"return_sequences": True}


def look(model, data=None):
    """Returns the findings that `check` warns of, and its error or ""."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = keras_attn.check(model, data)
        except ValueError as error:
            return [str(x.message) for x in caught], str(error)
    said = [str(x.message) for x in caught]
    assert said == [f"{x.kind}: {x.text}" for x in found]
    return found, ""


def assert_good(model, data=None):
    assert look(model, data) == ([], "")


def assert_wrong(model, kind, *parts, data=None):
    _, error = look(model, data)
    assert f"- {kind}: " in error, error
    for part in parts:
        assert part in error, error


def assert_doubtful(model, kind, layer, *parts, data=None):
    found, error = look(model, data)
    assert not error, error
    (finding,) = found
    assert finding[:2] == (kind, layer), finding
    for part in parts:
        assert part in finding.text, finding.text


def attend(x, memory, **options):
    """Attends for all positions at once, so that checks take less time."""
    return keras_attn.ScaledDotAttention(**options)(x, memory)


def with_encoder(encode, ids=True):
    """A model whose memory is `encode(embedded source)`."""
    source, target = inputs()
    if not ids:
        source = keras.Input((None, 6), name="source")
    memory, x = (
        embedded(source, target)
        if ids
        else (source, embedded(target, target)[1])
    )
    hidden = attend(x, encode(memory))
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def on_target(change):
    """A model with something between the target's embedding and a decoder."""
    return with_path(lambda x, memory: attend(change(x), memory))


# Masks of the source


def without_mask_zero(mask_zero):
    source, target = inputs()
    embed = layers.Embedding(SOURCES, 6, mask_zero=mask_zero, name="culprit")
    _, x = embedded(source, target)
    memory = layers.Dense(6)(embed(source))
    logits = layers.Dense(TARGETS)(attend(x, memory))
    return keras.Model([source, target], logits)


def with_summary(summarize):
    """A model that also adds one vector for the whole source."""

    def build(x, memory):
        whole = layers.RepeatVector(1)(summarize(memory))
        return layers.Add()([attend(x, memory), whole])

    return with_path(build)


def last_state(mask):
    def summarize(x):
        start = layers.Dense(6)(layers.GlobalAveragePooling1D()(x))
        real = {"mask": ops.any(ops.not_equal(x, 0.0), -1)} if mask else {}
        return layers.GRU(6, **NAMED)(x, initial_state=start, **real)

    return summarize


def two_attentions(first=None, second=None):
    def build(x, memory):
        one = first(memory) if first else memory
        two = second(memory) if second else memory
        x = layers.MultiHeadAttention(2, 3, **NAMED)(x, one)
        return layers.MultiHeadAttention(2, 3)(x, two)

    return build


def in_a_nested_model(layer):
    def encode(x):
        given = keras.Input((None, 6))
        inner = keras.Sequential([layers.Dense(6), layer])
        return keras.Model(given, inner(given))(x)

    return encode


LOSE_MASKS = {
    "an embedding without a mask": (
        lambda: without_mask_zero(False),
        lambda: without_mask_zero(True),
        "makes no mask. Pass `mask_zero=True`",
    ),
    "an operation": (
        lambda: with_encoder(layers.Lambda(lambda x: x * 2.0, **NAMED)),
        lambda: with_encoder(layers.Rescaling(2.0)),
        "drops the mask, so 'scaled_dot_attention",
    ),
    "a reshape": (
        lambda: with_encoder(
            lambda x: layers.Reshape((-1, 6))(
                layers.Reshape((-1, 2, 3), **NAMED)(x)
            )
        ),
        lambda: with_encoder(layers.Identity()),
        "drops the mask",
    ),
    "an operation in a nested model": (
        lambda: with_encoder(
            in_a_nested_model(layers.Lambda(lambda x: x * 2.0, **NAMED))
        ),
        lambda: with_encoder(in_a_nested_model(layers.Rescaling(2.0))),
        "drops the mask",
    ),
    "an attention of Keras before another": (
        lambda: with_path(two_attentions()),
        lambda: with_path(
            two_attentions(layers.Rescaling(1.0), layers.Rescaling(1.0))
        ),
        "removes the mask of its input, so 'multi_head_attention",
    ),
    "a convolution": (
        lambda: with_encoder(layers.Conv1D(6, 3, padding="same", **NAMED)),
        lambda: with_encoder(layers.Dense(6)),
        "takes no mask",
    ),
    "pooling": (
        lambda: with_summary(layers.GlobalMaxPooling1D(**NAMED)),
        lambda: with_summary(layers.GlobalAveragePooling1D()),
        "takes no mask",
    ),
    "one that reads what a layer passed on as it was": (
        lambda: with_path(two_attentions(layers.Dropout(0.1))),
        lambda: with_path(two_attentions(layers.Rescaling(1.0))),
        "removes the mask of its input, so 'multi_head_attention",
    ),
    "features": (
        lambda: (
            with_encoder(layers.GRU(6, **WHOLE, **NAMED), ids=False)
            if False
            else with_encoder(
                layers.Bidirectional(layers.GRU(3, **WHOLE), **NAMED), ids=False
            )
        ),
        lambda: with_encoder(
            lambda x: layers.Bidirectional(layers.GRU(3, **WHOLE))(
                layers.Masking()(x)
            ),
            ids=False,
        ),
        "Put `keras.layers.Masking()` between",
    ),
}


@pytest.mark.parametrize("name", LOSE_MASKS)
def test_a_mask_that_is_lost_is_found_where_it_goes(name):
    bad, good, said = LOSE_MASKS[name]
    assert_doubtful(bad(), "mask", "culprit", "Padding of the source", said)
    assert_good(good())


def test_a_recurrent_layer_with_a_first_state_is_given_no_mask():
    assert_doubtful(
        with_summary(last_state(mask=False)),
        "mask",
        "culprit",
        "called with `initial_state`",
        "`mask=keras.ops",
    )


def test_a_mask_that_is_given_by_hand_may_be_wrong():
    def build(real):
        source, target = inputs()
        memory = layers.Embedding(SOURCES, 6)(source)
        x = layers.Embedding(TARGETS, 6, mask_zero=True)(target)
        hidden = decoder(**NAMED)(x, memory, memory_mask=real(source))
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    assert_good(build(lambda ids: ops.not_equal(ids, 0)))
    assert_doubtful(
        build(lambda ids: ops.not_equal(ids, 77)),
        "mask",
        "culprit",
        "gets a mask as an argument",
    )


# Neighbours


def less_the_batch_s_mean(x):
    return x - ops.mean(x, axis=0, keepdims=True)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: layers.Lambda(less_the_batch_s_mean, **NAMED)(x),
        lambda x: x - layers.Lambda(lambda y: ops.mean(y, axis=0), **NAMED)(x),
        in_a_nested_model(layers.Lambda(less_the_batch_s_mean, **NAMED)),
    ],
)
@pytest.mark.parametrize("where", [on_target, with_encoder])
def test_a_row_that_depends_on_its_neighbours_is_found(wrap, where):
    assert_wrong(where(wrap), "neighbours", "'culprit'", "mixes them")


def test_statistics_of_training_are_no_neighbours():
    assert_good(on_target(layers.BatchNormalization()))


# Later tokens


@keras.saving.register_keras_serializable("test_findings")
class Gated(layers.Layer):
    """Adds what comes later, through a gate that begins at zero."""

    def __init__(self, reverse=True, **kwargs):
        super().__init__(**kwargs)
        self.reverse = reverse
        self.supports_masking = True

    def build(self, shape):
        self.gate = self.add_weight(initializer="zeros")

    def call(self, x):
        if not self.reverse:
            return x + self.gate * ops.cumsum(x, axis=1)
        return x + self.gate * ops.flip(
            ops.cumsum(ops.flip(x, axis=1), axis=1), axis=1
        )


class Ahead(layers.Layer):
    """Looks some tokens ahead."""

    def __init__(self, by, **kwargs):
        super().__init__(**kwargs)
        self.by = by

    def call(self, x):
        return x + ops.concatenate(
            [x[:, self.by :], ops.zeros_like(x[:, : self.by])], axis=1
        )


class Ending(layers.Layer):
    """Adds the number of tokens, which decoding does not know yet."""

    def call(self, x, mask=None):
        count = ops.sum(ops.cast(mask, x.dtype), axis=1)
        return x + ops.reshape(count, (-1, 1, 1))


LEAKS = {
    "a bidirectional layer": layers.Bidirectional(
        layers.GRU(3, **WHOLE), **NAMED
    ),
    "a convolution": layers.Conv1D(6, 3, padding="same", **NAMED),
    "one that reaches far": layers.DepthwiseConv1D(
        3, dilation_rate=4, padding="same", **NAMED
    ),
    "a separable one": layers.SeparableConv1D(
        6, 3, dilation_rate=4, padding="same", **NAMED
    ),
    "time reversed": layers.Lambda(lambda x: x[:, ::-1], **NAMED),
    "attention": lambda x: layers.MultiHeadAttention(2, 3, **NAMED)(x, x),
    "7 tokens ahead": Ahead(7, **NAMED),
    "1 token ahead": Ahead(1, **NAMED),
    "a sum from the end": Gated(**NAMED),
    "the mean of all": lambda x: layers.Add()(
        [
            x,
            layers.RepeatVector(1)(
                layers.Dense(6)(layers.GlobalAveragePooling1D(**NAMED)(x))
            ),
        ]
    ),
    "time as features": lambda x: layers.Permute((2, 1))(
        layers.Lambda(lambda y: ops.flip(y, axis=-1), **NAMED)(
            layers.Permute((2, 1))(x)
        )
    ),
    "the length": Ending(**NAMED),
    "one in a nested model": in_a_nested_model(Gated(**NAMED)),
    "a recurrence backwards": layers.GRU(
        6, go_backwards=True, **WHOLE, **NAMED
    ),
}

LOOK_BACK = {
    "a recurrence": layers.GRU(6, **WHOLE),
    "a causal convolution": layers.Conv1D(
        6, 3, dilation_rate=4, padding="causal"
    ),
    "causal attention": lambda x: layers.MultiHeadAttention(2, 3)(
        x, x, use_causal_mask=True
    ),
    "a sum from the start": Gated(reverse=False),
    "normalisation": layers.LayerNormalization(),
    "a roll back, cut off": lambda x: layers.ZeroPadding1D((2, 0))(x)[:, :-2],
    "time as features and back": lambda x: layers.Permute((2, 1))(
        layers.ReLU()(layers.Permute((2, 1))(x))
    ),
    "noise in training": layers.GaussianNoise(1.0),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_from_later_tokens_is_named(name):
    assert_wrong(on_target(LEAKS[name]), "leak", "'culprit'", "later tokens")


@pytest.mark.parametrize(
    "change, name",
    [
        (lambda x: ops.roll(x, 6, axis=1), "roll"),
        (lambda x: x - ops.mean(x, axis=1, keepdims=True), "mean"),
    ],
)
def test_an_operation_that_leaks_is_named(change, name):
    assert_wrong(on_target(change), "leak", f"- leak: '{name}")


@pytest.mark.parametrize("name", LOOK_BACK)
def test_what_looks_back_is_no_leak(name):
    assert_good(on_target(LOOK_BACK[name]))


def test_a_leak_behind_the_decoder_and_after_a_good_layer_is_named():
    model = with_path(
        lambda x, memory: layers.Dense(6)(
            Ahead(3, **NAMED)(layers.GRU(6, **WHOLE)(decoder()(x, memory)))
        )
    )
    assert_wrong(model, "leak", "- leak: 'culprit' (Ahead) looks at later")


# What is drawn, ignored, or not finite


class Noisy(layers.Layer):
    """Draws whether it trains or not."""

    def __init__(self, draw, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.seed_generator = keras.random.SeedGenerator(1)
        self.draw = draw

    def call(self, x):
        return x + self.draw(ops.shape(x), self.seed_generator)


def by_keras(shape, seed):
    return keras.random.normal(shape, seed=seed)


def by_tensorflow(shape, seed):
    import tensorflow as tf

    return tf.random.normal(shape)


@pytest.mark.parametrize("draw", [by_keras, by_tensorflow])
def test_what_draws_though_it_does_not_train_is_named(draw):
    if draw is by_tensorflow and keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow's own draws")
    model = on_target(Noisy(draw, **NAMED))
    seed = model.get_layer("culprit").seed_generator.state
    before = ops.convert_to_numpy(ops.convert_to_tensor(seed))
    assert_doubtful(model, "random", "culprit", "draws at random")
    after = ops.convert_to_numpy(ops.convert_to_tensor(seed))
    np.testing.assert_array_equal(before, after)


def test_an_input_that_nothing_depends_on_is_found():
    model = with_path(lambda x, memory: decoder()(x, 0.0 * memory))
    assert_doubtful(model, "ignored", None, "input 'source'", "attend")
    model = with_path(lambda x, memory: decoder()(0.0 * x, memory))
    assert_doubtful(model, "ignored", None, "target's ids, the input 'target'")


def test_what_is_not_finite_is_named():
    divide = layers.Lambda(lambda x: x / 0.0, **NAMED)
    assert_wrong(on_target(divide), "finite", "from 'culprit' (Lambda)")


class Positive(layers.Layer):
    """Has a weight that a disturbance may make invalid."""

    def build(self, shape):
        self.supports_masking = True
        self.scales = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(1e-3)
        )

    def call(self, x):
        return x * ops.log(self.scales)


def test_other_weights_that_make_no_sense_are_not_held_against_a_model():
    assert_good(on_target(Positive()))
    leaking = on_target(lambda x: Positive()(Ahead(3, **NAMED)(x)))
    assert_wrong(leaking, "leak", "'culprit'")


# Data

IDS = np.array(
    [[1, 4, 5, 8, 6, 2], [1, 7, 3, 4, 2, 0], [1, 3, 6, 2, 0, 0]], "int32"
)
SOURCE_IDS = np.array([[3, 4, 5, 6, 2], [5, 2, 0, 0, 0], [4, 2, 0, 0, 0]])


def good():
    source, target = inputs()
    embed = layers.Embedding(SOURCES, 6, mask_zero=True, name="of_source")
    memory = embed(source)
    embed = layers.Embedding(TARGETS, 6, mask_zero=True, name="of_target")
    hidden = attend(embed(target), memory)
    logits = layers.Dense(TARGETS, name="last")(hidden)
    model = keras.Model([source, target], logits)
    model.compile("adam", loss=keras_attn.SequenceCrossentropy())
    return model


def arrays(source=SOURCE_IDS, target_in=None, target_out=None):
    target_in = IDS[:, :-1] if target_in is None else target_in
    target_out = IDS[:, 1:] if target_out is None else target_out
    return (source, target_in), target_out


class Pages(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return arrays()


GOOD_DATA = {
    "arrays": arrays(),
    "arrays and weights": (*arrays(), np.ones(3)),
    "arrays and no weights": (*arrays(), None),
    "lists": [list(arrays()[0]), arrays()[1]],
    "by name": (
        {"target": IDS[:, :-1], "source": SOURCE_IDS, "more": IDS},
        IDS[:, 1:],
    ),
    "a list of batches": [arrays(), arrays()],
    "weights of tokens": [(*arrays(), np.ones((3, 5)))] * 2,
    "targets of one column": arrays(target_out=IDS[:, 1:, None]),
}


@pytest.mark.parametrize("name", GOOD_DATA)
def test_good_data_of_any_form_has_no_finding(name):
    model = good()
    if "column" in name:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss=loss)
    assert_good(model, GOOD_DATA[name])


def test_a_py_dataset_is_looked_at():
    assert_good(good(), Pages())


def changed(array, where, value):
    array = np.array(array)
    array[where] = value
    return array


WRONG_DATA = {
    "target_in itself": (
        arrays(target_out=IDS[:, :-1]),
        "shift",
        "is 'target' itself",
    ),
    "moved the wrong way": (
        arrays(target_in=IDS[:, 1:], target_out=IDS[:, :-1]),
        "shift",
        "the wrong way",
    ),
    "a source's id too large": (
        arrays(source=changed(SOURCE_IDS, (1, 0), 7)),
        "ids",
        "'of_source' knows the ids 0 to 6 (`input_dim=7`), but 'source' has "
        "the id 7",
    ),
    "a target's id too large": (
        arrays(target_in=changed(IDS[:, :-1], (1, 1), 12)),
        "ids",
        "'of_target' knows the ids 0 to 8",
    ),
    "a negative id": (
        arrays(source=changed(SOURCE_IDS, (1, 0), -1)),
        "ids",
        "'source' has the id -1",
    ),
    "an id without a logit": (
        arrays(target_out=changed(IDS[:, 1:], (0, 0), 9)),
        "vocabulary",
        "'last' returns logits for the ids 0 to 8, but 'target_out' has the "
        "id 9",
    ),
    "targets longer than inputs": (
        arrays(target_out=IDS),
        "length",
        "target_out of shape (3, 6)",
    ),
    "targets shorter than inputs": (
        arrays(target_in=IDS),
        "length",
        "'target' of shape (3, 6)",
    ),
    "one-hot targets": (
        arrays(target_out=np.eye(TARGETS)[IDS[:, 1:]]),
        "one-hot",
        "`SequenceCrossentropy`, takes ids",
    ),
    "one-hot targets of another size": (
        arrays(target_out=np.eye(TARGETS + 1)[IDS[:, 1:]]),
        "one-hot",
        "over the 9 ids of the logits of 'last'",
    ),
    "one-hot inputs": (
        arrays(target_in=np.eye(TARGETS)[IDS[:, :-1]]),
        "inputs",
        "It may be one-hot: `array.argmax(-1)`",
    ),
    "broken ids": (
        arrays(source=SOURCE_IDS + 0.5),
        "dtype",
        "values that are not whole numbers",
    ),
    "no target_out": ([arrays()[0]], "inputs", "the data has 1"),
    "one input": ((SOURCE_IDS, IDS[:, 1:]), "inputs", "has 2 inputs"),
    "three in a row": (
        (SOURCE_IDS, IDS[:, :-1], IDS[:, 1:]),
        "inputs",
        "takes the third of three elements for sample weights",
    ),
    "a row": (
        [((SOURCE_IDS[0], IDS[0, :-1]), IDS[0, 1:])],
        "inputs",
        "Batch the data",
    ),
    "other rows": (
        [arrays(source=SOURCE_IDS[:2])],
        "inputs",
        "of a batch must have the same number of rows",
    ),
    "weights of another shape": (
        (*arrays(), np.ones((3, 4))),
        "weights",
        "of shape (3,) or (3, 5). Received: (3, 4)",
    ),
    "arrays of other rows": (
        arrays(source=SOURCE_IDS[:2]),
        "inputs",
        "All arrays must have the same number of rows",
    ),
    "no batch": ([], "inputs", "has no batch"),
    "a number": (7, "inputs", "must have a form that `model.fit` takes"),
}


@pytest.mark.parametrize("name", WRONG_DATA)
def test_wrong_data_is_refused(name):
    data, *said = WRONG_DATA[name]
    assert_wrong(good(), *said, data=data)


DOUBTFUL_DATA = {
    "padding before": (
        arrays(source=SOURCE_IDS[:, ::-1]),
        ("padding", "of_source"),
        "'source' has 0, which is padding, before tokens in 2 of 3 rows",
    ),
    "padding between": (
        arrays(source=changed(SOURCE_IDS, (0, 2), 0)),
        ("padding", "of_source"),
        "in 1 of 3 rows",
    ),
    "a start of id 0": (
        arrays(target_in=changed(IDS[:, :-1], (slice(None), 0), 0)),
        ("padding", "of_target"),
        "also not to the start token",
    ),
    "ids as floats": (
        arrays(source=SOURCE_IDS.astype("float32")),
        ("dtype", "of_source"),
        "Pass `array.astype('int32')`",
    ),
    "nothing but padding": (
        [arrays(), arrays(target_out=0 * IDS[:, 1:])],
        ("empty", None),
        "nothing to learn",
    ),
    "other targets": (
        arrays(target_out=np.where(IDS[:, 1:], 9 - IDS[:, 1:], 0)),
        ("shift", None),
        "only 0% of its tokens",
    ),
}


@pytest.mark.parametrize("name", DOUBTFUL_DATA)
def test_doubtful_data_is_warned_of(name):
    data, finding, said = DOUBTFUL_DATA[name]
    assert_doubtful(good(), *finding, said, data=data)


def test_targets_that_go_on_where_inputs_end_are_warned_of():
    target_in = np.where(IDS[:, 1:] == 0, 0, IDS[:, :-1])
    assert_good(good(), arrays(target_in=target_in))
    assert_doubtful(
        good(),
        "length",
        None,
        "in 1 of 3 rows",
        data=arrays(target_in=changed(target_in, (0, 4), 0)),
    )


def test_noise_on_the_inputs_is_no_wrong_shift():
    long = np.tile(np.arange(1, 9), (4, 3))
    noisy = changed(long[:, :-1], (slice(None), slice(1, None, 3)), 8)
    source = np.tile(SOURCE_IDS[:1], (4, 1))
    assert_good(good(), arrays(source, noisy, long[:, 1:]))


class Folding(layers.Embedding):
    """Knows all ids: large ones share the rows of small ones."""

    def call(self, ids):
        return super().call(ids % self.input_dim)


def test_a_table_that_folds_large_ids_has_no_finding():
    source, target = inputs()
    _, x = embedded(target, target)
    memory = Folding(3, 6, mask_zero=True)(source)
    logits = layers.Dense(TARGETS)(attend(x, memory))
    assert_good(keras.Model([source, target], logits), arrays())


def test_a_target_that_is_not_the_last_input_is_found():
    source, target = inputs()
    memory, x = embedded(source, target)
    logits = layers.Dense(TARGETS)(attend(x, memory))
    model = keras.Model([target, source], logits)
    said = "as long as 'target'", "Make the target the last"
    assert_wrong(model, "inputs", *said)


def test_the_first_of_several_outputs_is_looked_at():
    source, target = inputs()
    memory, x = embedded(source, target)
    hidden = attend(x, memory)
    logits = layers.Dense(TARGETS, name="logits")(hidden)
    other = layers.Dense(3, "softmax", name="another")(hidden)
    model = keras.Model([source, target], [logits, other])
    losses = {"another": "mse", "logits": keras_attn.SequenceCrossentropy()}
    model.compile("adam", loss=losses)
    x, y = arrays()
    targets = {"another": np.zeros((3, 5, 3)), "logits": y}
    assert_good(model, (x, targets))
    targets["logits"] = y + 9
    assert_wrong(model, "vocabulary", "'logits' returns", data=(x, targets))


def test_a_model_that_draws_in_training_is_looked_at():
    source, target = inputs()
    memory, x = embedded(source, target)
    attention = keras_attn.Attention(
        keras_attn.AdditiveScore(4), keras_attn.ReinforceAlignment()
    )
    hidden, *evidence = attention(x, memory, return_samples=True)
    logits = layers.Dense(TARGETS)(hidden)
    model = keras_attn.ReinforceModel([source, target], [logits, *evidence])
    model.compile("adam", loss=keras_attn.SequenceCrossentropy())
    assert_good(model, arrays())


def test_all_that_is_wrong_is_said_at_once():
    model = on_target(Ahead(1, **NAMED))
    data = arrays(changed(SOURCE_IDS, (0, 0), 99), target_out=IDS[:, :-1])
    _, error = look(model, data)
    for kind in ("leak", "ids", "shift"):
        assert f"- {kind}: " in error


def test_only_four_batches_are_looked_at():
    def batches():
        for number in range(100):
            seen.append(number)
            yield arrays()

    class Stored:
        def __iter__(self):
            return batches()

    seen = []
    assert_good(good(), Stored())
    assert len(seen) == 4


def test_a_generator_is_refused_and_gives_all_its_batches_to_fit():
    generator = (arrays() for _ in range(3))
    assert_wrong(good(), "inputs", "must not be a generator", data=generator)
    assert len(list(generator)) == 3


# Losses


def with_softmax(loss, softmax):
    source, target = inputs()
    memory, x = embedded(source, target)
    hidden = layers.Dropout(0.1)(attend(x, memory))
    if softmax == "activation":
        output = layers.Dense(TARGETS, "softmax", **NAMED)(hidden)
    elif softmax == "layer":
        output = layers.Activation("softmax", **NAMED)(
            layers.Dense(TARGETS)(hidden)
        )
    elif softmax == "nested":
        given = keras.Input((None, 6))
        inner = layers.Dense(TARGETS, "softmax", **NAMED)(given)
        output = layers.Identity()(keras.Model(given, inner)(hidden))
    else:
        output = layers.Dense(TARGETS, **NAMED)(hidden)
    model = keras.Model([source, target], output)
    if loss:
        model.compile("adam", loss=loss)
    return model


def sparse(from_logits):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)


def by_hand(y, logits):
    return keras.losses.sparse_categorical_crossentropy(
        y, logits, from_logits=True
    )


@pytest.mark.parametrize("softmax", ["activation", "layer", "nested"])
def test_a_softmax_before_a_loss_from_logits_is_named(softmax):
    for loss in (keras_attn.SequenceCrossentropy(), sparse(True)):
        model = with_softmax(loss, softmax)
        assert_wrong(model, "softmax", "'culprit'", "takes logits")
    assert_doubtful(with_softmax(None, softmax), "softmax", "culprit")
    assert_good(with_softmax(sparse(False), softmax))
    assert_good(with_softmax("sparse_categorical_crossentropy", softmax))


@pytest.mark.parametrize(
    "loss",
    [
        sparse(False),
        "sparse_categorical_crossentropy",
        ["categorical_crossentropy"],
        keras.losses.sparse_categorical_crossentropy,
    ],
)
def test_logits_before_a_loss_of_probabilities_are_named(loss):
    assert_wrong(
        with_softmax(loss, None), "logits", "'culprit'", "`from_logits=True`"
    )


@pytest.mark.parametrize(
    "loss", [None, keras_attn.SequenceCrossentropy(), sparse(True), by_hand]
)
def test_logits_before_a_loss_of_logits_are_good(loss):
    assert_good(with_softmax(loss, None))


def test_ids_before_a_loss_of_one_hot_targets_are_refused():
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model = with_softmax(loss, None)
    assert_wrong(model, "one-hot", "takes one-hot", data=arrays())
    one_hot = np.eye(TARGETS, dtype="float32")[IDS[:1, 1:]]
    data = arrays(SOURCE_IDS[:1], IDS[:1, :-1], one_hot)
    assert_good(model, data)


def test_a_loss_that_counts_padding_is_found_where_its_mask_goes():
    def tied(scale):
        source, target = inputs()
        memory, x = embedded(source, target)
        hidden = scale(attend(x, memory))
        model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
        model.compile("adam", loss=sparse(True))
        return model

    lost = tied(layers.Lambda(lambda x: x * 2.0, **NAMED))
    assert_doubtful(
        lost, "mask", "culprit", "counts the padding", data=arrays()
    )
    assert_good(tied(layers.Rescaling(2.0)), arrays())
    lost.compile("adam", loss=keras_attn.SequenceCrossentropy())
    assert_good(lost, arrays())
    lost.compile(
        "adam",
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=0
        ),
    )
    assert_good(lost, arrays())


def test_a_loss_that_is_not_finite_is_refused():
    def loss(y, logits):
        return keras.ops.log(0.0 * logits[..., 0])

    assert_wrong(
        with_softmax(loss, None), "finite", "first batch is -inf", data=arrays()
    )


def test_features_that_are_not_finite_are_refused():
    model = with_encoder(lambda x: layers.Masking()(x), ids=False)
    features = np.ones((3, 4, 6), "float32")
    assert_good(model, arrays(features))
    features[1, 2, 3] = np.nan
    assert_wrong(model, "finite", "'source' holds NaN", data=arrays(features))


def test_a_batch_that_the_model_fails_on_is_refused():
    model = with_encoder(keras_attn.PositionEmbedding(6, **NAMED))
    model.compile("adam", loss=keras_attn.SequenceCrossentropy())
    assert_good(model, arrays())
    long = np.tile(SOURCE_IDS, (1, 2))
    long[long == 0] = 3
    said = "'culprit' (PositionEmbedding) fails on the first batch"
    assert_wrong(
        model, "run", said, "vectors for 6 positions", data=arrays(long)
    )


def test_a_loss_that_fails_is_refused():
    def loss(y, logits):
        return ops.matmul(y, logits[0, 0])

    model = with_softmax(loss, None)
    said = "The loss, `loss`, fails on the first batch"
    assert_wrong(model, "run", said, data=arrays())


# Models


def test_models_that_cannot_be_looked_at_are_refused():
    class Subclassed(keras.Model):
        def call(self, inputs):
            return inputs

    for model in (Subclassed(), layers.Dense(3), "model"):
        with pytest.raises(ValueError, match="needs a functional model"):
            keras_attn.check(model)
    source, target = inputs()
    memory, x = embedded(source, target)
    logits = layers.Dense(TARGETS)(decoder()(x, memory))
    with pytest.raises(ValueError, match="inputs are a list of the sources"):
        keras_attn.check(
            keras.Model({"source": source, "target": target}, logits)
        )
    with pytest.raises(ValueError, match="its first output the logits"):
        keras_attn.check(
            keras.Model([source, target], layers.GlobalMaxPooling1D()(logits))
        )


@keras.saving.register_keras_serializable("test_findings")
class Counting(layers.Layer):
    """Counts its calls."""

    def build(self, shape):
        self.calls = self.add_weight(initializer="zeros", trainable=False)
        self.supports_masking = True

    def call(self, x):
        self.calls.assign_add(1.0)
        return x


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    variables += [v for metric in model.metrics for v in metric.variables]
    return [np.array(ops.convert_to_numpy(x.value)) for x in variables]


@pytest.mark.parametrize("kind", [layers.Identity, lambda: Ahead(2)])
def test_nothing_in_the_model_changes(kind):
    culprit = kind()
    source, target = inputs()
    memory, x = embedded(source, target)
    x = layers.Dropout(0.5, seed=1)(layers.BatchNormalization()(x))
    x = culprit(Counting()(layers.GaussianNoise(0.1)(x)))
    logits = layers.Dense(TARGETS)(decoder()(x, memory))
    model = keras.Model([source, target], logits)
    model.compile(
        "adam", keras_attn.SequenceCrossentropy(), metrics=["accuracy"]
    )
    data = arrays()
    model.fit(*data, verbose=0)
    before = state(model)
    _, error = look(model, data)
    assert bool(error) == isinstance(culprit, Ahead)
    after = state(model)
    assert len(after) == len(before) > 20
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert model.losses == []


def test_training_goes_on_as_if_nobody_had_looked():
    def losses(checked):
        keras.utils.set_random_seed(3)
        source, target = inputs()
        memory, x = embedded(source, target)
        hidden = decoder()(layers.Dropout(0.5)(x), memory)
        model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
        model.compile("adam", loss=keras_attn.SequenceCrossentropy())
        if checked:
            assert_good(model, arrays())
        return model.fit(*arrays(), epochs=3, verbose=0).history["loss"]

    assert losses(checked=True) == losses(checked=False)


def test_half_precision_is_looked_at_too():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = on_target(layers.GRU(6, **WHOLE))
        leaking = on_target(Ahead(7, **NAMED))
    finally:
        keras.config.set_dtype_policy("float32")
    assert_good(model)
    assert_wrong(leaking, "leak", "'culprit'")


def test_batches_of_a_fixed_size_are_looked_at_too():
    source = keras.Input((5, 6), batch_size=3)
    target = keras.Input((4,), batch_size=3, dtype="int32")
    x = layers.Embedding(TARGETS, 6)(target)
    x = layers.GRU(6, stateful=True, **WHOLE)(x)
    logits = layers.Dense(TARGETS)(decoder()(x, source))
    assert_good(keras.Model([source, target], logits))
    x = Ahead(1, **NAMED)(x)
    logits = layers.Dense(TARGETS)(decoder()(x, source))
    model = keras.Model([source, target], logits)
    assert_wrong(model, "leak", "'culprit'")


def test_a_dataset_of_pairs_is_looked_at():
    pytest.importorskip("tensorflow_text")
    text = keras_attn.Text("abcde", split="characters")
    words = ["ab", "ccc", "dead", "bed", "e"] * 20
    data = keras_attn.pairs(words, words, text, text, batch_size=8)
    source, target = inputs()
    embed = layers.Embedding(text.size, 6, mask_zero=True)
    hidden = decoder()(embed(target), embed(source))
    model = keras.Model([source, target], layers.Dense(text.size)(hidden))
    model.compile("adam", loss=keras_attn.SequenceCrossentropy())
    assert_good(model, data)
    assert_good(model, data.map(lambda x, y: (x, y, y != 0)).repeat())
    rows = data.unbatch()
    assert_wrong(model, "inputs", "Batch the data", data=rows)
    itself = data.map(lambda x, y: (x, x[1]))
    assert_wrong(model, "shift", "is 'target' itself", data=itself)


# The models of other tests: none is refused, and all warnings are right.


def models():
    import test_incremental
    import test_incremental_layers

    found = dict(test_incremental.MODELS)
    for name, path in test_incremental_layers.PATHS.items():
        found[f"path {name}"] = lambda path=path: with_path(path)
    encoded = test_incremental_layers.encoded_by
    frames = test_incremental_layers.of_frames
    image = test_incremental_layers.of_an_image
    tokens = test_incremental_layers.of_tokens
    found["frames"] = lambda: encoded(frames, None, 3)
    found["image"] = lambda: encoded(image, 6, 4, 1)
    found["tokens"] = lambda: encoded(tokens, None, dtype="int32")
    return found


MODELS = models()

# Padding does change the results of these models.
MIND_PADDING = {
    # Frames without `Masking`.
    "memory_straight_from_the_input": "attention_decoder",
    "frames": "conv1d",
    # A convolution sees the padding beside the last token.
    "convolutional_encoder": "conv1d",
    # Keras's attention takes the mask off the memory that both blocks read.
    "path transformer": "multi_head_attention",
    # The mask that is passed as an argument is true everywhere.
    "path masks_given": "multi_head_attention",
}


@pytest.mark.parametrize("name", nth(3, MODELS))
def test_the_models_that_are_decoded_have_no_false_findings(name):
    model = MODELS[name]()
    if name == "layers_between" and keras.backend.backend() == "tensorflow":
        # In a graph its `TimeDistributed` returns one position: a Keras bug.
        assert_wrong(model, "graph", "'time_distributed' (TimeDistributed)")
    elif name in MIND_PADDING:
        found, error = look(model)
        assert not error
        ((kind, layer, _),) = found
        assert kind == "mask" and layer.startswith(MIND_PADDING[name])
    else:
        assert_good(model)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="They are translators"
)
@pytest.mark.parametrize(
    "name", ["feeding", "stack", "words", "transformer", "spectra", "images"]
)
def test_trained_models_have_no_false_findings(name, toys):
    assert_good(toys[name].model)
