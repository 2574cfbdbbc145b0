"""When an attempt makes no progress any more. Pure: it is told the time, and tells.

By default nothing ends an attempt that may only be slow: it is reported when it is silent for much longer
than it ever was, and ended when it is silent for ten times as long as that, at half an hour at least, while
all its ranks stand where they stood at three inspections, and one of them waits for another
(docs/decisions/0025).
"""

from dataclasses import dataclass, field

from fairlead.cluster.agent.stacks import (
    RankStack,
    same_places,
    together,
    where,
)
from fairlead.cluster.protocol.messages import Assignment
from fairlead.model.duration_text import duration

LEAST_STEP_S, LEAST_START_S = 60.0, 120.0  # of silence before anything is reported
UNKNOWN_START_S = 600.0  # the same where nobody knows how long a start takes
UNKNOWN_SAVE_TIMES = 10.0  # as long while it saves: a file system may be slow
USUAL_STEPS, LONGEST_GAPS = 20.0, 3.0  # times what is usual
USUAL_STARTS = 5.0
USUAL_SAVES = 10.0
OUTLIER = 10.0  # times the usual time of a step: more of a single one is not what is usual
END_TIMES, LEAST_END_S = 10.0, 1800.0  # before it is ended by default
OTHER_NODES_S = 5.0  # from a report, for the other nodes of a gang to look at their ranks
SAME_STACKS_TO_HANG = 3  # inspections that must find the same stacks
INSPECTION_INTERVAL_S = 30.0  # between inspections; longer later on
STEP_TIME_MEMORY = 0.9  # weight of what was, in the usual time of a step


@dataclass(slots=True)
class Progression:
    """The progression of the steps of an attempt. Times are monotonic seconds."""

    usual_s: float = 0.0  # of a step, 0 = not known
    longest_s: float = 0.0  # between two steps so far
    step: int = -1
    step_at: float | None = None  # None = not one has been done yet
    saving: bool = False
    saving_at: float = 0.0  # since when
    save_s: float = -1.0  # that the newest save took, -1 = not known

    def progressed(self, step: int, now: float, *, saving: bool) -> None:
        """A rank speaks: it has done so many steps, or begins to save. That it speaks is no progress: rank 0
        does so while it waits for the others."""
        saved = self.saving and not saving
        if saved:
            self.save_s = now - self.saving_at
        elif saving and not self.saving:
            self.saving_at = now
        self.saving = saving
        if step == self.step:
            if saved and self.step_at is not None:
                self.step_at = now  # from here on the next step counts
            return
        if step > self.step and self.step_at is not None:
            gap_s = now - self.step_at
            self._learn(gap_s / (step - self.step))
            self.longest_s = max(self.longest_s, gap_s)
        self.step, self.step_at = step, now

    def _learn(self, each_s: float) -> None:
        """Steps have taken so long each. A pause is not taken for what is usual, only for a little slower."""
        if self.usual_s:
            new_s = min(each_s, OUTLIER * self.usual_s)
            self.usual_s = STEP_TIME_MEMORY * self.usual_s + (1 - STEP_TIME_MEMORY) * new_s
        else:
            self.usual_s = each_s


