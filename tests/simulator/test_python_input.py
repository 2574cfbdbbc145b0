"""What is refused of jobs, costs and arrays that are made in Python, and how that is said."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.small import TABLE, job, run, time_limit

from fairlead.analysis.report.figure_style import FigureStyle
from fairlead.analysis.simulate import simulate
from fairlead.errors import AllocationError, ConfigError, InputError
from fairlead.model.allocation import SolveReport
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job import Arrival, RestartCosts
from fairlead.model.job_type import JobType
from fairlead.policies.common import allocation
from fairlead.simulator.environment import Environment
from fairlead.simulator.generate import generate
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.traces.throughput_tables import read_throughputs
from fairlead.simulator.traces.trace import checked

GAVEL = read_throughputs("builtin:gavel").columns((SlotType("v100"),))
JOBS = [job(number, 0.0, 1e4) for number in range(3)]


def run_again() -> object:
    """The second run of an iterator that a first one has used up."""
    spent = iter(JOBS)
    assert run(spent).metrics["n_completed"] == len(JOBS)  # type: ignore[arg-type]
    return run(spent)  # type: ignore[arg-type]


def costs(**given: Any) -> Callable[[], object]:
    """A run with these costs of restarts."""
    return lambda: run(JOBS, ground_truth=GroundTruth(restart_costs=RestartCosts(**given)))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "spent": (run_again, "there are no jobs .an iterator yields its arrivals once"),
    "wide": (lambda: run(iter([job(0, 0.0, 1.0, 4)])), "no job of the trace can run on this"),  # type: ignore[arg-type]
    "slow": (lambda: run([job(0, 0.0, 9e14)]), "would run for more than 1e\\+10 s at its fastest"),
    "unknown job": (costs(by_job={99: 5.0}), "restart cost: there is no job 99 in arrivals"),
    "assumed": (
        lambda: run(JOBS, assumed_costs=RestartCosts(by_family={"x": 1.0})),
        "assumed cost: 'x' is not in the throughput table",
    ),
    "negative cost": (lambda: RestartCosts(-1), "restart cost must be from 0 to 1e.10 s, got -1"),
    "no name": (lambda: SlotType(""), "accelerator: must not be empty"),
    "scale": (lambda: JobType.parse("net", -1), "scale_factor: must be at least 1, got -1"),
    "no job": (
        lambda: run([Arrival(0.0, None)]),  # type: ignore[arg-type]
        "arrival 0: job: expected a Job, got None",
    ),
    "large id": (lambda: run([job(2**62, 0.0, 1.0)]), r"id must be from 0 to 2\*\*53 - 1"),
    "columns": (lambda: TABLE.columns(None), "slots: expected a tuple of SlotType, got None"),  # type: ignore[arg-type]
    "zero byte": (lambda: run(JOBS, out="a\0b"), "out: expected a path, got"),
    "figure": (
        lambda: FigureStyle(columns=float("nan")).checked(),
        "--width: must be from 0.5 to 4",
    ),
    "twice": (
        lambda: generate("gavel,jobs=3,jobs=4", TABLE, Cluster.of({"fast": 1}), 0),
        "jobs is given twice",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_in_a_sentence(what: str) -> None:
    call, said = REFUSED[what]
    with pytest.raises(InputError, match=said) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_an_endless_stream_needs_an_end() -> None:
    cluster = Cluster.of({"v100": 1})
    endless, number = generate("gavel", GAVEL, cluster, 0)
    assert number is None
    with time_limit(60.0), pytest.raises(ConfigError, match="needs measured_jobs, stop_at_s or"):
        simulate(endless, cluster, "fifo", throughputs=GAVEL)
    assert run(stream(), stop_at_s=5_000.0).metrics["makespan_s"] == 5_000.0  # type: ignore[arg-type]


def stream() -> Iterator[Arrival]:
    """Jobs for ever."""
    return (job(number, 100.0 * number, 1e3) for number in count())


def test_a_stream_has_no_more_jobs_than_any_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.simulator.traces.trace.MAX_JOBS", 10)
    with pytest.raises(InputError, match="more than 10 jobs: what has no end needs measured_jobs"):
        list(checked(stream()))


def test_an_action_of_an_older_observation_is_refused() -> None:
    later = job(7, 5_000.0, 1e4)
    long = [job(number, 0.0, 1e6) for number in range(3)]
    env = Environment([*long, later], Cluster.of({"fast": 1}), throughputs=TABLE)
    seen, _ = env.reset(seed=0)
    share = seen.solo_rate * 0.0
    old = allocation(seen, share, SolveReport("closed-form"))
    now = seen
    for _ in range(20):
        if 7 in now.jobs.tolist():
            break
        now, *_ = env.step(allocation(now, now.solo_rate * 0.0, SolveReport("closed-form")))
    with pytest.raises(AllocationError, match="job 7 is in no job group"):
        env.step(old)
