"""The beginning of a value as JSON, for messages that quote what came."""

import json
from typing import Any


def preview(value: Any, most: int) -> str:
    """Returns the first characters of a value's JSON.

    The rest is never written: it may have a hundred times the memory of what
    is shown. Only a text is written whole.

    Args:
        value: What `json` reads.
        most: Most characters to return.
    """
    parts, length = [], 0
    # With its search for circles it would hold the value in one of its own.
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
