"""Half-sent bodies take no more than so much memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from fairlead.cluster.front import body_limit
from fairlead.cluster.front.body_limit import FREE, BodyLimit
from fairlead.cluster.front.facade import TooManyError
from fairlead.errors import InputError

MIB = 1 << 20
TOO_LARGE = InputError("too large")


class _Sender:
    """A request whose body comes as far as it is told."""

    def __init__(self, limit: BodyLimit, user: str, size: int) -> None:
        self._end = asyncio.Event()
        self.sent = asyncio.Event()  # all but the end
        self._task = asyncio.ensure_future(limit.receive(self._chunks(size), user, MIB, TOO_LARGE))

    async def _chunks(self, size: int) -> AsyncIterator[bytes]:
        for at in range(0, size, FREE):
            yield b"x" * min(FREE, size - at)
        self.sent.set()
        await self._end.wait()

    async def arrived(self) -> None:
        """Wait until the server has all but the end. Raises what the server refuses it for."""
        waiting = asyncio.ensure_future(self.sent.wait())
        await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()

    async def end(self) -> bytes:
        self._end.set()
        return await self._task

    async def hang_up(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


def test_one_user_holds_no_more_than_a_few_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "OF_ONE_USER", 2 * MIB)

    async def scenario() -> None:
        limit = BodyLimit()
        halves = [_Sender(limit, "eve", MIB) for _ in range(2)]
        for one in halves:
            await one.arrived()
        with pytest.raises(
            TooManyError, match="other requests of yours, of 2,097,152 bytes in all"
        ):
            await _Sender(limit, "eve", MIB).arrived()
        small = _Sender(limit, "eve", FREE)
        await small.arrived()
        assert len(await small.end()) == FREE, "a small one always gets through"
        ann = _Sender(limit, "ann", MIB)
        await ann.arrived()
        assert len(await ann.end()) == MIB
        await halves[0].hang_up()
        again = _Sender(limit, "eve", MIB)
        await again.arrived()
        assert len(await halves[1].end()) == len(await again.end()) == MIB
        assert not limit._held

    asyncio.run(scenario())


def test_all_users_together_hold_no_more_than_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "OF_ALL_USERS", 3 * MIB)

    async def scenario() -> None:
        limit = BodyLimit()
        for number in range(3):
            await _Sender(limit, f"eve{number}", MIB).arrived()
        with pytest.raises(TooManyError, match="bodies of many requests, of 3,145,728 bytes"):
            await _Sender(limit, "ann", MIB).arrived()
        await _Sender(limit, "ann", FREE).arrived()

    asyncio.run(scenario())


def test_a_body_that_is_too_large_is_given_back() -> None:
    async def scenario() -> None:
        limit = BodyLimit()
        with pytest.raises(InputError, match="too large"):
            await _Sender(limit, "eve", MIB + 1).arrived()
        assert not limit._held

    asyncio.run(scenario())
