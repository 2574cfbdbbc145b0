"""A spawner that stands still is noticed, and replaced: at once where somebody has stopped it, else once
nothing that it started is left."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.spawner_link import STANDS_STILL_S, SpawnerLink
from fairlead.cluster.agent.survivors import find_survivors, read_records

_IDLE_S = 10.0  # a busy machine may be slow; there is no hurry where nothing runs
_CHECK_TIMEOUT_S = 5.0  # for a look at its ranks: the disk may hang
_MAX_STOPPED_POLLS = 5  # a second apart: no operator's slip
_STOPPED_WINDOW_S = 60.0
_STANDS_STILL = "the process that owns the ranks stands still"
_log = logging.getLogger(__name__)


class SpawnerWatch:
    """``problem``: what is the matter with it, "" = nothing."""

    def __init__(
        self,
        spawner: SpawnerLink,
        state: Path,
        running: Callable[[], Iterable[int]],
        changed: Callable[[], None],
        *,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        """state: of the agent; running: jobs whose ranks may run now; changed: called when there is something
        else to tell; answered: called when the spawner has answered, and is asked again."""
        self._spawner = spawner
        self._records_folder = state / "starts"
        self._running = running
        self._changed = changed
        self._answered = answered
        # Jobs that may have run when it last answered
        self._running_at_reply: frozenset[int] = frozenset()
        self._stopped: deque[float] = deque()  # polls at which it was stopped, monotonic
        self.problem = ""

    async def poll(self, now: float) -> None:
        """To be called every second. now: monotonic.

        One that somebody stops is killed, and its ranks end as if it had been killed at once: the jobs beside
        which that happens can be told from others. One that stands still by itself is killed only once its
        ranks have ended: with their leases, by the warden, which hears of no more of these.
        """
        self._spawner.reap_adopted()
        silent_s = self._spawner.ping(now)
        if not silent_s:  # it has handled no launch that it was told of later
            self._running_at_reply = frozenset(self._running())
            self._answered()
        if self._is_being_stopped(now):
            _log.warning("the process that owns the ranks is being stopped, and is replaced")
            self._stopped.clear()
            self._spawner.kill(self._running_at_reply)
            return
        self._report(_STANDS_STILL if silent_s > STANDS_STILL_S and not self._stopped else "")
        if silent_s > _IDLE_S and not await self._has_ranks() and self._spawner.silent_s:
            _log.warning("%s, and is replaced", _STANDS_STILL)
            self._spawner.kill()

    def _report(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        self._changed()
        if problem:
            _log.warning("%s; it is replaced when its ranks have ended", problem)

    def _is_being_stopped(self, now: float) -> bool:
        """Return whether somebody keeps it from running for much of the time, at once or again and again."""
        if self._spawner.is_stopped:
            self._stopped.append(now)
        while self._stopped and now - self._stopped[0] > _STOPPED_WINDOW_S:
            self._stopped.popleft()
        return len(self._stopped) > _MAX_STOPPED_POLLS

    async def _has_ranks(self) -> bool:
        try:
            return await on_thread(partial(_any_rank, self._records_folder), _CHECK_TIMEOUT_S)
        except (TimeoutError, OSError):
            return True  # nobody knows


def _any_rank(starts: Path) -> bool:
    return bool(find_survivors(read_records(starts, keep=True)))
