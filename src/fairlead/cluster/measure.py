"""The rate of a training script, and the costs of a stop and a start: measured by running it."""

import os
import shlex
import socket
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import TypeVar

from fairlead.client.messages import (
    FromRank,
    Hello,
    Loaded,
    Progress,
    RankEnded,
    StopRank,
)
from fairlead.client.stub_agent import StubAgent
from fairlead.errors import ConfigError

WARM_UP_REPORTS = 2  # reports of progress before the measuring begins
MIN_INTERVALS = 4  # intervals to measure, however long a step takes
SCRIPT_TIMEOUT_S = 120.0  # for the script to say hello, and to end
RETRAIN_S = 0.5  # that it trains in its second start
MAX_OUTPUT = 300  # characters of its output in an error
ENDLESS = 1 << 40  # steps
Message = TypeVar("Message", bound=FromRank)


@dataclass(frozen=True)
class ScriptTimings:
    """A script on one accelerator type."""

    accelerator: str
    devices: int  # ranks
    steps_per_s: float  # median over intervals of half a second or more
    stderr: float  # its standard error, steps/s
    intervals: int
    start_s: float  # from the start of its processes to its hello: interpreter, imports, rendezvous
    load_s: float  # to load its checkpoint
    warm_s: float  # that the first steps after a start take beyond those that follow
    save_s: float
    stop_s: float  # from the order to stop to its end, without the saving

    @property
    def restart_s(self) -> float:
        """Return the seconds that a preemption costs, from order to full speed again."""
        return self.save_s + self.stop_s + self.start_s + self.load_s + self.warm_s


def measure(
    command: Sequence[str], accelerator: str, devices: int, seconds: float, steps: int | None = None
) -> ScriptTimings:
    """Run a script twice: to measure its rate (for so many seconds, or steps), then from the checkpoint that
    it has saved. Raises ConfigError where it fails, or has no ``Iterator`` or ``Lease``."""
    with tempfile.TemporaryDirectory(prefix="fairlead-profile-") as name:
        folder = Path(name)
        with start(command, accelerator, devices, folder) as run:
            run.wait_for(Hello)
            marks = run.train(seconds, steps)
            _, save_s, stop_s = run.stop()
        rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(marks)]
        rate = statistics.median(rates)
        with start(command, accelerator, devices, folder) as run:
            start_s = run.wait_for(Hello)[0] - run.began
            loaded_at, loaded = run.wait_for(Loaded)
            at, step = run.train_for(loaded_at + RETRAIN_S, loaded.step)
            run.stop()
    sigma = statistics.stdev(rates) if len(rates) > 1 else 0.0
    return ScriptTimings(
        accelerator=accelerator,
        devices=devices,
        steps_per_s=rate,
        stderr=1.2533 * sigma / len(rates) ** 0.5,  # of a median, for intervals that vary normally
        intervals=len(rates),
        start_s=start_s,
        load_s=loaded.load_s,
        warm_s=max(0.0, at - loaded_at - (step - loaded.step) / rate),
        save_s=save_s,
        stop_s=stop_s,
    )


def measure_pair(
    commands: tuple[Sequence[str], Sequence[str]], accelerator: str, devices: int, seconds: float
) -> tuple[float, float]:
    """Return the steps/s of two scripts that run on the same devices at once, for so many seconds in which
    both train. Raises ConfigError where one fails, or has no ``Iterator`` or ``Lease``."""
    both_train, both_measured = threading.Barrier(2), threading.Barrier(2)

    def rate(command: Sequence[str], folder: Path) -> float:
        try:
            with start(command, accelerator, devices, folder) as run:
                run.wait_for(Progress)
                both_train.wait(SCRIPT_TIMEOUT_S)
                marks = run.train(seconds, None)
                both_measured.wait(SCRIPT_TIMEOUT_S + seconds)  # it runs on, for the other's sake
                run.stop()
        except BaseException:
            both_train.abort()
            both_measured.abort()
            raise
        return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(marks))

    with (
        tempfile.TemporaryDirectory(prefix="fairlead-profile-") as name,
        ThreadPoolExecutor(2) as pool,
    ):
        folders = [Path(name) / one for one in ("first", "second")]
        for folder in folders:
            folder.mkdir()
        runs = [pool.submit(rate, *one) for one in zip(commands, folders, strict=True)]
        problems = [one.exception() for one in runs]
    for problem in sorted(filter(None, problems), key=_is_consequence):
        raise problem
    first, second = (one.result() for one in runs)
    return first, second


def _is_consequence(problem: BaseException) -> bool:
    """Return whether a script failed only because the one beside it did."""
    return isinstance(problem, threading.BrokenBarrierError)


