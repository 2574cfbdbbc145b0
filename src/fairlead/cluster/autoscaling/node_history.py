"""The nodes that an autoscaler asked for: how long they waited, and which came to nothing."""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fairlead.cluster.autoscaling.launcher import LaunchedNode
from fairlead.cluster.protocol.api_models import NodeView
from fairlead.model.duration_text import duration

REGISTER_S = 120.0  # for the agent of a node that runs to register
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 600.0  # after nodes that ended before their agents came
WAITS = 20  # waits of late of which the median is what is expected


@dataclass(slots=True)
class _Failures:
    """Nodes of a type that were refused, or ended before their agents came, one after the other."""

    count: int = 0
    until_s: float = 0.0  # monotonic; none is asked for before
    why: str = ""  # what became of the last of them


class NodeHistory:
    """After a restart of the server it is empty, and nothing is started twice for that."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._asked: dict[str, float] = {}  # node that waits -> monotonic, when it was seen first
        self._waits: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WAITS))
        self._registered: set[str] = set()  # nodes whose agents have come
        self._silent_since: dict[str, float] = {}  # node that runs without an agent -> monotonic
        self._seen: dict[str, LaunchedNode] = {}  # of the last look, by node
        self._failures: dict[str, _Failures] = defaultdict(_Failures)

    def add(self, launch: LaunchedNode) -> None:
        """A node was asked for."""
        self._seen[launch.node] = launch
        if launch.state == "queued":
            self._asked[launch.node] = self._monotonic()

    def follow(
        self,
        launches: Sequence[LaunchedNode],
        nodes: Mapping[str, NodeView],
        given_back: Collection[str],
    ) -> list[str]:
        """Note who has come, who waits, and who has gone too early. Returns a sentence for each of the
        last. launches: of the engine; nodes: of the cluster; given_back: names of those that are to end."""
        now, here = self._monotonic(), {one.node: one for one in launches}
        for one in launches:
            if one.state == "queued":
                self._asked.setdefault(one.node, now)
            elif (since := self._asked.pop(one.node, None)) is not None:
                self._waits[one.accelerator].append(now - since)
            if one.node in nodes and nodes[one.node].last_seen_s is not None:
                if one.node not in self._registered:
                    self._failures.pop(one.accelerator, None)
                self._registered.add(one.node)
        gone = [one for node, one in self._seen.items() if node not in here.keys() | given_back]
        early = [one for one in gone if one.node not in self._registered]
        self._seen = here
        self._registered &= here.keys() | nodes.keys()
        self._asked = {node: s for node, s in self._asked.items() if node in here}
        silent = {one.node for one in launches if one.state == "running"} - self._registered
        self._silent_since = {node: self._silent_since.get(node, now) for node in silent}
        return [self.fail(one) for one in early]

    def has_come(self, node: str) -> bool:
        """Return whether a node of the cluster is one that the engine had, whatever that says now."""
        return node in self._registered

    def is_silent(self, node: str) -> bool:
        """Return whether a node has run for so long without an agent that none will come."""
        now = self._monotonic()
        return now - self._silent_since.get(node, now) > REGISTER_S

    def wait_s(self, accelerator: str) -> float:
        """Return the seconds that a node of a type is expected to wait for its engine; 0 = not known."""
        late = self._waits.get(accelerator)
        return median(late) if late else 0.0

    def fail(self, launch: LaunchedNode) -> str:
        """A node has come to nothing. Returns that in words."""
        ended = f"ended before its agent registered ({launch.node})"
        return self._note(launch.accelerator, ended)

    def refuse(self, accelerator: str, why: str) -> None:
        """The engine has refused a node of a type."""
        self._note(accelerator, f"was refused ({why})")

    def _note(self, accelerator: str, why: str) -> str:
        failures = self._failures[accelerator]
        failures.count += 1
        failures.why = why
        wait_s = min(FIRST_WAIT_S * 2 ** (failures.count - 1), LONGEST_WAIT_S)
        failures.until_s = self._monotonic() + wait_s
        return self.failure(accelerator)

    def failure(self, accelerator: str) -> str:
        """Return why no node of a type may be asked for now, without a full stop; "" = one may."""
        one = self._failures.get(accelerator)
        left_s = 0.0 if one is None else one.until_s - self._monotonic()
        if one is None or left_s <= 0:
            return ""
        many = "" if one.count == 1 else f", as those before it, {one.count} in a row"
        return f"the last node {one.why}{many}: none is asked for within {duration(left_s)}"
