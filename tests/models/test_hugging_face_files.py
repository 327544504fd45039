"""Files of Hugging Face: each format, and what is wrong with them."""

import dataclasses
import json
import pathlib
import pickle
import shutil
import zipfile

import keras
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from support.hugging_face import FIXTURES
from support.hugging_face import MODELS
from support.hugging_face import SAFE
from support.hugging_face import change
from support.hugging_face import copied
from support.hugging_face import read

from keras_attn import GreedySearch
from keras_attn import Sampling
from keras_attn import Translator
from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.generation import Generation
from keras_attn.models.hugging_face.weights import pickled
from keras_attn.models.hugging_face.weights.h5 import H5Weights
from keras_attn.models.hugging_face.weights.pickled import PickledWeights
from keras_attn.models.hugging_face.weights.safe import SafeWeights

MARIAN = MODELS / "marian"
PICKLED = FIXTURES / "hugging_face_files/pickled/pytorch_model.bin"
READERS = {SafeWeights: SAFE, H5Weights: "*.h5", PickledWeights: "*.bin"}


@pytest.fixture
def folder(tmp_path):
    """A copy of a model, to change."""
    return copied("marian", tmp_path)


def arrays():
    return safetensors.numpy.load_file(MARIAN / SAFE)


def assert_equal(model, other):
    pairs = zip(model.weights, other.weights, strict=True)
    for x, y in pairs:
        np.testing.assert_array_equal(x, y, err_msg=x.path)


@pytest.fixture(scope="module")
def marian():
    return read(MARIAN)


@pytest.mark.parametrize("kind", ["h5", "pickled", "shards"])
def test_each_format_has_the_same_weights(kind, folder, marian):
    (folder / SAFE).unlink()
    if kind == "shards":
        names = sorted(arrays())
        parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
        for file, some in parts.items():
            safetensors.numpy.save_file(
                {x: arrays()[x] for x in some}, folder / file
            )
        places = {x: file for file, some in parts.items() for x in some}
        (folder / f"{SAFE}.index.json").write_text(
            json.dumps({"weight_map": places})
        )
    else:
        for path in (FIXTURES / "hugging_face_files" / kind).iterdir():
            shutil.copy(path, folder)
    assert_equal(read(folder), marian)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_cast_or_kept(dtype, folder):
    half = {x: y.astype(dtype) for x, y in arrays().items()}
    safetensors.numpy.save_file(half, folder / SAFE)
    name = np.dtype(dtype).name
    for policy, expected in ((None, "float32"), (name, name)):
        model = read(folder, policy)
        assert {x.dtype for x in model.weights} == {expected}
        found = model.get_layer("decoder_0_inner").kernel
        theirs = half["model.decoder.layers.0.fc1.weight"].T
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(keras.ops.cast(found, "float32")),
            theirs.astype("float32"),
        )


def test_no_variable_is_copied_when_it_is_read(marian):
    """TensorFlow does so for good if a part of a variable was written."""
    for x in marian.weights:
        read = [x.value.read_value() for _ in range(2)]
        arrays = [np.asarray(memoryview(one)) for one in read]
        assert np.shares_memory(*arrays), x.path


def test_the_policy_of_keras_stays():
    before = keras.config.dtype_policy()
    read(MARIAN, "bfloat16")
    assert keras.config.dtype_policy() == before


def test_what_old_files_hold_beside_is_compared(folder, marian):
    old = arrays()
    embedding = old["model.shared.weight"]
    positions = marian.get_layer("encoder_positions")
    table = np.asarray(positions(np.zeros((1, 80, 16))))[0]
    old |= {
        "lm_head.weight": embedding,
        "model.encoder.embed_tokens.weight": embedding,
        "model.encoder.embed_positions.weight": table,
        "model.encoder.version": np.zeros(1, "float32"),
    }
    safetensors.numpy.save_file(old, folder / SAFE)
    assert_equal(read(folder), marian)
    for name in ("lm_head.weight", "model.encoder.embed_positions.weight"):
        wrong = old | {name: old[name] + 1}
        safetensors.numpy.save_file(wrong, folder / SAFE)
        short = name.removeprefix("model.")
        with pytest.raises(ValueError, match=f"'{short}' must be a copy"):
            read(folder)


