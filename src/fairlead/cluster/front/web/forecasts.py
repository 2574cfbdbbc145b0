"""Forecasts for people who look: a job's story is kept for a moment, for pages ask again and again."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from fairlead.cluster.front.facade import Facade
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    Comparison,
    Explanation,
    JobView,
    WhatIf,
)

KEPT_S = 5.0
KEPT = 200  # jobs


class Forecasts:
    """See the module. Any thread may ask."""

    def __init__(self, facade: Facade, clock: Callable[[], float] = time.monotonic) -> None:
        self._facade = facade
        self._clock = clock
        self._lock = threading.Lock()  # of what is kept
        self._kept: OrderedDict[tuple[bool, int], tuple[float, Explanation]] = OrderedDict()

    def of(self, caller: Caller, job: JobView) -> Explanation:
        """The story of a job that the caller may see."""
        mine = caller.role == "admin", job.id  # who sees all jobs is told more
        kept = self._find(mine, job)
        if kept is not None:
            return kept
        told = self._facade.explain(caller, job.id)
        if told.forecast_kind == "none yet":
            return told
        with self._lock:
            self._kept[mine] = self._clock(), told
            self._kept.move_to_end(mine)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return told

    def _find(self, mine: tuple[bool, int], job: JobView) -> Explanation | None:
        with self._lock:
            made_s, told = self._kept.get(mine, (0.0, None))
        if told is None or self._clock() - made_s > KEPT_S:
            return None
        same = (told.job.state, told.job.attempt) == (job.state, job.attempt)
        return told if same else None

    def compare(self, caller: Caller, question: WhatIf) -> Comparison:
        """The forecast with changes, compared with the present one."""
        return self._facade.what_if(caller, question)
