"""Checks lines of text from callers and converts them."""

import tensorflow as tf


def encode_lines(lines, name: str) -> list[bytes]:
    """Encodes lines as UTF-8; lone surrogates stay for `Text` to replace.

    Args:
        lines: Strings, or bytes.
        name: The caller's argument, for error messages.
    """
    found = []
    for i, line in enumerate(lines):
        if tf.is_tensor(line):  # from a `tf.data.Dataset`
            line = line.numpy()
        if isinstance(line, str):
            line = line.encode("utf-8", "surrogatepass")
        elif not isinstance(line, bytes):
            raise ValueError(
                f"`{name}` must be strings, one a line. Received: "
                f"{name}[{i}]={line!r:.80} (of type {type(line).__name__}). "
                "Leave empty lines as the empty string, and turn numbers into "
                "text by `str(x)`."
            )
        found.append(line)
    return found


def batch_of(strings) -> tf.Tensor:
    """Returns strings as a tensor `(batch,)`."""
    shape, dtype = getattr(strings, "shape", None), tf.string
    if tf.is_tensor(strings):
        dtype = strings.dtype
    elif hasattr(strings, "dtype"):  # numpy array
        dtype = tf.string if strings.dtype.kind in "OSU" else strings.dtype
    elif isinstance(strings, (str, bytes)):
        shape = ()
    else:
        strings = encode_lines(strings, "strings")
    rank = None if shape is None else tf.TensorShape(shape).rank
    if dtype != tf.string or rank not in (None, 1):
        raise ValueError(
            "A `Text` reads a batch of strings, of shape (batch,). Received: "
            f"{strings!r:.80}. For one line pass a list of one, and to turn "
            "ids into text call `text.strings(ids)`."
        )
    return tf.ensure_shape(tf.convert_to_tensor(strings, tf.string), [None])
