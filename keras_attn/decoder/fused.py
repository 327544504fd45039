"""Keras's own RNN layers over a whole target, with a decoder's cell."""

from keras import layers


def whole_sequence(cell):
    """What runs the cell over a target at once, or `None`.

    `keras.layers.GRU` and `LSTM` have fused kernels on GPUs, which their
    cells alone have not. The layer made here is given the cell for its own,
    so that there are no weights but one.

    Returns:
        A Keras layer, or `None` where Keras has none for this cell.
    """
    if type(cell) is layers.GRUCell:
        special = {"reset_after": cell.reset_after}
        make = layers.GRU
    elif type(cell) is layers.LSTMCell:
        special = {}
        make = layers.LSTM
    else:
        return None
    rnn = make(
        cell.units,
        activation=cell.activation,
        recurrent_activation=cell.recurrent_activation,
        use_bias=cell.use_bias,
        dropout=cell.dropout,
        recurrent_dropout=cell.recurrent_dropout,
        return_sequences=True,
        dtype=cell.dtype_policy,
        **special,
    )
    rnn.cell = cell
    return rnn
