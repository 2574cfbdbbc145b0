"""A live cluster plans with the rates that it has measured, and knows them after a crash."""

from pathlib import Path

from tests.live.cluster import running, until

from fairlead import journal
from fairlead.core.scheduler import Scheduler
from fairlead.events import RatesLearned
from fairlead.live.spec import JobSpec
from fairlead.live.store import Store
from fairlead.model.job import JobId

SAID, TRUE = 10.0, 100.0  # steps/s


def spec(folder: Path) -> JobSpec:
    script = Path(__file__).resolve().parents[2] / "examples" / "live" / "numpy_job.py"
    return JobSpec(
        command=("python", str(script), "--step-ms", str(1000 / TRUE)),
        total_steps=1_000_000,
        rates={"v100": SAID},
        checkpoint_dir=str(folder / "job"),
        cwd="/",
    )


def test_measured_rates_are_planned_with_and_outlive_the_server(tmp_path: Path) -> None:
    options = ("--estimator", "fairlead")
    with running(tmp_path, options, {"node-a": "v100=1"}) as cluster:
        with cluster.client() as client:
            until(lambda: [n.state for n in client.nodes()] == ["up"])
            (job,) = client.submit([spec(tmp_path)])
            until(lambda: client.job(job).steps > 4 * TRUE, what="four seconds of work")
        cluster.kill()
        believed = _core(cluster.state)
        assert _rate(believed, job) > 5 * SAID
        cluster.start()
        with cluster.client() as client:
            steps = client.job(job).steps
            until(lambda: client.job(job).steps > steps + 3 * TRUE, what="work after the crash")
            client.cancel(job)
            until(lambda: client.job(job).state == "cancelled")
    assert "Traceback" not in cluster.log()
    with Store(cluster.state) as store:
        number, records = store.segment()
        assert journal.replay_records(records, str(number)) > 0


def _core(state: Path) -> Scheduler:
    """As the journal has it, which a replay needs no estimator for."""
    with Store(state) as store:
        _, records = store.segment()
        setup, before, tail = journal.begin(list(records), "segment")
        told = [journal.decode(record) for record in store.segment()[1]]
        assert any(isinstance(record, RatesLearned) for record in told)
        return journal.recover(setup, before, tail).scheduler


def _rate(core: Scheduler, job: int) -> float:
    row = core.ledger.jobs.row[core.ledger.row(JobId(job))]
    assert core.believed.of_row(int(row)) >= 0
    return float(core.throughputs.rate[row].max())
