"""What is submitted of a trace, and when."""

from pathlib import Path

import pytest

from fairlead.cluster.play.planned_jobs import PlannedJob, plan_jobs, submissions
from fairlead.cluster.play.workloads import Workloads, read_workloads
from fairlead.errors import ConfigError, InputError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival, Job, JobId
from fairlead.simulator.traces.throughput_tables import read_throughputs

FAMILY = "ResNet-18 (batch size 16)"
RATES = read_throughputs("builtin").columns(Cluster.of({"v100": 1, "k80": 1}).slots)


def _plan(
    *arrivals: Arrival, workloads: Workloads | None = None, speed: float = 1.0, steps: float = 1.0
) -> list[PlannedJob]:
    programs = workloads or Workloads({})
    return plan_jobs(arrivals, RATES, programs, speed=speed, scale_steps=steps)


def _job(number: int, total_steps: float = 1000.0, tenant: str = "", **more: float) -> Job:
    return Job(JobId(number), FAMILY, 1, total_steps, tenant=tenant, **more)  # type: ignore[arg-type]


def test_time_and_steps_are_scaled() -> None:
    one, other = _plan(
        Arrival(100.0, _job(3, slo_s=50.0)), Arrival(160.0, _job(4, 7.0)), speed=60.0, steps=0.1
    )
    assert (one.at_s, other.at_s) == (0.0, 1.0)
    assert (one.spec.total_steps, one.job.total_steps, one.spec.slo_s) == (100, 100.0, 5.0)
    assert (one.spec.name, one.job.id) == ("ResNet-18-3", 3)
    assert other.spec.total_steps == 1, "at least one"


def test_a_stand_in_takes_its_steps_at_the_rates_of_the_table() -> None:
    (one,) = _plan(Arrival(0.0, _job(0)))
    row = RATES.row(one.job.job_type)
    assert row is not None
    rates = {
        slot.accelerator: rate for slot, rate in zip(RATES.slots, RATES.rate[row], strict=True)
    }
    assert one.spec.rates == rates
    steps = dict(part.split("=") for part in one.spec.command[-1].split(","))
    assert {name: 1 / float(s) for name, s in steps.items()} == pytest.approx(rates)


def test_jobs_of_one_time_and_tenant_are_submitted_together() -> None:
    tenants = ["a", "a", "b"] + ["b"] * 150
    plan = _plan(*(Arrival(0.0, _job(i, tenant=t)) for i, t in enumerate(tenants)))
    assert [len(group) for group in submissions(plan)] == [2, 100, 51]


def test_without_jobs_there_is_nothing_to_play() -> None:
    with pytest.raises(ConfigError, match="no jobs to play"):
        _plan()


FILE = """
["ResNet-18"]
command = "python train.py --batch {batch_size} --steps {total_steps} --of {job}"
cwd = "/srv"
grace_s = 5.0

["ResNet-18 (batch size 32)"]
command = ["run", "{scale_factor}"]
cwd = "/"
"""


def test_families_have_the_programs_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text(FILE)
    workloads = read_workloads(path)
    large = Job(JobId(1), "ResNet-18 (batch size 32)", 2, 10.0)
    other = Job(JobId(2), "LM (batch size 5)", 1, 10.0)
    one, two, three = _plan(
        *(Arrival(0.0, job) for job in (_job(0), large, other)), workloads=workloads
    )
    assert one.spec.command == (
        "python",
        "train.py",
        "--batch",
        "16",
        "--steps",
        "1000",
        "--of",
        "0",
    )
    assert (one.spec.cwd, one.spec.grace_s) == ("/srv", 5.0)
    assert two.spec.command == ("run", "2")
    assert "fairlead.client.stand_in" in three.spec.command


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[LM]\ncommand = "x"\ntotal_steps = 5\n',
            "LM: total_steps: is what the trace says, got 5",
        ),
        ("[LM]\n", "LM: command"),
        (
            '[LM]\ncommand = "x {foo}"\n',
            "LM: command: there is no {foo}; what is replaced: {batch_size}",
        ),
        (
            '[LM]\ncommand = "x"\ncheckpoint_dir = "/c"\n',
            "LM: checkpoint_dir: each job needs its own",
        ),
        ('[LM]\ncommand = "x"\ncolour = 1\n', "LM: .*colour"),
        ("LM = 3\n", "LM: expected a table of fields of a job, got 3"),
        ('[LM]\ncommand = "x"\ngrace_s = -1\n', "LM: grace_s: must be .*, got -1"),
        ("[LM\n", "w.toml"),
    ],
)
def test_what_is_wrong_with_the_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "w.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as refused:
        read_workloads(path)
    assert "w.toml" in str(refused.value)
