"""Saliency, held against slopes that are measured by brute force."""

import keras
import numpy as np
import pytest
from keras import layers
from scipy import stats
from support import toys as small

import keras_attn

LINE = "abcde"  # each token once, so that each has a row of its own
STEP = 1e-2


def slopes(translator, result):
    """Returns how each token's log-probability grows with an embedding.

    The rows of the embedding tables are scaled by `1 ± STEP`, one source
    token after the other, and the whole models score the result again.
    """
    text = translator.source_text
    ids = text.source_ids([LINE]).numpy()[0]
    tables = [
        next(
            x
            for x in model.layers
            if isinstance(x, layers.Embedding) and x.input is model.inputs[0]
        )
        for model in translator.models
    ]
    found = np.zeros((len(result.tokens), len(ids)))
    for column, token in enumerate(ids):
        for sign in (1, -1):
            before = [x.get_weights() for x in tables]
            for table, (weights,) in zip(tables, before, strict=True):
                scaled = weights.copy()
                scaled[token] *= 1 + sign * STEP
                table.set_weights([scaled])
            scores = translator.score([LINE], [result]).token_scores[0]
            found[:, column] += sign * scores / (2 * STEP)
            for table, weights in zip(tables, before, strict=True):
                table.set_weights(weights)
    return found


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "ensemble", "feeding", "transformer"])
def test_saliency_is_the_slope_that_brute_force_measures(toys, name):
    translator = toys[name]
    result = translator([LINE])[0]
    expected = np.abs(slopes(translator, result))
    found = keras_attn.saliency(translator, LINE, result)
    # Float32 shows no slope where a token is all but certain.
    steep = expected.sum(axis=1) > 0.05
    assert steep.sum() > 1
    expected = expected[steep] / expected[steep].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[steep], expected, atol=5e-3)


def test_rows_sum_to_one_and_have_the_shape_of_the_attention(toys):
    translator = toys["pre"]
    result = translator([LINE])[0]
    found = keras_attn.saliency(translator, LINE)
    assert found.shape == result.alignment.shape
    assert found.dtype == np.float32 and (found >= 0).all()
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


def test_a_string_as_target_is_split_and_ended(toys):
    translator = toys["pre"]
    found = keras_attn.saliency(translator, LINE, "AA B")
    assert found.shape == (3, len(LINE) + 1)


def test_more_target_tokens_than_go_at_once_are_the_same(toys, monkeypatch):
    translator = toys["pre"]
    target = "AA B K AA D"
    expected = keras_attn.saliency(translator, LINE, target)
    monkeypatch.setattr("keras_attn.viewing.saliency._ROWS", 4)
    found = keras_attn.saliency(translator, LINE, target)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    monkeypatch.setattr("keras_attn.viewing.saliency._LOGITS", 1)
    found = keras_attn.saliency(translator, LINE, target)  # one at a time
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.full
def test_a_language_prompt_is_read_before_the_target():
    decoder = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    arguments = (
        small.model(decoder, seed=9),
        small.SOURCE,
        small.TARGET,
        keras_attn.GreedySearch(max_length=3),
    )
    plain = keras_attn.Translator(*arguments)
    # The ids of "AA", "B" and "K".
    prompt = keras_attn.LanguagePrompt([4, 5], after=[6])
    prompted = keras_attn.Translator(*arguments, language_prompt=prompt)
    expected = [
        keras_attn.saliency(plain, "abc", f"{language} K D EH")[2:]
        for language in ("AA", "B")
    ]
    assert not np.allclose(*expected, atol=1e-3)
    found = keras_attn.saliency(prompted, "abc", "B K D EH")
    np.testing.assert_allclose(found, expected[1], atol=1e-5)
    found = keras_attn.saliency(prompted, "abc", "D EH")  # the model chooses
    assert any(np.allclose(found, x, atol=1e-5) for x in expected)


def bag(vectors):
    """Returns a translator of the mean of vectors, without attention."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    x = layers.GlobalAveragePooling1D()(vectors(source))
    hidden = layers.GRU(4, return_sequences=True)(
        layers.Embedding(small.TARGET.size, 4)(target),
        initial_state=layers.Dense(4)(x),
    )
    logits = layers.Dense(small.TARGET.size)(hidden)
    model = keras.Model([source, target], logits)
    search = keras_attn.GreedySearch(max_length=3)
    return keras_attn.Translator(model, small.SOURCE, small.TARGET, search)


def test_a_token_that_changes_nothing_has_no_saliency():
    """In a model without attention, whose embeddings are in a model."""
    ids = keras.Input((None,), name="inner")  # float32, Keras's default
    table = layers.Embedding(small.SOURCE.size, 4, mask_zero=True)
    inner = keras.Model(ids, layers.Dropout(0.5)(table(ids)))
    translator = bag(inner)
    weights = table.get_weights()[0]
    weights[small.SOURCE.tokens.index("b")] = 0
    table.set_weights([weights])
    found = keras_attn.saliency(translator, "ab", "B")
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    assert (found[:, 1] == 0).all() and (found[:, 0] > 0).all()
    table.set_weights([np.zeros_like(weights)])
    found = keras_attn.saliency(translator, "ab", "B")
    assert (found == 0).all()  # not NaN


class Added(layers.Layer):
    """A mask to add to scores: -1 at each real token, of shape `shape`."""

    def __init__(self, shape):
        super().__init__()
        self._shape = shape

    def call(self, ids):
        real = keras.ops.cast(keras.ops.not_equal(ids, 0), "float32")
        if self._shape == "row":
            return -real[:, None, :]
        return -real[:, None, :] * real[:, :, None]


class Plus(layers.Layer):
    """Adds the column sums of a mask to vectors."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, vectors, added):
        return vectors + keras.ops.sum(added, axis=1)[:, :, None]


