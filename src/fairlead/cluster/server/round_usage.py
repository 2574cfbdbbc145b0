"""The device time of the round in force, which no row has before the round is reported."""

import threading
from collections import defaultdict

from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.live_round import LiveRound


class RoundUsage:
    """Sums by tenant, kept as starts of a round end: the status is shown after most commits, and thousands of
    starts are not gone through for it. Any thread may call ``device_s``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = 0  # so many of the starts that have ended are taken off
        self._begin(None)

    def device_s(self, current: LiveRound | None, now: float) -> dict[str, float]:
        """Tenant -> device-seconds of the starts of a round that have not ended. now: of the cluster's
        clock."""
        with self._lock:
            if current is not self._round:
                self._begin(current)
            if current is None:
                return {}
            ended = list(current.ended)
            for job in ended[self._ended :]:
                self._add(current.attempts[job], current.started_s, -1)
            self._ended = len(ended)
            lasted_s = now - current.started_s
            return {
                tenant: max(devices * lasted_s - self._late_s[tenant], 0.0)
                for tenant, devices in self._devices.items()
            }

    def _begin(self, current: LiveRound | None) -> None:
        self._round = current
        self._ended = 0
        self._devices: defaultdict[str, int] = defaultdict(int)  # by tenant
        self._late_s: defaultdict[str, float] = defaultdict(
            float
        )  # device-seconds before they began
        for attempt in () if current is None else list(current.attempts.values()):
            self._add(attempt, current.started_s, 1)  # type: ignore[union-attr]

    def _add(self, attempt: Attempt, started_s: float, sign: int) -> None:
        tenant, devices = attempt.row.tenant, sign * attempt.row.scale_factor
        self._devices[tenant] += devices
        self._late_s[tenant] += devices * max(attempt.record.began_s - started_s, 0.0)
