"""Times of words of a Whisper, by the weights that Hugging Face's class gives.

The reference finds times from these weights as OpenAI's code does, in numpy.
"""

import json
import shutil
import unicodedata

import keras
import numpy as np
import pytest
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving import RowError
from keras_attn_serving import transcribe
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server.limits import Limits
from support.lazily import ask
from support.sounds import batch
from support.sounds import sounds
from support.time_warping import warped
from support.whispers import FOLDER
from support.whispers import read

import keras_attn

SECONDS = 0.02
SAID = FOLDER / "english/said"


@pytest.fixture(scope="module")
def translator():
    return read("english")


@pytest.fixture(scope="module")
def languages():
    return read("languages", source=None, search={"num_beams": 1})


@pytest.fixture(scope="module")
def sound():
    return batch(sounds())


@pytest.fixture(scope="module")
def found(translator, sound):
    return translator.words(sound)


def token_starts(weights, columns):
    """Where each token begins, in columns, and where the text ends."""
    weights = weights[:, :, : max(1, columns)].astype("float64")
    weights /= weights.sum(axis=2, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights -= weights.mean(axis=1, keepdims=True)
        weights = np.nan_to_num(weights / weights.std(axis=1, keepdims=True))
    if weights.shape[2] > 3:
        around = np.pad(weights, [(0, 0), (0, 0), (3, 3)], "reflect")
        windows = np.lib.stride_tricks.sliding_window_view(around, 7, axis=2)
        weights = np.median(windows, axis=3)
    return warped(weights.mean(axis=0)[1:-1])  # two start tokens


def is_mark(piece):
    return all(unicodedata.category(x)[0] in "PZ" for x in piece)


def expected_words(translator, i):
    """The words of a row as the reference finds them: by spaces."""
    arrays = np.load(SAID / "attentions.npz")
    text = translator.target_text
    row = np.load(SAID / "arrays.npz")["beam"][i]
    ids = [x for x in row.tolist()[2:] if x != text.special.end]
    length = sounds()[i]
    columns = (np.flatnonzero(length).max(initial=-1) + 1) // 320
    starts = token_starts(arrays[f"weights_{i}"], columns)
    logp = arrays[f"logp_{i}"][1:]
    words: list = []
    for n, piece in enumerate(text.splitter.contents[x] for x in ids):
        if piece.startswith(b" ") or not words:
            words.append([b"", []])
        words[-1][0] += piece
        words[-1][1].append(n)
    found = []
    for spelled, tokens in words:
        spelled = spelled.decode("utf-8", "replace").strip()
        shown = {n: text.splitter.contents[ids[n]].decode() for n in tokens}
        solid = [n for n in tokens if not is_mark(shown[n])] or tokens
        first, last = solid[0], solid[-1]
        if spelled:
            times = starts[first] * SECONDS, starts[last + 1] * SECONDS
            mean = np.exp(logp[first : last + 1]).mean()
            found.append((spelled, *times, mean))
    return found, float(arrays[f"no_speech_{i}"])


@pytest.mark.full
def test_words_and_times_of_the_reference(translator, found):
    for i, row in enumerate(found):
        words, no_speech = expected_words(translator, i)
        assert [x.text for x in row.words] == [x for x, *_ in words]
        np.testing.assert_allclose(
            [x[1:] for x in row.words], [x[1:] for x in words], atol=1e-4
        )
        np.testing.assert_allclose(row.no_speech, no_speech, atol=1e-5)
    assert sum(len(x.words) for x in found) >= 5


@pytest.mark.full
def test_the_rest_is_that_of_a_call(translator, sound, found):
    called = translator(sound)
    assert found.text == called.text
    assert called[0].words is None and called[0].no_speech is None
    np.testing.assert_array_equal(found.scores, called.scores)


@pytest.mark.full
def test_a_row_alone_has_the_same_times(translator, sound, found):
    for i in (1, 3):
        samples = sounds()[i]
        (alone,) = translator.words(samples[None])
        assert [x.text for x in alone.words] == [x.text for x in found[i].words]
        np.testing.assert_allclose(
            [x[1:] for x in alone.words],
            [x[1:] for x in found[i].words],
            atol=1e-4,
        )


@pytest.mark.full
def test_a_prompt_by_prefix_is_no_word(sound):
    told = read("languages", target="en")
    asked = read("languages", source=None)
    prompt = "<|fr|><|translate|><|notimestamps|>"
    found = asked.words(sound, prefixes=[prompt] * len(sound))
    for row, expected in zip(found, told.words(sound), strict=True):
        assert [x[:3] for x in row.words] == [x[:3] for x in expected.words]


@pytest.mark.full
def test_saved_and_loaded(translator, tmp_path, sound, found):
    translator.save(tmp_path)
    again = keras_attn.Translator.load(tmp_path)
    assert again.word_times == translator.word_times
    assert again.words(sound)[0].words == found[0].words


@pytest.mark.full
def test_tensorflow_serving(translator, tmp_path, sound, found):
    folder = translator.export(tmp_path, lengths=True, signatures=["words"])
    given = {
        "sound": sound,
        "lengths": np.array([len(x) for x in sounds()], "int32"),
        "prefix": np.array([b""] * len(sound), object),
    }
    (answer,) = ask([(str(folder), "words", given, "c")])
    for i, row in enumerate(found):
        count = answer["word_count"][i]
        words = [x.decode() for x in answer["words"][i, :count]]
        assert words == [x.text for x in row.words]
        for name, place in (("starts", 1), ("ends", 2), ("probabilities", 3)):
            np.testing.assert_allclose(
                answer[name][i, :count],
                [x[place] for x in row.words],
                atol=1e-4,
            )
        np.testing.assert_allclose(
            answer["no_speech"][i], row.no_speech, atol=1e-5
        )
        assert answer["finished"][i] == row.finished
        assert not answer["error"][i]


@pytest.mark.full
def test_all_heads_of_the_later_half_without_a_list(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(FOLDER / "english", folder)
    path = folder / "generation_config.json"
    fields = json.loads(path.read_text())
    del fields["alignment_heads"]
    path.write_text(json.dumps(fields))
    path = folder / "config.json"
    fields = json.loads(path.read_text()) | {"median_filter_width": 5}
    path.write_text(json.dumps(fields))
    times = keras_attn.Translator.from_hugging_face(folder).word_times
    assert times.median == 5
    assert times.heads == tuple(("decoder_0_attention", i) for i in range(4))


REFUSED = {
    "a number that is no whole one": (
        {"alignment_heads": [[0, 1.0]]},
        "a list of pairs",
    ),
    "a head too many": ({"alignment_heads": [[0, 4]]}, "below 1, and one of"),
    "no pairs": ({"alignment_heads": [0, 1]}, "a list of pairs"),
    "none": ({"alignment_heads": []}, "one at least"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_heads(case):
    search, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        read("english", search=search)


@pytest.mark.full
def test_refusals(translator, sound):
    model, text = translator.model, translator.target_text
    plain = keras_attn.Translator(model, None, text, translator.search)
    with pytest.raises(ValueError, match="without `word_times`"):
        plain.words(sound)
    for heads, message in {
        (("features", 0),): "of several heads that attend",
        (("decoder_0_attention", 9),): "the heads 0 to 3",
    }.items():
        with pytest.raises(ValueError, match=message):
            keras_attn.Translator(
                model,
                None,
                text,
                translator.search,
                word_times=keras_attn.WordTimes(heads),
            )
    with pytest.raises(ValueError, match="an odd `median`"):
        keras_attn.WordTimes([("a", 0)], median=4)
    with pytest.raises(ValueError, match="at least 1"):
        keras_attn.WordTimes([("a", 0)], samples=0)


@pytest.mark.full
def test_models_of_text_have_no_times():
    text = keras_attn.Text.from_lines(["ab"], split="characters")
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embed = keras.layers.Embedding(text.size, 8, mask_zero=True)
    hidden = keras.layers.MultiHeadAttention(2, 4, name="heads")(
        keras.layers.GRU(8, return_sequences=True)(embed(target)),
        embed(source),
    )
    model = keras.Model([source, target], keras.layers.Dense(text.size)(hidden))
    times = keras_attn.WordTimes([("heads", 0)])
    with pytest.raises(ValueError, match="that reads sound"):
        keras_attn.Translator(model, text, text, word_times=times)
    search = keras_attn.GreedySearch(max_length=5)
    both = [model, keras.models.clone_model(model)]
    with pytest.raises(ValueError, match="2 models"):
        keras_attn.Translator(both, text, text, search, word_times=times)


PROMPT = "<|en|><|transcribe|><|notimestamps|>"


@pytest.mark.full
def test_the_language_is_found(tmp_path, sound):
    theirs = np.load(FOLDER / "languages/said/detected.npz")
    for name, search in {"beam": {}, "greedy": {"num_beams": 1}}.items():
        translator = read("languages", source=None, search=search)
        end = translator.target_text.special.end
        found = translator.decode_ids(sound)
        for i, row in enumerate(theirs[name][:, 4:]):
            length = int(found.lengths[i, 0])
            assert found.tokens[i, 0, :length].numpy().tolist() == [
                *row[:length]
            ]
            assert {*row[length:]} <= {end}
    told = read("languages", source="en", search=search)
    found = translator.words(sound)
    assert found.text == told(sound).text
    assert [x.prompt for x in found] == [PROMPT] * len(sound)
    streamed = "".join(x.text for x in translator.stream(sound[0]))
    assert streamed == found[0].text
    french = read("languages", source="fr", search=search)
    english = read("languages", source="fr", target="en", search=search)
    other, task = PROMPT.replace("en", "fr"), "<|translate|>"
    mixed = translator.words(
        sound[[0, 1, 0, 0, 0]],
        prefixes=[other, None, "<|fr|>", other + "ab", f"<|fr|>{task}"],
    )
    assert [x.prompt for x in mixed] == [
        *(other, PROMPT, other, other),
        other.replace("<|transcribe|>", task),
    ]
    assert mixed.text == [
        french(sound[:1]).text[0],
        found.text[1],
        french(sound[:1]).text[0],
        french(sound[:1], prefixes=["ab"]).text[0],
        english(sound[:1]).text[0],
    ]
    translator.save(tmp_path / "saved")
    again = keras_attn.Translator.load(tmp_path / "saved")
    assert again(sound).text == found.text


@pytest.mark.full
def test_the_most_probable_language_of_each_row(sound):
    translator = read("languages", source=None, search={"num_beams": 1})
    model, text = translator.model, translator.target_text
    start = np.full((len(sound), 1), text.special.start[0])
    logits = np.array(model([sound, start]))[:, 0]
    languages = [5, 9, 60, 80, 101]
    expected = [languages[i] for i in logits[:, languages].argmax(axis=1)]
    prompt = keras_attn.LanguagePrompt(languages, after=[7])
    found = keras_attn.Translator(
        model,
        None,
        text,
        translator.search,
        word_times=translator.word_times,
        language_prompt=prompt,
    ).words(sound)
    assert [x.prompt for x in found] == [
        text.tokens[i] + text.tokens[7] for i in expected
    ]


@pytest.mark.full
def test_the_language_is_found_on_a_server(tmp_path, sound):
    translator = read("languages", source=None, search={"num_beams": 1})
    expected = translator.words(sound)
    folder = str(
        translator.export(
            tmp_path, lengths=True, signatures=["words", "options"]
        )
    )
    sources = {
        "sound": sound,
        "lengths": np.array([len(x) for x in sounds()], "int32"),
    }
    none = {"prefix": np.array([b""] * len(sound), object)}
    options = {
        name: np.full(len(sound), -1, dtype.as_numpy_dtype)
        for name, dtype in translator.search.request_options.items()
    }
    answers = ask(
        [
            (folder, "serving_default", sources, "c"),
            (folder, "words", sources | none, "c"),
            (folder, "options", sources | none | options, "c"),
        ]
    )
    for found in answers:
        assert [x.decode() for x in found["text"]] == expected.text
    assert {x.decode() for x in answers[1]["prompt"]} == {PROMPT}
    with pytest.raises(ValueError, match="cannot find the language"):
        translator.export(tmp_path, lengths=True, signatures=["step"])
    unknown = {"prefix": np.array([b"<|de|>", b"<|fr|>"] * 3, object)[:5]}
    folder = translator.export(tmp_path, lengths=True, signatures="all")
    (found,) = ask([(str(folder), "words", sources | unknown, "c")])
    errors = [b"no tokens but" in x for x in found["error"]]
    assert errors == [True, False] * 2 + [True]


@pytest.mark.full
def test_refused_prompts(translator):
    model, text = translator.model, translator.target_text
    with pytest.raises(ValueError, match="`languages` of a"):
        keras_attn.LanguagePrompt([], [5])
    for prompt, message in {
        keras_attn.LanguagePrompt([text.size], [5]): "ids of the target text",
        keras_attn.LanguagePrompt([5], [6] * 20): "a model for 24 tokens",
    }.items():
        with pytest.raises(ValueError, match=message):
            keras_attn.Translator(
                model, None, text, translator.search, language_prompt=prompt
            )


@pytest.mark.full
def test_scores_read_the_prompt_too(sound):
    greedy = {"num_beams": 1}
    finds = read("languages", source=None, search=greedy)
    told = read("languages", source="en", search=greedy)
    found, expected = finds(sound), told(sound)
    np.testing.assert_allclose(
        finds.score(sound, found).scores, told.score(sound, expected).scores
    )
    french = read("languages", source="fr", search=greedy)
    np.testing.assert_allclose(
        finds.score(sound, ["<|fr|>ab"] * len(sound)).scores,
        french.score(sound, ["ab"] * len(sound)).scores,
        rtol=1e-5,
    )


PREFIXES = {
    "<|translate|>": "<|en|><|translate|><|notimestamps|>",
    "<|notimestamps|>": PROMPT,
    "<|fr|><|notimestamps|>": PROMPT.replace("en", "fr"),
    "<|translate|><|notimestamps|>a": "<|en|><|translate|><|notimestamps|>",
}


@pytest.mark.full
def test_a_prefix_may_tell_a_part_of_the_prompt(sound):
    translator = read("languages", source=None, search={"num_beams": 1})
    found = translator.words(sound[:4], prefixes=[*PREFIXES])
    assert [x.prompt for x in found] == [*PREFIXES.values()]
    assert found.text[3].startswith("a")


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "prefix", ["<|de|>", "<|FR|>a", "a<|startoftranscript|>", "<|endoftext|>"]
)
def test_unknown_tokens_of_prompts_are_refused(prefix, sound, languages):
    with pytest.raises(ValueError, match=r"It may write <\|en\|>, <\|fr\|>"):
        languages.words(sound[:1], prefixes=[prefix])


def test_sound_is_of_finite_floating_numbers(translator):
    sixteen = np.zeros((1, 800), "int16")
    for call in (translator, translator.words):
        with pytest.raises(ValueError, match="Divide samples of 16 bits"):
            call(sixteen)
    bad = np.zeros((3, 800), "float32")
    bad[1, 5] = np.inf
    with pytest.raises(ValueError, match="in row 1. Replace them by silence"):
        translator(bad)


@pytest.mark.full
def test_a_window_that_is_too_long_is_refused(translator):
    with pytest.raises(ValueError, match="seconds=30.0, of which the model"):
        [*transcribe(translator.words, sounds(seconds=[5.0])[0])]
    found = transcribe(translator.words, sounds(seconds=[5.0])[0], seconds=2)
    assert [x.text for x in found]
    with pytest.raises(ValueError, match="words of a sound, or timestamps"):
        [*transcribe(translator, sounds()[0], seconds=2)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"heads": 3},
        {"heads": ["ab"]},
        {"heads": [("a", 1.0)]},
        {"heads": [("a", True)]},
        {"before": 5},
        {"before": [-1]},
        {"no_speech": "quiet"},
    ],
)
def test_word_times_take_heads_and_ids(arguments):
    with pytest.raises(ValueError, match="pairs of a layer's name and a"):
        keras_attn.WordTimes(**{"heads": [("a", 0)]} | arguments)


@pytest.mark.full
def test_word_times_have_ids_of_the_text(translator):
    times = keras_attn.WordTimes(translator.word_times.heads, no_speech=9999)
    with pytest.raises(ValueError, match="ids of the target text"):
        keras_attn.Translator(
            translator.model,
            None,
            translator.target_text,
            translator.search,
            word_times=times,
        )


@pytest.mark.full
def test_clients_have_the_words(translator, found, tmp_path):
    folder = tmp_path / "whisper"
    translator.export(folder, lengths=True, signatures=["words"])
    limits = Limits(elements=10 * 32_000)
    with Server(folder, "whisper", port=0, rest=Rest(), limits=limits) as ours:
        for client in (
            Client(ours.address, model="whisper"),
            RestClient(f"http://{ours.rest_address}", model="whisper"),
        ):
            with client:
                _require_words(client, translator, found)


def _require_words(client, translator, expected):
    found = client.words(sounds(), prefixes=np.array([None, "", *"abc"]))
    first, second, *_ = found
    for row, other in ((first, expected[0]), (second, expected[1])):
        assert (row.text, row.truncated) == (other.text, False)
        assert [x.text for x in row.words] == [x.text for x in other.words]
        np.testing.assert_allclose(
            [x[1:] for x in row.words], [x[1:] for x in other.words], atol=1e-4
        )
    assert found[4].empty and found[2].text.startswith("a")
    assert client.words([]) == []
    long = np.concatenate([sounds()[0], sounds()[1]])
    segments = [*transcribe(client.words, long, seconds=2)]
    here = [*transcribe(translator.words, long, seconds=2)]
    assert [x.text for x in segments] == [x.text for x in here]
    for sound, message in (
        (np.zeros(5, "int16"), "divide samples of 16 bits"),
        (np.zeros((5, 2)), "an array of samples"),
    ):
        with pytest.raises(ValueError, match=message):
            client.words([sound])
    with pytest.raises(ValueError, match="`prefixes` must be a list"):
        client.words(sounds()[:1], prefixes=[3])
    silent = np.full(800, np.nan, "float32")
    with pytest.raises(RowError) as caught:
        client.words([sounds()[1], silent])
    assert [*caught.value.errors] == [1]
    assert caught.value.result["text"][0] == expected[1].text


@pytest.mark.full
def test_a_model_without_the_signature_is_named(translator, tmp_path):
    folder = tmp_path / "whisper"
    translator.export(folder, lengths=True)
    with (
        Server(folder, "whisper", port=0) as ours,
        Client(ours.address, model="whisper") as client,
    ):
        with pytest.raises(ValueError, match=r"signatures=\['words'\]"):
            client.words(sounds())
