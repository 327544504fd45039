"""Checks of a `MarginalDecoder`'s arguments, with their error messages."""

import keras

from keras_attn import arguments

WINDOW = 5  # eleven offsets, as in the papers


def check_order(order):
    """Returns the order of a transition, 0 or 1."""
    if isinstance(order, bool) or order not in (0, 1):
        raise ValueError(
            "`order` is the number of previous positions that the next one "
            f"depends on, 0 or 1. Received: order={order!r}. Pass 0 to choose "
            "a position by its content, 1 to choose an offset from the last."
        )
    return order


def check_monotonic(monotonic):
    """Returns whether a transition is monotonic."""
    if not isinstance(monotonic, bool):
        raise ValueError(
            "`monotonic` says whether positions before the last are "
            f"excluded. Received: monotonic={monotonic!r}. Pass True or False."
        )
    return monotonic


def check_window(window, order):
    """Returns the largest offset of a transition, `None` for `order=0`."""
    if order == 1:
        return (
            WINDOW
            if window is None
            else arguments.positive(
                window,
                "window",
                "It is the largest offset in either direction.",
            )
        )
    if window is not None:
        raise ValueError(
            "With `order=0` any position may come next, so `window` would "
            f"have no effect. Received: window={window!r}. Leave it out, or "
            "pass `order=1`."
        )
    return None


def check_call(decoder, args, given):
    """Checks that the arguments of a call fit each other."""
    bound = arguments.bind(
        decoder, args, given, "decoder(embedded, memory, ids)"
    )
    names = "inputs", "memory", "ids"
    missing = [name for name in names if bound.get(name) is None]
    if missing:
        raise ValueError(
            "A `MarginalDecoder` needs the embedded target, the memory and "
            "the target's ids, which it needs to update the probability of "
            f"each position. Received: no {' and no '.join(missing)}. Call "
            "`decoder(embed(target), memory, target)`."
        )
    for name, wanted in (
        ("inputs", "(batch, target, dim)"),
        ("memory", "(batch, source, dim)"),
        ("ids", "(batch, target)"),
    ):
        shape = arguments.shape_of(bound[name])
        if shape is not None and len(shape) != wanted.count(",") + 1:
            raise ValueError(
                f"`{name}` must have the shape {wanted}. Received: {name} of "
                f"shape {shape}. Call `decoder(embed(target), memory, "
                "target)`."
            )
    dtype = keras.backend.standardize_dtype(
        getattr(bound["ids"], "dtype", "int32")
    )
    if "int" not in dtype:
        raise ValueError(
            "`ids` are the numbers of the tokens that were embedded. "
            f"Received: ids of dtype {dtype}. Give the target's "
            '`keras.Input` the `dtype="int32"`.'
        )
    _check_lengths(bound)
    arguments.check_batches({name: bound[name] for name in names})
    for mask, name in (("inputs_mask", "inputs"), ("memory_mask", "memory")):
        arguments.check_mask(mask, bound.get(mask), name, bound[name])


def _check_lengths(bound):
    shapes = [arguments.shape_of(bound[name]) for name in ("inputs", "ids")]
    if None in shapes:
        return
    lengths = {shape[1] for shape in shapes} - {None}
    if len(lengths) > 1:
        raise ValueError(
            "`ids` are the tokens that `inputs` embeds, so both must have the "
            f"same length. Received: inputs of shape {shapes[0]} and ids of "
            f"shape {shapes[1]}. Pass the ids that the embedding read."
        )
