"""Whole runs under Shockwave: journals, accidents, slow solves; jobs that adapt and jobs that do not."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.analysis.simulate import simulate
from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.cluster import SlotType
from fairlead.model.events import RequirementsChanged, Solved
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.job_type import JobType
from fairlead.model.plan import Schedule
from fairlead.model.throughputs import Throughputs
from fairlead.policies.shockwave.options import DEFAULT, RELEASED
from fairlead.policies.shockwave.planner import Shockwave
from fairlead.scheduler.journal import (
    decode,
    records,
    replay,
    setup_of,
)
from fairlead.simulator.ground_truth import GroundTruth

SIZES = (10, 20, 40)
TABLE = Throughputs(
    (SlotType("fast"), SlotType("slow")),
    tuple(JobType.parse(f"Net (batch size {b})", s) for s in (1, 2) for b in SIZES),
    np.array([[4.0, 1.0], [3.0, 0.5], [2.0, 0.3]] * 2),
)


def arrivals(n: int, seed: int = 0, adapting: bool = True) -> list[Arrival]:
    """Jobs of 2 to 120 epochs on one or two devices; the batch doubles at epochs of their own."""
    rng = np.random.default_rng(seed)
    out = []
    for number, time_s in enumerate(np.sort(rng.uniform(0, 3_000, n)).tolist()):
        epochs = float(rng.integers(2, 120))
        starts = sorted({int(e) for e in rng.integers(1, 120, 2) if e < epochs})
        stages = ((0, 10), *((epoch, SIZES[k + 1]) for k, epoch in enumerate(starts)))
        adaptation = Adaptation(Mode.SCHEDULE, 1_000, epochs, stages) if adapting else None
        scale = int(rng.integers(1, 3))
        job = Job(
            JobId(number), "Net (batch size 10)", scale, epochs * 100.0, adaptation=adaptation
        )
        out.append(Arrival(time_s, job))
    return out


def test_a_run_replays_from_its_journal_alone(tmp_path: Path) -> None:
    """The options are in the journal, the schedules too: nothing is solved again."""
    planner = Shockwave(replace(DEFAULT, rounds=12, power=3.0, replan_every=5))
    result = simulate(
        arrivals(15), "fast=2,slow=3", planner, throughputs=TABLE, round_s=60.0, out=tmp_path
    )
    assert result.metrics["n_completed"] == 15
    assert setup_of(tmp_path / "journal").policy == planner.spec
    count, left = replay(tmp_path / "journal")
    assert left == 0
    found = [decode(record) for record in records(tmp_path / "journal")]
    assert len(found) == count
    changes = [r for r in found if isinstance(r, RequirementsChanged)]
    answers = [r for r in found if isinstance(r, Solved)]
    assert changes
    assert all(isinstance(r.schedule, Schedule) and r.allocation is None for r in answers)


def test_an_interrupted_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    jobs = arrivals(12, seed=3)

    def run(out: Path, **more: Any) -> str:
        result = simulate(
            jobs, "fast=3", "shockwave", throughputs=TABLE, round_s=60.0, out=out, **more
        )
        return str(result.metrics["journal_sha256"])

    whole = run(tmp_path / "whole")
    events = iter(range(40))
    run(tmp_path / "cut", stop=lambda: next(events, None) is None)
    assert run(tmp_path / "cut", resume=True) == whole


def test_where_a_table_was_read_from_is_no_part_of_a_run(tmp_path: Path) -> None:
    """It may be named by another path when the run goes on."""
    events = iter(range(20))
    run = partial(simulate, arrivals(6), "fast=3", "las", out=tmp_path)
    run(throughputs=replace(TABLE, origin="here.csv"), stop=lambda: next(events, None) is None)
    result = run(throughputs=replace(TABLE, origin="/there/here.csv"), resume=True)
    assert result.metrics["n_completed"] == 6


def test_what_a_killed_attempt_to_go_on_has_done_is_kept(tmp_path: Path) -> None:
    run = partial(simulate, arrivals(8), "fast=3", "shockwave", throughputs=TABLE, out=tmp_path)
    whole = run().metrics["journal_sha256"]
    journal, resumed = tmp_path / "journal", tmp_path / "journal.resumed"
    data = journal.read_bytes()
    resumed.write_bytes(data[: len(data) * 3 // 4])
    journal.write_bytes(data[: len(data) // 4])
    events = iter(range(3))
    run(resume=True, stop=lambda: next(events, None) is None)  # killed again, and early
    assert len(journal.read_bytes()) > len(data) // 2
    assert run(resume=True).metrics["journal_sha256"] == whole


@pytest.mark.parametrize("cluster", ["fast=3", "fast=2,slow=4"])
@pytest.mark.parametrize("adapting", [True, False])
def test_everybody_finishes_in_a_world_of_accidents(cluster: str, adapting: bool) -> None:
    ground_truth = GroundTruth(
        RestartCosts(15.0), rate_noise=0.2, rate_bias=0.5, mtbf_s=4_000.0, mttr_s=600.0, seed=1
    )
    result = simulate(
        arrivals(25, seed=5, adapting=adapting),
        cluster,
        "shockwave",
        throughputs=TABLE,
        round_s=60.0,
        ground_truth=ground_truth,
    )
    assert result.metrics["n_completed"] == 25


def test_solves_that_take_time_hold_nobody_up() -> None:
    """Rounds go on with the last schedule, and newcomers take what is idle."""
    jobs = arrivals(12, seed=7)
    quick, slow = (
        simulate(
            jobs, "fast=4", "shockwave", throughputs=TABLE, round_s=60.0, solve_s=solve_s
        ).metrics
        for solve_s in (0.0, 90.0)
    )
    assert slow["n_completed"] == 12
    assert slow["makespan_s"] < 1.3 * quick["makespan_s"]


def test_the_released_planner_runs_in_the_released_world() -> None:
    result = simulate(
        arrivals(15, seed=2), "fast=3", Shockwave(RELEASED), throughputs=TABLE, profile="shockwave"
    )
    assert result.metrics["n_completed"] == 15
