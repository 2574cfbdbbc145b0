"""A form whose sender hangs up is no mistake of the server: its log has nothing of it."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.types import Message, Scope

from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.http_app import create_app
from fairlead.cluster.front.metrics import FrontCounters
from fairlead.cluster.front.web.routes import CHANGES, add_pages
from fairlead.cluster.protocol.access import Caller

ANN = Caller(user="ann", tenant="apes", role="user")
FORMS = ["/login", "/submit", "/what-if", *(path.replace("{job}", "1") for path in CHANGES)]


@pytest.mark.parametrize("path", [path.replace("{search}", "1") for path in FORMS])
def test_a_form_that_is_broken_off_is_refused_quietly(path: str) -> None:
    facade = SimpleNamespace(authenticate=lambda _: ANN, failed_nodes=lambda _: [])
    app = create_app(cast(Facade, facade), FrontCounters())
    add_pages(app, cast(Facade, facade))
    coming: list[Message] = [
        {"type": "http.request", "body": b"token=half", "more_body": True},
        {"type": "http.disconnect"},
    ]
    answers: list[Message] = []

    async def receive() -> Message:
        return coming.pop(0)

    async def send(message: Message) -> None:
        answers.append(message)

    headers = [(b"host", b"a"), (b"origin", b"http://a"), (b"cookie", b"fairlead-http=x")]
    scope: Scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": headers, "client": ("1.2.3.4", 5),
        "server": ("a", 80), "root_path": "",
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    assert answers[0]["status"] == 400
