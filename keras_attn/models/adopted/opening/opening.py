"""`opened_model`: replaces a user's own layers by the layers inside them."""

import threading

import keras
import numpy as np
from keras import layers
from keras import ops

from keras_attn.graph.nodes import all_nodes
from keras_attn.graph.nodes import nodes_after
from keras_attn.graph.rerun import run_nodes
from keras_attn.keras_internals import is_operation_of_keras
from keras_attn.keras_internals import layers_within
from keras_attn.models.adopted.opening.inside import Constant
from keras_attn.models.adopted.opening.inside import unchanged
from keras_attn.models.adopted.opening.positions import TableOfLayer
from keras_attn.models.adopted.opening.positions import TableOfNumbers
from keras_attn.models.adopted.opening.positions import WithPositions
from keras_attn.models.adopted.opening.positions import as_array
from keras_attn.models.adopted.opening.positions import as_numbers
from keras_attn.models.adopted.opening.tracing import Trace

# Sizes that are unlikely in a layer. If a layer has one by chance, the
# comparison finds it.
_ROWS = 13
_LENGTHS = 37, 19, 11
_FEW = 3  # rows, and positions of a source
# Lengths of the targets for which fixed numbers are kept and masks are
# inspected; a table of positions may be shorter.
_LONGER = 1000, 700, 500, 350, 250, 180, 128, 100, 80, 64, 50
_FEW_ROWS = 3  # in such long targets
_ONE_AT_A_TIME = threading.Lock()
_ATTEMPTS = 8
_ATTENTION = (
    layers.MultiHeadAttention,
    layers.GroupQueryAttention,
    layers.Attention,
    layers.AdditiveAttention,
)
_MASKS = "mask", "query_mask", "key_mask", "value_mask", "attention_mask"
_SHAPE_ALONE = "OnesLike", "ZerosLike"  # operations that read no numbers


class CannotOpen(Exception):
    """A node depends on the length in a way that is not recognized."""

    def __init__(self, node):
        super().__init__(node)
        self.node = node


def opened_model(
    model: keras.Model, longest: int | None = None
) -> keras.Model | None:
    """Returns a model in which a user's layers become the layers inside them.

    It shares all layers and weights, and computes the same where no token of
    the target is padding: masks that are causal by their values become
    `use_causal_mask=True`, and tables of positions are read a row at a time.
    Layers that depend only on the source stay as they are, and so do layers
    that cannot be opened. The model is for decoding, and must not be saved.

    Args:
        model: A model in standard form.
        longest: The longest target that it takes, `None` for any length.

    Returns:
        The model; `None` if nothing can be opened. A comparison must decide
        whether it computes the same.
    """
    with _ONE_AT_A_TIME:
        return _opened(model, longest)


def _opened(model, longest):
    closed: list = []
    length = _length_that_runs(model, longest)
    for _ in range(_ATTEMPTS):
        try:
            trace = Trace(model, closed, _ROWS, length)
            if not trace.is_open:
                return None
            return _Rebuilt(model, trace, length, longest).model()
        except CannotOpen as error:
            layer = trace.around(error.node)
            if layer is None:
                return None
            closed.append(layer)
        except Exception:  # a layer may not run on symbols, for example
            return None
    return None


def _length_that_runs(model, longest):
    """Returns a length of targets on which a model runs.

    The model may have a table of positions that is shorter than some lengths.
    """
    lengths = list(dict.fromkeys(min(x, longest or x) for x in _LENGTHS))
    for length in lengths:
        shapes = [
            [_FEW if s is None else s for s in x.shape] for x in model.inputs
        ]
        shapes[-1] = [_FEW, length]
        arrays = [
            np.ones(shape, x.dtype)
            for shape, x in zip(shapes, model.inputs, strict=True)
        ]
        try:
            with unchanged(model):
                model(arrays, training=False)
        except Exception:  # any layer may raise anything
            continue
        return length
    return lengths[-1]


