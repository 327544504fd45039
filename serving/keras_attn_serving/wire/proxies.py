"""`proxy_for`: finds the proxy for a server in the environment.

gRPC and Python's `http.client` read different variables. The clients use this
module instead, so all of them choose the same proxy:

- `http_proxy` applies to plain connections and `https_proxy` to those with TLS,
  in lower or upper case;
- hosts that `no_proxy` lists, and this machine, are reached directly.
"""

import contextlib
import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies_environment


class Proxy(NamedTuple):
    """An HTTP proxy.

    Attributes:
        host: Its host.
        port: Its port.
        user: `name:password`, with escapes, or "".
    """

    host: str
    port: int
    user: str = ""

    @property
    def url(self) -> str:
        """Its address, as gRPC takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"http://{user}{host}:{self.port}"


def proxy_for(scheme: str, host: str, port: int | None) -> Proxy | None:
    """Returns the proxy for a server; `None` for a direct connection.

    Args:
        scheme: `"http"`, or `"https"` with TLS.
        host: The server's host.
        port: Its port.

    Raises:
        ValueError: If the variable is not the address of an HTTP proxy.
    """
    found = getproxies_environment()
    address = found.get(scheme)
    if not address or _is_here(host):
        return None
    if _is_listed(host.lower(), port, found.get("no", "")):
        return None
    whole = address if "://" in address else f"http://{address}"
    with contextlib.suppress(ValueError):
        parts = urlsplit(whole)
        if parts.scheme == "http" and parts.hostname:
            user = parts.netloc.rpartition("@")[0]
            return Proxy(parts.hostname, parts.port or 80, user)
    raise ValueError(
        f"The environment variable {scheme}_proxy must be the address of an "
        'HTTP proxy, such as "http://proxy.example:3128". Received: '
        f"{_without_password(address)!r}"
    )


def _is_here(host):
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _is_listed(host, port, listed):
    """Returns whether `no_proxy` lists a host, its domain or its network."""
    for each in filter(None, (x.strip() for x in listed.split(","))):
        name = each.removeprefix("*").removeprefix(".").lower()
        if each == "*" or name in (host, f"{host}:{port}"):
            return True
        if f"{host}:{port}".endswith(f".{name}") or host.endswith(f".{name}"):
            return True
        with contextlib.suppress(ValueError):  # a name is no network
            network = ipaddress.ip_network(each, strict=False)
            if ipaddress.ip_address(host) in network:
                return True
    return False


def _without_password(address):
    return f"***@{address.rpartition('@')[2]}" if "@" in address else address
