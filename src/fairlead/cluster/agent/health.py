"""Checks of whether a node is fit for jobs, as its agent can tell: checks of its own, and a command of its
operator.

Each check returns sentences about what is wrong, none where all is well. They may hang, on a disk or in a
driver, and so run on threads that nobody waits for longer than they should take.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fairlead.cluster.agent.device_usage import UsageSampler
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.gpu_health import GpuHealth
from fairlead.cluster.agent.on_thread import on_thread, start_thread
from fairlead.cluster.agent.untrusted_files import write_anew
from fairlead.cluster.protocol.messages import StartCheck
from fairlead.cluster.shortage import Shortage

MIN_DISK_BYTES = 64 << 20  # free, for output and checkpoints
MIN_MEMORY_FRACTION = 0.02  # available, of all memory
MAX_SKEW_S = 5.0  # between the clock of this machine and the server's
LIMIT_S = 30.0  # for a check, and for the health command
_BROKEN_MOUNT = (
    errno.EIO,
    errno.ESTALE,
)  # in a directory that a job names; all else may be its own doing
_MAX_OUTPUT = 200  # characters of what the health command says


@dataclass
class HealthReport:
    """The problems of a node and its dead devices, as the server is told of them."""

    problems: tuple[str, ...] = ()
    dead: tuple[int, ...] = ()  # devices, as the server numbers them, that do not work any more


@dataclass(frozen=True)
class CheckResult:
    """Result of the newest test start."""

    number: int = 0  # 0 = none was made
    problem: str = ""


@dataclass(frozen=True)
class HealthOptions:
    """command: of the operator, run by a shell; exit code 0 = well, else its last line says what is wrong."""

    command: str = ""
    interval_s: float = 30.0


@dataclass
class ClockSkew:
    """The clock of this machine against the server's, by the newest answer: either of them may be set."""

    least_s: float = 0.0  # by so much at least, and at most, it was ahead then
    most_s: float = 0.0

    def learn(self, server_wall_s: float, took_s: float) -> None:
        """The server said so at some time in a call that took so long and is just over; 0 = it did not."""
        if server_wall_s:
            self.most_s = time.time() - server_wall_s
            self.least_s = self.most_s - took_s

    def problems(self) -> list[str]:
        """Return how far this machine's clock is off, where that is too far for sure."""
        if self.least_s <= MAX_SKEW_S and self.most_s >= -MAX_SKEW_S:
            return []
        way = "ahead of" if self.least_s > 0 else "behind"
        return [f"the clock is {abs(self.least_s + self.most_s) / 2:.0f} s {way} the server's"]


def disk_problems(path: Path, *, of_job: bool = False) -> list[str]:
    """Return why nothing can be written to a directory; empty if it can be. of_job: leave out what a job may
    have caused, such as changed modes or a replaced directory."""
    probe = path / f".fairlead-health-{secrets.token_hex(8)}"  # a name that nobody can take before
    try:
        write_anew(probe, b"well")
        probe.unlink()
        free = shutil.disk_usage(path).free
    except OSError as problem:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
        if of_job and problem.errno not in _BROKEN_MOUNT:
            return []
        return [f"cannot write to {path}: {problem.strerror}"]
    if free < MIN_DISK_BYTES and not of_job:
        return [f"the disk of {path} is full: {free >> 20} MB free"]
    return []