class _Rebuilt:
    """Turns a trace of fixed sizes into a model for any length."""

    def __init__(self, model, trace, length, longest):
        self._model, self._trace = model, trace
        self._length, self._longest = length, longest
        self._target = trace.inputs[-1]
        self._nodes = all_nodes(trace.outputs)
        after = nodes_after([self._target], trace.outputs)
        self._follows = {id(x) for node in after for x in node.outputs}
        self._follows.add(id(self._target))
        self._after = {id(node) for node in after}
        self._by_shape = self._values_by_shape()
        self._others: dict = {}  # by the lengths of their targets

    def model(self):
        """Returns the model."""
        calls = [
            self._translated(node, number)
            for number, node in enumerate(self._nodes)
        ]
        needed = {id(x) for x in self._trace.outputs}
        kept = []
        for node, call in reversed(list(zip(self._nodes, calls, strict=True))):
            if not any(id(x) in needed for x in node.outputs):
                continue
            if isinstance(call, CannotOpen):
                raise call
            kept.append((node, call))
            needed.update(map(id, _symbols(call[1:])))
        inputs = [
            keras.Input(x.shape[1:], dtype=x.dtype, name=x.name)
            for x in self._model.inputs
        ]
        values = {
            id(x): new
            for x, new in zip(self._trace.inputs, inputs, strict=True)
        }
        names = {x.name: (x, x) for x in inputs}
        for node, (operation, args, kwargs) in reversed(kept):
            operation = _of_own_name(operation, names)
            args, kwargs = keras.tree.map_structure(
                lambda x: (
                    values[id(x)] if isinstance(x, keras.KerasTensor) else x
                ),
                (args, kwargs),
            )
            with unchanged(operation):
                found = keras.tree.flatten(operation(*args, **kwargs))
            pairs = zip(node.outputs, found, strict=True)
            values.update((id(x), value) for x, value in pairs)
        outputs = [values[id(x)] for x in self._trace.outputs]
        return keras.Model(inputs, outputs, name=self._model.name)

    def _values_by_shape(self):
        """Returns the values of tensors that depend only on the shape."""
        values: dict = {}
        for node in self._nodes:
            if id(node) not in self._after:
                continue
            symbols = node.input_tensors
            if type(node.operation).__name__ in _SHAPE_ALONE:
                (x,) = symbols
                values[id(node.outputs[0])] = node.operation(
                    ops.zeros(x.shape, x.dtype)
                )
            elif symbols and all(id(x) in values for x in symbols):
                layer = node.operation
                args, kwargs = node.arguments.fill_in(values)
                found = keras.tree.flatten(layer(*args, **kwargs))
                pairs = zip(node.outputs, found, strict=True)
                values.update((id(x), value) for x, value in pairs)
                if isinstance(layer, keras.Layer):
                    self._trace.constants.update(
                        (id(x), Constant(x, layer, args, kwargs)) for x in found
                    )
        return values

    def _translated(self, node, number):
        """Returns an operation and its arguments, or why there are none."""
        args, kwargs = self._arguments(number)
        operation = node.operation
        if id(node) not in self._after:
            if self._keeps_weights(number, args, kwargs):
                return CannotOpen(node)
            return operation, args, kwargs
        try:
            if isinstance(operation, _ATTENTION):
                kwargs = self._attention(node, number, args, kwargs)
            fixed = self._fixed(args, kwargs)
            if fixed:
                return self._with_table(node, number, args, kwargs, fixed)
            self._require_any_length(node, args, kwargs)
            if self._keeps_weights(number, args, kwargs):
                raise CannotOpen(node)
        except CannotOpen as error:
            return error
        return operation, args, kwargs

    def _attention(self, node, number, args, kwargs):
        """Returns the arguments of an attention, its masks found by values."""
        kwargs = dict(kwargs)
        given = keras.tree.flatten((args, kwargs.get("value")))
        of_itself = all(
            id(x) in self._follows
            for x in given
            if isinstance(x, keras.KerasTensor)
        )
        for name in _MASKS:
            mask = kwargs.get(name)
            if mask is None:
                continue
            if name == "mask":
                kwargs[name] = [None if self._follow(x) else x for x in mask]
            elif name != "attention_mask":
                kwargs[name] = None if self._follow(mask) else mask
            else:
                value = self._value(mask)
                if value is None:
                    continue
                is_causal = _is_causal(value)
                if (
                    of_itself
                    and is_causal
                    and self._stays(number, name, _is_causal)
                ):
                    kwargs["use_causal_mask"] = True
                elif not _is_full(value) or not self._stays(
                    number, name, _is_full
                ):
                    raise CannotOpen(node)
                kwargs[name] = None
        return {k: v for k, v in kwargs.items() if v is not None}

    def _stays(self, number, name, holds):
        """Whether something holds for a mask of long targets, too."""
        other = self._longer()
        if other is None:
            return False
        _, kwargs = other._arguments(number)
        mask = other._value(kwargs[name])
        return mask is not None and holds(mask)

    def _longer(self):
        """Returns the trace for longer targets, and other weights."""
        tables = [
            x.input_dim
            for x in layers_within(self._model)
            if isinstance(x, layers.Embedding)
        ]
        most = min(max(_LONGER), self._longest or max(_LONGER))
        lengths = {x for x in (*_LONGER, *tables) if self._length < x <= most}
        return self._other(*sorted(lengths, reverse=True), self._length)

    def _follow(self, x):
        return id(x) in self._follows

    def _value(self, mask):
        """Returns the value of a mask for targets without padding.

        It is `None` if the mask depends on the source.
        """
        if not isinstance(mask, keras.KerasTensor):
            return as_array(mask)
        inputs = {id(x) for x in self._trace.inputs[:-1]}
        nodes = all_nodes([mask])
        read = {id(x) for node in nodes for x in node.input_tensors}
        if not self._follow(mask) or read & inputs:
            return None
        size = self._model.outputs[0].shape[-1]
        ids = np.random.default_rng(0).integers(
            min(4, size - 1), size, self._target.shape
        )
        values = {id(self._target): ops.cast(ids, self._target.dtype)}
        run_nodes(nodes, values, lambda operation: operation)
        return np.asarray(ops.convert_to_numpy(values[id(mask)]))

    def _fixed(self, args, kwargs):
        """Returns the arguments that are arrays with an axis of positions."""
        found = []
        for x in keras.tree.flatten((args, kwargs)):
            array = as_array(x)
            if array is not None and self._length in array.shape:
                found.append(x)
        return found

    def _with_table(self, node, number, args, kwargs, fixed):
        """Returns a call in which a table of positions replaces an array."""
        symbols = _symbols((args, kwargs))
        if len(fixed) != 1 or len(symbols) != 1:
            raise CannotOpen(node)
        (array,) = fixed
        table = self._table(node, number, array, symbols[0])
        args, kwargs = keras.tree.map_structure(
            lambda x: table if x is array else x, (args, kwargs)
        )
        rest = [x for x in keras.tree.flatten((args, kwargs)) if x is not table]
        if self._keeps_weights(number, rest, {}):
            raise CannotOpen(node)
        layer = WithPositions(node.operation, args, kwargs, symbols[0], table)
        return layer, (symbols[0],), {}

    def _table(self, node, number, array, symbol):
        axis = len(array.shape) - len(symbol.shape) + 1
        if axis < 0 or array.shape[axis] != self._length:
            raise CannotOpen(node)
        constant = self._trace.constants.get(id(array))
        if constant is not None:
            return _table_of_layer(
                node, constant.layer, constant.args, constant.kwargs
            )
        numbers = _rows(node, as_array(array), axis)
        longer = self._numbers_of_longer(node, number, axis)
        if not np.array_equal(numbers, longer[: len(numbers)]):
            raise CannotOpen(node)  # it depends on weights, or on the length
        return TableOfNumbers(longer)

    def _numbers_of_longer(self, node, number, axis):
        """Returns an array for longer targets and other weights."""
        other = self._longer()
        if other is None:
            raise CannotOpen(node)
        fixed = other._fixed(*other._arguments(number))
        if len(fixed) != 1 or len(fixed[0].shape) <= axis:
            raise CannotOpen(node)
        return _rows(node, as_array(fixed[0]), axis)

    def _keeps_weights(self, number, args, kwargs):
        """Whether numbers in a call were computed from weights.

        They would stay as they are when the weights change.
        """
        numbers = _numbers_in((args, kwargs))
        if not numbers:
            return False
        other = self._other(self._length)
        if other is None:
            return True
        others = _numbers_in(other._arguments(number))
        return any(
            not any(np.array_equal(x, y) for y in others) for x in numbers
        )

    def _arguments(self, number):
        """Returns a node's arguments, with the values by shape filled in."""
        given = self._nodes[number].arguments
        return keras.tree.map_structure(
            lambda x: self._by_shape.get(id(x), x),
            (given.args, dict(given.kwargs)),
        )

    def _other(self, *lengths):
        """Returns the trace with other weights, for the first length that runs.

        It is `None` if the graph changes.
        """
        if lengths not in self._others:
            self._others[lengths] = self._made_for(lengths)
        return self._others[lengths]

    def _made_for(self, lengths):
        others = _other_weights(self._model)
        for length in lengths:
            closed = list(self._trace.closed)
            rows = _ROWS if length == self._length else _FEW_ROWS
            try:
                with keras.StatelessScope(others):
                    trace = Trace(self._model, closed, rows, length)
                    found = _Rebuilt(self._model, trace, length, self._longest)
            except Exception:  # a table may end before
                continue
            if [type(x.operation) for x in found._nodes] == [
                type(x.operation) for x in self._nodes
            ]:
                return found
        return None

    def _require_any_length(self, node, args, kwargs):
        """Refuses numbers that equal the number of rows or of positions."""
        sizes = {self._length, _ROWS}
        given = [args, kwargs]
        if is_operation_of_keras(node.operation):
            given += [
                x
                for name, x in vars(node.operation).items()
                if not name.startswith("_")
            ]
        arrays = map(as_array, keras.tree.flatten((args, kwargs)))
        for_rows = any(
            x is not None and x.shape[:1] == (_ROWS,) for x in arrays
        )
        if for_rows or any(x in sizes for x in _integers(given)):
            raise CannotOpen(node)


