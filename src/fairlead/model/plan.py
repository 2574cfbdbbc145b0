"""Interfaces of policies, which give long-run shares, and of planners, which give rounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Protocol, TypeAlias, runtime_checkable

from numpy.typing import NDArray

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Floats, Ints
from fairlead.model.snapshot import Snapshot

PlannerState: TypeAlias = Any  # whatever a planner threads from one call to the next


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The job groups that run in one round, before devices are chosen; their order is the order of
    placement.

    job_group: (running,) rows of the snapshot's job groups. slot: (running,) columns of the snapshot's slots.
    wake_s: if nothing runs, when the planner is to be asked again at the latest, in seconds since the
    beginning; inf = when something has happened.
    nodes: (devices of all rows,) the node of each device that a row is to have, row after row, ascending
    within a row: positions in ``Snapshot.servers``. None = the rule of placement chooses.
    scale: (running,) devices that each row has from now on, one of those that its job may have (``Snapshot.
    elastic``); another number than before is a start anew. None = as before.
    """

    job_group: Ints
    slot: Ints
    wake_s: float = float("inf")
    nodes: Ints | None = None
    scale: Ints | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rounds planned ahead: the answer of a planner that has no shares.

    job_groups: (groups, width) job ids, -1 after the last. slot: (groups, rounds) column of the snapshot's
    slots in each round, -1 = does not run. report: how it came about.
    """

    job_groups: Ints
    slot: Ints
    report: SolveReport


PlannerAnswer: TypeAlias = Allocation | Schedule


class Change(IntFlag):
    """Differences from the last solve: JOBS, some came, left or failed; DEVICES, some were lost or are back;
    REQUIREMENTS, jobs changed their batch sizes, hence their rates."""

    NOTHING = 0
    JOBS = 1
    DEVICES = 2
    REQUIREMENTS = 4


@dataclass(frozen=True, slots=True)
class Accounts:
    """Time that job groups have received and are owed, in seconds, as in ``Snapshot``.

    received_s: (groups, slots) run time since the accounts were settled. deficit_s: (groups, slots) time owed
    from before that. allocated_s: (slots,) the sum of received_s over all job groups, those that have left
    included.
    """

    received_s: Floats
    deficit_s: Floats
    allocated_s: Floats


@runtime_checkable
class Policy(Protocol):
    """Divides the devices by long-run shares, as Gavel's policies do. A pure function of the snapshot.

    Asked before a round when jobs or devices have changed since the last solve; one whose shares depend on
    age or run time has ``BasePolicy.solve_every_s`` too.
    """

    @property
    def name(self) -> str:
        """Name in reports and errors."""

    @property
    def heterogeneity_aware(self) -> bool:
        """Return whether it uses the rates of the accelerator types. (Gavel's mechanism shuffles types if
        not.)"""

    @property
    def space_sharing(self) -> bool:
        """Return whether it uses job groups of two jobs."""

    @property
    def work_conserving(self) -> bool:
        """Return whether job groups that are owed nothing, for want of a share or because they are ahead of
        it, may fill devices that are left over. If not, these stand idle until somebody is owed time
        again."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """Return the shares that solve the policy's program for the jobs and devices of the snapshot. They
        may be checked by ``check_allocation``: one that breaks a constraint ends the run with
        AllocationError."""


class BasePolicy:
    """Traits that a policy may leave out, with what holds then. A policy that has one inherits from this."""

    strict: bool = False  # rather leave devices idle than let a job group overtake another
    global_queue: bool = (
        False  # one queue over all accelerator types: Gavel's --enable_global_queue
    )
    solve_every_s: float | None = (
        None  # solve again when the shares are this old; None: on change only
    )
    weighs_prices: bool = False  # a job is also moved to a type that is cheaper and no faster
    elastic: bool = (
        False  # its program holds where slot types are configurations (``Snapshot.slot_devices``)
    )


_NO_TRAITS = BasePolicy()


def optional_traits(policy: object) -> BasePolicy:
    """The policy itself, if it declares such traits; else what holds without them."""
    return policy if isinstance(policy, BasePolicy) else _NO_TRAITS


def weighs_prices(planner: object) -> bool:
    """Return whether the policy of a planner, if it has one, declares that."""
    return optional_traits(getattr(planner, "policy", planner)).weighs_prices


@runtime_checkable
class Specified(Protocol):
    """A policy or planner that says from which name and options it can be made again."""

    @property
    def spec(self) -> str:
        """``NAME[:ARG]``, as ``--policy`` takes it."""


@runtime_checkable
class Stateful(Protocol):
    """A policy that remembers something from one solve to the next. Its state is kept with the allocation
    in force, hence in the journal: a run that is resumed, and a server that starts again, go on with it.
    """

    def set_state(self, state: bytes) -> None:
        """Take up ``state``, which ``get_state`` returned after the solve whose shares are in force; empty
        where there is none. Called before each ``allocate``."""

    def get_state(self) -> bytes:
        """Return all that the next ``allocate`` needs. Called after each."""


@runtime_checkable
class Planner(Protocol):
    """Decides rounds. The core knows only this; ``SharesPlanner`` makes one of a policy.

    All that lasts between calls is in the snapshot or in the state, so that a replay is exact.
    """

    @property
    def name(self) -> str:
        """Name in reports and errors."""

    @property
    def space_sharing(self) -> bool:
        """Return whether it uses job groups of two jobs."""

    def start(self) -> PlannerState:
        """Return the state before the first round."""

    def due(self, now_s: float, changed: Change, stalled: bool, state: PlannerState) -> bool:
        """Return whether to solve before the next round. changed: since the last solve; stalled: nothing runs
        and nothing will happen by itself."""

    def solve(self, snapshot: Snapshot, state: PlannerState) -> PlannerAnswer:
        """Return shares, or rounds planned ahead. The heavy part: pure, run outside the core in answer to a
        ``Solve`` command. It must not change the state."""

    def settle(
        self, snapshot: Snapshot, answer: PlannerAnswer, state: PlannerState
    ) -> tuple[Accounts | None, PlannerState]:
        """Return the accounts from here on, or None to leave them as they are, and the state. Called with the
        old shares when an answer comes into force. A schedule is the planner's to keep."""

    def plan(self, snapshot: Snapshot, state: PlannerState) -> tuple[RoundPlan, PlannerState]:
        """Return who runs in the next round, and the state after it."""


@runtime_checkable
class AccountingPlanner(Protocol):
    """A planner that settles accounts, and can go on with those of another scheduler's planner."""

    def accounts(self, snapshot: Snapshot, state: PlannerState) -> Accounts:
        """Return the accounts as they would be if they were settled now; nothing changes."""

    def settled_s(self, state: PlannerState) -> float:
        """Return when they were settled last: seconds of the run."""

    def begin(self, settled_s: float) -> PlannerState:
        """Return the state of a planner that takes over accounts which were settled then, before its first
        answer."""


@runtime_checkable
class Checkpointable(Protocol):
    """A planner whose state outlives its scheduler."""

    def state_dict(self, state: PlannerState) -> Mapping[str, NDArray[Any]]:
        """Return all of the state that matters, as named arrays of its own."""

    def load_state_dict(self, arrays: Mapping[str, NDArray[Any]]) -> PlannerState:
        """Return the state of which ``state_dict`` of a planner with the same name and options made these."""
