"""Directories of Hugging Face: the fixtures, read and changed."""

import json
import pathlib
import shutil

from keras_attn.models.hugging_face.architecture import build
from keras_attn.models.hugging_face.architecture import configuration_of
from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.weights import Checkpoint

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
MODELS = FIXTURES / "hugging_face"
SAFE = "model.safetensors"


def copied(name, path):
    """Returns the copy of a model in a folder, to change."""
    shutil.copytree(MODELS / name, path / "model")
    return path / "model"


def read(path, dtype=None):
    """Returns the Keras model of a directory."""
    files = Directory(path)
    configuration = configuration_of(files.configuration)
    return build(configuration, Checkpoint(files), dtype)


def change(path, name="config.json", without=(), **fields):
    """Sets fields of a file of JSON, which may not be there yet."""
    file = path / name
    found = json.loads(file.read_text()) if file.exists() else {}
    found = {x: y for x, y in found.items() if x not in without} | fields
    file.write_text(json.dumps(found))
