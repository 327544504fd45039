"""`Connections`: limits on the clients of a port, and on their idle time."""

from typing import Any
from typing import NamedTuple

# Time to agree on HTTP/2 and TLS. gRPC's own limit is two minutes, in which
# connections that send nothing could fill the port.
_HANDSHAKE_SECONDS = 10
# Most open calls of a connection. gRPC has no limit by default, and an open
# call took up to 20 kB. Clients hold back further calls until others end, so
# thousands may be pending at a time.
_CALLS = 100
# Most bytes of a call's headers, which hold gRPC's own and, at times, a token.
# gRPC's limit is twice as high.
_HEADER_BYTES = 8192


class Connections(NamedTuple):
    """Limits of the connections of each port.

    TensorFlow Serving has none of them.

    Attributes:
        most: For gRPC, the most connections; further ones are closed at once.
            For REST, the most connections whose clients have not sent a whole
            request or not read their answer; the one that has waited longest is
            closed for a new one.
        idle_seconds: Seconds after which a connection without a call is
            closed.
    """

    # Twice as many fit below the usual limit of 1,024 file descriptors.
    most: int = 400
    # As long as proxies usually keep a connection.
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
