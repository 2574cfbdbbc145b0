"""Requests that are no HTTP, or only half of it."""

import contextlib
import socket
import struct
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cluster.served import served

HOST = b"Host: x\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\n" + HOST
GET = b"GET /health HTTP/1.1\r\n" + HOST
BROKEN = (
    b"GET / HTTP/1.1\r\nHos",
    b"garbage\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    POST + b"Content-Length: 100\r\n\r\nabc",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    POST + b"Content-Length: -1\r\n\r\nabc",
    POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    GET + b"\r\nGET /heal",
    GET + b"\r\ngarbage garbage garbage\r\n\r\n",
    GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    GET + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    GET + b"Transfer-Encoding: chunked\r\n\r\nxx\r\nab",
    b"GET /health HTTP/1.1\r\na: " + b"x" * 100_000,
    b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
)


def test_no_traceback_is_logged_of_a_request_that_is_broken(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with served(tmp_path / "state") as cluster:
        where = urlsplit(cluster.url)
        for sent in BROKEN:
            for resets in (False, True):
                with (
                    socket.create_connection((where.hostname, where.port)) as broken,
                    contextlib.suppress(OSError),
                ):
                    broken.sendall(sent)
                    if resets:
                        hard = struct.pack("ii", 1, 0)
                        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hard)
                    else:
                        broken.shutdown(socket.SHUT_WR)
                        while broken.recv(1 << 16):
                            pass
        with cluster.client() as client:
            assert client.status().round == -1
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert "Error" not in said
