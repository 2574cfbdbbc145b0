"""Devices that jobs keep after they were told to stop: the time counts as theirs, and others get others."""

from collections.abc import Iterator

import numpy as np

from fairlead.cluster.protocol.messages import AttemptKey
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.devices_held import has_had_devices
from fairlead.cluster.server.kept_waiters import occupied_devices
from fairlead.cluster.server.live_round import LiveRound
from fairlead.model.events import DevicesKept, DevicesOccupied, Event

IDLE_S = 2.0  # between two looks while there is no round


class KeptDevices:
    """On the driver's thread.

    A round reports the time of the jobs that it began with. A job that it took off its devices may go on
    there, for as long as its grace lasts, and whoever waits for these devices receives nothing meanwhile. The
    time is charged to the job that keeps them, but for what it spends saving: else a program that does not
    stop when it is told to would have more than its share.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        # attempt and node -> until when its devices there are charged, in seconds since it was told to stop
        self._charged_s: dict[tuple[AttemptKey, str], float] = {}
        # attempts that are over -> device-seconds that are to be charged
        self._untold: list[tuple[Attempt, float]] = []
        self._looked_s = 0.0

    def ended(self, attempt: Attempt, failure: str) -> None:
        """An attempt is over: its time after the last report is to be charged."""
        del failure
        ended_s = attempt.record.ended_s
        if ended_s is not None:
            device_s = self._charge(attempt, ended_s)
            self._untold.append((attempt, device_s * _uncounted(attempt, self._state.round)))
        for node in attempt.nodes:
            self._charged_s.pop((attempt.key, node), None)

    def reported(self, current: LiveRound | None, now: float) -> Iterator[Event]:
        """Charge what was kept until now beside the jobs of a round that ends, to jobs and their tenants.
        Yield what to tell the core. current: None = there is no round."""
        if current is None and now - self._looked_s < IDLE_S:
            return
        self._looked_s = now
        registry, found = self._state.registry, self._untold
        self._untold = []
        for attempts in registry.live.values():
            for attempt in attempts:
                device_s = 0.0 if attempt.lost else self._charge(attempt, now)
                found.append((attempt, device_s * _uncounted(attempt, current)))
        found = [(attempt, device_s) for attempt, device_s in found if device_s > 0]
        for attempt, device_s in found:
            attempt.row.device_s += device_s
            registry.totals_of(attempt.row.tenant).device_s += device_s
            if attempt.row.id in registry.jobs:
                registry.dirty_jobs.add(attempt.row.id)
        if found:
            yield DevicesKept(
                now,
                np.array([attempt.row.id for attempt, _ in found], np.int64),
                tuple(attempt.record.accelerator for attempt, _ in found),
                np.array([device_s / len(one.record.devices) for one, device_s in found]),
            )
        core, occupied = self._state.scheduler, tuple(sorted(occupied_devices(registry, now)))
        if core is not None and core.data.occupied != occupied:
            yield DevicesOccupied(now, occupied)

    def _charge(self, attempt: Attempt, until_s: float) -> float:
        """Return the device-seconds for which an attempt has kept devices since it was told to stop, or
        charged last. A pair that keeps a device has half of it each."""
        since_s = attempt.stop_ordered_s
        if since_s is None and attempt.stopping:  # by a server before this one, nobody knows when
            since_s = self._state.clock.restored_s
        if since_s is None or not has_had_devices(attempt):
            return 0.0
        leader, device_s = attempt.leader, 0.0
        saving_s = 0.0 if leader is None else max(leader.saving_s - attempt.saved_before_s, 0.0)
        for node, ranks in attempt.nodes.items():
            status = attempt.statuses.get(node)
            if status is not None and status.released:
                continue
            kept_s = min(until_s, attempt.ended_s.get(node, until_s)) - since_s - saving_s
            before_s = self._charged_s.get((attempt.key, node), 0.0)
            if kept_s > before_s:
                self._charged_s[attempt.key, node] = kept_s
                device_s += (kept_s - before_s) * sum(len(rank.devices) for rank in ranks)
        return device_s / (1 + self._partners(attempt))

    def _partners(self, attempt: Attempt) -> int:
        """Return how many attempts share its devices that have not left them."""
        live = self._state.registry.live
        return sum(
            one.key in attempt.colocated and has_had_devices(one)
            for job, _ in attempt.colocated
            for one in live.get(job, ())
        )


def _uncounted(attempt: Attempt, current: LiveRound | None) -> float:
    """Return the part of an attempt's devices that a round does not count: it counts as many as the job was
    given there, also while an earlier attempt of the job keeps more."""
    own = None if current is None else current.attempts.get(attempt.row.id)
    if own is None:
        return 1.0
    return max(1.0 - len(own.record.devices) / len(attempt.record.devices), 0.0)
