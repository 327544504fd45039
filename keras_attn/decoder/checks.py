"""What a decoder refuses of its arguments, and how it says so."""

from keras import layers

from keras_attn.attention import Attention


def attentions_of(attention):
    """A tuple of the attentions that an argument means."""
    if attention is None:
        return ()
    if not isinstance(attention, (list, tuple)):
        attention = [attention]
    if not attention:
        raise ValueError(
            "A list of attentions must hold at least one. Received: "
            "attention=[]. Pass None to decode without."
        )
    for one in attention:
        require_attention("attention", one)
    return tuple(attention)


def check_self_attention(attention):
    """Refuses what cannot attend to a past that grows with every step."""
    require_attention("self_attention", attention)
    parts = attention.score, attention.alignment
    names = " and ".join(type(part).__name__ for part in parts)
    if attention.looks_back or attention.score.by_position:
        raise ValueError(
            "`self_attention` reads a past that grows with every step; a "
            "score or alignment that needs past alignments or positions does "
            f"not fit. Received: {names}. Use for example "
            "`ScaledDotAttention()`."
        )
    if attention.regularizer is not None or attention.alignment.samples:
        raise ValueError(
            "Of `self_attention` the decoder keeps the context alone, so "
            "that a regularizer or samples would have no effect. Received: "
            f"{names} with regularizer={attention.regularizer!r}. Leave them "
            "to the attention that reads the memory."
        )


def require_attention(name, attention):
    if not isinstance(attention, Attention):
        raise ValueError(
            f"`{name}` must be a `keras_attn.Attention`. Received: "
            f"{attention!r}. Pass for example `BahdanauAttention(256)`."
        )


def widths_of(shapes):
    """The last dimensions of a shape, or of any nesting of shapes."""
    if not any(isinstance(shape, (list, tuple)) for shape in shapes):
        return [shapes[-1]]
    return [width for shape in shapes for width in widths_of(shape)]


def require_cell(cell):
    fits = callable(cell) and hasattr(cell, "state_size")
    if not fits or isinstance(cell, layers.RNN):
        raise ValueError(
            "`cell` must be a Keras RNN cell, with `call` and `state_size`, "
            f"or a list of such cells. Received: {cell!r}. Pass for example "
            "`keras.layers.GRUCell(256)`; layers such as `keras.layers.GRU` "
            "run over time by themselves and do not fit."
        )


def require_one_of(name, value, choices):
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, choices))}. "
            f"Received: {name}={value!r}"
        )
