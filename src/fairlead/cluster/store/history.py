"""Which commits a state of a cluster has, told apart from other copies of it that went on differently.

The numbers of commits alone do not tell: an older copy that was put back reaches them too, with other
commits. So every run of a server on a state is written down, with a random id and the commit before its first
one. A restore, and a loss that was accepted, begin another *timeline*: what agents know of earlier ones was
given up by somebody who knew it.
"""

import secrets
import time

import msgspec

from fairlead.cluster.protocol.messages import StorePosition
from fairlead.cluster.store.schema import Commit

HISTORY = "history"  # key in the table meta
CLAIMED = "claimed_timeline"  # key of the latest timeline that agents know of, and this state not
HALTED = "halted"  # key of why the server halts on this state, until it goes on or begins anew
MAX_RUNS = 256  # that the history holds
MAX_TIMELINE = 1 << 52  # larger ones are nobody's
_UNRESTORED = "this state is from before the restore after which that was written"


class ServerRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a server on a state."""

    number: int  # ascending
    id: str  # random
    base: int  # the newest commit before it; 0 = there was none


class StoreHistory(msgspec.Struct, frozen=True, kw_only=True):
    """History of one state. runs: the newest ones of this timeline, in order."""

    cluster: str
    timeline: int = 1
    runs: tuple[ServerRun, ...] = ()
    parent: int = 0  # the timeline before, 0 = there was none
    parent_commit: int = 0  # the last one of that timeline that this state has

    @staticmethod
    def decode(text: str | None) -> "StoreHistory":
        """Decode a history from the table meta; None begins the history of a new cluster."""
        if text is None:
            return StoreHistory(cluster=secrets.token_hex(8))
        return msgspec.json.decode(text, type=StoreHistory)

    def encode(self) -> str:
        """Encode the history for the table meta."""
        return msgspec.json.encode(self).decode()

    def begin_run(self, number: int, base: int) -> "StoreHistory":
        """Return the history with a run of the server that begins now. base: the newest commit."""
        run = ServerRun(number=number, id=secrets.token_hex(8), base=base)
        return msgspec.structs.replace(self, runs=(*self.runs, run)[-MAX_RUNS:])

    def branch(self, commit: int, claimed: int) -> "StoreHistory":
        """Another timeline, which goes on from this commit. claimed: the latest that agents know of."""
        timeline = max(self.timeline + 1, claimed + 1, int(time.time() * 1000))
        return StoreHistory(
            cluster=self.cluster, timeline=timeline, parent=self.timeline, parent_commit=commit
        )

    @property
    def order_origin(self) -> str:
        """With what the ids of orders begin that the newest run gives: see ``OrderId``."""
        return f"{self.cluster}.{self.timeline}.{self.runs[-1].id}"

    def run_of_order(self, order_id: str) -> str:
        """The run id of the server that gave an order, if it was in this timeline; "" = it was not."""
        begins = f"{self.cluster}.{self.timeline}."
        return order_id.removeprefix(begins).partition(".")[0] * order_id.startswith(begins)

    def position(self, newest: Commit) -> StorePosition:
        """Return how far the state has come in the newest run."""
        run = self.runs[-1]
        return StorePosition(
            cluster=self.cluster,
            timeline=self.timeline,
            run=run.number,
            run_id=run.id,
            commit=newest.number,
            time_s=max(newest.time_s, 0.0),  # whatever the clock says, agents can read it
        )

    def contradiction(self, seen: StorePosition, newest: int) -> str:
        """Return why a state that somebody has seen is not one that this one has been in, as part of a
        sentence; "" where it may be, or was given up knowingly. newest: the newest commit."""
        if seen.cluster != self.cluster or seen.timeline < self.timeline:
            return ""
        if seen.timeline > self.timeline:
            return "" if seen.timeline > MAX_TIMELINE else _UNRESTORED
        if seen.run < self.runs[0].number:  # forgotten
            return ""
        ends = [*(run.base for run in self.runs[1:]), newest]
        for run, end in zip(self.runs, ends, strict=True):
            if (run.number, run.id) == (seen.run, seen.run_id):
                return f"this state had come to commit {end:,} then" if seen.commit > end else ""
        return (
            "this state knows nothing of the run of the server that wrote that: it had come to commit "
            f"{self.runs[-1].base:,} when this server was started"
        )

    def abandoned_commits(self, seen: StorePosition) -> int:
        """Return how many commits that somebody has seen were given up when this timeline began, at the
        least: a copy that went on by itself before may have made others under the same numbers."""
        if seen.cluster != self.cluster or seen.timeline != self.parent:
            return 0
        return max(seen.commit - self.parent_commit, 0)
