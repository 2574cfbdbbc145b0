"""Devices that jobs keep after they were told to leave, and jobs that were sent there nevertheless."""

from collections import Counter
from collections.abc import Callable, Mapping

from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.devices_held import has_had_devices, waits_for_devices_of_others
from fairlead.cluster.server.job_registry import JobRegistry
from fairlead.cluster.server.node_condition import usable
from fairlead.cluster.store.rows import JobRow

MOMENT_S = 2.0  # in which most attempts leave their devices once they are told to stop
_Devices = set[tuple[str, int]]  # node, index there


def occupied_devices(registry: JobRegistry, now: float) -> _Devices:
    """Return the devices that attempts keep which were told to stop; most leave in a moment, and theirs are
    not among them. Nor are those of an attempt of which no node says that it waits: it may have just begun
    there, and ends are told a little late. now: the cluster's time."""
    kept, used = _Devices(), _Devices()
    for attempts in registry.live.values():
        for attempt in attempts:
            if attempt.stopping:
                counts = has_had_devices(attempt) and not _was_just_told(attempt, now)
            else:
                counts = not waits_for_devices_of_others(attempt)
            if counts and attempt.ordered:
                (kept if attempt.stopping else used).update(_held(attempt))
    return kept - used


class KeptWaiters:
    """Finds jobs that wait for devices which others keep. On the driver's thread."""

    def __init__(self, state: ClusterState, rates: Callable[[JobRow], Mapping[str, float]]) -> None:
        """rates: of a job, by accelerator type."""
        self._state = state
        self._rates = rates

    def could_run_elsewhere(self) -> bool:
        """Return whether a job that the decision in force sent to devices which another keeps could run on
        free ones. Nobody knew then that they are kept; the next decision does."""
        current, now = self._state.round, self._state.now_s()
        registry = self._state.registry
        if current is None or not any(
            attempt.stopping and not _was_just_told(attempt, now)
            for attempts in registry.live.values()
            for attempt in attempts
        ):
            return False
        waiting = [
            attempt
            for job, attempt in current.attempts.items()
            if job not in current.ended and self._is_new(attempt, current.started_s)
        ]
        if not waiting:
            return False
        occupied, free = occupied_devices(registry, now), self._free()
        return any(
            not occupied.isdisjoint(_held(attempt)) and self._fits(attempt, free)
            for attempt in waiting
        )

    def _is_new(self, attempt: Attempt, started_s: float) -> bool:
        """Return whether an attempt waits for devices that the decision at ``started_s`` gave it."""
        if (attempt.record.ordered_s or 0.0) < started_s:
            return False
        return attempt.row.id not in self._state.bound_devices and waits_for_devices_of_others(
            attempt
        )

    def _free(self) -> dict[str, int]:
        """Accelerator type -> devices of nodes in use that no attempt has or is to have."""
        held = _Devices()
        for attempts in self._state.registry.live.values():
            held.update(*map(_held, attempts))  # one may wait for what another keeps
        taken = Counter(node for node, _ in held)
        now = self._state.fleet.monotonic()
        free = Counter[str]()
        for node in self._state.fleet.nodes.values():
            if usable(node, now):
                free[node.accelerator] += max(node.devices - taken[node.name], 0)
        return free

    def _fits(self, attempt: Attempt, free: Mapping[str, int]) -> bool:
        rates, least = self._rates(attempt.row), attempt.row.spec.scale_factors[0]
        return any(free.get(name, 0) >= least for name, rate in rates.items() if rate > 0)


def _was_just_told(attempt: Attempt, now: float) -> bool:
    since_s = attempt.stop_ordered_s  # None: by a server before this one
    return since_s is not None and now - since_s < MOMENT_S


def _held(attempt: Attempt) -> _Devices:
    return {
        (node, device)
        for node, devices in attempt.placement().items()
        if not attempt.has_left(node)
        for device in devices
    }
