"""`transcribe`: sound of any length, window by window.

It needs only a function that transcribes one window: `Client.words`, the method
`words` of a `keras_attn.Translator`, or a translator that writes timestamps.
"""

import math
import statistics
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from numbers import Real
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_attn_serving import timestamps
from keras_attn_serving.wire.results import Word

_ENDS = ".?!…。！？"  # of sentences
_QUOTES = "\"'”’»)]"  # which may follow one
_PAUSE = 1.0  # seconds of silence between two segments
_LONGEST = 80  # characters of a segment, two lines of a subtitle
_SLOW = 0.7  # seconds of a slow word
_CUT = 0.5  # seconds before the end of a window in which a word may be cut
_LEAST = 1.0  # seconds, at least, between the starts of two windows
# A window whose words are less probable than this, or whose text is so much
# longer than its compressed form, may be silence: thresholds of OpenAI's code.
_PROBABLE = math.exp(-1)
_REPETITIVE = 2.4


class Segment(NamedTuple):
    """A sentence of a sound, or a part of a long one.

    Attributes:
        text: The text.
        start, end: Seconds from the beginning of the sound.
        words: The words, objects with `text`, `start`, `end` and
            `probability`; empty if only timestamps give the times.
    """

    text: str
    start: float
    end: float
    words: list[Word]


def transcribe(
    answer: Callable[..., Sequence[Any]],
    sound: Any,
    prefix: str | None = None,
    *,
    rate: int = 16_000,
    seconds: float = 30.0,
    no_speech: float = 0.6,
) -> Iterator[Segment]:
    """Transcribes a sound of any length, and yields segments as it goes.

    The sound is read in windows. If more sound follows, the next window begins
    after the last sentence in the second half of the window, or else in the
    longest pause there, so no word is cut. Windows without speech are skipped,
    and pauses between sentences belong to no word. Only one window and one
    block of the sound are kept in memory.

    A translator that writes timestamps may be passed instead of its method
    `words`. This saves a second pass over each text, but words have no times,
    and only windows of zeros are skipped. If a text ends within a part, the
    next window begins at the end of the last complete part.

    Args:
        answer: Transcribes one window: the method `words` of a `Client` or
            `RestClient`, or of a `keras_attn.Translator`; or a translator whose
            texts have timestamps.
        sound: A 1D array of samples of one channel: floating-point numbers from
            -1 to 1, or signed integers as in a file. Or an iterable of such
            arrays, one after the other, for a sound that does not fit into
            memory.
        prefix: The beginning of each text, such as Whisper's tokens of a
            language and a task. By default a model of several languages finds
            them in the first window with speech.
        rate: Samples per second, those of the model.
        seconds: Length of a window, which the model reads at once.
        no_speech: Probability that nobody speaks, above which a window is
            skipped if its words are improbable or repeat each other.

    Yields:
        `Segment`s in order.

    Raises:
        ValueError: If the sound is empty, has several channels or numbers that
            are not finite; or if `answer` returns neither words nor timestamps,
            or cuts a window of `seconds`.

    Example:
        ```python
        for segment in transcribe(client.words, sound):
            print(f"{segment.start:7.2f} {segment.text}")
        ```
    """
    _require_numbers(rate, seconds)
    windows = _Windows(sound, int(rate))
    at, size = 0, round(seconds * rate)
    while True:
        samples, last = windows.take(at, size)
        length, following = len(samples) / rate, math.inf
        if samples.any():
            prefixes = None if prefix is None else [prefix]
            (found,) = answer(samples[None], prefixes=prefixes)
            _require_times(found, seconds)
            if found.words is None:
                read = _by_timestamps(found.text, length, last, at / rate)
            elif _is_silence(found, no_speech):
                read = [], length
            else:
                read = _by_words(found, length, last, at / rate)
                prefix = prefix or found.prompt or None
            segments, following = read
            yield from segments
        if last:
            return
        at += max(1, round(min(following, length) * rate))


def _require_numbers(rate, seconds):
    for name, x, least in (("rate", rate, 1), ("seconds", seconds, _LEAST)):
        if not isinstance(x, Real) or not least <= x < math.inf:
            raise ValueError(
                f"`{name}` must be a number, at least {least:g}. Received: "
                f"{name}={x!r}"
            )
    if rate != int(rate):
        raise ValueError(
            "`rate` must be a whole number of samples per second. Received: "
            f"rate={rate!r}"
        )


def _require_times(found, seconds):
    text = getattr(found, "text", None)
    timed = text is not None and (not text.strip() or timestamps.are_in(text))
    if getattr(found, "words", None) is None and not timed:
        raise ValueError(
            "`answer` must tell the words of a sound, or timestamps. Received: "
            f"an answer without, of type {type(found).__name__}. Pass the "
            "method `words` of a client or translator, or a translator that "
            "writes timestamps, not another one itself."
        )
    if found.truncated:
        raise ValueError(
            "A window must be no longer than what the model reads at once. "
            f"Received: seconds={seconds!r}, of which the model left out the "
            "end. Pass a smaller number."
        )


