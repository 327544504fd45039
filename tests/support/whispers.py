"""Whispers of Hugging Face from disk, and what its own classes said of them.

`tests/fixtures/make_whisper.py` wrote both, by transformers on PyTorch.
"""

import json
import pathlib

import keras
import numpy as np

import keras_attn

FOLDER = pathlib.Path(__file__).parents[1] / "fixtures/whisper"
NAMES = ["english", "languages"]
LATEST = [None, 1]  # number of the timestamp with which a text may begin
LANGUAGES = {"languages": {"source": "fr"}}


class Said:
    """The answers of Hugging Face's classes about a model."""

    def __init__(self, name, folder=FOLDER):
        folder = folder / name / "said"
        self._texts = json.loads((folder / "texts.json").read_text())
        self._arrays = np.load(folder / "arrays.npz")
        self.timed = np.load(folder / "timed.npz")

    def __getattr__(self, name):
        return self._texts[name] if name in self._texts else self._arrays[name]


def read(name, folder=FOLDER, **options):
    return keras_attn.Translator.from_hugging_face(
        folder / name, **LANGUAGES.get(name, {}) | options
    )


def timed(name, latest=None, search=(), folder=FOLDER, **options):
    """A translator that writes timestamps, with the search of the answers."""
    fields = {
        "return_timestamps": True,
        "max_initial_timestamp_index": latest,
        "suppress_tokens": Said(name, folder).timed["suppressed"],
        "begin_suppress_tokens": None,
    }
    return read(name, folder, search=fields | dict(search), **options)


def require_features_and_logits(model, theirs, sound):
    features = keras.Model(model.inputs[0], model.get_layer("features").output)(
        sound
    )
    np.testing.assert_allclose(features, theirs.features, atol=1e-4)
    found = model([sound, theirs.target])
    np.testing.assert_allclose(found, theirs.logits, atol=1e-4)


def require_same(translator, sound, expected):
    """Compares the tokens that are written with rows of theirs."""
    special = translator.target_text.special
    start = len(special.start)
    assert {*map(tuple, expected[:, :start].tolist())} == {special.start}
    found = translator.decode_ids(sound)
    for i, row in enumerate(expected[:, start:]):
        length = int(found.lengths[i, 0])
        assert found.tokens[i, 0, :length].numpy().tolist() == [*row[:length]]
        assert {*row[length:]} <= {special.end}


def require_same_times(name, latest, theirs, sound, folder=FOLDER):
    """Compares greedy texts, beams and scores with timestamps."""
    greedy = timed(name, latest, {"num_beams": 1}, folder)
    require_same(greedy, sound, theirs.timed[f"greedy {latest}"])
    beams = timed(name, latest, folder=folder)
    require_same(beams, sound, theirs.timed[f"beam {latest}"])
    np.testing.assert_allclose(
        beams(sound).scores, theirs.timed[f"scores {latest}"], atol=1e-4
    )
