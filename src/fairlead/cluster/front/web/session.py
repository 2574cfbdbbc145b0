"""Access to the pages: the cookie, the origin of requests that change something, and guesses at tokens."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

MAX_FAILURES = 10  # of one address, within WINDOW_S; then it has to wait
WINDOW_S = 60.0
ADDRESSES = 10_000  # remembered


def cookie_name(request: HTTPConnection) -> str:
    """Cookies are shared by all ports of a host; so that two clusters on one do not log each other out."""
    return f"fairlead-{request.url.port or request.url.scheme}"


def token_of(request: HTTPConnection) -> str:
    """The token that the browser holds; "" = none."""
    return request.cookies.get(cookie_name(request), "")


def log_in(request: Request, response: Response, token: str) -> None:
    """Give the token to the browser; no script can read it, no other site make it send it."""
    response.set_cookie(
        cookie_name(request),
        token,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


def log_out(request: Request, response: Response) -> None:
    """End the session."""
    response.delete_cookie(cookie_name(request), path="/", httponly=True, samesite="strict")


def same_origin(request: Request) -> bool:
    """Return whether a form comes from our own page. Browsers say so; what does not say so is refused."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site") == "same-origin"
    parts = urlsplit(origin)
    # With a page of the same host without TLS anybody on the way can have meddled. The other way round there
    # may be a proxy.
    if request.url.scheme == "https" and parts.scheme != "https":
        return False
    return parts.netloc == request.headers.get("host")


class Throttle:
    """Failed guesses by address. Used on one thread (the event loop's)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return how long this address has to wait before the next guess; 0 = not at all."""
        times = self._failures.get(address, deque())
        if len(times) < MAX_FAILURES:
            return 0.0
        return max(times[0] + WINDOW_S - self._clock(), 0.0)

    def failed(self, address: str) -> None:
        """Count a login that failed."""
        self._failures.setdefault(address, deque(maxlen=MAX_FAILURES)).append(self._clock())
        self._failures.move_to_end(address)
        if len(self._failures) > ADDRESSES:
            self._failures.popitem(last=False)