def test_a_matrix_of_its_own_makes_the_logits(folder):
    own = arrays()
    own["lm_head.weight"] = own["model.shared.weight"][::-1].copy()
    safetensors.numpy.save_file(own, folder / SAFE)
    change(folder, tie_word_embeddings=False)
    embedding = read(folder).get_layer("embedding")
    np.testing.assert_array_equal(
        embedding.reverse_embeddings, own["lm_head.weight"].T
    )


@pytest.mark.parametrize(
    "name, change_of, message",
    [
        ("model.shared.weight", None, "none named 'shared.weight'"),
        ("model.encoder.layers.0.fc1.bias", None, "encoder.layers.0.fc1.bias'"),
        ("more.weight", np.ones(3, "float32"), "more.weight. Both files"),
        ("model.encoder.layers.0.fc1.bias", np.ones(3, "float32"), r"\(3,\)"),
    ],
    ids=["no embedding", "no bias", "one more", "another shape"],
)
def test_each_weight_has_its_place(name, change_of, message, folder):
    found = arrays()
    found.pop(name, None)
    if change_of is not None:
        found[name] = change_of
    safetensors.numpy.save_file(found, folder / SAFE)
    with pytest.raises(ValueError, match=message):
        read(folder)


FIELDS = {
    "another family": ({"model_type": "bert"}, "model_type='bert'"),
    "no family": ({"model_type": None}, "model_type=None"),
    "not known": ({"rotary_dim": 4}, "rotary_dim=4"),
    "another order": ({"normalize_before": True}, "`normalize_before`"),
    "activation": ({"activation_function": "snake"}, "activation_function"),
    "text for a number": ({"d_model": "16"}, "`d_model` in `config.json`"),
    "heads": ({"encoder_attention_heads": 3}, "must divide `d_model`"),
    "rate": ({"dropout": 2}, "a rate from 0 to 1"),
    "an encoder": ({"is_encoder_decoder": False}, "`is_encoder_decoder`"),
    "another width": ({"d_model": 32}, "must have the shape"),
    "no numbers": ({"bos_token_id": "0"}, "`bos_token_id`"),
    "too few tokens": ({"vocab_size": 100}, "must be below `vocab_size`"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_that_would_change_results_are_refused(name, folder):
    fields, message = FIELDS[name]
    change(folder, **fields)
    with pytest.raises(ValueError, match=message):
        Translator.from_hugging_face(folder)


def test_fields_of_old_files_are_known(folder, marian):
    change(
        folder,
        add_final_layer_norm=False,
        normalize_before=False,
        static_position_embeddings=True,
        num_beams=6,
        task_specific_params={"translation": {}},
        my_note="",
    )
    assert_equal(read(folder), marian)


def test_what_is_no_directory_is_refused(tmp_path):
    with pytest.raises(ValueError, match="hf download Helsinki-NLP/opus-mt-en"):
        Translator.from_hugging_face("Helsinki-NLP/opus-mt-en-fr")
    with pytest.raises(ValueError, match="needs a `config.json`"):
        Translator.from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("config.json", "version https://git-lfs", "must be JSON"),
        ("config.json", "[1]", "an object of JSON"),
        (SAFE, "version https://git-lfs", "a file of safetensors"),
        (SAFE, None, "needs weights"),
        ("vocab.json", None, "needs the file `vocab.json`"),
        ("vocab.json", '{"<unk>": 1, "</s>": 3}', "the ids from 0 on"),
        ("source.spm", None, "needs the file `source.spm`"),
        ("source.spm", "no model", "SentencePiece"),
    ],
)
def test_files_that_are_not_what_they_should_be(name, content, message, folder):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        Translator.from_hugging_face(folder)


def test_a_shard_that_is_missing_is_named(folder):
    (folder / SAFE).rename(folder / "one.safetensors")
    places = dict.fromkeys(arrays(), "one.safetensors")
    places["model.shared.weight"] = "two.safetensors"
    (folder / f"{SAFE}.index.json").write_text(
        json.dumps({"weight_map": places})
    )
    with pytest.raises(ValueError, match="needs the file `two.safetensors`"):
        read(folder)


class _Runs:
    """An object whose pickle runs a command."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self._path,)


def archive(path, content, **more):
    """Writes a file as PyTorch does."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", content)
        for name, value in more.items():
            file.writestr(f"archive/{name}", value)


