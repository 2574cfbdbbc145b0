"""What a client says of servers that are none."""

import pytest

from fairlead.cluster.http_client import Client
from fairlead.errors import InputError


@pytest.mark.parametrize(
    "url", ["http://a:99999", "http://a:0", "http://a:b", "http://[::1", "ftp://a", "a"]
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with Client(url) as client, pytest.raises(InputError) as refused:
        client.status()
    assert str(refused.value) == f"server {url!r}: is no address of the form http://127.0.0.1:8470"
