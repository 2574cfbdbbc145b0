"""A real server on free ports, in this process, for tests."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.http_client import Client
from fairlead.cluster.server.options import live_options
from fairlead.cluster.server.server import Listening, Server

LIMIT_S = 180.0


@dataclass(frozen=True)
class Served:
    """Where it is, and who may come in."""

    url: str
    admin: str  # token
    agent: str  # token
    server: Server

    def client(self, token: str | None = None) -> Client:
        """As the admin, or with another token."""
        return Client(self.url, self.admin if token is None else token)


@contextmanager
def served(directory: Path, *, open_metrics: bool = False) -> Iterator[Served]:
    """The block runs beside the server."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    options = live_options(
        None, "las", "default", 2.0, "builtin", 0, 10.0, 0.5, 30.0, early_round_end=False
    )
    listening = Listening(http_port=0, agent_port=0, open_metrics=open_metrics)

    async def make() -> Server:
        server = Server(directory, options, listening)
        await server.start()
        return server

    try:
        server = asyncio.run_coroutine_threadsafe(make(), loop).result(LIMIT_S)
        try:
            tokens = server.new_tokens
            yield Served(server.url, tokens["admin"], tokens["agent"], server)
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(LIMIT_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
