"""Requests whose length can be understood in two ways are refused: a proxy in front of the server may see
another end of them, and pass on as a request what is part of a body (RFC 9112, section 6.1)."""

from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.cluster.front.api.errors import problem


class UnclearFraming:
    """Refuses requests with both Content-Length and Transfer-Encoding, and ends their connections."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if not names.issuperset((b"content-length", b"transfer-encoding")):
            await self.app(scope, receive, send)
            return
        sentence = "Content-Length and Transfer-Encoding are both given; at most one can be"
        await problem(400, sentence, {"Connection": "close"})(scope, receive, send)