class MeasuredRun:
    """One start of a script, and the agent's side of its socket. Times are monotonic, in seconds."""

    def __init__(self, command: Sequence[str], agent: StubAgent, log: Path) -> None:
        self.command, self.agent, self.log = command, agent, log
        self.processes: list[subprocess.Popen[bytes]] = []
        self.began = monotonic()
        self._inbox: list[tuple[float, FromRank]] = []

    def wait_for(self, message_type: type[Message]) -> tuple[float, Message]:
        """When the next message of this type came, and the message."""
        until = monotonic() + SCRIPT_TIMEOUT_S
        while True:
            for at, message in self._take():
                if isinstance(message, message_type):
                    return at, message
            self._check(until)

    def train(self, seconds: float, steps: int | None) -> list[tuple[float, int]]:
        """(time, step) of the progress after the warm-up, over so many seconds or steps."""
        marks: list[tuple[float, int]] = []
        while len(marks) < WARM_UP_REPORTS + MIN_INTERVALS or not _enough(
            marks[WARM_UP_REPORTS:], seconds, steps
        ):
            at, progress = self.wait_for(Progress)
            if not marks or progress.step > marks[-1][1]:
                marks.append((at, progress.step))
        return marks[WARM_UP_REPORTS:]

    def train_for(self, until: float, step: int) -> tuple[float, int]:
        """Progress at this time or soon after it, at least one step."""
        while True:
            at, progress = self.wait_for(Progress)
            if at >= until and progress.step > step:
                return at, progress.step

    def stop(self) -> tuple[int, float, float]:
        """Steps, seconds to save, seconds to stop."""
        asked = monotonic()
        self.agent.send(StopRank("profiled"))
        _, ended = self.wait_for(RankEnded)
        for process in self.processes:
            process.wait(SCRIPT_TIMEOUT_S)
        code = max((process.returncode for process in self.processes), key=abs)
        if code:
            raise ConfigError(f"{self._named()} ended with exit code {code}{self._last_words()}")
        return ended.step, ended.save_s, max(0.0, monotonic() - asked - ended.save_s)

    def _take(self) -> Iterator[tuple[float, FromRank]]:
        if not self._inbox:
            self._read(0.02)
        while self._inbox:
            yield self._inbox.pop(0)

    def _read(self, wait_s: float) -> None:
        found = self.agent.poll(wait_s)
        self._inbox += [(monotonic(), message) for message in found]

    def _check(self, until: float) -> None:
        codes = [process.poll() for process in self.processes]
        gone = [code for code in codes if code] or codes[
            :1
        ]  # others may end before rank 0 has saved
        if gone[0] is not None:
            self._read(0.0)
        if gone[0] is not None and not self._inbox:
            what = f"ended with exit code {gone[0]}"
            without = (
                ""
                if self.agent.received
                else " without a word to Fairlead (no Iterator, no Lease?)"
            )
            raise ConfigError(f"{self._named()} {what}{without}{self._last_words()}")
        if monotonic() > until:
            raise ConfigError(f"{self._named()}: nothing heard for {SCRIPT_TIMEOUT_S:.0f} s")

    def _named(self) -> str:
        return shlex.join(self.command)

    def _last_words(self) -> str:
        log_text = self.log.read_text(errors="replace").strip()
        return f"; its last words: {log_text.splitlines()[-1][-MAX_OUTPUT:]}" if log_text else ""


def _enough(marks: list[tuple[float, int]], seconds: float, steps: int | None) -> bool:
    if steps is not None:
        return marks[-1][1] - marks[0][1] >= steps
    return marks[-1][0] - marks[0][0] >= seconds


@contextmanager
def start(
    command: Sequence[str], accelerator: str, devices: int, folder: Path
) -> Iterator[MeasuredRun]:
    """Start the ranks of a script, from its checkpoint in this folder if there is one; what is left of them
    after the block is ended."""
    agent = StubAgent(folder / "agent.sock", checkpoint_s=1e9)
    agent.open()
    run = MeasuredRun(command, agent, folder / "output")
    with ExitStack() as stack:
        stack.callback(agent.close)
        stack.callback(_end, run.processes)
        log = stack.enter_context(run.log.open("wb"))
        shared = _environment(agent, accelerator, devices, folder)
        for rank in range(devices):
            variables = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            try:
                made = subprocess.Popen(command, env=shared | variables, stdout=log, stderr=log)
            except OSError as problem:
                raise ConfigError(f"{command[0]}: cannot be started ({problem.strerror})") from None
            run.processes.append(made)
        yield run


def _environment(agent: StubAgent, accelerator: str, devices: int, folder: Path) -> dict[str, str]:
    ports = _free_ports(2)
    more = agent.environment(
        checkpoint_dir=str(folder / "checkpoints"),
        total_steps=ENDLESS,
        accelerator=accelerator,
        devices=",".join(map(str, range(devices))),
        rank_sync=f"127.0.0.1:{ports[0]}",
    )
    ranks = {
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(devices))),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(ports[1]),
    }
    return {**os.environ, **more, **ranks}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in made]


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