class _Windows:
    """Windows of a sound, each no earlier than the one before."""

    def __init__(self, sound, rate):
        if isinstance(sound, np.ndarray) or hasattr(sound, "__array__"):
            array = np.asarray(sound)
            _require_samples(array)
            step = 30 * rate
            sound = (array[i : i + step] for i in range(0, len(array), step))
        elif not isinstance(sound, Iterable) or isinstance(sound, str | bytes):
            raise ValueError(
                "`sound` must be an array of samples, or an iterable of such "
                f"arrays. Received: {sound!r:.80} (of type "
                f"{type(sound).__name__}). Read the file first, for example "
                "by `soundfile.read(path)`."
            )
        self._blocks = iter(sound)
        self._rate = rate
        self._first = 0  # number of the first sample that is kept
        self._kept = np.zeros(0, "float32")

    def take(self, first, count):
        """Returns samples, and whether no others follow."""
        self._kept = self._kept[first - self._first :]
        self._first = first
        parts, have, ended = [self._kept], len(self._kept), False
        while have <= count:
            block = next(self._blocks, None)
            if block is None:
                ended = True
                break
            parts.append(self._read(np.asarray(block), first + have))
            have += len(parts[-1])
        self._kept = np.concatenate(parts)
        if not len(self._kept) and not first:
            raise ValueError(
                "A sound must have samples. Received: none. Is the file empty?"
            )
        return self._kept[:count], ended and have <= count

    def _read(self, block, first):
        _require_samples(block)
        if block.dtype.kind == "i":
            block = block / -float(np.iinfo(block.dtype).min)
        bad = ~np.isfinite(block)
        if bad.any():
            seconds = (first + int(bad.argmax())) / self._rate
            raise ValueError(
                "The samples of a sound must be finite. Received: "
                f"{block[bad][0]} at {seconds:.3f} s. Replace them by silence, "
                "`numpy.nan_to_num(samples, posinf=0, neginf=0)`."
            )
        return block.astype("float32")


def _require_samples(array):
    if array.ndim != 1 or array.dtype.kind not in "fi":
        raise ValueError(
            "A sound must be an array of samples of one channel, floating or "
            f"signed integer numbers. Received: an array of {array.dtype}, "
            f"shape {array.shape}. Pass a list as `numpy.array(sound)`, and "
            "for several channels their mean, `sound.mean(axis=channels)`."
        )


def _by_timestamps(text, length, last, begin):
    """Returns segments by timestamps, and where the next window begins."""
    parts = timestamps.parts_of(text)
    following = length
    told = [x for x in parts if x.end is not None]
    if told and len(told) < len(parts) and not last:
        # What began last may be cut by the end of the window.
        parts, following = told, max(_LEAST, told[-1].end)
    times = [
        (x.text, x.start, length if x.end is None else min(x.end, length))
        for x in parts
        if x.start < length  # later ones are made up
    ]
    segments = [
        Segment(x, start + begin, end + begin, [])
        for x, start, end in times
        if x
    ]
    return segments, following


def _by_words(found, length, last, begin):
    """Returns segments by words, and where the next window begins."""
    words = _without_pauses(found.words)
    kept = len(words) if last else _whole(words, length)
    text = timestamps.without(found.text)
    segments = [*_segments(text, words[:kept], begin)] if kept else []
    return segments, _next(words, kept, length)


def _without_pauses(words):
    """Returns words without the pause before or after a sentence.

    The model counts a pause as time of the word beside it. As in OpenAI's code,
    such a word is cut to at most twice the usual time.
    """
    took = [x.end - x.start for x in words if x.end > x.start]
    most = 2 * min(_SLOW, statistics.median(took or [_SLOW]))
    found = []
    for i, word in enumerate(words):
        if word.end - word.start > most:
            if not i or _ends_sentence(words[i - 1]):
                word = word._replace(start=word.end - most)
            elif _ends_sentence(word):
                word = word._replace(end=word.start + most)
        found.append(word)
    return found


def _is_silence(found, no_speech):
    if found.empty or not found.words:
        return True
    if found.no_speech <= no_speech:
        return False
    mean = sum(x.probability for x in found.words) / len(found.words)
    text = timestamps.without(found.text).encode()
    return mean < _PROBABLE or len(text) > _REPETITIVE * len(
        zlib.compress(text)
    )


def _whole(words, length):
    """Returns the number of words of a window to keep if more sound follows."""
    later = [i for i, x in enumerate(words, start=1) if x.end >= length / 2]
    for i in reversed(later):
        before = words[i - 1]
        if _ends_sentence(before) and before.end <= length - _CUT:
            return i
    pauses = {i: words[i].start - words[i - 1].end for i in later[:-1]}
    if pauses:
        return max(pauses, key=lambda i: (pauses[i], i))
    is_cut = len(words) > 1 and words[-1].end > length - _CUT
    return len(words) - is_cut


def _next(words, kept, length):
    """Returns the start of the next window, in seconds of this one."""
    if not kept:
        return length
    end = words[kept - 1].end
    if kept < len(words):
        end = (end + words[kept].start) / 2
    return max(end, _LEAST)


def _ends_sentence(word):
    return word.text.rstrip(_QUOTES)[-1:] in set(_ENDS)


def _segments(text, words, begin):
    """Yields the segments of words, whose times get later by `begin`."""
    group: list[Word] = []
    at = first = 0
    for i, word in enumerate(words):
        if not group:
            first = max(at, text.find(word.text, at))
        at = max(at, text.find(word.text, at)) + len(word.text)
        moved = word._replace(start=word.start + begin, end=word.end + begin)
        group.append(moved)
        following = words[i + 1] if i + 1 < len(words) else None
        if (
            following is None
            or _ends_sentence(word)
            or following.start - word.end > _PAUSE
            or at + 1 + len(following.text) - first > _LONGEST
        ):
            shown = text[first:at].strip()
            yield Segment(shown, group[0].start, group[-1].end, group)
            group = []
