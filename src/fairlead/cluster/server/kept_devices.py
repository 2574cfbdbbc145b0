"""Devices that jobs keep after they were told to stop: the time counts as theirs."""

import numpy as np

from fairlead.cluster.protocol.messages import AttemptKey
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.devices_held import has_had_devices
from fairlead.cluster.server.live_round import LiveRound
from fairlead.model.events import DevicesKept


class KeptDevices:
    """On the driver's thread.

    A round reports the time of the jobs that it began with. A job that it took off its devices may go on
    there, for as long as its grace lasts, and whoever waits for these devices receives nothing meanwhile. The
    time is charged to the job that keeps them, but for what it spends saving: else a program that does not
    stop when it is told to would have more than its share.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._charged_s: dict[
            AttemptKey, float
        ] = {}  # attempt -> of the time since it was told to stop
        self._untold: list[
            tuple[Attempt, float]
        ] = []  # attempts that are over, and what is to be charged

    def ended(self, attempt: Attempt, failure: str) -> None:
        """An attempt is over: its time after the last report is to be charged."""
        del failure
        current, ended_s = self._state.round, attempt.record.ended_s
        in_round = current is not None and attempt.row.id in current.attempts
        if ended_s is not None and not in_round:
            self._untold.append((attempt, self._more_s(attempt, ended_s)))
        self._charged_s.pop(attempt.key, None)

    def reported(self, current: LiveRound, now: float) -> DevicesKept | None:
        """Charge what was kept until now beside the jobs of a round that ends, to jobs and their tenants.
        Return what to tell the core; None: nothing was kept."""
        registry, found = self._state.registry, self._untold
        self._untold = []
        for job, attempts in registry.live.items():
            for attempt in attempts:
                if attempt.stop_ordered_s is None or attempt.lost:
                    continue
                more_s = self._more_s(attempt, now)
                self._charged_s[attempt.key] = self._charged_s.get(attempt.key, 0.0) + more_s
                if job not in current.attempts:  # else the round counts it
                    found.append((attempt, more_s))
        found = [(attempt, kept_s) for attempt, kept_s in found if kept_s > 0]
        for attempt, kept_s in found:
            device_s = kept_s * len(attempt.record.devices)
            attempt.row.device_s += device_s
            registry.totals_of(attempt.row.tenant).device_s += device_s
            if attempt.row.id in registry.jobs:
                registry.dirty_jobs.add(attempt.row.id)
        if not found:
            return None
        return DevicesKept(
            now,
            np.array([attempt.row.id for attempt, _ in found], np.int64),
            tuple(attempt.record.accelerator for attempt, _ in found),
            np.array([kept_s for _, kept_s in found]),
        )

    def _more_s(self, attempt: Attempt, until_s: float) -> float:
        """Seconds for which an attempt has kept its devices since it was told to stop, or charged last."""
        if attempt.stop_ordered_s is None or not has_had_devices(attempt):
            return 0.0
        leader = attempt.leader
        saving_s = 0.0 if leader is None else max(leader.saving_s - attempt.saved_before_s, 0.0)
        kept_s = until_s - attempt.stop_ordered_s - saving_s
        return max(kept_s - self._charged_s.get(attempt.key, 0.0), 0.0)
