"""The posterior of job types given measured jobs: a Gaussian tree, all job types -> model -> job type, with
exact inference.

Each job type deviates from what the table says of it (``prior``); part of that its model has in common, and
part of that all job types. Jobs bring information (inverse covariance, and that times the mean) about the
deviation of their job type; messages up and down the tree yield the posterior of every job type,
including those of which no job was measured.
"""

from typing import NamedTuple

import numpy as np

from fairlead.estimation.prior import Prior
from fairlead.model.arrays import Floats, Ints
from fairlead.model.job_type import JobType


class Deviations(NamedTuple):
    """The deviations of job types from the table, in log rate: means and covariances."""

    outside: Floats  # (job_types, slots) mean given all jobs but its own
    outside_cov: Floats  # (job_types, slots, slots)
    at: Floats  # (job_types, slots) mean given all jobs
    cov: Floats  # (job_types, slots, slots)


class Regression(NamedTuple):
    """A level of the tree given the one above: ``coefficients`` times that, plus an independent residual."""

    coefficients: Floats  # (rows, slots, slots)
    residual: Floats  # (rows, slots, slots) covariance

    def with_row(self, coefficients: Floats, residual: Floats) -> "Regression":
        """Return the regression with one more row."""
        return Regression(
            _append_row(self.coefficients, coefficients), _append_row(self.residual, residual)
        )

    def upward(self, info: Floats, shift: Floats) -> tuple[Floats, Floats]:
        """Information on what this level deviates, as information on the level above it."""
        eye = np.eye(info.shape[1])
        damp = np.linalg.solve(
            eye + info @ self.residual, np.concatenate([info, shift[:, :, None]], axis=2)
        )
        turned = self.coefficients.transpose(0, 2, 1)
        return turned @ damp[:, :, :-1] @ self.coefficients, times(turned, damp[:, :, -1])

    def downward(self, at: Floats, cov: Floats) -> tuple[Floats, Floats]:
        """Mean and covariance of this level from those of the level above it."""
        return times(self.coefficients, at), self.coefficients @ cov @ self.coefficients.transpose(
            0, 2, 1
        ) + self.residual


class GaussianTree:
    """Aligned arrays over job types and models, which only grow. Slots are those of the prior."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        self.job_types: dict[JobType, int] = {}
        self._models: dict[str, int] = {}
        n = len(prior.slots)
        self.mean: Floats = np.zeros((0, n))  # (job_types, slots) log rate as the table has it
        self.info: Floats = np.zeros((0, n, n))  # of jobs, about the deviation
        self.shift: Floats = np.zeros((0, n))
        none: Floats = np.zeros((0, n, n))
        self._given_model = Regression(none, none)  # of job types
        self._model: Ints = np.zeros(0, np.int64)  # (job_types,) of each
        self._given_root = Regression(none, none)  # of models
        self.deviations = Deviations(np.zeros((0, n)), none, np.zeros((0, n)), none)
        self._stale = False

    def job_type(self, job_type: JobType) -> int:
        """The row of a job type, new or not."""
        row = self.job_types.get(job_type)
        if row is not None:
            return row
        given = self.prior.job_type(job_type)
        if given.model not in self._models:
            self._models[given.model] = len(self._models)
            self._given_root = self._given_root.with_row(
                given.model_coefficients, given.model_residual
            )
        self._model = np.append(self._model, self._models[given.model])
        self.mean = _append_row(self.mean, given.mean)
        self._given_model = self._given_model.with_row(given.coefficients, given.residual)
        self.info = _append_row(self.info, np.zeros_like(given.residual))
        self.shift = _append_row(self.shift, np.zeros_like(given.mean))
        self.job_types[job_type] = len(self.job_types)
        self._stale = True
        return self.job_types[job_type]

    def add(self, job_type: Ints, info: Floats, shift: Floats) -> None:
        """Add information of jobs on their job types; negative information takes earlier one back. job_type:
        (jobs,) rows; info: (jobs, slots, slots); shift: (jobs, slots)."""
        more_info, more_shift = _sum(info, shift, job_type, len(self.job_types))
        self.info += more_info
        self.shift += more_shift
        self._stale = True

    def settle(self) -> bool:
        """Update ``deviations`` with what was added. Returns whether anything was."""
        if not self._stale:
            return False
        self._stale = False
        up_info, up_shift = self._given_model.upward(self.info, self.shift)
        model_info, model_shift = _sum(up_info, up_shift, self._model, len(self._models))
        top_info, top_shift = self._given_root.upward(model_info, model_shift)
        at, cov = posterior(
            np.zeros_like(top_shift),
            np.broadcast_to(self.prior.root, top_info.shape),
            top_info.sum(axis=0) - top_info,
            top_shift.sum(axis=0) - top_shift,
        )
        at, cov = self._given_root.downward(at, cov)
        model = self._model
        at, cov = posterior(
            at[model],
            cov[model],
            model_info[model] - up_info,
            model_shift[model] - up_shift,
        )
        outside = self._given_model.downward(at, cov)
        self.deviations = Deviations(*outside, *posterior(*outside, self.info, self.shift))
        return True


def posterior(at: Floats, cov: Floats, info: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """(n, slots) means and (n, slots, slots) covariances, given Gaussian priors and information; neither need
    have an inverse."""
    eye = np.eye(at.shape[1])
    after = np.linalg.solve(eye + cov @ info, cov)
    after = (after + after.transpose(0, 2, 1)) / 2
    return at + times(after, shift - times(info, at)), after


def times(matrix: Floats, vector: Floats) -> Floats:
    """Matrix by vector, row by row."""
    out: Floats = np.einsum("nst,nt->ns", matrix, vector)
    return out


def _sum(info: Floats, shift: Floats, of: Ints, count: int) -> tuple[Floats, Floats]:
    """Sums of info and shift by group. of: (rows,) group of each row; count: groups."""
    n = info.shape[1]
    rows = np.arange(len(of) + 1)
    from scipy.sparse import csc_matrix  # a third of a second of CPU time to import

    pick = csc_matrix((np.ones(len(of)), of, rows), shape=(count, len(of)))
    flat = np.asarray(pick @ info.reshape(-1, n * n))
    return flat.reshape(count, n, n), np.asarray(pick @ shift)


def _append_row(rows: Floats, one: Floats) -> Floats:
    out: Floats = np.concatenate([rows, one[None]])
    return out
