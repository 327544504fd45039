"""KerasHub's encoder-decoders, cut into steps, compute what they are.

Their weights are random. KerasHub gives its results at once, uncached.
"""

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops
from support import hub_models
from support.exports import as_bytes
from support.hub_models import MODELS
from support.hub_models import VOCABULARY
from support.hub_models import family
from support.hub_models import model_of
from support.hub_models import sources_of
from support.hub_models import with_masks
from support.lazily import ask

import keras_attn

pytestmark = [
    pytest.mark.full,
    # KerasHub's T5 makes it, of masks that it derives by itself.
    pytest.mark.filterwarnings("ignore:.*T5MultiHeadAttention"),
    # Keras makes it where a target has one token.
    pytest.mark.filterwarnings("ignore:.*softmax over axis"),
]


def some_ids(length):
    random = np.random.default_rng(3)
    return random.integers(3, VOCABULARY, (4, length)).astype("int32")


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("name", MODELS)
def test_steps_compute_what_the_whole_model_computes(name):
    _, model, sources = model_of(name)
    cut = keras_attn.Incremental(model)
    target = some_ids(12)
    target[:, 0] = 1
    cut.check(*sources, target, length=14)
    whole = ops.convert_to_numpy(model([*sources, target]))
    encoded = cut.encode(*map(ops.convert_to_tensor, sources))
    state = cut.start(encoded, 1, 12)
    for i in range(12):
        logits, alignments, state = cut.step(
            target[:, i : i + 1], state, encoded
        )
        np.testing.assert_allclose(logits[:, 0], whole[:, i], atol=2e-4)
        np.testing.assert_allclose(
            ops.sum(alignments, -1), np.ones((4, 1)), atol=1e-5
        )


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["t5gemma2", "t5gemma"])
def test_alignments_are_the_weights_on_the_source(name, monkeypatch):
    backbone, model, sources = model_of(name)
    block = backbone.decoder_layers[-1]
    attention = getattr(block, "merged_attn", None) or block.cross_attn
    softmax, found = attention.softmax, []

    def kept(scores):
        found.append(softmax(scores))
        return found[-1]

    monkeypatch.setitem(vars(attention), "softmax", kept)
    target = some_ids(6)
    model([*sources, target])
    # The last keys are those of the source, of both kinds of attention.
    expected = np.mean(found[-1][..., -sources[0].shape[1] :], axis=1)
    expected /= expected.sum(axis=-1, keepdims=True)
    cut = keras_attn.Incremental(model)
    encoded = cut.encode(*map(ops.convert_to_tensor, sources))
    state = cut.start(encoded, 1, 6)
    for i in range(6):
        _, alignments, state = cut.step(target[:, i : i + 1], state, encoded)
        np.testing.assert_allclose(alignments[:, 0], expected[:, i], atol=1e-5)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", MODELS)
def test_hypotheses_at_positions_of_their_own(name):
    _, model, sources = model_of(name)
    cut = keras_attn.Incremental(model)
    target = some_ids(8)
    encoded = cut.encode(*map(ops.convert_to_tensor, sources))
    first, later = cut.start(encoded, 1, 8), cut.start(encoded, 1, 8)
    for i in range(5):
        _, _, later = cut.step(target[:, i : i + 1], later, encoded)
    both = keras.tree.map_structure(
        lambda x, y: ops.concatenate([x, y], axis=1), first, later
    )
    tokens = np.stack([target[:, 0], target[:, 5]], axis=1)
    found, _, _ = cut.step(tokens, both, encoded, per_row_position=True)
    expected = [
        cut.step(tokens[:, i : i + 1], state, encoded)[0]
        for i, state in enumerate((first, later))
    ]
    np.testing.assert_allclose(found, ops.concatenate(expected, 1), atol=1e-4)


