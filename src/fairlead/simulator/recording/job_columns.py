"""What the recorder knows of each job: arrays that grow with the jobs."""

import numpy as np

from fairlead.model.arrays import Floats, Ints

_FLOATS = (
    "arrival_s", "start_s", "end_s", "run_s", "cost", "restart_lost_s",
    "steps_done", "total_steps", "isolated_s", "steps_then", "isolated_rate",
    "promised_s", "promised_share", "promised_from_s",
)  # fmt: skip
_INTS = ("restarts", "moves", "end", "kept_in", "runs_in", "first_round", "end_round", "rounds")


class JobColumns:
    """Growing per-job arrays, by order of submission."""

    arrival_s: Floats
    start_s: Floats  # first start, NaN before
    end_s: Floats
    run_s: Floats
    cost: Floats
    restart_lost_s: Floats
    steps_done: Floats  # counted, like the total, at the batch size in force
    total_steps: Floats
    isolated_s: Floats  # time that the work done so far would have taken on an isolated 1/n share
    steps_then: Floats  # steps done when isolated_rate was set
    isolated_rate: Floats
    promised_s: Floats  # time that it should have run so far by the policy's shares
    promised_share: Floats  # of its time, in force since promised_from_s
    promised_from_s: Floats
    restarts: Ints
    moves: Ints
    end: Ints
    kept_in: Ints  # the last round in which it stayed on its devices
    runs_in: Ints  # the last round in which it ran
    first_round: Ints  # the first that began after its submission
    end_round: Ints  # the first that began after its end
    rounds: Ints  # in which it ran
    interval_s: Floats  # when its present placement interval began
    rate: Floats  # (jobs, slots)
    scale: Floats

    def __init__(self, slots: int) -> None:
        self.n = 0
        for name in _FLOATS:
            setattr(self, name, np.zeros(64))
        for name in _INTS:
            setattr(self, name, np.zeros(64, np.int64))
        self.interval_s, self.scale = np.zeros(64), np.ones(64)
        self.rate = np.zeros((64, slots))

    def add(self, time_s: float, scale: int, rate: Floats, steps: float, round_: int) -> None:
        """A job at the end. round_: the first that it may run in."""
        if self.n == len(self.arrival_s):
            for name in (*_FLOATS, *_INTS, "interval_s", "scale", "rate"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        i = self.n
        self.arrival_s[i], self.start_s[i], self.end_s[i] = time_s, np.nan, np.nan
        self.scale[i], self.rate[i], self.total_steps[i] = scale, rate, steps
        self.kept_in[i] = self.runs_in[i] = -2
        self.first_round[i] = round_
        self.n += 1
