"""The beginning of a value as JSON, for messages that quote it."""

import json
from typing import Any


def preview(value: Any, most: int) -> str:
    """Returns the first characters of a value's JSON.

    The rest is never encoded, because it may take a hundred times the memory of
    the preview. Only a string is encoded whole.

    Args:
        value: A value that `json` can write.
        most: Most characters to return.
    """
    parts, length = [], 0
    # The check for circular references would itself keep the value in a
    # reference cycle.
    encoder = json.JSONEncoder(check_circular=False)
    try:
        for part in encoder.iterencode(value):
            parts.append(part)
            length += len(part)
            if length >= most:
                break
    except RecursionError:  # lists hundreds deep
        pass
    return "".join(parts)[:most]
