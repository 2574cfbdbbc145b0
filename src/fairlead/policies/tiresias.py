"""Tiresias: least attained service, counted in devices x time, in a few queues."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.option_text import split_option
from fairlead.model.plan import RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.hash_random import hash_choice
from fairlead.policies.ranked import assign_in_order
from fairlead.policies.rounds_only import RoundsOnlyPlanner

THRESHOLDS = (3600.0,)  # device-seconds: two queues, the first example of the authors' simulator


@dataclass(slots=True)
class TiresiasState:
    """{job: (run time, age) in s} of the jobs that were promoted, when they were so last."""

    promoted: dict[int, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiresias(RoundsOnlyPlanner):
    """Jobs in order of (queue of s_i a_i, id), each on a type with s_i devices left; a_i time run so far.

    Discretised two-dimensional least attained service: a job is in queue k while its service, devices
    times run time, is below the k-th threshold and not below the one before. It starts in the first queue
    and sinks; queues are served in order, and each first in, first out, in every round anew; a job that
    fits nowhere is skipped. Nothing is known of rates: a job stays on its type if there is room, else one
    is drawn, preferably where nobody has to give way. If ``promote_knob`` is above 0, a job that has waited
    at least that many times as long as it has run, both since it was promoted last, is promoted: it goes
    back to the first queue and its service counts from 0 again.

    Source: Gu et al., NSDI'19, section 3.3, "Discretized 2D-LAS" and its PROMOTEKNOB (0 = off, as there).
    """

    seed: int
    thresholds: tuple[float, ...] = THRESHOLDS
    promote_knob: float = 0.0
    name: str = "tiresias"
    space_sharing: bool = False

    @classmethod
    def of(cls, text: str | None, seed: int) -> "Tiresias":
        """From the text of an argument: ascending thresholds and promote=K, comma-separated, each optional.
        Raises ConfigError."""
        thresholds: list[float] = []
        knob = 0.0
        for item in text.split(",") if text else ():
            first, second = split_option(item)
            name, value = ("", first) if second is None else (first, second)
            try:
                number = float(value)
            except ValueError:
                number = -1.0
            if not 0 < number < float("inf") or name not in ("", "promote"):
                raise ConfigError(
                    f"tiresias:{text}: expected device-seconds > 0, or promote=K with K > 0, got {item!r}"
                )
            if name:
                knob = number
            else:
                thresholds.append(number)
        if sorted(set(thresholds)) != thresholds:
            raise ConfigError(f"tiresias:{text}: thresholds must ascend")
        return cls(seed=seed, thresholds=tuple(thresholds) or THRESHOLDS, promote_knob=knob)

    def start(self) -> TiresiasState:
        """The state in which nobody has been promoted."""
        return TiresiasState()

    def state_dict(self, state: TiresiasState) -> dict[str, Floats]:
        """(promoted, 3) job, run time and age."""
        rows = [(float(job), *since) for job, since in state.promoted.items()]
        return {"promoted": np.array(rows).reshape(-1, 3)}

    def load_state_dict(self, arrays: Mapping[str, Floats]) -> TiresiasState:
        """The state that ``state_dict`` has made the arrays of."""
        rows = arrays["promoted"].tolist()
        return TiresiasState({int(job): (ran_s, age_s) for job, ran_s, age_s in rows})

    def plan(self, snapshot: Snapshot, state: TiresiasState) -> tuple[RoundPlan, TiresiasState]:
        """The next round."""
        queue, state = self.queues(snapshot, state)
        slot = np.full(len(snapshot.jobs), -1, np.int64)
        assign_in_order(
            snapshot, np.argsort(queue, kind="stable"), slot, _Choice(snapshot, self.seed)
        )
        runs = np.flatnonzero(slot >= 0)
        return RoundPlan(runs, slot[runs]), state

    def queues(self, snapshot: Snapshot, state: TiresiasState) -> tuple[Ints, TiresiasState]:
        """(jobs,) queue of each job, 0 is served first; and the state with promotions added."""
        ids = snapshot.jobs.tolist()
        since = np.array([state.promoted.get(job, (0.0, 0.0)) for job in ids]).reshape(-1, 2)
        ran_s, age_s = snapshot.ran_s - since[:, 0], snapshot.age_s - since[:, 1]
        queue = np.searchsorted(self.thresholds, ran_s * snapshot.job_scale, side="right")
        if not self.promote_knob > 0:
            return queue, state
        starved = (queue > 0) & (age_s - ran_s >= self.promote_knob * ran_s)
        queue[starved] = 0
        promoted = {job: state.promoted[job] for job in ids if job in state.promoted}
        for job in np.flatnonzero(starved).tolist():
            promoted[ids[job]] = (float(snapshot.ran_s[job]), float(snapshot.age_s[job]))
        return queue, TiresiasState(promoted)


class _Choice:
    """A type for one job after the other: its own, else one that no job that runs still needs."""

    def __init__(self, snapshot: Snapshot, seed: int) -> None:
        self.snapshot, self.seed = snapshot, seed
        runs = np.flatnonzero(snapshot.running_on >= 0)
        accelerator_index = snapshot.accelerator_of_slot[snapshot.running_on[runs]]
        self.needed = np.bincount(
            accelerator_index, snapshot.job_scale[runs], len(snapshot.capacity)
        )

    def __call__(self, job: int, fits: Bools, free: Floats) -> int:
        snapshot, here = self.snapshot, int(self.snapshot.running_on[job])
        if here >= 0:
            self.needed[snapshot.accelerator_of_slot[here]] -= snapshot.job_scale[job]
            if fits[here]:
                return here
        not_needed = fits & (
            (free - self.needed)[snapshot.accelerator_of_slot] >= snapshot.job_scale[job]
        )
        among = np.flatnonzero(not_needed if not_needed.any() else fits)
        _, first = np.unique(
            snapshot.accelerator_of_slot[among], return_index=True
        )  # one slot of each type
        return int(among[first[hash_choice(self.seed, int(snapshot.jobs[job]), len(first))]])
