"""Nodes that were not well come back into use: by checks that pass again, and by a test start.

A node that relapses within an hour waits twice as long each time.
"""

import logging
from dataclasses import dataclass

from fairlead.cluster.protocol.messages import StartCheck
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_node import LiveNode

FIRST_TEST_DELAY_S = 30.0  # from a cordon to the first test start, and between tests that fail
MAX_TEST_DELAY_S = 3600.0
FORGET_AFTER_S = 3600.0  # of good health, after which earlier trouble is forgotten
PROGRAMS = 8  # of failed jobs, that a test looks for
_log = logging.getLogger(__name__)


@dataclass
class _History:
    """History of one node; monotonic seconds."""

    relapses: int = 0  # times that it was put back and fell ill again
    well_since: float = 0.0  # when it was put back last
    ill: bool = False  # did a check of its agent fail at the last look?
    due: float | None = None  # the next test start; None = not cordoned at the last look
    tests: int = 0  # that failed since the cordon


class NodeRecovery:
    """On the driver's thread."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.first_s = FIRST_TEST_DELAY_S
        self._history: dict[str, _History] = {}
        self._number = 0  # of the last test start that was asked for

    def poll(self, node: LiveNode) -> bool:
        """Ask for a test start that is due. Returns whether the node has passed one, and may be put back.
        Called twice a second."""
        if not (node.health.problems or node.health.cordoned or node.name in self._history):
            return False
        now, known = self._state.fleet.monotonic(), self._history.setdefault(node.name, _History())
        self._poll_problems(node, known, now)
        if node.health.cordoned:
            return self._poll_cordon(node, known, now)
        known.due = None
        if node.desired.check is not None:
            self._state.fleet.ask_check(node.name, None)
        return False

    def trust(self, node: LiveNode) -> None:
        """An administrator takes it back into use: what was the matter before no longer counts."""
        node.health.well_from = 0.0
        if (known := self._history.get(node.name)) is not None:
            self._history[node.name] = _History(ill=known.ill)

    def _poll_problems(self, node: LiveNode, known: _History, now: float) -> None:
        if known.ill == bool(node.health.problems) or not node.registered:
            return
        known.ill = bool(node.health.problems)
        if known.ill:
            self._fell_ill(known, now)
        else:
            node.health.well_from = now + (
                self._wait_s(known.relapses - 1) if known.relapses else 0.0
            )
            known.well_since = node.health.well_from
            # It stays unhealthy, for another reason: shown, for what was published may say "up".
            self._state.changed_nodes.add(node.name)

    def _poll_cordon(self, node: LiveNode, known: _History, now: float) -> bool:
        if known.due is None:
            self._fell_ill(known, now)
            known.tests = 0
            known.due = now + self._wait_s(known.relapses)
        if not node.registered or node.suspect or node.health.problems:
            return False
        if node.desired.check is not None and node.health.checked == node.desired.check.number:
            return self._passes(node, known, now)
        if node.desired.check is None and now >= known.due:
            self._number = max(self._number, node.health.checked) + 1
            check = StartCheck(
                number=self._number,
                programs=self._programs(node.name),
                checkpoints=self._state.checkpoints,
                root_is_known=self._state.checkpoints in self._state.known_roots,
            )
            self._state.fleet.ask_check(node.name, check)
        return False

    def _passes(self, node: LiveNode, known: _History, now: float) -> bool:
        """Return whether the test attempt that was made went well."""
        self._state.fleet.ask_check(node.name, None)
        if node.health.check_problem:
            known.tests += 1
            known.due = now + self._wait_s(known.relapses + known.tests)
            _log.info("node %s: %s; the next test start in %.0f s", node.name, node.health.check_problem,
                      known.due - now)  # fmt: skip
            return False
        known.well_since, known.due = now, None
        return True

    def _fell_ill(self, known: _History, now: float) -> None:
        if not known.well_since or now - known.well_since > FORGET_AFTER_S:
            known.relapses = 0
        else:
            known.relapses += 1

    def _wait_s(self, times: int) -> float:
        return min(float(self.first_s * 2 ** min(times, 20)), MAX_TEST_DELAY_S)

    def _programs(self, name: str) -> tuple[str, ...]:
        """Return the programs that jobs that failed on the node wanted to run, at most ``PROGRAMS``."""
        found: dict[str, None] = {}
        for row in self._state.registry.jobs.values():
            if row.spec.command and any(r.node == name for r in row.recent_failures):
                found[row.spec.command[0]] = None
        return tuple(found)[:PROGRAMS]
