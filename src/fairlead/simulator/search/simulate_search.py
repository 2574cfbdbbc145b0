"""Simulate a search on a cluster, beside other jobs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival
from fairlead.model.plan import Planner, Policy
from fairlead.simulator.argument_types import make_options
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.recording.metrics import Result
from fairlead.simulator.search.search_backend import (
    FIRST_ID,
    SearchBackend,
    SearchProgress,
    SearchStudy,
)
from fairlead.simulator.simulation_run import SimulationRun


@dataclass(frozen=True, slots=True)
class SearchResult:
    """reached_s: seconds from the beginning of the search to its target, None = it was not reached. explored:
    trials that were stopped or ran to their end. result: of the whole simulation, with all jobs."""

    reached_s: float | None
    progress: SearchProgress
    result: Result

    @property
    def explored(self) -> int:
        """Trials that were stopped or ran to their end."""
        return self.progress.explored


def simulate_search(
    study: SearchStudy,
    cluster: Cluster | str,
    policy: str | Policy | Planner,
    background: Iterable[Arrival] = (),
    **options: Any,
) -> SearchResult:
    """Run a search until it reaches its target or has no configurations left, and the other jobs until they
    have ended. background: in order of time, with ids below FIRST_ID. options: fields of
    ``SimulationOptions``; with ``stop_at_s`` the run ends then. Raises ConfigError."""
    others = list(background)
    if any(arrival.job.id >= FIRST_ID for arrival in others):
        raise ConfigError(f"background: ids must be below {FIRST_ID}, which is that of a trial")
    arrivals = sorted([*others, *study.first_trials()], key=lambda arrival: arrival.time_s)
    run = SimulationRun.of(arrivals, cluster, policy, make_options("simulate_search", options))
    made: list[SearchBackend] = []

    def around(backend: SimBackend) -> SearchBackend:
        made.append(SearchBackend(backend, study))
        return made[0]

    result = run.execute(around=around)
    progress = made[0].progress
    end_s = progress.reached_s
    return SearchResult(None if end_s is None else end_s - study.submitted_s, progress, result)
