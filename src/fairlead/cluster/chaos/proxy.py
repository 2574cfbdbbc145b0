"""TCP proxies between agents and server, whose connections can be slowed down, held up and cut."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine
from typing import Any

CHUNK = 1 << 14  # bytes passed on at once


class Proxy:
    """One listening port that leads to another. ``slow_s`` and ``blocked`` may be set from any thread."""

    def __init__(self, port: int, rng: random.Random) -> None:
        """port: where it leads to, on this machine."""
        self.target = port
        self.port = 0
        self.slow_s = 0.0  # each piece waits for up to so long
        self.blocked = False  # nothing passes, and nobody is told
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._pairs: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and cut what there is."""
        if self._server is not None:
            self._server.close()
        await self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self) -> None:
        """Break off every connection, with what was on its way."""
        for writer in list(self._pairs):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._pairs.add(writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._join(reader, writer)
        writer.transport.abort()
        self._pairs.discard(writer)
        self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._wait()
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        self._pairs.add(back)
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            self._pairs.discard(back)
            back.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one side has hung up: so does the other

    async def _wait(self) -> None:
        if self.slow_s:
            await asyncio.sleep(self._rng.uniform(0.0, self.slow_s))
        while self.blocked:
            await asyncio.sleep(0.02)


class Loop:
    """An event loop in a thread of its own, for the proxies."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies")
        self._thread.start()

    def do(self, what: Coroutine[Any, Any, None]) -> None:
        """Have something done there, and wait for it."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10.0)

    def stop(self) -> None:
        """End the thread."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None


class NodeProxies:
    """The proxy of each node, between its agent and the server. ``start`` it first."""

    def __init__(self) -> None:
        self._loop = Loop()
        self._proxies: dict[str, Proxy] = {}

    def start(self) -> None:
        """Start the thread in which they run."""
        self._loop.start()

    def open(self, node: str, port: int, rng: random.Random) -> None:
        """Listen for the agent of a node. port: where the server listens."""
        self._proxies[node] = Proxy(port, rng)
        self._loop.do(self._proxies[node].open())

    def of(self, node: str) -> Proxy:
        """The node's."""
        return self._proxies[node]

    def port(self, node: str) -> int:
        """Return the port to which the node's agent is to connect."""
        return self._proxies[node].port

    def cut(self, node: str) -> None:
        """Break off the connections of an agent."""
        self._loop.do(self._proxies[node].cut())

    def close(self) -> None:
        """Close all, and end the thread."""
        for proxy in self._proxies.values():
            self._loop.do(proxy.close())
        self._proxies.clear()
        self._loop.stop()
