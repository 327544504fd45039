"""Tells whether a layer computes what its class is known for.

A subclass may compute anything: only one that leaves its parent's methods
alone is stepped as its parent. Others are layers of unknown kind. A stepper
may run methods of its layer, which a subclass may replace then; so do those of
our own layers, of which only `call` is another way to the same.
"""

from keras_attn.placement import is_placed

# What a subclass may define and still compute what its parent does.
_HARMLESS = {
    "__init__",
    "build",
    "build_from_config",
    "compute_mask",
    "compute_output_shape",
    "compute_output_spec",
    "from_config",
    "get_build_config",
    "get_config",
    "load_own_variables",
    "quantize",
    "save_own_variables",
}


def is_plain(operation, *kinds, methods=None):
    """Whether an operation is of one of some classes, its methods unchanged.

    The nearest of the classes counts, so that a class and its subclass may
    both be among them.

    Args:
        operation: A Keras layer or operation.
        *kinds: Classes.
        methods: Names of the methods that count. All but harmless ones, if
            it is `None`.
    """
    for cls in type(operation).__mro__:
        if cls in kinds:
            return not _replaced(vars(operation), cls, methods)
        if any(_replaced(vars(cls), kind, methods) for kind in kinds):
            return False
    return False


def _replaced(attributes, kind, methods):
    """Whether some attributes stand in the place of a class's methods."""
    return any(
        callable(value)
        and not is_placed(value)
        and getattr(value, "__func__", value) is not getattr(kind, name)
        for name, value in attributes.items()
        if (_counts(name) if methods is None else name in methods)
        and callable(getattr(kind, name, None))
    )


def _counts(name):
    if name == "__call__":
        return True
    return name not in _HARMLESS and not name.startswith("__")
