"""`Connections`: limits on the clients of a port, and on their idle time."""

from typing import Any
from typing import NamedTuple

# To agree on HTTP/2, and on TLS. gRPC's own limit is two minutes, in which
# connections that send nothing would fill the port.
_HANDSHAKE_SECONDS = 10
# gRPC has no limit of its own. Clients hold back further calls until others
# end, so thousands may be pending at a time. An open call took up to 20 kB.
_CALLS = 100
# Of the headers of a call; they hold gRPC's own and, at times, a token. gRPC's
# limit is twice as high.
_HEADER_BYTES = 8192


class Connections(NamedTuple):
    """Limits of the connections of each port.

    TensorFlow Serving has none of them.

    Attributes:
        most: By gRPC, most connections; further ones are closed at once. By
            REST, most that wait for their client, which has not sent a whole
            request or not read its answer; the one that waits longest gives
            way to a new one.
        idle_seconds: Seconds after which a connection without a call is
            closed.
    """

    # Twice as many fit below the usual limit of 1,024 file descriptors.
    most: int = 400
    # As long as usual proxies keep a connection.
    idle_seconds: float = 60.0

    def grpc_arguments(self) -> list[tuple[str, Any]]:
        """Returns the limits as arguments of gRPC's server."""
        idle = round(1000 * self.idle_seconds)
        return [
            ("grpc.max_allowed_incoming_connections", self.most),
            ("grpc.server_handshake_timeout_ms", 1000 * _HANDSHAKE_SECONDS),
            ("grpc.max_connection_idle_ms", idle),
            ("grpc.max_concurrent_streams", _CALLS),
            # Otherwise gRPC refuses further calls of a client that obeys the
            # limit, while it cleans up after those that have ended.
            ("grpc.http.overload_protection", 0),
            ("grpc.max_metadata_size", _HEADER_BYTES),
            ("grpc.absolute_max_metadata_size", _HEADER_BYTES),
            # Connections with open calls whose client is gone.
            ("grpc.keepalive_time_ms", idle),
        ]
