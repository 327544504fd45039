"""A functional model as one flat list of calls, nested models expanded."""

import keras
from keras import layers

from keras_attn.graph.nodes import given_to
from keras_attn.graph.nodes import in_order
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import graph_of
from keras_attn.keras_internals import is_functional
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import nodes_in_order
from keras_attn.keras_internals import set_keras_mask
from keras_attn.keras_internals import without_training


class FlatCall:
    """One call of a layer or operation, at any depth of a model.

    Attributes:
        operation: The layer or operation.
        node: Keras's node of the call.
        reads: Keys of the tensors that it reads.
        writes: Keys of the tensors that it returns.
    """

    def __init__(self, operation, node, reads, writes):
        self.operation = operation
        self.node = node
        self.reads = reads
        self.writes = writes

    @property
    def name(self):
        return self.operation.name

    def run(self, values):
        """Runs the call and returns its outputs, a list."""
        given = zip(self.node.input_tensors, values, strict=True)
        arguments, options = self.node.arguments.fill_in(
            {id(x): value for x, value in given}
        )
        run = without_training(self.operation)
        return keras.tree.flatten(run(*arguments, **options))

    def __str__(self):
        return f"'{self.name}' ({type(self.operation).__name__})"


class Graph:
    """All calls of a functional model, in the order in which Keras runs them.

    A nested model is replaced by its calls, so that an error can name a layer
    inside it. Keys identify tensors: a model that is called twice has two
    keys for each of its tensors.

    Args:
        model: A functional model.
    """

    def __init__(self, model):
        self.calls = []
        self.running = None  # the last call that was started
        self.symbols = {}  # key -> the symbolic tensor
        self.inputs = [self._key((), x) for x in model.inputs]
        self._same = {}  # key of a nested model's output -> key of its tensor
        self._open(model, ())
        self.outputs = [self.real(self._key((), x)) for x in model.outputs]
        self._writers = {key: x for x in self.calls for key in x.writes}

    def real(self, key):
        """Returns the key of the inner tensor for a nested model's output.

        Other keys are returned as they are.
        """
        while key in self._same:
            key = self._same[key]
        return key

    def writer(self, key):
        """Returns the call that returns a tensor, `None` for an input."""
        return self._writers.get(key)

    def readers(self, key):
        """Returns the calls that read a tensor."""
        found = []
        for call in self.calls:
            if key in call.reads:
                entering = isinstance(call, _Enter)
                found += self.readers(call.writes[0]) if entering else [call]
        return found

    def sizes(self):
        """Returns all known sizes of the tensors."""
        return {
            size
            for x in self.symbols.values()
            for size in x.shape
            if size is not None
        }

    def run(self, inputs, masks=None, watch=None, count=None, masked=True):
        """Computes all tensors with `training=False`.

        Args:
            inputs: A tensor for each input.
            masks: Optional `Masks` to fill.
            watch: Optional function of a tensor's key and value, called
                before another call reads the tensor.
            count: Number of calls to run, in order. Defaults to all.
            masked: Whether calls get the masks that Keras passes on. If
                False, calls that only compute masks are skipped.

        Returns:
            The values by their keys.
        """
        values = dict(zip(self.inputs, inputs, strict=True))
        left_out = set() if masked else self._masks()
        for call in self.calls[:count]:
            if left_out.issuperset(call.writes):
                continue
            self.running = call
            read = [values.get(key) for key in call.reads]
            were_masked = [get_keras_mask(x) is not None for x in read]
            outputs = call.run(read)
            for x in [] if masked else outputs:
                if get_keras_mask(x) is not None:
                    set_keras_mask(x, None)
            values.update(zip(call.writes, outputs, strict=True))
            if watch is not None:
                for key, value in zip(call.writes, outputs, strict=True):
                    watch(key, value)
            if masks is not None:
                wrote = [get_keras_mask(x) is not None for x in outputs]
                masks.add(call, were_masked, wrote)
                for x, before in zip(read, were_masked, strict=True):
                    if before and get_keras_mask(x) is None:
                        # A layer may return its input: then one value has
                        # two keys.
                        same = [k for k, value in values.items() if value is x]
                        masks.takers.update(dict.fromkeys(same, call))
        return values

    def _masks(self):
        """Returns the keys of the tensors that are masks of others."""
        of = {id(get_keras_mask(x)) for x in self.symbols.values()}
        return {key for key, x in self.symbols.items() if id(x) in of}

    def _open(self, model, path):
        for node in nodes_in_order(graph_of(model)):
            reads = [self.real(self._key(path, x)) for x in node.input_tensors]
            if is_functional(node.operation):
                self._enter(node, path, reads)
                continue
            writes = [self._key(path, x) for x in node.outputs]
            self.calls.append(FlatCall(node.operation, node, reads, writes))

    def _enter(self, node, path, reads):
        inner = node.operation
        inside = (*path, id(node))
        inside_model = graph_of(inner)
        by_id = dict(zip(map(id, node.input_tensors), reads, strict=True))
        given, masks = _given(inside_model, node)
        for x, mask, symbol in zip(
            given, masks, inside_model.inputs, strict=True
        ):
            sources = [by_id[id(x)]]
            if mask is not None and id(mask) in by_id:
                sources.append(by_id[id(mask)])
            key = self._key(inside, symbol)
            self.calls.append(_Enter(inner, node, sources, [key], symbol))
        self._open(inner, inside)
        for outer, symbol in zip(
            node.outputs, inside_model.outputs, strict=True
        ):
            self.symbols[self._key(path, outer)] = outer
            self._same[self._key(path, outer)] = self._key(inside, symbol)

    def _key(self, path, x):
        key = (*path, id(x))
        self.symbols[key] = x
        return key