@dataclass(slots=True)
class StallWatch:
    """Detects a stall of one attempt. ``began``: when its ranks were started."""

    began: float
    progression: Progression = field(default_factory=Progression)
    reported: str = ""  # what was reported of the hang that lasts
    reported_s: float = 0.0  # when it was first
    inspections: list[dict[int, RankStack]] = field(default_factory=list)
    next_inspection: float = 0.0

    def loaded(self, step: int, now: float) -> None:
        """Training goes on from this step; the first one may take longer than the others."""
        self.progression = Progression(step=step)
        self.began = min(self.began, now)

    def progressed(self, step: int, now: float, *, saving: bool) -> None:
        """A rank speaks, after it has loaded."""
        self.progression.progressed(step, now, saving=saving)

    def silent_s(self, now: float) -> float:
        """Seconds without a sign of progress."""
        since = self.progression.step_at
        return now - (self.began if since is None else since)

    @property
    def starting(self) -> bool:
        """Return whether it has not done a step yet."""
        return self.progression.step_at is None

    def report_s(self, assignment: Assignment) -> float:
        """Seconds of silence after which it is told; never after the time that ends it."""
        if self.starting:
            usual = assignment.usual_start_s
            least = max(LEAST_START_S, USUAL_STARTS * usual) if usual > 0 else UNKNOWN_START_S
        else:
            least = self._usual_silence_s(assignment.usual_save_s)
        return min(least, self.limit_s(assignment) or least)

    def _usual_silence_s(self, save_s: float) -> float:
        """Between steps, or while it saves. save_s: what a save of earlier attempts took, -1 = not known."""
        known = self.progression
        least = max(LEAST_STEP_S, USUAL_STEPS * known.usual_s, LONGEST_GAPS * known.longest_s)
        if not known.saving:
            return least
        save_s = max(save_s, known.save_s)
        return UNKNOWN_SAVE_TIMES * least if save_s < 0 else max(least, USUAL_SAVES * save_s)

    def limit_s(self, assignment: Assignment) -> float:
        """Seconds of silence that the owner has set, 0 = none."""
        set_s = assignment.start_timeout_s if self.starting else assignment.stall_timeout_s
        return set_s or 0.0

    def due(self, assignment: Assignment, now: float) -> bool:
        """Return whether it is time to look at the stacks of its ranks."""
        silent_s = self.silent_s(now)
        if silent_s < self.report_s(assignment):
            self.reported, self.next_inspection = "", 0.0
            self.inspections.clear()
            return False
        return now >= self.next_inspection

    def record_stacks(
        self, stacks: dict[int, RankStack], assignment: Assignment, now: float
    ) -> str:
        """Take note of a look. Returns the sentence to be told."""
        self.inspections = [*self.inspections, stacks][-SAME_STACKS_TO_HANG:]
        silent_s, limit_s = self.silent_s(now), self.limit_s(assignment)
        wait_s = max(INSPECTION_INTERVAL_S, silent_s / 4)
        if limit_s:
            wait_s = min(wait_s, max(limit_s - silent_s, 0.5))
        self.next_inspection = now + wait_s
        found = where(list(stacks.values()))
        self.reported_s = self.reported_s if self.reported else now
        self.reported = self._sentence(silent_s, assignment) + (f"; {found}" if found else "")
        return self.reported

    def _sentence(self, silent_s: float, assignment: Assignment) -> str:
        if self.starting:
            usual = assignment.usual_start_s
            known = f", usual {duration(usual)}" if usual > 0 else ""
            return f"no first step for {silent_s:.0f} s{known}"
        doing = " (it saves)" if self.progression.saving else ""
        usual_s = self.progression.usual_s
        known = f", usual {duration(usual_s)}" if usual_s > 0 else ""
        return f"no step for {silent_s:.0f} s{known}{doing}"

    def is_overdue(self, assignment: Assignment, now: float) -> bool:
        """Return whether it must be ended."""
        if assignment.on_stall == "report" or not self.reported:
            return False
        others = assignment.world_size > len(assignment.ranks)
        if others and now < self.reported_s + OTHER_NODES_S:
            return False
        set_s = assignment.start_timeout_s if self.starting else assignment.stall_timeout_s
        if set_s is not None:
            return 0 < set_s <= self.silent_s(now)
        limit_s = max(END_TIMES * self.report_s(assignment), LEAST_END_S)
        return self.silent_s(now) >= limit_s and self._hangs(assignment)

    def _hangs(self, assignment: Assignment) -> bool:
        """Return whether all ranks stand still, and one of them waits for another."""
        last = self.inspections[-1] if self.inspections else {}
        still = len(self.inspections) >= SAME_STACKS_TO_HANG and all(
            same_places(one, last) for one in self.inspections
        )
        complete = last.keys() >= {rank.rank for rank in assignment.ranks}
        return still and complete and any(stack.waits for stack in last.values())


class AttemptStall:
    """The report on an attempt that makes no progress.
    Where its rank 0 is on another node, its ranks here are looked at when the orders say so."""

    def __init__(self) -> None:
        self._watch: StallWatch | None = None  # of rank 0's node: do its steps come along?
        self.sentence = ""  # it makes no progress, or does not end
        self.stacks = ""
        self.place = ""  # where its ranks stood as they were to stop
        self.is_fatal = False  # is it ended for this?

    def watch_from(self, began: float) -> None:
        """Its rank 0 is here, and its ranks were started then."""
        self._watch = StallWatch(began)

    def loaded(self, step: int, now: float) -> None:
        """Training goes on from this step."""
        if self._watch is not None:
            self._watch.loaded(step, now)

    def progressed(self, step: int, now: float, *, saving: bool) -> None:
        """Rank 0 speaks, after it has loaded."""
        if self._watch is not None:
            self._watch.progressed(step, now, saving=saving)

    def is_overdue(self, assignment: Assignment, now: float) -> bool:
        """Return whether it must be ended."""
        return self._watch is not None and self._watch.is_overdue(assignment, now)

    def due(self, assignment: Assignment, now: float) -> bool:
        """Return whether it is time to look at the stacks of its ranks."""
        if self._watch is None:
            return assignment.inspect and not self.sentence
        return self._watch.due(assignment, now)

    def record_stacks(
        self, stacks: dict[int, RankStack], assignment: Assignment, now: float
    ) -> bool:
        """Take note of a look. Returns whether it counts: not where it has come along meanwhile."""
        if self._watch is not None and not self._watch.due(assignment, now):
            return False
        found = list(stacks.values())
        self.stacks = together(found)
        if self._watch is None:
            self.sentence = where(found) or "where its ranks stand is not known"
        else:
            self.sentence = self._watch.record_stacks(stacks, assignment, now)
        return True

    def record_stacks_of_stop(
        self, stacks: dict[int, RankStack], elapsed_s: float, why: str
    ) -> None:
        """Take note of a look at ranks that were told to stop so many seconds ago, and have not ended."""
        found = list(stacks.values())
        self.stacks = together(found)
        saves = " (it saves)" if self._watch is not None and self._watch.progression.saving else ""
        place = where(found)
        sentence = f"not ended {elapsed_s:.0f} s after it was told to stop ({why}){saves}"
        self.sentence = f"{sentence}; {place}" if place else sentence
        self.place = place

    def clear(self, assignment: Assignment) -> bool:
        """Tell of it no more if it has come along. Returns whether that is so."""
        lasts = assignment.inspect if self._watch is None else bool(self._watch.reported)
        if not self.sentence or lasts:
            return False
        self.sentence = self.stacks = ""
        return True
