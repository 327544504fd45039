"""Timestamps of a Whisper, against what Hugging Face's classes write."""

import numpy as np
import pytest
from support.lazily import ask
from support.lazily import some
from support.sounds import batch
from support.sounds import sounds
from support.whispers import LATEST
from support.whispers import NAMES
from support.whispers import Said
from support.whispers import read
from support.whispers import require_same_times
from support.whispers import timed

import keras_attn
from keras_attn.decoding import PairedTimestamps

each_model = pytest.mark.parametrize("name", some(NAMES, ["english"]))


@pytest.fixture(scope="module")
def sound():
    return batch(sounds())


@pytest.fixture(scope="module")
def translator():
    return timed("english", 1)


@pytest.mark.full
@each_model
@pytest.mark.parametrize("latest", some(LATEST, [1]))
def test_searches_write_what_theirs_write(name, latest, sound):
    require_same_times(name, latest, Said(name), sound)


@pytest.mark.full
def test_texts_have_their_timestamps(translator, sound):
    first, second, third, *_, last = translator(sound)
    assert first.text.startswith("<|0.00|>H")
    assert third.text == "<|0.00|>HGHf<|0.14|>"
    assert translator.target_text.strings([[1, 271, 39, 274]]).numpy() == [
        b'"<|0.00|>H<|0.06|>'
    ]
    assert last.tokens[0] == "<|0.00|>"
    (begun,) = translator(sound[:1], prefixes=["<|0.02|>"])
    assert begun.text.startswith("<|0.02|>H")


@pytest.mark.full
def test_words_are_those_without_timestamps(sound):
    """A text is timed as it is read by a model that writes no timestamps."""
    timed_one, quiet = timed("languages", 1), read("languages")
    found = timed_one.words(sound)
    assert {x.prompt for x in found} == {""}  # it stands in the start
    for i, row in enumerate(timed_one.decode_ids(sound).tokens.numpy()):
        special = timed_one.target_text.special
        ids = [x for x in row[0].tolist() if 0 < x < special.end]
        assert found[i].words
        assert "<|" not in "".join(x.text for x in found[i].words)
        hypotheses = keras_attn.decoding.Hypotheses(
            tokens=np.array([[ids]], "int32"),
            lengths=np.array([[len(ids)]], "int32"),
            scores=None,
            finished=None,
            alignments=None,
        )
        expected = quiet.pipeline._reader(
            (sound[i : i + 1],), np.zeros([1, 0], "int32"), hypotheses
        )
        count = int(expected.counts[0])
        np.testing.assert_allclose(
            [x.start for x in found[i].words],
            expected.starts[0, :count],
            atol=1e-5,
        )
        np.testing.assert_allclose(
            [x.probability for x in found[i].words],
            expected.probabilities[0, :count],
            atol=1e-5,
        )
        np.testing.assert_allclose(
            found[i].no_speech, expected.no_speech[0], atol=1e-5
        )


@pytest.mark.full
def test_the_language_is_found_too(sound):
    finds = timed("languages", search={"num_beams": 1}, source=None)
    assert finds.language_prompt.last == ()
    told = {
        (source, target): timed(
            "languages", search={"num_beams": 1}, source=source, target=target
        )(sound).text
        for source, target in (("en", None), ("fr", None), ("fr", "en"))
    }
    found = finds.words(sound)
    assert found.text == told["en", None]
    assert {x.prompt for x in found} == {"<|en|><|transcribe|>"}
    prefixes = ["<|fr|>", "<|fr|><|translate|>", None, "<|fr|>", None]
    mixed = finds(sound, prefixes=prefixes)
    assert mixed.text == [
        told["fr", None][0],
        told["fr", "en"][1],
        told["en", None][2],
        told["fr", None][3],
        told["en", None][4],
    ]


@pytest.mark.full
def test_exported_saved_and_streamed(translator, tmp_path, sound):
    expected = translator(sound)
    translator.save(tmp_path / "saved")
    again = keras_attn.Translator.load(tmp_path / "saved")
    assert again.search == translator.search
    assert again(sound).text == expected.text
    folder = translator.export(
        tmp_path / "export", lengths=True, signatures=["words"]
    )
    given = {
        "sound": sound,
        "lengths": np.array([len(x) for x in sounds()], "int32"),
    }
    none = {"prefix": np.array([b""] * len(sound), object)}
    found, words = ask(
        [
            (str(folder), "serving_default", given, "c"),
            (str(folder), "words", given | none, "c"),
        ]
    )
    for answer in found, words:
        assert [x.decode() for x in answer["text"]] == expected.text
    greedy = timed("english", 1, {"num_beams": 1})
    streamed = "".join(x.text for x in greedy.stream(sound[4]))
    assert streamed == greedy(sound[4:5]).text[0]
    assert streamed.count("<|") == 3
    compiled = keras_attn.Translator(
        translator.model,
        None,
        translator.target_text,
        translator.search,
        jit_compile=True,
    )
    assert compiled(sound).text == expected.text


@pytest.mark.full
def test_scores_read_timestamps(translator, sound):
    found = translator(sound)
    ended = [i for i, x in enumerate(found) if x.finished]
    scores = translator.score(sound[ended], [found[i].text for i in ended])
    totals = [found[i].score * len(found[i].tokens) for i in ended]
    np.testing.assert_allclose(scores.scores, totals, atol=1e-3)


REFUSED = {
    "another value": ({"return_timestamps": "word"}, "must be true or false"),
    "no such tokens": (
        {"return_timestamps": True, "no_timestamps_token_id": 281},
        "a model that knows timestamps",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_fields(case):
    fields, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        read("english", search=fields)


def test_a_rule_of_whole_numbers():
    for arguments, message in (
        ((-1, 5), "first must be an integer"),
        ((7, 7), "must follow the end"),
        ((7, 5, 0.5), "latest must be an integer"),
    ):
        with pytest.raises(ValueError, match=message):
            PairedTimestamps(*arguments)
    rule = PairedTimestamps(9, 7)
    assert PairedTimestamps.from_config(rule.get_config()) == rule
