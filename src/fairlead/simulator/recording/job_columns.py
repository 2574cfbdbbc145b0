"""The recorder's columns of jobs: arrays that grow with the jobs."""

from typing import NamedTuple, TypeVar

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.jit_records import Floats1, Floats2, Ints1, doubled

Columns = TypeVar("Columns", bound=tuple[object, ...])


class RecordedJobs(NamedTuple):
    """(jobs,) each, by order of submission, with room for more after them."""

    arrival_s: Floats1
    start_s: Floats1  # first start, NaN before
    end_s: Floats1
    run_s: Floats1
    cost: Floats1
    restart_lost_s: Floats1
    steps_done: Floats1  # counted, like the total, at the batch size in force
    total_steps: Floats1
    isolated_s: Floats1  # time that the work done so far would have taken on an isolated 1/n share
    steps_then: Floats1  # steps done when isolated_rate was set
    isolated_rate: Floats1
    target_run_s: Floats1  # time that it should have run so far by the policy's shares
    target_share: Floats1  # of its time, in force since target_from_s
    target_from_s: Floats1
    interval_s: Floats1  # when its present placement interval began
    scale: Floats1
    restarts: Ints1
    moves: Ints1
    end: Ints1
    kept_in: Ints1  # the last round in which it stayed on its devices
    runs_in: Ints1  # the last round in which it ran
    first_round: Ints1  # the first that began after its submission
    end_round: Ints1  # the first that began after its end
    rounds: Ints1  # in which it ran
    rate: Floats2  # (jobs, slots)


class RecordedRuns(NamedTuple):
    """Columns of ``RecordedJobs`` that change as a round begins: a kernel takes time for each it is given."""

    start_s: Floats1
    interval_s: Floats1
    restarts: Ints1
    moves: Ints1
    end: Ints1
    kept_in: Ints1
    runs_in: Ints1
    rounds: Ints1


class RecordedWork(NamedTuple):
    """Columns of ``RecordedJobs`` that change as a round ends."""

    run_s: Floats1
    cost: Floats1
    restart_lost_s: Floats1
    steps_done: Floats1


class RecordedIsolation(NamedTuple):
    """Columns of ``RecordedJobs`` that tell of an isolated share of the cluster."""

    isolated_s: Floats1
    isolated_rate: Floats1
    steps_then: Floats1
    steps_done: Floats1


class RecordedTargets(NamedTuple):
    """Columns of ``RecordedJobs`` that tell of the policy's shares."""

    target_run_s: Floats1
    target_share: Floats1
    target_from_s: Floats1


class RecordedEnds(NamedTuple):
    """Columns of ``RecordedJobs`` that tell how jobs end."""

    end: Ints1
    end_s: Floats1
    end_round: Ints1


class JobColumns:
    """Growing per-job arrays, by order of submission."""

    def __init__(self, slots: int) -> None:
        self.n = 0
        shapes = {"rate": (64, slots)}
        self._use(
            RecordedJobs(
                **{
                    name: np.zeros(shapes.get(name, 64), _dtype(hint))
                    for name, hint in RecordedJobs.__annotations__.items()
                }
            )
        )

    def _use(self, arrays: RecordedJobs) -> None:
        """Use these arrays from now on, and records of some of their columns."""
        self.arrays = arrays
        self.runs = _some_of(arrays, RecordedRuns)
        self.work = _some_of(arrays, RecordedWork)
        self.isolated = _some_of(arrays, RecordedIsolation)
        self.targets = _some_of(arrays, RecordedTargets)
        self.ends = _some_of(arrays, RecordedEnds)

    def add(self, time_s: float, scale: int, rate: Floats, steps: float, round_: int) -> None:
        """Add a job at the end. round_: the first that it may run in."""
        if self.n == len(self.arrays.arrival_s):
            self._use(RecordedJobs(*map(doubled, self.arrays)))
        i, jobs = self.n, self.arrays
        jobs.arrival_s[i], jobs.start_s[i], jobs.end_s[i] = time_s, np.nan, np.nan
        jobs.scale[i], jobs.rate[i], jobs.total_steps[i] = scale, rate, steps
        jobs.kept_in[i] = jobs.runs_in[i] = -2
        jobs.first_round[i] = round_
        self.n += 1


def _some_of(arrays: RecordedJobs, record: type[Columns]) -> Columns:
    """Return the columns that a record names."""
    return record(*(getattr(arrays, name) for name in record.__annotations__))


def _dtype(hint: object) -> type:
    return np.int64 if hint is Ints1 else np.float64
