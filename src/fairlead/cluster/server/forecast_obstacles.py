"""Reasons why no end of a job is forecast, shared by lists, explanations and what-if questions."""

from dataclasses import dataclass

from fairlead.cluster.protocol.api_models import JobState, NoEnd
from fairlead.cluster.server.being_stopped import ended_by_agent
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.explain_placement import (
    runs_outside_rounds,
    stands_still,
    waits_for_node,
)
from fairlead.cluster.server.least_times import newest_rate
from fairlead.cluster.server.live_progress import is_overdue
from fairlead.cluster.server.rates import rate_is_known
from fairlead.cluster.server.storage_waits import found_no_storage
from fairlead.cluster.server.unbooked_ends import unbooked_end
from fairlead.cluster.store.rows import JobRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastObstacles:
    """Conditions that prevent a forecast of a job's end."""

    ended: bool  # which is not booked yet
    finishing: bool
    overdue: bool  # an unmanaged job that has run for longer than its steps take
    stands_still: bool
    waits_for_node: bool
    runs_outside_rounds: bool
    being_ended: bool  # by its agent
    waits_for_storage: bool
    on_hold: bool  # nothing is started for a while: no node may be used yet
    rate_known: bool

    @property
    def no_end(self) -> NoEnd:
        """The first reason why no end is forecast; "" if one is."""
        if self.ended:
            return "ended"
        if self.finishing:
            return "finishing"
        if self.stands_still:
            return "stands still"
        if self.overdue:
            return "overdue"
        if self.waits_for_node:
            return "node silent"
        if self.runs_outside_rounds:
            return "node unhealthy"
        if self.being_ended:
            return "being ended"
        if self.waits_for_storage:
            return "waits for storage"
        if self.on_hold:
            return "nothing starts"
        return "" if self.rate_known else "rate unknown"


def forecast_obstacles(cluster: ClusterState, job: int, state: JobState) -> ForecastObstacles:
    """Return the obstacles to forecasting a job's end, as of now. state: the state that is shown."""
    row, newest = cluster.registry.jobs.get(job), cluster.registry.newest(job)
    return ForecastObstacles(
        ended=bool(unbooked_end(cluster.fleet, newest)),
        finishing=state == "finishing",
        overdue=newest is not None and is_overdue(cluster.fleet, newest),
        stands_still=stands_still(cluster, job),
        waits_for_node=waits_for_node(cluster, job),
        runs_outside_rounds=runs_outside_rounds(cluster, newest),
        being_ended=bool(ended_by_agent(cluster.fleet, newest)),
        waits_for_storage=row is not None and found_no_storage(row, newest),
        on_hold=cluster.fleet.is_on_hold,
        rate_known=row is None or not is_rate_unknown(cluster, row),
    )


def is_rate_unknown(cluster: ClusterState, row: JobRow) -> bool:
    """Return whether a job has not ended and its rates are neither stated nor measured."""
    catalogue = cluster.options.catalogue
    return row.open and not rate_is_known(row, catalogue, newest_rate(cluster, row)[0])
