"""The messages of throughput estimation: measurements to the estimator, beliefs from it."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measurements of jobs in a round that has ended, one row for each.

    A job whose rate does not follow from the round is left out: its node was lost, it only started, or it
    ended within a pair (how long it took is not known then).
    """

    time_s: float
    jobs: Ints  # (rows,) ids
    slot: Ints  # (rows,) where it ran: column of the rates
    steps: Floats  # (rows,) that it did
    seconds: Floats  # (rows,) > 0 that it trained; starts do not count
    partner: Ints  # (rows,) id of the job that it shared its devices with, -1 = none
    failed: Bools  # (rows,) the attempt failed, its own or its partner's; then it did 0 steps

    @property
    def rate(self) -> Floats:
        """(rows,) steps/s."""
        return self.steps / self.seconds


@dataclass(frozen=True, slots=True)
class Beliefs:
    """The beliefs that have changed. A belief is a row of rates that one job uses, or several of
    one job type with equal rates; its name is any whole number >= 0. It lasts for as long as a job uses it,
    and is announced again for the next one.

    Rates of pairs that are not named follow from the table: as much slower in the pair as the job types of
    the two, 0 where the table has no pairs. What was announced of a pair of beliefs holds until either of
    them is named again in ``belief``.
    """

    jobs: Ints  # (jobs,) ids of jobs that use another belief than before, or their first
    name: Ints  # (jobs,) of the belief that each uses; -1 = the table's rates
    belief: Ints  # (beliefs,) names of those that are new or changed, without repeats
    rate: Floats  # (beliefs, slots) steps/s alone; 0 = cannot run there
    pair: Ints  # (pairs, 2) names of beliefs, each pair once in any order; a belief with itself: two jobs
    colocated_rate: Floats  # (pairs, slots, 2) steps/s of the first in the pair, and of the second

    @staticmethod
    def of_jobs(
        jobs: Ints, rate: Floats, pair: Ints | None = None, colocated_rate: Floats | None = None
    ) -> "Beliefs":
        """Jobs that each use a belief of their own, named like the job. Shapes as above."""
        if pair is None or colocated_rate is None:
            pair, colocated_rate = np.zeros((0, 2), np.int64), np.zeros((0, rate.shape[1], 2))
        return Beliefs(jobs, jobs, jobs, rate, pair, colocated_rate)
