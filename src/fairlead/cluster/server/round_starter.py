"""The commands of the core made so: rounds begin, jobs end."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.attempt_end import BY_ITSELF, LOST_ENDS, UNEVENLY, AttemptEnd
from fairlead.cluster.protocol.messages import AttemptKey
from fairlead.cluster.server.attempt_orders import AttemptOrders
from fairlead.cluster.server.attempts import Attempt, state_on_devices
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_round import EndedAttempt, LiveRound
from fairlead.cluster.server.pinned_jobs import PinnedJobs
from fairlead.cluster.server.standbys import Standbys
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.store.rows import ON_DEVICES
from fairlead.model.arrays import Ints
from fairlead.model.cluster import Cluster
from fairlead.model.commands import EndJobs, JobEnd, StartRound
from fairlead.model.events import RoundOutcome

_END: dict[int, JobState] = {
    JobEnd.COMPLETED: "completed",
    JobEnd.DROPPED: "dropped",
    JobEnd.KILLED: "killed",
    JobEnd.CANCELLED: "cancelled",
}


class RoundStarter:
    """On the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        *,
        orders: AttemptOrders,
        steps: StepAccounting,
        pinned: PinnedJobs,
        standbys: Standbys,
    ) -> None:
        self._state = state
        self._orders = orders
        self._steps = steps
        self._pinned = pinned
        self._standbys = standbys

    def start(self, command: StartRound) -> None:
        """Begin a round: order its attempts, and stop what has no place in it."""
        state, cluster = self._state, self._state.cluster
        attempts: dict[int, Attempt] = {}
        types, places = cluster.device_type[command.devices], _places(cluster, command.devices)
        bounds = itertools.pairwise(command.offsets.tolist())
        for group, (first, behind) in zip(command.job_groups.tolist(), bounds, strict=True):
            placement = _by_node(places[first:behind])
            accelerator = cluster.accelerators[types[first]]
            members = [job for job in group if job >= 0]
            for job in members:
                self._resize(job, behind - first)
                attempts[job] = self._orders.assign(job, placement, accelerator, command.time_s)
            for job in members:
                self._share(attempts[job], _others_of(attempts, members, job))
        self._pinned.decided(attempts, state.solving)
        taken = {(n, d) for s in attempts.values() for n, ds in s.placement().items() for d in ds}
        self._stop_others(attempts, taken)
        self._standbys.begin(attempts, taken)
        self._set_states(attempts)
        state.round = None
        state.capacity_changed = bool(state.events)  # what is told only now may be new jobs
        if attempts:
            state.round = LiveRound.of(command, attempts)

    def _resize(self, job: int, devices: int) -> None:
        """A job has so many devices from now on; what was measured of its rate was on as many as before."""
        row = self._state.registry.jobs[job]
        if devices != row.scale_factor:
            row.devices, row.measured_rate, row.measured_on = devices, None, ""
            self._state.registry.dirty_jobs.add(job)

    def resume(self, command: StartRound, attempts: dict[int, Attempt]) -> None:
        """After a restart of the server: the round goes on, with what of it had ended already."""
        current = self._state.round = LiveRound.of(command, attempts)
        for group in command.job_groups.tolist():
            members = [job for job in group if job in attempts]
            for job in members:
                attempts[job].shares(_others_of(attempts, members, job))
        for job, attempt in attempts.items():
            ended_s, end = attempt.record.ended_s, attempt.record.end
            if ended_s is not None:
                failed = end is AttemptEnd.FAILED
                lost = end in LOST_ENDS or (failed and not current.is_packed(job))
                outcome = (
                    RoundOutcome.LOST
                    if lost
                    else RoundOutcome.FAILED
                    if failed
                    else RoundOutcome.RAN
                )
                completed = end is AttemptEnd.COMPLETED
                current.ended[job] = EndedAttempt(ended_s, outcome, completed)

    def end_jobs(self, command: EndJobs) -> None:
        """Jobs leave the core."""
        registry = self._state.registry
        for job, end, end_s in zip(
            command.jobs.tolist(), command.end.tolist(), command.end_s.tolist(), strict=True
        ):
            row = registry.jobs[job]
            if end in (JobEnd.COMPLETED, JobEnd.CANCELLED):  # what it waited for is past
                early = row.reason if row.reason.startswith((BY_ITSELF, UNEVENLY)) else ""
                row.reason = row.stopped_by if end == JobEnd.CANCELLED else early
            # Behind the reason: whoever reads the row meanwhile takes it for ended, and whole
            row.state = _END[end]
            row.ended_s = end_s
            totals = registry.totals_of(row.tenant)
            totals.done += end == JobEnd.COMPLETED
            if row.rho is not None and end == JobEnd.COMPLETED:
                totals.rho_sum += row.rho
                totals.rho_count += 1
            self._steps.forget(job)
            self._state.close_job(row)
            self._orders.stop(job, AttemptEnd(row.state))
            self._steps.give_up(row)

    def _stop_others(self, attempts: dict[int, Attempt], taken: set[tuple[str, int]]) -> None:
        """Stop what has no place in a round. taken: (node, device) of those that have. Pinned jobs run on
        outside of it, and so do those let go that the core has not decided on: it takes their devices for
        free, and may just have given them away."""
        registry = self._state.registry
        for job in [job for job in registry.live if job not in attempts]:
            end = AttemptEnd.without_place(registry.jobs[job].state)
            undecided = end is AttemptEnd.PREEMPTED
            runs_on = self._pinned.has(job) and undecided and not self._uses(job, taken)
            self._orders.stop(job, end, ordered=not runs_on)

    def _uses(self, job: int, taken: set[tuple[str, int]]) -> bool:
        """Return whether an attempt of a job that has not been told to stop uses one of these devices."""
        return any(
            (node, device) in taken
            for attempt in self._state.registry.live[job]
            if not attempt.stopping
            for node, devices in attempt.placement().items()
            for device in devices
        )

    def _share(self, attempt: Attempt, partners: tuple[AttemptKey, ...]) -> None:
        """Note an attempt's partners. Its rate is measured until then: beside others it is not its own."""
        if partners and not attempt.is_colocated:
            self._steps.measure(attempt)
        company = not set(partners) <= set(attempt.colocated)
        attempt.shares(partners)
        if company:  # its nodes have to know whom they may let onto its devices
            self._orders.order(attempt)

    def _set_states(self, attempts: dict[int, Attempt]) -> None:
        registry = self._state.registry
        for job, row in registry.jobs.items():
            if row.reason_node and not self._pinned.has(job):
                # It is where it is for what was decided now, not for what became of a node before.
                row.reason = row.reason_node = ""
                registry.dirty_jobs.add(job)
            if job in attempts:
                state: JobState = state_on_devices(row, registry.live.get(job, ()))
            else:
                on_devices = row.state in ON_DEVICES
                leaves = on_devices and not self._pinned.is_running(registry, job)
                state = row.off_devices if leaves else row.state
            if row.state != state:
                row.state = state
                registry.dirty_jobs.add(job)


def _places(cluster: Cluster, devices: Ints) -> list[tuple[str, int]]:
    """Return for each device the name of its node and its index there."""
    nodes = cluster.device_node[devices]
    index = devices - np.searchsorted(cluster.device_node, nodes)
    names = [cluster.nodes[node].name for node in nodes.tolist()]
    return list(zip(names, index.tolist(), strict=True))


def _by_node(places: list[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Node -> indices of its devices."""
    placement: dict[str, tuple[int, ...]] = {}
    for node, index in places:
        placement[node] = (*placement.get(node, ()), index)
    return placement


def _others_of(
    attempts: Mapping[int, Attempt], members: Iterable[int], job: int
) -> tuple[AttemptKey, ...]:
    """The starts of the other members of a job's group."""
    return tuple(attempts[other].key for other in members if other != job)
