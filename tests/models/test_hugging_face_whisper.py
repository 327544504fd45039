"""Whispers of Hugging Face from disk, held against what its own classes said.

`tests/fixtures/make_whisper.py` wrote both, by transformers on PyTorch.
"""

import json
import shutil

import keras
import numpy as np
import pytest
from support.lazily import Lazily
from support.lazily import ask
from support.lazily import some
from support.sounds import batch
from support.sounds import sounds
from support.whispers import FOLDER
from support.whispers import NAMES
from support.whispers import Said
from support.whispers import read
from support.whispers import require_features_and_logits
from support.whispers import require_same

import keras_attn

each_model = pytest.mark.parametrize("name", some(NAMES, ["english"]))


@pytest.fixture(scope="module")
def said():
    return Lazily(Said, NAMES)


@pytest.fixture(scope="module")
def translators():
    return Lazily(read, NAMES)


@pytest.fixture(scope="module")
def sound():
    return batch(sounds())


@pytest.fixture(scope="module")
def exports(translators, tmp_path_factory):
    def export(name):
        folder = tmp_path_factory.mktemp(name)
        return str(translators[name].export(folder, lengths=True))

    return Lazily(export, NAMES)


@each_model
def test_features_and_logits(name, said, translators, sound):
    require_features_and_logits(translators[name].model, said[name], sound)


@each_model
def test_ids(name, said, translators):
    text, theirs = translators[name].target_text, said[name]
    for line, expected in zip(theirs.lines, theirs.ids, strict=True):
        found = text.uncut_ids([line]).to_list()[0]
        if "<|" in line:  # only a prefix writes a mark; elsewhere it is text
            assert expected[0] in text.special.prompt_tokens
            assert found == expected or found[0] != expected[0]
        else:
            assert found == expected


@pytest.mark.full
def test_searches_write_what_theirs_write(said, translators, sound):
    for name, found in {
        "beam": translators["english"],
        "greedy": read("english", search={"num_beams": 1}),
    }.items():
        theirs = said["english"]
        require_same(found, sound, getattr(theirs, name))
    result = translators["english"](sound)
    assert result.text == theirs.texts
    np.testing.assert_allclose(result.scores, theirs.scores, atol=1e-4)


@pytest.mark.full
def test_a_language_and_a_task_begin_the_text(said, translators, sound):
    theirs = said["languages"]
    require_same(translators["languages"], sound, theirs.beam)
    greedy = {"num_beams": 1}
    require_same(read("languages", search=greedy), sound, theirs.greedy)
    found = read("languages", search=greedy, target="en")
    require_same(found, sound, theirs.translated)


@pytest.mark.full
def test_a_request_tells_the_language(said, sound):
    greedy = {"num_beams": 1}
    translator = read("languages", source=None, search=greedy)
    prompt = "<|fr|><|translate|><|notimestamps|>"
    found = translator(sound, prefixes=[prompt] * len(sound))
    expected = read("languages", target="en", search=greedy)(sound)
    assert found.text == expected.text


@pytest.mark.full
def test_ids_need_no_tokenizer(said, tmp_path, sound):
    folder = tmp_path / "model"
    shutil.copytree(FOLDER / "languages", folder)
    for path in folder.glob("[mtv]*.[tj]*"):
        if path.name != "model.safetensors":
            path.unlink()
    assert not (folder / "vocab.json").exists()
    translator = keras_attn.Translator.from_hugging_face(
        folder, ids=True, source="fr", search={"num_beams": 1}
    )
    require_same(translator, sound, said["languages"].greedy)
    text = translator.target_text
    assert text.special.unknown == text.size - 1  # 3 is a letter's


@pytest.mark.full
def test_files_of_byte_pairs_say_what_tokenizer_json_says(
    translators, tmp_path
):
    folder = tmp_path / "model"
    shutil.copytree(FOLDER / "english", folder)
    whole = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").unlink()
    marks = {x["content"]: x["id"] for x in whole["added_tokens"]}
    (folder / "added_tokens.json").write_text(json.dumps(marks))
    found = keras_attn.Translator.from_hugging_face(folder)
    text, expected = found.target_text, translators["english"].target_text
    assert text.tokens == expected.tokens
    assert text.special == expected.special


@pytest.mark.full
@each_model
def test_fit_and_save(name, tmp_path, sound):
    translator = read(name)
    text = translator.target_text
    targets = ["the", "in a", "er", "a", "th"]
    data = keras_attn.pairs(sound, targets, None, text, batch_size=5)
    loss = keras_attn.SequenceCrossentropy(padding_id=text.special.pad)
    translator.model.compile(keras.optimizers.Adam(0.01), loss=loss)
    keras.utils.set_random_seed(0)
    history = translator.model.fit(data, epochs=8, verbose=0).history["loss"]
    assert history[-1] < history[0]
    translator.save(tmp_path / "saved")
    again = keras_attn.Translator.load(tmp_path / "saved")
    assert again(sound).text == translator(sound).text


@pytest.mark.full
@each_model
def test_tensorflow_serving(name, translators, exports, sound):
    expected = translators[name](sound)
    lengths = np.array([len(x) for x in sounds()], "int32")
    given = {"sound": sound, "lengths": lengths}
    (found,) = ask([(exports[name], "serving_default", given, "c")])
    assert [x.decode() for x in found["text"]] == expected.text
    np.testing.assert_allclose(found["score"], expected.scores, atol=1e-4)


