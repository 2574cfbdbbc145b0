"""The address on its own node at which a job without the iterator reports its progress over HTTP."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

PORT = "{port}"  # becomes a free port of the node, which the job is told
_MAX_URL = 2_000  # characters


@dataclass(frozen=True)
class ProgressAddress:
    """Taken apart."""

    host: str  # an IP address of the loopback
    port: int
    target: str  # path and query


def parse_progress_url(url: str, port: int = 1) -> ProgressAddress:
    """port: takes the place of ``{port}``. Raises ValueError, with what is wrong, unless the URL is HTTP to
    the loopback: nothing but the job's own node is ever asked."""
    if len(url) > _MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"must be at most {_MAX_URL:,} printable ASCII characters without spaces")
    try:
        parts = urlsplit(url.replace(PORT, str(port)))
        number = 80 if parts.port is None else parts.port
    except ValueError as problem:
        raise ValueError(f"is no URL: {problem}") from None
    if parts.scheme != "http" or parts.username is not None or parts.password is not None:
        raise ValueError("must be http://HOST:PORT/PATH without a user")
    host = _loopback(parts.hostname or "")
    if not host or number == 0:
        raise ValueError(
            "must be on 127.0.0.1, [::1] or localhost: the job answers on its own node"
        )
    return ProgressAddress(
        host, number, (parts.path or "/") + (f"?{parts.query}" * bool(parts.query))
    )


def _loopback(host: str) -> str:
    """The address of a host of the loopback, "" = it is none."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return host if ipaddress.ip_address(host).is_loopback else ""
    except ValueError:
        return ""
