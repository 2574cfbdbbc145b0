"""Starts whose steps do not come along are looked at, and ended where they hang. Those that do not end when
they are told to are looked at before they are killed."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.inspection import Inspector
from fairlead.cluster.agent.launch import stacks_path
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.stacks import RankStack


class StallInspections:
    """One look at a time for each attempt. ``changed`` is called when there is news for the server."""

    def __init__(
        self,
        state: Path,
        spawner: SpawnerLink,
        ending: AttemptEnding,
        changed: Callable[[], None],
    ) -> None:
        """state: of the agent."""
        self.inspector = Inspector()
        self._state = state
        self._spawner = spawner
        self._ending = ending
        self._changed = changed
        self._inspections: dict[Key, asyncio.Task[None]] = {}

    def watch(self, attempt: NodeAttempt, now: float) -> None:
        """Watch for stalls. Call it many times a second."""
        if not attempt.launched or attempt.key in self._inspections:
            return
        if attempt.should_end_soon(now):
            self._inspections[attempt.key] = asyncio.create_task(self._inspect_stop(attempt))
        if not attempt.watched:
            return
        if attempt.stall.is_overdue(attempt.assignment, now):
            attempt.stalled(now)
            self._ending.kill(attempt)
            self._changed()
        elif attempt.stall.due(attempt.assignment, now):
            self._inspections[attempt.key] = asyncio.create_task(self._inspect(attempt))
        elif attempt.stall.clear(attempt.assignment):
            self._changed()

    async def _inspect(self, attempt: NodeAttempt) -> None:
        stacks = await self._stacks(attempt)
        if attempt.watched and attempt.stall.record_stacks(
            stacks, attempt.assignment, time.monotonic()
        ):
            self._changed()

    async def _inspect_stop(self, attempt: NodeAttempt) -> None:
        elapsed_s = attempt.stop_order.elapsed_s(time.monotonic())
        attempt.stop_order.record_inspection()
        stacks = await self._stacks(attempt)
        if not attempt.ended:
            attempt.stall.record_stacks_of_stop(stacks, elapsed_s, attempt.stop_order.reason)
            self._changed()

    async def _stacks(self, attempt: NodeAttempt) -> dict[int, RankStack]:
        """Rank -> where it stands, of those here."""
        ranks = [rank.rank for rank in attempt.assignment.ranks]
        files = {r: stacks_path(self._state, *attempt.key, r) for r in ranks}
        try:
            return await self.inspector.inspect(attempt, self._spawner, files)
        finally:
            self._inspections.pop(attempt.key, None)
