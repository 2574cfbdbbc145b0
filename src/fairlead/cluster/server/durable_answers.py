"""Answers that are given once what they tell of is durable."""

import contextlib
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import TypeVar

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.errors import StoreError

_Result = TypeVar("_Result")
DURABLE_S = 30.0  # an answer that takes longer to become durable is given up on
WRITTEN_S = 2.0  # for what was read to become durable; else the last commit is shown
NOTED_S = 0.05  # the driver notes that it has changed a job well within that
LOOK_S = 0.005  # between two looks


class DurableAnswers:
    """Waits for answers, on any thread but the driver's."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def wait(self, future: "Future[_Result]", withdraw: Callable[[], bool]) -> _Result:
        """The result, once it is durable. withdraw: have it not done, if nobody has begun with it; returns
        whether that is so. Raises StoreError, which says what may still happen, where it takes too long."""
        with contextlib.suppress(TimeoutError):
            return future.result(DURABLE_S)
        trouble = self._state.commit_error or "the server is busy"
        late = f"not durable within {DURABLE_S:.0f} s ({trouble})"
        if withdraw():
            raise StoreError(f"{late}, so nothing was done: try again later")
        if future.done():
            return future.result()
        raise StoreError(
            f"{late}; it may still come into force: look before you ask for it again "
            "(jobs submitted with the same key are submitted once)"
        )


class WrittenJobs:
    """Keeps from people what has become of jobs until it is durable, on any thread but the driver's."""

    def __init__(self, state: ClusterState, is_idle: Callable[[], bool]) -> None:
        """is_idle: whether all that the driver has handled is durable."""
        self._state = state
        self._is_idle = is_idle

    def wait(self, jobs: Collection[int]) -> None:
        """Wait until what was just read of these jobs is durable. Raises StoreError where it cannot be
        written, or that takes too long."""
        changed = self._state.registry.dirty_jobs  # since the last commit
        began = time.monotonic()
        while not self._is_idle():
            waited_s = time.monotonic() - began
            # One by one: a set that the driver changes meanwhile cannot be gone through, and copies of it
            # would keep the interpreter from the driver.
            if not any(job in changed for job in jobs):
                if waited_s >= NOTED_S:
                    return
            elif why := self._state.commit_error:
                raise StoreError(why)
            elif waited_s >= WRITTEN_S:
                raise StoreError(
                    "what has become of it is not written down yet: the server is busy"
                )
            time.sleep(LOOK_S)
