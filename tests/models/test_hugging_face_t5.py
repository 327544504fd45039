"""T5 of Hugging Face: what its files may say, and what they may not."""

import gzip
import shutil
import sys

import keras
import numpy as np
import pytest
import safetensors.numpy
from support.hugging_face import FIXTURES
from support.hugging_face import SAFE
from support.hugging_face import change
from support.hugging_face import copied
from support.hugging_face import read
from support.lazily import some

from keras_attn import Translator

HEAD, SETTINGS = "lm_head.weight", "tokenizer_config.json"
IDS = [
    np.array([[28, 21, 10, 6, 1], [7, 8, 1, 0, 0]], "int32"),
    np.array([[0, 4, 5], [0, 9, 9]], "int32"),
]
pytestmark = pytest.mark.filterwarnings("ignore:.*input with a mask")


@pytest.fixture
def folder(tmp_path):
    """A copy of a T5 with one matrix, to change."""
    return copied("t5", tmp_path)


def change_weights(path, **weights):
    """Adds or replaces weights; `None` removes one."""
    found = safetensors.numpy.load_file(path / SAFE) | weights
    found = {x: y for x, y in found.items() if y is not None}
    safetensors.numpy.save_file(found, path / SAFE)


def logits(model):
    return model.predict(IDS, verbose=0)


