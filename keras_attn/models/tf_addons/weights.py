"""Loads weights of TensorFlow Addons' `tfa.seq2seq` into our layers.

TF Addons ended in 2024, but its checkpoints still exist. Here arrays have their
names in a TensorFlow checkpoint: the path of attributes to a variable. TF
Addons' own variable names do not distinguish the query's kernel from the
cell's.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np
from keras import layers

from keras_attn.layers.alignments import MonotonicAlignment
from keras_attn.layers.attention import Attention
from keras_attn.layers.decoder import AttentionDecoder
from keras_attn.layers.scores import AdditiveScore
from keras_attn.layers.scores import ConcatScore
from keras_attn.layers.scores import GeneralScore

_CELLS = layers.GRUCell, layers.LSTMCell, layers.SimpleRNNCell
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

# Hints for an array that is missing or left over: the option of the old layer
# that had it.
_HINTS = {
    "attention_g": "TF Addons has it with `normalize=True` or `scale=True`, "
    "which here is `AdditiveScore(units, use_bias=True, normalize=True)` or "
    "any `GeneralScore()`.",
    "attention_b": "TF Addons has it with `normalize=True`, which here is "
    "`AdditiveScore(units, use_bias=True, normalize=True)`.",
    "attention_score_bias": "TF Addons has it in its monotonic attentions, "
    "which here are `Attention(score, MonotonicAlignment())`.",
    "query_layer/kernel": "TF Addons has it in its Bahdanau attentions, which "
    "here are `AdditiveScore(units)`.",
    "query_layer/bias": "A bias of the query layer needs here "
    "`AdditiveScore(units, use_bias=True)`.",
    "memory_layer/bias": "A bias of the memory layer needs here "
    "`AdditiveScore(units, use_bias=True)`.",
}


def load_tf_addons_weights(
    layer, weights, attention=None, cell=None, attention_layer=None
):
    """Gives a layer the weights of its counterpart in TensorFlow Addons.

    The layer then computes the same as the `tfa.seq2seq` layer. The README.md
    beside this file lists which layer and options are the counterpart. The
    arrays alone do not determine all options. A layer that is not built yet is
    built to fit.

    Args:
        layer: An `Attention` for one of TF Addons' attention mechanisms, or
            an `AttentionDecoder` for its `AttentionWrapper`, with
            `order="post"` and one of these:

            - `emit="attentional"` if the wrapper had `attention_layer=
              Dense(units, activation="tanh", use_bias=False)` and its cell
              has as many units.
            - `emit="concatenated"` if the wrapper had
              `attention_layer_size`, a layer without tanh, or neither. With
              `attention_layer_size` the wrapper emitted the decoder's
              outputs `[state; context]` times that layer's kernel. With
              neither it emitted the context, or the state with
              `output_attention=False`.
        weights: The path of a TensorFlow checkpoint, as `Model.save_weights`
            or `tf.train.Checkpoint` wrote it, or the `variables/variables`
            of a SavedModel; or a mapping of names to arrays. To see the names
            in a checkpoint, read it with `tf.train.load_checkpoint(path)`.
        attention: Prefix of the names of the mechanism's arrays, such as
            `"decoder/attention"`; a list for several mechanisms. Defaults to
            the prefix in a checkpoint of the layer itself: none for an
            `Attention`, `"_attention_mechanisms/0"` for a decoder.
        cell: Prefix of the names of the wrapped cell's arrays. Defaults to
            `"_cell"`.
        attention_layer: Prefix of the names of the attention layer's arrays;
            a list for several mechanisms. Defaults to
            `"_attention_layers/0"`. With `emit="concatenated"` such arrays
            are optional.

    Raises:
        ValueError: If an array is missing, has another shape, or belongs to
            an option that the layer lacks. The layer then keeps its weights.

    Example:
        >>> attention = keras_attn.LuongAttention("general")
        >>> keras_attn.load_tf_addons_weights(
        ...     attention, {"memory_layer/kernel": np.ones((6, 4))})
        >>> attention(np.ones((1, 2, 4)), np.ones((1, 3, 6))).shape
        TensorShape([1, 2, 6])
    """
    arrays = _read(weights)
    if isinstance(layer, AttentionDecoder):
        values = _decoder(layer, arrays, attention, cell, attention_layer)
    elif isinstance(layer, Attention):
        if cell is not None or attention_layer is not None:
            raise ValueError(
                "`cell` and `attention_layer` belong to an `AttentionWrapper`"
                ", which is an `AttentionDecoder` here. Received: an "
                f"`Attention`, cell={cell!r}, attention_layer="
                f"{attention_layer!r}. Leave them out, or pass an "
                "`AttentionDecoder`."
            )
        folder = _Folder(arrays, attention or "")
        query_dim, memory_dim, values = _attention(layer, folder)
        if not layer.built:
            layer.build((None, None, query_dim), (None, None, memory_dim))
    else:
        raise ValueError(
            "`layer` must be an `Attention` or an `AttentionDecoder`. "
            f"Received: {layer!r}. Give other layers their weights by "
            "`layer.set_weights()`."
        )
    _assign(layer, values)


class _Value(NamedTuple):
    """An array, and the weight that gets it."""

    owner: keras.layers.Layer
    weight: str  # attribute of the owner
    array: np.ndarray
    name: str  # name of the array in the checkpoint


class _Folder:
    """The arrays whose names have one prefix; each is taken once."""

    def __init__(self, arrays, path):
        self.path = f"{path.strip('/')}/" if path.strip("/") else ""
        self.arrays = {
            name.removeprefix(self.path): array
            for name, array in arrays.items()
            if name.startswith(self.path)
        }
        self.left = set(self.arrays)
        self._given = sorted(arrays)  # also those with other prefixes

    def __contains__(self, name):
        return name in self.arrays

    def take(self, name, rank=None):
        if name not in self.arrays:
            raise ValueError(
                f"An array {self.path + name!r} is needed. Received: "
                f"{_listed(self._given)}. "
                + _HINTS.get(
                    name,
                    "If its name has another prefix, pass that as "
                    "`attention`, `cell` or `attention_layer`.",
                )
            )
        self.left.discard(name)
        array = self.arrays[name]
        if rank is not None and array.ndim != rank:
            raise ValueError(
                f"{self.path + name!r} must be of rank {rank}. Received: an "
                f"array of shape {array.shape}. Pass it in TF Addons' shape."
            )
        return array

    def finish(self):
        for name in sorted(self.left):
            raise ValueError(
                "Every array must belong to a weight of the layer. Received: "
                f"{self.path + name!r}, which belongs to none. "
                + _HINTS.get(
                    name, "Leave it out if it belongs to another layer."
                )
            )


def _listed(names):
    return ", ".join(map(repr, sorted(names))) or "nothing"


def _read(weights):
    if isinstance(weights, Mapping):
        for name in weights:
            if name.endswith(":0"):
                raise ValueError(
                    "Arrays must have their names in a checkpoint, because "
                    "names of variables do not distinguish the kernels. "
                    f"Received: {name!r}. Write a checkpoint of the old layer "
                    "with `tf.train.Checkpoint(root=layer).write(path)`, and "
                    "pass the path."
                )
        return {
            name.removesuffix(_SUFFIX): np.asarray(array)
            for name, array in weights.items()
        }
    if not isinstance(weights, (str, os.PathLike)):
        raise ValueError(
            "`weights` must be a mapping of names to arrays or the path of a "
            f"TensorFlow checkpoint. Received: {weights!r}. Pass for example "
            '`np.load("old.npz")`.'
        )
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(os.fspath(weights))
    except (tf.errors.OpError, ValueError) as error:
        raise ValueError(
            "`weights` must be the path of a TensorFlow checkpoint, without "
            "`.index` or `.data-...`, or a mapping of names to arrays. "
            f"Received: {os.fspath(weights)!r}, which TensorFlow cannot read "
            f"({error}). Check that the path names an existing checkpoint."
        ) from error
    return {
        name.removesuffix(_SUFFIX): reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name.endswith(_SUFFIX) and ".OPTIMIZER_SLOT" not in name
    }


def _attention(attention, folder):
    """Reads a mechanism: the query's width, the memory's, and its values."""
    score, alignment = attention.score, attention.alignment
    # Subclasses are refused, because they may compute something else.
    read = _SCORES.get(type(score))
    if read is None:
        raise ValueError(
            "TF Addons' scores are `AdditiveScore`, `ConcatScore` and "
            f"`GeneralScore` here. Received: {type(score).__name__}. Use "
            "`AdditiveScore` for its BahdanauAttention and `GeneralScore` for "
            "its LuongAttention."
        )
    query_dim, memory_dim, values = read(score, folder)
    if type(alignment) is MonotonicAlignment:
        name = "attention_score_bias"
        values.append(_Value(alignment, "bias", folder.take(name, 0), name))
    folder.finish()
    return query_dim, memory_dim, values


def _additive(score, folder):
    query, memory = "query_layer/kernel", "memory_layer/kernel"
    values = [
        _Value(score, "query_kernel", folder.take(query, 2), query),
        _Value(score, "key_kernel", folder.take(memory, 2), memory),
        _v(score, folder),
    ]
    if score.normalize:
        g = folder.take("attention_g", 0)
        values.append(_Value(score, "g", g, "attention_g"))
    values += _bias(score, folder)
    return len(values[0].array), len(values[1].array), values


def _concat(score, folder):
    query = folder.take("query_layer/kernel", 2)
    memory = folder.take("memory_layer/kernel", 2)
    kernel = np.concatenate([query, memory])
    name = "query_layer/kernel, memory_layer/kernel"
    values = [_Value(score, "kernel", kernel, name), _v(score, folder)]
    values += _bias(score, folder)
    return len(query), len(memory), values


def _v(score, folder):
    v = folder.take("attention_v", 1)
    return _Value(score, "v", v[:, None], "attention_v")


def _bias(score, folder):
    """Reads the sum of all biases inside the tanh."""
    if not score.use_bias:
        return []
    names = "attention_b", "query_layer/bias", "memory_layer/bias"
    found = [name for name in names if name in folder] or ["attention_b"]
    bias = sum(folder.take(name, 1) for name in found)
    return [_Value(score, "bias", bias, ", ".join(found))]


def _general(score, folder):
    kernel = folder.take("memory_layer/kernel", 2)
    if "attention_g" in folder:
        # The scale in `scale * (query · key)` goes into the keys' projection.
        kernel = folder.take("attention_g", 0) * kernel
    name = "memory_layer/kernel"
    value = _Value(score, "kernel", kernel, name)
    return kernel.shape[1], kernel.shape[0], [value]


_SCORES = {
    AdditiveScore: _additive,
    ConcatScore: _concat,
    GeneralScore: _general,
}


def _decoder(decoder, arrays, attention, cell, attention_layer):
    """Reads a wrapper, its mechanisms and its cell; builds its counterpart."""
    _require_order_of_the_wrapper(decoder)
    mechanisms = decoder.attention
    several = isinstance(mechanisms, list)
    mechanisms = mechanisms if several else [mechanisms]
    count = len(mechanisms)
    paths = _paths("attention", attention, "_attention_mechanisms", count)
    layer_paths = _paths(
        "attention_layer", attention_layer, "_attention_layers", count
    )
    values, memory_dims = [], []
    for mechanism, path in zip(mechanisms, paths, strict=True):
        _, dim, found = _attention(mechanism, _Folder(arrays, path))
        memory_dims.append(dim)
        values += found
    values_of_cell = _cell(
        decoder.cell, _Folder(arrays, "_cell" if cell is None else cell)
    )
    if attention_layer is None and cell is not None:
        _require_no_layer_beside(cell, layer_paths[0], arrays)
    # (width of the cell + of all contexts, width of the wrapper's attention)
    mixing = _mixing(
        [_Folder(arrays, path) for path in layer_paths],
        decoder.state_width,
        memory_dims,
        required=decoder.emit == "attentional" or attention_layer is not None,
    )
    if decoder.emit == "attentional":
        name = ", ".join(f"{path.strip('/')}/kernel" for path in layer_paths)
        values.append(_Value(decoder.attentional, "kernel", mixing, name))
    # The first value is the bottom cell's kernel, whose last rows multiply the
    # fed output.
    kernel = values_of_cell[0].array
    fed = mixing.shape[1] if decoder.input_feeding else 0
    input_dim = kernel.shape[0] - fed
    if input_dim < 1:
        raise ValueError(
            "The cell's kernel needs more rows than the "
            f"{fed} numbers that are fed back. Received: a kernel of shape "
            f"{kernel.shape}. If a `cell_input_fn` left the attention out, "
            "pass `input_feeding=False`."
        )
    if fed and decoder.emit == "concatenated":
        # The decoder feeds `[state; context]`. The wrapper fed a product of
        # it, whose matrix goes into the cell's kernel.
        kernel = np.concatenate(
            [kernel[:input_dim], mixing @ kernel[input_dim:]]
        )
        values_of_cell[0] = values_of_cell[0]._replace(array=kernel)
    if not decoder.built:
        memory_shapes = [(None, None, dim) for dim in memory_dims]
        decoder.build(
            (None, None, input_dim),
            memory_shapes if several else memory_shapes[0],
        )
    return values + values_of_cell


def _require_no_layer_beside(cell, default, arrays):
    """Refuses to pass over the attention layer of the cell's wrapper."""
    wrapper = cell.strip("/").rpartition("/")[0]
    path = f"{wrapper}/{default}"
    if wrapper and f"{path}/kernel" in arrays:
        raise ValueError(
            "The arrays of a wrapper's attention layer must be named too. "
            f"Received: cell={cell!r}, attention_layer=None, and an array "
            f"{path + '/kernel'!r} beside the cell's. Pass "
            f"`attention_layer={path!r}`."
        )


