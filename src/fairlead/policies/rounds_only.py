"""The common base of planners that solve no allocation problem."""

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation
from fairlead.model.plan import Accounts, Change, PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot


class RoundsOnlyPlanner:
    """All of ``Planner`` but ``name`` and ``plan``, for one that plans its rounds from the snapshot alone:
    it solves nothing, uses no pairs of jobs, and its state is None. A planner that remembers something has
    ``start`` too."""

    __slots__ = ()

    space_sharing = False

    def start(self) -> PlannerState:
        """There is no state: what lasts is in the snapshot."""
        return None

    def due(self, now_s: float, changed: Change, stalled: bool, state: PlannerState) -> bool:  # noqa: ARG002
        """Never: there is nothing to solve."""
        return False

    def solve(self, snapshot: Snapshot, state: PlannerState) -> Allocation:  # noqa: ARG002
        """Never called, since never due."""
        raise ConfigError("this policy plans rounds itself and has no shares to solve for")

    def settle(
        self,
        snapshot: Snapshot,  # noqa: ARG002
        answer: PlannerAnswer,  # noqa: ARG002
        state: PlannerState,
    ) -> tuple[Accounts | None, PlannerState]:
        """Never called, since nothing is solved."""
        return None, state
