"""A bound on the requests that are answered for one caller, and in all.

The event loop that reads requests and sends answers is the one that renews leases. Requests beyond the bound
wait in the order in which they came, each on its connection, which is not read meanwhile: they cost nothing.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.cluster.front.api.errors import problem
from fairlead.cluster.front.compute_turns import caller
from fairlead.cluster.front.web.session import token_of

BURST_S = 1.0  # whoever has asked for nothing for so long may ask for as much at once
MAX_WAITING = 128  # requests of one caller that wait; more are refused
REFUSAL_DELAY_S = 1.0  # so that refusals do not cost what answers may not
CALLERS = 10_000  # remembered
_ADDRESS = "address"
MAX_PARAMETERS = 100  # of one address


@dataclass(frozen=True, slots=True)
class RequestRate:
    """Requests that may be answered."""

    per_s: float  # in the long run
    at_once: int


OF_ONE = RequestRate(200.0, 64)
OF_A_STRANGER = RequestRate(50.0, 64)  # an address without a token; these take no thread
OF_ALL = RequestRate(400.0, 512)


@dataclass(slots=True)
class RequestLine:
    """The requests of one caller."""

    rate: RequestRate
    slots: asyncio.Semaphore = field(init=False)
    waiting: int = 0
    next: float = 0.0  # when the next one may be answered, by the clock

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.rate.at_once)

    def turn(self, now: float) -> float:
        """Return the seconds after which the next request may be answered, and count it."""
        turn = max(self.next, now - BURST_S)
        self.next = turn + 1 / self.rate.per_s
        return max(turn - now, 0.0)


class RequestLimit:
    """Lets requests wait for their turn. Used on one thread (the event loop's)."""

    def __init__(
        self,
        app: ASGIApp,
        user_of: Callable[[str], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """user_of: whose a token is; None = nobody's."""
        self.app = app
        self._user_of = user_of
        self._clock = clock
        self._lines: OrderedDict[str, RequestLine] = OrderedDict()
        self._all = RequestLine(OF_ALL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        whose = self._caller_of(scope)
        line = self._line_of(whose)
        caller.set(whose)
        if line.waiting >= MAX_WAITING:
            await asyncio.sleep(REFUSAL_DELAY_S)
            refusal = problem(
                429, f"{MAX_WAITING} requests of yours wait for an answer", {"Retry-After": "1"}
            )
            await refusal(scope, receive, send)
            return
        line.waiting += 1
        try:
            await line.slots.acquire()
        finally:
            line.waiting -= 1
        try:
            async with self._all.slots:
                await self._pace(line)
                if scope.get("query_string", b"").count(b"&") >= MAX_PARAMETERS:
                    words = f"query: at most {MAX_PARAMETERS} parameters"
                    await problem(400, words)(scope, receive, send)
                else:
                    await self.app(scope, receive, send)
        finally:
            line.slots.release()

    async def _pace(self, line: RequestLine) -> None:
        now = self._clock()
        wait_s = max(line.turn(now), self._all.turn(now))
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def _caller_of(self, scope: Scope) -> str:
        """Return who asks: a user, or an address without a good token."""
        connection = HTTPConnection(scope)
        kind, _, given = connection.headers.get("authorization", "").partition(" ")
        token = given.strip() if kind.lower() == "bearer" else token_of(connection)
        user = self._user_of(token) if token else None
        host = connection.client.host if connection.client else ""
        return f"{_ADDRESS} {host}" if user is None else f"user {user}"

    def _line_of(self, whose: str) -> RequestLine:
        line = self._lines.get(whose)
        if line is None:
            stranger = whose.startswith(_ADDRESS)
            line = self._lines[whose] = RequestLine(OF_A_STRANGER if stranger else OF_ONE)
        self._lines.move_to_end(whose)
        if len(self._lines) > CALLERS:
            self._lines.popitem(last=False)
        return line
