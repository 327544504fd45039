"""Runs a model on arrays without changing it."""

import contextlib
import warnings

import keras
import numpy as np
from keras import ops

from keras_attn.backend import as_array
from keras_attn.backend import without_gradients
from keras_attn.graph.flat_graph import Masks
from keras_attn.graph.rounding import Rounding
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import is_seed
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import shared_seeds


class ModelRuns:
    """Runs a model on arrays, with its own weights or others.

    Runs happen in a `keras.StatelessScope`, which drops the layers' writes to
    statistics, states and seeds. On TensorFlow most runs use a graph of
    unknown sizes, like those of `fit`, search and export.

    Args:
        model: A functional model.
        graph: The model's `Graph`.
        variables: Variables whose values a run may replace. Defaults to the
            trainable ones and the states of seeds, also of the seed that
            draws without one share.

    Attributes:
        rounding: `Rounding` of the model's layers.
        masks: `Masks` of the last trace.
    """

    def __init__(self, model, graph, variables=None):
        self.model = model
        self.graph = graph
        self.rounding = Rounding(layers_within(model))
        self.masks = None
        self._weights = variables or [
            *model.trainable_variables,
            *(x for x in model.variables if is_seed(x)),
            *shared_seeds(),
        ]
        self._compiled = {}  # functions by name, compiled when first run
        self._keys = {}  # name of a traced function -> keys of its tensors

    def weights(self):
        """Returns the model's own weights, and the states of its seeds."""
        return [ops.convert_to_tensor(x) for x in self._weights]

    def other_weights(self, random):
        """Returns disturbed weights, so no gate stays at zero.

        The disturbance is as large as freshly initialized weights, so inputs
        of about 1 still give outputs of about 1.

        Args:
            random: A `numpy.random.Generator`.
        """
        found = []
        for variable in self._weights:
            value = ops.convert_to_tensor(variable)
            if "float" in variable.dtype:
                *inner, outer = tuple(variable.shape) or (1,)
                fan = min(int(np.prod(inner)), outer) if inner else 16
                noise = random.normal(size=variable.shape)
                noise = noise / np.sqrt(max(fan, 1))
                value = value + ops.cast(noise, variable.dtype)
                if variable.constraint is not None:
                    value = variable.constraint(value)
            found.append(value)
        return found

    def other_seeds(self, weights):
        """Returns the weights with other states of the seed generators."""
        return [
            x + ops.ones_like(x) if is_seed(variable) else x
            for variable, x in zip(self._weights, weights, strict=True)
        ]

    def noises(self, arrays, weights, **options):
        """Returns by how much rounding may change each tensor, by their keys.

        Args:
            arrays, weights, options: As for `trace()`.
        """
        before = self.trace(arrays, weights, **options)
        found: dict = {}
        for seed in range(self.rounding.disturbances):
            disturbed = [
                self.rounding.disturb(x, seed=(seed, i) if seed else i)
                for i, x in enumerate(weights)
            ]
            after = self.trace(arrays, disturbed, **options)
            for key, value in before.items():
                if value.dtype.kind == "f" and value.shape == after[key].shape:
                    noise = self.rounding.noise(value, after[key])
                    found[key] = max(noise, found.get(key, 0.0))
        return found

    def logits(self, arrays, weights):
        """Returns the first output."""
        return self.outputs(arrays, weights)[0]

    def outputs(self, arrays, weights):
        """Returns the first output, and its mask or `None`."""
        run = self._function("outputs", self._run)
        found = run(weights, self._tensors(arrays))
        logits, *mask = map(as_array, found)
        return _wide(logits), mask[0] if mask else None

    def trace(self, arrays, weights, compiled=True, count=None, masked=True):
        """Returns all tensors of the graph, by their keys.

        Args:
            arrays: An array for each input.
            weights: Result of `weights()` or `other_weights()`. Or `None`,
                only with `compiled=False`, to run the model with its own
                weights outside a `StatelessScope`: layers then write to their
                states.
            compiled: Whether to run in a graph, if the backend has graphs.
            count: Number of calls to run, in order. Defaults to all.
            masked: Whether layers get the masks that Keras passes on.
        """
        if count == len(self.graph.calls):
            count = None
        name = count, masked, compiled

        def function(weights, inputs):
            values = self._trace(weights, inputs, count, masked)
            self._keys[name] = list(values)
            return list(values.values())

        if compiled:
            function = self._function(name, function)
        values = function(weights, self._tensors(arrays))
        return {
            key: _wide(as_array(value))
            for key, value in zip(self._keys[name], values, strict=True)
        }

    def eager(self, arrays, weights):
        """Returns the first output, computed without a graph."""
        logits, *_ = self._run(weights, self._tensors(arrays))
        return _wide(as_array(logits))

    def failure(self, arrays, weights):
        """Returns the call that fails and its error, or `None, None`.

        The run uses no graph, because errors are shorter outside one.
        """
        try:
            self._trace(weights, self._tensors(arrays), None, True)
        except Exception as error:  # any layer may raise anything
            return self.graph.running, error
        return None, None

    def _run(self, weights, inputs):
        with self._scope(weights):
            outputs = self.model(inputs, training=False)
            logits = keras.tree.flatten(outputs)[0]
            mask = get_keras_mask(logits)
            return [logits] if mask is None else [logits, mask]

    def _trace(self, weights, inputs, count, masked):
        self.masks = Masks()
        with self._scope(weights):
            values = self.graph.run(
                inputs, self.masks, count=count, masked=masked
            )
        # Drops values that are not tensors, such as strings.
        return {k: x for k, x in values.items() if ops.is_tensor(x)}

    @contextlib.contextmanager
    def _scope(self, weights):
        with warnings.catch_warnings(), without_gradients():
            # Keras warned of dropped masks when the model was built.
            warnings.simplefilter("ignore")
            if weights is None:
                yield
                return
            pairs = list(zip(self._weights, weights, strict=True))
            with keras.StatelessScope(pairs):
                yield

    def _tensors(self, arrays):
        return [
            ops.convert_to_tensor(x, dtype=symbol.dtype)
            for x, symbol in zip(arrays, self.model.inputs, strict=True)
        ]

    def _function(self, name, run):
        if name not in self._compiled:
            self._compiled[name] = self._compile(run)
        return self._compiled[name]

    def _compile(self, run):
        backend = keras.backend.backend()
        if backend == "tensorflow":
            import tensorflow as tf

            weights = [tf.TensorSpec(x.shape, x.dtype) for x in self._weights]
            inputs = [
                tf.TensorSpec(x.shape, x.dtype) for x in self.model.inputs
            ]
            function = tf.function(run, autograph=False)
            return function.get_concrete_function(weights, inputs)
        if backend == "jax":
            import jax

            return jax.jit(run)
        if backend == "torch":
            import torch

            return torch.no_grad()(run)
        return run


def _wide(array):
    """Casts dtypes that NumPy cannot compute with, such as bfloat16."""
    kind = np.asarray(array).dtype
    if kind.kind in "biufSUO" and kind != np.float16:
        return np.asarray(array)
    return np.asarray(array).astype("float32")
