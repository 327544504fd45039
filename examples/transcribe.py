"""
Title: Subtitles by Whisper
Date created: 2026/11/27
Description: From a file of sound to text with times, subtitles and a server.

`from_hugging_face` reads Whisper from its directory, without PyTorch and
without transformers. This program transcribes a sound file of any length and
rate, in one channel or several: as lines with times, and as subtitles in the
format of the file's ending, such as `.srt` or `.vtt`.

    hf download openai/whisper-tiny --local-dir whisper-tiny
    python examples/transcribe.py whisper-tiny speech.flac
    python examples/transcribe.py whisper-tiny speech.flac \\
        --subtitles speech.srt speech.vtt --words words.json
    python examples/transcribe.py whisper-tiny speech.flac \\
        --serve models/whisper
    python examples/transcribe.py whisper-tiny speech.flac --timestamps

A model of several languages detects that of the sound, unless `--source` names
it; `--target en` translates to English.

It needs keras-attn with its extras `examples` and `hugging-face`, and
keras-attn-serving, with its extra `server` to serve. What all examples share is
in `common/`.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes
import keras
import numpy as np
import pysubs2
import soundfile
import soxr
from keras_attn_serving import Client
from keras_attn_serving import Segment
from keras_attn_serving import transcribe

import keras_attn

RATE = 16_000  # samples per second, as Whisper reads them
SECONDS = 10  # of a block

"""
## The sound

It is read block by block, so that a recording of hours takes no more memory
than one of seconds. Channels are mixed, and other rates resampled.
"""


def blocks(path: Path) -> Iterator[np.ndarray]:
    """Yields the samples of a file, one channel at Whisper's rate."""
    with soundfile.SoundFile(path) as file:
        count = SECONDS * file.samplerate
        stream = soxr.ResampleStream(file.samplerate, RATE, 1, "float32")
        for block in file.blocks(count, dtype="float32", always_2d=True):
            yield stream.resample_chunk(block.mean(axis=1))
        yield stream.resample_chunk(np.zeros(0, "float32"), last=True)


"""
## The text

`transcribe` takes what answers for one window, of Whisper's 30 seconds: here a
translator, or a client that asks a server. It yields a sentence as soon as it
is found. The times are those of words; or those of parts, which Whisper writes
itself, in less time.
"""


@contextmanager
def answering(translator, serve: Path | None, timestamps: bool):
    """Yields what writes a text with times, here or on a server."""
    if serve is None:
        yield translator if timestamps else translator.words
        return
    path = translator.export(serve, lengths=True, signatures=["words"])
    print(f"Exported to {path}.")
    limit = f"--max_elements={60 * RATE}"  # a window has 30 seconds
    with common.serving.running_server(serve, limit) as address:
        with Client(address, model=serve.name, timeout=600.0) as client:
            yield client.words


def write(answer, path: Path, window: float) -> list[Segment]:
    """Prints the sentences of a file as they come, and returns them.

    Args:
        answer: What writes a text with times.
        path: The file.
        window: Seconds of sound that the model reads at once.
    """
    seconds = soundfile.info(path).duration
    bar = keras.utils.Progbar(max(1, round(seconds)), unit_name="second")
    found, started = [], time.monotonic()
    for segment in transcribe(answer, blocks(path), seconds=window):
        found.append(segment)
        print(f"\r{clock(segment.start)} {segment.text}")
        bar.update(min(round(segment.end), bar.target - 1))
    bar.update(bar.target)
    took = time.monotonic() - started
    print(f"{took:.1f} s for {seconds:.1f} s of sound.")
    return found


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds, 2), 60)
    return f"{int(minutes):3d}:{seconds:05.2f}"


"""
## Subtitles and words
"""


def write_subtitles(segments: list[Segment], path: Path):
    subtitles = pysubs2.SSAFile()
    subtitles.events = [
        pysubs2.SSAEvent(round(1000 * x.start), round(1000 * x.end), x.text)
        for x in segments
    ]
    subtitles.save(str(path))


def write_words(segments: list[Segment], path: Path):
    words = [x._asdict() for segment in segments for x in segment.words]
    written = json.dumps(words, ensure_ascii=False, indent=1) + "\n"
    path.write_text(written, encoding="utf-8")


"""
## All steps in turn
"""


def main(arguments: list[str] | None = None):
    options = parse(arguments)
    search = {}  # in place of what the directory says
    if options.beams is not None:
        search["num_beams"] = options.beams
    if options.timestamps:
        search["return_timestamps"] = True
    translator = keras_attn.Translator.from_hugging_face(
        options.directory, search, options.source, options.target
    )
    with answering(translator, options.serve, options.timestamps) as answer:
        window = translator.model.get_layer("features").seconds
        segments = write(answer, options.file, window)
    for path in options.subtitles:
        write_subtitles(segments, path)
        print(f"Subtitles are in {path}.")
    if options.words:
        write_words(segments, options.words)
        print(f"Words and their times are in {options.words}.")


def parse(arguments):
    parser = argparse.ArgumentParser(description="Writes what is said.")
    add, positive = parser.add_argument, common.command_line.positive
    add("directory", type=Path, help="what `hf download` has fetched")
    add("file", type=Path, help="sound: WAV, FLAC, OGG, MP3")
    add("--source", metavar="LANGUAGE", help="of the sound, such as fr")
    add("--target", metavar="LANGUAGE", help="of the text: en translates")
    add("--beams", type=positive, help="in place of what the directory says")
    add("--subtitles", type=Path, nargs="+", default=[], metavar="FILE")
    add("--words", type=Path, metavar="FILE", help="JSON of words and times")
    add("--serve", type=Path, metavar="BASE_PATH", help="export, ask a server")
    add("--timestamps", action="store_true", help="of parts, not of words")
    options = parser.parse_args(arguments)
    if options.timestamps and (options.words or options.serve):
        parser.error("--timestamps tells no words: leave out --words, --serve")
    sys.stdout.reconfigure(line_buffering=True)  # progress, through pipes too
    return options


if __name__ == "__main__":
    main()
