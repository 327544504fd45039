"""How wide is what goes in and out of a decoder's parts."""

from keras_attn import cells


def of_shapes(shapes):
    """The last dimensions of a shape, or of any nesting of shapes."""
    if not any(isinstance(shape, (list, tuple)) for shape in shapes):
        return [shapes[-1]]
    return [width for shape in shapes for width in of_shapes(shape)]


def of_context(decoder, memory_dims):
    """Width of all contexts laid end to end."""
    width = sum(
        attention.context_dim(dim)
        for attention, dim in zip(decoder.attentions, memory_dims, strict=True)
    )
    if decoder.self_attention:
        width += decoder.self_attention.context_dim(decoder.state_width)
    return width


def of_query(decoder, input_dim, condition_shape):
    """Width of the query, in a decoder that knows its `context_dim`."""
    widths = {
        "state": decoder.state_width,
        "input": input_dim,
        "context": decoder.context_dim,
        "condition": condition_shape and condition_shape[-1],
    }
    return sum(widths[name] for name in decoder.query)


def of_output(decoder, context_dim):
    width = cells.output_size(decoder.cell)
    if decoder.attends and decoder.emit == "concatenated":
        width += context_dim
    return width
