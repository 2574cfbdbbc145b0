"""What a client says of servers that are none, and of arguments that nobody can use."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.tls import certificate

from fairlead.cluster.http_client import Client
from fairlead.errors import InputError, UnreachableError


@contextmanager
def listening(tls: ssl.SSLContext | None) -> Iterator[int]:
    """A port that takes connections, with a TLS handshake or without, and closes them unanswered."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken, _ = server.accept()
                    with taken, contextlib.suppress(OSError):
                        if tls is None:
                            taken.recv(1 << 16)
                        else:
                            tls.wrap_socket(taken, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_certificate_that_is_not_trusted_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    made, other = certificate(tmp_path), certificate(tmp_path / "other")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    with listening(tls) as port:
        for ca, hint in (
            (
                None,
                "; name its certificate with --ca FILE, or once and for all with `fairlead login`",
            ),
            (
                str(other.certificate),
                "; --ca has to be the certificate of that server, for this host name",
            ),
        ):
            with (
                Client(f"https://localhost:{port}", ca=ca) as client,
                pytest.raises(UnreachableError) as refused,
            ):
                client.status()
            assert str(refused.value).endswith(hint)


def test_a_port_that_speaks_another_protocol_is_guessed() -> None:
    with listening(None) as port:
        with (
            Client(f"http://127.0.0.1:{port}") as client,
            pytest.raises(UnreachableError) as refused,
        ):
            client.status()
        assert str(refused.value).endswith("If it speaks TLS, its address begins with https://")


@pytest.mark.parametrize(
    "url",
    [
        "http://a:99999",
        "http://a:0",
        "http://a:b",
        "http://[::1",
        "ftp://a",
        "a",
        "http://a b",
        "http://a\tb",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with Client(url) as client, pytest.raises(InputError) as refused:
        client.status()
    assert str(refused.value) == f"server {url!r}: is no address of the form http://127.0.0.1:8470"


@pytest.mark.parametrize(
    "url", ["https://ann:secret@a", "ftp://ann:secret@a", "http://ann:secret@[::1"]
)
def test_a_password_in_an_address_is_refused_and_not_printed(url: str) -> None:
    with (
        Client(url) as client,
        pytest.raises(InputError, match="has a user or a password in it") as refused,
    ):
        client.status()
    assert "secret" not in str(refused.value)


def test_an_address_that_is_too_long_is_refused_in_a_short_sentence() -> None:
    with Client("http://" + "1" * 70_000) as client, pytest.raises(InputError) as refused:
        client.status()
    assert "is no address of the form" in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda client: client.explain("1"), "job: expected a whole number, got '1'"),
        (lambda client: client.cancel([14]), "job: expected a whole number, got [14]"),
        (lambda client: client.cancel_array(1.5), "array: expected a whole number, got 1.5"),
        (lambda client: client.stop_search(None), "search: expected a whole number, got None"),
        (lambda client: client.drain(3), "expected a name, got 3"),
        (lambda client: client.set_weight(1, "2"), "weight: must be a finite number, got '2'"),
        (lambda client: client.submit(["true"]), "specs[0]: expected a JobSpec, got 'true'"),
        (lambda client: client.set_policy(object), "PUT /v1/policy: cannot be sent as JSON"),
        (lambda client: client.set_policy("\ud800"), "PUT /v1/policy: cannot be sent as JSON"),
        (
            lambda client: client.jobs(tenant="x" * 70_000),
            "GET /v1/jobs: an argument cannot be in an",
        ),
        (lambda client: client.drain("x" * 70_000), "POST /v1/nodes/xxx"),
        (lambda client: client.remove_user("x" * 70_000), "DELETE /v1/users/xxx"),
        (lambda client: client.jobs(tenant="x\udcff"), "'x\\udcff' is not valid Unicode"),
    ],
)
def test_an_argument_that_cannot_be_is_an_input_error(ask: Callable[[Any], Any], said: str) -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(InputError) as refused:
        ask(client)
    assert str(refused.value).startswith(said)
