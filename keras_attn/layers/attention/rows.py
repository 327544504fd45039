"""Batches in which some tensors have a single row, which serves all rows."""

from keras import ops


def common_size(*shapes):
    """Returns the batch size of shapes: 1 only if all of them have one row."""
    sizes = (shape[0] for shape in shapes if shape is not None)
    return next((size for size in sizes if size != 1), 1)


def common_batch(*tensors):
    """Returns the batch size of tensors: 1 only if all of them have one row.

    It is a number if it is known, else a tensor.
    """
    tensors = [x for x in tensors if x is not None]
    several = (x for x in tensors if x.shape[0] != 1)
    return ops.shape(next(several, tensors[0]))[0]


def repeat_row(x, batch):
    """Repeats `x` for a batch if it has one row; keeps `None` as it is."""
    one_row = x is not None and x.shape[0] == 1
    if not one_row or (isinstance(batch, int) and batch == 1):
        return x
    return ops.broadcast_to(x, (batch, *ops.shape(x)[1:]))