def test_a_pickle_runs_nothing(folder):
    (folder / SAFE).unlink()
    ran = folder / "ran"
    path = folder / "pytorch_model.bin"
    for content in (_Runs(ran), {"weight": _Runs(ran)}, print, np.ones(2)):
        archive(path, pickle.dumps(content))
        with pytest.raises(ValueError, match="must name tensors alone"):
            read(folder)
    for protocol in range(6):
        archive(path, pickle.dumps(_Runs(ran), protocol))
        with pytest.raises(ValueError, match="must name tensors alone"):
            read(folder)
    assert not ran.exists()


@pytest.mark.parametrize(
    "content, message",
    [
        (pickle.dumps([1, 2]), "must have tensors by name"),
        (pickle.dumps({"a": 1}), "must have tensors by name"),
        (pickle.dumps({"a": 1})[:-3], "a whole pickle"),
        (b"", "a whole pickle"),
        (b"(S'storage'\nQ.", "a storage of numbers"),
    ],
    ids=["a list", "numbers", "cut off", "empty", "a strange storage"],
)
def test_pickles_of_other_things(content, message, folder):
    (folder / SAFE).unlink()
    archive(folder / "pytorch_model.bin", content)
    with pytest.raises(ValueError, match=message):
        read(folder)


@pytest.mark.parametrize(
    "change_of, message",
    [
        (lambda x: x[: len(x) // 2], "must be a zip archive"),
        (lambda x: b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "since 1.6"),
    ],
    ids=["cut off", "of old PyTorch"],
)
def test_files_of_pytorch_that_are_broken(change_of, message, folder):
    (folder / SAFE).unlink()
    path = folder / "pytorch_model.bin"
    path.write_bytes(change_of(PICKLED.read_bytes()))
    with pytest.raises(ValueError, match=message):
        read(folder)


@pytest.mark.parametrize(
    "kept, message",
    [(0, "no whole"), (64, "must lie within its numbers")],
    ids=["without numbers", "too few numbers"],
)
def test_a_tensor_without_its_numbers_is_refused(kept, message, folder):
    (folder / SAFE).unlink()
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(PICKLED) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if "/data/" in name and len(content) > 100:
                content = content[:kept]
            if content:
                new.writestr(name, content)
    with pytest.raises(ValueError, match=message):
        read(folder)


def test_arguments_that_it_sets_itself_are_refused():
    with pytest.raises(ValueError, match="`from_hugging_face` makes the model"):
        Translator.from_hugging_face(MARIAN, source_text=None)


def test_rows_are_those_of_the_whole(folder):
    for path in (FIXTURES / "hugging_face_files/h5").iterdir():
        shutil.copy(path, folder)
    shutil.copy(PICKLED, folder)
    for kind, names in READERS.items():
        weights = kind(next(folder.glob(names)))
        for name in weights.names():
            whole = weights.read(name)
            assert weights.shape(name) == whole.shape
            if whole.ndim == 2:
                rows = weights.read(name, 0, 1)
                np.testing.assert_array_equal(rows, whole[:1])
                last = len(whole)
                rows = weights.read(name, last - 1, last)
                np.testing.assert_array_equal(rows, whole[-1:])


def test_a_transposed_tensor_of_pytorch_is_read():
    weights = PickledWeights(PICKLED)
    name = "model.encoder.layers.0.fc1.weight"
    storage, offset, shape, strides = weights._tensors[name]
    turned = type(weights._tensors[name])(
        storage, offset, shape[::-1], strides[::-1]
    )
    whole = weights.read(name)
    weights._tensors[name] = turned
    np.testing.assert_array_equal(weights.read(name), whole.T)
    np.testing.assert_array_equal(weights.read(name, 2, 5), whole.T[2:5])


def _state(name, content):
    """Returns a pickle that gives what a name stands for a state."""
    module, _, short = name.rpartition(".")
    return f"c{module}\n{short}\n".encode() + content + b"b0}."


def test_a_pickle_changes_nothing(folder):
    (folder / SAFE).unlink()
    path = folder / "pytorch_model.bin"
    before = np.arange(4).astype(ml_dtypes.bfloat16).tobytes()
    size = b"J\x00\x10\x00\x00"
    state = b"(K\x03X\x01\x00\x00\x00<NNN" + size * 2 + b"J@\x00\x00\x00t"
    slots = b"N}X\x0c\x00\x00\x00__defaults__(K\x01ts\x86"
    for content in (
        _state("torch.BFloat16Storage", state),
        _state("torch._utils._rebuild_tensor_v2", slots),
    ):
        archive(path, b"\x80\x02" + content)
        with pytest.raises(ValueError, match="needs weights|none named"):
            read(folder)
    assert np.dtype(ml_dtypes.bfloat16).itemsize == 2
    assert np.arange(4).astype(ml_dtypes.bfloat16).tobytes() == before
    assert pickled._tensor.__defaults__ is None


def test_matrices_of_their_own_for_source_and_target(folder):
    own = arrays()
    table = own["model.shared.weight"]
    for i, name in enumerate(
        ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    ):
        own[f"{name}.weight"] = table + i + 1
    safetensors.numpy.save_file(own, folder / SAFE)
    change(folder, tie_word_embeddings=False)
    model = read(folder)
    source = model.get_layer("source_embedding").embeddings
    target = model.get_layer("target_embedding")
    np.testing.assert_allclose(source, table + 1, rtol=1e-5)
    np.testing.assert_allclose(target.embeddings, table + 2, rtol=1e-5)
    np.testing.assert_allclose(
        target.reverse_embeddings, table.T + 3, rtol=1e-5
    )


def test_whole_numbers_are_no_weights(folder):
    own = arrays()
    name = "model.encoder.layers.0.fc1.weight"
    own[name] = own[name].astype("int8")
    safetensors.numpy.save_file(own, folder / SAFE)
    with pytest.raises(ValueError, match="Weights must be numbers with a poi"):
        read(folder)


def test_an_index_that_names_no_files_is_refused(folder):
    (folder / SAFE).unlink()
    index = {"weight_map": {"model.shared.weight": 5}}
    (folder / f"{SAFE}.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="the file of each weight"):
        read(folder)


@pytest.mark.parametrize(
    "fields", [{"d_model": 15}, {"decoder_start_token_id": 1}]
)
def test_positions_of_m2m_100_must_be_known(fields, tmp_path):
    shutil.copytree(FIXTURES / "hugging_face/m2m_100", tmp_path / "model")
    change(tmp_path / "model", **fields)
    with pytest.raises(ValueError, match="must have an even `d_model`"):
        read(tmp_path / "model")


def test_a_start_of_generation_must_have_a_position_too(tmp_path):
    shutil.copytree(FIXTURES / "hugging_face/m2m_100", tmp_path / "model")
    name = "generation_config.json"
    change(tmp_path / "model", name, decoder_start_token_id=1)
    with pytest.raises(ValueError, match="must have an even `d_model`"):
        Translator.from_hugging_face(
            tmp_path / "model", source="en", target="fr"
        )


def searched(**given):
    """Returns the search of the tiny Marian with other fields."""
    generation = Generation.of(Directory(MODELS / "marian"), given)
    return generation.search(begun=(111,), end=0, longest=None)


def test_fields_of_the_search_are_replaced():
    own = searched()
    assert own.num_beams > 1
    changed = searched(num_beams=2, num_return_sequences=1, length_penalty=0.6)
    assert changed == dataclasses.replace(
        own, num_beams=2, num_hypotheses=1, length_penalty=0.6
    )
    greedy = searched(num_beams=1)
    assert greedy == GreedySearch(
        **{
            x.name: getattr(own, x.name)
            for x in dataclasses.fields(GreedySearch)
        }
    )
    assert searched(no_repeat_ngram_size=None).no_repeat_ngram == 0
    whole = searched(min_length=40)  # longer than the maximum
    assert whole.min_length == whole.max_length == 17
    drawn = searched(num_beams=1, do_sample=True, top_p=0.9)
    assert isinstance(drawn, Sampling) and drawn.top_p == 0.9


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"beams": 2}, "must have fields that .* Received: beams=2"),
        ({"beams": None}, "must have fields that .* Received: beams=None"),
        (
            {"num_beams": 1, "length_penalty": 0.6},
            "length_penalty=0.6, without",
        ),
        ({"num_beams": 1, "top_k": 5}, "top_k=5, without .*do_sample=False"),
        ({"use_cache": False}, "use_cache=False, without"),
        (
            {"num_beams": 2, "num_return_sequences": 3},
            "num_return_sequences=3, without effect for num_beams=2",
        ),
        ({"num_beams": "4"}, "integer of at least 1. Received: num_beams='4'"),
        ({"num_beams": 0}, "at least 1. Received: num_beams=0"),
        ({"num_beams": True}, "at least 1. Received: num_beams=True"),
        ({"max_length": -5}, "at least 1. Received: max_length=-5"),
        ({"max_length": 10.5}, "at least 1. Received: max_length=10.5"),
        ({"length_penalty": float("nan")}, "a number. Received"),
        ({"length_penalty": [1]}, "a number. Received"),
        ({"repetition_penalty": 0}, "above 0. Received"),
        ({"do_sample": 1}, "true or false. Received"),
        ({"bad_words_ids": [5]}, "list of lists of ids. Received"),
        ({"bad_words_ids": 5}, "list of lists of ids. Received"),
        ({"suppress_tokens": 5}, "list of ids. Received"),
        ({"forced_bos_token_id": [5]}, "an id, .*Received"),
        ({"forced_eos_token_id": [5, 2]}, "forces one token .*Received"),
        (
            {"forced_eos_token_id": 7, "bad_words_ids": [[7]]},
            "must come last must not be forbidden. Received: the id 7",
        ),
    ],
)
def test_a_field_without_effect_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        searched(**given)


