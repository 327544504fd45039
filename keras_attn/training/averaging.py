"""`average()`: the mean of several checkpoints of one training.

Late in training the weights move around an optimum. Their mean is often nearer
to it than any single checkpoint, and decodes at the cost of one model.
"""

import gc
import itertools
import os
import pathlib
import re
import zipfile
from collections.abc import Iterable
from typing import NamedTuple

import keras
import numpy as np

from keras_attn.keras_internals import Functional
from keras_attn.keras_internals import is_seed


def average(models: Iterable[keras.Model | str | os.PathLike]) -> keras.Model:
    """Returns a model with the mean of the weights of several models.

    The models must be checkpoints of one training, such as the last five,
    which `LastCheckpoints` keeps. The mean of models that were trained
    separately is useless: decode with them as an ensemble, `Translator([first,
    second], ...)`.

    The mean is computed in float64 and rounded once. All floating-point
    variables are averaged, including the moving mean and variance of
    `BatchNormalization`. Other variables, such as counters, are taken from
    the last model. Files are read one at a time, so memory holds only one
    model and the sums.

    Args:
        models: List of paths of `.keras` files, of models, or of both, from
            the oldest to the newest. If the models have custom layers whose
            classes are not registered, call `average` within a
            `keras.saving.custom_object_scope`.

    Returns:
        A new model like the last, not compiled.

    Raises:
        ValueError: If there are no models, if a path is not that of a model,
            if the models differ in architecture (the message names the first
            variable that differs) or in integer arrays such as quantised
            weights, or if a variable holds NaN.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section
          6.1: the last 5 or 20 checkpoints
        - [Izmailov et al., 2018](https://arxiv.org/abs/1803.05407): why the
          mean is better than its parts

    Example:
        >>> models = []
        >>> for value in (1.0, 2.0, 6.0):
        ...     inputs = keras.Input((1,))
        ...     outputs = keras.layers.Dense(1, name="scale")(inputs)
        ...     models.append(keras.Model(inputs, outputs))
        ...     models[-1].set_weights([np.array([[value]]), np.array([0.5])])
        >>> mean = keras_attn.average(models)
        >>> [x.tolist() for x in mean.get_weights()]
        [[[3.0]], [0.5]]
    """
    given = _listed(models)
    mean = _Mean()
    for number, each in enumerate(given):
        name = f"models[{number}]"
        if isinstance(each, keras.Model):
            mean.add(each, name)
            continue
        model = None  # frees the last one before the next is read
        gc.collect()  # Keras's models refer to themselves
        model = _read(each)
        mean.add(model, f"{name}, {each}")
    result = _copy(each) if isinstance(each, keras.Model) else model
    mean.assign(result)
    return result


class _Variable(NamedTuple):
    """The path, shape and dtype of a variable."""

    path: str
    shape: tuple
    dtype: str

    @classmethod
    def of(cls, variable):
        dtype = keras.backend.standardize_dtype(variable.dtype)
        return cls(variable.path, tuple(variable.shape), dtype)

    def __str__(self):
        return f"`{self.path}` of shape {self.shape} and dtype {self.dtype}"

    def is_like(self, other):
        """Whether both have the same name, shape and dtype.

        Only the last part of a path is compared, without its number. If a
        model is built again, Keras names a layer `dense_1` instead of `dense`,
        and layers within a `Bidirectional` have another path after loading.
        """
        return _name(self.path) == _name(other.path) and self[1:] == other[1:]