@pytest.mark.full
def test_xla_writes_the_same(translators, sound):
    plain = translators["english"]
    compiled = keras_attn.Translator(
        plain.model, None, plain.target_text, plain.search, jit_compile=True
    )
    assert compiled(sound).text == plain(sound).text


@pytest.mark.full
def test_onnx_has_no_counterpart_of_the_features(translators, tmp_path):
    with pytest.raises(ValueError, match="RFFT"):
        translators["english"].export(tmp_path, format="onnx")


@pytest.mark.full
def test_a_longer_sound_is_cut_and_reported(translators):
    (short, *_), long = sounds(), sounds(seconds=[3.0])[0]
    found = translators["english"](batch([long, short]))
    assert [x.truncated for x in found] == [True, False]
    cut = translators["english"](long[None, :32_000])
    assert cut.text == found.text[:1] and not cut[0].truncated


@pytest.mark.full
@pytest.mark.parametrize(
    ("field", "source", "expected"),
    [  # with the end; `min_length` counts the four tokens of the prompt too
        ({"min_new_tokens": 5}, "fr", 6),
        ({"min_new_tokens": 5}, None, 6),
        ({"min_length": 6}, "fr", 3),
        ({"min_length": 6}, None, 3),
    ],
)
def test_the_fewest_tokens_are_those_of_generate(field, source, expected):
    found = read("languages", source=source, search=field | {"num_beams": 1})
    assert found.search.min_length == expected


ENGLISH, FRENCH, TRANSLATE, TRANSCRIBE, QUIET = 263, 264, 265, 266, 270
FORCED = {
    "a language and a task": (
        [[1, FRENCH], [2, TRANSLATE]],
        None,
        [FRENCH, TRANSLATE, QUIET],
        None,
    ),
    "all": (
        [[1, ENGLISH], [2, TRANSCRIBE], [3, QUIET]],
        None,
        [ENGLISH, TRANSCRIBE, QUIET],
        None,
    ),
    "a task": (
        [[1, None], [2, TRANSLATE]],
        None,
        [],
        keras_attn.LanguagePrompt([ENGLISH, FRENCH], [TRANSLATE], [QUIET]),
    ),
    "an argument first": (
        [[1, ENGLISH], [2, TRANSLATE]],
        "fr",
        [FRENCH, TRANSCRIBE, QUIET],
        None,
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("case", FORCED)
def test_forced_ids_begin_the_text(case):
    forced, source, expected, found_by_model = FORCED[case]
    search = {"forced_decoder_ids": forced, "num_beams": 1}
    found = read("languages", source=source, search=search)
    assert found.target_text.special.start == (262, *expected)
    assert found.language_prompt == found_by_model


REFUSED = {
    "a language for English": (
        "english",
        {"source": "fr"},
        {},
        "a model of English alone",
    ),
    "an unknown language": ("languages", {"source": "xx"}, {}, "It has en, fr"),
    "another output": (
        "languages",
        {"source": "en", "target": "fr"},
        {},
        "or English",
    ),
    "an output alone": (
        "languages",
        {"source": None, "target": "en"},
        {},
        "source=None",
    ),
    "special tokens": (
        "english",
        {"special_tokens": True},
        {},
        "a model of speech",
    ),
    "other features": (
        "english",
        {},
        {"preprocessor_config.json": {"hop_length": 80}},
        "400 frames of 8",
    ),
    "noise": (
        "english",
        {},
        {"preprocessor_config.json": {"dither": 0.1}},
        "'dither': 0.1",
    ),
    "scaled embeddings": (
        "english",
        {},
        {"config.json": {"scale_embedding": True}},
        "scale_embedding",
    ),
    "a forced token": (
        "english",
        {},
        {"generation_config.json": {"forced_bos_token_id": 3}},
        "forced_bos_token_id=3",
    ),
    "forced ids out of order": (
        "languages",
        {"source": None},
        {"generation_config.json": {"forced_decoder_ids": [[2, 264]]}},
        "forced_decoder_ids=",
    ),
    "a forced id that the model lacks": (
        "languages",
        {"source": None},
        {"generation_config.json": {"forced_decoder_ids": [[1, 999]]}},
        "below `vocab_size`. Received: 999",
    ),
    "a token before the start": (
        "languages",
        {"search": {"prev_sot_token_id": 268}},
        {},
        "prev_sot_token_id=268, without effect",
    ),
    "heads that do not share": (
        "english",
        {},
        {"config.json": {"decoder_attention_heads": 3}},
        "must divide",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case, tmp_path):
    name, options, changes, message = REFUSED[case]
    folder = tmp_path / "model"
    shutil.copytree(FOLDER / name, folder)
    for file, fields in changes.items():
        before = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(before | fields))
    with pytest.raises(ValueError, match=message):
        keras_attn.Translator.from_hugging_face(folder, **options)


@pytest.mark.full
def test_a_file_of_a_processor_says_the_features(translators, tmp_path, sound):
    folder = tmp_path / "model"
    shutil.copytree(FOLDER / "english", folder)
    path = folder / "preprocessor_config.json"
    fields = json.loads(path.read_text())
    path.unlink()
    nested = {"feature_extractor": fields, "processor_class": "any"}
    (folder / "processor_config.json").write_text(json.dumps(nested))
    found = keras_attn.Translator.from_hugging_face(folder)
    assert found(sound).text == translators["english"](sound).text
