"""`parse`: parses messages, after an estimate of their memory.

A field of two bytes may become an object of hundreds of bytes, and gzip
compresses 16 MiB of such fields to 16 kB.
"""

from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument

# Messages up to this size are parsed without an estimate. They take up to 6 MB.
SHORT = 64 * 1024  # bytes
# Bytes of each field besides its contents, for its place in a growing list.
# Measured with fields of two bytes: 27 bytes for a string, 43 for a size of a
# shape, 96 for a resource, 170 for an input, 280 for a tensor in a variant.
_FIELD = 64
_MEMBER = 16  # bytes for each member that a message may have
# Bytes of a parsed number, of those that are sent with a variable length.
_WIDTHS = {
    FieldDescriptor.TYPE_ENUM: 4,
    FieldDescriptor.TYPE_INT32: 4,
    FieldDescriptor.TYPE_UINT32: 4,
    FieldDescriptor.TYPE_INT64: 8,
    FieldDescriptor.TYPE_UINT64: 8,
}
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_ENDS, _FIXED32 = range(6)


def parse(kind: Any, raw: bytes, message_bytes: int) -> Any:
    """Returns a message.

    Args:
        kind: Its class.
        raw: The bytes.
        message_bytes: Half of the most bytes that it may take.

    Raises:
        StatusError: If it takes more, or is not such a message.
    """
    most = 2 * message_bytes
    if len(raw) > SHORT and weight(raw, kind.DESCRIPTOR, most) > most:
        raise invalid_argument(
            f"A request may take at most {most} bytes of memory, where each "
            f"string counts as its length plus {_FIELD}. Received: a "
            f"{kind.__name__} of {len(raw)} bytes, which takes more. Send "
            "several smaller ones, or start the server with a larger "
            "--max_message_bytes."
        )
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise StatusError(
            Code.INTERNAL, f"The request is no {kind.__name__}: {error}"
        ) from error


def weight(raw: bytes, descriptor: Descriptor, most: int) -> int:
    """Returns about how many bytes a message takes once it is parsed.

    It walks through the fields in the parser's order, and stops where the
    parser would, at bytes that are not a message. Long fields take no longer
    than short ones.

    Args:
        raw: The bytes.
        descriptor: The descriptor of the message.
        most: If the count exceeds this number, it stops and returns the count.
    """
    kinds, at, end = _kinds(descriptor), 0, len(raw)
    outer: list[tuple] = []  # kinds and ends of the messages around this one
    groups = 0  # unknown ones, which are kept as bytes
    total = 0
    try:
        while total <= most:
            if at == end:
                if groups or not outer:
                    break
                kinds, end = outer.pop()
                continue
            tag, at = _varint(raw, at)
            total += _FIELD
            form = tag & 7
            if form == _BYTES:
                size, at = _varint(raw, at)
                if at + size > end:
                    break
                inner, width = kinds.get(tag >> 3, _OPAQUE)
                if groups or not width:
                    total += size
                elif inner is None:
                    part = np.frombuffer(raw, np.uint8, size, at)
                    total += width * int(np.count_nonzero(part < 128))
                else:
                    total += width
                    outer.append((kinds, end))
                    kinds, end = inner, at + size
                    continue
                at += size
            elif form == _VARINT:
                _, at = _varint(raw, at)
            elif form in (_FIXED64, _FIXED32):
                at += 8 if form == _FIXED64 else 4
            elif form == _GROUP:
                groups += 1
            elif form == _GROUP_ENDS and groups:
                groups -= 1
            else:
                break
            if at > end:
                break
    except IndexError:  # it ends within a number
        pass
    return total


_OPAQUE = None, 0
_known: dict[str, dict[int, tuple]] = {}


def _kinds(descriptor):
    """Returns, by number, the fields that take more than their bytes.

    Each entry has the kinds of the field's message, or `None` for numbers, and
    a width: the bytes of the message itself, or of one number.
    """
    if descriptor.full_name in _known:
        return _known[descriptor.full_name]
    found = _known[descriptor.full_name] = {}  # it may contain itself
    for field in descriptor.fields:
        inner = field.message_type
        if inner is not None:
            width = _MEMBER * (4 + len(inner.fields))
            found[field.number] = _kinds(inner), width
        elif field.type in _WIDTHS:
            found[field.number] = None, _WIDTHS[field.type]
    return found


def _varint(raw, at):
    """Returns a number, and where the next one begins."""
    byte = raw[at]
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    while True:
        at += 1
        byte = raw[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise IndexError
