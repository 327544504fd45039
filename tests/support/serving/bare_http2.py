"""A client of HTTP/2 that sends what it is told and reads what it likes."""

import contextlib
import gzip
import socket
import struct
import time

DATA, HEADERS, RESET, SETTINGS, PING, WINDOW = 0, 1, 3, 4, 6, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_TABLE_SIZE, _INITIAL_WINDOW = 1, 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MOST = 16_384  # bytes of a frame


class BareHttp2:
    """A connection to a port for gRPC.

    Args:
        port: The port, of this machine.
        window: Bytes that the server may send on a stream: with 0 it can
            send no answer.
    """

    def __init__(self, port: int, window: int = 65_535):
        self.socket = socket.create_connection(("localhost", port), timeout=30)
        self._next, self._rest = 1, b""
        self._repeated = False
        # Bytes that it may send, of streams beside the first of all.
        self._initial, self._windows = 65_535, {0: 65_535}
        settings = struct.pack(">HIHI", _TABLE_SIZE, 0, _INITIAL_WINDOW, window)
        self.socket.sendall(_PREFACE + _frame(SETTINGS, 0, 0, settings))

    def open(self, path: str, *headers, repeated=None) -> int:
        """Begins a call; returns the number of its stream.

        Args:
            path: The method.
            headers: Names and values.
            repeated: One that all calls have: one byte, after the first.
        """
        number, self._next = self._next, self._next + 2
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *headers,
        ]
        block = b"".join(_field(0, *each) for each in fields)
        if repeated is not None:
            # The newest of those that the server remembers is number 62.
            again = bytes([0x80 | 62])
            block += again if self._repeated else _field(0x40, *repeated)
            self._repeated = True
        self.socket.sendall(_frame(HEADERS, _END_HEADERS, number, block))
        return number

    def send(
        self,
        stream: int,
        raw: bytes,
        last: bool = False,
        seconds: float = 30.0,
    ) -> None:
        """Sends bytes of a stream, as its window allows, for so many seconds.

        Raises:
            StopIteration: The window stayed too small, or the server closed.
        """
        parts = [raw[i : i + _MOST] for i in range(0, len(raw), _MOST)]
        frames = self.frames(seconds)
        for number, part in enumerate(parts):
            while min(self._window(0), self._window(stream)) < len(part):
                next(frames)
            for each in (0, stream):
                self._windows[each] = self._window(each) - len(part)
            ends = last and number == len(parts) - 1
            self.socket.sendall(_frame(DATA, int(ends), stream, part))

    def ask(self, path: str, message: bytes) -> int:
        """Makes a call, zipped; returns the number of its stream."""
        stream = self.open(path, ("grpc-encoding", "gzip"))
        body = gzip.compress(message)
        self.send(stream, struct.pack(">BI", 1, len(body)) + body, True)
        return stream

    def begin(
        self, path: str, length: int, part: bytes, seconds: float = 30.0
    ) -> int:
        """Makes a call and sends a part of a message; returns its stream."""
        stream = self.open(path)
        self.send(stream, struct.pack(">BI", 0, length) + part, False, seconds)
        return stream

    def frames(self, seconds: float = 30.0):
        """Yields kinds, flags, streams and contents, until the end.

        It answers settings and pings. It ends when the server closes the
        connection, or after so many seconds.
        """
        end = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError, ConnectionError):
            while True:
                head = self._take(9, end)
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                content = self._take(int.from_bytes(head[:3]), end)
                self._heed(kind, flags, stream, content)
                yield kind, flags, stream, content

    def ended(self, stream: int, seconds: float = 30.0) -> bool:
        """Returns whether the server ends a stream in time."""
        return any(
            number == stream and (kind == RESET or flags & _END_STREAM)
            for kind, flags, number, _ in self.frames(seconds)
            if kind in (DATA, HEADERS, RESET)
        )

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "BareHttp2":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def _window(self, stream):
        return self._windows.get(stream, self._initial)

    def _heed(self, kind, flags, stream, content):
        if kind == WINDOW:
            more = int.from_bytes(content)
            self._windows[stream] = self._window(stream) + more
        elif kind == SETTINGS and not flags & _ACK:
            for name, value in struct.iter_unpack(">HI", content):
                if name == _INITIAL_WINDOW:
                    self._initial = value
            self.socket.sendall(_frame(SETTINGS, _ACK, 0, b""))
        elif kind == PING and not flags & _ACK:
            self.socket.sendall(_frame(PING, _ACK, 0, content))

    def _take(self, size, end):
        while len(self._rest) < size:
            self.socket.settimeout(max(1e-3, end - time.monotonic()))
            got = self.socket.recv(65_536)
            if not got:
                raise ConnectionError("The server has closed the connection.")
            self._rest += got
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def _frame(kind, flags, stream, content):
    head = struct.pack(">BBI", kind, flags, stream)
    return len(content).to_bytes(3) + head + content


def _field(kind, name, value):
    return bytes([kind]) + _string(name) + _string(value)


def _string(text):
    raw = text.encode()
    if len(raw) < 127:
        return bytes([len(raw)]) + raw
    size, result = len(raw) - 127, bytearray([127])
    while size >= 128:
        result.append(size % 128 | 128)
        size //= 128
    return bytes([*result, size]) + raw
