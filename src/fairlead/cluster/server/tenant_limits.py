"""The limits on the jobs that the users of a tenant may submit, and on what they may change of them: one of
them must not fill the cluster's queue and disk."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil

import msgspec

from fairlead.cluster.front.facade import ConflictError, TooManyError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import StudySpec
from fairlead.cluster.server.array_tasks import count_tasks

MINUTE_S = 60.0
_DEFAULTS = JobSpec(command=("x",), total_steps=1)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The limits of each tenant; 0 = as much as it likes. An admin is not bound by them."""

    open_jobs: int = 0  # jobs that have not ended
    jobs_per_minute: int = 0  # jobs submitted, in the long run and at once
    bytes_per_minute: int = (
        0  # likewise, of the descriptions of jobs and searches, as they are kept
    )
    changes_per_minute: int = 0  # likewise, of jobs and searches that there are; of each user
    grace_s: float = 0.0  # that a job may take to end once it is told to, on devices of others


NO_LIMITS = TenantLimits()


class TenantAdmission:
    """Decides whether jobs may be submitted and changed. Used from any thread."""

    def __init__(
        self,
        limits: TenantLimits,
        open_jobs: Callable[[str], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """open_jobs: how many jobs of a tenant are known not to have ended."""
        self.limits = limits  # may be replaced at any time
        self._open_jobs = open_jobs
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._on_their_way: Counter[str] = Counter()  # jobs that are not durable yet
        # (who, what of) -> (how much it had used up, when that was)
        self._spent: dict[tuple[str, str], tuple[float, float]] = {}

    def check(self, tenant: str, jobs: int, specs: Sequence[JobSpec] = ()) -> None:
        """Raises ConflictError where the tenant would have too many open jobs, or one that may take too long
        to end, TooManyError where it submits too many, or too much, in too short a time. jobs: of these
        specs, tasks of arrays by themselves."""
        for spec in specs:
            self._check_grace(tenant, spec)
        # Each task of an array is written by itself
        size = sum(_size(spec) * count_tasks(spec) for spec in specs)
        most = self.limits.open_jobs
        with self._lock:
            present = self._open_jobs(tenant) + self._on_their_way[tenant]
            if most and present + jobs > most:
                raise ConflictError(
                    f"tenant {tenant!r}: may have {most:,} jobs that have not ended; it has {present:,}, and "
                    f"{jobs:,} more {'is' if jobs == 1 else 'are'} submitted"
                )
            self._spend_submitted(tenant, jobs, size)

    def check_study(self, tenant: str, study: StudySpec, trial: JobSpec) -> None:
        """Raises ConflictError and TooManyError as ``check`` does for the size of what is submitted, and
        ConflictError where ``trial``, the job of one with its longest parameters, could never be
        submitted."""
        self._check_grace(tenant, trial)
        most, size = self.limits.bytes_per_minute, _size(trial)
        if 0 < most < size:
            raise ConflictError(
                f"tenant {tenant!r}: may submit {most:,} bytes of descriptions a minute, and a trial, with "
                f"its longest parameters, has {size:,}"
            )
        with self._lock:
            self._spend_submitted(tenant, 0, _size(study))

    def check_change(self, caller: Caller) -> None:
        """Count something that is asked to be changed of a job or a search that there is. Raises TooManyError
        where a user changes too much in too short a time: each change is written, and none is removed before
        its job is."""
        if caller.role != "admin":
            who, most = f"user {caller.user!r}: may ask for", self.limits.changes_per_minute
            with self._lock:
                self._spend(who, {"changes": (1, most)})

    def follow(self, tenant: str, jobs: int, ids: "Future[list[int]]") -> None:
        """Count jobs that were submitted until it is known what becomes of them."""
        with self._lock:
            self._on_their_way[tenant] += jobs

        def arrived(_: object) -> None:
            with self._lock:
                self._on_their_way[tenant] -= jobs

        ids.add_done_callback(arrived)

    def _check_grace(self, tenant: str, spec: JobSpec) -> None:
        most_s = self.limits.grace_s
        for name in ("grace_s", "finish_grace_s"):
            given_s = getattr(spec, name) or 0.0
            if 0 < most_s < given_s:
                usual = " (the default)" if given_s == getattr(_DEFAULTS, name) else ""
                raise ConflictError(
                    f"tenant {tenant!r}: {name}: a job may take {most_s:g} s to end once it is told to, got "
                    f"{given_s:g}{usual}"
                )

    def _spend_submitted(self, tenant: str, jobs: int, size: int) -> None:
        """Count what is submitted, unless it is refused. size: bytes."""
        limits = self.limits
        asked = {
            "jobs": (jobs, limits.jobs_per_minute),
            "bytes of descriptions": (size, limits.bytes_per_minute),
        }
        self._spend(f"tenant {tenant!r}: may submit", asked)

    def _spend(self, who: str, asked: dict[str, tuple[int, int]]) -> None:
        """Count what is asked for, unless it is refused. who: whose it is, and the beginning of the sentence
        that refuses it; asked: what of -> (how much, the limit of a minute)."""
        now = self._monotonic()
        used = {
            (who, what): (self._used(who, what, amount, most, now), now)
            for what, (amount, most) in asked.items()
            if most
        }
        self._spent.update(used)

    def _used(self, who: str, what: str, amount: int, most: int, now: float) -> float:
        """Return how much of what may be had in a minute is used up with so much more."""
        before, at_s = self._spent.get((who, what), (0.0, now))
        left = max(before - (now - at_s) * most / MINUTE_S, 0.0)
        may = f"{who} {most:,} {what} a minute"
        if amount > most:
            raise ConflictError(f"{may}, and submits {amount:,} at once")
        if left + amount > most:
            wait_s = ceil((left + amount - most) * MINUTE_S / most)
            raise TooManyError(f"{may}; {amount:,} more in {wait_s} s", wait_s)
        return left + amount


def _size(submitted: JobSpec | StudySpec) -> int:
    """Return the bytes in which it is kept."""
    return len(msgspec.msgpack.encode(submitted))
