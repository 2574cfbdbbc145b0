"""Forecasts for people who look: one is made at a time, and a job's is kept for a while.

Each is a simulation of seconds, and pages ask again and again.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from fairlead.live.access import Caller
from fairlead.live.facade import ConflictError, Facade
from fairlead.live.views import Comparison, Explanation, JobView, WhatIf

KEPT_S = 30.0
KEPT = 200  # jobs
PATIENCE_S = 5.0  # that a question waits for its turn


class Forecasts:
    """See the module. Any thread may ask."""

    def __init__(self, facade: Facade, clock: Callable[[], float] = time.monotonic) -> None:
        self._facade = facade
        self._clock = clock
        self._turn = threading.Lock()  # to ask
        self._lock = threading.Lock()  # of what is kept
        self._kept: OrderedDict[int, tuple[float, Explanation]] = OrderedDict()

    def of(self, caller: Caller, job: JobView) -> Explanation | None:
        """The story of a job that the caller may see; None = ask again in a moment."""
        kept = self._find(job)
        if kept is not None:
            return kept
        if not self._turn.acquire(blocking=False):
            return None
        try:
            told = self._facade.explain(caller, job.id)
        finally:
            self._turn.release()
        with self._lock:
            self._kept[job.id] = self._clock(), told
            self._kept.move_to_end(job.id)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return told

    def _find(self, job: JobView) -> Explanation | None:
        with self._lock:
            made_s, told = self._kept.get(job.id, (0.0, None))
        if told is None or self._clock() - made_s > KEPT_S:
            return None
        same = (told.job.state, told.job.epoch) == (job.state, job.epoch)
        return told if same else None

    def compare(self, caller: Caller, question: WhatIf) -> Comparison:
        """What would be. Raises ConflictError where other forecasts do not end in time."""
        if not self._turn.acquire(timeout=PATIENCE_S):
            raise ConflictError("other forecasts are being made: ask again in a moment")
        try:
            return self._facade.what_if(caller, question)
        finally:
            self._turn.release()
