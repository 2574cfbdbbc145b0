"""The world of Shockwave's release, oddity by oddity (whole runs: tests/golden/test_shockwave_baselines)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.analysis.simulate import simulate
from fairlead.model.adaptation import Mode
from fairlead.model.batch_size_rules import batch_schedule
from fairlead.model.cluster import SlotType
from fairlead.model.events import RequirementsChanged
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.journal import (
    decode,
    records,
    replay,
)
from fairlead.scheduler.mechanism.settings import SHOCKWAVE
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.recording.metrics import Result

LM = {5: 20.0, 10: 14.0, 20: 10.0, 40: 7.0, 80: 5.0}  # steps/s by batch size
TABLE = Throughputs(
    (SlotType("v100"),),
    tuple(JobType.parse(f"LM (batch size {batch})", scale) for batch in LM for scale in (1, 2)),
    np.repeat(list(LM.values()), 2)[:, None],
)


def job(
    number: int, steps: float, mode: Mode | None = None, time_s: float = 0.0, batch: int = 10
) -> Arrival:
    """A language model of 5,968 steps (at batch size 10) to an epoch."""
    family = f"LM (batch size {batch})"
    adaptation = None if mode is None else batch_schedule(family, 1, steps, mode)
    return Arrival(time_s, Job(JobId(number), family, 1, steps, adaptation=adaptation))


def run(arrivals: list[Arrival], devices: int = 1, policy: str = "las", **more: Any) -> Result:
    more = {"profile": "shockwave", **more}
    return simulate(arrivals, f"v100={devices}", policy, throughputs=TABLE, **more)


def recorded(folder: Path, *who: list[int]) -> str:
    """The recording as the name of a policy."""
    rows = ["{" + ", ".join(f'"{job}": [{i}]' for i, job in enumerate(jobs)) + "}" for jobs in who]
    file = folder / "rounds.json"
    file.write_text(f'{{"per_round_schedule": [{", ".join(rows)}]}}')
    return f"recorded:{file}"


def test_a_job_that_did_not_run_before_loses_20_s(tmp_path: Path) -> None:
    """Steps only: its round ends when it would have. The first round of all is free."""
    jobs = [job(0, 2_800.0), job(1, 5_040.0)]
    policy = recorded(tmp_path, [0], [1], [1], [1], [1], [0])
    result = run(jobs, policy=policy)
    done = result.jobs["jct_s"].to_list()
    # 14 steps/s, 1680 in a round, in that after a pause 1400 in 120 s; less than 115 s cost nothing
    assert done[1] == pytest.approx(120 + 3 * 120 + (5_040 - 1_400 - 2 * 1_680) / 14)
    assert done[0] == pytest.approx(done[1] + (2_800 - 1_680) / 14)
    assert result.jobs["restart_lost_s"].to_list() == [0.0, 20.0]
    assert result.metrics["restart_lost_s"] == 20.0


def test_another_loss_may_be_named(tmp_path: Path) -> None:
    jobs = [job(0, 1_680.0), job(1, 5_040.0)]
    policy = recorded(tmp_path, [0], *[[1]] * 4)
    result = run(jobs, policy=policy, ground_truth=GroundTruth(RestartCosts(60.0)))
    assert result.jobs["restart_lost_s"].to_list() == [0.0, 60.0]


def test_time_lost_is_not_charged(tmp_path: Path) -> None:
    """Gavel's utilization leaves it out, and so do the accounts."""
    jobs = [job(0, 1_680.0), job(1, 3_080.0)]
    result = run(jobs, policy=recorded(tmp_path, [0], [1], [1]))
    assert result.metrics["makespan_s"] == pytest.approx(360.0)
    assert result.metrics["gavel_utilization"] == pytest.approx(340 / 360)
    assert result.metrics["utilization"] == pytest.approx(1.0)


def test_a_job_is_ended_after_half_again_the_time_that_it_states() -> None:
    """At the end of the round in which it passes that; not at once. It counts as completed."""
    plain = job(0, 5_040.0)
    stated = Arrival(0.0, replace(plain.job, duration_s=100.0))
    for arrival, jct_s, forced in ((plain, 360.0, 0), (stated, 240.0, 1)):
        result = run([arrival])
        assert result.jobs["jct_s"].to_list() == [pytest.approx(jct_s)]
        assert result.metrics["n_completed"] == 1
        assert result.metrics["n_forced"] == forced


def test_rescaling_lags_by_a_round_of_the_job_and_rounds_up(tmp_path: Path) -> None:
    """LM at batch size 10 doubles at epoch 11; flagged with 10 epochs begun or done, changed a round
    later, when the epoch that was begun becomes a whole one."""
    result = run([job(0, 20 * 5_968.0, Mode.GNS)], out=tmp_path, policy="las")
    first = next(
        r for r in map(decode, records(tmp_path / "journal")) if isinstance(r, RequirementsChanged)
    )
    flagged = -(-9 * 5_968 // 1_680) * 120.0  # the round in which the tenth epoch is begun
    assert first.time_s == pytest.approx(flagged + 120.0)
    begun = -(-(first.time_s * 14) // 5_968)
    assert first.batch.tolist() == [20]
    assert first.steps_done.tolist() == [begun * 2_984]
    assert first.total_steps.tolist() == [20 * 2_984]
    assert result.metrics["n_completed"] == 1
    replay(tmp_path / "journal")


def test_a_job_without_steps_left_is_done_after_five_empty_rounds(tmp_path: Path) -> None:
    """An epoch rounded up can be the last. The release then finds five failed attempts, and counts the
    job as completed."""
    result = run([job(0, 20 * 5_968.0, Mode.GNS)], out=tmp_path)
    row = result.jobs.row(0, named=True)
    assert row["end"] == "completed"
    assert row["steps_done"] == pytest.approx(row["total_steps"])
    empty = result.rounds.filter((result.rounds["seconds"] == 0) & (result.rounds["running"] > 0))
    assert len(empty) == 5
    replay(tmp_path / "journal")


def test_no_policy_is_solved_again_for_a_change() -> None:
    one, static = job(0, 19 * 5_968.0, Mode.GNS), job(0, 19 * 5_968.0)
    at_once = replace(SHOCKWAVE, solve_interval_s=0.0)
    solves = run([static], profile=at_once).metrics["n_solves"]
    assert run([one], profile=at_once).metrics["n_solves"] == solves
    again = replace(at_once, shockwave=replace(at_once.shockwave, solve_on_adaptation=True))
    assert run([one], profile=again).metrics["n_solves"] > solves


def test_running_alone_is_measured_by_the_profile() -> None:
    """Which the simulated job does not follow: rho of a job alone is below 1."""
    row = run([job(0, 20 * 5_968.0, Mode.GNS)]).jobs.row(0, named=True)
    alone_s = 59_675 * (11 / 10 / LM[10] + 9 / 20 / LM[20])
    assert row["exclusive_run_s"] == pytest.approx(alone_s, rel=1e-12)
    assert row["rho_static"] == pytest.approx(row["jct_s"] / row["exclusive_run_s"])
    assert row["rho_static"] < 1.0