def _require_order_of_the_wrapper(decoder):
    found = {
        "order": decoder.order,
        "query": decoder.query,
        "attend": decoder.attend,
        "self_attention": decoder.self_attention,
        "bridge": decoder.bridge,
    }
    wanted = {
        "order": "post",
        "query": ("state",),
        "attend": "top",
        "self_attention": None,
        "bridge": None,
    }
    wrong = {k: v for k, v in found.items() if v != wanted[k]}
    if wrong or not decoder.attentions:
        received = ", ".join(f"{k}={v!r}" for k, v in wrong.items())
        raise ValueError(
            "TF Addons' `AttentionWrapper` only runs the cell and then "
            "attends with its output. Received: an `AttentionDecoder` with "
            f"{received or 'attention=None'}. Pass an "
            '`AttentionDecoder(cell, attention, order="post")`.'
        )


def _paths(argument, given, default, count):
    """Returns the prefix of each mechanism's names."""
    if given is None:
        return [f"{default}/{i}" for i in range(count)]
    given = [given] if isinstance(given, str) else list(given)
    if len(given) != count:
        raise ValueError(
            f"`{argument}` must have a prefix for each of the decoder's "
            f"{count} attention(s). Received: {argument}={given!r}. Pass a "
            f"list of {count}."
        )
    return given


