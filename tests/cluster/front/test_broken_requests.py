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


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n" + 10_000 * b"1\r\n[\r\n",
            "Transfer-Encoding: a body is taken with its Content-Length only",
        ),
        (POST + 500 * b"a:\r\n", "the request: has more than 200 header lines"),
        (GET + b"\r\n" + POST + 500 * b"a:\r\n", "the request: has more than 200 header lines"),
    ],
)
def test_what_takes_long_to_parse_is_refused_in_words(
    tmp_path: Path, sent: bytes, sentence: str
) -> None:
    """Chunks of a byte, and heads of thousands of lines, kept the event loop of all others."""
    with served(tmp_path / "state") as cluster:
        where = urlsplit(cluster.url)
        with socket.create_connection((where.hostname, where.port)) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(sent)
            answer = b""
            with contextlib.suppress(OSError):  # what is not read any more resets the connection
                while data := connection.recv(1 << 16):
                    answer += data
        assert answer.count(b"HTTP/1.1 400") == 1
        assert sentence.encode() in answer


def test_a_body_of_many_lines_is_no_head(tmp_path: Path) -> None:
    with served(tmp_path / "state") as cluster:
        where = urlsplit(cluster.url)
        with socket.create_connection((where.hostname, where.port)) as connection:
            body = b"\n" * 5_000
            connection.sendall(POST + b"Content-Length: 5000\r\nConnection: close\r\n\r\n" + body)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 401")
