"""`check()` finds a loss that does not fit the model's output.

These tests run on every backend that Keras runs on.
"""

import functools

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCES
from support.cuts import TARGETS
from support.cuts import embedded
from support.cuts import inputs
from support.findings import DROPPED_MASKS
from support.findings import IDS
from support.findings import NAMED
from support.findings import SOURCE_IDS
from support.findings import arrays
from support.findings import assert_doubtful
from support.findings import assert_good
from support.findings import assert_wrong
from support.findings import attend
from support.findings import look

import keras_attn

pytestmark = DROPPED_MASKS


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
        model.compile("adam", loss=loss, jit_compile=False)
    return model


def sparse(from_logits):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)


def by_hand(y, logits):
    return keras.losses.sparse_categorical_crossentropy(
        y, logits, from_logits=True
    )


@pytest.mark.full
@pytest.mark.parametrize("softmax", ["activation", "layer", "nested"])
def test_a_softmax_before_a_loss_from_logits_is_named(softmax):
    for loss in (keras_attn.SequenceCrossentropy(), sparse(True)):
        model = with_softmax(loss, softmax)
        assert_wrong(model, "softmax", "'culprit'", "takes logits")
    assert_doubtful(with_softmax(None, softmax), "softmax", "culprit")
    assert_good(with_softmax(sparse(False), softmax))
    ours = keras_attn.SequenceCrossentropy(from_logits=False)
    assert_good(with_softmax(ours, softmax))
    assert_wrong(with_softmax(ours, None), "logits", "'culprit'")
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
        model.compile("adam", loss=sparse(True), jit_compile=False)
        return model

    lost = tied(layers.Lambda(lambda x: x * 2.0, **NAMED))
    assert_doubtful(
        lost, "mask", "culprit", "counts the padding", data=arrays()
    )
    assert_good(tied(layers.Rescaling(2.0)), arrays())
    lost.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    assert_good(lost, arrays())
    lost.compile(
        "adam",
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=0
        ),
        jit_compile=False,
    )
    assert_good(lost, arrays())


def of_ids(form, **options):
    if form == "class":
        return keras.losses.SparseCategoricalCrossentropy(**options)
    function = keras.losses.sparse_categorical_crossentropy
    return functools.partial(function, **options)


@pytest.mark.parametrize("form", ["class", "partial"])
@pytest.mark.parametrize("ignored", [-100, 255])
def test_targets_padded_with_the_class_that_the_loss_ignores_are_good(
    form, ignored
):
    loss = of_ids(form, from_logits=True, ignore_class=ignored)
    model = with_softmax(loss, None)
    padded = np.where(IDS[:, 1:] == 0, ignored, IDS[:, 1:])
    assert_good(model, arrays(target_out=padded))
    padded[:, :2] = ignored  # as Hugging Face does with a prompt
    assert_good(model, arrays(target_out=padded))
    padded[0, 2] = -7
    assert_wrong(model, "vocabulary", "id -7", data=arrays(target_out=padded))
    itself = np.where(IDS[:, :-1] == 0, ignored, IDS[:, :-1])
    assert_wrong(model, "shift", "itself", data=arrays(target_out=itself))
    nothing = arrays(target_out=np.full_like(padded, ignored))
    found, _ = look(model, nothing)
    assert "In one batch all of target_out is padding" in str(found)


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.sparse_categorical_crossentropy,
        sparse(False),
    ],
)
def test_weights_leave_padding_out_of_any_loss(loss):
    source, target = inputs()
    memory, x = embedded(source, target)
    hidden = layers.Lambda(lambda x: x * 2.0, **NAMED)(attend(x, memory))
    output = layers.Dense(TARGETS, "softmax")(hidden)
    model = keras.Model([source, target], output)
    model.compile("adam", loss=loss, jit_compile=False)
    weights = (IDS[:, 1:] != 0).astype("float32")
    assert_good(model, (*arrays(), weights))
    assert_doubtful(model, "mask", "culprit", "padding", data=arrays())


def test_an_embedding_of_the_target_without_a_mask_is_named():
    source, target = inputs()
    memory = layers.Embedding(SOURCES, 6, mask_zero=True)(source)
    x = layers.Embedding(TARGETS, 6, **NAMED)(target)
    output = layers.Dense(TARGETS)(attend(x, memory))
    model = keras.Model([source, target], output)
    model.compile("adam", loss=sparse(True), jit_compile=False)
    said = "makes no mask. Pass `mask_zero=True`"
    assert_doubtful(model, "mask", "culprit", said, data=arrays())


def test_a_loss_that_is_not_finite_is_refused():
    def loss(y, logits):
        return keras.ops.log(0.0 * logits[..., 0])

    # `fit` shows NaN too: Keras multiplies the loss by the mask.
    assert_wrong(
        with_softmax(loss, None), "finite", "first batch is nan", data=arrays()
    )


def test_a_loss_that_fails_is_refused():
    def loss(y, logits):
        return ops.matmul(y, logits[0, 0])

    model = with_softmax(loss, None)
    said = "The loss, `loss`, fails on the first batch"
    assert_wrong(model, "run", said, data=arrays())
