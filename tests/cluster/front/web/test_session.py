"""Which forms count as sent from our own page."""

import pytest
from starlette.requests import Request

from fairlead.cluster.front.web.session import same_origin


@pytest.mark.parametrize(
    ("scheme", "headers", "is_ours"),
    [
        ("https", {"origin": "https://a:1"}, True),
        ("https", {"origin": "http://a:1"}, False),
        ("https", {"origin": "https://a:2"}, False),
        ("http", {"origin": "http://a:1"}, True),
        ("http", {"origin": "https://a:1"}, True),  # a proxy has the certificate
        ("https", {"origin": "null"}, False),
        ("https", {"sec-fetch-site": "same-origin"}, True),
        ("https", {}, False),
    ],
)
def test_a_form_comes_from_a_page_of_this_server(
    scheme: str, headers: dict[str, str], is_ours: bool
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in {"host": "a:1", **headers}.items()]
    scope = {
        "type": "http", "method": "POST", "scheme": scheme, "path": "/", "headers": raw,
        "query_string": b"", "server": ("a", 1),
    }  # fmt: skip
    assert same_origin(Request(scope)) == is_ours
