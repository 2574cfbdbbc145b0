"""What a user of the library writes, for mypy to check: nothing here is run."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import polars as pl

import fairlead
from fairlead import (
    AdmissionRule,
    AdmissionState,
    Allocation,
    Client,
    Cluster,
    Environment,
    Job,
    JobSpec,
    Observer,
    Policy,
    PolicyComparison,
    PolicyRequest,
    Result,
    Snapshot,
    SolveReport,
    Throughputs,
    Trace,
)


class Mine:
    """A policy."""

    name = "mine"
    heterogeneity_aware = True
    space_sharing = False
    work_conserving = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        share = np.zeros_like(snapshot.solo_rate)
        return fairlead.check_allocation(
            fairlead.allocation(snapshot, share, SolveReport("closed-form")), snapshot
        )


class Log:
    """An observer."""

    def event(self, event: Any) -> None: ...

    def command(self, command: Any) -> None: ...


class Open:
    """An admission rule."""

    name = "open"

    def admit(self, job: Job, state: AdmissionState) -> bool:
        return job.scale_factor <= int(state.cluster.capacity.sum())


def make(request: PolicyRequest) -> Policy:
    assert_type(request.seed, int)
    return Mine()


def use() -> None:
    cluster = fairlead.parse_cluster("v100=2")
    assert_type(cluster, Cluster)
    rates = fairlead.read_throughputs("builtin")
    assert_type(rates, Throughputs)
    trace = fairlead.read_trace("jobs.csv", rates.columns(cluster.slots))
    assert_type(trace, Trace)
    observer: Observer = Log()
    admission: AdmissionRule = Open()
    found = fairlead.simulate(
        trace, cluster, Mine(), throughputs=rates, observers=[observer], admission=admission
    )
    assert_type(found, Result)
    compared = fairlead.compare(["las", Mine, Mine(), Mine], trace, cluster, seeds=range(3))
    assert_type(compared, PolicyComparison)
    assert_type(compared.results["las"][0], Result)
    assert_type(compared.table("avg_jct_s", relative_to="las"), pl.DataFrame)
    assert_type(compared.figure("jct.png"), Path)
    fairlead.compare({"mine": Mine}, lambda seed: "jobs.csv", "v100=2", throughputs=rates)
    env = Environment(trace, cluster, throughputs=rates)
    seen, info = env.reset(seed=1)
    assert_type(seen, Snapshot)
    assert_type(info, dict[str, Any])
    _, reward, terminated, truncated, _ = env.step(np.zeros((1, 1)))
    assert_type((reward, terminated, truncated), tuple[float, bool, bool])
    assert_type(env.fork(), Environment)
    with Client("http://127.0.0.1:8470") as client:
        assert_type(client.submit([JobSpec(command=("true",), total_steps=1)]), list[int])
