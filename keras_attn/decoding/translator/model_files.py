"""Writes and reads models without their optimizer, loss and metrics.

Decoding does not need what `compile` adds to a model. It can make the file
three times as large, and may contain objects that another process cannot load.
"""

import contextlib
import importlib
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


def read(path, custom_objects=None, safe_mode: bool = True) -> keras.Model:
    """Reads a model, uncompiled.

    Args:
        path: Path of the file.
        custom_objects, safe_mode: As for `keras.saving.load_model`.

    Raises:
        ValueError: If the model uses a class or function that is not known
            here. The message names it.
        ImportError: If the model holds layers of KerasHub, and KerasHub is not
            installed.
    """
    _import_keras_hub(path)
    try:
        with _uncompiled(path) as file, warnings.catch_warnings():
            # KerasHub's tasks compile themselves and miss their optimizer.
            warnings.filterwarnings("ignore", "Skipping variable loading for")
            return keras.saving.load_model(
                file,
                custom_objects=custom_objects,
                compile=False,
                safe_mode=safe_mode,
            )
    except (TypeError, ValueError) as error:
        missing = _missing(error)
        if missing is None:
            raise
        kind, name = missing
        given = sorted(custom_objects) if custom_objects else custom_objects
        raise ValueError(
            f"The model in {path} holds the {kind} '{name}', which this "
            f"process must know. Received: custom_objects={given}. Pass it in "
            "`Translator.load(directory, "
            f"custom_objects={{{name!r}: {name}}})`, or decorate it with "
            "`@keras.saving.register_keras_serializable()` before saving and "
            "import its module before loading."
        ) from error


def _import_keras_hub(path):
    """Imports KerasHub if a model needs it, so that its classes are known."""
    with zipfile.ZipFile(path) as archive:
        if b'"keras_hub' not in archive.read("config.json"):
            return
    try:
        importlib.import_module("keras_hub")
    except ModuleNotFoundError as error:
        if error.name != "keras_hub":
            raise
        raise ImportError(
            f"The model in {path} holds layers of KerasHub. Received: an "
            "environment without it. Install it with `pip install "
            '"keras-attn[keras-hub]"`.'
        ) from error


def require_readable(model, path, inputs) -> None:
    """Raises an error if a model's file cannot be loaded again.

    The file is loaded only if there is doubt: if nested models share layers,
    if a class belongs neither to Keras nor to this package, or if a `Lambda`
    holds a Python lambda.

    Args:
        model: The model in the file.
        path: Path to which `write()` wrote it.
        inputs: Values of the model's inputs, on which the outputs of the
            model and the loaded one are compared.

    Raises:
        ValueError: If the file cannot be loaded, or if the loaded model
            computes something else.
    """
    shared, own = _shared(model), _own_classes(model)
    if not (shared or own or _has_lambdas(model)):
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
        if _missing(error) is not None:  # the caller of `load` can pass it
            return
        unknown = _unknown_name(error)
        if unknown is not None and _has_lambdas(model):
            raise ValueError(
                f"The model has a `Lambda` that uses '{unknown}', which a file "
                "does not hold, so Keras could not load it again, and nothing "
                "was written. Received: a Python lambda with names of the "
                "module around it. Write a named function that imports what "
                "it uses, register it with "
                "`@keras.saving.register_keras_serializable()`, and set it, "
                '`model.get_layer("lambda").function = the_function`; the '
                "weights stay. `export()` needs no change."
            ) from error
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
            f"{keras.__version__} loses the weights of such layers. Do not "
            "call the inner model; build the outer one on its tensors, "
            "`keras.Model(inner.inputs, layer(inner.output))`, which shares "
            "the weights. Or keep "
            '`model.save_weights("model.weights.h5")`, and build the model '
            "in code."
        )
    elif not own:
        text = (
            "It has a `Lambda` with a Python lambda. Set its `function` to a "
            "named function, registered with "
            "`@keras.saving.register_keras_serializable()`."
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
    """Returns custom layer classes, by name."""
    own, known = {}, set()
    for kind in {type(x) for x in layers_within(model)}:
        if kind.__module__.partition(".")[0] in _KNOWN_ANYWHERE:
            known.add(kind.__name__)
        else:
            own[kind.__name__] = kind
    # A class with the name of one of Keras's would replace it in the scope.
    return {name: kind for name, kind in own.items() if name not in known}


def _has_lambdas(model):
    """Returns whether a `Lambda` layer of the model holds a Python lambda."""
    return any(
        getattr(x.function, "__name__", "") == "<lambda>"
        for x in layers_within(model)
        if isinstance(x, keras.layers.Lambda)
    )


def _unknown_name(error):
    """Returns the undefined name that caused an error, or `None`."""
    while error is not None:
        if isinstance(error, NameError):
            return error.name
        error = error.__cause__ or error.__context__
    return None


def _shared(model):
    """Returns a layer that two models share, and a model; or `None`."""
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
    """Hides what `compile` added to a model and its nested models."""
    hidden = []
    try:
        for layer in layers_within(model):
            if isinstance(layer, keras.Model):
                # Through `vars`, since Keras tracks assigned attributes.
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
    """Yields a copy of a file in which no nested model is compiled.

    Keras's `compile=False` applies only to the outermost model.
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
    """Removes `compile_config` from a config; returns whether any was set."""
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
    """Returns kind and name of the object Keras could not find, or `None`."""
    found = re.search(
        r"Could not locate (class|function) '([^']*)'", str(error)
    )
    return found.groups() if found else None
