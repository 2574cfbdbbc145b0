"""What a client says of servers that are none, and of arguments that nobody can use."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.cluster.http_client import Client
from fairlead.errors import InputError


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
