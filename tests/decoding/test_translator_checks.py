"""A translator checks its models again whenever their weights changed."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.toys import LINES
from support.toys import SOURCE
from support.toys import TARGET
from support.toys import speak_up

import keras_attn


@keras.saving.register_keras_serializable("checks")
class Growing(layers.Layer):
    """Adds earlier positions, times a weight that is zero at first."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape):
        self.share = self.add_weight(shape=(), initializer="zeros")

    def call(self, inputs):
        return inputs + self.share * ops.cumsum(inputs, axis=1)


@pytest.fixture
def growing():
    """Returns a model, its culprit, and a translator made before the change."""
    culprit = Growing(name="culprit")
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(6)
    )(
        culprit(layers.Embedding(TARGET.size, 6, mask_zero=True)(target)),
        layers.Embedding(SOURCE.size, 6, mask_zero=True)(source),
    )
    model = keras.Model([source, target], layers.Dense(TARGET.size)(hidden))
    model.compile(
        "sgd", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    translator = keras_attn.Translator(
        model, SOURCE, TARGET, keras_attn.GreedySearch(max_length=5)
    )
    return model, culprit, translator


def train(model):
    data = keras_attn.pairs(
        ["abc", "dead"], ["AA B", "K"], SOURCE, TARGET, shuffle=False
    )
    model.fit(data, epochs=1, verbose=0, shuffle=False)


REFUSED = "'culprit' .* one target position at a time"


@pytest.mark.full
def test_the_first_call_after_training_finds_what_it_switched_on(growing):
    model, culprit, translator = growing
    translator(LINES)
    train(model)  # its gradient moves the share, as all weights
    culprit.share.assign(0.5)
    with pytest.raises(ValueError, match=REFUSED):
        translator(LINES)
    with pytest.raises(ValueError, match=REFUSED):  # and every one after it
        translator(LINES)
    with pytest.raises(ValueError, match=REFUSED):
        next(translator.stream(LINES[0]))
    culprit.share.assign(0.0)
    assert len(translator(LINES).text) == len(LINES)


@pytest.mark.full
def test_so_it_does_if_another_model_trained_the_weights(growing):
    model, culprit, _ = growing
    decoded = keras.Model(model.inputs, model.outputs)  # has no optimizer
    translator = keras_attn.Translator(
        decoded, SOURCE, TARGET, keras_attn.GreedySearch(max_length=5)
    )
    translator(LINES)
    train(model)
    culprit.share.assign(0.5)
    with pytest.raises(ValueError, match=REFUSED):
        translator(LINES)


@pytest.mark.full
def test_saving_exporting_and_asking_look_again(growing, tmp_path):
    _, culprit, translator = growing
    translator.check()
    culprit.share.assign(0.5)  # no optimizer knows
    for look in (
        translator.check,
        lambda: translator.save(tmp_path / "saved"),
        lambda: translator.export(tmp_path / "exported"),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            look()
    assert not [x for x in tmp_path.rglob("*") if x.is_file()]


@pytest.mark.full
def test_unmoved_weights_are_not_looked_at_again(growing, monkeypatch):
    model, _, translator = growing
    looked = []
    monkeypatch.setattr(
        translator.pipeline.cut, "check", lambda *_, **__: looked.append(1)
    )
    translator(LINES)
    assert not looked
    train(model)
    translator(LINES)
    translator(LINES)
    assert len(looked) == 1


def time_distributed_logits():
    """Returns a model whose logits of whole targets differ in a graph."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(6)
    )(
        layers.Embedding(TARGET.size, 6)(target),
        layers.Embedding(SOURCE.size, 6, mask_zero=True)(source),
    )
    # Of a `Dense` a translator calls the layer inside.
    dense = layers.EinsumDense("ab,bc->ac", output_shape=TARGET.size)
    output = layers.TimeDistributed(dense, name="culprit")
    return keras.Model([source, target], output(hidden))


@pytest.mark.full
def test_what_is_wrong_for_whole_targets_alone_decodes_and_does_not_score(
    tmp_path,
):
    model = time_distributed_logits()
    translator = keras_attn.Translator(
        model, SOURCE, TARGET, keras_attn.GreedySearch(max_length=5)
    )
    (found,) = translator(["abc"])
    ids = [1, *(TARGET.tokens.index(x) for x in found.tokens)]
    logits = model(
        [SOURCE.ids(["abc"]), ops.convert_to_tensor([ids[:-1]])],
        training=False,
    )
    never = np.zeros(TARGET.size)
    never[:2] = -np.inf  # padding and start
    best = np.argmax(logits[0] + never, -1)
    assert best.tolist() == ids[1:]
    for score in (
        lambda: translator.score(["abc"], ["AA"]),
        lambda: translator.export(tmp_path, signatures=["score"]),
    ):
        with pytest.raises(ValueError, match="'culprit' .* gives other"):
            score()
    translator.export(tmp_path)


class Attributed(layers.Layer):
    """Mixes positions, times a number that is an attribute, not a weight."""

    share = 0.0

    def call(self, inputs):
        return inputs + self.share * ops.cumsum(inputs, axis=1)


def with_layer(layer):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(6)
    )(
        layer(layers.Embedding(TARGET.size, 6)(target)),
        layers.Embedding(SOURCE.size, 6, mask_zero=True)(source),
    )
    return keras.Model([source, target], layers.Dense(TARGET.size)(hidden))


@pytest.mark.full
def test_asking_sees_what_is_no_weight():
    culprit = Attributed(name="culprit")
    translator = keras_attn.Translator(
        with_layer(culprit), SOURCE, TARGET, keras_attn.GreedySearch(5)
    )
    culprit.share = 0.5
    with pytest.raises(ValueError, match=REFUSED):
        translator.check()


@pytest.mark.full
def test_targets_are_compared_as_long_as_the_search_makes_them():
    far = layers.Lambda(
        lambda x: (
            x + ops.pad(x, [[0, 0], [55, 0], [0, 0]])[:, : ops.shape(x)[1]]
        ),
        output_shape=lambda shape: shape,
        name="culprit",
    )
    model = with_layer(far)
    with pytest.raises(ValueError, match=REFUSED):
        keras_attn.Translator(
            model, SOURCE, TARGET, keras_attn.GreedySearch(100), recompute=False
        )


@pytest.mark.full
def test_weights_that_were_set_are_looked_at_again(growing):
    _, culprit, translator = growing
    culprit.set_weights([np.float32(0.5)])  # no step of an optimizer
    with pytest.raises(ValueError, match=REFUSED):
        translator(LINES)


class Averaging(layers.Layer):
    """Adds the mean of the memory's real positions."""

    def call(self, inputs, memory, memory_mask=None):
        real = ops.cast(memory_mask, memory.dtype)[..., None]
        mean = ops.sum(memory * real, axis=1) / ops.sum(real, axis=1)
        return inputs + mean[:, None]


@keras_attn.stepper_for(Averaging)
class Careless(keras_attn.Stepper):
    """Takes the mean of padding too."""

    def prepare(self, constants):
        return ops.mean(constants["memory"], axis=1)

    def step(self, inputs, prepared, state, position):
        return inputs["inputs"] + prepared[:, None], None, state


@pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)
def test_steps_that_see_another_mask_than_the_whole_model_are_refused():
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(SOURCE.size, 6, mask_zero=True)(source)
    x = layers.Embedding(TARGET.size, 6, mask_zero=True)(target)
    x = Averaging()(layers.GRU(6, return_sequences=True)(x), memory)
    model = keras.Model([source, target], layers.Dense(TARGET.size)(x))
    speak_up(model, seed=1)
    search = keras_attn.GreedySearch(max_length=5)
    with pytest.raises(ValueError, match="padding in a source, .*`Stepper`"):
        keras_attn.Translator(model, SOURCE, TARGET, search)


MANY = keras_attn.Text([f"w{i}" for i in range(500)], split="whitespace")
APART = MANY.tokens.index("w321")  # higher than any number of random ids


def skips(x, ids):
    return layers.GRU(6, return_sequences=True)(x, mask=ids != APART)


def hides(x, ids):
    return layers.MultiHeadAttention(2, 3)(
        x, x, value_mask=ops.less(ids, APART), use_causal_mask=True
    )


def inside(x, ids):
    given = keras.Input((None, 6)), keras.Input((None,), dtype="int32")
    return keras.Model(list(given), skips(*given))([x, ids])


def padding(x, ids):
    mask = ops.not_equal(ids, MANY.special.pad)
    return layers.GRU(6, return_sequences=True)(x, mask=mask)


@pytest.mark.parametrize("build", [skips, hides, inside])
def test_steps_that_ignore_a_mask_of_some_tokens_are_refused(build):
    asked = "one target position at a time|with the mask of the target"
    with pytest.raises(ValueError, match=asked):
        with_mask(build)
    with pytest.raises(ValueError, match=asked):
        with_mask(padding, build)  # an ensemble


def test_steps_may_ignore_a_mask_of_padding():
    assert with_mask(padding)(["abc"]).text


def with_mask(*builds):
    search = keras_attn.GreedySearch(max_length=5)
    return keras_attn.Translator(
        [masking(x) for x in builds], SOURCE, MANY, search, recompute=False
    )


def masking(build):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(SOURCE.size, 6, mask_zero=True)(source)
    x = build(layers.Embedding(MANY.size, 6)(target), target)
    x = keras_attn.BahdanauAttention(5)(x, memory)
    model = keras.Model([source, target], layers.Dense(MANY.size)(x))
    speak_up(model, seed=1)
    return model
