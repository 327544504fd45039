"""The example that writes subtitles, with a tiny Whisper."""

import json
import shutil

import numpy as np
import pytest
import soundfile
from support.programs import PROGRAM
from support.programs import load
from support.programs import run
from support.sounds import sounds
from support.whispers import FOLDER
from support.whispers import Said

TRANSCRIBE = PROGRAM.with_name("transcribe.py")
RATE = 16_000


@pytest.fixture(scope="module")
def transcribe():
    return load(TRANSCRIBE)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "  0:00.00"), (59.996, "  1:00.00"), (61.5, "  1:01.50")],
)
def test_a_clock_has_no_sixtieth_second(transcribe, seconds, shown):
    assert transcribe.clock(seconds) == shown


def test_blocks_are_the_sound_at_the_rate(transcribe, tmp_path):
    place = np.arange(25 * 44_100) / 44_100
    tone = 0.4 * np.sin(2 * np.pi * 440 * place)
    path = tmp_path / "tone.flac"
    soundfile.write(path, np.stack([tone, 0.5 * tone], axis=1), 44_100)
    found = np.concatenate([*transcribe.blocks(path)])
    expected = np.sin(2 * np.pi * 440 * np.arange(25 * RATE) / RATE)
    assert len(found) == len(expected)
    middle = slice(RATE, -RATE)
    np.testing.assert_allclose(found[middle], 0.3 * expected[middle], atol=1e-3)


@pytest.mark.full
def test_the_program_does_all_of_it(tmp_path):
    sound = np.concatenate([sounds()[0], sounds()[1]])
    soundfile.write(tmp_path / "speech.wav", sound, RATE)
    files = "--subtitles speech.srt speech.vtt --words words.json"
    program = {"program": TRANSCRIBE, "folder": tmp_path}
    arguments = FOLDER / "english", "speech.wav", *files.split(), "--beams", "1"
    printed = run(*arguments, **program).stdout
    words = json.loads((tmp_path / "words.json").read_text())
    assert words and {*words[0]} == {"text", "start", "end", "probability"}
    lines = (tmp_path / "speech.srt").read_text().splitlines()
    assert lines[0] == "1" and " --> " in lines[1]
    assert (tmp_path / "speech.vtt").read_text().startswith("WEBVTT")
    assert "3/3" in printed  # of the bar
    assert f"{words[0]['start']:05.2f} {words[0]['text']}" in printed
    assert "s for 3.2 s of sound." in printed
    before = (tmp_path / "words.json").read_text()
    served = run(*arguments, "--serve", "models/whisper", **program).stdout
    assert "serving model whisper version 1" in served
    assert (tmp_path / "words.json").read_text() == before


@pytest.mark.full
def test_timestamps_tell_times_without_words(tmp_path):
    folder = tmp_path / "whisper"
    shutil.copytree(FOLDER / "english", folder)
    path = folder / "generation_config.json"
    fields = json.loads(path.read_text())
    suppressed = Said("english").timed["suppressed"].tolist()
    path.write_text(json.dumps(fields | {"suppress_tokens": suppressed}))
    sound = np.concatenate([sounds()[0], sounds()[1]])
    soundfile.write(tmp_path / "speech.wav", sound, RATE)
    program = {"program": TRANSCRIBE, "folder": tmp_path}
    arguments = folder, "speech.wav", "--subtitles", "speech.srt"
    printed = run(*arguments, "--timestamps", **program).stdout
    assert "<|" not in printed and "s for 3.2 s of sound." in printed
    assert " --> " in (tmp_path / "speech.srt").read_text()


def test_timestamps_are_refused_where_words_are_asked(transcribe, capsys):
    with pytest.raises(SystemExit):
        transcribe.parse(["d", "f", "--timestamps", "--words", "words.json"])
    assert "leave out --words" in capsys.readouterr().err
