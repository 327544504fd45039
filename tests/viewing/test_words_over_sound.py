"""Words over the spectrogram of a sound."""

from typing import NamedTuple

import numpy as np
import pytest

import keras_attn

RATE = 8_000


class Word(NamedTuple):
    text: str
    start: float
    end: float


class Heard(NamedTuple):
    words: list | None
    text: str = "so it is"
    score: float = -0.5


WORDS = [Word("so", 0.1, 0.5), Word("it", 0.6, 0.7), Word("is", 11.0, 11.5)]


def tone(seconds=12.0, hertz=1000):
    place = np.arange(round(seconds * RATE)) / RATE
    return np.sin(2 * np.pi * hertz * place)


def test_each_word_stands_where_it_is_spoken():
    figure = keras_attn.plot_attention(
        Heard(WORDS), sound=tone(hertz=1000), rate=RATE
    )
    first, second = figure.axes
    assert (first.get_xlim(), second.get_xlim()) == ((0, 10), (10, 20))
    shown = [[(x.get_text(), x.xy[0]) for x in ax.texts] for ax in figure.axes]
    assert shown == [[("so", 0.1), ("it", 0.6)], [("is", 11.0)]]
    # Each line has its part of the spectrogram.
    (image,) = second.get_images()
    left, right, *_ = image.get_extent()
    assert abs(left - 10.0) < 0.02 and abs(right - 12.0) < 0.05
    (image,) = first.get_images()
    left, right, bottom, top = image.get_extent()
    assert (left, bottom, top) == (0, 0, RATE / 2000)
    assert abs(right - 10.0) < 0.02
    loudest = image.get_array()[:, 600].argmax() / len(image.get_array())
    assert abs(loudest * top - 1.0) < 0.05  # kHz
    assert figure.get_suptitle().startswith("so it is")
    figure.canvas.draw()


@pytest.mark.parametrize("rate", [11_025, 22_050, 16_000])
def test_the_spectrogram_does_not_drift_from_the_words(rate):
    heard = 29.5  # seconds, where a click is
    sound = np.zeros(30 * rate)
    sound[round(heard * rate)] = 1.0
    word = Word("click", heard, heard)
    figure = keras_attn.plot_attention(Heard([word]), sound=sound, rate=rate)
    image = figure.axes[-1].get_images()[0]
    powers = image.get_array()
    left, right, *_ = image.get_extent()
    frame = powers.mean(axis=0).argmax()
    found = left + frame * (right - left) / powers.shape[1]
    assert abs(found - heard) < 0.01


def test_a_word_at_the_very_end_is_written():
    words = [Word("on", 10.0, 10.0)]
    for seconds, shown in (10.0, [["on"]]), (20.0, [[], ["on"]]):
        figure = keras_attn.plot_attention(
            Heard(words), sound=tone(seconds), rate=RATE
        )
        texts = [[x.get_text() for x in ax.texts] for ax in figure.axes]
        assert texts == shown


@pytest.mark.parametrize("seconds", [2, 30])
def test_a_long_title_stays_in_the_picture_and_above_the_words(seconds):
    heard = Heard([Word("so", 0.1, 0.5)], text="so it is " * 60)
    figure = keras_attn.plot_attention(heard, sound=tone(seconds), rate=RATE)
    figure.canvas.draw()
    (title,) = figure.texts
    box = title.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1
    assert box.y1 <= figure.bbox.y1
    assert title.get_text().endswith("(score −0.500)")
    assert box.y0 >= figure.axes[0].texts[0].get_window_extent().y1
    short = keras_attn.plot_attention(
        heard._replace(text="so"), sound=tone(seconds), rate=RATE
    )
    short.canvas.draw()
    heights = [x.axes[0].get_window_extent().height for x in (figure, short)]
    assert heights[0] > 0.95 * heights[1]


def test_a_list_of_one_sound_has_its_title_and_that_of_the_figure():
    figure = keras_attn.plot_attention(
        [Heard(WORDS)], sound=[tone()], rate=RATE, title="Heading"
    )
    assert figure.get_suptitle() == "Heading"
    (part,) = figure.subfigs
    assert part.get_suptitle().startswith("so it is")


def test_several_results():
    heard = [Heard(WORDS[:2]), Heard([])]
    sounds = [tone(1.0), tone(2.0)]
    figure = keras_attn.plot_attention(heard, sound=sounds, rate=RATE)
    figure.canvas.draw()
    texts = [x.get_text() for ax in figure.axes for x in ax.texts]
    assert texts == ["so", "it"]


@pytest.mark.parametrize(
    "heard, options, message",
    [
        (Heard(None), {}, "whose `words` are None"),
        ((1, 2), {"sound": [tone(1.0)] * 2}, "times of words. Received: int"),
        (Heard(WORDS), {"words": True}, "`words` would have no effect"),
        (Heard(WORDS), {"mark": "path"}, "`mark` would have no effect"),
        (Heard(WORDS), {"sound": tone()[None]}, "an array of samples"),
        (Heard(WORDS), {"sound": tone() * np.nan}, "finite"),
        (Heard(WORDS), {"rate": 0}, "samples per second"),
        (Heard([]), {"rate": 16}, "`rate=16_000` for 16 kHz"),
        (Heard(WORDS), {"rate": 16_000}, "Is `rate` that of the sound"),
        ([Heard(WORDS)], {}, "one for each result"),
    ],
)
def test_refusals(heard, options, message):
    options = {"sound": tone(), "rate": RATE} | options
    with pytest.raises(ValueError, match=message):
        keras_attn.plot_attention(heard, **options)


def test_given_axes_take_a_heat_map():
    with pytest.raises(ValueError, match="`picture` or `sound`"):
        keras_attn.plot_attention(Heard(WORDS), "axes", sound=tone())