def test_fields_may_be_arrays_and_tuples():
    found = searched(
        num_beams=np.int64(2),
        num_return_sequences=1,
        bad_words_ids=np.array([[5], [6]]),
        suppress_tokens=(7,),
    )
    assert found.num_beams == 2
    (rule,) = [x for x in found.rules if hasattr(x, "sequences")]
    assert {5, 6, 7} <= {x[-1] for x in rule.sequences}


def test_a_given_length_replaces_the_other_name_of_it(folder):
    name = "generation_config.json"
    change(folder, name, max_new_tokens=12, min_new_tokens=4)
    directory = Directory(folder)
    for given, most, fewest in (
        ({}, 12, 5),
        ({"max_length": 8}, 7, 5),
        ({"min_length": 2}, 12, 2),
    ):
        found = Generation.of(directory, given).search((111,), 0, None)
        assert (found.max_length, found.min_length) == (most, fewest)


@pytest.mark.full
def test_sources_end_as_the_tokenizer_ends_them(folder):
    change(folder, "generation_config.json", eos_token_id=9)
    found = Translator.from_hugging_face(folder, ids=True)
    assert found.target_text.special.end == 9
    assert found.source_text.special.ends_source == (0,)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"eos_token_id": 500}, "below `vocab_size`. Received: 500 for end"),
        ({"forced_bos_token_id": 500}, "Received: 500 for first token"),
        ({"eos_token_id": 111}, "must be different tokens. Received: the id"),
        ({"num_beams": "4"}, "integer of at least 1. Received: num_beams='4'"),
    ],
)
def test_ids_and_values_of_files_are_checked(changes, said, folder):
    change(folder, "generation_config.json", **changes)
    with pytest.raises(ValueError, match=said):
        Translator.from_hugging_face(folder)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            "tokenizer_config.json",
            '{"added_tokens_decoder": {"5": "x"}}',
            "must name added tokens as transformers writes",
        ),
        ("added_tokens.json", '{"x": "abc"}', "must name added tokens"),
        ("source.spm", "", "`source.spm` must be a model of SentencePiece"),
        ("source.spm", "any", "`source.spm` must be a model of SentencePiece"),
    ],
)
def test_files_of_a_tokenizer_are_checked(file, content, said, folder):
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=said):
        Translator.from_hugging_face(folder)


def test_padding_has_one_id(folder):
    ids = json.loads((folder / "vocab.json").read_text())
    ids = {x: 111 - i for x, i in ids.items()}
    (folder / "vocab.json").write_text(json.dumps(ids))
    with pytest.raises(ValueError, match="Padding must have one id"):
        Translator.from_hugging_face(folder)


def test_a_source_needs_its_language():
    with pytest.raises(ValueError, match="Pass `source=`, one of af, am"):
        Translator.from_hugging_face(MODELS / "m2m_100", target="fr")


@pytest.mark.full
def test_the_language_of_sources_may_stand_in_the_files():
    found = Translator.from_hugging_face(MODELS / "nllb", target="fra_Latn")
    ids = found.source_text.source_ids(["The cat"]).numpy()[0]
    assert found.source_text.tokens[ids[0]] == "eng_Latn"
