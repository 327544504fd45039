"""Texts that are longer than a model takes are cut, and reported."""

import keras
import keras_hub
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.published import SIZE
from support.published import TEXT
from support.published import TutorialTransformer

import keras_attn

# The models' authors are warned when they build and train.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SEARCH = keras_attn.GreedySearch(max_length=5)
UNITS = 12
LONG = "abcdefabcdefabcdefabcdefabcdef"


class Positions(layers.Layer):
    """Adds a table of positions, as a layer of a user's own."""

    def __init__(self, length):
        super().__init__()
        self.table = layers.Embedding(length, UNITS)

    def call(self, inputs):
        return inputs + self.table(ops.arange(ops.shape(inputs)[1]))


def model_with(source_positions=None, target_positions=None):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    x = layers.Embedding(SIZE, UNITS)(source)
    if source_positions:
        x = source_positions(x)
    state = layers.GRU(UNITS)(x)
    y = layers.Embedding(SIZE, UNITS)(target)
    if target_positions:
        y = target_positions(y)
    y = layers.GRU(UNITS, return_sequences=True)(y, initial_state=state)
    return keras.Model([source, target], layers.Dense(SIZE)(y))


def translator(model, source=TEXT, target=TEXT):
    return keras_attn.Translator(model, source, target, SEARCH)


def logp_of(model, source, target):
    """The log-probability of a target with its end, by the whole model."""
    ids = TEXT.ids([target]).numpy()
    read = np.concatenate([[[TEXT.special.start[-1]]], ids[:, :-1]], axis=1)
    logits = np.asarray(model([TEXT.source_ids([source]).numpy(), read]))[0]
    logits = logits - logits.max(-1, keepdims=True)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return logp[np.arange(len(logp)), ids[0]].sum()


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("length", [4, 8, 9, 20])
@pytest.mark.parametrize(
    "table", [Positions, keras_hub.layers.PositionEmbedding]
)
def test_a_source_is_cut_where_a_table_ends(table, length):
    made = translator(model_with(table(length)))
    # One id is the end token's.
    assert made.source_text.max_length == length - 1
    assert TEXT.max_length > length
    found = made([LONG, LONG[: length - 1], LONG[: length - 2]])
    assert [x.truncated for x in found] == [True, False, False]
    assert found[0].text == found[1].text


@pytest.mark.full
def test_a_source_is_not_cut_where_nothing_ends():
    assert translator(model_with()).source_text is TEXT
    long = translator(model_with(Positions(TEXT.longest_source)))
    assert long.source_text is TEXT


@pytest.mark.full
def test_each_of_several_sources_has_its_own_length():
    one, two = (
        keras.Input((None,), dtype="int32", name=x) for x in ("one", "two")
    )
    target = keras.Input((None,), dtype="int32")
    states = [
        layers.GRU(UNITS)(Positions(n)(layers.Embedding(SIZE, UNITS)(x)))
        for x, n in ((one, 10), (two, 25))
    ]
    y = layers.Embedding(SIZE, UNITS)(target)
    y = layers.GRU(UNITS, return_sequences=True)(
        y, initial_state=layers.Add()(states)
    )
    model = keras.Model([one, two, target], layers.Dense(SIZE)(y))
    made = translator(model, {"one": TEXT, "two": TEXT})
    assert made.source_text["one"].max_length == 9
    assert made.source_text["two"].max_length == 24


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "table", [Positions, keras_hub.layers.PositionEmbedding]
)
def test_targets_that_are_scored_are_cut_where_a_table_ends(table):
    model = model_with(None, table(8))
    made = translator(model)
    found = made.score(["ab", "ab", "ab"], [LONG, LONG[:7], LONG[:6]])
    assert found.truncated == [True, False, False]
    for i in (1, 2):
        expected = logp_of(model, "ab", LONG[: 8 - i])
        np.testing.assert_allclose(found.scores[i], expected, atol=1e-4)


@pytest.mark.full
def test_a_call_of_ones_own_ends_texts_where_its_tables_end():
    class Short(TutorialTransformer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(25, SIZE)

        def call(self, inputs):
            context, _ = inputs
            y = super().call(inputs)
            row = self.table(ops.arange(ops.shape(y)[1]))
            read = self.table(ops.arange(ops.shape(context)[1]))
            return y + row + ops.mean(read, axis=0)

    model, ids = Short(), np.ones((1, 3), "int32")
    model((ids, ids))
    made = translator(model)
    assert made.source_text.max_length == 24
    assert made.target_text.max_length == 24
    assert made.score([LONG], [LONG]).truncated == [True]
    assert made([LONG])[0].truncated


@pytest.mark.full
def test_what_is_cut_is_saved(tmp_path):
    made = translator(model_with(keras_hub.layers.PositionEmbedding(8)))
    made.save(tmp_path)
    loaded = keras_attn.Translator.load(tmp_path)
    assert loaded.source_text.max_length == 7
    assert loaded([LONG])[0].text == made([LONG])[0].text
