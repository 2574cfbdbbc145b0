"""What planners of tests have in common that keep nothing from round to round."""

from typing import Any

from fairlead import Allocation, Snapshot


class StatelessPlanner:
    """A planner that solves nothing; a test adds ``name`` and ``plan``."""

    space_sharing = False

    def start(self) -> None:
        return None

    def due(self, now_s: float, changed: Any, stalled: bool, state: None) -> bool:
        return False

    def solve(self, snapshot: Snapshot, state: None) -> Allocation:
        raise NotImplementedError

    def settle(self, snapshot: Snapshot, answer: Any, state: None) -> tuple[None, None]:
        return None, None