@pytest.mark.full
@pytest.mark.parametrize("shape", ["row", "square"])
@pytest.mark.filterwarnings("ignore:Padding changes the output:UserWarning")
def test_a_mask_that_a_layer_makes_is_no_embedding(shape):
    keras.utils.set_random_seed(3)
    table = layers.Embedding(small.SOURCE.size, 4)
    masked = bag(lambda ids: Plus()(table(ids), Added(shape)(ids)))
    found = keras_attn.saliency(masked, "ab", "B")

    def by_operations(ids):
        real = keras.ops.cast(ids != 0, "float32")
        mask = -real[:, None, :]
        if shape == "square":
            mask = mask * real[:, :, None]
        return Plus()(table(ids), mask)

    same = bag(by_operations)
    for one, other in zip(same.models, masked.models, strict=True):
        one.set_weights(other.get_weights())
    expected = keras_attn.saliency(same, "ab", "B")
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Padding changes the output:UserWarning")
def test_without_a_layer_of_embeddings_it_says_what_is_missing():
    def one_hot(ids):
        return keras.ops.one_hot(ids, small.SOURCE.size)

    with pytest.raises(ValueError, match="behind its input 'source'"):
        keras_attn.saliency(bag(one_hot), LINE, "B")


class Encoder(layers.Layer):
    """An embedding and a recurrent layer in one."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embed = layers.Embedding(small.SOURCE.size, 4, mask_zero=True)
        self.read = layers.GRU(4, return_sequences=True)

    def call(self, ids):
        return self.read(self.embed(ids))

    def compute_mask(self, ids, mask=None):
        return self.embed.compute_mask(ids)


class Segments(layers.Layer):
    """An embedding of tokens and of the number of ends before each."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tokens = layers.Embedding(small.SOURCE.size, 4)
        self.segments = layers.Embedding(9, 4)

    def call(self, ids):
        begin = keras.ops.cast(ids == small.SOURCE.special.end, "int32")
        numbers = keras.ops.cumsum(begin, axis=1)
        return self.tokens(ids) + self.segments(numbers)


@pytest.mark.filterwarnings("ignore:Padding changes the output:UserWarning")
def test_an_embedding_may_count_separators():
    translator = bag(Segments())
    assert keras_attn.saliency(translator, "ab", "B").shape == (2, 3)


def test_an_encoder_in_one_layer_is_no_embedding():
    translator = bag(Encoder(name="encoder"))
    with pytest.raises(ValueError, match=r"Received: 'encoder' \(Encoder\)"):
        keras_attn.saliency(translator, LINE, "B")
    assert keras_attn.saliency(translator, "", "B").shape == (2, 1)


def test_features_and_other_targets_are_refused(toys):
    with pytest.raises(ValueError, match="reads features"):
        keras_attn.saliency(toys["images"], LINE)
    with pytest.raises(ValueError, match=r"`results\[0\]`"):
        keras_attn.saliency(toys["pre"], LINE, toys["pre"]([LINE]))


@pytest.mark.parametrize("seed", range(3))
def test_rank_correlation_is_kendalls_tau(seed):
    random = np.random.default_rng(seed)
    one = random.integers(0, 4, (2, 7)) / 4  # with ties
    other = random.random((2, 7))
    found = keras_attn.rank_correlation(
        [one[:1], one[1:]], [other[:1], other[1:]]
    )
    expected = [stats.kendalltau(*x)[0] for x in zip(one, other, strict=True)]
    assert found == pytest.approx(np.mean(expected))


def test_rows_without_an_order_do_not_count():
    flat, row = [0.5, 0.5, 0.5], [0.7, 0.2, 0.1]
    assert keras_attn.rank_correlation([[flat, row]], [[row, row]]) == 1.0
    assert np.isnan(keras_attn.rank_correlation([[flat]], [[row]]))
    assert np.isnan(keras_attn.rank_correlation([], []))
    with pytest.raises(ValueError, match=r"\(1, 3\) and \(1, 2\)"):
        keras_attn.rank_correlation([[row]], [[[1.0, 0.0]]])
