"""A spawner that stands still is noticed, told of, and replaced once nothing that it started is left."""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fairlead.cluster.agent.launching import on_thread
from fairlead.cluster.agent.spawner_link import STANDS_STILL_S, SpawnerLink
from fairlead.cluster.agent.survivors import find_survivors, read_records

_IDLE_S = 10.0  # a busy machine may be slow; there is no hurry where nothing runs
_LOOK_LIMIT_S = 5.0  # for a look at its ranks: the disk may hang
_STANDS_STILL = "the process that owns the ranks stands still"
_log = logging.getLogger(__name__)


class SpawnerWatch:
    """``problem``: what is the matter with it, "" = nothing."""

    def __init__(self, spawner: SpawnerLink, state: Path, changed: Callable[[], None]) -> None:
        """state: of the agent; changed: called when there is something else to tell."""
        self._spawner = spawner
        self._starts = state / "starts"
        self._changed = changed
        self.problem = ""

    async def look(self) -> None:
        """To be called every second. It is killed only once its ranks have ended: with their leases, by the
        warden, which hears of no more of these."""
        self._spawner.bury_adopted()
        silent_s = self._spawner.ask_for_life(time.monotonic())
        problem = _STANDS_STILL if silent_s > STANDS_STILL_S else ""
        if problem != self.problem:
            self.problem = problem
            self._changed()
            if problem:
                _log.warning("%s; it is replaced when its ranks have ended", problem)
        if silent_s > _IDLE_S and not await self._has_ranks() and self._spawner.silent_s:
            _log.warning("%s, and is replaced", _STANDS_STILL)
            self._spawner.kill()

    async def _has_ranks(self) -> bool:
        try:
            return await on_thread(partial(_any_rank, self._starts), _LOOK_LIMIT_S)
        except (TimeoutError, OSError):
            return True  # nobody knows


def _any_rank(starts: Path) -> bool:
    return bool(find_survivors(read_records(starts, keep=True)))
