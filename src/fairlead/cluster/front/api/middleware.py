"""Middleware of every request: headers that tell browsers to trust an answer with nothing; a clock."""

from time import perf_counter

from prometheus_client import Histogram
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
HSTS = "Strict-Transport-Security", "max-age=31536000"


class SecurityHeaders:
    """Adds ``SECURITY`` to every answer that does not say otherwise itself (pages need scripts), and over
    TLS that browsers shall come without it no more."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
                if scope.get("scheme") == "https":
                    headers.setdefault(*HSTS)
            await send(message)

        await self.app(scope, receive, send_with_headers)


class RequestTimer:
    """Observes how long each answer took, by status code."""

    def __init__(self, app: ASGIApp, seconds: Histogram) -> None:
        self.app = app
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()

        async def send_and_look(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.seconds.labels(str(message["status"])).observe(perf_counter() - began)
            await send(message)

        await self.app(scope, receive, send_and_look)
