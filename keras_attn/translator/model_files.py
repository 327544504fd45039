"""A model in a file, as far as decoding needs it.

The optimizer and whatever else `compile` gave a model stay out: they make
the file three times as large, and may be objects that another process does
not know.
"""

import contextlib
import json
import pathlib
import re
import tempfile
import warnings
import zipfile

import keras
import numpy as np

from keras_attn.keras_internals import COMPILED
from keras_attn.keras_internals import layers_within

_KNOWN_ANYWHERE = ("keras", "keras_attn")  # packages that register their own


def write(model, path) -> None:
    """Writes a model without its optimizer, loss and metrics."""
    with _without_training(model):
        keras.saving.save_model(model, path)


def read(path, custom_objects=None) -> keras.Model:
    """Reads a model, uncompiled.

    Raises:
        ValueError: If it holds a class or function that is not known. The
            message names it.
    """
    try:
        with _uncompiled(path) as file:
            return keras.saving.load_model(
                file, custom_objects=custom_objects, compile=False
            )
    except (TypeError, ValueError) as error:
        missing = _missing(error)
        if missing is None:
            raise
        kind, name = missing
        given = sorted(custom_objects) if custom_objects else custom_objects
        raise ValueError(
            f"The model in {path} holds the {kind} '{name}', which this "
            "process does not know. Pass it, `Translator.load(directory, "
            f"custom_objects={{{name!r}: {name}}})`, or decorate it with "
            "`@keras.saving.register_keras_serializable()` before saving and "
            f"import its module before loading. Received: custom_objects="
            f"{given}"
        ) from error


def require_readable(model, path, inputs) -> None:
    """Refuses a file that cannot be read, where that is in doubt.

    It is in doubt where models within the model share layers and where
    classes are neither Keras's nor ours.

    Args:
        model: The model in the file.
        path: Where `write()` wrote it.
        inputs: Values of the model's inputs, on which both are compared.

    Raises:
        ValueError: If it cannot be read, or computes something else then.
    """
    shared, own = _shared(model), _own_classes(model)
    if not shared and not own:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with keras.saving.custom_object_scope(own):
                loaded = keras.saving.load_model(
                    path, compile=False, safe_mode=False
                )
            found = loaded(inputs, training=False)
    except Exception as error:
        if _missing(error) is not None:  # for the caller of `load` to pass
            return
        _refuse(shared, own, f"{type(error).__name__}: {error}", error)
    if not np.allclose(
        found, model(inputs, training=False), rtol=1e-3, atol=1e-3
    ):
        _refuse(shared, own, "the loaded model computes something else")


def _refuse(shared, own, reason, error=None):
    if shared:
        layer, inner = shared
        text = (
            f"'{layer.name}' ({type(layer).__name__}) belongs to the model "
            f"'{inner.name}' and to a model around it, and Keras "
            f"{keras.__version__} loses the weights of such layers. Build "
            "the outer model on the tensors of the inner one in the place of "
            "calling it, `keras.Model(inner.inputs, "
            "layer(inner.output))`; the weights are shared. Or keep "
            '`model.save_weights("model.weights.h5")`, and build the model '
            "in code."
        )
    else:
        text = (
            f"It holds classes of your own, {sorted(own)}. Does the "
            "`get_config()` of each return all arguments of its constructor, "
            "and does it make its weights in `build()`?"
        )
    raise ValueError(
        "The model can be saved, but not loaded again, so nothing was "
        f"written. {text} Received, on a trial: {reason:.500}"
    ) from error


def _own_classes(model):
    """Classes of layers by name that are neither Keras's nor ours."""
    own, known = {}, set()
    for kind in {type(x) for x in layers_within(model)}:
        if kind.__module__.partition(".")[0] in _KNOWN_ANYWHERE:
            known.add(kind.__name__)
        else:
            own[kind.__name__] = kind
    # A class named as one of Keras's would take its place.
    return {name: kind for name, kind in own.items() if name not in known}


def _shared(model):
    """A layer that two models hold, and the inner one of these, or `None`."""
    holder = {}  # id of a layer -> the model that has it
    models = [x for x in layers_within(model) if isinstance(x, keras.Model)]
    for one in models:
        for layer in one.layers:
            if id(layer) in holder and layer.weights:
                return layer, one
            holder[id(layer)] = one
    return None


@contextlib.contextmanager
def _without_training(model):
    """Hides what `compile` gave a model, and models within it, for a while."""
    hidden = []
    try:
        for layer in layers_within(model):
            if isinstance(layer, keras.Model):
                # Not by attributes, which Keras tracks.
                state = vars(layer)
                before = {x: state.pop(x) for x in COMPILED if x in state}
                hidden.append((state, before))
                state["get_compile_config"] = dict  # returns an empty one
        yield
    finally:
        for state, before in hidden:
            del state["get_compile_config"]
            state.update(before)


@contextlib.contextmanager
def _uncompiled(path):
    """A file for Keras to read, in which no model within is compiled.

    `compile=False` is for the outermost model alone.
    """
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
        config.pop("compile_config", None)
        if not _forget_compiling(config):
            yield path
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "model.keras")
            with zipfile.ZipFile(copy, "w") as changed:
                for name in archive.namelist():
                    content = archive.read(name)
                    if name == "config.json":
                        content = json.dumps(config)
                    changed.writestr(name, content)
            yield copy


def _forget_compiling(config) -> bool:
    """Removes how models were compiled; returns whether any was."""
    found = False
    if isinstance(config, dict):
        if "class_name" in config:
            found = bool(config.pop("compile_config", None))
        parts = list(config.values())
    elif isinstance(config, list):
        parts = config
    else:
        return False
    return any([_forget_compiling(x) for x in parts]) or found


def _missing(error):
    """The kind and the name of what Keras could not find, or `None`."""
    found = re.search(
        r"Could not locate (class|function) '([^']*)'", str(error)
    )
    return found.groups() if found else None
