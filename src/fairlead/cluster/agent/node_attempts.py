"""The starts that a node holds, from the order to run them until the server forgets them."""

import time
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path

from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.kept_ends import KeptEnd, KeptEnds
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.report_limits import SendableCheck
from fairlead.cluster.protocol.messages import Assignment, AttemptKey, AttemptStatus, Rank

_MAX_START_WAIT_S = 300.0  # an attempt that cannot begin for so long says something about the node
_OBSTRUCTED_S = 10.0  # the same where it is known to be the node: a moment may pass


class NodeAttempts:
    """Attempts on this node by (job, attempt), in order of arrival."""

    def __init__(self, ends: KeptEnds) -> None:
        """ends: those that an earlier run of the agent knew of are held from the start."""
        self._ends = ends
        self._attempts: dict[Key, NodeAttempt] = {}
        self._newest: dict[int, tuple[int, str]] = {}  # job -> (attempt, order id) held last
        self.sendable = SendableCheck()
        self.trial: NodeAttempt | None = None  # the agent's own: no order, and nothing to be told
        self._earlier: dict[Key, KeptEnd] = {}  # ended under an earlier run of the agent
        for kept in ends.read():
            status = kept.status
            self._earlier[status.job, status.attempt] = kept
            newest, _ = self._newest.get(status.job, (-1, ""))
            if status.attempt > newest:
                self._newest[status.job] = status.attempt, status.order_id

    def __iter__(self) -> Iterator[NodeAttempt]:
        return iter(list(self._attempts.values()))

    def __getitem__(self, key: Key) -> NodeAttempt:
        if (attempt := self.get(key)) is None:
            raise KeyError(key)
        return attempt

    def get(self, key: Key) -> NodeAttempt | None:
        """Return the attempt; None if the node does not hold it."""
        if self.trial is not None and self.trial.key == key:
            return self.trial
        return self._attempts.get(key)

    def is_new(self, assignment: Assignment) -> bool:
        """Return whether neither this attempt nor a later one of its job was ever held. In another cluster,
        or timeline, attempts are numbered anew."""
        attempt, order_id = self._newest.get(assignment.job, (-1, assignment.order_id))
        return assignment.attempt > attempt or _origin(assignment.order_id) != _origin(order_id)

    def add(self, attempt: NodeAttempt) -> None:
        """Hold a new one."""
        self._attempts[attempt.key] = attempt
        self._newest[attempt.assignment.job] = (
            attempt.assignment.attempt,
            attempt.assignment.order_id,
        )

    def confirm_leases(self) -> None:
        """Note that the spawner has answered, and is asked again."""
        for attempt in self:
            attempt.lease.confirm()

    def forget(self, key: Key) -> bool:
        """The server has booked its end. Returns whether it was held, and had ended."""
        attempt = self._attempts.get(key)
        if key not in self._earlier and (attempt is None or not attempt.ended):
            return False
        self._attempts.pop(key, None)
        self._earlier.pop(key, None)
        self._ends.forget(key)
        self.sendable.forget(key)
        return True

    def keep_end(self, attempt: NodeAttempt) -> None:
        """An attempt has ended, which the server may hear from a later run of the agent only."""
        if attempt is not self.trial:
            self._ends.keep(attempt.status(time.monotonic()))

    @property
    def longest_grace_s(self) -> float:
        """Return the longest grace of the attempts; 0 = there are none."""
        return max((attempt.grace_s for attempt in self), default=0.0)

    @property
    def busy(self) -> bool:
        """Return whether an attempt may have processes. One that still waits for its first lease has none,
        and gets none where the server refuses this agent."""
        return any(attempt.launched and not attempt.ended for attempt in self)

    def running_jobs(self) -> set[int]:
        """Return the jobs whose ranks may run here."""
        return {attempt.key[0] for attempt in self if attempt.may_run}

    @property
    def ports(self) -> set[int]:
        """Return the ports given to attempts on this node."""
        return {port for attempt in self if not attempt.ended for port in attempt.addresses.ports}

    # --- what is told ----------------------------------------------------------------------------
    def statuses(self, held_back: Collection[AttemptKey] = ()) -> tuple[AttemptStatus, ...]:
        """All, as the server accepts it. held_back: those of which it shall not hear yet that they have
        ended."""
        now = time.monotonic()
        earlier = (kept.status_now() for kept in self._earlier.values())
        return self.sendable(chain(earlier, (one.status(now) for one in self)), held_back)

    def ended(self) -> set[Key]:
        """Return those that have ended, also under an earlier run of the agent."""
        return {attempt.key for attempt in self if attempt.ended} | set(self._earlier)

    def running_ranks(self) -> dict[AttemptKey, tuple[Rank, ...]]:
        """The ranks here of those that run."""
        return {one.key: one.assignment.ranks for one in self if one.state == "running"}

    def obstructed(self, now: float) -> list[str]:
        """A sentence for each that has been unable to begin for long."""
        waits = [
            attempt
            for attempt in self
            if attempt.state == "starting"
            and attempt.wait.waited_s(now)
            > (_OBSTRUCTED_S if attempt.wait.obstacle else _MAX_START_WAIT_S)
        ]
        return [f"job {attempt.key[0]} cannot start: {attempt.reason}" for attempt in waits]

    def checkpoint_directories(self) -> dict[Path, Assignment]:
        """Return the checkpoint directories of jobs, each with whose it is. They may be absent, or hang."""
        assignments = [attempt.assignment for attempt in self if not attempt.ended]
        return {Path(one.checkpoint_dir): one for one in assignments if one.checkpoint_dir}

    def note_directories(self, problems: Mapping[Path, str]) -> bool:
        """problems: of the directories that jobs save to. Returns whether there is news among them."""
        news = False
        for attempt in self:
            problem = problems.get(Path(attempt.assignment.checkpoint_dir), "")
            news |= attempt.directory_problem != problem
            attempt.directory_problem = problem
        return news


def _origin(order_id: str) -> str:
    """(cluster).(timeline)"""
    return order_id.rsplit(".", 2)[0]
