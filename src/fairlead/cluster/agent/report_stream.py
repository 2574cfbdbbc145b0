"""The stream in which an agent reports: to the server a call of its own costs four times as much."""

import asyncio
from collections.abc import Callable
from typing import Any


class ReportStream:
    """Used on one event loop."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        """begin: makes the call."""
        self._begin = begin
        self._call: Any = None
        self._turn = asyncio.Lock()

    async def ask(self, data: bytes, timeout_s: float) -> bytes | None:
        """Return the answer to a report; None: the server has ended the stream without one. Raises
        TimeoutError, AioRpcError."""
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s):
                    if self._call is None or self._call.done():
                        self._call = self._begin()
                    await self._call.write(data)
                    answer = await self._call.read()
            except BaseException:
                self.end()  # its answer may still come, and would be taken for that to the next report
                raise
        return answer if isinstance(answer, bytes) else None

    def end(self) -> None:
        """Break it off; the next report begins another one."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
