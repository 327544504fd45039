"""`LogMelSpectrogram`: the features of sound that Whisper reads."""

import functools

import keras
import numpy as np
from keras import ops

from keras_attn.arguments import positive

_LINEAR = 200 / 3  # Hz per mel, below _CORNER
_CORNER = 1000.0  # Hz
_OCTAVE = np.log(6.4) / 27  # increase of log(Hz) per mel, above _CORNER


@keras.saving.register_keras_serializable("keras_attn")
class LogMelSpectrogram(keras.layers.Layer):
    """Computes the log-mel spectrogram of sound, as Whisper does.

    A sound is padded with zeros, or cut, to `seconds`. Its power spectrogram,
    with Hann windows, goes through triangular filters on Slaney's mel scale.
    Base-10 logarithms of the results are clipped to at most 8 below the
    sound's largest. Then 4 is added, and the sum is divided by 4.

    It runs on every backend of Keras and under XLA.

    Args:
        num_mels: Number of filters. Defaults to `80`.
        seconds: Length to which sounds are padded or cut, a whole number of
            seconds. Defaults to `30`.
        sampling_rate: Samples per second. Defaults to `16000`.
        fft_length: Samples in a window. Defaults to `400`.
        stride: Samples from one window to the next. Defaults to `160`.
        dtype: Dtype of the computation. Defaults to `"float32"`.

    Call arguments:
        sound: Samples from -1 to 1, `(batch, samples)`, padded with zeros.

    Output:
        Tensor `(batch, frames, num_mels)`, with one frame per `stride`
        samples.

    Attributes:
        cut_at: Number of samples at which a sound is cut.
        reads_sound: True, so a translator checks its samples.

    Raises:
        ValueError: If a size is not a positive integer.

    References:
        - [Radford et al., 2022](https://arxiv.org/abs/2212.04356), section
          2.2
        - Slaney, 1998, "Auditory toolbox", on the scale

    Example:
        >>> layer = keras_attn.LogMelSpectrogram(seconds=1)
        >>> layer(np.zeros((2, 16_000), "float32")).shape
        TensorShape([2, 100, 80])
    """

    reads_sound = True

    def __init__(
        self,
        num_mels=80,
        seconds=30,
        sampling_rate=16_000,
        fft_length=400,
        stride=160,
        dtype="float32",
        **kwargs,
    ):
        # Half precision would lose quiet sounds.
        super().__init__(dtype=dtype, **kwargs)
        self.num_mels = positive(num_mels, "num_mels")
        self.seconds = positive(seconds, "seconds")
        self.sampling_rate = positive(sampling_rate, "sampling_rate")
        self.fft_length = positive(fft_length, "fft_length")
        self.stride = positive(stride, "stride")
        self.cut_at = self.seconds * self.sampling_rate

    @functools.cached_property
    def _filters(self):
        return mel_filters(self.num_mels, self.fft_length, self.sampling_rate)

    def call(self, sound):
        sound = sound[:, : self.cut_at]
        missing = self.cut_at - ops.shape(sound)[1]
        sound = ops.pad(sound, [[0, 0], [0, missing]])
        sound = ops.reshape(sound, (-1, self.cut_at))
        real, imaginary = ops.stft(
            sound, self.fft_length, self.stride, self.fft_length
        )
        powers = (ops.square(real) + ops.square(imaginary))[:, :-1]
        mels = ops.matmul(powers, ops.convert_to_tensor(self._filters))
        logs = ops.log10(ops.maximum(mels, 1e-10))
        most = ops.max(logs, axis=(1, 2), keepdims=True)
        return (ops.maximum(logs, most - 8) + 4) / 4

    def compute_output_shape(self, sound_shape):
        return (sound_shape[0], self.cut_at // self.stride, self.num_mels)

    def get_config(self):
        return {
            **super().get_config(),
            "num_mels": self.num_mels,
            "seconds": self.seconds,
            "sampling_rate": self.sampling_rate,
            "fft_length": self.fft_length,
            "stride": self.stride,
        }


def mel_filters(num_mels, fft_length, sampling_rate):
    """Returns triangular filters of equal area on Slaney's mel scale.

    Args:
        num_mels: Number of filters.
        fft_length: Samples in a window.
        sampling_rate: Samples per second.

    Returns:
        Array `(fft_length // 2 + 1, num_mels)`, float32.
    """
    top = _mels(sampling_rate / 2)
    corners = _hertz(np.linspace(0.0, top, num_mels + 2))
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    hertz = np.fft.rfftfreq(fft_length, 1 / sampling_rate)[:, None]
    rising = (hertz - left) / (middle - left)
    falling = (right - hertz) / (right - middle)
    filters = np.maximum(0, np.minimum(rising, falling))
    return (filters * 2 / (right - left)).astype("float32")


def _mels(hertz):
    if hertz < _CORNER:
        return hertz / _LINEAR
    return _CORNER / _LINEAR + np.log(hertz / _CORNER) / _OCTAVE


def _hertz(mels):
    linear = mels * _LINEAR
    above = np.maximum(mels - _CORNER / _LINEAR, 0)
    return np.where(above > 0, _CORNER * np.exp(above * _OCTAVE), linear)
