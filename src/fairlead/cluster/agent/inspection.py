"""Finding out where the ranks of an attempt stand: they write it down themselves, or py-spy looks at them."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.spawner_messages import Inspect, Inspected
from fairlead.cluster.agent.stacks import RankStack, read_stack
from fairlead.cluster.agent.untrusted_files import (
    opened,
    read_from,
    size_of,
)

if TYPE_CHECKING:
    from fairlead.cluster.agent.attempts import NodeAttempt
    from fairlead.cluster.agent.spawner_link import SpawnerLink

REPLY_TIMEOUT_S = 5.0  # for the spawner
_POLL_S = 0.05  # between looks at what they write
WRITE_S = 1.0  # for a rank to write its stacks; the interpreter does it at once
PY_SPY_S = 20.0  # for one process
MAX_STACKS_BYTES = 1 << 20  # bytes of stacks that are read


class Inspector:
    """One look at a time for each attempt."""

    def __init__(self) -> None:
        self._answers: dict[tuple[int, int], asyncio.Future[Inspected]] = {}

    def receive(self, message: Inspected) -> None:
        """The spawner has signalled the ranks."""
        reply = self._answers.pop((message.job, message.attempt), None)
        if reply is not None and not reply.done():
            reply.set_result(message)

    async def inspect(
        self, attempt: "NodeAttempt", spawner: "SpawnerLink", files: dict[int, Path]
    ) -> dict[int, RankStack]:
        """Rank -> where it stands, of the ranks here of which that can be found out.

        files: rank -> what it writes its stacks to.
        """
        sizes = {rank: size_of(file) for rank, file in files.items()}
        found = await self._ask(attempt, spawner)
        if found is None:
            return {}
        stacks = {}
        if found.signalled:
            await _written({rank: files[rank] for rank in found.signalled}, sizes)
            for rank in found.signalled:
                if (stack := read_stack(rank, _read(files[rank], sizes[rank]))) is not None:
                    stacks[rank] = stack
        stacks |= _stopped(found.pids)
        stacks |= await _spy((r, pid) for r, pid in found.pids.items() if r not in stacks)
        return stacks

    async def _ask(self, attempt: "NodeAttempt", spawner: "SpawnerLink") -> Inspected | None:
        job, number = attempt.key
        reply: asyncio.Future[Inspected] = asyncio.get_running_loop().create_future()
        self._answers[attempt.key] = reply
        try:
            if not spawner.send(Inspect(job=job, attempt=number)):
                return None
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                return await reply
        except TimeoutError:
            return None
        finally:
            self._answers.pop(attempt.key, None)


def _stopped(pids: Mapping[int, int]) -> dict[int, RankStack]:
    """Ranks whose processes a signal keeps from running: they do not write where they are."""
    found = {rank: proc.process(pid) for rank, pid in pids.items()}
    return {
        rank: RankStack(rank, (), "stopped (state T, by SIGSTOP or a debugger)")
        for rank, one in found.items()
        if one is not None and one.state in proc.STOPPED
    }


async def _written(files: dict[int, Path], before: dict[int, int]) -> None:
    """Wait until all of these have grown, and grow no more: a rank that is killed soon has been looked at by
    then. No longer than a rank needs for it."""
    deadline, last = time.monotonic() + WRITE_S, dict(before)
    while time.monotonic() < deadline:
        await asyncio.sleep(_POLL_S)
        sizes = {rank: size_of(file) for rank, file in files.items()}
        if all(before[rank] < size == last[rank] for rank, size in sizes.items()):
            return
        last = sizes


def py_spy() -> str:
    """The program, "" = it is not installed: beside our own interpreter, or where programs are found."""
    sibling = Path(sys.executable).parent / "py-spy"
    return str(sibling) if sibling.is_file() else shutil.which("py-spy") or ""


async def _spy(pids: Iterable[tuple[int, int]]) -> dict[int, RankStack]:
    program, stacks = py_spy(), {}
    for rank, pid in pids if program else ():
        if (stack := read_stack(rank, await _dump(program, pid))) is not None:
            stacks[rank] = stack
    return stacks


async def _dump(program: str, pid: int) -> str:
    """Return what py-spy prints of a process; "" where it may not look, or takes too long."""
    command = (program, "dump", "--full-filenames", "--pid", str(pid))
    try:
        out = await on_thread(partial(_output, command, pid), 2 * PY_SPY_S)
    except (OSError, subprocess.TimeoutExpired, TimeoutError):
        return ""
    return out[:MAX_STACKS_BYTES].decode(errors="replace")


def _output(command: tuple[str, ...], pid: int) -> bytes:
    """Its output. Root looks into a process of another user with that user's rights: what it finds there may
    have been made to mislead it. Raises OSError, TimeoutExpired. On a thread: see ``adopted``."""
    owner = proc.owner_of(pid)
    other = owner if owner is not None and os.geteuid() == 0 != owner.uid else None
    done = subprocess.run(
        command,
        user=None if other is None else other.uid,
        group=None if other is None else other.gid,
        extra_groups=None if other is None else [],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=PY_SPY_S,
        check=False,
    )
    return done.stdout


def _read(file: Path, offset: int) -> str:
    try:
        with opened(file, of_folder=True) as descriptor:
            return read_from(descriptor, offset, MAX_STACKS_BYTES).decode(errors="replace")
    except OSError:
        return ""
