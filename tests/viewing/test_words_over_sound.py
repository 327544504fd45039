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
    (image,) = first.get_images()
    left, right, bottom, top = image.get_extent()
    assert (left, bottom, top) == (0, 0, RATE / 2000)
    assert abs(right - 12.0) < 0.05
    loudest = image.get_array()[:, 600].argmax() / len(image.get_array())
    assert abs(loudest * top - 1.0) < 0.05  # kHz
    assert figure.get_suptitle().startswith("so it is")
    figure.canvas.draw()


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
