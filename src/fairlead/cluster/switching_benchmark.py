"""The time that it takes to switch a device from one job to another on this machine: measured by doing it."""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.http_client import Client
from fairlead.cluster.local import LocalCluster
from fairlead.cluster.protocol.api_models import AttemptView
from fairlead.cluster.protocol.attempt_end import PREEMPTIONS, AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.loaded_checkpoint import RESUMED
from fairlead.errors import FairleadError

ROUND_S = 2.0
NODES = ("node-a", "node-b")
LIMIT_S = 120.0  # for one more switch
_POLL_S = 0.2


@dataclass(frozen=True)
class Quantiles:
    """Seconds, in milliseconds, of something that was done so many times."""

    n: int
    median_ms: float
    p95_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Quantiles":
        """Their median and 95th percentile."""
        ordered = sorted(seconds)
        at = min(round(0.95 * (len(ordered) - 1)), len(ordered) - 1)
        return cls(len(ordered), 1e3 * statistics.median(ordered), 1e3 * ordered[at])


@dataclass(frozen=True)
class SwitchingTimes:
    """park: from the order to give its device back until it is free for the next job. resume: from there
    until the job trains. stop, start: the same for a job that ends and is started anew; stop includes the
    save, which a parked job does after it has left. migrate: from the last step of a job on one node to its
    first step on another, where it was prepared meanwhile."""

    state_mb: int
    park: Quantiles
    resume: Quantiles
    park_and_resume: Quantiles
    stop: Quantiles
    start: Quantiles
    stop_and_start: Quantiles
    migrate: Quantiles


def measure_switching(
    state_mb: int, switches: int, progress: Callable[[int, str], None]
) -> SwitchingTimes:
    """Have two jobs with so much state take turns on one device until each kind of switch was done so many
    times. progress: told of the switches done, and their kind. Raises FairleadError."""
    with tempfile.TemporaryDirectory(prefix="fairlead-switching-") as name:
        serve = (
            "--port",
            "0",
            "--agent-port",
            "0",
            "--round",
            f"{ROUND_S:g}",
            "--compile-in-background",
        )
        node = ("--devices", "device=1", "--simulated-devices")
        nodes = dict.fromkeys(NODES, node)
        cluster = LocalCluster(Path(name), nodes, (*serve, "--restart-cost", "0.1"))
        try:
            cluster.start()
            with cluster.client() as client:
                client.drain(NODES[1])
                parked = _take_turns(client, state_mb, switches, progress)
                ended = _start_anew(client, state_mb, switches, progress)
                moved = _migrate(client, Path(name) / "gaps", state_mb, switches, progress)
        finally:
            cluster.stop()
    park, resume = _durations(parked)
    stop, start = _durations(ended)
    return SwitchingTimes(
        state_mb=state_mb,
        park=Quantiles.of(park),
        resume=Quantiles.of(resume),
        park_and_resume=Quantiles.of(_sums(park, resume)),
        stop=Quantiles.of(stop),
        start=Quantiles.of(start),
        stop_and_start=Quantiles.of(_sums(stop, start)),
        migrate=Quantiles.of(moved),
    )


def _take_turns(
    client: Client, state_mb: int, switches: int, progress: Callable[[int, str], None]
) -> list[AttemptView]:
    """The attempts of two jobs that have taken so many turns, parked in between."""
    jobs = client.submit([_job(state_mb)] * 2)

    def found() -> list[AttemptView]:
        rows = [row for job in jobs for row in client.attempts(job)]
        return [row for row in rows if row.end in PREEMPTIONS and _is_resumed(row)]

    for done in range(switches):
        progress(done, "parking")
        _await(client, jobs, lambda done=done: len(found()) > done)  # type: ignore[misc]
    rows = found()
    _cancel(client, jobs)
    return rows


def _start_anew(
    client: Client, state_mb: int, switches: int, progress: Callable[[int, str], None]
) -> list[AttemptView]:
    """The attempts of a job that was stopped, and started again, so many times."""
    (job,) = client.submit([_job(state_mb)])

    def trains() -> bool:
        last = client.attempts(job)[-1:]
        return any(row.ended_s is None and row.trained_s is not None for row in last)

    for done in range(switches + 1):  # the first start has nothing to load
        progress(switches + done, "starting anew")
        _await(client, [job], trains)
        client.pause(job)
        _await(client, [job], lambda: not _runs(client, job))
        client.resume(job)
    rows = [row for row in client.attempts(job)[1:] if row.end == AttemptEnd.PAUSED]
    _cancel(client, [job])
    return rows


def _migrate(
    client: Client, gaps: Path, state_mb: int, switches: int, progress: Callable[[int, str], None]
) -> list[float]:
    """The seconds without a step of a job that has moved from node to node so many times. gaps: a file."""
    (job,) = client.submit([_job(state_mb, str(gaps), standby=True)])

    def here() -> str:
        last = client.attempts(job)[-1:]
        return next((row.node for row in last if row.trained_s is not None), "")

    def found() -> list[float]:
        lines = gaps.read_text().splitlines() if gaps.exists() else []
        return [float(line.split()[1]) for line in lines]

    for done in range(switches):
        progress(2 * switches + done, "migrating")
        _await(client, [job], here)
        there = next(node for node in NODES if node != here())
        client.undrain(there)
        _await(client, [job], lambda node=there: _is_up(client, node))  # type: ignore[misc]
        client.drain(here())
        _await(client, [job], lambda done=done: len(found()) > done)  # type: ignore[misc]
    _cancel(client, [job])
    return found()


def _job(state_mb: int, *more: str, standby: bool = False) -> JobSpec:
    command = (sys.executable, "-m", "fairlead.cluster.switching_job", str(state_mb), *more)
    return JobSpec(command=command, total_steps=10**9, cwd="/", standby=standby)


def _await(client: Client, jobs: Sequence[int], holds: Callable[[], object]) -> None:
    """Raises FairleadError if nothing comes of it."""
    until = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > until:
            states = ", ".join(f"{v.state} ({v.reason})" for v in map(client.job, jobs))
            raise FairleadError(f"no switch within {LIMIT_S:g} s: jobs are {states}")
        time.sleep(_POLL_S)


def _cancel(client: Client, jobs: Sequence[int]) -> None:
    for job in jobs:
        client.cancel(job)
    _await(client, jobs, lambda: not any(_runs(client, job) for job in jobs))


def _runs(client: Client, job: int) -> bool:
    return any(row.ended_s is None for row in client.attempts(job))


def _is_up(client: Client, name: str) -> bool:
    return any(node.name == name and node.state == "up" for node in client.nodes())


def _is_resumed(row: AttemptView) -> bool:
    return row.origin.startswith(RESUMED)


def _durations(rows: Sequence[AttemptView]) -> tuple[list[float], list[float]]:
    """Seconds to leave a device, and to train on it. What is parked saves once it has left."""
    leave = [row.stop_s if _is_resumed(row) else row.stop_s + max(row.save_s, 0.0) for row in rows]
    begin = [row.start_s + row.load_s for row in rows]
    return leave, begin


def _sums(leave: Sequence[float], begin: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(leave, begin, strict=True)]
