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

CACHE_S = 5.0
MAX_CACHED = 200  # jobs


class Forecasts:
    """See the module. Any thread may ask."""

    def __init__(self, facade: Facade, clock: Callable[[], float] = time.monotonic) -> None:
        self._facade = facade
        self._clock = clock
        self._lock = threading.Lock()  # of what is kept
        self._cache: OrderedDict[tuple[bool, int], tuple[float, Explanation]] = OrderedDict()

    def of(self, caller: Caller, job: JobView) -> Explanation:
        """The story of a job that the caller may see."""
        mine = caller.role == "admin", job.id  # who sees all jobs is told more
        entry = self._find(mine, job)
        if entry is not None:
            return entry
        explanation = self._facade.explain(caller, job.id)
        if explanation.forecast_kind == "none yet":
            return explanation
        with self._lock:
            self._cache[mine] = self._clock(), explanation
            self._cache.move_to_end(mine)
            if len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        return explanation

    def _find(self, mine: tuple[bool, int], job: JobView) -> Explanation | None:
        with self._lock:
            made_s, explanation = self._cache.get(mine, (0.0, None))
        if explanation is None or self._clock() - made_s > CACHE_S:
            return None
        same = (explanation.job.state, explanation.job.attempt) == (job.state, job.attempt)
        return explanation if same else None

    def compare(self, caller: Caller, question: WhatIf) -> Comparison:
        """The forecast with changes, compared with the present one."""
        return self._facade.what_if(caller, question)
