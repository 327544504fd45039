"""Steps see the masks of the source that layers of the whole model see.

Keras's `MultiHeadAttention` removes the mask of a tensor that it reads, so
which other layers see it depends on the order in which Keras runs them. These
tests run on every backend that Keras runs on.
"""

import keras
import keras_hub
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCE
from support.cuts import TARGET
from support.cuts import assert_cut_equals_whole
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import run_by_steps
from support.cuts import speak_up
from support.cuts import with_path

import keras_attn
from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


def heads(**options):
    return layers.MultiHeadAttention(2, 3, **options)


def gru(x):
    return layers.GRU(6, return_sequences=True)(x)


def four_layers(x):
    for _ in range(4):
        x = layers.Dense(6)(x)
    return x


def beside(first, second):
    def path(x, memory):
        h = gru(x)
        return layers.Add()([first(h, memory), second(h, memory)])

    return path


def read_then_encoded(x, memory):
    x = four_layers(decoder()(x, memory))
    return heads()(x, heads()(memory, memory))


def bahdanau(x, memory):
    return keras_attn.BahdanauAttention(5)(x, memory)


def by_keras(x, memory):
    return heads()(x, memory)


def of_keras_hub(x, memory):
    return keras_hub.layers.TransformerDecoder(8, 2)(x, memory)


PATHS = {
    "before heads": beside(bahdanau, by_keras),
    "after heads": beside(by_keras, bahdanau),
    "KerasHub's before heads": beside(of_keras_hub, by_keras),
    "read before it is encoded": read_then_encoded,
}


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("recompute", [False, True])
def test_each_layer_sees_the_mask_that_it_sees_in_the_whole(name, recompute):
    model = speak_up(with_path(PATHS[name]))
    cut = Incremental(model, recompute=recompute)
    found, _ = run_by_steps(cut, [SOURCE, TARGET])
    whole = ops.convert_to_numpy(model([SOURCE, TARGET]))
    np.testing.assert_allclose(found, whole, atol=1e-5)
    if not recompute:
        assert_cut_equals_whole(model)


def read_before_and_after(x, memory):
    return bahdanau(read_then_encoded(x, memory), memory)


def test_a_tensor_that_is_read_with_its_mask_and_without_is_refused():
    cut = Incremental(speak_up(with_path(read_before_and_after)))
    cut.check(np.where(SOURCE, SOURCE, 1), TARGET)
    with pytest.raises(ValueError, match="gives other numbers"):
        cut.check(SOURCE, TARGET)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    "attention",
    [
        lambda dropout: heads(dropout=dropout),
        lambda dropout: layers.GroupQueryAttention(
            3, 4, 2, dropout=dropout, seed=1
        ),
        lambda dropout: keras_hub.layers.TransformerDecoder(
            8, 2, dropout=dropout
        ),
    ],
)
def test_a_source_of_padding_alone_is_attended_to_as_in_the_whole(
    attention, dropout
):
    model = with_path(lambda x, memory: attention(dropout)(gru(x), memory))
    speak_up(model)
    empty = SOURCE.copy()
    empty[1] = 0
    found, _ = run_by_steps(Incremental(model), [empty, TARGET])
    whole = ops.convert_to_numpy(model([empty, TARGET]))
    np.testing.assert_allclose(found, whole, atol=1e-5)


@pytest.mark.full
def test_weights_of_heads_are_those_of_the_layer():
    source, target = inputs()
    memory, x = embedded(source, target)
    allowed = keras.Input((None, None), dtype="bool", name="allowed")
    layer, query = heads(name="cross"), gru(x)
    hidden = layer(query, memory, attention_mask=allowed)
    given = [source, allowed, target]
    model = speak_up(keras.Model(given, layers.Dense(9)(hidden)))
    random = np.random.default_rng(1)
    may = random.random((3, TARGET.shape[1], SOURCE.shape[1])) < 0.6
    may[..., 0] = True
    runner = Incremental(model).heads_at_once([("cross", 0), ("cross", 1)])
    _, found = runner(runner.encode([SOURCE, may]), TARGET)
    query, memory = keras.Model(given, [query, memory])([SOURCE, may, TARGET])
    _, expected = layer(
        query, memory, attention_mask=may, return_attention_scores=True
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(found), ops.convert_to_numpy(expected), atol=1e-5
    )
