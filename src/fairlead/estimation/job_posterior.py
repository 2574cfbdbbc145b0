"""The posterior of single jobs, and their information on job types: closed formulas over arrays of jobs.

log rate[job, slot] = that of its job type + a deviation on all slots + one on each
"""

from collections.abc import Sequence

import numpy as np

from fairlead.estimation.gaussian_tree import GaussianTree, posterior, times
from fairlead.estimation.job_table import JobEvidence
from fairlead.estimation.user_bias import UserBias
from fairlead.model.arrays import Floats, Ints

JOB_COMMON = 0.15  # sigma of what a job deviates from its job type, on all slots
JOB_SLOT = 0.08  # sigma of what it deviates besides, on each slot


def add_to_tree(evidence: JobEvidence, rows: Ints, tree: GaussianTree, noise_sigma: float) -> None:
    """Replace the jobs' information in the tree on their job types by that of their present measurements."""
    weight = evidence.weight[rows]
    seen = weight > 0
    inverse = seen / (JOB_SLOT**2 + noise_sigma**2 / np.where(seen, weight, 1.0))
    shared = JOB_COMMON**2 / (1 + JOB_COMMON**2 * inverse.sum(axis=1))
    info = -shared[:, None, None] * inverse[:, :, None] * inverse[:, None, :]
    every = np.arange(weight.shape[1])
    info[:, every, every] += inverse
    off = np.where(seen, evidence.mean[rows] - tree.mean[evidence.job_type[rows]], 0.0)
    shift = times(info, off)
    tree.add(evidence.job_type[rows], info - evidence.info[rows], shift - evidence.shift[rows])
    evidence.info[rows], evidence.shift[rows] = info, shift


def job_posterior(
    evidence: JobEvidence, rows: Ints, *, tree: GaussianTree, users: UserBias, noise_sigma: float
) -> tuple[Floats, Floats]:
    """Return (rows, slots) means and standard deviations of log rates of jobs. The tree is settled."""
    job_type = evidence.job_type[rows]
    deviation, cov = posterior(
        tree.deviations.outside[job_type],
        tree.deviations.outside_cov[job_type],
        tree.info[job_type] - evidence.info[rows],
        tree.shift[job_type] - evidence.shift[rows],
    )
    n, user = tree.mean.shape[1], evidence.user[rows]
    # The last variable is the error that all of the user's estimates on the job have in common. Jobs come
    # last in these arrays, so that the updates go through memory in order.
    wide = np.zeros((n + 1, n + 1, len(rows)))
    wide[:n, :n] = cov.transpose(1, 2, 0) + JOB_COMMON**2
    wide[range(n), range(n)] += JOB_SLOT**2
    wide[n, n], error = users.variance(user)
    mean = np.vstack([(tree.mean[job_type] + deviation).T, users.bias(user)])
    estimate = np.where(evidence.doubted[rows, None], np.nan, evidence.user_estimate[rows])
    for slot in range(n):
        weight = evidence.weight[rows, slot]
        seen = weight > 0
        variance = np.where(seen, noise_sigma**2 / np.where(seen, weight, 1.0), np.inf)
        _observe(mean, wide, [slot], evidence.mean[rows, slot], variance)
        given = ~np.isnan(estimate[:, slot])
        variance = np.where(given, error, np.inf)
        _observe(mean, wide, [slot, n], np.where(given, estimate[:, slot], 0.0), variance)
    variance = np.maximum(wide[range(n), range(n)], 0.0)
    return mean[:n].T, np.sqrt(variance).T


def _observe(mean: Floats, cov: Floats, of: Sequence[int], value: Floats, variance: Floats) -> None:
    """Take in one scalar observation of each job, in place: of the sum of these variables. mean: (variables,
    jobs), cov: (variables, variables, jobs), variance: (jobs,) of the observation, inf = there is none."""
    if np.isinf(variance).all():
        return
    cross = cov[list(of)].sum(axis=0)
    gain = cross / (cross[list(of)].sum(axis=0) + variance)
    mean += gain * (value - mean[list(of)].sum(axis=0))
    cov -= gain[:, None] * cross[None]
