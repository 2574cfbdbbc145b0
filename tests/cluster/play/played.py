"""Jobs and attempts as a cluster tells of them, for tests."""

from typing import Any

from fairlead.cluster.play.live_run import LiveRun
from fairlead.cluster.play.planned_jobs import PlannedJob, PlayPlan
from fairlead.cluster.play.player import PlayedJobs
from fairlead.cluster.protocol.api_models import AttemptView, JobView, Sample
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import Arrival, Job, JobId
from fairlead.simulator.traces.throughput_tables import read_throughputs

FAMILY = "ResNet-18 (batch size 16)"
FIRST_S = 1000.0  # the cluster's time of the first submission
OFFSET = 50  # of a job's id on the cluster, over that in the trace
CLUSTER = Cluster((Node("a", "v100", 2), Node("b", "k80", 2), Node("c", "v100", 2)))


def job_view(job: int, submitted_s: float, ended_s: float | None, **more: Any) -> JobView:
    """A job; times are since the first submission."""
    given: dict[str, Any] = {
        "id": job + OFFSET, "name": "", "tenant": "t", "user": "u", "family": FAMILY,
        "scale_factor": 1, "weight": 1.0, "total_steps": 100.0, "steps": 100.0, "saved_step": 0,
        "submitted_s": FIRST_S + submitted_s, "started_s": None,
        "state": "running" if ended_s is None else "completed",
        "ended_s": None if ended_s is None else FIRST_S + ended_s,
        "node": "", "accelerator": "", "devices": (), "attempt": 1, "starts": 1, "preemptions": 0,
        "failures": 0, "run_s": 0.0, "lost_steps": 0.0, "overhead_s": 0.0, "rates": {},
        "measured_rate": None, "slo_s": None, "reason": "",
    }  # fmt: skip
    return JobView(**{**given, **more})


def attempt_view(
    job: int, number: int, places: list[tuple[str, int]], began_s: float, ended_s: float | None,
    **more: Any,
) -> AttemptView:  # fmt: skip
    """An attempt; times are since the first submission."""
    trained_s = more.pop("trained_s", began_s)
    given: dict[str, Any] = {
        "job": job + OFFSET, "attempt": number, "node": ",".join(sorted({n for n, _ in places})),
        "accelerator": "v100", "devices": tuple(d for _, d in places),
        "nodes": tuple(n for n, _ in places), "began_s": FIRST_S + began_s,
        "ended_s": None if ended_s is None else FIRST_S + ended_s,
        "trained_s": None if trained_s is None else FIRST_S + trained_s,
        "from_step": 0.0, "to_step": 100.0, "why": "", "wait_s": 0.0, "start_s": 0.0, "load_s": 0.0,
        "save_s": 0.0, "stop_s": 0.0, "lost_steps": 0.0,
    }  # fmt: skip
    return AttemptView(**{**given, **more})


def live_run(
    jobs: list[JobView], attempts: list[AttemptView], rounds: list[float], round_s: float = 10.0
) -> LiveRun:
    """A run of these. rounds: when they began, since the first submission."""
    plan = [
        PlannedJob(
            0.0,
            Arrival(0.0, Job(JobId(one.id - OFFSET), FAMILY, one.scale_factor, one.total_steps)),
            JobSpec(command=("x",), total_steps=1),
        )
        for one in jobs
    ]
    samples = [
        Sample(time_s=FIRST_S + at, allocated={}, capacity={}, running=0, waiting=0, share={})
        for at in rounds
    ]
    played = PlayedJobs(
        ids={one.id - OFFSET: one.id for one in jobs},
        jobs={one.id: one for one in jobs},
        attempts={one.id: [a for a in attempts if a.job == one.id] for one in jobs},
        samples=samples,
        solve_s=[],
        forgotten=[],
    )
    whole = PlayPlan(jobs=plan, table=read_throughputs("builtin"), cluster=CLUSTER)
    return LiveRun(plan=whole, played=played, round_s=round_s)
