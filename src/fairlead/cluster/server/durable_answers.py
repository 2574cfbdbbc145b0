"""Answers that are given once what they tell of is durable."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.errors import StoreError

_Result = TypeVar("_Result")
DURABLE_S = 30.0  # an answer that takes longer to become durable is given up on


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
