"""What ranks say to the agent, and what they are answered: see ``RankHandler``."""

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
        """Why this process may not run, "" = it may."""
        start = self._attempts.get((hello.job, hello.attempt))
        if start is None or start.ended or not start.launched:
            return f"job {hello.job} does not run here as attempt {hello.attempt}"
        if not hmac.compare_digest(hello.token.encode(), start.token.encode()):
            return f"job {hello.job}: wrong token"
        return (
            ""
            if start.hears_rank_0
            else f"job {hello.job}: its rank 0 is not here, or it is unmanaged"
        )

    def greet(self, key: Key) -> list[FromAgent]:
        """Its lease; and if it was told to stop before it could hear, that too."""
        start = self._attempts[key]
        answers: list[FromAgent] = [self._grant(start)]
        if start.stop_order.reason and isinstance(answers[0], Grant):
            answers.append(StopRank(reason=start.stop_order.reason))
        return answers

    def handle(self, key: Key, message: FromRank) -> None:
        """Progress, and the news that the server shall hear of at once."""
        start = self._attempts.get(key)
        if start is None:
            return
        now = time.monotonic()
        match message:
            case Hello():
                start.times.record_hello(now)
            case Loaded():
                start.loaded(message, now)
            case Adapt():
                start.steps.adapt(message)
            case Progress():
                start.progress(message, now)
            case RankEnded():
                start.progress(message, now)
                if not message.completed and _ends_with_its_lease(start, message, now):
                    start.stop(EXPIRED, now)
        if not isinstance(message, Progress | Hello):
            self._changed()

    async def renew(self, key: Key) -> FromAgent:
        """What is left of our own lease, after asking for more when that is little."""
        start = self._attempts.get(key)
        if start is None:
            return StopRank(reason=EXPIRED)
        if start.lease.is_short(time.monotonic()):
            await self._ask()
        return self._grant(start)

    def _grant(self, start: NodeAttempt) -> FromAgent:
        left_s = start.lease.left_s(time.monotonic())
        if left_s <= 0.0:
            self._ending.stop(start, EXPIRED)
            return StopRank(reason=EXPIRED)
        start.reported_lease.record(time.monotonic(), left_s)
        return Grant(lease_s=left_s, checkpoint_s=start.assignment.checkpoint_s)


def _ends_with_its_lease(start: NodeAttempt, end: RankEnded, now: float) -> bool:
    """Does rank 0 end because its lease is over, as far as it knows? It comes to that before its agent does,
    and long before where the agent was away for a while, or slow to answer."""
    if end.reason:
        return end.reason == EXPIRED
    return start.lease.is_short(now) or start.reported_lease.is_short(now)