def _of_own_name(operation, names):
    """Returns an operation under a unique name that shares the rest.

    Keras needs different names for a model's layers, but layers inside two of a
    user's own layers may have equal names.

    Args:
        operation: The operation.
        names: Pairs of an operation and the result of this function for it, by
            the result's name.
    """
    name, number = operation.name, 0
    while name in names and names[name][0] is not operation:
        number += 1
        name = f"{operation.name}_{number}"
    if name not in names:
        other = _renamed(operation, name) if number else operation
        names[name] = operation, other
    return names[name][1]


def _renamed(operation, name):
    other = object.__new__(type(operation))
    vars(other).update(vars(operation))
    vars(other).update(name=name, _inbound_nodes=[], _outbound_nodes=[])
    return other


def _table_of_layer(node, layer, args, kwargs):
    given = keras.tree.flatten((args, kwargs))
    if sum(as_numbers(x) is not None for x in given) != 1:
        raise CannotOpen(node)
    return TableOfLayer(layer, args, kwargs)


def _rows(node, array, axis):
    """Returns an array `(positions, ...)` without the axes before."""
    flat = array.reshape(-1, *array.shape[axis:])
    if any(not np.array_equal(x, flat[0]) for x in flat):
        raise CannotOpen(node)
    return flat[0]


