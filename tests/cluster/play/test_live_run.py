"""What a live cluster did, as the tables of a simulation."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.play.played import FIRST_S, OFFSET, attempt_view, job_view, live_run

from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.model.job import Arrival
from fairlead.simulator.recording.metrics import measure
from fairlead.simulator.recording.run_tables import RunTables

STATES = {
    AttemptEnd.PREEMPTED: "preempted",
    AttemptEnd.COMPLETED: "completed",
    AttemptEnd.FAILED: "dropped",
}
A0, A1, B0, C0 = ("a", 0), ("a", 1), ("b", 0), ("c", 0)


def _tables(jobs: list, attempts: list, rounds: list[float]) -> RunTables:  # type: ignore[type-arg]
    return RunTables.of(live_run(jobs, attempts, rounds).record())


def _row(table: pl.DataFrame, job: int) -> dict[str, object]:
    return table.filter(pl.col("job") == job).row(0, named=True)


def test_a_job_that_is_preempted_runs_until_the_round_that_ended_it() -> None:
    """What it does while it stops is in the round of whoever came after it."""
    tables = _tables(
        [job_view(0, 0.0, 28.0), job_view(1, 1.0, 15.0)],
        [
            attempt_view(
                0,
                1,
                [A0],
                0.0,
                10.3,
                trained_s=1.0,
                to_step=40.0,
                end=AttemptEnd.PREEMPTED,
                stop_s=0.3,
            ),
            attempt_view(1, 1, [A0], 10.0, 15.0, trained_s=10.5, end=AttemptEnd.COMPLETED),
            attempt_view(
                0, 2, [A1], 20.01, 28.0, trained_s=21.0, from_step=40.0, end=AttemptEnd.COMPLETED
            ),
        ],
        [0.0, 10.0, 20.0],
    )
    first = _row(tables.jobs, 0)
    assert (first["jct_s"], first["run_s"], first["steps_done"]) == (28.0, 18.0, 100.0)
    assert (first["start_s"], first["end"], first["restarts"]) == (0.0, "completed", 1)
    assert first["restart_lost_s"] == pytest.approx(2.0)
    second = _row(tables.jobs, 1)
    assert (second["jct_s"], second["run_s"], second["start_s"]) == (14.0, 5.0, 10.0)
    intervals = tables.placement_intervals.sort("start_s")
    assert intervals["end_s"].to_list() == [10.0, 15.0, 28.0]
    assert intervals["devices"].to_list() == [[2], [2], [3]], "k80 comes first"
    assert tables.rounds["active"].to_list() == [1, 2, 1]
    assert tables.rounds["busy_v100"].to_list() == [10.0, 5.0, 8.0]
    assert tables.rounds["preempted"].sum() == 1


def test_a_job_runs_on_over_many_rounds() -> None:
    tables = _tables(
        [job_view(0, 0.0, 37.0)],
        [attempt_view(0, 1, [A0], 0.0, 37.0, end=AttemptEnd.COMPLETED)],
        [0.0, 10.0, 20.0, 30.0],
    )
    assert _row(tables.jobs, 0)["run_s"] == 37.0
    assert _row(tables.jobs, 0)["restarts"] == 0
    assert len(tables.placement_intervals) == 1


def test_rounds_that_nobody_kept_are_known_by_their_starts() -> None:
    tables = _tables(
        [job_view(0, 0.0, 12.0), job_view(1, 0.0, 24.0)],
        [
            attempt_view(0, 1, [A0], 0.0, 12.0, end=AttemptEnd.COMPLETED),
            attempt_view(1, 1, [A0], 14.0, 24.0, end=AttemptEnd.COMPLETED),
        ],
        [0.0],
    )
    assert tables.rounds["time_s"].to_list() == [0.0, 14.0]
    assert tables.rounds["busy_v100"].sum() == 22.0


def test_a_gang_is_on_the_devices_of_all_its_nodes() -> None:
    tables = _tables(
        [job_view(0, 0.0, 9.0, scale_factor=2)],
        [attempt_view(0, 1, [A1, C0], 0.0, 9.0, end=AttemptEnd.COMPLETED)],
        [0.0],
    )
    assert tables.placement_intervals["devices"].to_list() == [[3, 4]]
    assert tables.rounds["busy_v100"].to_list() == [18.0]


def test_jobs_that_share_a_device_are_a_pair() -> None:
    tables = _tables(
        [job_view(0, 0.0, 9.0), job_view(1, 0.0, 8.0)],
        [
            attempt_view(0, 1, [A0], 0.0, 9.0, end=AttemptEnd.COMPLETED),
            attempt_view(1, 1, [A0], 0.0, 8.0, end=AttemptEnd.COMPLETED),
        ],
        [0.0],
    )
    assert tables.placement_intervals["partner"].drop_nulls().len() > 0
    assert tables.rounds["busy_v100"].to_list() == [9.0]


@pytest.mark.parametrize("state", ["cancelled", "dropped", "killed"])
def test_jobs_end_as_they_did(state: str) -> None:
    """Also those that never ran, and steps that were lost do not count."""
    run = live_run(
        [
            job_view(0, 0.0, 9.0, state=state, steps=30.0),
            job_view(1, 2.0, 5.0, state=state, steps=0.0),
        ],
        [attempt_view(0, 1, [B0], 0.0, 9.0, to_step=30.0, end=AttemptEnd.FAILED)],
        [0.0],
    )
    recorder = run.record()
    tables = RunTables.of(recorder)
    assert tables.jobs["end"].to_list() == [state, state]
    assert tables.jobs["steps_done"].to_list() == [30.0, 0.0]
    assert tables.jobs["start_s"].to_list() == [0.0, None]
    metrics = measure(recorder, tables.jobs, None, False)
    assert metrics[f"n_{state}"] == 2
    assert metrics["avg_jct_s"] is None
    assert metrics["makespan_s"] == 9.0


def test_a_job_that_has_not_ended_has_run_until_now() -> None:
    tables = _tables(
        [job_view(0, 0.0, 20.0), job_view(1, 0.0, None, steps=50.0)],
        [
            attempt_view(0, 1, [A0], 0.0, 20.0, end=AttemptEnd.COMPLETED),
            attempt_view(1, 1, [A1], 0.0, None),
        ],
        [0.0, 10.0],
    )
    found = _row(tables.jobs, 1)
    assert (found["end"], found["run_s"], found["jct_s"]) == ("unfinished", 20.0, None)


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[JobView], list[AttemptView], list[float]]:
    """Devices on which short and long attempts follow each other, as rounds that end early make them. Some
    samples are thinned out."""
    jobs: dict[int, list[AttemptView]] = {}
    begins: list[float] = []
    for device in (A0, A1, C0):
        now_s, free_s = draw(st.sampled_from([0.0, 0.7])), 0.0
        for _ in range(draw(st.integers(0, 5))):
            late_s = draw(st.sampled_from([0.0, 0.01, 0.3]))
            long_s = draw(st.sampled_from([0.05, 0.4, 3.0, 25.0]))
            goes_on = [
                job
                for job, own in jobs.items()
                if own[-1].end is AttemptEnd.PREEMPTED
                and (own[-1].ended_s or 0.0) - FIRST_S < now_s
            ]
            job = draw(st.sampled_from([*goes_on, len(jobs)]))
            own = jobs.setdefault(job, [])
            end = draw(st.sampled_from(list(STATES)))
            tail_s = (
                0.0 if end is not AttemptEnd.PREEMPTED else draw(st.sampled_from([0.0, 0.02, 0.2]))
            )
            done = own[-1].to_step if own else 0.0
            began_s = now_s + late_s
            trained_s = max(began_s + long_s / 10, free_s)
            stopped_s = max(began_s + long_s, trained_s + 0.01)
            free_s = stopped_s + tail_s
            begins.append(now_s)
            own.append(
                attempt_view(
                    job,
                    len(own) + 1,
                    [device],
                    began_s,
                    free_s,
                    stop_s=tail_s,
                    from_step=done,
                    to_step=100.0 if end is AttemptEnd.COMPLETED else min(done + 10.0, 90.0),
                    trained_s=trained_s,
                    end=end,
                )
            )
            now_s = stopped_s + draw(st.sampled_from([0.0, 0.5]))
    views = []
    for job, own in jobs.items():
        last, submitted_s = own[-1], own[0].began_s - FIRST_S
        ended_s = None if last.end is AttemptEnd.PREEMPTED else (last.ended_s or 0.0) - FIRST_S
        state = STATES[last.end or AttemptEnd.PREEMPTED]
        views.append(job_view(job, submitted_s, ended_s, steps=last.to_step, state=state))
    samples = sorted({at for at in begins if draw(st.integers(0, 4))})
    return views, [one for own in jobs.values() for one in own], samples


@given(_histories())
def test_tables_agree_with_each_other_and_with_what_was_done(
    history: tuple[list[JobView], list[AttemptView], list[float]],
) -> None:
    views, attempts, samples = history
    if not views:
        return
    tables = RunTables.of(live_run(views, attempts, samples).record())
    assert set(tables.placement_intervals["job"]) <= {one.id - OFFSET for one in views}
    for view in views:
        row = _row(tables.jobs, view.id - OFFSET)
        assert row["steps_done"] == pytest.approx(view.steps)
        assert row["start_s"] is not None
        own = [one for one in attempts if one.job == view.id]
        held_s = sum((one.ended_s or 0.0) - one.began_s for one in own)
        assert row["run_s"] == pytest.approx(held_s, abs=0.6 * len(own))
    assert tables.rounds["busy_v100"].sum() == pytest.approx(tables.jobs["run_s"].sum())
    used = tables.placement_intervals.explode("devices").sort("devices", "start_s")
    for _, group in used.group_by("devices"):
        ends, starts = group["end_s"].to_list()[:-1], group["start_s"].to_list()[1:]
        assert all(end <= start + 1e-9 for end, start in zip(ends, starts, strict=True))


def test_a_program_that_cannot_be_started_has_held_its_devices() -> None:
    attempt = attempt_view(
        0, 1, [A0], 0.0, 2.0, trained_s=None, to_step=0.0, wait_s=-1.0, end=AttemptEnd.FAILED
    )
    tables = _tables([job_view(0, 0.0, 2.0, state="dropped", steps=0.0)], [attempt], [0.0])
    row = _row(tables.jobs, 0)
    assert (row["start_s"], row["run_s"], row["restart_lost_s"]) == (0.0, 2.0, 2.0)


def test_a_node_that_has_left_counts_with_the_devices_that_were_used() -> None:
    run = live_run(
        [job_view(0, 0.0, 9.0)],
        [attempt_view(0, 1, [("gone", 3)], 0.0, 9.0, end=AttemptEnd.COMPLETED)],
        [0.0],
    )
    tables = RunTables.of(run.record())
    assert _row(tables.jobs, 0)["run_s"] == 9.0
    assert tables.rounds["capacity_v100"].to_list() == [8.0]
    (note,) = run.notes()
    assert note == "node gone came or went meanwhile: it is counted for the whole time"


def test_jobs_that_were_submitted_for_another_tenant_say_so() -> None:
    run = live_run([job_view(0, 0.0, 9.0)], [], [0.0])
    wanted = replace(run.plan.jobs[0].arrival.job, tenant="apes")
    one = replace(run.plan.jobs[0], arrival=Arrival(0.0, wanted))
    run = replace(run, plan=replace(run.plan, jobs=[one]))
    assert run.notes() == ("jobs were submitted for t, not for the tenants of the trace",)
    assert run.arrivals()[0].job.tenant == "t"


def test_starts_cost_what_they_took() -> None:
    run = live_run(
        [job_view(0, 0.0, 40.0)],
        [
            attempt_view(0, 1, [A0], 0.0, 10.0, trained_s=2.0, end=AttemptEnd.PREEMPTED),
            attempt_view(0, 2, [A0], 20.0, 30.0, trained_s=20.5, origin="resumed at step 5"),
            attempt_view(0, 3, [A0], 30.0, 40.0, trained_s=34.0, end=AttemptEnd.COMPLETED),
            attempt_view(0, 4, [A0], 40.0, 40.0, trained_s=None),
        ],
        [0.0],
    )
    assert run.start_costs() == (3.0, 0.5)
