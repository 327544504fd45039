"""Low-rank adapters and quantization, added after a translator was made."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support import toys as toy_models
from support.lazily import Answers
from support.lazily import Lazily
from support.lazily import some

import keras_attn
from keras_attn import Translator
from keras_attn.text.special_tokens import START

SOURCE, TARGET, LINES = toy_models.SOURCE, toy_models.TARGET, toy_models.LINES
KINDS = ["pre", "feeding", "summed", "transformer"]


def model_of(kind):
    """Makes a fresh model, because adapters would change the shared toys."""
    if kind == "pre":
        return toy_models.pre().model
    if kind == "feeding":
        return toy_models.feeding().model
    if kind == "transformer":
        return toy_models.transformer().model
    # A context that is only emitted: the memory is multiplied instead.
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8),
        keras_attn.BahdanauAttention(8),
        order="post",
        input_feeding=False,
    )
    return toy_models.model(decoder, seed=3)


def translator_of(model):
    search = keras_attn.GreedySearch(max_length=6)
    return Translator(model, SOURCE, TARGET, search)


def enable(model):
    """Enables LoRA on every layer that has it; returns these layers."""
    found = [x for x in model._flatten_layers() if hasattr(x, "enable_lora")]
    for layer in found:
        layer.enable_lora(2)
    return found


def train(model):
    model.compile(
        keras.optimizers.Adam(0.05),
        loss=keras_attn.SequenceCrossentropy(),
        jit_compile=False,
    )
    data = keras_attn.pairs(LINES, ["AA B"] * len(LINES), SOURCE, TARGET)
    model.fit(data, epochs=2, verbose=0, shuffle=False)


def assert_like_the_whole_model(found, model):
    for line, row in zip(LINES, found, strict=True):
        ids = [TARGET.tokens.index(x) for x in row.tokens]
        target = tf.constant([[START, *ids[:-1]]])
        logits = model([SOURCE.ids([line]), target], training=False)
        logps = tf.nn.log_softmax(logits)[0].numpy()
        score = logps[np.arange(len(ids)), ids].sum()
        np.testing.assert_allclose(row.score, score, atol=1e-4)


# The others are left to `make test-all`.
ALWAYS = ["pre"]


@pytest.fixture(scope="module")
def adapted():
    """For each kind: a translator with adapters, and its earlier answers."""

    def make(kind):
        keras.utils.set_random_seed(20261121)
        model = model_of(kind)
        translator = translator_of(model)
        before = translator(LINES)
        adapters = enable(model)
        train(model)
        return {
            "translator": translator,
            "before": before,
            "adapters": adapters,
            "after": translator(LINES),
        }

    return Lazily(make, KINDS)


@pytest.fixture(scope="module")
def answers(adapted, tmp_path_factory):
    exports = Lazily(
        lambda kind: adapted[kind]["translator"].export(
            tmp_path_factory.mktemp("exports")
        ),
        KINDS,
    )
    inputs = {"text": np.array([x.encode() for x in LINES], object)}
    return Answers(
        exports,
        lambda kind: {"lines": ("serving_default", inputs)},
    )


@pytest.mark.full
@pytest.mark.parametrize("kind", some(KINDS, ALWAYS))
def test_a_translator_made_before_decodes_with_the_adapters(kind, adapted):
    translator, after = adapted[kind]["translator"], adapted[kind]["after"]
    assert len(adapted[kind]["adapters"]) >= 3
    assert not np.allclose(after.scores, adapted[kind]["before"].scores)
    assert_like_the_whole_model(after, translator.model)
    fresh = translator_of(translator.model)(LINES)
    assert after.text == fresh.text
    np.testing.assert_allclose(after.scores, fresh.scores, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("kind", some(KINDS, ALWAYS))
def test_scores_and_steps_have_the_adapters_too(kind, adapted):
    translator, after = adapted[kind]["translator"], adapted[kind]["after"]
    rows = [n for n, row in enumerate(after) if row.finished]
    if rows:
        scores = translator.score(
            [LINES[n] for n in rows], [after[n].text for n in rows]
        )
        np.testing.assert_allclose(scores.scores, after.scores[rows], atol=1e-4)
    tokens = list(translator.stream(LINES[0]))
    assert [x.token for x in tokens] == after[0].tokens


@pytest.mark.full
@pytest.mark.parametrize("kind", some(KINDS, ALWAYS))
def test_adapters_are_saved_and_loaded(kind, adapted, tmp_path):
    translator, after = adapted[kind]["translator"], adapted[kind]["after"]
    translator.save(tmp_path)
    found = Translator.load(tmp_path)(LINES)
    assert found.text == after.text
    np.testing.assert_allclose(found.scores, after.scores, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("kind", some(KINDS, ALWAYS))
def test_exports_have_the_adapters(kind, adapted, answers):
    answer, after = answers[kind, "lines"], adapted[kind]["after"]
    assert [x.decode() for x in answer["text"]] == after.text
    np.testing.assert_allclose(answer["score"], after.scores, atol=1e-4)


@pytest.fixture(
    scope="module",
    params=[
        "int8",
        pytest.param("int4", marks=pytest.mark.full),
        pytest.param("float8", marks=pytest.mark.full),
    ],
)
def quantized(request):
    """A translator and a cut whose model was quantized after they were made."""
    keras.utils.set_random_seed(20261121)
    model = model_of("pre")
    made = translator_of(model), keras_attn.Incremental(model)
    made[0](LINES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers that cannot be quantized
        model.quantize(request.param)
    return request.param, model, *made


ACTIONS = {
    "call": lambda x, _: x(LINES),
    "score": lambda x, _: x.score(LINES[:1], ["AA"]),
    "stream": lambda x, _: list(x.stream("a")),
    "save": lambda x, path: x.save(path / "saved"),
    "export": lambda x, path: x.export(path / "models"),
    "make": lambda x, _: translator_of(x.model),
}


@pytest.mark.full
@pytest.mark.parametrize("action", ACTIONS)
def test_a_quantized_model_is_refused_by_its_layer(action, quantized, tmp_path):
    mode, _, translator, _ = quantized
    with pytest.raises(ValueError) as error:
        ACTIONS[action](translator, tmp_path)
    message = str(error.value)
    assert message.startswith("Decoding needs float weights, but the layer '")
    assert (
        f"is quantized. Received: quantization_mode='{mode}'. Leave out "
        "`model.quantize(...)`, or load the float weights from a file saved "
        "before it. To store 8 bits per weight, export with "
        '`translator.export(directory, weights="int8")`.' in message
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_cut_refuses_a_quantized_model_too(quantized):
    mode, model, _, cut = quantized
    with pytest.raises(ValueError, match=f"quantization_mode='{mode}'"):
        cut.encode(SOURCE.ids(LINES))
    with pytest.raises(ValueError, match=f"quantization_mode='{mode}'"):
        keras_attn.Incremental(model)


def test_layers_made_with_a_quantized_dtype_are_refused():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(
        layers.Embedding(TARGET.size, 8, mask_zero=True)(target),
        layers.Embedding(SOURCE.size, 8, mask_zero=True)(source),
    )
    last = layers.Dense(TARGET.size, dtype="int8_from_float32", name="small")
    with pytest.raises(ValueError, match=r"'small' \(Dense\) is quantized"):
        translator_of(keras.Model([source, target], last(hidden)))


@pytest.mark.full
def test_sublayers_that_were_quantized_are_found():
    model = model_of("transformer")
    (attention, *_) = [
        x for x in model.layers if isinstance(x, layers.MultiHeadAttention)
    ]
    translator = translator_of(model)
    translator(["a"])
    attention._query_dense.quantize("int8")
    with pytest.raises(ValueError, match=r"'query' \(EinsumDense\) is quant"):
        translator(["a"])
