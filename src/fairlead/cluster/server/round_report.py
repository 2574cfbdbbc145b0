"""The report of a round to the core: steps, ends, and the device time of tenants."""

import numpy as np

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.devices_held import has_had_devices, waits_for_devices_of_others
from fairlead.cluster.server.kept_devices import KeptDevices
from fairlead.cluster.server.live_round import LiveRound
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.model.arrays import Floats, Ints
from fairlead.model.events import RoundEnded, RoundOutcome


class RoundReporter:
    """On the driver's thread."""

    def __init__(self, state: ClusterState, steps: StepAccounting, kept: KeptDevices) -> None:
        self._state = state
        self._steps = steps
        self._kept = kept

    def report(self, current: LiveRound, now: float) -> RoundEnded:
        """Return the outcome of a round that ends now; its device time is charged, and so is that of jobs
        which were to leave their devices, of which the core is told."""
        self.report_kept(current, now)
        shape = current.job_groups.shape
        steps: Floats = np.zeros(shape)
        outcome: Ints = np.full(shape, int(RoundOutcome.RAN), np.int64)
        finish_s: Floats = np.full(shape[0], now)
        restart_s: Floats = np.zeros(shape[0])
        for u, group in enumerate(current.job_groups.tolist()):
            members = [job for job in group if job >= 0]
            over = [current.ended[job] for job in members if job in current.ended]
            if over and len(over) == len(members):
                ended_s = max(end.time_s for end in over)
                finish_s[u] = min(max(ended_s, current.started_s), now)
            if self._waits(current, members):
                finish_s[u] = current.started_s
            self._charge(members, float(finish_s[u]), current)
            counted = all(end.outcome is RoundOutcome.RAN for end in over)
            for k, job in enumerate(members):
                restart_s[u] = max(restart_s[u], _starting_s(current, job, float(finish_s[u])))
                if job in current.ended:
                    outcome[u, k] = int(current.ended[job].outcome)
                end = current.ended.get(job)
                steps[u, k] = self._steps.count(current.attempts[job], end, counted)
        return RoundEnded(now, current.number, steps, finish_s, outcome, restart_s)

    def report_kept(self, current: LiveRound | None, now: float) -> None:
        """Charge the time of jobs that keep devices which they were told to leave, and tell the core."""
        for news in self._kept.reported(current, now):
            self._state.emit(news)

    def _waits(self, current: LiveRound, members: list[int]) -> bool:
        """Return whether no job of a group has its devices, for others that had them have them still."""
        for job in members:
            attempt = current.attempts[job]
            live = self._state.registry.live.get(job, ())
            own = any(has_had_devices(one) for one in live if one is not attempt)
            if job in current.ended or own or not waits_for_devices_of_others(attempt):
                return False
        return True

    def _charge(self, members: list[int], finish_s: float, current: LiveRound) -> None:
        """Device time goes to the account of its tenant, from when the first of a group had its devices; a
        packed pair shares it."""
        from_s = max(current.started_s, min(_devices_since_s(current, job) for job in members))
        for job in members:
            row, record = current.attempts[job].row, current.attempts[job].record
            device_s = max(finish_s - from_s, 0.0) * row.scale_factor / len(members)
            row.device_s += device_s
            self._state.registry.totals_of(row.tenant).device_s += device_s
            if len(members) > 1:
                record.shared_device_s += device_s * (len(members) - 1)
                self._state.registry.dirty_attempts[current.attempts[job].key] = record


def _devices_since_s(current: LiveRound, job: int) -> float:
    """Return when a job had its devices in a round; at its begin while an earlier attempt has not ended."""
    attempt = current.attempts[job]
    waited_s = max(attempt.record.wait_s, 0.0)
    return attempt.record.since_s + waited_s if attempt.ordered else current.started_s


def _starting_s(current: LiveRound, job: int, over_s: float) -> float:
    """Seconds of the round until training began. over_s: when the job group had its devices no longer."""
    trained_s = current.attempts[job].record.trained_s
    if trained_s is not None and trained_s <= current.started_s:
        return 0.0
    until = trained_s if trained_s is not None else over_s
    return float(min(until, over_s) - current.started_s)
