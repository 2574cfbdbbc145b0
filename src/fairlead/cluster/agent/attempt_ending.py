"""How the agent ends starts: it tells rank 0 where it can, and the spawner in any case."""

import time
from collections.abc import Callable

from fairlead.client.messages import StopRank
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.node_attempts import NodeAttempts
from fairlead.cluster.agent.rank_server import RankConnections
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_messages import EndAttempt, Until
from fairlead.cluster.protocol.messages import EXPIRED


class AttemptEnding:
    """``changed`` is called when there is news for the server."""

    def __init__(
        self,
        attempts: NodeAttempts,
        spawner: SpawnerLink,
        ranks: RankConnections,
        changed: Callable[[], None],
    ) -> None:
        self._attempts = attempts
        self._spawner = spawner
        self._ranks = ranks
        self._changed = changed

    def send_deadline(self, start: NodeAttempt) -> None:
        """The spawner ends what has no lease, should this process hang."""
        if start.launched and not start.ended:
            job, attempt = start.key
            self._spawner.send(Until(job=job, attempt=attempt, until_s=start.lease.until))

    def expire(self) -> None:
        """Stop what has no lease any more."""
        now = time.monotonic()
        for start in self._attempts:
            if start.launched and start.lease.left_s(now) <= 0.0:
                self.stop(start, EXPIRED)

    def stop(self, start: NodeAttempt, reason: str) -> None:
        """Let it save and end, unless it ends already."""
        if start.state in ("stopping", "ended"):
            return
        now = time.monotonic()
        start.stop(reason, now)
        if not start.launched:
            start.record_exit(now)
        elif start.hears_rank_0:
            delivered = self._ranks.send(start.key, StopRank(reason=reason))
            # After its loop a script that does not ask goes on for its grace, and may come to its end.
            self.end(start, terminate=not delivered and not start.finishing)
        else:
            self.end(start, terminate=start.assignment.unmanaged)
        self._changed()

    def end(self, start: NodeAttempt, *, terminate: bool) -> None:
        """Have it killed after its grace. terminate: it gets a SIGTERM now."""
        self._send_end(start, terminate=terminate, kill_after_s=start.grace_s)

    def kill(self, start: NodeAttempt) -> None:
        """Have it killed at once."""
        self._send_end(start, terminate=False, kill_after_s=0.0)

    def kill_all(self) -> None:
        """Do not wait for anybody."""
        for start in self._attempts:
            if not start.ended:
                self.kill(start)

    def _send_end(self, start: NodeAttempt, *, terminate: bool, kill_after_s: float) -> None:
        job, attempt = start.key
        self._spawner.send(
            EndAttempt(job=job, attempt=attempt, terminate=terminate, kill_after_s=kill_after_s)
        )