def memory_problems(meminfo: Path = Path("/proc/meminfo")) -> list[str]:
    """Problems with the memory of the machine."""
    try:
        lines = meminfo.read_text().splitlines()
        kb = {name: int(value.split()[0]) for name, _, value in (s.partition(":") for s in lines)}
        total, available = kb["MemTotal"], kb["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return []  # not told here
    if available >= MIN_MEMORY_FRACTION * total:
        return []
    return [f"memory is exhausted: {available >> 10} of {total >> 10} MB available"]


@dataclass
class _Watched:
    """A check on a thread of its own, so that one that hangs is told of and holds up nobody."""

    name: str
    check: Callable[[], list[str]]
    began: float | None = None  # of the run that has not come back
    runs: bool = False  # has its thread begun? Where memory is short it may never
    result: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Begin, unless the last run has not come back."""
        now = time.monotonic()
        if self.began is not None and (self.runs or now - self.began <= LIMIT_S):
            return
        self.began, self.runs = now, False
        try:
            start_thread(self._run)
        except OSError as problem:
            self.began, self.result = None, [f"{self.name}: cannot be checked: {problem.strerror}"]

    def _run(self) -> None:
        self.runs = True
        try:
            self.result = self.check()
        except Exception as problem:  # a check that fails says nothing about the node
            self.result = [f"the check of {self.name} failed: {problem}"]
        self.began = None

    def problems(self) -> list[str]:
        """Problems found by the last run that returned; also the current run, if it does not return."""
        if self.began is not None and (waits_s := time.monotonic() - self.began) > LIMIT_S:
            return [f"{self.name}: no answer for {waits_s:.0f} s"]
        return self.result


class JobDirectories:
    """The directories that jobs save to. Each is asked on a thread of its own, and what is wrong with it is
    told of its job: no other job shall wait for it, and it may be wrong on every node."""

    def __init__(self) -> None:
        self._watched: dict[Path, _Watched] = {}

    def start(self, directories: Mapping[Path, Callable[[], list[str]]]) -> None:
        """Begin to ask these, each by its check; one that hangs is not asked again."""
        for path in [
            p for p, one in self._watched.items() if p not in directories and one.began is None
        ]:
            del self._watched[path]
        for path, check in directories.items():
            name = f"checkpoint directory {str(path)!r}"
            self._watched.setdefault(path, _Watched(name, check)).start()

    def problems(self) -> dict[Path, str]:
        """Return path -> problem of those that do not answer, or not as a whole file system does."""
        found = {path: "; ".join(one.problems()) for path, one in self._watched.items()}
        return {path: problem for path, problem in found.items() if problem}


def job_directory_problems(path: Path) -> list[str]:
    """Return what is wrong with a directory that a job saves to, and is not of its own making."""
    try:
        return disk_problems(path, of_job=True) if path.is_dir() else []
    except PermissionError as problem:
        return [f"{path}: {problem.strerror}"]


class HealthChecks:
    """``report`` is what was found last, None = nothing was checked yet; ``run`` for ever."""

    def __init__(
        self,
        options: HealthOptions,
        devices: NodeDevices,
        directories: Callable[[], set[Path]],
        agent_problems: Callable[[], list[str]],
        *,
        of_jobs: Callable[[], Mapping[Path, Callable[[], list[str]]]] = dict,
        on_job_directories: Callable[[Mapping[Path, str]], object] = dict,
    ) -> None:
        """directories: of the agent; agent_problems: of the agent itself; of_jobs: directories of theirs,
        and how each is checked;
        on_job_directories: called with what is wrong with these, which is no matter of the node."""
        self.report: HealthReport | None = None
        self.clock = ClockSkew()
        self._shortage = Shortage()
        self.usage = UsageSampler(devices)
        self._options = options
        self._agent_problems = agent_problems
        self._gpus = None if devices.simulated_devices else GpuHealth(devices.indices)
        self._directories = directories
        self._of_jobs, self._on_job_directories = of_jobs, on_job_directories
        self._job_directories = JobDirectories()
        self._watched = [
            _Watched("memory", memory_problems),
            _Watched("disks", self._disk_problems),
        ]
        if self._gpus is not None:
            self._watched.append(_Watched("devices (NVML)", self._gpus.problems))

    async def run(self, changed: Callable[[], None]) -> None:
        """Check again and again. changed: called when there is something else to report."""
        while True:
            with self._shortage.outlasts():
                found = await self.check()
                if found != self.report:
                    self.report = found
                    changed()
            await asyncio.sleep(self._options.interval_s)

    async def check(self) -> HealthReport:
        """All checks once."""
        for one in self._watched:
            one.start()
        self._job_directories.start(self._of_jobs())
        by_command = await self._ask_command()
        deadline = time.monotonic() + LIMIT_S
        while any(one.began is not None for one in self._watched) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self._on_job_directories(self._job_directories.problems())
        found = [problem for one in self._watched for problem in one.problems()]
        found += self.clock.problems() + self._agent_problems() + by_command
        return HealthReport(tuple(found), () if self._gpus is None else self._gpus.dead)

    def _disk_problems(self) -> list[str]:
        return [p for d in sorted(self._directories()) for p in disk_problems(d)]

    async def _ask_command(self) -> list[str]:
        if not self._options.command:
            return []
        limit_s = min(LIMIT_S, max(self._options.interval_s, 1.0))
        command = _Command(self._options.command)
        try:
            return await on_thread(partial(command.ask, limit_s), LIMIT_S + limit_s)
        except TimeoutError:
            return ["the health command cannot be ended"]
        except OSError as problem:  # no thread
            return [f"the health command cannot be started: {problem.strerror}"]
        finally:
            command.end()


class _Command:
    """The operator's, for one run. On a thread: what the agent's first one starts is its spawner alone, see
    ``adopted``."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, limit_s: float) -> list[str]:
        """Run the command for at most ``limit_s`` and return the problem it has found; [] = none. Blocks."""
        try:
            self._process = process = subprocess.Popen(
                self._command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as problem:
            return [f"the health command cannot be started: {problem.strerror}"]
        with process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return [f"the health command has not ended within {limit_s:g} s"]
            finally:
                self.end()
        if process.returncode == 0:
            return []
        lines = output.decode(errors="replace").strip().splitlines()
        why = f": {lines[-1][:_MAX_OUTPUT]}" if lines else ""
        return [f"the health command ended with {process.returncode}{why}"]

    def end(self) -> None:
        """Kill what is left of it."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def try_start(test: StartCheck, env: dict[str, str], cwd: Path) -> str:
    """Start a process that does nothing, as a job would be started; "" = that works, else why not."""
    known = [
        program for program in test.programs if shutil.which(program, path=env.get("PATH", ""))
    ]
    if test.programs and not known:
        return f"command not found: {test.programs[0]!r}"
    try:
        done = subprocess.run(
            ["sh", "-c", "exit 0"],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"a test start failed: {problem}"
    return "" if done.returncode == 0 else f"a test start ended with {done.returncode}"