def _cell(cell, folder):
    values = []
    stack = isinstance(cell, layers.StackedRNNCells)
    for i, one in enumerate(cell.cells if stack else [cell]):
        if not isinstance(one, _CELLS):
            raise ValueError(
                "TF Addons' weights can be loaded into these cells of Keras: "
                f"{', '.join(kind.__name__ for kind in _CELLS)}. Received: "
                f"{one!r}. Load only the attention's weights, by "
                "`load_tf_addons_weights(decoder.attention, ...)`."
            )
        weights = ["kernel", "recurrent_kernel", *["bias"] * one.use_bias]
        path = f"cells/{i}/" if stack else ""
        values += [
            _Value(one, weight, folder.take(path + weight), path + weight)
            for weight in weights
        ]
    folder.finish()
    return values


def _mixing(folders, width, memory_dims, required):
    """Returns the matrix from `[state; contexts]` to the wrapper's attention.

    The attention of a mechanism is `attention_layer([state; context])`, or
    the context itself. Those of several mechanisms are concatenated.
    """
    start, blocks = width, []
    for folder, dim in zip(folders, memory_dims, strict=True):
        kernel = np.concatenate([np.zeros((width, dim)), np.eye(dim)])
        if folder.arrays or required:
            if "bias" in folder:
                raise ValueError(
                    "The attention layer here has no bias. Received: "
                    f"{folder.path + 'bias'!r}. A wrapper with a bias has no "
                    "exact counterpart. Leave the array out, and train "
                    "further."
                )
            kernel = folder.take("kernel", 2)
            folder.finish()
            if kernel.shape[0] != width + dim:
                raise ValueError(
                    f"The attention layer reads a state of width {width} and "
                    f"a context of width {dim}. Received: "
                    f"{folder.path + 'kernel'!r} of shape {kernel.shape}. Use "
                    "a cell of the old cell's width."
                )
        block = np.zeros((width + sum(memory_dims), kernel.shape[1]))
        block[:width] = kernel[:width]
        block[start : start + dim] = kernel[width:]
        blocks.append(block)
        start += dim
    return np.concatenate(blocks, axis=1)


def _assign(layer, values):
    given = set()
    for owner, weight, array, name in values:
        variable = getattr(owner, weight)
        if tuple(variable.shape) != array.shape:
            raise ValueError(
                f"The weight {weight!r} of {type(owner).__name__} has the "
                f"shape {tuple(variable.shape)}. Received: {name!r}, which "
                f"makes the shape {array.shape}. Use the widths of the old "
                "layer, of its inputs and of its memory."
            )
        given.add(id(variable))
    left = [x.path for x in layer.weights if id(x) not in given]
    if left:
        raise ValueError(
            "Every weight of the layer must have a counterpart in TF Addons. "
            f"Received: a layer with {', '.join(left)}, without counterpart. "
            "Leave out the options that need these weights."
        )
    for owner, weight, array, _ in values:
        getattr(owner, weight).assign(array)
