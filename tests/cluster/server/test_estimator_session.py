"""A live cluster plans with the rates that it has measured, and knows them after a crash."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.cluster.cluster import running, until

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.attempt_orders import ranks_on
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.estimator_session import EstimatorSession
from fairlead.cluster.server.job_registry import JobRegistry
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.cluster.store.store import Store
from fairlead.model.events import RatesLearned
from fairlead.model.job import JobId
from fairlead.scheduler import journal
from fairlead.scheduler.core.scheduler import Scheduler

SAID, TRUE = 10.0, 100.0  # steps/s


def spec(folder: Path) -> JobSpec:
    script = Path(__file__).resolve().parents[3] / "examples" / "live" / "numpy_job.py"
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
        setup, before, tail = journal.read_beginning(list(records), "segment")
        told = [journal.decode(record) for record in store.segment()[1]]
        assert any(isinstance(record, RatesLearned) for record in told)
        return journal.recover(setup, before, tail).scheduler


def _rate(core: Scheduler, job: int) -> float:
    row = core.data.ledger.jobs.rate_row[core.data.ledger.row(JobId(job))]
    assert core.data.beliefs.of_row(int(row)) >= 0
    return float(core.data.throughputs.rate[row].max())


def test_rates_are_measured_by_the_clock_of_the_agent_not_by_when_reports_come() -> None:
    """A round of 5 s whose start took 2: reports are 2 s late, and 20 steps/s looked like 4.3."""
    row = JobRow(
        id=1, name="", tenant="t", user="u", submitted_s=0.0, total_steps=1e6,
        spec=JobSpec(command=("true",), total_steps=1_000_000, rates={"v100": 20.0}),
    )  # fmt: skip
    book = JobRegistry()
    book.jobs[1] = row
    state: Any = SimpleNamespace(
        registry=book,
        fleet=SimpleNamespace(heartbeat_s=2.0),
        options=SimpleNamespace(estimator="fairlead"),
    )
    backend: Any = None
    mine = EstimatorSession(state, backend)
    attempt = AttemptRow(job=1, attempt=1, node="a", accelerator="v100", devices=(0,), began_s=0.0)
    start = Attempt(row, attempt, ranks_on({"a": (0,)}), 20.0, 0.0, ordered=True)
    book.add(start)

    def report(step: int, ran_s: float, step_age_s: float) -> None:
        start.statuses["a"] = AttemptStatus(
            job=1, attempt=1, state="running", step=step, loaded_step=0, ran_s=ran_s,
            step_age_s=step_age_s,
        )  # fmt: skip

    assert mine._measured(1, 13.0, 3.0) is None, "nothing is known of it yet"
    report(13, 0.7, 0.05)
    assert mine._measured(1, 13.0, 3.0) is None, "too little to measure"
    report(83, 4.2, 0.05)
    steps, seconds = mine._measured(1, 70.0, 5.0) or (0.0, 1.0)
    assert steps / seconds == pytest.approx(20.0)
    report(283, 15.15, 1.0)
    steps, seconds = mine._measured(1, 200.0, 20.0) or (0.0, 1.0)
    assert steps == 200.0
    assert steps / seconds == pytest.approx(20.0)
    assert mine._measured(1, 200.0, 5.0) is None, "no news is no measurement"
    report(383, 50.0, 30.0)
    start.statuses["a"] = msgspec.structs.replace(
        start.statuses["a"], state="ended", trained_s=19.15
    )
    book.drop(start)
    steps, seconds = mine._measured(1, 500.0, 40.0) or (0.0, 1.0)
    assert steps == 100.0, "its last word counts, not the steps that were expected of it"
    assert steps / seconds == pytest.approx(20.0), "nor the time in which it saved and stopped"
    assert mine._measured(1, 500.0, 40.0) is None
    book.trained.clear()
    assert mine._measured(1, 30.0, 5.0) is None, "it ended, and the report may be 2 s late"
    assert mine._measured(1, 2_000.0, 100.0) == (2_000.0, 100.0)