SCALED = {
    "two matrices": ({"tie_word_embeddings": False}, False),
    "one matrix": ({"tie_word_embeddings": True}, True),
    "by its field": ({"scale_decoder_outputs": False}, False),
    "by its field alone": (
        {"tie_word_embeddings": False, "scale_decoder_outputs": True},
        True,
    ),
    "no field": ({}, True),
    "mT5": ({"model_type": "mt5", "tie_word_embeddings": True}, False),
    "mT5 by a field": (
        {"model_type": "mt5", "scale_decoder_outputs": True},
        False,
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", some(SCALED, ["two matrices"]))
def test_outputs_are_scaled_as_the_fields_say(name, folder):
    fields, is_scaled = SCALED[name]
    before = logits(read(folder))
    without = "tie_word_embeddings", "scale_decoder_outputs"
    change(folder, without=without, **fields)
    factor = 1 if is_scaled else 10**0.5
    found = logits(read(folder))
    np.testing.assert_allclose(found, before * factor, atol=1e-4)


@pytest.mark.full
def test_the_logits_have_a_matrix_of_their_own_if_it_differs(folder):
    embedding = safetensors.numpy.load_file(folder / SAFE)["shared.weight"]
    before = logits(read(folder))
    change_weights(folder, **{HEAD: embedding.copy()})
    assert read(folder).embedding.tie_weights
    change_weights(folder, **{HEAD: embedding[::-1].copy()})
    model = read(folder)
    assert not model.embedding.tie_weights
    np.testing.assert_allclose(logits(model), before[..., ::-1], atol=1e-5)


@pytest.mark.full
def test_what_the_tensorflow_classes_wrote_is_read(tmp_path):
    folder = copied("mt5", tmp_path)
    expected = logits(read(folder))
    packed = FIXTURES / "hugging_face_files/h5_mt5/tf_model.h5.gz"
    (folder / SAFE).unlink()
    (folder / "tf_model.h5").write_bytes(gzip.decompress(packed.read_bytes()))
    np.testing.assert_array_equal(logits(read(folder)), expected)


@pytest.mark.full
def test_what_old_files_hold_beside_is_left_or_compared(folder):
    expected = logits(read(folder))
    embedding = safetensors.numpy.load_file(folder / SAFE)["shared.weight"]
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias"
    change_weights(
        folder,
        **{
            f"{name}.weight": np.ones((32, 3), "float32"),
            "encoder.embed_tokens.weight": embedding,
            "decoder.embed_tokens.weight": embedding,
        },
    )
    np.testing.assert_array_equal(logits(read(folder)), expected)
    change_weights(folder, **{"decoder.embed_tokens.weight": embedding + 1})
    with pytest.raises(ValueError, match="decoder.embed_tokens.* a copy"):
        read(folder)


REFUSED = {
    "numbers of buckets": (
        {"relative_attention_num_buckets": 16},
        "num_buckets",
    ),
    "distances": ({"relative_attention_max_distance": 64}, "max_distance"),
    "activation": ({"feed_forward_proj": "gated-snake"}, "one of gated-gelu"),
    "a list": ({"feed_forward_proj": ["relu"]}, "one of gated-gelu"),
    "epsilon": ({"layer_norm_epsilon": 0}, "a number above 0"),
    "sizes of heads": ({"d_kv": 5}, "must have the shape"),
    "too few weights": ({"num_decoder_layers": 2}, "decoder.block.1"),
    "too many weights": ({"num_layers": 1}, "encoder.block.1"),
    "another family": ({"model_type": "umt5"}, "'umt5'"),
    "a gate": ({"feed_forward_proj": "gated-gelu"}, "wi_0"),
}


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", some(REFUSED, ["another family", "a gate"]))
def test_other_models_are_refused(name, folder):
    fields, message = REFUSED[name]
    change(folder, **fields)
    with pytest.raises(ValueError, match=message):
        read(folder)


@pytest.mark.full
def test_a_dtype_is_that_of_all_layers_and_kept(folder):
    model = read(folder, "bfloat16")
    kinds = {x.dtype for x in model.weights}
    assert kinds == {"bfloat16"}
    config = keras.saving.serialize_keras_object(model)
    again = keras.saving.deserialize_keras_object(config)
    assert {x.dtype for x in again.weights} == kinds
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(logits(again), logits(model))


@pytest.mark.full
def test_tokens_for_spans_are_written(folder):
    translator = Translator.from_hugging_face(folder, special_tokens=True)
    text = translator.source_text
    (ids,) = text.source_ids(["The <extra_id_0> sleeps."]).numpy()
    first = text.tokens.index("<extra_id_0>")
    assert first == 199 and first in ids
    assert first not in translator.target_text.special.never_written
    (line,) = translator.target_text.strings([[first, *ids[:2], 1]]).numpy()
    assert line.decode().startswith("<extra_id_0>")


def test_ids_have_no_special_tokens_to_spell(folder):
    with pytest.raises(ValueError, match="special_tokens=True and ids=True"):
        Translator.from_hugging_face(folder, ids=True, special_tokens=True)


def test_float16_is_refused(folder):
    with pytest.raises(ValueError, match="cannot compute in float16"):
        read(folder, "mixed_float16")


@pytest.mark.full
def test_bytes_need_no_file_and_no_spans(tmp_path):
    folder = copied("byt5", tmp_path)
    other = FIXTURES / "hugging_face/t5/said/tokenizer.json"
    shutil.copy(other, folder)  # left by another model
    change(folder, SETTINGS, extra_ids=0)
    translator = Translator.from_hugging_face(folder, special_tokens=True)
    text = translator.source_text
    assert text.tokens[259].startswith("<unused")
    (ids,) = text.source_ids(["a<extra_id_0>"]).numpy().tolist()
    assert ids == [x + 3 for x in b"a<extra_id_0>"] + [1]


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"additional_special_tokens": ["<sep>"]}, "'<sep>' with the id 200"),
        ({"extra_ids": "100"}, "`extra_ids` in `tokenizer_config.json`"),
        ({"extra_ids": 101}, "must have no more tokens"),
    ],
    ids=["another token", "no number", "too many"],
)
def test_settings_of_other_tokenizers_are_refused(fields, message, folder):
    change(folder, SETTINGS, **fields)
    with pytest.raises(ValueError, match=message):
        Translator.from_hugging_face(folder)


@pytest.mark.full
def test_settings_that_say_nothing_are_left_out(tmp_path):
    folder = copied("byt5", tmp_path)
    change(folder, tokenizer_class="ByT5Tokenizer", bos_token_id=5)
    change(folder, SETTINGS, tokenizer_class=None, extra_ids=None)
    text = Translator.from_hugging_face(folder).source_text
    assert text.tokens[259] == "<extra_id_0>"


@pytest.mark.parametrize(
    "field", ["pad_token_id", "eos_token_id", "decoder_start_token_id"]
)
def test_special_tokens_must_be_of_the_vocabulary(field, folder):
    (folder / "generation_config.json").unlink()
    change(folder, **{field: 999})
    with pytest.raises(ValueError, match="Received: 999 for"):
        Translator.from_hugging_face(folder)


def test_it_needs_keras_hub(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ImportError, match="needs KerasHub 0.32"):
        read(folder)
