"""Results of what takes long in a large cluster, shared by all who ask for the same within a short time."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

PART = 0.1  # of the time that computing may take
MAX_AGE_S = 1.0  # a result is never older
MAX_RESULTS = 64  # keys

Value = TypeVar("Value")


class _Result(NamedTuple, Generic[Value]):
    value: Value
    until: float  # monotonic seconds


class RecentResults(Generic[Value]):
    """Any thread may ask; one computes, and the others wait for it.

    A result serves for ten times as long as it took, at most for ``MAX_AGE_S``, so in a small cluster each is
    of the present. It is shared, and must not be changed.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._results: dict[Hashable, _Result[Value]] = {}
        self._lock = threading.Lock()

    def of(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """The result of ``compute``, or of an earlier call of it for this key. Raises what it raises."""
        with self._lock:
            began = self._monotonic()
            found = self._results.get(key)
            if found is not None and began < found.until:
                return found.value
            value = compute()
            ended = self._monotonic()
            self._results.pop(key, None)
            self._results[key] = _Result(value, ended + min((ended - began) / PART, MAX_AGE_S))
            if len(self._results) > MAX_RESULTS:
                del self._results[next(iter(self._results))]
            return value
