"""What decides: policies give long-run shares, planners give rounds."""

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
    """Who runs in one round, before devices are chosen; the order is the order of placement."""

    job_group: Ints  # (running,) rows of the snapshot's job groups
    slot: Ints  # (running,) columns of the snapshot's slots
    wake_s: float = float(
        "inf"
    )  # if nothing runs: when the planner is to be asked again at the latest


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rounds planned ahead: the answer of a planner that has no shares."""

    job_groups: Ints  # (groups, width) job ids, -1 behind the last
    slot: Ints  # (groups, rounds) column of the snapshot's slots in each round, -1 = does not run
    report: SolveReport


PlannerAnswer: TypeAlias = Allocation | Schedule


class Change(IntFlag):
    """What differs from the last solve."""

    NOTHING = 0
    JOBS = 1  # some came, left or failed
    DEVICES = 2
    REQUIREMENTS = 4  # jobs changed their batch sizes, hence their rates


@dataclass(frozen=True, slots=True)
class Accounts:
    """Who has had how much time, per job group and slot type; see ``Snapshot``."""

    received_s: Floats  # (groups, slots)
    deficit_s: Floats  # (groups, slots)
    allocated_s: Floats  # (slots,)


@runtime_checkable
class Policy(Protocol):
    """Long-run shares: the Gavel family. A pure function of the snapshot.

    Asked before a round when jobs or devices have changed since the last solve; one whose shares depend on
    age or run time has ``BasePolicy.solve_every_s`` too.
    """

    @property
    def name(self) -> str: ...

    @property
    def heterogeneity_aware(self) -> bool:
        """Does it use the rates of the accelerator types? (Gavel's mechanism shuffles types if not.)"""

    @property
    def space_sharing(self) -> bool:
        """Whether it uses job groups of two jobs."""

    @property
    def work_conserving(self) -> bool:
        """Whether job groups that are owed nothing, for want of a share or because they are ahead of it, may
        fill devices that are left over. If not, these stand idle until somebody is owed time again."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares that solve the policy's program."""


class BasePolicy:
    """Traits that a policy may leave out, with what holds then. A policy that has one inherits from this."""

    strict: bool = False  # rather leave devices idle than let a job group overtake another
    global_queue: bool = (
        False  # one queue over all accelerator types: Gavel's --enable_global_queue
    )
    solve_every_s: float | None = (
        None  # solve again when the shares are this old; None: on change only
    )


_NO_TRAITS = BasePolicy()


def optional_traits(policy: object) -> BasePolicy:
    """The policy itself, if it declares such traits; else what holds without them."""
    return policy if isinstance(policy, BasePolicy) else _NO_TRAITS


@runtime_checkable
class Specified(Protocol):
    """A policy or planner that says from which name and options it can be made again."""

    @property
    def spec(self) -> str: ...


@runtime_checkable
class Stateful(Protocol):
    """A policy that remembers something from one solve to the next. Its state is kept with the allocation
    in force, hence in the journal: a run that is resumed, and a server that starts again, go on with it.
    """

    def set_state(self, state: bytes) -> None:
        """Called before each ``allocate``: what ``get_state`` gave after the solve whose shares are in
        force; empty where there is none."""

    def get_state(self) -> bytes:
        """Called after each ``allocate``: all that the next one needs."""


@runtime_checkable
class Planner(Protocol):
    """Decides rounds. The core knows only this; ``SharesPlanner`` makes one of a policy.

    All that lasts between calls is in the snapshot or in the state, so that a replay is exact.
    """

    @property
    def name(self) -> str: ...

    @property
    def space_sharing(self) -> bool:
        """Whether it uses job groups of two jobs."""

    def start(self) -> PlannerState:
        """The state before the first call."""

    def due(self, now_s: float, changed: Change, stalled: bool, state: PlannerState) -> bool:
        """Is a solve wanted before the next round? changed: since the last solve; stalled: nothing runs
        and nothing will happen by itself."""

    def solve(self, snapshot: Snapshot, state: PlannerState) -> PlannerAnswer:
        """The heavy part: pure, run outside the core in answer to a ``Solve`` command. It must not
        change the state."""

    def settle(
        self, snapshot: Snapshot, answer: PlannerAnswer, state: PlannerState
    ) -> tuple[Accounts | None, PlannerState]:
        """Called with the old shares when an answer is about to come into force: the accounts from
        here on, or None to leave them as they are. A schedule is the planner's to keep."""

    def plan(self, snapshot: Snapshot, state: PlannerState) -> tuple[RoundPlan, PlannerState]:
        """The next round."""


@runtime_checkable
class KeepsAccounts(Protocol):
    """A planner that settles accounts, and can go on with those of another scheduler's planner."""

    def accounts(self, snapshot: Snapshot, state: PlannerState) -> Accounts:
        """The accounts as they would be if they were settled now; nothing changes."""

    def settled_s(self, state: PlannerState) -> float:
        """When they were settled last."""

    def begin(self, settled_s: float) -> PlannerState:
        """The state of a planner that takes over accounts which were settled then, before its first
        answer."""


@runtime_checkable
class Checkpointable(Protocol):
    """A planner whose state outlives its scheduler."""

    def state_dict(self, state: PlannerState) -> Mapping[str, NDArray[Any]]:
        """All of the state that matters, as named arrays of its own."""

    def load_state_dict(self, arrays: Mapping[str, NDArray[Any]]) -> PlannerState:
        """The state that this was kept of, of a planner with the same name and options."""
