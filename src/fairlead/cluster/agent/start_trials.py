"""Test starts, which the server asks for to find out whether a node can start jobs."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fairlead.cluster.agent.health import LIMIT_S, CheckResult, try_start
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.rank_trial import RankTrial
from fairlead.cluster.agent.runtimes import agents_environment
from fairlead.cluster.protocol.messages import StartCheck
from fairlead.cluster.protocol.runtime import Runtime


class StartTrials:
    """``result``: of the newest that has come back."""

    def __init__(self, state: Path, rank: RankTrial, changed: Callable[[], None]) -> None:
        """state: of the agent; rank: what a rank needs is tried by it; changed: called when there is another
        result."""
        self.result = CheckResult()
        self._state = state
        self._rank = rank
        self._changed = changed
        self._newest = 0  # number of the one that was begun last
        self._trial: asyncio.Task[None] | None = None  # the one under way

    def begin(self, check: StartCheck | None) -> None:
        """Make this one, unless it was begun before. None: the server asks for none."""
        running = self._trial is not None and not self._trial.done()
        if check is not None and check.number > self._newest and not running:
            self._newest = check.number
            self._trial = asyncio.create_task(self._try(check))

    async def _try(self, check: StartCheck) -> None:
        env = agents_environment(Runtime())
        try:
            problem = await on_thread(partial(try_start, check, env, self._state), 2 * LIMIT_S)
        except TimeoutError:
            problem = f"a test start gave no answer within {2 * LIMIT_S:g} s"
        except OSError as lack:
            problem = f"a test start failed: {lack.strerror}"
        problem = problem or await self._rank.problem(check)
        self.result = CheckResult(check.number, problem)
        self._changed()
