"""Checks the arguments that callers pass to layers.

Keras checks them too, but its error says only that the arguments do not match
the signature.
"""

import functools
import inspect


def is_ours(kind) -> bool:
    """Whether a class belongs to this package."""
    return kind.__module__.startswith("keras_attn.")


def takes(function, name):
    """Whether a function's signature names an argument."""
    return name in inspect.signature(function).parameters


def required(function) -> list[str]:
    """Returns the names of a method's arguments that have no default."""
    parameters = inspect.signature(function).parameters.values()
    more = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return [
        x.name
        for x in parameters
        if x.kind not in more and x.default is inspect.Parameter.empty
    ]


def parameters(function) -> list[str]:
    """Returns the names of a method's arguments, without `self`."""
    found = [*inspect.signature(function).parameters.values()][1:]
    more = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return [x.name for x in found if x.kind not in more]


def lacking(owner, method, what) -> NotImplementedError:
    """Returns the error for a class that lacks a needed method.

    Args:
        owner: The object.
        method: Name of the method.
        what: What the method returns.
    """
    return NotImplementedError(
        f"`{type(owner).__name__}` needs a method `{method}`, which returns "
        f"{what}. Received: a class without one. Write it."
    )


def refuse_old_names(given, **new_names):
    """Raises `ValueError` for an argument whose name has changed.

    Args:
        given: The keyword arguments of a call.
        **new_names: The new names by the old ones.
    """
    for old, new in new_names.items():
        if old in given:
            raise ValueError(
                f"`{old}` is called `{new}` since version 0.4. Received: "
                f"{old}={given[old]!r}. Pass `{new}={given[old]!r}`."
            )


def with_new_names(kind, config, **new_names):
    """Returns a config, perhaps from an earlier version, with the new names.

    Args:
        kind: The class that the config is for. An old name that is still an
            argument of its constructor is kept.
        config: The dictionary.
        **new_names: The new names by the old ones.
    """
    own = {old for old in new_names if takes(kind.__init__, old)}
    return {
        name if name in own else new_names.get(name, name): x
        for name, x in config.items()
    }


class Former:
    """The former name of an attribute; reading it raises an error.

    The error gives the attribute's new name.

    Args:
        new: The attribute's name today.
    """

    def __init__(self, new: str):
        self._new = new

    def __set_name__(self, owner, name):
        self._name = name

    def __get__(self, instance, owner):
        raise AttributeError(
            f"`{owner.__name__}.{self._name}` is called `{self._new}` since "
            "version 0.4."
        )


def positive(value, name, remedy=""):
    """Returns a positive integer; refuses anything else.

    Args:
        value: The value of the argument.
        name: Name of the argument.
        remedy: A sentence that says what would work, or "" for a general one.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={value!r}. "
            + (remedy or "Pass an integer of at least 1.")
        )
    return value


def index(value, name):
    """Returns an integer of at least 0; refuses anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(
            f"`{name}` must be an integer of at least 0. Received: "
            f"{name}={value!r}"
        )
    return value


def bind(layer, args, given, example):
    """Returns the arguments of a call by name.

    Args:
        layer: The layer that is called.
        args: Positional arguments of the call.
        given: Keyword arguments of the call.
        example: A correct call, for the error.

    Raises:
        ValueError: If an argument is unknown, or has the form that Keras's
            own attention layers take.
    """
    name, (known, takes_more) = type(layer).__name__, _known(type(layer).call)
    if "mask" in given and "mask" not in known:
        masks = [f"`{x}`" for x in known if x.endswith("_mask")]
        raise ValueError(
            f"`{name}` takes each mask by a name of its own: "
            f"{', '.join(masks[:3])}, boolean tensors (batch, length). "
            f"Received: mask={_shown(given['mask'])}. Pass it by one of these "
            "names, or leave it to Keras, which passes the masks of "
            "`Embedding(mask_zero=True)` by itself."
        )
    unknown = [x for x in given if x not in known]
    if unknown and not takes_more:
        raise ValueError(
            f"`{name}` has no call argument {unknown[0]!r}. Received: "
            f"{unknown[0]}={_shown(given[unknown[0]])}. Pass only "
            f"{', '.join(known)}."
        )
    if args and isinstance(args[0], (list, tuple)):
        raise ValueError(
            f"`{name}` takes {' and '.join(known[:2])} as separate arguments, "
            "and not in one list like Keras's own attentions. "
            f"Received: {_shown(args[0])}. Call `{example}`."
        )
    if len(args) > len(known) and not takes_more:
        raise ValueError(
            f"`{name}` takes {', '.join(known)}. Received: {len(args)} "
            f"arguments. Call `{example}`."
        )
    return dict(zip(known, args, strict=False)) | given


def check_mask(name, mask, of, x, broadcasts=False):
    """Checks that a mask `(batch, length)` fits a tensor `x`."""
    shape, wanted = shape_of(mask), shape_of(x)
    if shape is None or wanted is None:
        return
    wanted = wanted[:2]
    if len(shape) == 2 and all(
        None in sizes or sizes[0] == sizes[1] or (broadcasts and 1 in sizes)
        for sizes in zip(shape, wanted, strict=True)
    ):
        return
    raise ValueError(
        f"`{name}` says which positions of `{of}` are real, so it must have "
        f"the shape (batch, length), here {wanted}. Received: {name} of shape "
        f"{shape}. Pass the mask of `{of}`."
    )


def check_batches(tensors, broadcasts=False):
    """Checks that all tensors of a dictionary have the same batch size."""
    shapes = {name: shape_of(x) for name, x in tensors.items()}
    shapes = {name: shape for name, shape in shapes.items() if shape}
    sizes = {shape[0] for shape in shapes.values()} - {None}
    if broadcasts:
        sizes -= {1}
    if len(sizes) > 1:
        shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            "Axis 0 is the batch, a row for each source, so it must have the "
            f"same size in all tensors. Received: {shown}. To make n rows of "
            "each row, use `keras.ops.repeat(x, n, axis=0)`."
        )


def shape_of(x):
    """Returns the shape of `x` as a tuple, or `None` if it has no shape."""
    shape = getattr(x, "shape", None)
    return None if shape is None else tuple(shape)


def _shown(x):
    if isinstance(x, (list, tuple)):
        return f"a {type(x).__name__} of {len(x)}"
    shape = shape_of(x)
    return f"{x!r:.60}" if shape is None else f"a tensor of shape {shape}"


@functools.lru_cache(maxsize=64)
def _known(call):
    """Returns the names that a method takes, and whether it takes others."""
    _, *parameters = inspect.signature(call).parameters.values()
    more = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    names = tuple(x.name for x in parameters if x.kind not in more)
    return names, len(names) < len(parameters)
