"""`SourceSide`: the part of a model that does not depend on the target."""

from keras_attn.graph.rerun import run_nodes
from keras_attn.keras_internals import Functional
from keras_attn.keras_internals import as_inputs
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import nodes_in_order
from keras_attn.keras_internals import set_keras_mask
from keras_attn.keras_internals import without_training


class SourceSide(Functional):
    """Computes the tensors of the source that the target's part reads.

    Keras's `MultiHeadAttention` removes the masks of the tensors that it
    reads, so layers that read them later see no mask. In the whole model the
    layers of both parts take turns; here those of the source run first. So each
    tensor gets the mask that it has when the target's part first reads it in
    the whole model.

    Args:
        inputs: The inputs of the source, symbolic tensors.
        outputs: The tensors that the target's part reads.
        nodes: All nodes of the whole model, as Keras runs them.
        others: Those of them that depend on the target.
    """

    def __init__(self, inputs, outputs, nodes, others):
        super().__init__(inputs, outputs)
        self.supports_masking = True
        own = {id(x) for x in nodes_in_order(self)}
        either = own | {id(x) for x in others}
        read = {id(x) for x in outputs}
        order = [
            ([node], ()) if id(node) in own else ((), read & _reads(node))
            for node in nodes
            if id(node) in either
        ]
        self._order = lambda: order  # a function, since Keras tracks lists

    def call(self, inputs, training=None, mask=None):
        """Returns a list of the values of the outputs."""
        pairs = zip(self.inputs, as_inputs(self, inputs, mask), strict=True)
        values = {id(x): value for x, value in pairs}
        masks = {}
        for nodes, read in self._order():
            run_nodes(nodes, values, without_training)
            for x in read:
                masks.setdefault(x, get_keras_mask(values[x]))
        for x, found in masks.items():
            set_keras_mask(values[x], found)
        return [values[id(x)] for x in self.outputs]

    def compute_mask(self, inputs, previous_mask=None):
        return None


def _reads(node):
    return {id(x) for x in node.input_tensors}