class _Enter(FlatCall):
    """Passes a tensor to an input of a nested model, in that input's dtype."""

    def __init__(self, operation, node, reads, writes, symbol):
        super().__init__(operation, node, reads, writes)
        self.symbol = symbol

    def run(self, values):
        value, *masks = values
        mask = masks[0] if masks else get_keras_mask(value)
        value = keras.ops.convert_to_tensor(value, dtype=self.symbol.dtype)
        if mask is not None:
            set_keras_mask(value, mask)
        return [value]


class Masks:
    """A record of which tensors had a mask while a graph ran."""

    def __init__(self):
        self.read = {}  # (id of a call, key) -> whether it was masked
        self.written = {}  # key -> whether it was masked when returned
        self.takers = {}  # key -> the call that removed its mask

    def add(self, call, read, written):
        """Records which of the tensors of a call are masked."""
        for key, is_masked in zip(call.reads, read, strict=True):
            self.read[id(call), key] = is_masked
        self.written.update(zip(call.writes, written, strict=True))


def _given(model, node):
    """Returns the inputs of a nested model's call and their masks, in order."""
    args, kwargs = node.arguments.args, node.arguments.kwargs
    given = given_to(model, args, kwargs)
    masks = kwargs.get("mask")
    if masks is None:
        return given, [None] * len(given)
    return given, in_order(model, masks)


def tables_of(graph, key):
    """Finds the embedding tables that look up the ids of an input.

    Args:
        graph: A `Graph`.
        key: Key of the input.

    Returns:
        `{name of a layer: number of ids it knows}` for layers of Keras,
        KerasHub and keras_attn; and, for made-up inputs, the size of the
        smallest table in all layers that read the ids, or `None` if there is
        no table.
    """
    known, sizes = {}, []
    for call in graph.readers(key):
        layer = call.operation
        if not isinstance(layer, keras.Layer):
            continue
        tables = [
            x.input_dim
            for x in layers_within(layer)
            if isinstance(x, layers.Embedding)
        ]
        sizes += tables
        # A table inside another layer may be for positions, and a user's
        # subclass of `Embedding` may accept larger ids. So only Keras's own
        # `Embedding` and ours count, and KerasHub's layers, by their
        # `vocabulary_size`.
        package = type(layer).__module__.partition(".")[0]
        if package not in ("keras", "keras_hub", "keras_attn"):
            continue
        if isinstance(layer, layers.Embedding):
            known[call.name] = layer.input_dim
        elif isinstance(getattr(layer, "vocabulary_size", None), int):
            known[call.name] = layer.vocabulary_size
    return known, min(sizes, default=None)
