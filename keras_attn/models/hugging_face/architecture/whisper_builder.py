"""`WhisperBuilder`: a functional Keras model like Whisper."""

import keras
from keras import layers

from keras_attn.layers.log_mel_spectrogram import LogMelSpectrogram
from keras_attn.layers.positions import PositionEmbedding
from keras_attn.models.hugging_face.architecture.bart_builder import BartBuilder

_WIDTH = 3  # frames that a convolution reads


class WhisperBuilder(BartBuilder):
    """Makes the layers of a model, and records where their weights are.

    The log-mel spectrogram of the sound and two convolutions replace the
    source's embedding, and no frame is padding.

    Args:
        configuration: The `WhisperConfiguration`.
        table: The `Table` of weights.
    """

    has_key_bias = False

    def model(self):
        """Returns the model, without its weights.

        Its inputs are `sound (batch, samples)` and `target`.
        """
        sound = keras.Input((None,), name="sound")
        features = LogMelSpectrogram(name="features", **self._is.sound)(sound)
        target = keras.Input((None,), dtype="int32", name="target")
        embedding = self._tied(
            "embedding", ["decoder.embed_tokens.weight"], "proj_out.weight"
        )
        memory = self._encoder(self._convolved(features), None)
        hidden = self._decoder(embedding(target), memory, None)
        logits = embedding(hidden, reverse=True)
        return keras.Model([sound, target], logits)

    def _convolved(self, x):
        """Applies two convolutions; the second one halves the frames."""
        for i, strides in enumerate((1, 2), start=1):
            x = layers.ZeroPadding1D(name=f"encoder_padding_{i}")(x)
            layer = layers.Conv1D(
                self._is.width,
                _WIDTH,
                strides,
                activation="gelu",
                kernel_initializer="zeros",
                name=f"encoder_convolution_{i}",
            )
            x = layer(x)
            self._table.add_convolution(f"encoder.conv{i}", layer)
        return x

    def _positions(self, side):
        is_ = self._is
        longest = is_.longest if side == "decoder" else is_.frames // 2
        made = PositionEmbedding(
            longest,
            embeddings_initializer="zeros",
            name=f"{side}_positions",
            trainable=side == "decoder",  # those of the encoder are sines
        )
        made.build((None, None, is_.width))
        self._table.add(
            f"{side}.embed_positions.weight",
            made.embeddings,
            (longest, is_.width),
        )
        return made
