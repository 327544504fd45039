"""`LogMelSpectrogram` computes what Whisper's paper and code say.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from support.sounds import batch
from support.sounds import sounds

import keras_attn
from keras_attn.backend import as_array
from keras_attn.layers.log_mel_spectrogram import mel_filters

OPTIONS = {"num_mels": 20, "seconds": 2}


def by_hand(sound, filters, size=400, stride=160):
    """Frames, windows of Hann, powers, filters and logarithms, in float64."""
    sound = np.pad(sound, (0, 32_000 - len(sound))).astype("float64")
    sound = np.pad(sound, size // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    frames = [
        np.abs(np.fft.rfft(window * sound[i * stride : i * stride + size])) ** 2
        for i in range(200)
    ]
    logs = np.log10(np.maximum(np.stack(frames) @ filters, 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


def test_it_computes_the_formula():
    layer = keras_attn.LogMelSpectrogram(**OPTIONS)
    some = sounds()
    found = as_array(layer(batch(some)))
    assert found.shape == (len(some), 200, 20)
    filters = mel_filters(20, 400, 16_000)
    for row, sound in zip(found, some, strict=True):
        np.testing.assert_allclose(row, by_hand(sound, filters), atol=1e-4)


def test_filters_are_triangles_of_one_area():
    filters = mel_filters(80, 4_000, 16_000)
    assert filters.shape == (2_001, 80) and filters.min() == 0
    areas = filters.sum(axis=0) * 4  # Hz from one row to the next
    np.testing.assert_allclose(areas, 1, atol=0.02)
    peaks = filters.argmax(axis=0) * 4
    assert (np.diff(peaks) > 0).all()
    # Below 1 kHz the scale is linear, above it is geometric.
    apart = np.diff(peaks)
    assert np.ptp(apart[:20]) <= 4
    ratios = peaks[41:] / peaks[40:-1]
    assert np.ptp(ratios) < 0.01


def test_a_sound_is_padded_or_cut():
    layer = keras_attn.LogMelSpectrogram(**OPTIONS)
    long = sounds(seconds=[3.0])[0][None]
    cut = as_array(layer(long[:, :32_000]))
    np.testing.assert_array_equal(as_array(layer(long)), cut)
    short = as_array(layer(long[:, :8_000]))
    padded = np.pad(long[:, :8_000], ((0, 0), (0, 24_000)))
    np.testing.assert_array_equal(short, as_array(layer(padded)))


def test_it_is_made_again_from_its_configuration():
    layer = keras_attn.LogMelSpectrogram(**OPTIONS, stride=80)
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    sound = batch(sounds())
    one, two = as_array(layer(sound)), as_array(again(sound))
    np.testing.assert_array_equal(one, two)
    shape = layer.compute_output_shape((5, None))
    assert shape == one.shape == (5, 400, 20)


@pytest.mark.parametrize("name", ["num_mels", "seconds", "stride"])
def test_sizes_are_positive_integers(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive"):
        keras_attn.LogMelSpectrogram(**{name: 0})