class _Mean:
    """Sums the variables of models, which are added one by one."""

    def __init__(self):
        self._name = None  # of the first model
        self._variables: list[_Variable] = []
        self._values: list[np.ndarray] = []  # sums, float64; or the last values
        self._count = 0

    def add(self, model, name):
        """Adds the variables of a model.

        Args:
            model: The model.
            name: Name of the model in messages.
        """
        variables = [_Variable.of(x) for x in model.variables]
        if not variables:
            raise ValueError(
                "`average` needs models that have weights. Received: "
                f"{name}, {model!r:.80}, which has none. Build the model "
                "first by calling it on some inputs."
            )
        if not self._count:
            self._name, self._variables = name, variables
        self._require_like(variables, name)
        for i, variable in enumerate(model.variables):
            value, is_float = _array(variable), _is_float(variables[i])
            if is_float:
                value = value.astype("float64")
                _refuse_nan(value, variables[i], name)
            if not self._count:
                self._values.append(value)
            elif is_float:
                self._values[i] += value
            else:
                if not is_seed(variable):
                    self._require_counter(i, value, name)
                self._values[i] = value
        self._count += 1

    def assign(self, model):
        """Assigns the means, or the last model's value if there is no mean."""
        variables = [_Variable.of(x) for x in model.variables]
        self._require_like(variables, "a copy of the last model")
        for variable, known, value in zip(
            model.variables, variables, self._values, strict=True
        ):
            mean = value / self._count if _is_float(known) else value
            variable.assign(mean)

    def _require_like(self, variables, name):
        pairs = itertools.zip_longest(self._variables, variables)
        for one, other in pairs:
            if one is not None and other is not None and one.is_like(other):
                continue
            raise ValueError(
                "`average` needs models of one architecture, checkpoints of "
                "one training. Received: models that differ; the first "
                f"difference is {one or 'missing'} in {self._name}, and "
                f"{other or 'missing'} in {name}. Decode with models of "
                "different architectures as an ensemble: `Translator([first, "
                "second], ...)`."
            )

    def _require_counter(self, i, value, name):
        """Refuses integer arrays that differ, such as quantised weights."""
        if value.ndim and not np.array_equal(value, self._values[i]):
            raise ValueError(
                "`average` needs weights of floating-point numbers. Received: "
                f"{self._variables[i]}, which differs between {self._name} and "
                f"{name}, and integers have no mean. Average before you "
                "quantise."
            )


def _listed(models):
    """Returns a caller's models and paths as a list."""
    if isinstance(models, (str, os.PathLike, keras.Model)) or not isinstance(
        models, Iterable
    ):
        raise ValueError(
            "`average` needs a list of models or of paths. Received: "
            f"models={str(models)!r:.80}. For the files in a directory pass "
            '`sorted(pathlib.Path(directory).glob("*.keras"))`.'
        )
    found = list(models)
    for number, each in enumerate(found):
        if not isinstance(each, (str, os.PathLike, keras.Model)):
            raise ValueError(
                "`average` needs Keras models, or paths of `.keras` files. "
                f"Received: models[{number}]={each!r:.80} (of type "
                f"{type(each).__name__}). For a `Translator` pass its `model`."
            )
    if not found:
        raise ValueError(
            "`average` needs at least one model. Received: none. Did the "
            "training save any?"
        )
    return found


def _read(path):
    """Reads a model from a file."""
    path = pathlib.Path(path)
    if not path.exists():
        raise ValueError(f"{_NEEDED} Received: {path}, which does not exist.")
    if path.name.endswith((".h5", ".weights.json")):
        raise ValueError(
            f"{_NEEDED} Received: {path}. A file of weights does not contain "
            "the architecture. For each file make the model, call "
            "`model.load_weights(path)`, and pass the models; or let "
            "`LastCheckpoints` save whole models."
        )
    if path.is_dir():
        raise ValueError(
            f"{_NEEDED} Received: the directory {path}. Pass the files in it, "
            f"such as {path / 'model.keras'} of a saved `Translator`."
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"{_NEEDED} Received: {path}, which is no such file, or only a "
            "part of one. Save models by `model.save(path)`."
        )
    try:
        return keras.saving.load_model(path, compile=False)
    except Exception as error:
        error.add_note(f"Raised as `average` read {path}.")
        raise


_NEEDED = "`average` needs paths of models that Keras saved, `.keras` files."


def _copy(model):
    """Returns a new model of the same architecture."""
    if type(model) in (Functional, keras.Sequential):
        # Keras would also compile the copy, and may not know the loss.
        compiled, model.compiled = model.compiled, False
        try:
            return keras.models.clone_model(model, recursive=True)
        finally:
            model.compiled = compiled
    copied = type(model).from_config(model.get_config())
    if not copied.built:
        copied.build_from_config(model.get_build_config())
    return copied


def _name(path):
    """Returns a variable's own name, without a number that Keras added."""
    return re.sub(r"_\d+$", "", path.rpartition("/")[2])


def _is_float(variable):
    return keras.backend.is_float_dtype(variable.dtype)


def _array(variable):
    return np.asarray(keras.ops.convert_to_numpy(variable.value))


def _refuse_nan(value, variable, name):
    if np.isnan(value).any():
        raise ValueError(
            "`average` needs models that have not diverged. Received: "
            f"{variable}, which holds NaN in {name}. Leave this model out."
        )
