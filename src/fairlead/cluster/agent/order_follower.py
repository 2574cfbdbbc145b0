"""A node follows the server's orders: it holds what is wanted, and nothing else."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from fairlead.client.messages import StandBy
from fairlead.cluster.agent.addresses import assign_addresses
from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempt_launcher import AttemptLauncher
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.launch import check
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.agent.node_attempts import NodeAttempts
from fairlead.cluster.agent.parked_jobs import ParkedJobs
from fairlead.cluster.agent.rank_server import Key, RankConnections
from fairlead.cluster.agent.survivors import make_token
from fairlead.cluster.protocol.messages import AGENT_LEAVES, Assignment, Orders, Welcome
from fairlead.errors import ConfigError


@dataclass(frozen=True)
class NodeIdentity:
    """The facts about a node that its starts are given."""

    incarnation: str  # of the agent
    host: str  # where other nodes reach the ranks
    devices: NodeDevices


class OrderFollower:
    """``identity`` is to be set before there are orders. ``changed`` is called when there is news for the
    server."""

    def __init__(
        self,
        attempts: NodeAttempts,
        launcher: AttemptLauncher,
        ending: AttemptEnding,
        *,
        parked: ParkedJobs,
        ranks: RankConnections,
        logs: Logs,
        changed: Callable[[], None],
    ) -> None:
        self.identity: NodeIdentity | None = None
        self.seq = -1  # the newest orders that are followed
        self.leaving = False  # the agent was told to end, and nothing is begun any more
        self._attempts = attempts
        self._launcher = launcher
        self._ending = ending
        self._parked = parked
        self._ranks = ranks
        self._logs = logs
        self._changed = changed
        self._lease_s = 0.0
        self._rate_bound = 0.0

    def welcome(self, welcome: Welcome) -> None:
        """Registered: the orders of this server count from here."""
        self._lease_s, self._rate_bound = welcome.lease_s, welcome.rate_bound
        self.seq = -1
        self.follow(welcome.orders, None)

    def follow(self, orders: Orders, asked: float | None) -> None:
        """Hold what is wanted, and nothing else. asked: when the report that this answers was sent. Raises
        OSError where no port can be opened; the orders are not followed then, and can be given again."""
        if orders.halted:
            self._keep_running(orders, asked)
            return
        if asked is not None:
            self._extend(orders, asked)
        if orders.seq >= self.seq:
            if orders.seq > self.seq:
                self._changed()
            self._forget(orders.forget)
            self._parked.end(orders.unpark)
            self._reconcile(orders)
            self.seq = orders.seq
        for attempt in self._attempts:
            self._launcher.launch(attempt)

    def leave(self) -> float:
        """The agent is told to end: stop everything, start nothing. Returns the longest grace, seconds."""
        self.leaving = True
        self._changed()  # the server shall give it nothing more
        for attempt in self._attempts:
            self._ending.stop(attempt, AGENT_LEAVES)
        return self._attempts.longest_grace_s

    def _extend(self, orders: Orders, asked: float) -> None:
        for assignment in orders.desired:
            attempt = self._attempts.get((assignment.job, assignment.attempt))
            seconds = orders.leases.get(assignment.job)
            if attempt is None or seconds is None or not attempt.is_of(assignment):
                continue
            lapsed = attempt.launched and attempt.lease.left_s(time.monotonic()) <= 0.0
            if not lapsed:  # it has been told to end, or is about to be
                attempt.lease.extend(asked, seconds, self._rate_bound)
                self._ending.send_deadline(attempt)

    def _keep_running(self, orders: Orders, asked: float | None) -> None:
        """The server does not know what is wanted: what runs goes on, unless its lease is over."""
        now = time.monotonic()
        for attempt in self._attempts:
            seconds = orders.leases.get(attempt.key[0])
            runs = attempt.state in ("starting", "running") and attempt.lease.left_s(now) > 0.0
            if asked is not None and seconds is not None and runs:
                attempt.lease.extend(asked, seconds, self._rate_bound)
                self._ending.send_deadline(attempt)

    def _forget(self, keys: tuple[Key, ...]) -> None:
        for key in keys:
            if self._attempts.forget(key):
                self._logs.forget(*key, time.monotonic())

    def _reconcile(self, orders: Orders) -> None:
        desired = {(a.job, a.attempt): a for a in orders.desired}
        for attempt in self._attempts:
            ordered = desired.get(attempt.key)
            if ordered is None or not attempt.is_of(ordered):
                reason = orders.reasons.get(attempt.key[0], "preempted")
                self._ending.stop(attempt, reason, desired.values())
        for key, assignment in desired.items():
            if (known := self._attempts.get(key)) is not None:
                if known.is_of(assignment):
                    stood_by = known.assignment.standby
                    _update(known, assignment)
                    if stood_by and not assignment.standby:
                        self._admit(known)
            elif not self.leaving and self._attempts.is_new(assignment):
                self._hold(assignment)

    def _admit(self, attempt: NodeAttempt) -> None:
        """The job runs nowhere else any more: an attempt that stood by may load, and train."""
        attempt.admitted(time.monotonic())
        self._ranks.send(attempt.key, StandBy(over=True))

    def _hold(self, assignment: Assignment) -> None:
        """A new start. It is launched when the server, hearing of it, has granted its lease."""
        assert self.identity is not None
        now = time.monotonic()
        # What is known of the processes of parked ranks, and of their children, holds for this attempt too.
        parked = self._parked.goes_on_as(assignment)
        token = make_token(self.identity.incarnation) if parked is None else parked.token
        if parked is not None:
            assignment = msgspec.structs.replace(assignment, resumes=parked.key[1])
        elif len(assignment.ranks) == assignment.world_size:
            assignment = msgspec.structs.replace(assignment, resumes=0)
        attempt = NodeAttempt(assignment, token, NodeLease(self._lease_s), now)
        why = ""
        try:
            check(assignment, self.identity.devices)
            attempt.addresses = assign_addresses(
                assignment, self.identity.host, self._attempts.ports
            )
        except ConfigError as problem:
            why = str(problem)
        self._attempts.add(attempt)
        if why:
            attempt.failed(-1, why, now)
            attempt.record_exit(now)
        elif parked is not None and parked.has_ended:
            attempt.ended_before(parked.key[1], now)
            self._attempts.keep_end(attempt)
        self._logs.follow(assignment)
        self._changed()


def _update(attempt: NodeAttempt, new: Assignment) -> None:
    """Take over from ``new`` what may still change in an assignment."""
    attempt.assignment = msgspec.structs.replace(
        attempt.assignment,
        master=new.master,
        checkpoint_s=new.checkpoint_s,
        finishing=new.finishing,
        inspect=new.inspect,
        colocated=new.colocated,
        standby=attempt.assignment.standby and new.standby,
    )
