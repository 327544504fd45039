"""Position embeddings, without which attention ignores the order of tokens.

`call` takes `start_index`, the number of the first position. Decoding step by
step passes the number of the step as `start_index`, as for KerasHub's layers.
"""

import keras
import numpy as np
from keras import ops

from keras_attn.arguments import positive
from keras_attn.backend import require


@keras.saving.register_keras_serializable("keras_attn")
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector for each position.

    KerasHub's layer of this name returns only the vectors. This layer returns
    the sum with the inputs, which keeps the mask of the inputs.

    Args:
        max_length: Number of positions that have a vector. No sequence may
            be longer.
        embeddings_initializer: Initializer of the vectors. Defaults to
            `"uniform"`.

    Call arguments:
        inputs: Tensor of shape `(batch, length, dim)`.
        start_index: Number of the first position: an integer or an integer
            scalar.

    Output:
        Tensor like `inputs`.

    Raises:
        ValueError: If a sequence ends after position `max_length`. If lengths
            are unknown when the graph is built, TensorFlow raises an error
            when the graph runs.

    Reference:
        - [Gehring et al., 2017](https://arxiv.org/abs/1705.03122), section
          3.1

    Example:
        >>> embedding = keras_attn.PositionEmbedding(10)
        >>> embedding(np.ones((2, 3, 4))).shape
        TensorShape([2, 3, 4])
    """

    def __init__(self, max_length, embeddings_initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        self.max_length = positive(
            max_length, "max_length", "Pass the length of the longest sequence."
        )
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer
        )
        self.supports_masking = True

    def build(self, inputs_shape):
        _require_vectors(self, inputs_shape, self.compute_dtype)
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_length, inputs_shape[-1]),
            initializer=self.embeddings_initializer,
        )

    def call(self, inputs, start_index=0):
        length, dim = ops.shape(inputs)[1], inputs.shape[-1]
        require(
            start_index + length <= self.max_length,
            f"'{self.name}' (PositionEmbedding) has vectors for "
            f"{self.max_length} positions, so a sequence must not be longer. "
            "Received: a longer sequence. Build the layer with a higher "
            "`max_length`.",
        )
        positions = ops.slice(
            ops.cast(self.embeddings, self.compute_dtype),
            (start_index, 0),
            (length, dim),
        )
        return inputs + positions

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
        }


@keras.saving.register_keras_serializable("keras_attn")
class SinePositionEncoding(keras.layers.Layer):
    """Adds sines and cosines of the position, for any length.

    Even dimensions `2i` get `sin(position / max_wavelength^(2i / dim))`, odd
    dimensions `2i + 1` get the cosine of the same angle. KerasHub's layer of
    this name returns only the encoding. This layer returns the sum with the
    inputs, which keeps the mask of the inputs. `layout`, `endpoint` and
    `offset` reproduce the encodings of pretrained models.

    Args:
        max_wavelength: Number whose powers divide the position. In the last
            dimensions the divisor is almost this number. Defaults to `10000`.
        layout: `"interleaved"`, as above, or `"halves"`: the first half of
            the dimensions has all sines, the second all cosines, as in
            Marian. Defaults to `"interleaved"`.
        endpoint: Whether the last dimensions' divisor is `max_wavelength`
            itself, as in tensor2tensor and FairSeq: the exponent is then
            `i / (dim / 2 - 1)`. Defaults to `False`.
        offset: Number that is added to each position; FairSeq adds 2.
            Defaults to `0`.

    Call arguments:
        inputs: Tensor of shape `(batch, length, dim)`.
        start_index: Number of the first position: an integer or an integer
            scalar.

    Output:
        Tensor like `inputs`.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section
          3.5

    Example:
        >>> keras_attn.SinePositionEncoding()(np.zeros((1, 1, 4)))[0, 0].numpy()
        array([0., 1., 0., 1.], dtype=float32)
    """

    def __init__(
        self,
        max_wavelength=10_000,
        layout="interleaved",
        endpoint=False,
        offset=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if layout not in ("interleaved", "halves"):
            raise ValueError(
                '`layout` must be "interleaved" or "halves". Received: '
                f"layout={layout!r}"
            )
        self.max_wavelength = max_wavelength
        self.layout = layout
        self.endpoint = endpoint
        self.offset = offset
        self.supports_masking = True

    def call(self, inputs, start_index=0):
        _require_vectors(self, inputs.shape, inputs.dtype)
        length, dim = ops.shape(inputs)[1], inputs.shape[-1]
        # In float32: float16 cannot tell 2049 from 2048.
        positions = ops.cast(
            start_index + ops.arange(length, dtype="int32") + self.offset,
            "float32",
        )
        number, sines = self._pairs(dim)
        pairs = max(1.0, dim / 2 - 1) if self.endpoint else dim / 2
        # Powers in float64: at position 1,000 a float32 error would matter.
        frequencies = np.power(float(self.max_wavelength), -number / pairs)
        angles = ops.expand_dims(positions, 1) * ops.convert_to_tensor(
            frequencies, "float32"
        )
        encoding = ops.where(sines, ops.sin(angles), ops.cos(angles))
        return inputs + ops.cast(encoding, self.compute_dtype)

    def _pairs(self, dim):
        """Returns the pair of each dimension, and whether it is a sine."""
        dims = np.arange(dim)
        if self.layout == "interleaved":
            return dims // 2, dims % 2 == 0
        half = (dim + 1) // 2
        return dims % half, dims < half

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
            "endpoint": self.endpoint,
            "offset": self.offset,
        }


def _require_vectors(layer, shape, dtype):
    if len(shape) != 3 or "int" in keras.backend.standardize_dtype(dtype):
        raise ValueError(
            f"`{type(layer).__name__}` takes vectors (batch, length, dim) of "
            "a float dtype. Received: inputs of "
            f"shape {tuple(shape)}, {keras.backend.standardize_dtype(dtype)}. "
            "Turn token ids into vectors with `keras.layers.Embedding`."
        )
