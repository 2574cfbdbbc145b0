"""The ends of the ranks of an attempt, and which of them is to blame."""

import msgspec

from fairlead.cluster.agent.proc import oom_kills
from fairlead.cluster.agent.rank_failures import first_to_fail, sentence, was_killed
from fairlead.cluster.protocol.messages import Failure

_MAX_MESSAGE = 1_000  # characters of what a failure says
_MAX_TEXT = 4_096  # and of its other texts: what a message may hold
_MAX_TRACEBACK = 1 << 16


class RankExits:
    """Exit codes and failures of the ranks here, since the attempt was ordered."""

    def __init__(self) -> None:
        self._oom_kills = oom_kills()  # of the node, as it began
        self._codes: dict[int, int] = {}  # rank -> exit code
        self.ended_s = 0.0  # monotonic; when the last of them ended
        self._left_early: int | None = None  # the first rank that ended well before the last step
        self._left_loops: dict[int, int] = {}  # rank -> step at which it left its loop by itself
        self._failures: list[Failure] = []  # in the order in which they were heard of
        self.code: int | None = None  # the worst of the ranks'
        self.terminated = False  # has a rank ended with 0 after a SIGTERM, perhaps for that?
        self.left = (
            -1
        )  # a rank that ended with 0 before its loop, while rank 0 is elsewhere; -1 = none
        self.unsaved = (
            ""  # why a rank could not save as it ended, or stand still; "" = none has said so
        )

    @property
    def has_failed(self) -> bool:
        """Return whether a rank has failed."""
        return self.code not in (None, 0)

    @property
    def first_failure(self) -> Failure | None:
        """The one to blame: before those that missed another rank, a rank that was gone by then."""
        first = first_to_fail(self._failures)
        if first is not None and first.secondary and self._left_early is not None:
            message = f"ended first, with exit code 0; {sentence(first, world_size=2)}"
            return Failure(kind="exit", rank=self._left_early, exit_code=0, message=message)
        return first

    @property
    def memory_ran_out(self) -> bool:
        """Return whether the kernel has killed processes of this node for lack of memory since."""
        return oom_kills() > self._oom_kills

    @property
    def left_loops(self) -> tuple[tuple[int, int], ...]:
        """Return the ranks that left their loops by themselves at the first and at the last step, each with
        that step; () = none did."""
        left = sorted(self._left_loops.items(), key=lambda one: (one[1], one[0]))
        return (left[0], left[-1]) if left else ()

    def note_left_loop(self, rank: int, step: int) -> None:
        """A rank has left its loop by itself at this step, and ended well."""
        self._left_loops[rank] = step

    def are_all(self, ranks: int) -> bool:
        """Return whether all ranks here, of which there are so many, have ended."""
        return len(self._codes) == ranks

    def ended_by(self, until_s: float, ranks: int) -> bool:
        """Return whether all ranks here, of which there are so many, had ended by then, monotonic."""
        return self.are_all(ranks) and self.ended_s <= until_s

    def note(self, rank: int, code: int, at_s: float, *, early: bool = False) -> None:
        """A rank has ended. early: before all steps were done, and not because it was told to."""
        if early and code == 0 and self._left_early is None and not self.has_failed:
            self._left_early = rank
        self._codes[rank] = code
        self.ended_s = max(self.ended_s, at_s)

    def fail(self, code: int, failure: Failure | None) -> bool:
        """A rank has ended badly. Returns whether it is the first that has."""
        is_first = not self.has_failed
        if is_first:
            self.code = code
        if failure is not None and not (self._failures and was_killed(failure)):
            self._failures.append(_cut(failure))  # later ones are killed for it
        return is_first

    def set_failure(self, failure: Failure) -> None:
        """The attempt ends for this, whatever its ranks exit with."""
        self.code = failure.exit_code
        self._failures.append(_cut(failure))

    def finish(self, ranks: int) -> None:
        """Nothing is left. ranks: so many were to run here; all have ended well where none has not."""
        if self.code is None and len(self._codes) == ranks:
            self.code = 0


def _cut(failure: Failure) -> Failure:
    """Return the failure with texts that can be told: they quote what the job has named, of any length."""
    return msgspec.structs.replace(
        failure,
        message=failure.message[:_MAX_MESSAGE],
        type=failure.type[:_MAX_TEXT],
        file=failure.file[:_MAX_TEXT],
        function=failure.function[:_MAX_TEXT],
        path=failure.path[:_MAX_TEXT],
        traceback=failure.traceback[:_MAX_TRACEBACK],
    )
