"""Requests of one caller wait for each other, and for nobody else's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.cluster.front import request_limit
from fairlead.cluster.front.compute_turns import caller
from fairlead.cluster.front.request_limit import (
    MAX_PARAMETERS,
    MAX_WAITING,
    OF_A_STRANGER,
    OF_ONE,
    RequestLimit,
    RequestLine,
    RequestRate,
)

USERS = {"e": "eve", "a": "ann"}


class Asked:
    """Requests that are being answered, until they are let go."""

    def __init__(self) -> None:
        self.users: list[str] = []
        self.callers: list[str] = []  # for whom answers are computed
        self.go = asyncio.Event()
        self.limit = RequestLimit(self._answer, USERS.get, lambda: 1_000.0)
        self.statuses: list[int] = []

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.users.append(scope["name"])
        self.callers.append(caller.get())
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(
        self, token: str, host: str = "h", query: bytes = b"", cookie: bool = False
    ) -> None:
        header = (b"authorization", f"Bearer {token}".encode())
        if cookie:
            header = (b"cookie", f"fairlead-80={token}".encode())
        scope = {
            "type": "http", "name": USERS.get(token, host), "headers": [header, (b"host", b"x:80")],
            "client": (host, 1), "query_string": query, "path": "/", "scheme": "http",
            "server": ("x", 80),
        }  # fmt: skip

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])

        async def receive() -> Any:
            raise AssertionError

        await self.limit(scope, receive, send)


def run(scenario: Callable[[Asked], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await scenario(Asked())

    asyncio.run(main())


async def settle() -> None:
    """Let everything come as far as it can without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("cookie", [False, True])
def test_one_caller_has_so_many_answered_at_once_and_keeps_nobody_waiting(cookie: bool) -> None:
    async def scenario(asked: Asked) -> None:
        many = [asyncio.create_task(asked.ask("e", f"h{i}", cookie=cookie)) for i in range(100)]
        await settle()
        assert asked.users == ["eve"] * OF_ONE.at_once
        ann = asyncio.create_task(asked.ask("a"))
        await settle()
        assert asked.users[-1] == "ann"
        asked.go.set()
        await asyncio.gather(*many, ann)
        assert asked.statuses == [200] * 101

    run(scenario)


def test_answers_are_computed_in_the_name_of_who_asks() -> None:
    async def scenario(asked: Asked) -> None:
        asked.go.set()
        await asyncio.gather(asked.ask("e", "h"), asked.ask("a", "h"), asked.ask("x", "h"))
        assert asked.callers == ["user eve", "user ann", "address h"]

    run(scenario)


def test_an_invented_token_makes_nobody_another_caller() -> None:
    async def scenario(asked: Asked) -> None:
        many = [asyncio.create_task(asked.ask(f"invented {i}")) for i in range(100)]
        await settle()
        assert len(asked.users) == int(OF_A_STRANGER.per_s) + 1
        for task in many:
            task.cancel()

    run(scenario)


def test_beyond_a_line_of_so_many_requests_are_refused_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limit, "REFUSAL_DELAY_S", 0.0)

    async def scenario(asked: Asked) -> None:
        n = OF_ONE.at_once + MAX_WAITING
        many = [asyncio.create_task(asked.ask("e")) for _ in range(n)]
        await settle()
        await asked.ask("e")
        assert asked.statuses == [429]
        asked.go.set()
        await asyncio.gather(*many)
        assert asked.statuses == [429] + [200] * n

    run(scenario)


def test_in_the_long_run_so_many_are_answered_a_second() -> None:
    line = RequestLine(RequestRate(10.0, 1))
    now = 50.0
    waited = [line.turn(now) for _ in range(30)]
    assert waited == [pytest.approx(max(n - 10, 0) / 10.0) for n in range(30)]
    assert line.turn(now + 60.0) == 0.0


def test_an_address_with_very_many_parameters_is_refused_without_reading_them() -> None:
    async def scenario(asked: Asked) -> None:
        asked.go.set()
        await asked.ask("e", query=b"a&" * MAX_PARAMETERS)
        await asked.ask("e", query=b"a&" * (MAX_PARAMETERS - 1))
        assert asked.statuses == [400, 200]

    run(scenario)
