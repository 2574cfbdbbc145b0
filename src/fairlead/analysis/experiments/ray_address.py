"""A check of whether a Ray cluster may be at an address: a gRPC server answers there."""

import os
import socket

from fairlead.errors import ConfigError

REPLY_TIMEOUT_S = 15.0  # in which a cluster must accept a connection, and then say that it is one

# How an HTTP/2 client begins (RFC 9113, section 3.4): the preface, and a SETTINGS frame without settings. The
# server answers with a SETTINGS frame of its own.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_HEADER_BYTES = 9
_FRAME_TYPE = 3  # position of its type in a frame's header
_SETTINGS = 4


def check_ray_address(address: str) -> None:
    """Raise ConfigError unless a gRPC server listens at HOST:PORT, as that of Ray does: Ray itself would try
    for minutes, or for ever. Other addresses ("auto", "local", none) are left to Ray."""
    endpoint = address.rpartition("://")[2].partition("/")[0]
    host, colon, port = endpoint.rpartition(":")
    if not (colon and port.isdecimal()):
        return
    try:
        connection = socket.create_connection(
            (host.strip("[]"), int(port)), timeout=REPLY_TIMEOUT_S
        )
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise ConfigError(f"--ray-address {address}: no Ray cluster answers ({reason})") from None
    with connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return  # with certificates that only Ray knows of
        if not _speaks_http2(connection):
            raise ConfigError(f"--ray-address {address}: who listens there is not a Ray cluster")


def _speaks_http2(connection: socket.socket) -> bool:
    """Return whether the other side answers a greeting in HTTP/2, on which gRPC stands."""
    header = b""
    try:
        connection.sendall(_HTTP2_PREFACE)
        while len(header) < _FRAME_HEADER_BYTES:
            received = connection.recv(_FRAME_HEADER_BYTES - len(header))
            if not received:
                return False
            header += received
    except OSError:  # a timeout, or the other side has hung up
        return False
    return header[_FRAME_TYPE] == _SETTINGS
