"""Sound of any length, window by window."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from keras_attn_serving import Transcript
from keras_attn_serving import Word
from keras_attn_serving import transcribe

RATE = 100  # few samples, so that a sound can hold its own words
SECONDS = 10.0


class Speaker:
    """Answers for sounds whose samples spell words.

    A sample `n > 0` begins the word number `n`, which takes half a second.

    Attributes:
        heard: For each window its first sample and its length.
    """

    def __init__(self, said, **changes):
        self._said, self._changes = said, changes
        self.heard = []

    def sound(self, seconds):
        samples = np.full(round(seconds * RATE), 1e-3, "float32")
        for number, (start, _) in enumerate(self._said, start=1):
            samples[round(start * RATE)] = number
        return samples

    def __call__(self, sounds, prefixes=None):
        (samples,) = sounds
        self.heard.append(len(samples))
        words = [
            Word(
                self._said[round(float(samples[i])) - 1][1],
                i / RATE,
                min(i / RATE + 0.5, len(samples) / RATE),
                0.9,
            )
            for i in np.flatnonzero(samples >= 1)
        ]
        text = " " + " ".join(x.text for x in words)
        made = Transcript(text, -1.0, words, 0.1)
        return [made._replace(**self._changes)]


def heard(said, seconds, **changes):
    speaker = Speaker(said, **changes)
    sound = speaker.sound(seconds)
    found = [*transcribe(speaker, sound, rate=RATE, seconds=SECONDS)]
    return speaker, found


def shown(found):
    return [(x.text, round(x.start, 2), round(x.end, 2)) for x in found]


def test_one_window():
    speaker, found = heard([(1, "So"), (2, "it"), (3, "is.")], 4.0)
    assert shown(found) == [("So it is.", 1.0, 3.5)]
    assert [x.text for x in found[0].words] == ["So", "it", "is."]
    assert speaker.heard == [400]


def test_the_next_window_begins_after_a_sentence():
    said = [(1, "A"), (6, "b."), (7, "C"), (9.8, "d"), (11, "e."), (12, "F")]
    speaker, found = heard(said, 14.0)
    assert shown(found) == [
        ("A", 1.0, 1.5),
        ("b.", 6.0, 6.5),
        ("C", 7.0, 7.5),
        ("d e.", 9.8, 11.5),  # "d" was cut in the first window
        ("F", 12.0, 12.5),
    ]
    # Halfway between 6.5 and 7 seconds
    assert speaker.heard == [1000, 1400 - 675]


def test_or_in_the_longest_pause():
    said = [(1, "a"), (5, "b"), (5.6, "c"), (8, "d"), (8.6, "e"), (11, "f")]
    speaker, found = heard(said, 12.0)
    assert [y.text for x in found for y in x.words] == list("abcdef")
    assert speaker.heard == [1000, 1200 - 705]


def test_words_one_after_the_other_are_not_lost():
    said = [(0.5 * i, f"w{i}") for i in range(80)]
    speaker, found = heard(said, 40.0)
    words = [y for x in found for y in x.words]
    assert [x.text for x in words] == [x for _, x in said]
    np.testing.assert_allclose([x.start for x in words], [x for x, _ in said])
    assert all(len(x.text) <= 80 for x in found) and len(found) > 2


def test_silence_is_skipped():
    said = [(1, "a."), (25, "b.")]
    speaker, found = heard(said, 30.0)
    assert shown(found) == [("a.", 1.0, 1.5), ("b.", 25.0, 25.5)]
    assert heard(said, 30.0, no_speech=0.9)[1] == found  # but they are sure
    unsure = [Word("a.", 1.0, 1.5, 0.2)]
    assert not heard([], 9.0, no_speech=0.9, words=unsure)[1]
    assert heard([], 9.0, no_speech=0.5, words=unsure, text="a.")[1]
    assert not heard(said[:1], 9.0, no_speech=0.9, text=" ." * 50)[1]
    assert not heard(said[:1], 9.0, empty=True)[1]


def test_zeros_are_not_asked_about():
    speaker = Speaker([(1, "a.")])
    sound = speaker.sound(3.0)
    sound = np.concatenate([np.zeros(2000, "float32"), sound])
    (found,) = transcribe(speaker, sound, rate=RATE, seconds=SECONDS)
    assert (found.text, found.start) == ("a.", 21.0)
    assert speaker.heard == [300]


def test_pauses_beside_sentences_belong_to_no_word():
    long = [Word("a", 0.0, 6.0, 0.9), Word("b", 6.0, 6.5, 0.9)]
    long += [Word("c.", 6.5, 9.0, 0.9), Word("d", 9.0, 9.5, 0.9)]
    _, found = heard([], 10.0, words=long, text=" a b c. d")
    words = [y for x in found for y in x.words]
    assert [x[1:3] for x in words] == [
        (4.6, 6.0),
        (6.0, 6.5),
        (6.5, 7.9),
        (9.0, 9.5),
    ]


def test_texts_without_spaces():
    words = [Word(x, i, i + 0.5, 0.9) for i, x in enumerate("你好。吗")]
    _, found = heard([], 10.0, words=words, text="你好。吗")
    assert [x.text for x in found] == ["你好。", "吗"]


def test_blocks_and_integers():
    said = [(1, "a."), (12, "b."), (25, "c.")]
    speaker = Speaker(said)
    sound = speaker.sound(31.0)
    whole = [*transcribe(speaker, sound, rate=RATE, seconds=SECONDS)]
    for size in (1, 77, 5000):
        blocks = (sound[i : i + size] for i in range(0, len(sound), size))
        found = transcribe(speaker, blocks, rate=RATE, seconds=SECONDS)
        assert [*found] == whole
    given = []

    def keep(sounds, prefixes=None):
        given.extend(sounds)
        return speaker(sounds)

    sixteen = np.array([0, 16384, -32768], "int16")
    assert [*transcribe(keep, sixteen)] == []
    assert given[0].tolist() == [0.0, 0.5, -1.0]


def test_memory_is_that_of_a_window():
    zeros = np.zeros(RATE, "float32")
    endless = itertools.repeat(zeros, 100_000)  # more than a day
    assert not [*transcribe(Speaker([]), endless, rate=RATE, seconds=SECONDS)]


def test_the_prefix_is_passed_on():
    asked = []

    def answer(sounds, prefixes):
        asked.append(prefixes)
        return [Transcript("", 0.0, [], 0.0)]

    sound = np.ones(5, "float32")
    assert not [*transcribe(answer, sound)]
    assert not [*transcribe(answer, sound, "<|fr|>")]
    assert asked == [None, ["<|fr|>"]]


def test_the_language_is_found_once():
    asked = []

    def answer(sounds, prefixes):
        asked.append(prefixes)
        said = [Word("a.", 6.0, 6.5, 0.9)] if len(asked) > 1 else []
        return [Transcript("a.", 0.0, said, 0.0, f"<|{len(asked)}|>")]

    sound = np.ones(3000, "float32")
    found = [*transcribe(answer, sound, rate=RATE, seconds=SECONDS)]
    assert asked[:2] == [None, None] and len(found) == len(asked) - 1
    assert {*map(tuple, asked[2:])} == {("<|2|>",)}


@pytest.mark.parametrize(
    "sound, message",
    [
        (np.zeros(0, "float32"), "must have samples"),
        ([], "must have samples"),
        (np.zeros((5, 2), "float32"), "of one channel"),
        ([np.zeros((5, 2), "float32")], "of one channel"),
        (np.zeros(5, "uint8"), "signed integer"),
        (np.array([0, np.nan], "float32"), "Received: nan at 0.010 s"),
        ("speech.wav", "soundfile"),
        (b"RIFF", "soundfile"),
        (5, "an array of samples"),
    ],
)
def test_refusals(sound, message):
    with pytest.raises(ValueError, match=message):
        [*transcribe(Speaker([]), sound, rate=RATE, seconds=SECONDS)]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"seconds": 0}, "`seconds` must be a number, at least 1"),
        ({"seconds": 0.5}, "`seconds` must be a number, at least 1"),
        ({"seconds": float("nan")}, "`seconds` must be a number"),
        ({"seconds": "30"}, "`seconds` must be a number"),
        ({"rate": 0}, "`rate` must be a number, at least 1"),
        ({"rate": 0.5 + RATE}, "whole number of samples"),
    ],
)
def test_odd_numbers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        [*transcribe(Speaker([]), np.ones(5, "float32"), **options)]


def test_a_rate_may_be_a_float():
    quiet = np.full(5, 1e-3, "float32")
    found = transcribe(Speaker([]), quiet, rate=16e3)
    assert [*found] == []


def test_answers_must_have_words_of_a_whole_window():
    sound = np.ones(5, "float32")
    for answer, message in {
        lambda x, prefixes: [Transcript("a", 0.0, [], 0.0, truncated=True)]: (
            "which the model left out"
        ),
        lambda x, prefixes: ["a"]: "words of a sound, or",
    }.items():
        with pytest.raises(ValueError, match=message):
            [*transcribe(answer, sound)]


class Stenographer:
    """Answers with texts whose timestamps it is told, one for each window."""

    def __init__(self, *texts):
        self._texts, self.heard = [*texts], []

    def __call__(self, sounds, prefixes=None):
        self.heard.append(len(sounds[0]) / RATE)
        return [Timed(self._texts.pop(0))]


class Timed(NamedTuple):
    """A translator's result."""

    text: str
    words: None = None
    truncated: bool = False


