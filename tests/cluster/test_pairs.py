"""Two jobs really share a device under a policy that packs, and are told that they do."""

from pathlib import Path

from tests.cluster.cluster import running, until
from tests.cluster.server_nodes import engine_nodes

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.store import Store
from fairlead.scheduler import journal

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
