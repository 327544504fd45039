"""KerasHub's encoder-decoders, cut into steps, compute what they are.

Their weights are random. KerasHub gives its results at once, uncached.
"""

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops
from support.lazily import ask
from test_export import as_bytes

import keras_attn

# KerasHub's T5 makes it, of masks that it derives by itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*T5MultiHeadAttention")

VOCABULARY = 20


def bart():
    return keras_hub.models.BartBackbone(
        vocabulary_size=VOCABULARY,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        max_sequence_length=16,
    )


def t5(**options):
    return keras_hub.models.T5Backbone(
        vocabulary_size=VOCABULARY,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        **options,
    )


def whisper():
    return keras_hub.models.WhisperBackbone(
        vocabulary_size=VOCABULARY,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        num_mels=5,
        max_encoder_sequence_length=24,
        max_decoder_sequence_length=16,
    )


def moonshine(**options):
    return keras_hub.models.MoonshineBackbone(
        vocabulary_size=VOCABULARY,
        filter_dim=8,
        encoder_num_layers=1,
        decoder_num_layers=2,
        hidden_dim=8,
        intermediate_dim=12,
        encoder_num_heads=2,
        decoder_num_heads=2,
        **options,
    )


MODELS = {
    "bart": bart,
    "t5": t5,
    "t5, no gates, wide heads": lambda: t5(
        use_gated_activation=False, key_value_dim=6
    ),
    "whisper": whisper,
    "moonshine": moonshine,
    "moonshine, wide heads, no gates": lambda: moonshine(
        pad_head_dim_to_multiple_of=6,
        decoder_use_swiglu_activation=False,
        attention_bias=True,
    ),
}


def louder(backbone):
    """Gives all weights values that show, also biases and scales."""
    random = np.random.default_rng(7)
    for weight in backbone.weights:
        scale = 0.3 if weight.name == "embeddings" else 0.7
        if "position" in weight.path:  # or tokens would repeat
            scale = 1.5
        if len(weight.shape) == 1:
            scale = 0.1
        value = random.normal(scale=scale, size=weight.shape)
        if "inv_freq" in weight.path:  # a constant
            continue
        scales = weight.name in ("scale", "gamma", "weight")
        weight.assign(value + (1.0 if scales else 0.0))
    return backbone


def model_of(name):
    """Returns the model with list inputs, and sources for it."""
    backbone = louder(MODELS[name]())
    random = np.random.default_rng(2)
    target = keras.Input((None,), dtype="int32", name="target")
    given = {
        "decoder_token_ids": target,
        "decoder_padding_mask": ops.ones_like(
            target, dtype=backbone.input["decoder_padding_mask"].dtype
        ),
    }
    if name.startswith("moonshine"):
        source = keras.Input((3000, 1), name="sound")
        given["encoder_input_values"] = source
        given["encoder_padding_mask"] = ops.any(source != 0, axis=-1)
        values = random.normal(size=(4, 3000, 1)).astype("float32")
        values[1, 1500:] = 0
    elif name == "whisper":
        source = keras.Input((24, 5), name="features")
        given["encoder_features"] = source
        values = random.normal(size=(4, 24, 5)).astype("float32")
    else:
        source = keras.Input((None,), dtype="int32", name="source")
        mask = ops.cast(ops.not_equal(source, 0), "int32")
        given |= {"encoder_token_ids": source, "encoder_padding_mask": mask}
        values = random.integers(3, VOCABULARY, (4, 7)).astype("int32")
        values[1, 4:] = values[2, 1:] = 0
    hidden = backbone(given)["decoder_sequence_output"]
    if name.startswith("t5"):
        hidden = hidden * backbone.hidden_dim**-0.5
    logits = backbone.token_embedding(hidden, reverse=True)
    return keras.Model([source, target], logits), values


def some_ids(length):
    random = np.random.default_rng(3)
    return random.integers(3, VOCABULARY, (4, length)).astype("int32")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MODELS)