def _other_weights(model):
    """Returns pairs of variables and other values."""
    random, found = np.random.default_rng(0), []
    for x in model.variables:
        value = ops.convert_to_tensor(x)
        if "float" in x.dtype:
            noise = random.normal(size=x.shape) + 1
            found.append((x, value + ops.cast(noise, x.dtype)))
        elif "int" in x.dtype:
            found.append((x, value + ops.cast(1, x.dtype)))
    return found


def _is_causal(mask):
    """Whether a mask hides the later positions, and no others."""
    if mask.ndim < 2 or mask.shape[-1] != mask.shape[-2]:
        return False
    return bool((mask.astype(bool) == np.tri(mask.shape[-1], dtype=bool)).all())


def _is_full(mask):
    """Whether a mask hides nothing."""
    return bool(mask.astype(bool).all())


def _numbers_in(structure):
    """Returns the numbers among arguments, without truth values."""
    found = []
    for x in keras.tree.flatten(structure):
        array = as_array(x)
        if array is not None:
            found.append(array)
        elif isinstance(x, (int, float)) and not isinstance(x, bool):
            found.append(np.asarray(x))
    return found


def _symbols(structure):
    found = {
        id(x): x
        for x in keras.tree.flatten(structure)
        if isinstance(x, keras.KerasTensor)
    }
    return list(found.values())


def _integers(given):
    """Returns the integers within arguments, slices and shapes."""
    found = []
    for x in keras.tree.flatten(given):
        if isinstance(x, slice):
            found += [x.start, x.stop, x.step]
        elif isinstance(x, (int, np.integer)) and not isinstance(x, bool):
            found.append(int(x))
    return found
