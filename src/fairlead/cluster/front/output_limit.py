"""A bound on the output that is kept of the jobs of a tenant: each job may keep ``log_bytes`` of each rank,
and there may be any number of jobs."""

import logging
from collections import Counter
from collections.abc import Callable

from fairlead.cluster.store.log_store import LogStore

KEPT = 0.9  # of the bound, once it is reached: what is looked through for that is not small
_log = logging.getLogger(__name__)


class OutputLimit:
    """Removes the output of a tenant's oldest jobs where there is too much of it. Used on the thread that
    takes output; ``most`` may be set from any."""

    def __init__(
        self,
        store: LogStore,
        tenant_of: Callable[[int], str | None],
        is_open: Callable[[int], bool],
    ) -> None:
        """tenant_of: whose a job is, None = there is none; is_open: whether it has not ended."""
        self.most = 0  # bytes of a tenant; 0 = as many as there are
        self._store = store
        self._tenant_of = tenant_of
        self._is_open = is_open
        self._kept: Counter[str] | None = None  # bytes by tenant, or more; None = not measured yet

    def note(self, job: int, size: int) -> None:
        """So many bytes more are kept of a job."""
        if not self.most:
            self._kept = None
            return
        if self._kept is None:
            self._kept = self._measured()
        tenant = self._tenant_of(job)
        if tenant is None:
            return
        self._kept[tenant] += size
        if self._kept[tenant] > self.most:
            self._kept[tenant] = self._shorten(tenant)

    def _measured(self) -> Counter[str]:
        kept = Counter[str]()
        for job in self._store.jobs():
            kept[self._tenant_of(job) or ""] += self._store.size(job)
        return kept

    def _shorten(self, tenant: str) -> int:
        """Remove output of jobs that have ended, the oldest first, and of others if that is not enough.
        Returns how many bytes are left."""
        sizes = {job: self._store.size(job) for job in self._store.jobs()
                 if self._tenant_of(job) == tenant}  # fmt: skip
        left = sum(sizes.values())
        if left <= self.most:  # what a job has beyond its own limit has been cut
            return left
        removed = 0
        for job in sorted(sizes, key=lambda job: (self._is_open(job), job)):
            if left <= KEPT * self.most:
                break
            if sizes[job]:
                why = f"what there was so far is removed: {self.most:,} bytes of output are kept of a tenant"
                self._store.discard(job, why)
                left -= sizes[job]
                removed += 1
        _log.info(
            "output of %d jobs of tenant %s is removed: there is more than is kept", removed, tenant
        )
        return left
