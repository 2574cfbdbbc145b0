"""The jobs of a run: read, checked, without those that its cluster cannot run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from pathlib import Path

from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.shockwave_reference.profiles import released_exclusive_s, released_profile
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.trace import Skipped, Trace, checked, only_usable, summarise, usable


@dataclass(frozen=True, slots=True)
class SimulationJobs:
    """The jobs of a run, those left out that cannot run on its cluster."""

    name: str  # of the trace
    arrivals: Iterable[Arrival]
    n: int | None  # how many; None: nobody can tell
    notes: tuple[str, ...]
    skipped: list[Skipped]  # grows while a stream is read


def read_jobs(
    source: Trace | Iterable[Arrival] | str | Path,
    name: str,
    rates: Throughputs,
    cluster: Cluster,
    seed: int,
) -> SimulationJobs:
    """Read and check what was given as a trace. rates: for the accelerator types of the cluster."""
    free = [a for a in cluster.accelerators if a not in cluster.prices]
    warnings = (f"no price for {', '.join(free)}: counted as 0 in the cost",) if free else ()
    if isinstance(source, str | Path):
        trace = read_trace(source, rates, seed=seed)
    elif isinstance(source, list | tuple):
        trace = Trace(name, "arrivals", list(checked(source)))
    elif isinstance(source, Trace):
        trace = replace(source, arrivals=list(checked(source.arrivals)))
    else:
        skipped: list[Skipped] = []
        stream = only_usable(checked(source), rates, cluster, skipped)
        first = next(stream, None)
        if first is None:
            raise ConfigError(_no_jobs(name, skipped))
        return SimulationJobs(name, chain([first], stream), None, warnings, skipped)
    if not trace.arrivals:
        raise ConfigError(f"{trace.name}: there are no jobs")
    trace = usable(trace, rates, cluster)
    if not trace.arrivals:
        raise ConfigError(_no_jobs(trace.name, trace.skipped))
    arrivals = trace.arrivals
    return SimulationJobs(
        trace.name, arrivals, len(arrivals), (*trace.notes, *warnings), list(trace.skipped)
    )


def _no_jobs(name: str, skipped: Sequence[Skipped]) -> str:
    """Return why there are no jobs to run."""
    if skipped:
        return f"{name}: no job of the trace can run on this cluster: {summarise(skipped)[0]}"
    return f"{name}: there are no jobs (an iterator yields its arrivals once: give a list to several runs)"


def as_released(arrival: Arrival, rates: Throughputs) -> Arrival:
    """The arrival, its job with the profile of Shockwave's release, whose running time is that from there."""
    job = arrival.job
    adaptation = released_profile(job)
    if adaptation is None:
        return arrival
    alone_s = released_exclusive_s(adaptation, job.job_type, rates).min()
    duration_s = float(int(alone_s)) if alone_s < inf else job.duration_s
    return replace(arrival, job=replace(job, adaptation=adaptation, duration_s=duration_s))
