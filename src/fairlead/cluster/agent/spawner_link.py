"""The agent's side of the spawner: it starts the process, speaks with it, and replaces it if it dies."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.machine import AgentFiles
from fairlead.cluster.agent.spawner_messages import (
    FromSpawner,
    Ready,
    SpawnerFrames,
    ToSpawner,
    framed,
)

_AGAIN_S = 0.1  # before another is started


class SpawnerLink:
    """``start`` it before anything else of the agent; ``close`` ends it, and with it all ranks."""

    def __init__(self, state: Path, prefork: str, devices: NodeDevices) -> None:
        """devices: of the node. ``record`` is to be set before the start."""
        self._state = state
        self._devices = devices
        self.record: AgentFiles | None = None  # of this run of the agent
        self.cleared: tuple[str, ...] = ()  # incarnations of earlier agents of which nothing lives
        self._prefork = prefork
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._frames = SpawnerFrames()

    @property
    def pid(self) -> int:
        """0 = it does not run."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process. It may take until the ranks of an earlier one have ended: see ``Ready``."""
        assert self.record is not None
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "fairlead.cluster.agent.spawner"),
                    *(str(theirs.fileno()), str(self._state), self._prefork),
                    *(str(self.record.path), msgspec.json.encode(self._devices).decode()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._frames = SpawnerFrames()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)

    def send(self, message: ToSpawner) -> bool:
        """Never blocks. False: just now there is none to hear it; the next one knows nothing of it. What one
        that dies does not hear is ``lost`` with it, see ``listen``."""
        if self._writer is None or self._writer.is_closing():
            return False
        self._writer.write(framed(message))
        return True

    async def listen(
        self, hear: Callable[[FromSpawner], Awaitable[None]], lost: Callable[[], Awaitable[None]]
    ) -> None:
        """Pass on what it says, for ever. lost: it has died; another is started after that."""
        while True:
            while messages := await self._receive():
                for message in messages:
                    await hear(message)
            await lost()
            await self.close()
            await asyncio.sleep(_AGAIN_S)
            await self.start()

    async def ready(self) -> int:
        """Wait for the first message. Returns how many processes an earlier agent had left behind."""
        ready = [m for m in await self._receive() if isinstance(m, Ready)]
        self.cleared = tuple(incarnation for m in ready for incarnation in m.cleared)
        return sum(m.survivors for m in ready)

    async def _receive(self) -> list[FromSpawner]:
        """Some messages; none: it has died."""
        messages: list[FromSpawner] = []
        while not messages:
            data = b""
            if self._reader is not None:
                with contextlib.suppress(OSError):
                    data = await self._reader.read(1 << 16)
            if not data:
                return []
            messages = [
                msgspec.msgpack.decode(m, type=FromSpawner) for m in self._frames.feed(data)
            ]
        return messages

    async def close(self) -> None:
        """Close the socket and wait for the process."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._reader = self._writer = None
        while self._process is not None and self._process.poll() is None:
            await asyncio.sleep(0.01)
        self._process = None
