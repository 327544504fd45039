"""The query with which a decoder attends."""

from keras import ops


class Query:
    """The parts of a decoder's query, concatenated.

    Args:
        names: Names of the parts: `"state"`, the hidden state of the cell;
            `"input"`, the step's input; `"context"`, the previous step's
            context; `"condition"`, the condition of the `Source`.
    """

    def __init__(self, names):
        self.names = names

    def width(self, **widths):
        """Returns the query's width, given the width of each part by name."""
        return sum(widths[name] for name in self.names)

    def make(self, inputs, hidden, context, condition):
        """Returns queries of shape `(batch, length, dim)`.

        Args:
            inputs, hidden, context: Tensors of shape `(batch, length, dim)`.
            condition: Tensor of shape `(batch, dim)`, or `()`.
        """
        known = {"input": inputs, "state": hidden, "context": context}
        if "condition" in self.names:
            # Broadcasts by an addition, because XLA cannot compile the
            # gradient of `repeat` in a loop.
            each = ops.zeros_like(inputs[..., :1])
            known["condition"] = ops.expand_dims(condition, 1) + each
        return join([known[name] for name in self.names])


def join(tensors):
    """Concatenates tensors `(..., dim)`."""
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, -1)
