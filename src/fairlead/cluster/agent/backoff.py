"""The time that an agent waits before it asks a server again that did not answer."""

import asyncio
import logging
import random

_log = logging.getLogger(__name__)


class Backoff:
    """Waits longer each time, with jitter, so that agents do not come back all at once."""

    def __init__(self, first_s: float = 0.1, longest_s: float = 3.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._next_s = first_s
        self._complained = False

    def reset(self) -> None:
        """All is well."""
        if self._complained:
            _log.info("the server answers again")
        self._next_s, self._complained = self._first_s, False

    def complain(self, problem: Exception) -> None:
        """Once, until all is well."""
        if not self._complained:
            _log.warning("%s; trying again", problem)
        self._complained = True

    async def sleep(self) -> None:
        """0.5 to 1 times the next wait."""
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(2 * self._next_s, self._longest_s)
