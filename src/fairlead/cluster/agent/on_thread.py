"""A thread of its own for work at paths that a job has chosen.
On a dead file server it may hang, and that is no other job's business."""

import _thread
import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable
from typing import TypeVar

_BEGIN_S = 10.0  # for a thread to begin; one that memory is too short for never does
_Result = TypeVar("_Result")


def start_thread(run: Callable[[], object]) -> None:
    """Run something on a thread for which nobody waits. Raises OSError where there can be none.

    ``threading.Thread.start`` waits for the thread to begin, and does so for ever where memory is so short
    that this ends it before.
    """
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as problem:
        raise OSError(errno.ENOMEM, str(problem)) from None


async def on_thread(do: Callable[[], _Result], limit_s: float) -> _Result:
    """Run ``do`` on a thread; return or raise what it does. Raises TimeoutError after ``limit_s`` seconds,
    and OSError where no thread can begin; one that hangs is left to itself."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()
    has_begun = threading.Event()

    def settle(result: _Result | None, problem: Exception | None) -> None:
        if done.done():
            return
        if problem is not None:
            done.set_exception(problem)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        has_begun.set()
        result, problem = None, None
        try:
            result = do()
        except Exception as caught:
            problem = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, problem)

    start_thread(run)
    began_s = loop.time()
    await asyncio.wait([done], timeout=min(limit_s, _BEGIN_S))
    if not has_begun.is_set():
        raise OSError(errno.ENOMEM, "a thread could not begin")
    async with asyncio.timeout_at(began_s + limit_s):
        return await done
