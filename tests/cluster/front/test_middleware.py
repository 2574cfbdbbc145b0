"""Headers that every answer has."""

import asyncio
from typing import Any

import pytest

from fairlead.cluster.front.api.middleware import SecurityHeaders


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_browsers_are_told_to_stay_with_tls_where_there_is_tls(scheme: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "scheme": scheme}
    asyncio.run(SecurityHeaders(app)(scope, None, send))  # type: ignore[arg-type]
    names = {name for name, _ in sent[0]["headers"]}
    assert b"x-content-type-options" in names
    assert (b"strict-transport-security" in names) == (scheme == "https")
