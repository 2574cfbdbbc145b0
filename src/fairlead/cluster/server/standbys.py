"""Jobs that move with a standby: their next attempt is started where they go while the present one still
trains, and waits before it loads. Source: Gandiva (OSDI'18), section 4.1, migration."""

from collections.abc import Collection, Mapping

from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.attempt_orders import AttemptOrders
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState

LIMIT_S = 60.0  # for a standby to be ready, while the attempt before it trains on


class Standbys:
    """Decides when the attempt that a standby waits for is told to stop. On the driver's thread."""

    def __init__(self, state: ClusterState, orders: AttemptOrders) -> None:
        self._state = state
        self._orders = orders
        self._until_s: dict[int, float] = {}  # job -> when its attempt has to stop at the latest

    def begin(self, attempts: Mapping[int, Attempt], taken: Collection[tuple[str, int]]) -> None:
        """A round begins. taken: (node, device) of all its attempts; who trains on one of these stops now."""
        for job, attempt in attempts.items():
            if not attempt.standby:
                continue
            source = self._state.registry.live[job][0]
            devices = {(node, d) for node, ds in source.placement().items() for d in ds}
            if devices.isdisjoint(taken):
                self._until_s.setdefault(job, self._state.now_s() + LIMIT_S)
            else:
                self._make_way(job)

    def apply(self, node: str, attempt: Attempt, status: AttemptStatus | None) -> None:
        """A node says how a standby is; None: it does not hold it."""
        if status is None:
            if self._state.fleet.will_never_begin(node, attempt.key):
                self._replace(attempt)
            return
        if attempt.is_other_order(status) or status.state == "ended":
            self._replace(attempt)
            return
        before = attempt.statuses.get(node)
        attempt.statuses[node] = status
        if status.address and (before is None or before.address != status.address):
            self._orders.order(attempt)  # the other nodes now know where rank 0 is
        if status.stands_by:
            self._make_way(attempt.row.id)

    def poll(self) -> None:
        """Wait no longer for standbys that are late."""
        for job, until_s in list(self._until_s.items()):
            newest = self._state.registry.newest(job)
            if newest is None or not newest.standby:
                del self._until_s[job]
            elif self._state.now_s() >= until_s:
                self._make_way(job)

    def _make_way(self, job: int) -> None:
        self._until_s.pop(job, None)
        self._orders.make_way(job)

    def _replace(self, attempt: Attempt) -> None:
        """A standby that has ended is of no use: its job moves by another start, without one."""
        self._orders.replace(attempt)
        self._make_way(attempt.row.id)
