"""The process that runs points; ``runner.Worker`` starts it.

It reads points from a socket, answers each, and ends with that socket or with its parent. Before the
answer it may say how far a point has come.
"""

import io
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from math import nan
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import msgspec

from fairlead.analysis.experiments.point import Point, Status
from fairlead.analysis.experiments.result_store import PointAnswer
from fairlead.errors import FairleadError
from fairlead.model.child_signals import end_with_parent

if TYPE_CHECKING:
    import polars as pl

    from fairlead.simulator.simulation_run import SimulationRun

READY = b"ready"
REPORT_EVERY_S = 0.5
TIMING_METRICS = ("cpu_s", "solve_s")  # metrics that differ from run to run

ReportProgress = Callable[[float, str], None]


class WorkerMessage(msgspec.Struct, array_like=True):
    """A message to the parent: how far a point has come or, at its end, the answer."""

    done: float = 0.0  # part of it; nan: nobody knows
    note: str = ""
    answer: PointAnswer | None = None


def main(fd: int, parent: int) -> None:
    """Serve until the socket is closed. fd: of the socket; parent: process id of who started this."""
    import fairlead.simulator.simulation_run  # noqa: F401 - no point's seconds shall include it

    end_with_parent(parent)
    os.dup2(2, 1)  # what a solver prints is no answer to anybody
    with Connection(fd) as socket:
        socket.send_bytes(READY)
        try:
            while True:
                point = msgspec.msgpack.decode(socket.recv_bytes(), type=Point)
                answer = answer_for(point, _ProgressSender(socket))
                socket.send_bytes(msgspec.msgpack.encode(WorkerMessage(1.0, "", answer)))
        except (EOFError, OSError):
            return


def answer_for(point: Point, report: ReportProgress) -> PointAnswer:
    """Run a point; whatever goes wrong is the answer."""
    began = time.process_time()
    try:
        answer = _measured(point, report)
    except FairleadError as problem:
        answer = PointAnswer(Status.FAILED, reason=str(problem))
    except MemoryError:
        answer = PointAnswer(Status.FAILED, reason="out of memory")
    except Exception as problem:
        text = str(problem).partition("\n")[0]
        reason = type(problem).__name__ + (f": {text}" if text else "")
        answer = PointAnswer(Status.FAILED, reason=reason, trace=traceback.format_exc())
    return replace(answer, seconds=time.process_time() - began)


def _measured(point: Point, report: ReportProgress) -> PointAnswer:
    from fairlead.analysis.experiments.divergence import run_until_diverged

    run = point.input.prepare(point.policy, point.profile)
    total = run.n_measured

    def watch(done: float, note: str = "") -> None:
        report(done / total if total else nan, note)

    result, reason = run_until_diverged(run, watch)
    if not result.complete:
        return PointAnswer(Status.DIVERGED, reason=reason)
    metrics = {k: v for k, v in result.metrics.items() if k not in TIMING_METRICS}
    return PointAnswer(Status.COMPLETE, metrics, jobs=_parquet(_of_window(run, result.jobs)))


def _of_window(run: "SimulationRun", jobs: "pl.DataFrame") -> "pl.DataFrame":
    window = run.options.measured_jobs
    return jobs if window is None else jobs.slice(window[0], window[1] - window[0])


def _parquet(table: "pl.DataFrame") -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="lz4", statistics=False)
    return buffer.getvalue()


class _ProgressSender:
    """Tells the parent how far a point has come, but not at every round."""

    def __init__(self, socket: Connection) -> None:
        self.socket = socket
        self.next_s = 0.0

    def __call__(self, done: float, note: str) -> None:
        now_s = time.monotonic()
        if now_s >= self.next_s:
            self.next_s = now_s + REPORT_EVERY_S
            self.socket.send_bytes(msgspec.msgpack.encode(WorkerMessage(done, note)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
