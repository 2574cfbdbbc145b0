"""Starts whose steps do not come along are looked at, and ended where they hang. Those that do not end when
they are told to are looked at before they are killed."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.inspection import Inspector
from fairlead.cluster.agent.launch import failure_path
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.stacks import RankStack


class StallInspections:
    """One look at a time for each start. ``changed`` is called when there is news for the server."""

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

    def watch(self, start: NodeAttempt, now: float) -> None:
        """To be called many times a second."""
        if not start.launched or start.key in self._inspections:
            return
        if start.should_end_soon(now):
            self._inspections[start.key] = asyncio.create_task(self._inspect_stop(start))
        if not start.watched:
            return
        if start.stall.is_overdue(start.assignment, now):
            start.stalled(now)
            self._ending.kill(start)
            self._changed()
        elif start.stall.due(start.assignment, now):
            self._inspections[start.key] = asyncio.create_task(self._inspect(start))
        elif start.stall.clear(start.assignment):
            self._changed()

    async def _inspect(self, start: NodeAttempt) -> None:
        stacks = await self._stacks(start)
        if start.watched and start.stall.record_stacks(stacks, start.assignment, time.monotonic()):
            self._changed()

    async def _inspect_stop(self, start: NodeAttempt) -> None:
        elapsed_s = start.stop_order.elapsed_s(time.monotonic())
        start.stop_order.record_inspection()
        stacks = await self._stacks(start)
        if not start.ended:
            start.stall.record_stacks_of_stop(stacks, elapsed_s, start.stop_order.reason)
            self._changed()

    async def _stacks(self, start: NodeAttempt) -> dict[int, RankStack]:
        """Rank -> where it stands, of those here."""
        ranks = [rank.rank for rank in start.assignment.ranks]
        files = {r: failure_path(self._state, *start.key, r).with_suffix(".stacks") for r in ranks}
        try:
            return await self.inspector.inspect(start, self._spawner, files)
        finally:
            self._inspections.pop(start.key, None)
