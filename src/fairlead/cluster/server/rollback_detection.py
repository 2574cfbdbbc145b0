"""Detects that the state directory was replaced by an older copy, with agents as witnesses.

An older copy of the whole directory is consistent in itself. Agents keep the newest commit that they heard of
in their own directories, and report it when they register. If it contradicts the state, the server halts: it
schedules, accepts and ends nothing until somebody has put the newer directory back or has accepted the loss.
"""

import logging
import time
from dataclasses import dataclass

from fairlead.cluster.front.messages import PublishedPosition, SchedulingHalted
from fairlead.cluster.protocol.messages import AttemptStatus, Register, StorePosition
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.store.history import CLAIMED, HALTED, HISTORY, StoreHistory

PUBLISH_AFTER_S = 5.0  # publish the position after this time, even if nodes are missing
MAX_NAMED = 3  # attempts and nodes that a sentence names
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Contradiction:
    """Evidence from one node that the state is older than what the node has seen."""

    order: tuple[int, int, int]  # of how late that is: see ``StorePosition.order``
    claim: str
    why: str  # it cannot be

    @property
    def sentence(self) -> str:
        """The claim and why it cannot be, as one clause."""
        return f"{self.claim}, but {self.why}"


class RollbackDetector:
    """Compares what agents report with the state, and halts the server. Used on the driver's thread."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._history = StoreHistory.decode(None)
        self._contradictions: dict[str, _Contradiction] = {}  # by node
        self._reported: set[str] = set()  # nodes that have been logged for another reason
        self._all_reported = False
        self._publish_from_s = 0.0  # monotonic
        self._published_commit = 0  # the newest commit that agents know of
        self._first_job = 0  # that this server may have accepted

    def begin(self, run: int) -> None:
        """Record that a run of the server begins on the recovered state. run: its number."""
        store = self._state.store
        assert store.newest is not None
        history = StoreHistory.decode(store.meta(HISTORY))
        self._history = history.begin_run(run, store.newest.number)
        self._first_job = self._state.next_job
        self._publish_from_s = self._state.fleet.monotonic() + PUBLISH_AFTER_S
        self._state.order_origin = self._history.order_origin
        text = self._history.encode()
        self._state.write(lambda t: t.set_meta(HISTORY, text))

    @property
    def run_id(self) -> str:
        """Id of this run of the server."""
        return self._history.runs[-1].id

    def check_registration(self, message: Register) -> None:
        """Halt the server if the agent that registers has seen a later state than this one, or runs what only
        another copy of the state can have ordered."""
        if self._state.store.newest is None:
            return
        found = self._contradiction(message)
        if found is None:
            self._report_given_up(message)
        elif message.node in self._state.options.ignored_witnesses:
            self._report(message.node, f"{found.sentence}; it is not heeded")
        elif message.node not in self._contradictions:
            self._contradictions[message.node] = found
            self._halt()

    def _contradiction(self, message: Register) -> _Contradiction | None:
        seen, newest = message.seen, self._state.store.newest
        assert newest is not None
        credible = seen is not None and seen.run_id not in message.halted_runs
        why = (
            self._history.contradiction(seen, newest.number)
            if seen is not None and credible
            else ""
        )
        if seen is not None and why:
            unknown = self._unknown_attempts(message)
            return _Contradiction(seen.order, _claim(message.node, seen), why + unknown)
        return self._foreign_order(message)

    def _foreign_order(self, message: Register) -> _Contradiction | None:
        """Return a contradiction if a node holds attempts ordered in this timeline, but not by this state.
        The copy that ordered them may have been replaced before it published its position."""
        foreign = [
            status
            for status in message.holds
            if (run := self._history.run_of_order(status.order_id))
            and run not in message.halted_runs
            and not self._has_ordered(status)
        ]
        if not foreign:
            return None
        claim = f"node {message.node} was ordered to run {_attempts(foreign)}"
        order = self._history.timeline, 0, 0
        return _Contradiction(order, claim, "this state has never ordered that")

    def publish(self) -> None:
        """Publish the newest commit to agents. Called after each commit. Publishes at once if all nodes of
        the state have registered, as a copy that turns out to be old should not be published; otherwise after
        ``PUBLISH_AFTER_S``, as a node may never come back."""
        newest, fleet = self._state.store.newest, self._state.fleet
        if newest is None or newest.number == self._published_commit or self._state.halted:
            return
        if newest.number <= self._history.runs[-1].base:  # this run is not written down yet
            return
        if not self._all_reported and all(map(_has_reported, fleet.nodes.values())):
            self._all_reported = True
            if self._state.store.meta(HALTED) is not None:  # witnesses of then are not heeded now
                self._state.write(lambda t: t.delete_meta(HALTED))
        if self._all_reported or fleet.monotonic() >= self._publish_from_s:
            self._published_commit = newest.number
            fleet.send_to_front(PublishedPosition(position=self._history.position(newest)))

    def _halt(self) -> None:
        sentence = self._sentence()
        latest = max(found.order[0] for found in self._contradictions.values())
        self._state.halted = sentence
        self._state.changed_nodes.update(self._state.fleet.nodes)
        self._state.fleet.send_to_front(
            SchedulingHalted(reason=sentence, run_id=self.run_id)
        )  # first: orders may follow
        self._state.write(lambda t: t.set_meta(CLAIMED, str(latest)))
        self._state.write(lambda t: t.set_meta(HALTED, sentence))
        _log.error("%s", sentence)

    def _sentence(self) -> str:
        node = max(self._contradictions, key=lambda name: self._contradictions[name].order)
        found = self._contradictions[node]
        others = sorted(self._contradictions.keys() - {node})
        named = ", ".join(others[:MAX_NAMED]) + (", ..." if len(others) > MAX_NAMED else "")
        also = f" (and so do {named})" if len(others) > 1 else f" (and so does {named})"
        directory = self._state.store.directory.absolute()
        return (
            f"{directory} is an older copy of the state of this cluster: {found.claim}"
            f"{also * bool(others)}, but {found.why}{self._accepted()}; "
            "nothing is scheduled, accepted or ended: stop this server and put the newer directory in its "
            f"place, or give up what is missing by `fairlead restore --accept-loss {directory}`"
        )

    def _accepted(self) -> str:
        """Return a clause that names the jobs that the newer directory would lack; "" if there are none."""
        first, last = self._first_job, self._state.next_job - 1
        if last < first:
            return ""
        jobs = f"job {first:,} is" if last == first else f"jobs {first:,} to {last:,} are"
        return f"; {jobs} new in this directory, and would be missing in the newer one"

    def _unknown_attempts(self, message: Register) -> str:
        """Return a clause that names attempts on the node that this state does not know; "" if there are
        none."""
        running = [status for status in message.holds if status.state != "ended"]
        unknown = [status for status in running if not self._has_ordered(status)]
        return f"; it runs {_attempts(unknown)}, unknown here" if unknown else ""

    def _has_ordered(self, status: AttemptStatus) -> bool:
        """Return whether this state has ordered the attempt."""
        live = self._state.registry.live.get(status.job, ())
        rows = [*(attempt.record for attempt in live), *self._state.store.attempts(status.job)]
        known = {(row.attempt, row.order_id) for row in rows}
        return (status.attempt, status.order_id) in known

    def _report_given_up(self, message: Register) -> None:
        """Log what an agent knows of the time that was given up by a restore."""
        seen = message.seen
        commits = self._history.abandoned_commits(seen) if seen is not None else 0
        unknown = self._unknown_attempts(message) if self._state.fleet.is_on_hold else ""
        if commits or unknown:
            text = (
                f"at least {commits:,} commits that were given up"
                if commits
                else "what was given up"
            )
            stop = ", and is told to stop that" if unknown else ""
            self._report(message.node, f"node {message.node} knows of {text}{unknown}{stop}")

    def _report(self, node: str, sentence: str) -> None:
        if node not in self._reported:
            self._reported.add(node)
            _log.warning("%s", sentence)


def _has_reported(node: LiveNode) -> bool:
    """Return whether a node is not expected to register any more with a server that has just been started."""
    agent = node.agent
    return node.registered or node.lost or bool(agent.left_s) or not agent.newest


def _claim(node: str, seen: StorePosition) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seen.time_s))
    return f"node {node} was told of commit {seen.commit:,} of {at}"


def _attempts(statuses: list[AttemptStatus]) -> str:
    """Name the first ``MAX_NAMED`` attempts, and say how many more there are."""
    words = [f"attempt {status.attempt} of job {status.job:,}" for status in statuses[:MAX_NAMED]]
    if len(statuses) > MAX_NAMED:
        words.append(f"{len(statuses) - MAX_NAMED} more")
    return ", ".join(words)
