"""The bias of each user's estimates of rates, learned as jobs are measured.

    log estimate = log rate + bias of the user + error,    error ~ N(0, v of the user)

Bias and v are normal-inverse-gamma: conjugate, so that every estimate that can be compared with a measurement
is one update. Before the first, an estimate is off by 0.7 (standard deviation of the natural logarithm).
"""

from collections.abc import Sequence

import numpy as np

from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.job import Job
from fairlead.model.throughputs import Throughputs

START_SD = 0.7  # of an estimate of an unknown user: bias and error together
BIAS_PART = 0.25  # of that variance, which is the user's, the same in all estimates
PRIOR_ESTIMATES = 3.0  # estimates that what is assumed of v at the start is worth
COMMON = 0.5  # part of an error's variance that all estimates on one job share
OUTLIER_SIGMAS = 4.0  # standard deviations beyond which an estimate is not believed at all


class UserBias:
    """Bias and variance of each user, as aligned arrays."""

    def __init__(self) -> None:
        self._row: dict[str, int] = {}
        error = START_SD**2 * (1 - BIAS_PART)
        self._fresh = (
            0.0,
            (1 - BIAS_PART) / BIAS_PART,
            PRIOR_ESTIMATES + 1,
            PRIOR_ESTIMATES * error,
        )
        self._biases: Floats = np.zeros((0, 4))  # mean of bias, its weight, shape, scale

    def row(self, user: str) -> int:
        """The number of a user; a new user gets the next."""
        if user not in self._row:
            self._row[user] = len(self._row)
            self._biases = np.vstack([self._biases, self._fresh])
        return self._row[user]

    def names(self) -> list[str]:
        """The names of all users, by number."""
        return list(self._row)

    def bias(self, rows: Ints) -> Floats:
        """(rows,) mean of log estimate over rate, beyond what is known of the rate."""
        mean: Floats = self._biases[rows, 0]
        return mean

    def variance(self, rows: Ints) -> tuple[Floats, Floats]:
        """(rows,) of what all estimates on a job share (the bias included), and what each has of its own."""
        _, weight, shape, scale = self._biases[rows].T
        error = scale / (shape - 1)
        return error * (COMMON + 1 / weight), error * (1 - COMMON)

    def learn(self, rows: Ints, log_error: Floats, count_as: Floats) -> Bools:
        """Learn from estimates that were compared with measurements. log_error: (estimates,) log of estimate
        over rate; count_as: (estimates,) weight of each, below 1 where those on one job share their error.
        Returns which were grossly off; these count as if they had just been within the bound, so that one
        outlier changes little, and many do.
        """
        mean, weight, shape, scale = self._biases[rows].T
        bound = OUTLIER_SIGMAS * np.sqrt(scale / (shape - 1) * (1 + 1 / weight))
        gross: Bools = np.abs(log_error - mean) > bound
        log_error = mean + np.clip(log_error - mean, -bound, bound)
        users, at = np.unique(rows, return_inverse=True)
        counts = np.bincount(at, count_as)
        common = np.bincount(at, count_as * log_error) / np.maximum(counts, 1e-9)
        within = np.bincount(at, count_as * (log_error - common[at]) ** 2)
        mean, weight, shape, scale = self._biases[users].T
        heavier = weight + counts
        between = weight * counts * (common - mean) ** 2 / heavier
        self._biases[users] = np.column_stack(
            [
                (weight * mean + counts * common) / heavier,
                heavier,
                shape + counts / 2,
                scale + (within + between) / 2,
            ]
        )
        return gross

    def state_dict(self) -> tuple[Floats, list[str]]:
        """The (users, 4) parameters, and the names of the users."""
        return self._biases.copy(), self.names()

    def load_state_dict(self, biases: Floats, names: Sequence[str]) -> None:
        """Restore what ``state_dict`` returned."""
        self._biases = np.array(biases, np.float64).reshape(-1, 4)
        self._row = {name: i for i, name in enumerate(names)}


class TrustingEstimator:
    """The estimator that believes all estimates of users and learns nothing: others are compared with it."""

    def __init__(self, throughputs: Throughputs) -> None:
        self._table = throughputs
        self._jobs: list[Ints] = []
        self._rate: list[Floats] = []

    def table(self, throughputs: Throughputs) -> None:
        """Set the table whose rates hold for jobs without a user's estimate."""
        self._table = throughputs

    def submitted(self, jobs: Sequence[Job], user_estimates: Floats | None) -> None:
        """Believe the estimates of users."""
        if user_estimates is None:
            return
        job_type = [self._table.row(job.job_type) for job in jobs]
        table = self._table.rate[np.array(job_type, np.int64)]
        self._jobs.append(np.array([job.id for job in jobs], np.int64))
        self._rate.append(np.where(np.isnan(user_estimates) | (table <= 0), table, user_estimates))

    def adapted(self, jobs: Ints, batch: Ints) -> None:
        """Nothing: nobody estimates rates at the new batch size."""

    def measured(self, report: Measurement) -> None:
        """Nothing: measurements are ignored."""

    def ended(self, jobs: Ints) -> None:
        """Nothing was kept."""

    def beliefs(self) -> Beliefs | None:
        """Return the estimates of users since the last call."""
        if not self._jobs:
            return None
        jobs, rate = np.concatenate(self._jobs), np.vstack(self._rate)
        self._jobs, self._rate = [], []
        return Beliefs.of_jobs(jobs, rate)
