"""Decides whether a layer computes the same as a known class.

A subclass is stepped as its parent only if it keeps the parent's methods. Other
subclasses count as layers of unknown kind. Some steppers run methods of their
layer, so a subclass may replace these methods. For our own layers only `call`
and `__call__` must be kept, because steps do not run them.
"""

from keras_attn.placement import is_placed

# Methods that a subclass may replace and still compute the same.
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
    """Whether an operation is of one of `kinds`, with the kind's methods.

    If both a class and its subclass are among `kinds`, the nearest one counts.

    Args:
        operation: A Keras layer or operation.
        *kinds: Classes.
        methods: Names of the methods that must be unchanged. `None` means
            all methods but harmless ones.
    """
    for cls in type(operation).__mro__:
        if cls in kinds:
            return not _replaced(vars(operation), cls, methods)
        if any(_replaced(vars(cls), kind, methods) for kind in kinds):
            return False
    return False


def _replaced(attributes, kind, methods):
    """Whether some attributes replace methods of a class."""
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
