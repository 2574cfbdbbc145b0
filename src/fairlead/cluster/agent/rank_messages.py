"""The agent's answers to the messages of ranks: see ``RankHandler``."""

import hmac
import time
from collections.abc import Awaitable, Callable

from fairlead.client.messages import (
    Adapt,
    FromAgent,
    FromRank,
    Grant,
    Hello,
    Loaded,
    Progress,
    RankEnded,
    RankPrepared,
    StandBy,
    StopRank,
)
from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.node_attempts import NodeAttempts
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.protocol.messages import EXPIRED


class RankMessages:
    """``changed`` is called when there is news for the server, ``ask`` waits until the server has answered to
    all that the node holds now."""

    def __init__(
        self,
        attempts: NodeAttempts,
        ending: AttemptEnding,
        changed: Callable[[], None],
        ask: Callable[[], Awaitable[None]],
    ) -> None:
        self._attempts = attempts
        self._ending = ending
        self._changed = changed
        self._ask = ask

    def admit(self, hello: Hello) -> str:
        """Return why this process may not run, "" = it may."""
        attempt = self._attempts.get((hello.job, hello.attempt))
        if attempt is None or attempt.ended or not attempt.launched:
            return f"job {hello.job} does not run here as attempt {hello.attempt}"
        if not hmac.compare_digest(hello.token.encode(), attempt.token.encode()):
            return f"job {hello.job}: wrong token"
        return (
            ""
            if attempt.hears_rank_0
            else f"job {hello.job}: its rank 0 is not here, or it is unmanaged"
        )

    def greet(self, key: Key) -> list[FromAgent]:
        """Its lease, or that it stands by; and if it was told to stop before it could hear, that too."""
        attempt = self._attempts[key]
        answers: list[FromAgent] = [self._grant(attempt)]
        if attempt.stop_order.reason and isinstance(answers[0], Grant | StandBy):
            answers.append(StopRank(reason=attempt.stop_order.reason))
        return answers

    def handle(self, key: Key, message: FromRank) -> None:
        """Progress, and the news that the server shall hear of at once."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        now = time.monotonic()
        match message:
            case Hello():
                attempt.times.record_hello(now)
            case Loaded():
                attempt.loaded(message, now)
            case Adapt():
                attempt.steps.adapt(message)
            case RankPrepared():
                attempt.times.is_prepared = True
            case Progress():
                attempt.progress(message, now)
            case RankEnded():
                attempt.progress(message, now)
                if not message.completed and _ends_with_its_lease(attempt, message, now):
                    attempt.stop(EXPIRED, now)
        if not isinstance(message, Progress | Hello):
            self._changed()

    async def renew(self, key: Key) -> FromAgent:
        """Return a grant of the rest of our own lease, after asking for more when that is little."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return StopRank(reason=EXPIRED)
        if attempt.lease.is_short(time.monotonic()):
            await self._ask()
        return self._grant(attempt)

    def _grant(self, attempt: NodeAttempt) -> FromAgent:
        left_s = attempt.lease.left_s(time.monotonic())
        if left_s <= 0.0:  # whether the attempt has ended in time is heard of its spawner
            return StopRank(reason=EXPIRED)
        if attempt.assignment.standby:
            return StandBy()
        attempt.reported_lease.record(time.monotonic(), left_s)
        return Grant(lease_s=left_s, checkpoint_s=attempt.assignment.checkpoint_s)


def _ends_with_its_lease(attempt: NodeAttempt, end: RankEnded, now: float) -> bool:
    """Return whether rank 0 ends because its lease is over, as far as it knows. It finds out before its agent
    does, and long before if the agent was suspended for a while or slow to answer."""
    if end.reason:
        return end.reason == EXPIRED
    return attempt.lease.is_short(now) or attempt.reported_lease.is_short(now)
