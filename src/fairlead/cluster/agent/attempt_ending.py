"""The ends of attempts by the agent: it tells rank 0 where it can, and the spawner in any case."""

import time
from collections.abc import Callable, Collection

from fairlead.client.messages import StopRank
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.node_attempts import NodeAttempts
from fairlead.cluster.agent.parked_jobs import ParkedJobs
from fairlead.cluster.agent.rank_server import RankConnections
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_messages import EndAttempt, Until
from fairlead.cluster.agent.suspension import Suspension
from fairlead.cluster.protocol.messages import EXPIRED, Assignment


class AttemptEnding:
    """``changed`` is called when there is news for the server."""

    def __init__(
        self,
        attempts: NodeAttempts,
        spawner: SpawnerLink,
        ranks: RankConnections,
        parked: ParkedJobs,
        suspension: Suspension,
        changed: Callable[[], None],
    ) -> None:
        self._attempts = attempts
        self._spawner = spawner
        self._ranks = ranks
        self._parked = parked
        self._suspension = suspension
        self._changed = changed

    def send_deadline(self, attempt: NodeAttempt) -> None:
        """The spawner ends what has no lease, should this process hang."""
        if attempt.launched and not attempt.ended:
            job, number = attempt.key
            self._spawner.send(Until(job=job, attempt=number, until_s=attempt.lease.until))

    def expire_all(self) -> None:
        """Stop what has no lease any more."""
        now = time.monotonic()
        for attempt in self._attempts:
            self.expire(attempt, now)

    def expire(self, attempt: NodeAttempt, at_s: float) -> None:
        """Stop an attempt if it had no lease any more at this time, monotonic, and had not ended by then."""
        over = attempt.launched and attempt.lease.left_s(at_s) <= 0.0
        if over and not attempt.has_ended_in_time:
            self.stop(attempt, EXPIRED)

    def stop(
        self, attempt: NodeAttempt, reason: str, followers: Collection[Assignment] = ()
    ) -> None:
        """Let it save and end, unless it ends already; or stand still, where it may. followers: what is to
        run next on this node."""
        if attempt.state in ("stopping", "ended"):
            return
        suspends = self._suspension.may_suspend(attempt, reason, followers)
        now = time.monotonic()  # not before: it has run until here, and that look may take long
        attempt.stop(reason, now)
        if suspends:
            self._suspension.suspend(attempt)
        elif not attempt.launched:
            attempt.record_exit(now)
        elif attempt.hears_rank_0:
            park = self._parked.may_park(attempt, reason)
            delivered = self._ranks.send(attempt.key, StopRank(reason=reason, park=park))
            # Ranks that have not come to their loop hear nothing of rank 0. After its loop a script that
            # does not ask goes on for its grace, and may come to its end.
            heard = delivered and attempt.steps.loaded is not None
            self.end(attempt, terminate=not heard and not attempt.finishing)
        else:
            self.end(attempt, terminate=attempt.assignment.unmanaged or not attempt.finishing)
        self._changed()

    def end(self, attempt: NodeAttempt, *, terminate: bool) -> None:
        """Have it killed after its grace. terminate: it gets a SIGTERM now, but for ranks whose loop is
        over."""
        self._send_end(attempt, terminate=terminate, kill_after_s=attempt.grace_s)

    def kill(self, attempt: NodeAttempt) -> None:
        """Have it killed at once."""
        self._send_end(attempt, terminate=False, kill_after_s=0.0)

    def kill_all(self) -> None:
        """Kill all attempts at once."""
        for attempt in self._attempts:
            if not attempt.ended:
                self.kill(attempt)

    def _send_end(self, attempt: NodeAttempt, *, terminate: bool, kill_after_s: float) -> None:
        job, number = attempt.key
        self._spawner.send(
            EndAttempt(
                job=job,
                attempt=number,
                terminate=terminate,
                kill_after_s=kill_after_s,
                spares_finished=not attempt.assignment.unmanaged,
            )
        )
