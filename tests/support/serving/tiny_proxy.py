"""An HTTP proxy for the tests: every name leads to this machine."""

import contextlib
import socket
import socketserver
import threading
from urllib.parse import urlsplit


class Proxy(socketserver.ThreadingTCPServer):
    """Notes what it is asked, while a `with` block runs.

    Attributes:
        asked: Pairs of a method and the server that it asked for.
        users: The `Proxy-Authorization` of each request, or `None`.
        url: Its address.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("localhost", 0), _Handler)
        self.asked, self.users = [], []
        self.url = f"http://localhost:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()


class _Handler(socketserver.StreamRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            self._handle()

    def _handle(self):
        method, target, version = self.rfile.readline().decode().split()
        lines = list(iter(self.rfile.readline, b"\r\n"))
        headers = dict(x.decode().lower().strip().split(": ", 1) for x in lines)
        place = target if method == "CONNECT" else urlsplit(target).netloc
        self.server.asked.append((method, place))
        self.server.users.append(headers.get("proxy-authorization"))
        port = int(place.rpartition(":")[2])
        with socket.create_connection(("localhost", port)) as server:
            if method == "CONNECT":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                path = urlsplit(target).path
                first = f"{method} {path} {version}\r\n".encode()
                # One request a connection, as the next may be for another.
                close = b"Connection: close\r\n\r\n"
                server.sendall(first + b"".join(lines) + close)
            back = threading.Thread(
                target=_copy, args=(server, self.connection), daemon=True
            )
            back.start()
            rest = self.rfile.peek() if _waits(self.rfile) else b""
            if rest:
                server.sendall(self.rfile.read(len(rest)))
            _copy(self.connection, server)
            back.join()


def _waits(file):
    """Returns whether bytes were read ahead."""
    raw = file.raw._sock
    raw.setblocking(False)
    try:
        return bool(file.peek())
    finally:
        raw.setblocking(True)


def _copy(source, target):
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
