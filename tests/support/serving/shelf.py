"""A directory of versions that need no TensorFlow, and a catalog over it."""

import shutil
import threading

import pytest
from keras_attn_serving.server.catalog import Catalog
from keras_attn_serving.server.catalog import Spec
from keras_attn_serving.server.config import ModelConfig
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.model import LoadError


class Loaded:
    """In place of a `Model`: says when it is closed."""

    def __init__(self, name, version, path):
        self.name, self.version, self.path = name, version, path
        self.closed = False

    def close(self):
        self.closed = True


class Shelf:
    """A base path, and a catalog over it that is looked at by hand."""

    def __init__(self, path):
        self.path = path
        self.loads, self.broken, self.error = [], set(), None
        self.gate = threading.Event()
        self.gate.set()

    def add(self, *versions, model="m"):
        for version in versions:
            folder = self.path / model / str(version)
            folder.mkdir(parents=True)
            (folder / "saved_model.pb").touch()

    def remove(self, *versions, model="m"):
        for version in versions:
            shutil.rmtree(self.path / model / str(version))

    def config(self, model="m", **options):
        return ModelConfig(model, str(self.path / model), **options)

    def load(self, name, version, path):
        self.gate.wait()
        self.loads.append(version)
        if version in self.broken:
            raise self.error or LoadError(f"version {version} is broken")
        return Loaded(name, version, path)

    def open(self, *configs, **options):
        # Far apart, so that only the test looks at the directories.
        options = {"poll_seconds": 1e6, "retry_seconds": 0.0} | options
        catalog = Catalog(configs or [self.config()], self.load, **options)
        catalog.start()
        return catalog


def states(catalog, model="m"):
    return {x.version: x.state.name for x in catalog.status(model)}


def refusal(call, *arguments):
    with pytest.raises(StatusError) as caught:
        call(*arguments)
    return caught.value.code, caught.value.details


def lent(catalog, *spec, **named):
    with catalog.lend(Spec(*spec, **named)) as model:
        return model.version
