"""`OverSound`: words over the spectrogram of a sound, at their times."""

import math

import numpy as np

from keras_attn.viewing.plots.fonts import FAINT
from keras_attn.viewing.plots.fonts import INK
from keras_attn.viewing.plots.heat_map import wrapped
from keras_attn.viewing.plots.over_picture import LEFT

_SECONDS = 10.0  # seconds in a line
_WIDE = 1.2  # inches, width of a second
_HIGH = 2.0  # inches, height of a line with the words above it
_LEVELS = 3  # heights above a spectrogram at which successive words are written
_WINDOW = 0.025  # seconds in a window of the spectrogram
_STEP = 0.010  # seconds from one window to the next
_RANGE = 80.0  # decibels below the loudest that are shown
_LOWEST = 100  # samples per second, with a sample in each step
_TITLE_LINE = 0.19  # inches, height of a line of the title


class OverSound:
    """Draws lines of ten seconds, each with its words above it.

    Args:
        words: Objects with `text`, `start` and `end`, both in seconds.
        title: Text above the lines.
        sound: Array of shape `(samples,)`.
        rate: Samples per second.

    Raises:
        ValueError: If `words` is None, if the sound is not a finite array of
            samples, if `rate` is below 100, or if a word starts after the end
            of the sound.
    """

    def __init__(self, words, title, sound, rate):
        self.title, self._rate = title, rate
        self._words, self._sound = _checked(words, sound, rate)
        self.seconds = len(self._sound) / rate
        self.lines = max(1, math.ceil(self.seconds / _SECONDS - 1e-6))

    @property
    def text(self) -> str:
        """All characters that this panel draws."""
        return "".join([*(x.text for x in self._words), self.title])

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height in inches, with labels."""
        more = self._wrapped.count("\n") * _TITLE_LINE
        return self._width, self.lines * _HIGH + 0.6 + more

    @property
    def _width(self):
        return max(2.0, min(self.seconds, _SECONDS)) * _WIDE + 0.9

    @property
    def _wrapped(self):
        return wrapped(self.title, (self._width - 0.5) / 0.085)

    def draw(self, figure, font):
        """Draws into a figure, or a part of one."""
        powers, step = self._powers()
        top = float(powers.max())
        axes = figure.subplots(self.lines, 1, squeeze=False).ravel()
        for number, ax in enumerate(axes):
            first = number * _SECONDS
            last = first + min(self.seconds, _SECONDS)
            part = slice(int(first / step), math.ceil(last / step))
            shown = powers[part]
            ax.imshow(
                shown.T,
                cmap="gray_r",
                vmin=top - _RANGE,
                vmax=top,
                origin="lower",
                aspect="auto",
                extent=(
                    part.start * step,
                    (part.start + len(shown)) * step,
                    0,
                    self._rate / 2000,
                ),
            )
            ax.set_xlim(first, last)
            ax.tick_params(length=2, labelsize=8, labelcolor=FAINT)
            ax.set_ylabel("kHz", color=FAINT, size=8)
            for side in ax.spines.values():
                side.set_edgecolor(FAINT)
            self._write(ax, number, font)
        axes[-1].set_xlabel("seconds", color=FAINT, size=8)
        place = dict(x=LEFT / self.inches[0], ha="left")
        figure.suptitle(self._wrapped, size=11, color=INK, **place, **font)

    def _write(self, ax, line, font):
        """Writes, above a line, the words that begin in it.

        The last line has those that begin at the very end, too.
        """
        for number, word in enumerate(self._words):
            if min(word.start // _SECONDS, self.lines - 1) != line:
                continue
            ax.axvspan(
                word.start, word.end, ymin=0.97, color="tab:blue", linewidth=0
            )
            ax.axvline(word.start, color="tab:blue", linewidth=0.6)
            ax.annotate(
                word.text,
                (word.start, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2 + 10 * (number % _LEVELS)),
                textcoords="offset points",
                annotation_clip=False,
                size=8,
                color=INK,
                **font,
            )

    def _powers(self):
        """Returns a spectrogram.

        Returns:
            Powers in decibels, `(frames, frequencies)`, and the seconds from
            one frame to the next.
        """
        size, step = (round(x * self._rate) for x in (_WINDOW, _STEP))
        sound = np.pad(self._sound, (size // 2, size))
        frames = np.lib.stride_tricks.sliding_window_view(sound, size)[::step]
        found = np.abs(np.fft.rfft(frames * np.hanning(size)))
        decibels = 20 * np.log10(np.maximum(found, 1e-10)).astype("float32")
        # A step is a whole number of samples: 220 for 220.5 at 22,050 Hz.
        return decibels, step / self._rate


def _checked(words, sound, rate):
    if words is None:
        raise ValueError(
            "`sound` needs a result with the times of words. Received: one "
            "whose `words` are None. Pass a result of "
            "`translator.words(sounds)` or `client.words(sounds)`."
        )
    sound = np.asarray(sound, "float32")
    if sound.ndim != 1 or not sound.size or not np.isfinite(sound).all():
        raise ValueError(
            "`sound` must be an array of samples (samples,), all finite and at "
            f"least one. Received: shape {sound.shape}. From a batch pass one "
            "sound, `sounds[0]`."
        )
    if not _LOWEST <= rate < math.inf:
        raise ValueError(
            "`rate` must be the samples per second, a number of at least "
            f"{_LOWEST}. Received: rate={rate!r}. Pass for example "
            "`rate=16_000` for 16 kHz."
        )
    late = [x for x in words if x.start > len(sound) / rate]
    if late:
        raise ValueError(
            "The words must be those of the sound. Received: "
            f"{late[0].text!r} at {late[0].start:.2f} s of "
            f"{len(sound) / rate:.2f} s. Is `rate` that of the sound? It must "
            "be the samples per second."
        )
    return list(words), sound
