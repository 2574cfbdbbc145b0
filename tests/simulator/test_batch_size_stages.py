"""Jobs that change their batch size in the default world."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tests.job_types import job_types

from fairlead.analysis.simulate import simulate
from fairlead.model.adaptation import Adaptation, Mode, steps_per_epoch
from fairlead.model.cluster import SlotType
from fairlead.model.commands import StartRound
from fairlead.model.events import (
    Event,
    RequirementsChanged,
    RoundEnded,
)
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.journal import (
    decode,
    records,
    replay,
)
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.recording.metrics import Result

BATCHES = (8, 16, 32, 64)
SAMPLES = 1_000
KINDS = tuple((f"net (batch size {b})", scale) for b in BATCHES for scale in (1, 2))
RATES = np.array([[10.0, 4.0], [18.0, 7.0], [7.0, 3.5], [12.0, 6.0], [5.0, 1.5], [9.0, 2.0],
                  [3.0, 1.2], [5.5, 2.0]])  # fmt: skip
TABLE = Throughputs((SlotType("a"), SlotType("b")), job_types(*KINDS), RATES)


def job(
    number: int,
    epochs: float,
    schedule: tuple[tuple[int, int], ...],
    time_s: float = 0.0,
    scale: int = 1,
) -> Arrival:
    first = schedule[0][1]
    adaptation = Adaptation(Mode.SCHEDULE, SAMPLES, epochs, schedule)
    steps = epochs * steps_per_epoch(SAMPLES, first)
    family = f"net (batch size {first})"
    return Arrival(time_s, Job(JobId(number), family, scale, steps, adaptation=adaptation))


def run(arrivals: list[Arrival], cluster: str = "a=1", policy: str = "las", **more: Any) -> Result:
    return simulate(arrivals, cluster, policy, throughputs=TABLE, **more)


def alone_s(one: Job, slot: int = 0) -> float:
    """Seconds that a job takes alone, epoch by epoch."""
    assert one.adaptation is not None
    table = dict(zip(KINDS, RATES[:, slot].tolist(), strict=True))
    total = 0.0
    for batch, epochs in zip(one.adaptation.batches, one.adaptation.epochs_in, strict=True):
        rate = table[(f"net (batch size {batch})", one.scale_factor)]
        total += epochs * steps_per_epoch(SAMPLES, batch) / rate
    return total


@st.composite
def schedules(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    starts = sorted(draw(st.sets(st.integers(1, 40), max_size=6)))
    batches = draw(st.lists(st.sampled_from(BATCHES), min_size=len(starts) + 1,
                            max_size=len(starts) + 1))  # fmt: skip
    return tuple(zip([0, *starts], batches, strict=True))


@settings(max_examples=60)
@given(schedule=schedules(), epochs=st.floats(0.3, 45.0), round_s=st.floats(20.0, 900.0))
def test_alone_a_job_takes_the_time_of_its_profile(
    schedule: tuple[tuple[int, int], ...], epochs: float, round_s: float
) -> None:
    """However its stages and the rounds fall."""
    arrival = job(0, epochs, schedule)
    result = run([arrival], round_s=round_s)
    row = result.jobs.row(0, named=True)
    assert row["jct_s"] == pytest.approx(alone_s(arrival.job), rel=1e-9)
    assert row["exclusive_run_s"] == pytest.approx(row["jct_s"], rel=1e-9)
    assert row["rho_static"] == pytest.approx(1.0, rel=1e-9)
    assert row["steps_done"] == pytest.approx(row["total_steps"], rel=1e-9)


def small_steps(one: Job, stop_at_s: float, step_s: float = 0.05) -> float:
    """Epochs done by a job alone on type a, by brute force."""
    assert one.adaptation is not None
    rate = dict(zip(KINDS, RATES[:, 0].tolist(), strict=True))
    progress, stages = 0.0, dict(one.adaptation.schedule)
    for _ in range(round(stop_at_s / step_s)):
        batch = stages[max(first for first in stages if first <= progress)]
        speed = rate[(f"net (batch size {batch})", one.scale_factor)]
        progress += speed / steps_per_epoch(SAMPLES, batch) * step_s
        if progress >= one.adaptation.epochs:
            return one.adaptation.epochs
    return progress


@settings(max_examples=15)
@given(schedule=schedules(), stop_at_s=st.floats(50.0, 600.0))
def test_a_round_that_is_cut_counts_what_was_done_by_then(
    schedule: tuple[tuple[int, int], ...], stop_at_s: float
) -> None:
    arrival = job(0, 50.0, schedule)
    row = run([arrival], stop_at_s=stop_at_s, round_s=10_000.0).jobs.row(0, named=True)
    done = row["steps_done"] / row["total_steps"] * 50.0
    assert done == pytest.approx(small_steps(arrival.job, stop_at_s), abs=0.02)


def epochs_counted(jobs: list[Job], folder: Path) -> dict[int, float]:
    """Epochs done by each job, from the steps in a journal and the batch sizes in force."""
    batch = {int(one.id): one.adaptation.schedule[0][1] for one in jobs if one.adaptation}
    done = dict.fromkeys(batch, 0.0)
    groups: list[list[int]] = []
    change: RequirementsChanged | None = None
    for record in map(decode, records(folder / "journal")):
        match record:
            case StartRound():
                groups = record.job_groups.tolist()
            case RequirementsChanged():
                change = record
            case RoundEnded():
                for group, steps in zip(groups, record.steps.tolist(), strict=True):
                    for number, count in zip(group, steps, strict=True):
                        if number >= 0:
                            done[number] += count / steps_per_epoch(SAMPLES, batch[number])
                if change is not None:
                    batch |= zip(change.jobs.tolist(), change.batch.tolist(), strict=True)
                    change = None
    return done


ACCIDENTS = GroundTruth(
    RestartCosts(15.0), rate_noise=0.2, rate_bias=0.2, mtbf_s=9_000.0, mttr_s=500.0, seed=3
)


@pytest.mark.parametrize("policy", ["las", "las_aware", "fifo", "las_packed", "shockwave"])
@pytest.mark.parametrize("profile", ["default", "gavel"])
@pytest.mark.parametrize("ground_truth", [GroundTruth(), ACCIDENTS], ids=["calm", "rough"])
def test_no_work_is_lost_or_given_away(
    policy: str, profile: str, ground_truth: GroundTruth, tmp_path: Path
) -> None:
    """Epochs done add up to those of the job, counted from the journal; and the journal replays."""
    rng = np.random.default_rng(5)
    arrivals = []
    for number in range(12):
        starts = np.unique(rng.integers(1, 30, 4)).tolist()
        sizes = rng.choice(BATCHES, len(starts) + 1).tolist()
        schedule = tuple(zip([0, *starts], sizes, strict=True))
        epochs = float(rng.uniform(1, 40))
        # Gavel drops a job that has fewer whole steps left than devices
        scale = int(rng.choice([1, 2])) if profile == "default" else 1
        arrivals.append(job(number, epochs, schedule, 100.0 * number, scale))
    table = replace(TABLE, colocated_rate=pairs()) if policy == "las_packed" else TABLE
    result = simulate(
        arrivals,
        "a=2,b=2",
        policy,
        throughputs=table,
        profile=profile,
        ground_truth=ground_truth,
        out=tmp_path,
    )
    assert result.metrics["n_completed"] == 12
    done = epochs_counted([a.job for a in arrivals], tmp_path)
    for arrival in arrivals:
        assert arrival.job.adaptation is not None
        assert done[arrival.job.id] == pytest.approx(arrival.job.adaptation.epochs, rel=1e-9)
    fractions = result.jobs["steps_done"] / result.jobs["total_steps"]
    assert fractions.to_list() == pytest.approx([1.0] * 12)
    replay(tmp_path / "journal")


def pairs() -> Any:
    """Rates beside another: seven tenths of those alone."""
    return np.broadcast_to(0.7 * RATES[:, None, :], (len(KINDS), len(KINDS), 2)).copy()


def test_the_change_is_told_before_the_end_of_its_round(tmp_path: Path) -> None:
    """At the same time; what the core is told is the state after the round."""
    run([job(0, 20.0, ((0, 8), (4, 32)))], out=tmp_path, round_s=100.0)
    events = [r for r in map(decode, records(tmp_path / "journal")) if isinstance(r, Event)]
    at = next(i for i, e in enumerate(events) if isinstance(e, RequirementsChanged))
    change, end = events[at], events[at + 1]
    assert isinstance(change, RequirementsChanged)
    assert isinstance(end, RoundEnded)
    assert change.time_s == end.time_s == pytest.approx(100.0)
    # 4 epochs of 125 steps at 10/s take 50 s; 50 s at 5/s are 250 steps of the new size, 32 to an epoch
    assert change.batch.tolist() == [32]
    assert change.total_steps.tolist() == pytest.approx([20 * 32])
    assert change.steps_done.tolist() == pytest.approx([4 * 32 + 250])
    assert end.steps.tolist() == [pytest.approx([4 * 125 + 250 / 32 * 125])]


def test_policies_solve_again_when_a_batch_size_changes() -> None:
    static = run([job(0, 20.0, ((0, 8),))], round_s=100.0)
    adapting = run([job(0, 20.0, ((0, 8), (9, 16)))], round_s=100.0)
    assert adapting.metrics["n_solves"] == static.metrics["n_solves"] + 1


def test_a_job_waits_where_its_next_batch_size_cannot_run() -> None:
    """It runs on type b until then, and moves to the other type, which is free, after that round."""
    rates = RATES.copy()
    rates[2, 0] = 0.0  # batch size 16 does not fit type a
    table = replace(TABLE, rate=rates)
    one = job(0, 10.0, ((0, 8), (4, 16)))
    result = simulate([one], "a=1,b=1", "las_aware", throughputs=table, round_s=100.0)
    assert result.metrics["n_completed"] == 1
    per_epoch = steps_per_epoch(SAMPLES, 16)
    assert result.jobs["jct_s"][0] == pytest.approx(100.0 + 6 * per_epoch / 3.5)


def test_an_early_end_is_the_same_part_of_the_job() -> None:
    arrivals = [job(n, 20.0, ((0, 8), (5, 32), (10, 64))) for n in range(30)]
    ended = run(arrivals, "a=30", ground_truth=GroundTruth(early_termination=0.7, seed=2)).jobs
    draws = {
        n: GroundTruth(early_termination=0.7, seed=2).last_step(a.job)
        for n, a in enumerate(arrivals)
    }
    killed = ended.filter(ended["end"] == "killed")
    assert len(killed) > 10
    for row in killed.iter_rows(named=True):
        assert row["steps_done"] == pytest.approx(draws[row["job"]], rel=1e-9)


def test_an_interrupted_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    arrivals = [job(n, 25.0, ((0, 8), (5, 32), (10, 16)), 40.0 * n) for n in range(6)]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    expected = run(arrivals, "a=2", out=whole, ground_truth=ACCIDENTS)
    calls = iter(range(10_000))
    run(arrivals, "a=2", out=cut, ground_truth=ACCIDENTS, stop=lambda: next(calls) > 60)
    again = run(arrivals, "a=2", out=cut, ground_truth=ACCIDENTS, resume=True)
    assert again.metrics["journal_sha256"] == expected.metrics["journal_sha256"]
    data = (whole / "journal").read_bytes()
    assert hashlib.sha256(data).hexdigest() == expected.metrics["journal_sha256"]
