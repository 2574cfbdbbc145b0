"""What it costs to stop a job and start it again, beyond what any start costs: told to the core."""

from typing import TYPE_CHECKING

import numpy as np

from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.backend import MAX_ROUND_S
from fairlead.model.events import RestartCostsLearned
from fairlead.model.job import JobId
from fairlead.scheduler.mechanism.shares_planner import SharesPlanner

if TYPE_CHECKING:
    from fairlead.cluster.server.backend import LiveRound
    from fairlead.cluster.server.server_loop import ServerLoop

WORTH_TELLING = 0.2  # relative difference from what the core believes
ALONE_ROUNDS = 10  # so many rounds long a job is left alone that does what comes after its steps
STAYS_S = 1e9  # more than any job is ever owed, or wins by being on one server


class RestartCostsOfJobs:
    """Part of the engine, on the driver's thread."""

    def __init__(self, engine: "ServerLoop") -> None:
        self.engine = engine

    def learned(self, current: "LiveRound", now: float) -> RestartCostsLearned | None:
        """What the core has to be told before it decides upon the next round; None: it knows all."""
        core, setup = self.engine.scheduler, self.engine.setup
        if core is None or setup is None or setup.settings.preemption_hysteresis <= 0:
            return None
        usual_s = setup.restart_costs.default_s
        wanted = {
            job: self._cost_s(start, now)
            for job, start in current.starts.items()
            if job not in current.ended and JobId(job) in core.ledger
        }
        jobs = core.ledger.jobs
        for job in jobs.id[jobs.restart_s != usual_s].tolist():
            wanted.setdefault(job, usual_s)
        rows = np.searchsorted(jobs.id, np.array(list(wanted), np.int64))
        told, cost = jobs.restart_s[rows], np.array(list(wanted.values()))
        news = np.abs(cost - told) > WORTH_TELLING * np.minimum(cost, told)
        if not news.any():
            return None
        return RestartCostsLearned(now, np.array(list(wanted), np.int64)[news], cost[news])

    def heeded(self) -> bool:
        """Does the policy in force leave jobs alone that cost too much to stop?"""
        core = self.engine.scheduler
        return (
            core is not None
            and core.settings.preemption_hysteresis > 0
            and isinstance(core.planner, SharesPlanner)
        )

    def _cost_s(self, start: Attempt, now: float) -> float:
        """Seconds. One for ``preemption_hysteresis`` of lost work: the core has a start wait until another
        job is owed that many times its cost, and work is lost once."""
        assert self.engine.setup is not None
        setup = self.engine.setup
        if self._stays(start, now):
            return STAYS_S
        unkept_s = 0.0
        if start.row.spec.unmanaged and start.leader is not None:
            unkept_s = _unkept_s(start)
        return setup.restart_costs.default_s + unkept_s / setup.settings.preemption_hysteresis

    def _stays(self, start: Attempt, now: float) -> bool:
        """Is it to keep its devices, whoever is owed them? For as long as its nodes are there."""
        assert self.engine.setup is not None
        round_s = self.engine.setup.settings.round_s
        leaving = start.stopping or start.lost or start.broken
        if leaving or not self.engine.backend.lost_nodes.isdisjoint(start.nodes):
            return False
        if start.finishing_since is not None and start.finishing:
            return now - start.finishing_since <= ALONE_ROUNDS * round_s
        return start.is_young(now, MAX_ROUND_S * round_s)


def _unkept_s(start: Attempt) -> float:
    """Seconds that a job without the iterator has run for what its own checkpoints do not keep."""
    assert start.leader is not None
    if start.row.starts_over:
        return start.leader.ran_s
    rate, lost = start.measured(), start.progress() - start.survives()
    return min(lost / rate, start.leader.ran_s) if rate and lost > 0 else 0.0
