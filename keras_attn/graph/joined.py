"""A part of a graph as a single layer."""

import keras

from keras_attn.graph.nodes import nodes_after
from keras_attn.graph.rerun import run_nodes
from keras_attn.keras_internals import without_training


class Joined(keras.layers.Layer):
    """Runs, as one layer, the part of a graph that depends on some tensors.

    Masks are passed on from layer to layer inside. This layer is never a part
    of a model itself.

    Args:
        entries: Symbolic tensors on which the part depends.
        outputs: Symbolic tensors that depend on the entries.

    Attributes:
        reads: Symbolic tensors that the part reads in addition to the entries.
    """

    def __init__(self, entries, outputs):
        super().__init__(name="target_side", autocast=False)
        self.supports_masking = True
        self.built = True
        nodes = nodes_after(entries, outputs)
        inside = {id(x) for x in entries}
        inside.update(id(x) for node in nodes for x in node.outputs)
        read = {
            id(x): x
            for node in nodes
            for x in node.input_tensors
            if id(x) not in inside
        }
        # Wrapped, so Keras does not track it.
        self._graph = _Untracked(nodes, entries, list(read.values()), outputs)
        self.parts = [
            node.operation
            for node in nodes
            if isinstance(node.operation, keras.Layer)
        ]

    @property
    def reads(self) -> list:
        return self._graph.reads

    @property
    def nodes(self) -> list:
        """Keras's nodes of the part, in the order in which they run."""
        return self._graph.nodes

    def call(self, inputs):
        """Runs the part.

        Args:
            inputs: A list of the values of `reads`, followed by the values of
                the entries.

        Returns:
            A list of the values of the outputs.
        """
        graph = self._graph
        given = zip([*graph.reads, *graph.entries], inputs, strict=True)
        values = {id(x): value for x, value in given}
        run_nodes(graph.nodes, values, without_training)
        return [values[id(x)] for x in graph.outputs]

    def compute_mask(self, inputs, previous_mask=None):
        return None


class _Untracked:
    def __init__(self, nodes, entries, reads, outputs):
        self.nodes, self.entries = nodes, entries
        self.reads, self.outputs = reads, outputs
