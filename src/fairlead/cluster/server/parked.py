"""Jobs that are parked on nodes: which attempts go on with them, and which are of no use any more."""

from collections.abc import Callable

from fairlead.cluster.protocol.messages import AttemptKey, ParkedAttempt, Rank
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.job_registry import JobRegistry
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import DevicesBound
from fairlead.model.job import JobId


def resumable(fleet: Fleet, attempt: Attempt) -> int:
    """The attempt of the same job whose parked ranks an attempt can go on with; 0 = there is none.

    That is so where the ranks of each of its nodes are parked there, and the newest checkpoint is theirs.
    Processes that have opened a real device stay on it: they cannot be given others.
    """
    number = attempt.row.saved_by
    for name, ranks in attempt.nodes.items():
        node, found = fleet.nodes.get(name), _part_on(fleet, name, attempt.row)
        same = attempt.row.spec.is_suspended
        if node is None or found is None or not _fits(found, ranks, node, same=same):
            return 0
    return number


def is_part(row: JobRow, number: int) -> bool:
    """Return whether what is parked on a node as of this attempt is a part of what the job goes on with. Of a
    program that is parked as it is that may be an attempt before the last one that went on: where this never
    began, its processes have stood still ever since."""
    if not row.spec.is_suspended or not row.parked_from:
        return number == row.saved_by
    return row.parked_from <= number <= row.saved_by


def _part_on(fleet: Fleet, name: str, row: JobRow) -> ParkedAttempt | None:
    """Return what of a job is parked on a node that the job can go on with."""
    if name not in fleet.nodes:
        return None
    mine = (one for (job, number), one in fleet.parked(name).items() if job == row.id)
    return next((one for one in mine if is_part(row, one.attempt)), None)


def never_resumed(fleet: Fleet, attempt: Attempt) -> set[str]:
    """The nodes of an attempt that was to go on with a program that is parked as it is, where it never began:
    the program stands there as it stood."""
    if not (attempt.row.spec.is_suspended and attempt.resumes):
        return set()
    begun = {name for name, status in attempt.statuses.items() if status.wait_s >= 0.0}
    return {name for name in attempt.nodes.keys() - begun if _part_on(fleet, name, attempt.row)}


def _fits(parked: ParkedAttempt, ranks: tuple[Rank, ...], node: LiveNode, *, same: bool) -> bool:
    """same: whether the ranks know their devices by their environment, and so cannot be given others."""
    if node.simulated_devices and not same:
        return [rank.rank for rank in parked.ranks] == [rank.rank for rank in ranks]
    return parked.ranks == ranks


def parked_on(fleet: Fleet, job: int) -> dict[str, ParkedAttempt]:
    """Return node -> what of a job is parked there."""
    return {
        name: one
        for name in list(fleet.nodes)
        for one in fleet.parked(name).values()
        if one.job == job
    }


def unpark_useless(state: ClusterState) -> None:
    """Have nodes end what is parked there and will not go on there."""
    for name in list(state.fleet.nodes):
        useless = {key for key in state.fleet.parked(name) if not _is_wanted(state.registry, key)}
        state.fleet.unpark(name, useless)


class ProgramDevices:
    """The devices on which programs without the iterator run, or are parked as they are: the core is told
    that such a job runs there or not at all, for anywhere else it would start from zero. On the driver's
    thread."""

    def __init__(self, state: ClusterState, can_suspend: Callable[[Attempt], bool]) -> None:
        """can_suspend: whether the program of an attempt is parked if it is preempted."""
        self._state = state
        self._can_suspend = can_suspend

    def tell(self) -> None:
        """Tell the core what it does not know yet, before it decides."""
        core, state = self._state.scheduler, self._state
        if core is None:
            return
        known = core.data.bound_jobs.devices
        parked = {job for name in list(state.fleet.nodes) for job, _ in state.fleet.parked(name)}
        for job in sorted({*known, *parked, *state.registry.live}):
            if JobId(job) not in core.data.ledger and JobId(job) not in core.data.paused_jobs:
                continue
            devices = self._devices(job)
            if devices != known.get(job, ()):
                state.emit(DevicesBound(state.now_s(), JobId(job), devices))

    def _devices(self, job: int) -> tuple[tuple[str, int], ...]:
        """Of each device that a job is bound to, its node and its index there; () = it may run anywhere."""
        row = self._state.registry.jobs.get(job)
        if row is None or not row.open or not row.spec.is_suspended:
            return ()
        newest = self._state.registry.newest(job)
        if newest is not None and newest.ordered and self._will_go_on(newest):
            ranks = newest.nodes
        else:  # also where an attempt was withdrawn before it went on: its node was silent for a moment
            parked = parked_on(self._state.fleet, job).items()
            ranks = {name: one.ranks for name, one in parked if is_part(row, one.attempt)}
        devices = tuple((name, d) for name in ranks for rank in ranks[name] for d in rank.devices)
        stays = len(devices) == row.scale_factor and not any(map(self._is_left, ranks))
        return devices if stays else ()

    def _will_go_on(self, attempt: Attempt) -> bool:
        """Return whether the program of an attempt goes on after it: it is parked, or is about to be."""
        over = attempt.lost or attempt.broken or (attempt.stopping and not attempt.is_preempted)
        return not over and not attempt.is_colocated and self._can_suspend(attempt)

    def _is_left(self, name: str) -> bool:
        """Return whether a node is not waited for: what is parked there is lost, or is to make way."""
        node = self._state.fleet.nodes.get(name)
        return node is None or node.lost or node.drained or node.leaving


class ParkedPrograms:
    """Programs without the iterator that are parked as they are: what they have done is in their memory
    alone. On the driver's thread."""

    def __init__(self, state: ClusterState, steps: StepAccounting) -> None:
        self._state = state
        self._steps = steps
        self._parked: dict[
            str, set[AttemptKey]
        ] = {}  # node -> of such jobs, when it was looked last

    def poll(self) -> None:
        """Note which are gone that nothing goes on with: their jobs start from zero."""
        for name in list(self._state.fleet.nodes):
            found = set(filter(self._is_program, self._state.fleet.parked(name)))
            left = {job for job, _ in found}
            for job, number in self._parked.get(name, set()) - found:
                if job not in left:  # else it has gone on there, and is parked again
                    self._gone(job, number)
            self._parked[name] = found

    def _is_program(self, key: AttemptKey) -> bool:
        row = self._state.registry.jobs.get(key[0])
        return row is not None and row.spec.is_suspended

    def _gone(self, job: int, number: int) -> None:
        row = self._state.registry.jobs.get(job)
        if row is None or not row.open or not is_part(row, number) or row.tells_saved:
            return
        if self._state.registry.live.get(job):
            return  # it goes on, or its next attempt says what it begins with
        row.reached_step = max(row.reached_step, row.steps)  # the next attempt counts them as lost
        row.origin = ""
        row.saved_by = row.parked_from = 0  # what is left of it, of a gang, does not go on either
        self._steps.correct(row, 0.0)


def _is_wanted(registry: JobRegistry, key: AttemptKey) -> bool:
    """Return whether the job waits for devices, with this attempt as its last one, or goes on with it now."""
    job, number = key
    row = registry.jobs.get(job)
    if row is None or not row.open:
        return False
    if any(attempt.record.attempt == number for attempt in registry.live.get(job, ())):
        return True  # its end is not booked yet
    if not is_part(row, number):
        return False
    newest = registry.newest(job)
    if newest is None:
        return row.state in ("waiting", "preempted")
    return newest.resumes == row.saved_by or not newest.ordered
