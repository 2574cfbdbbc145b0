"""What touches paths that a job has chosen runs on a thread of its own: on a dead file server it may hang,
and that is no other job's business."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


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