def test_steps_compute_what_the_whole_model_computes(name):
    model, source = model_of(name)
    cut = keras_attn.Incremental(model)
    target = some_ids(12)
    target[:, 0] = 1
    cut.check(source, target, length=14)
    whole = ops.convert_to_numpy(model([source, target]))
    encoded = cut.encode(ops.convert_to_tensor(source))
    state = cut.start(encoded, 1, 12)
    for i in range(12):
        logits, alignments, state = cut.step(
            target[:, i : i + 1], state, encoded
        )
        np.testing.assert_allclose(logits[:, 0], whole[:, i], atol=2e-4)
        np.testing.assert_allclose(
            ops.sum(alignments, -1), np.ones((4, 1)), atol=1e-5
        )


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MODELS)
def test_hypotheses_at_positions_of_their_own(name):
    model, source = model_of(name)
    cut = keras_attn.Incremental(model)
    target = some_ids(8)
    encoded = cut.encode(ops.convert_to_tensor(source))
    first, later = cut.start(encoded, 1, 8), cut.start(encoded, 1, 8)
    for i in range(5):
        _, _, later = cut.step(target[:, i : i + 1], later, encoded)
    both = keras.tree.map_structure(
        lambda x, y: ops.concatenate([x, y], axis=1), first, later
    )
    tokens = np.stack([target[:, 0], target[:, 5]], axis=1)
    found, _, _ = cut.step(tokens, both, encoded, apart=True)
    expected = [
        cut.step(tokens[:, i : i + 1], state, encoded)[0]
        for i, state in enumerate((first, later))
    ]
    np.testing.assert_allclose(found, ops.concatenate(expected, 1), atol=1e-4)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["bart", "t5", "moonshine"])
def test_greedy_search_finds_what_keras_hub_generates(name):
    model, source = model_of(name)
    (backbone,) = [x for x in model.layers if hasattr(x, "token_embedding")]
    hub = keras_hub.models
    task, steps = (
        {
            "bart": hub.BartSeq2SeqLM,
            "t5": hub.T5Seq2SeqLM,
            "moonshine": hub.MoonshineAudioToText,
        }[name](backbone, preprocessor=None),
        9,
    )
    task.compile(sampler="greedy")
    ids = np.zeros((4, 1 + steps), "int32")
    ids[:, 0] = 1
    given = {"decoder_token_ids": ids, "decoder_padding_mask": ids == 1}
    if name == "moonshine":
        given["encoder_input_values"] = source
        given["encoder_padding_mask"] = source[..., 0] != 0
    else:
        given["encoder_token_ids"] = source
        given["encoder_padding_mask"] = source != 0
    expected = task.generate(given, stop_token_ids=None)["decoder_token_ids"]
    cut = keras_attn.Incremental(model)
    encoded = cut.encode(ops.convert_to_tensor(source))
    state, last, found = cut.start(encoded, 1, steps), ids[:, :1], []
    for _ in range(steps):
        logits, _, state = cut.step(last, state, encoded)
        last = ops.cast(ops.argmax(logits, -1), "int32")
        found.append(last)
    found = ops.convert_to_numpy(ops.concatenate(found, axis=1))
    np.testing.assert_array_equal(found, expected[:, 1:])
    assert len(np.unique(found)) > 1


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["bart", "t5", "whisper", "moonshine"])
def test_a_beam_search_is_exported(name, tmp_path):
    model, source = model_of(name)
    tokens = [chr(ord("a") + i) for i in range(VOCABULARY - 4)]
    text, features = keras_attn.Text(tokens, split="characters"), None
    if name in ("bart", "t5"):
        features = text
        source = [
            "".join(tokens[i - 4] for i in row if i >= 4) for row in source
        ]
    made = keras_attn.Translator(
        model, features, text, keras_attn.BeamSearch(3, max_length=8)
    )
    found = made(source)
    whole = made.score(source, found)  # by the model, uncut
    np.testing.assert_allclose(
        [x.score for x in found], whole.scores, atol=1e-4
    )
    path = made.export(tmp_path)
    given = {
        "text" if features else model.inputs[0].name: (
            as_bytes(source) if features else source
        )
    }
    (answer,) = ask([(path, "serving_default", given, "c")])
    assert [x.decode() for x in answer["text"]] == found.text
