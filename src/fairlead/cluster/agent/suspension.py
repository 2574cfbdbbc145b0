"""Programs without the iterator that are stopped as they are when they are preempted, and go on later."""

import asyncio
import contextlib
import logging
import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.client.parking import holds_device
from fairlead.cluster.agent import proc
from fairlead.cluster.agent.addresses import GivenAddresses
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.device_memory import DeviceMemory
from fairlead.cluster.agent.launch import log_path
from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.parked_jobs import ParkedJobs
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_messages import EndAttempt, Suspend
from fairlead.cluster.agent.untrusted_files import opened
from fairlead.cluster.protocol.messages import Assignment

TOOL = (
    "cuda-checkpoint"  # takes what a process has on its devices to the memory of the host, and back
)
LIMIT_S = 120.0  # that it is waited for; before a program is stopped, its grace at most
_MARGIN_S = 10.0  # for the thread that waits
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _StoppedProgram:
    """What an attempt needs to know that goes on with a program."""

    addresses: GivenAddresses
    files_of: int
    toggled: tuple[int, ...]  # pids that have nothing on their devices, by ``TOOL``


class Suspension:
    """``leaders``: returns pid -> attempt and rank, of ranks that run, to be set. ``memory``: of the devices,
    to be set where they are real."""

    def __init__(self, state: Path, spawner: SpawnerLink, parked: ParkedJobs, logs: Logs) -> None:
        """state: of the agent."""
        self._state = state
        self._spawner = spawner
        self._parked = parked
        self._logs = logs
        self.leaders: Callable[[], Mapping[int, tuple[Key, int]]] = dict
        self.memory: DeviceMemory | None = None
        self._toggled: dict[Key, tuple[int, ...]] = {}
        self._programs: dict[Key, _StoppedProgram] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def may_suspend(
        self, attempt: NodeAttempt, reason: str, followers: Collection[Assignment]
    ) -> bool:
        """Whether an attempt that is told to stop is to be stopped as it is. followers: what runs next on
        this node; what it needs of its devices has to fit there beside what stays of the attempt."""
        if self._parked.may_leave_parked(attempt, reason):
            return True
        pids = self._pids(attempt.key)
        if not self._parked.may_suspend(attempt, reason, pids):
            return False
        if self.memory is None or shutil.which(TOOL) is not None:
            return True
        return self.memory.fits(attempt, pids, followers)

    def suspend(self, attempt: NodeAttempt) -> None:
        """Have the processes of an attempt stopped as they are."""
        pids = self._to_toggle(attempt)
        if pids:
            self._begin(self._toggle_and_suspend(attempt, pids))
        else:
            self._send(attempt)

    def parked(self, attempt: NodeAttempt) -> None:
        """The ranks of an attempt are parked; if as they are, they go on with the files that they have."""
        if attempt.assignment.suspend:
            toggled = self._toggled.pop(attempt.key, ())
            files_of = attempt.files_key[1]
            self._programs[attempt.key] = _StoppedProgram(attempt.addresses, files_of, toggled)
            self._logs.pause(*attempt.key)

    def resumed(self, attempt: NodeAttempt, at_s: float) -> None:
        """An attempt goes on with parked ranks. at_s: monotonic; since when."""
        job, before = attempt.key[0], attempt.assignment.resumes
        program = self._programs.pop((job, before), None)
        if program is None:
            return
        attempt.resume_program(program.addresses.progress_port, program.files_of)
        self._logs.resume(attempt.assignment, before)
        if attempt.stop_order.given:  # it stands still again, or is ended
            self._toggled[attempt.key] = program.toggled
        elif program.toggled:
            self._begin(self._toggle_back(attempt, program.toggled))
        else:
            attempt.goes_on(at_s)

    def forget(self, key: Key) -> None:
        """Nothing is parked of it any more."""
        if self._programs.pop(key, None) is not None:
            self._logs.release(*key)

    def clear(self) -> None:
        """Nothing is parked any more."""
        for key in list(self._programs):
            self.forget(key)

    def _pids(self, key: Key) -> set[int]:
        return {pid for pid, (its, _) in self.leaders().items() if its == key}

    def _to_toggle(self, attempt: NodeAttempt) -> list[int]:
        """Processes with something on their devices, where there is the tool. Of simulated devices nobody can
        tell: there it is given the ranks themselves."""
        if shutil.which(TOOL) is None:
            return []
        leaders = self._pids(attempt.key)
        if self.memory is None:
            return sorted(leaders)
        return [one.pid for one in proc.below(leaders) if holds_device(one.pid)]

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _toggle_and_suspend(self, attempt: NodeAttempt, pids: Collection[int]) -> None:
        done: list[int] = []
        until_s = (
            time.monotonic() + attempt.grace_s
        )  # whoever is to have its devices waits no longer
        for pid in pids:
            if why := await toggle(pid, until_s - time.monotonic()):
                attempt.exits.unsaved = f"{TOOL} --toggle --pid {pid}: {why}"
                self._say(attempt, f"{attempt.exits.unsaved}; it is ended instead")
                for other in done:
                    await toggle(other, until_s - time.monotonic())
                self._end(attempt, until_s - time.monotonic())
                return
            done.append(pid)
        self._toggled[attempt.key] = tuple(done)
        self._send(attempt)

    async def _toggle_back(self, attempt: NodeAttempt, pids: Collection[int]) -> None:
        for pid in pids:
            if why := await toggle(pid):
                attempt.exits.unsaved = f"{TOOL} --toggle --pid {pid}: {why}"
                cannot = f"{attempt.exits.unsaved}; it cannot go on"
                self._say(attempt, cannot)
                if not attempt.ended and not attempt.stop_order.given:
                    attempt.ended_for(attempt.assignment.ranks[0].rank, cannot, time.monotonic())
                self._end(attempt, attempt.grace_s)
                return
        attempt.goes_on(time.monotonic())

    def _send(self, attempt: NodeAttempt) -> None:
        job, number = attempt.key
        self._spawner.send(Suspend(job=job, attempt=number, kill_after_s=attempt.grace_s))

    def _end(self, attempt: NodeAttempt, kill_after_s: float) -> None:
        job, number = attempt.key
        kill_after_s = max(kill_after_s, 0.0)
        self._spawner.send(
            EndAttempt(job=job, attempt=number, terminate=True, kill_after_s=kill_after_s)
        )

    def _say(self, attempt: NodeAttempt, problem: str) -> None:
        """Where its user and the operator of the node look."""
        _log.warning("job %d: %s", attempt.key[0], problem)
        path = log_path(self._state, *attempt.files_key, attempt.assignment.ranks[0].rank)
        with contextlib.suppress(OSError), opened(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            os.write(descriptor, f"fairlead: {problem}\n".encode())


async def toggle(pid: int, limit_s: float = math.inf) -> str:
    """Have what a process has on its devices taken to the memory of the host, or back, in so many seconds,
    and in ``LIMIT_S`` at most. Returns "", or why that could not be done."""
    limit_s = min(limit_s, LIMIT_S)
    if limit_s <= 0.0:
        return "there is no time left for it"
    try:
        # Of the first thread's children those that end are taken for orphans: see ``adopted``.
        return await on_thread(lambda: _run_tool(pid, limit_s), limit_s + _MARGIN_S)
    except OSError as problem:  # a TimeoutError is one, too
        return problem.strerror or str(problem) or f"no answer within {limit_s:.3g} s"


def _run_tool(pid: int, limit_s: float) -> str:
    try:
        done = subprocess.run(
            [TOOL, "--toggle", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {limit_s:.3g} s"
    if done.returncode:
        last = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
        return "; ".join([f"exit code {done.returncode}", *last])
    return ""
