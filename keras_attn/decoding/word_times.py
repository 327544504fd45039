"""`WordTimes`: the heads of a speech model that show when a word is spoken."""

import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence
from numbers import Integral

import tensorflow as tf

from keras_attn import arguments
from keras_attn.decoding.time_warping import entries
from keras_attn.decoding.time_warping import median_filtered


@dataclasses.dataclass(frozen=True)
class WordTimes:
    """Settings to find the time of each word from a speech model's attention.

    Some attention heads follow the speech as it is transcribed. Their weights
    are standardized over the tokens, smoothed by a median filter and averaged
    over the heads; dynamic time warping then finds the time of each token, as
    in OpenAI's code of Whisper.

    Args:
        heads: Pairs `(layer name, head)`: the name of a layer that attends to
            the audio, and the index of one of its heads.
        samples: Audio samples per column of the attention weights.
        sampling_rate: Samples per second.
        median: Width of the median filter in columns, an odd number; 1 for
            none.
        no_speech: Id of the token that the model writes first if nobody
            speaks, or `None`. Its probability is returned as `no_speech`.
        before: Ids to insert between the prompt and the text when a text is
            timed, such as the id of `<|notimestamps|>` for a translator that
            writes timestamps.

    References:
        - [Radford et al., 2022](https://arxiv.org/abs/2212.04356)

    Raises:
        ValueError: If an argument is invalid.

    Example:
        >>> times = keras_attn.WordTimes([("decoder_1_attention", 0)])
        >>> times.seconds  # of a column
        0.02
    """

    heads: Sequence[tuple[str, int]]
    samples: int = 320
    sampling_rate: int = 16_000
    median: int = 7
    no_speech: int | None = None
    before: Sequence[int] = ()

    def __post_init__(self):
        for name in ("samples", "sampling_rate", "median"):
            arguments.positive(getattr(self, name), name)
        heads, before = _several(self.heads), _several(self.before)
        heads = [_several(x) for x in heads or ()]
        pairs = [tuple(x) for x in heads if x is not None]
        if (
            not heads
            or len(pairs) < len(heads)
            or not all(
                len(x) == 2 and isinstance(x[0], str) and _is_whole(x[1])
                for x in pairs
            )
            or before is None
            or not all(map(_is_whole, before))
            or not (self.no_speech is None or _is_whole(self.no_speech))
            or self.median % 2 == 0
        ):
            raise ValueError(
                "`WordTimes` needs heads, pairs of a layer's name and a "
                "number, one at least; ids in `before`; an id or None as "
                f"`no_speech`; and an odd `median`. Received: {self}. For "
                'example pass `heads=[("decoder_1_attention", 0)]`.'
            )
        object.__setattr__(self, "heads", tuple((x, int(n)) for x, n in pairs))
        object.__setattr__(self, "before", tuple(map(int, before)))

    @property
    def seconds(self) -> float:
        """Seconds per column of the attention weights."""
        return self.samples / self.sampling_rate

    def columns(self, sound) -> tf.Tensor:
        """Returns the number of columns without padding, int32 `(batch,)`.

        Args:
            sound: Samples `(batch, samples)`. The zeros after the last sample
                that is not 0 are padding.
        """
        places = tf.range(1, tf.shape(sound)[1] + 1)
        last = tf.where(sound != 0, places, 0)
        return tf.reduce_max(last, axis=1) // self.samples

    def starts(self, weights, columns, first) -> tf.Tensor:
        """Returns the time at which each token begins, in seconds.

        Args:
            weights: Attention weights of the heads for one row, `(heads, time,
                source)`. The last position has read the whole text.
            columns: Number of columns without padding, a scalar.
            first: Index of the position that predicts the first token of the
                text.

        Returns:
            float32 `(tokens + 1,)`; the last value is the end of the text.
        """
        columns = tf.clip_by_value(columns, 1, tf.shape(weights)[2])
        weights = weights[:, :, :columns]
        weights /= tf.reduce_sum(weights, axis=2, keepdims=True)
        mean, variance = tf.nn.moments(weights, [1], keepdims=True)
        weights = tf.math.divide_no_nan(weights - mean, tf.sqrt(variance))
        weights = median_filtered(weights, self.median)
        found = entries(tf.reduce_mean(weights, axis=0)[first:-1])
        return tf.cast(found, tf.float32) * self.seconds


def _several(given):
    """Returns the items of an iterable as a list; None for anything else."""
    is_text = isinstance(given, str | bytes)
    return list(given) if isinstance(given, Iterable) and not is_text else None


def _is_whole(x):
    return isinstance(x, Integral) and not isinstance(x, bool) and x >= 0
