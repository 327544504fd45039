"""Opens the ports of a server, on every address of a host."""

import socket


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen on a port, by both IPv4 and IPv6.

    Args:
        host: Name or address of the interface.
        port: Number of the port; 0 for any free one, the same for all.

    Raises:
        OSError: If the port is taken on one of the addresses.
    """
    sockets: list[socket.socket] = []
    try:
        for family, kind, proto, _, address in socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        ):
            each = socket.socket(family, kind, proto)
            sockets.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if len(sockets) > 1:  # the port that the first has got
                found = sockets[0].getsockname()[1]
                address = address[0], found, *address[2:]
            try:
                each.bind(address)
                each.listen()
            except OSError:
                # Of several addresses, one may not exist here.
                if len(sockets) == 1 or port:
                    raise
                sockets.pop().close()
    except OSError as error:
        for each in sockets:
            each.close()
        raise taken(f"{host}:{port}") from error
    return sockets


def taken(address: str) -> OSError:
    """Returns the error for a port on which another server listens."""
    return OSError(
        "The server needs a free port and cannot listen on another. "
        f"Received: {address}. Is another server running there? Choose "
        "another port, or 0 for any free one."
    )
