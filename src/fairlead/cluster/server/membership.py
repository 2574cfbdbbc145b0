"""Which nodes there are: they register, and are removed."""

import time

from fairlead.cluster.front.facade import ConflictError, InvalidTokenError
from fairlead.cluster.protocol.access import TokenKind
from fairlead.cluster.protocol.messages import Orders, Register, Welcome
from fairlead.cluster.server.after_restore import skip_held_job_ids
from fairlead.cluster.server.attempt_ends import AttemptEnds
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.enrolment_limit import EnrolmentLimit, check_type
from fairlead.cluster.server.inbox import Inbox
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.node_condition import condition
from fairlead.cluster.server.node_service import NodeService
from fairlead.cluster.server.report_intake import ReportIntake
from fairlead.cluster.server.rollback_detection import RollbackDetector
from fairlead.cluster.store.tokens import hash_token, make_node_token, read_node_key
from fairlead.errors import ConfigError

_MAX_NAMED = 5  # jobs in a refusal


class Membership:
    """Handles nodes that register and leave. Used on the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        *,
        inbox: Inbox,
        service: NodeService,
        intake: ReportIntake,
        ends: AttemptEnds,
        rollback: RollbackDetector,
    ) -> None:
        self._state = state
        self._inbox = inbox
        self._service = service
        self._intake = intake
        self._ends = ends
        self._rollback = rollback
        self._limit = EnrolmentLimit(state.fleet.monotonic)

    def register(self, message: Register, *, token: TokenKind = "own") -> Welcome:
        """A node comes up, or back. token: with which it comes; with that which enrols nodes it is given one
        of its own. One that is outdated is good only where this state is: the node may know of that."""
        name, state, fleet = message.node, self._state, self._state.fleet
        self._check_node(message)
        if name in fleet.nodes:
            self._check_alone(fleet.nodes[name], message, token)
        self._rollback.check_registration(message)
        if state.halted:
            run_id = self._rollback.run_id
            return self._welcome(Orders(seq=0, desired=(), halted=state.halted, halted_run=run_id))
        if token == "outdated":
            raise InvalidTokenError("no valid token came with the call")
        before = fleet.nodes.get(name)
        if before is None or before.accelerator != message.accelerator:
            others = (node.accelerator for node in fleet.nodes.values() if node is not before)
            check_type(name, message.accelerator, others)
        if name not in fleet.nodes and token == "enrolment":
            self._limit.spend(name)
        node = fleet.nodes.get(name) or fleet.add(name, message.accelerator, message.devices)
        if (node.accelerator, node.devices) != (message.accelerator, message.devices) or (
            state.setup is None or name not in {n.name for n in state.setup.cluster.nodes}
        ):
            state.rebuild_due = True
        self._take_over(node, message)
        own = self._new_token(name) if token == "enrolment" else ""
        if own:
            node.agent.token_hash = hash_token(own)
        self._service.keep(node)
        self._service.settle(node)
        self._inbox.mark(name)
        return self._welcome(node.desired.published, self._wait_s(node), own)

    def _new_token(self, node: str) -> str:
        store = self._state.store
        newest = 0 if store.newest is None else store.newest.number
        return make_node_token(read_node_key(store), node, newest + 1)

    def _welcome(self, orders: Orders, wait_s: float = 0.0, token: str = "") -> Welcome:
        options = self._state.options
        return Welcome(
            heartbeat_s=self._state.fleet.heartbeat_s,
            lease_s=options.lease_s,
            rate_bound=options.rate_bound,
            orders=orders,
            wait_s=wait_s,
            wall_s=time.time(),
            token=token,
        )

    def _take_over(self, node: LiveNode, message: Register) -> None:
        """The agent that registers has the node from now on. What an earlier one was ordered, and this one
        does not hold, is over, or may run on for as long as that one's leases."""
        name, fleet = node.name, self._state.fleet
        same = message.incarnation in (node.agent.incarnation, node.agent.last_incarnation)
        skip_held_job_ids(self._state, message)
        self._intake.apply(name)
        if not same:
            self._ends.note_agent_death(node)
        known = {(h.job, h.attempt) for h in message.holds}
        attempts = self._state.registry.on_node.get(name, {}).values()
        gone = [a for a in attempts if a.key not in known]
        gone = [a for a in gone if a.ordered and name not in a.gone and not same]
        fleet.register(message, {a.key: a.row.spec.longest_grace_s for a in gone})
        over = [a for a in gone if a.key not in node.agent.inherited]
        self._ends.orphan(name, over, "the agent restarted")
        left = [a for a in gone if a.key in node.agent.inherited]
        reason = f"another agent has taken over the name {name!r} of its node"
        self._ends.stop_broken(left, reason, name)

    def remove(self, name: str) -> None:
        """Forget a node that nothing runs on."""
        state = self._state
        node = state.fleet.nodes[name]
        out_of_use = node.drained or node.lost or node.agent.left_s
        if out_of_use and (left := {job for job, _ in state.registry.on_node.get(name, ())}):
            raise ConflictError(
                f"node {name!r}: may still run {_jobs(left)}; wait until nothing runs there"
            )
        if not out_of_use:
            current = condition(node, state.fleet.monotonic())
            waits = node.suspect or not node.registered
            why = f"is {current.state}, {current.reason}" if waits else "is in use"
            raise ConflictError(f"node {name!r}: {why}; drain it first, and wait for its jobs")
        silent_s = state.fleet.silent_for_s(node)
        if node.registered and not node.agent.left_s and silent_s < state.fleet.silence_s:
            raise ConflictError(
                f"node {name!r}: its agent was heard of {silent_s:.0f} s ago, and would register again "
                "at once; end it first"
            )
        if len(state.fleet.nodes) == 1:
            raise ConflictError(f"node {name!r}: is the last one of the cluster")
        if state.options.nodes is not None:
            raise ConflictError(f"node {name!r}: is in the cluster file; take it out there")
        state.remove_node(name)

    def revoke(self, name: str) -> None:
        """No token of a node counts from now on: it is lost once its leases are over."""
        node = self._state.fleet.nodes[name]
        node.agent.revoked, node.agent.token_hash = True, b""
        self._state.fleet.mark_changed(name)
        self._service.keep(node)

    def _wait_s(self, node: LiveNode) -> float:
        """Seconds until nothing of earlier agents of the node can live."""
        until = max((left.until for left in node.agent.inherited.values()), default=0.0)
        return max(until - self._state.fleet.monotonic(), 0.0)

    def _check_alone(self, node: LiveNode, message: Register, token: TokenKind) -> None:
        """Raises ConfigError for another agent than the one that holds the node and is alive. An agent that
        was started anew has the same state directory, hence the same first part of its incarnation,
        which nobody else is told. Who comes with nothing but the token that enrols nodes waits until a lease
        of the node's own agent is over: that one may be away for a moment, or the server may have been."""
        if node.agent.revoked:
            raise ConfigError(
                f"node {node.name!r}: its token was revoked; `fairlead undrain {node.name}` lets it be "
                "enrolled again"
            )
        if message.incarnation in node.agent.superseded:
            raise ConfigError(
                f"node {node.name!r}: another agent has registered under this name since"
            )
        theirs, mine = node.agent.incarnation.split(".")[0], message.incarnation.split(".")[0]
        fleet = self._state.fleet
        if node.agent.left_s or node.agent.has_cleared(message, node.agent.newest):
            return
        if (
            node.registered
            and theirs != mine
            and fleet.monotonic() - node.observed.seen < fleet.silence_s
        ):
            raise ConfigError(f"node {node.name!r}: another agent has this name, and is alive")
        wait_s = self._state.options.lease_s - fleet.silent_for_s(node)
        known = node.agent.incarnation or node.agent.last_incarnation
        is_stranger = token == "enrolment" and known.split(".")[0] != mine
        if is_stranger and node.agent.token_hash and wait_s > 0.0:
            raise ConfigError(
                f"node {node.name!r}: another agent has this name, and may be alive; if it stays silent, the "
                f"name can be taken over in {wait_s:.0f} s"
            )

    def _check_node(self, message: Register) -> None:
        """Raises ConfigError for a node that is not as the cluster file has it."""
        if self._state.options.nodes is None:
            return
        node = self._state.fleet.nodes.get(
            message.node
        )  # of the file, or its jobs have to leave it
        if node is None:
            raise ConfigError(f"node {message.node!r}: is not in the cluster file")
        if (node.accelerator, node.devices) != (message.accelerator, message.devices):
            raise ConfigError(
                f"node {message.node!r}: the cluster file says {node.accelerator}={node.devices}, "
                f"the agent {message.accelerator}={message.devices}"
            )


def _jobs(jobs: set[int]) -> str:
    named = ", ".join(map(str, sorted(jobs)[:_MAX_NAMED]))
    return f"job{'s' * (len(jobs) != 1)} {named}{', ...' * (len(jobs) > _MAX_NAMED)}"
