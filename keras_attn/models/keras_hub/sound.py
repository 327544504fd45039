"""Layers from sound to what an encoder of KerasHub reads."""

import keras
import numpy as np
from keras import ops

# The shortest sound that Moonshine takes, a tenth of a second at 16 kHz. Its
# convolutions need 895 samples.
_LEAST = 1_600


@keras.saving.register_keras_serializable("keras_attn")
class SoundFeatures(keras.layers.Layer):
    """Computes the features of sound with KerasHub's `AudioConverter`.

    Args:
        converter: The converter, such as a `WhisperAudioConverter`. Its
            features have one size, whatever the length of the sound.

    Call arguments:
        sound: Samples `(batch, samples)`, padded with zeros.

    Output shape:
        `(batch, frames, features)`.

    Attributes:
        cut_at: Number of samples at which a sound is cut, or `None`.
        reads_sound: True, so a translator checks its samples.
    """

    reads_sound = True

    def __init__(self, converter, dtype="float32", **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        self.supports_jit = False  # the converter uses ragged tensors
        self.converter = _in_float32(converter)
        self.cut_at = getattr(converter, "num_samples", None)

    def call(self, sound):
        return self.converter(sound)

    def compute_output_shape(self, sound_shape):
        silence = np.zeros((1, 16_000), "float32")
        return (sound_shape[0], *self.converter(silence).shape[1:])

    def get_config(self):
        converter = keras.saving.serialize_keras_object(self.converter)
        return super().get_config() | {"converter": converter}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        converter = keras.saving.deserialize_keras_object(
            config.pop("converter")
        )
        return cls(converter, **config)


def _in_float32(converter):
    """Returns a converter in float32, because an FFT needs 32 bits."""
    if converter.compute_dtype in ("float32", "float64"):
        return converter
    config = converter.get_config() | {"dtype": "float32"}
    return type(converter).from_config(config)


@keras.saving.register_keras_serializable("keras_attn")
class Waveform(keras.layers.Layer):
    """Prepares sound for Moonshine, which reads the samples themselves.

    Zeros after the last other sample are padding. Zeros within a sound are
    silence. A sound that is too short for the encoder is padded.

    Args:
        normalize: Whether each sound gets a mean of 0 and a variance of 1.

    Call arguments:
        sound: Samples `(batch, samples)`, padded with zeros.

    Output shape:
        Samples `(batch, samples, 1)`, and which of them are real, boolean
        `(batch, samples)`.

    Attributes:
        reads_sound: True, so a translator checks its samples.
    """

    reads_sound = True

    def __init__(self, normalize=False, dtype="float32", **kwargs):
        # In 16 bits sums over samples overflow, and quiet ones become zero.
        super().__init__(dtype=dtype, **kwargs)
        self.normalize = normalize

    @classmethod
    def like(cls, converter):
        """Returns the layer that prepares sound as a converter does.

        Args:
            converter: A `MoonshineAudioConverter`, or `None`.
        """
        if getattr(converter, "padding_value", 0) != 0:
            raise ValueError(
                "Sound is padded with zeros. Received: a "
                f"{type(converter).__name__} with "
                f"padding_value={converter.padding_value}. Make it with "
                "`padding_value=0.0`."
            )
        return cls(getattr(converter, "do_normalize", False))

    def call(self, sound):
        missing = ops.maximum(_LEAST - ops.shape(sound)[1], 0)
        sound = ops.pad(sound, [[0, 0], [0, missing]])
        place = ops.arange(ops.shape(sound)[1])
        last = ops.max(ops.where(sound != 0, place + 1, 0), axis=1)
        real = place < ops.expand_dims(ops.maximum(last, _LEAST), 1)
        if self.normalize:
            sound = self._normalized(sound, ops.cast(real, sound.dtype))
        return ops.expand_dims(sound, -1), real

    def _normalized(self, sound, real):
        count = ops.sum(real, axis=1, keepdims=True)
        mean = ops.sum(sound, axis=1, keepdims=True) / count
        apart = (sound - mean) * real
        variance = ops.sum(ops.square(apart), axis=1, keepdims=True) / count
        return apart / ops.sqrt(variance + 1e-7)

    def compute_output_spec(self, sound):
        rows = sound.shape[0]
        return (
            keras.KerasTensor((rows, None, 1), self.compute_dtype),
            keras.KerasTensor((rows, None), "bool"),
        )

    def get_config(self):
        return super().get_config() | {"normalize": self.normalize}
