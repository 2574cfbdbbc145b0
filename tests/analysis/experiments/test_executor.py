"""Workers die, points fail, time runs out: each costs its point, and the reason is told."""

import os
import signal
from pathlib import Path

import polars as pl
from tests.analysis.experiments.small_points import (
    LONG,
    endless,
    point,
)

from fairlead.analysis.experiments.executor import (
    Limits,
    Processes,
    Worker,
    run_points,
)
from fairlead.analysis.experiments.point import PointResult, Status
from fairlead.analysis.experiments.result_store import ResultStore


def test_points_run_and_are_kept(tmp_path: Path) -> None:
    """One that cannot be run is among them; equal ones run once; the second time nothing runs."""
    points = [point(0), point(policy="no-such"), endless(0.1), point(0)]
    ended: list[PointResult] = []
    store = ResultStore(tmp_path)
    outcomes = run_points(points, store, Processes(1), Limits(), ended=ended.append)
    assert [one.status for one in outcomes] == ["complete", "failed", "complete", "complete"]
    assert "no-such" in outcomes[1].reason
    assert outcomes[0] == outcomes[3]
    assert len(ended) == 3
    assert outcomes[0].metrics["n_completed"] == 6
    assert not {"cpu_s", "solve_s"} & outcomes[0].metrics.keys()
    assert pl.read_parquet(outcomes[0].jobs)["job"].to_list() == list(range(6))
    assert pl.read_parquet(outcomes[2].jobs)["job"].to_list() == list(range(20, 30))
    ended.clear()
    again = run_points([points[0], points[2]], store, Processes(1), Limits(), ended=ended.append)
    assert again == [outcomes[0], outcomes[2]]
    assert not ended


def test_a_worker_that_dies_gets_another_try() -> None:
    worker = Worker(Limits())
    killed: list[int] = []

    def kill_once(_done: float, _note: str) -> None:
        if not killed:
            killed.append(_kill(worker))

    try:
        assert worker.run(endless(0.1), kill_once).status is Status.COMPLETE
    finally:
        worker.close()
    assert killed


def test_a_point_whose_workers_always_die_has_failed() -> None:
    worker = Worker(Limits())
    killed: list[int] = []
    answer = worker.run(LONG, lambda _done, _note: killed.append(_kill(worker)))
    assert answer.status is Status.FAILED
    assert answer.reason == "the worker was killed by signal 9 (out of memory?)"
    assert len(set(killed)) == 2


def _kill(worker: Worker) -> int:
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_time_has_a_limit_and_more_of_it_is_another_try(tmp_path: Path) -> None:
    store, slow = ResultStore(tmp_path), [endless(0.1, "200:210")]
    [one] = run_points(slow, store, Processes(1), Limits(timeout_s=0.01))
    assert (one.status, one.reason) == (Status.TIMED_OUT, "it had not ended after 0.01 s")
    ended: list[PointResult] = []
    run_points(slow, store, Processes(1), Limits(timeout_s=0.005), ended=ended.append)
    assert not ended
    [one] = run_points(slow, store, Processes(1), Limits(timeout_s=100), ended=ended.append)
    assert one.status is Status.COMPLETE
