"""What touches paths that a job has chosen runs on a thread of its own: on a dead file server it may hang,
and that is no other job's business."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fairlead.cluster.agent.addresses import RankZeroAddress
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.launch import (
    DirectoryError,
    LastAccess,
    LaunchSite,
    PreparedLaunch,
    launch,
    start_limit_s,
)
from fairlead.errors import ConfigError

_Result = TypeVar("_Result")


async def prepare_launch(
    place: LaunchSite, attempt: NodeAttempt, master: RankZeroAddress
) -> PreparedLaunch:
    """``launch``. Raises ConfigError, also where a path does not answer in time."""
    last_access = LastAccess()
    limit_s = start_limit_s(attempt.assignment)
    try:
        return await on_thread(partial(launch, place, attempt, master, last_access), limit_s)
    except TimeoutError:
        why = f"{last_access.what}: no answer within {limit_s:g} s"
        if last_access.checkpoints:
            raise DirectoryError(why, "out_of_order") from None
        raise ConfigError(why) from None


async def on_thread(do: Callable[[], _Result], limit_s: float) -> _Result:
    """What ``do`` returns or raises. Raises TimeoutError after so many seconds; a thread that hangs then is
    left to itself."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, problem: Exception | None) -> None:
        if done.done():
            return
        if problem is not None:
            done.set_exception(problem)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, problem = None, None
        try:
            result = do()
        except Exception as caught:
            problem = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=run, name="launch", daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await done
