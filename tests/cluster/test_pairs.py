"""Two jobs really share a device under a policy that packs, and are told that they do."""

from concurrent.futures import Future
from pathlib import Path

import pytest
from tests.cluster.cluster import running, until
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.solver import Solver, SolveTimeoutError
from fairlead.cluster.store.store import Store
from fairlead.model.plan import PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler import journal
from fairlead.scheduler.mechanism.settings import MechanismSettings

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "live" / "numpy_job.py"


def _spec(folder: Path, name: str, **fields: object) -> JobSpec:
    return JobSpec(
        command=("python", str(SCRIPT), "--step-ms", "20"),
        total_steps=1_000_000,
        name=name,
        rates={"v100": 50.0},
        checkpoint_dir=str(folder / name),
        cwd="/",
        **fields,  # type: ignore[arg-type]
    )


def test_a_pair_appears_and_where_there_is_none_it_is_said_why(tmp_path: Path) -> None:
    with (
        running(tmp_path, ("--policy", "las_packed"), {"node-a": "v100=1"}) as cluster,
        cluster.client() as client,
    ):
        until(lambda: [n.state for n in client.nodes()] == ["up"])
        (silent,) = client.submit([_spec(tmp_path, "silent")])
        until(lambda: client.job(silent).state == "running")
        until(lambda: "It is in no pair" in client.explain(silent).why_here)
        assert "colocated_fraction in job.toml" in client.explain(silent).why_here
        client.cancel(silent)
        (one,) = client.submit([_spec(tmp_path, "one", colocated_fraction=0.8)])
        (two,) = client.submit([_spec(tmp_path, "two", colocated_fractions={"one": 0.8})])
        both = {one, two}
        until(
            lambda: any(both <= set(jobs) for n in client.nodes() for jobs in n.jobs),
            what="both jobs on one device",
        )
        steps = {job: client.job(job).steps for job in both}
        until(lambda: all(client.job(j).steps > steps[j] + 20 for j in both), what="work")
        assert f"on the same devices as job {two}" in client.explain(one).why_here
        until(
            lambda: all((j := client.job(n)).measured_rate and not j.measured_on for n in both),
            what="rates measured beside another, told as no job's own",
        )
        for job in both:
            client.cancel(job)
        until(lambda: all(client.job(j).state == "cancelled" for j in both))
    assert "Traceback" not in cluster.log()
    with Store(cluster.state) as store:
        number, records = store.segment()
        assert journal.replay_records(records, str(number)) > 0


def test_the_orders_of_a_pair_name_the_other_start(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, policy="las_packed") as cluster:
        one = cluster.node("one")
        one.register()
        first = cluster.submit(name="first", colocated_fraction=0.8)
        cluster.until(lambda: one.jobs == {first})
        (alone,) = one.report().desired
        assert alone.colocated == ()
        second = cluster.submit(name="second", colocated_fractions={"first": 0.8})
        cluster.until(lambda: one.jobs == {first, second})
        a, b = sorted(one.report().desired, key=lambda assignment: assignment.job)
        assert (a.colocated, b.colocated) == (((b.job, b.attempt),), ((a.job, a.attempt),))


def test_jobs_get_shares_alone_where_the_program_with_pairs_has_no_answer_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve, tries = Solver.submit, []

    def slow_with_pairs(
        solver: Solver,
        policy: str,
        seed: int,
        profile: MechanismSettings,
        snapshot: Snapshot,
        state: PlannerState,
    ) -> "Future[PlannerAnswer]":
        tries.append(snapshot.colocated_rate is not None)
        if tries[-1]:
            answer: Future[PlannerAnswer] = Future()
            answer.set_exception(SolveTimeoutError("no answer within 60 s"))
            return answer
        return solve(solver, policy, seed, profile, snapshot, state)

    with engine_nodes(tmp_path, policy="las_packed") as cluster:
        one = cluster.node("one")
        one.register()
        first = cluster.submit(name="first", colocated_fraction=0.8)
        second = cluster.submit(name="second", colocated_fractions={"first": 0.8})
        cluster.until(lambda: one.jobs == {first, second})
        monkeypatch.setattr(Solver, "submit", slow_with_pairs)
        third = cluster.submit(name="third", colocated_fraction=0.8)
        cluster.until(lambda: one.say() and tries[-1:] == [False] and len(one.jobs) == 1)
        cluster.until(lambda: "without pairs" in cluster.service.status(ADMIN).solve)
        assert tries.count(True) == 1, "it is not tried again at once"
        cluster.until(
            lambda: "0.33 of the time" in cluster.service.explain(ADMIN, third).why_here,
            what="a share for the job that came since",
        )
        assert (
            "It is in no pair: shares are without pairs, with them there was no answer within 30 s "
            "(tried again in" in cluster.service.explain(ADMIN, third).why_here
        )


def test_what_a_pair_shares_is_billed_once(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, policy="las_packed") as cluster:
        node = cluster.node("one")
        node.register()
        first = cluster.submit(name="first", colocated_fraction=0.8)
        cluster.until(lambda: node.jobs == {first})
        second = cluster.submit(name="second", colocated_fractions={"first": 0.8})
        cluster.until(lambda: node.jobs == {first, second})

        def shared(store: Store) -> list[float]:
            return [
                sum(attempt.shared_device_s for attempt in store.attempts(job))
                for job in (first, second)
            ]

        cluster.until(lambda: min(shared(cluster.service.store)) > 0, "the end of a round of both")
        for job in (second, first):  # the second is never alone
            cluster.service.cancel(ADMIN, job)
        cluster.until(lambda: node.jobs == set())
    with Store(tmp_path) as store:
        of_first, of_second = shared(store)
        assert of_first == pytest.approx(of_second), "each has had half"
        row = store.job(second)
        assert row is not None
        assert row.device_s == pytest.approx(of_second), "it was in no round by itself"
