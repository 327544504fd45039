"""`Table`: assigns the weights of a checkpoint to variables."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

# How much computed positions may differ, in float32 or half precision.
_SINGLE = 1e-2


class _Entry(NamedTuple):
    name: str
    variable: Any
    shape: tuple  # in PyTorch
    convert: Callable


class Table:
    """Pairs of weights and variables; `fill()` copies most of the weights.

    Args:
        checkpoint: The `Checkpoint`.
    """

    def __init__(self, checkpoint):
        self._checkpoint = checkpoint
        self._entries: list[_Entry] = []
        self._computed: list = []

    def has(self, name: str) -> bool:
        """Whether the checkpoint has a weight."""
        return name in self._checkpoint

    def same(self, names, other: str, shape: tuple) -> bool:
        """Whether a weight is a copy of another.

        Args:
            names: Names that the other may have.
            other: Name of the weight.
            shape: Shape of both in PyTorch.
        """
        pairs = zip(
            self._checkpoint.parts(self._there(names)[0], shape),
            self._checkpoint.parts(other, shape),
            strict=True,
        )
        return all(np.array_equal(x, y) for (_, x), (_, y) in pairs)

    def skip(self, name: str) -> None:
        """Marks a weight that has no effect as used."""
        self._checkpoint.skip(name)

    def add(self, name, variable, shape, convert=lambda x: x) -> None:
        """Notes the variable of a weight.

        Args:
            name: Name of the weight in PyTorch, without `model.`.
            variable: The variable.
            shape: Shape of the weight in PyTorch.
            convert: Function from the weight to the variable's value.
        """
        self._entries.append(_Entry(name, variable, shape, convert))

    def initializer(self, names, shape) -> keras.initializers.Initializer:
        """Returns an initializer that reads a weight of several names.

        One name suffices; weights under the others must be equal. It is for a
        large matrix, which is then in memory only once, and for one variable.

        Args:
            names: The names.
            shape: Shape of the weight in PyTorch.
        """
        return _Value(self._whole(self._there(names), shape))

    def add_dense(self, name, layer) -> None:
        """Notes the weights of a `Dense` layer."""
        size, units = layer.kernel.shape
        self.add(f"{name}.weight", layer.kernel, (units, size), np.transpose)
        if layer.use_bias:
            self.add(f"{name}.bias", layer.bias, (units,))

    def add_convolution(self, name, layer) -> None:
        """Notes the weights of a `Conv1D` layer."""
        width, size, units = layer.kernel.shape
        shape = (units, size, width)
        self.add(f"{name}.weight", layer.kernel, shape, np.transpose)
        self.add(f"{name}.bias", layer.bias, (units,))

    def add_heads(self, name, layer, key_bias=True) -> None:
        """Notes the weights of a `MultiHeadAttention`.

        Args:
            name: Name of the attention in PyTorch.
            layer: The layer.
            key_bias: Whether keys have a bias there. If not, the layer's bias
                stays zero, which changes nothing.
        """
        parts = {
            "q_proj": layer.query_dense,
            "k_proj": layer.key_dense,
            "v_proj": layer.value_dense,
            "out_proj": layer.output_dense,
        }
        for part, dense in parts.items():
            shape, bias = dense.kernel.shape, dense.bias.shape
            axes = len(shape) - len(bias)
            size, units = np.prod(shape[:axes]), np.prod(bias)
            self.add(
                f"{name}.{part}.weight",
                dense.kernel,
                (units, size),
                lambda x, shape=shape: x.T.reshape(shape),
            )
            if part == "k_proj" and not key_bias:
                continue
            self.add(
                f"{name}.{part}.bias",
                dense.bias,
                (units,),
                lambda x, bias=bias: x.reshape(bias),
            )

    def add_computed(self, names, value, first=0) -> None:
        """Records a table that old checkpoints contain, but that is computed.

        Args:
            names: Names that it may have.
            value: Function from a number of rows to the values that they must
                have.
            first: Number of rows before these, which are not compared.
        """
        self._computed.append((names, value, first))

    def fill(self) -> None:
        """Copies all weights into their variables.

        Raises:
            ValueError: If one is missing, has another shape, or is left over;
                or if two that must be equal differ.
        """
        for name, variable, shape, convert in self._entries:
            found = self._checkpoint.take(name, shape)
            variable.assign(convert(found))
        for names, value, first in self._computed:
            for name in names:
                if name in self._checkpoint:
                    found = self._checkpoint.take(name)[first:]
                    expected = value(len(found))
                    _require_equal(name, found, expected, _SINGLE)
        self._require_none_left()

    def _there(self, names):
        """Returns the names that exist, or else one that is missing."""
        return [x for x in names if self.has(x)] or names[:1]

    def _whole(self, names, shape):
        """Reads a large weight in parts, and compares its copies."""
        parts = [self._checkpoint.parts(x, shape) for x in names]
        whole = None
        for (first, rows), *others in zip(*parts, strict=True):
            for name, (_, copy) in zip(names[1:], others, strict=True):
                _require_equal(name, copy, rows)
            if whole is None:
                whole = np.empty(shape, rows.dtype)
            whole[first : first + len(rows)] = rows
        # Parts are not assigned: TensorFlow copies a variable at each later
        # read if a part of it was ever written.
        return whole

    def _require_none_left(self):
        left = self._checkpoint.left()
        if left:
            more = ", ..." if len(left) > 5 else ""
            raise ValueError(
                "Each weight of a checkpoint must be one of the model's. "
                f"Received: {len(left)} that do not belong to the model of "
                f"`config.json`, {', '.join(left[:5])}{more}. Both files must "
                "be of the same model, from text to text."
            )


class _Value(keras.initializers.Initializer):
    """Initializes a variable with an array, and any further one with zeros."""

    def __init__(self, array):
        self._array = array

    def __call__(self, shape, dtype=None):
        array, self._array = self._array, None
        if array is None:  # an embedding may have a second matrix
            return ops.zeros(shape, dtype)
        return ops.convert_to_tensor(array, dtype)


def _require_equal(name, found, expected, tolerance=0.0):
    alike = found.shape == expected.shape and np.allclose(
        found, expected, rtol=0, atol=tolerance
    )
    if not alike:
        raise ValueError(
            f"The weight '{name}' must be a copy of another weight, by "
            "`config.json`, or of computed positions. Received: one that "
            "differs. Both files must be of the same model; if the model has a "
            "separate matrix for the logits, `config.json` says "
            '`"tie_word_embeddings": false`.'
        )