# Whisper has no task of its own; pictures are asked for by markers in a text.
GENERATES = [x for x in MODELS if x not in ("whisper", "t5gemma2, pictures")]


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", GENERATES)
def test_greedy_search_finds_what_keras_hub_generates(name):
    backbone, model, sources = model_of(name)
    hub = keras_hub.models
    kind = {
        "bart": hub.BartSeq2SeqLM,
        "blip2": hub.BLIP2Seq2SeqLM,
        "t5": hub.T5Seq2SeqLM,
        "moonshine": hub.MoonshineAudioToText,
        "edrec": hub.EdRecSeq2SeqLM,
        "t5gemma": hub.T5GemmaSeq2SeqLM,
        "t5gemma2": hub.T5Gemma2Seq2SeqLM,
    }[family(name)]
    task, steps = kind(backbone, preprocessor=None), 9
    if family(name) == "edrec":
        task.lm_head.set_weights(model.layers[-1].get_weights())
    task.compile(sampler="greedy")
    ids = np.zeros((4, 1 + steps), "int32")
    ids[:, 0] = 1
    given = {**sources_of(name), "decoder_token_ids": ids}
    given = with_masks(backbone, given)
    given["decoder_padding_mask"] = ids == 1
    given = {key: ops.convert_to_numpy(x) for key, x in given.items()}
    expected = task.generate(given, stop_token_ids=None)["decoder_token_ids"]
    cut = keras_attn.Incremental(model)
    encoded = cut.encode(*map(ops.convert_to_tensor, sources))
    state, last, found = cut.start(encoded, 1, steps), ids[:, :1], []
    for _ in range(steps):
        logits, _, state = cut.step(last, state, encoded)
        last = ops.cast(ops.argmax(logits, -1), "int32")
        found.append(last)
    found = ops.convert_to_numpy(ops.concatenate(found, axis=1))
    np.testing.assert_array_equal(found, expected[:, 1:])
    assert len(np.unique(found)) > 1


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", dict.fromkeys(map(family, MODELS)))
def test_a_beam_search_is_exported(name, tmp_path):
    _, model, sources = model_of(name)
    tokens = [chr(ord("a") + i) for i in range(VOCABULARY - 4)]
    text = keras_attn.Text(tokens, split="characters")
    names = [x.name for x in model.inputs[:-1]]
    given, texts = dict(zip(names, sources, strict=True)), None
    if "encoder_token_ids" in given:
        ids = given["encoder_token_ids"]
        lines = ["".join(tokens[i - 4] for i in row if i >= 4) for row in ids]
        given["encoder_token_ids"] = lines
        texts = {"encoder_token_ids": text} if len(names) > 1 else text
    source = given if len(names) > 1 else given[names[0]]
    made = keras_attn.Translator(
        model, texts, text, keras_attn.BeamSearch(3, max_length=8)
    )
    found = made(source)
    whole = made.score(source, found)  # by the model, uncut
    np.testing.assert_allclose(
        [x.score for x in found], whole.scores, atol=1e-4
    )
    path = made.export(tmp_path)
    if "encoder_token_ids" in given:
        given["encoder_token_ids"] = as_bytes(lines)
        if len(names) == 1:
            given = {"text": given["encoder_token_ids"]}
    (answer,) = ask([(path, "serving_default", given, "c")])
    assert [x.decode() for x in answer["text"]] == found.text


def moonshine_block(x, memory, **given):
    block = hub_models.moonshine().decoder_blocks[0]
    return block(x, memory, **given)


def t5gemma_block(x, memory, **given):
    sizes = "encoder_hidden_dim", "decoder_hidden_dim", "decoder_head_dim"
    options = dict.fromkeys(sizes, 8)
    block = hub_models.t5gemma(**options).decoder_layers[0]
    return block((x, memory), **given)


def t5_block(x, memory, **given):
    block = hub_models.t5().decoder_transformer_layers[0]
    return block(x, encoder_hidden_states=memory, **given)[0]


# Functions that call a block, and a part of the error about it.
REFUSED = {
    "angles that no layer gives": (
        lambda x, memory: moonshine_block(
            x, memory, rotary_embedding=np.ones((1, 2), "float32")
        ),
        "has a `rotary_embedding` that is not the output of a "
        "`MoonshineRotaryEmbedding`",
    ),
    "angles of another layer": (
        lambda x, memory: moonshine_block(
            x, memory, rotary_embedding=ops.sum(memory[..., :2], axis=(0, 1))
        ),
        "has a `rotary_embedding` that is not the output of a "
        "`MoonshineRotaryEmbedding`",
    ),
    "a mask of pairs": (
        lambda x, memory: moonshine_block(
            x,
            memory,
            rotary_embedding=ops.sum(memory[..., :2], axis=(0, 1)),
            encoder_attention_mask=memory[:, None, :, 0] > 0,
        ),
        "has `encoder_attention_mask`; leave it out",
    ),
    "a source that is the target": (
        lambda x, memory: t5gemma_block(x, x)[0],
        "has a `inputs[1]` that depends on the target",
    ),
    "a mask of the target from the source": (
        lambda x, memory: t5gemma_block(
            x, memory, self_attention_padding_mask=memory[..., 0] > 0
        )[0],
        "has a `self_attention_padding_mask` that does not depend on the",
    ),
    "caches as results": (
        lambda x, memory: keras.layers.Lambda(
            lambda cache: ops.mean(cache[:, 0], axis=-2)
        )(t5gemma_block(x, memory)[1][0]),
        "returns caches beside the hidden states",
    ),
    "a target without order": (
        lambda x, memory: t5_block(x, memory),
        "call it with `use_causal_mask=True`",
    ),
    "a bias of another kind": (
        lambda x, memory: t5_block(
            x,
            memory,
            use_causal_mask=True,
            position_bias=keras.layers.Lambda(lambda x: x[:, None, :, :1])(x),
        ),
        "has a `position_bias` that is not the second output of a block",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_said_how_a_block_can_be_called(name):
    build, said = REFUSED[name]
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    memory = keras.layers.Embedding(VOCABULARY, 8)(source)
    x = keras.layers.Embedding(VOCABULARY, 8)(target)
    x = keras_attn.ScaledDotAttention()(build(x, memory), memory)
    model = keras.Model([source, target], keras.layers.Dense(VOCABULARY)(x))
    with pytest.raises(ValueError) as refused:
        keras_attn.Incremental(model)
    assert said in str(refused.value), str(refused.value)


def test_the_decoder_of_parseq_is_named_as_what_needs_a_stepper():
    image = keras.Input((8, 8, 3))
    target = keras.Input((None,), dtype="int32")
    mask = ops.ones_like(target)
    given = {"images": image, "token_ids": target, "padding_mask": mask}
    model = keras.Model([image, target], hub_models.parseq()(given))
    with pytest.raises(ValueError) as refused:
        keras_attn.Incremental(model)
    for said in ("'decoder' (PARSeqDecoder)", "write a `keras_attn.Stepper`"):
        assert said in str(refused.value)