PARTS = {
    "the next window begins where a part was cut": (
        [
            "<|0.00|> One.<|4.00|><|4.50|> Two.<|8.00|><|8.20|> Thr",
            "<|0.50|> Three.<|3.00|>",
        ],
        [("One.", 0, 4), ("Two.", 4.5, 8), ("Three.", 8.5, 11)],
        [10, 7],
    ),
    "or where another began": (
        ["<|0.00|> One.<|4.00|><|4.00|>", "<|0.00|> Two.<|3.00|>", ""],
        [("One.", 0, 4), ("Two.", 4, 7)],
        [10, 10],
    ),
    "a last timestamp ends the speech of a window": (
        ["<|1.00|> One.<|4.00|>", "<|0.00|> Two.<|9.00|>"],
        [("One.", 1, 4), ("Two.", 10, 15)],  # of 15 seconds
        [10, 5],
    ),
    "without an end a text takes the window": (
        ["<|1.00|> One", "<|0.00|> Two"],
        [("One", 1, 10), ("Two", 10, 15)],
        [10, 5],
    ),
    "what begins after the end is made up": (
        ["<|0.00|> a<|9.00|><|9.00|>", "<|0.00|> b<|7.00|><|8.00|> c<|9.00|>"],
        [("a", 0, 9), ("b", 9, 15)],
        [10, 6],
    ),
    "a text may be empty": (
        ["", "<|0.00|> b<|3.00|>"],
        [("b", 10, 13)],
        [10, 5],
    ),
    "the next window is later in any case": (
        ["<|0.00|> a<|0.02|><|0.02|> b", "<|0.00|> c", "<|0.00|> d"],
        [("a", 0, 0.02), ("c", 1, 11), ("d", 11, 15)],
        [10, 10, 4],
    ),
}


@pytest.mark.parametrize("case", PARTS)
def test_timestamps_tell_the_times_too(case):
    texts, expected, heard = PARTS[case]
    answer = Stenographer(*texts)
    sound = np.ones(1500, "float32")
    found = transcribe(answer, sound, rate=RATE, seconds=SECONDS)
    found = [*itertools.islice(found, len(expected))]
    assert shown(found) == expected
    assert answer.heard == heard
    assert not any(x.words for x in found)


def test_timestamps_are_no_words():
    said = [(1, "So"), (2, "it"), (3, "is.")]
    text = "<|1.00|> So it is.<|3.50|>"
    speaker, found = heard(said, 4.0, text=text)
    assert shown(found) == [("So it is.", 1.0, 3.5)]


def test_a_text_without_timestamps_is_refused():
    with pytest.raises(ValueError, match="words of a sound, or timestamps"):
        [*transcribe(Stenographer("One."), np.ones(50, "float32"))]
