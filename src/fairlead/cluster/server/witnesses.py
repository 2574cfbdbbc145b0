"""Agents as witnesses of how far the state of the cluster had come.

All that lies in the state directory agrees where the whole of it was replaced by an older copy. Agents keep
what they were told of it in directories of their own, and say so when they register. Where that contradicts
the state, the server halts: it schedules nothing, accepts nothing and ends nothing, until somebody has put
the newer directory back or has given up what is missing.
"""

import logging
import time

from fairlead.cluster.front.messages import PublishedPosition, SchedulingHalted
from fairlead.cluster.protocol.messages import Register, StorePosition
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.store.history import CLAIMED, HALTED, HISTORY, StoreHistory

NAMED = 3  # attempts and nodes that a sentence names
_log = logging.getLogger(__name__)


class Witnesses:
    """On the driver's thread."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._history = StoreHistory.decode(None)
        self._against: dict[str, tuple[StorePosition, str]] = {}  # node -> what it saw, in words
        self._reported: set[str] = set()  # nodes that have been logged for another reason
        self._heard_all = False
        self._told = 0  # the commit that agents were told of last
        self._first_job = 0  # that this server may have accepted

    def begin(self, run: int) -> None:
        """A run of the server begins on the state, once that is recovered. run: its number."""
        store = self._state.store
        assert store.newest is not None
        history = StoreHistory.decode(store.meta(HISTORY))
        self._history = history.begin_run(run, store.newest.number)
        self._first_job = self._state.next_job
        text = self._history.encode()
        self._state.write(lambda t: t.set_meta(HISTORY, text))

    def hear(self, message: Register) -> None:
        """An agent registers. Halts the server where the agent has seen a later state than this one."""
        seen, newest = message.seen, self._state.store.newest
        if seen is None or newest is None:
            return
        why = self._history.contradiction(seen, newest.number)
        if not why:
            self._report_given_up(message, self._history.given_up(seen))
        elif message.node in self._state.options.ignored_witnesses:
            self._report(message.node, f"{_claim(message.node, seen)}, but {why}; it is not heeded")
        elif message.node not in self._against:
            self._against[message.node] = seen, f"{why}{self._unknown_attempts(message)}"
            self._halt()

    def publish(self) -> None:
        """Let agents know of the newest commit. Called behind each. Not before all nodes of the state had
        the time to speak: what an agent remembers of a state that turns out to be old would contradict the
        newer one."""
        newest, fleet = self._state.store.newest, self._state.fleet
        if newest is None or newest.number == self._told or self._state.halted:
            return
        if newest.number <= self._history.runs[-1].base:  # this run is not written down yet
            return
        if not self._heard_all and all(map(_has_spoken, fleet.nodes.values())):
            self._heard_all = True
            if self._state.store.meta(HALTED) is not None:  # witnesses of then are not heeded now
                self._state.write(lambda t: t.delete_meta(HALTED))
        if self._heard_all:
            self._told = newest.number
            fleet.tell(PublishedPosition(position=self._history.position(newest)))

    def _halt(self) -> None:
        sentence = self._sentence()
        latest = max(seen.timeline for seen, _ in self._against.values())
        self._state.halted = sentence
        self._state.touched_nodes.update(self._state.fleet.nodes)
        self._state.fleet.tell(SchedulingHalted(reason=sentence))  # first: orders may follow
        self._state.write(lambda t: t.set_meta(CLAIMED, str(latest)))
        self._state.write(lambda t: t.set_meta(HALTED, sentence))
        _log.error("%s", sentence)

    def _sentence(self) -> str:
        node = max(self._against, key=lambda name: self._against[name][0].order)
        seen, why = self._against[node]
        others = sorted(self._against.keys() - {node})
        named = ", ".join(others[:NAMED]) + (", ..." if len(others) > NAMED else "")
        also = f" (and so do {named})" if len(others) > 1 else f" (and so does {named})"
        directory = self._state.store.directory.absolute()
        return (
            f"{directory} is an older copy of the state of this cluster: {_claim(node, seen)}"
            f"{also * bool(others)}, but {why}{self._accepted()}; nothing is scheduled, accepted or ended: "
            "stop this server and put the newer directory in its place, or give up what is missing by "
            f"`fairlead restore --accept-loss {directory}`"
        )

    def _accepted(self) -> str:
        """What would be missing in the newer directory."""
        first, last = self._first_job, self._state.next_job - 1
        if last < first:
            return ""
        jobs = f"job {first:,} is" if last == first else f"jobs {first:,} to {last:,} are"
        return f"; {jobs} new in this directory, and would be missing in the newer one"

    def _unknown_attempts(self, message: Register) -> str:
        """What the node runs that this state does not know."""
        status = [(h.job, h.attempt) for h in message.holds if h.state != "ended"]
        unknown = [key for key in status if not self._knows(*key)]
        words = [f"attempt {attempt} of job {job:,}" for job, attempt in unknown[:NAMED]]
        if len(unknown) > NAMED:
            words.append(f"{len(unknown) - NAMED} more")
        return f"; it runs {', '.join(words)}, unknown here" if words else ""

    def _knows(self, job: int, attempt: int) -> bool:
        row = self._state.registry.jobs.get(job) or self._state.store.job(job)
        return row is not None and attempt <= row.attempt

    def _report_given_up(self, message: Register, commits: int) -> None:
        """What an agent knows of the time that was given up by a restore."""
        unknown = self._unknown_attempts(message) if self._state.fleet.is_on_hold else ""
        if commits or unknown:
            text = f"{commits:,} commits that were given up" if commits else "what was given up"
            stop = ", and is told to stop that" if unknown else ""
            self._report(message.node, f"node {message.node} knows of {text}{unknown}{stop}")

    def _report(self, node: str, sentence: str) -> None:
        if node not in self._reported:
            self._reported.add(node)
            _log.warning("%s", sentence)


def _has_spoken(node: LiveNode) -> bool:
    """Whether a node is not expected to register any more with a server that has just been started."""
    agent = node.agent
    return node.registered or node.lost or bool(agent.left_s) or not agent.newest


def _claim(node: str, seen: StorePosition) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seen.time_s))
    return f"node {node} was told of commit {seen.commit:,} of {at}"
