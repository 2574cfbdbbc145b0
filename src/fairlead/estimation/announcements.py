"""Which changes of beliefs are large enough to be passed to the core, or to update other beliefs for."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairlead.estimation.job_table import EstimatedJobs
from fairlead.estimation.messages import Beliefs
from fairlead.estimation.pairs import Pairs
from fairlead.estimation.user_bias import UserBias
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.job_type import JobType

REPORT_THRESHOLD = 0.03  # relative change of a rate that is worth a new solve
# Smaller changes of what is believed of a job type do not update the beliefs on its jobs.
CONVERGED = REPORT_THRESHOLD / 5
USER_CONVERGED = 0.1  # the same of a user's bias, and of the sigmas of his estimates


class KnownJobTypes(NamedTuple):
    """The job types seen so far, and how much they slow each other."""

    job_types: Sequence[JobType]
    pairs: Pairs


class Announcements:
    """The rates that the core knows. A job with the rates of its job type uses the job type's belief, whose
    name is twice the job type's row; the belief of a single job is named twice its id plus one."""

    def __init__(self, slots: int) -> None:
        self._job_type_rate: Floats = np.zeros((0, slots))  # as it was announced, -1 = not yet

    def cover(self, job_types: int) -> None:
        """Make room for job types of which nothing was announced, up to this number of them."""
        missing = job_types - len(self._job_type_rate)
        if missing:
            more = np.full((missing, self._job_type_rate.shape[1]), -1.0)
            self._job_type_rate = np.vstack([self._job_type_rate, more])

    def widen(self, more: int) -> None:
        """Make room for more slot types."""
        self._job_type_rate = np.pad(self._job_type_rate, ((0, 0), (0, more)), constant_values=-1.0)

    def forget(self, jobs: EstimatedJobs) -> None:
        """Take all announcements back: the core is another one, or has other slot types."""
        jobs.beliefs.name[:] = -1
        self._job_type_rate[:] = -1.0

    def announce(
        self,
        jobs: EstimatedJobs,
        rate: Floats,
        job_type_rate: Floats,
        columns: Ints,
        known: KnownJobTypes,
    ) -> Beliefs | None:
        """Return what differs from what the core knows, None = nothing; the core knows it from now on. rate:
        (jobs, slots), job_type_rate: (job_types, slots), both in steps/s with 0 = cannot run there; columns:
        the slots that the core knows."""
        evidence, beliefs = jobs.evidence, jobs.beliefs
        changed_beliefs = _differ(job_type_rate, self._job_type_rate)
        shown = np.where(changed_beliefs[:, None], job_type_rate, self._job_type_rate)
        alike = ~_differ(rate, shown[evidence.job_type])
        name = np.where(alike, 2 * evidence.job_type, 2 * evidence.id + 1)
        new = name != beliefs.name
        used, again = np.zeros(len(job_type_rate), np.bool_), np.zeros(len(job_type_rate), np.bool_)
        used[evidence.job_type[alike]] = True
        again[evidence.job_type[new & alike]] = True  # it may have been forgotten meanwhile
        job_type_rows = np.flatnonzero((changed_beliefs | again) & used)
        self._job_type_rate[job_type_rows] = shown[job_type_rows]
        individual = np.flatnonzero(~alike & (new | _differ(rate, beliefs.announced)))
        beliefs.announced[individual], beliefs.name[:] = rate[individual], name
        changed = np.flatnonzero(new)
        belief = np.concatenate([2 * job_type_rows, 2 * evidence.id[individual] + 1])
        pair, colocated_rate = self._pairs(jobs, belief, columns, known)
        if not len(changed) and not len(belief) and not len(pair):
            return None
        announced = np.vstack([self._job_type_rate[job_type_rows], beliefs.announced[individual]])[
            :, columns
        ]
        return Beliefs(evidence.id[changed], name[changed], belief, announced, pair, colocated_rate)

    def _pairs(
        self, jobs: EstimatedJobs, belief: Ints, columns: Ints, known: KnownJobTypes
    ) -> tuple[Ints, Floats]:
        """Rates of pairs that are not as the table has them, of beliefs of which one is announced or whose
        slowing has changed."""
        names, first = np.unique(jobs.beliefs.name, return_index=True)
        job_type = jobs.evidence.job_type[first]
        shared = (names % 2 == 0)[:, None]
        shown = np.where(shared, self._job_type_rate[job_type], jobs.beliefs.announced[first])
        job_types = [known.job_types[k] for k in job_type.tolist()]
        return known.pairs.announce(names, job_types, shown[:, columns], belief)


class PosteriorChanges:
    """The beliefs on job types and users for which the beliefs on jobs were last computed."""

    def __init__(self) -> None:
        self._posterior: Floats = np.zeros(
            (0, 0)
        )  # (job_types, 2 slots) deviations and their sigmas
        self._users: Floats = np.zeros((0, 3))  # (users, 3) bias and sigmas

    def changed_beliefs(
        self, deviation: Floats, sigma: Floats, users: UserBias
    ) -> tuple[Bools, Bools]:
        """Return (job_types,) and (users,) whose beliefs have changed so much that the beliefs on their jobs
        are to be computed again; the next call assumes that they were. deviation, sigma: (job_types,
        slots)."""
        posterior = np.concatenate([deviation, sigma], axis=1)
        everyone = np.arange(len(users.names()))
        of_users = np.column_stack([users.bias(everyone), np.sqrt(users.variance(everyone)).T])
        job_types = _changed(self._posterior, posterior, CONVERGED)
        named = _changed(self._users, of_users, USER_CONVERGED)
        self._posterior = np.where(job_types[:, None], posterior, _fill(self._posterior, posterior))
        self._users = np.where(named[:, None], of_users, _fill(self._users, of_users))
        return job_types, named


def _fill(before: Floats, now: Floats) -> Floats:
    """(rows, columns) the earlier values; infinity in new rows, and in all where the columns differ."""
    if before.shape[1:] != now.shape[1:]:
        before = before[:0].reshape(0, now.shape[1])
    out: Floats = np.full(now.shape, np.inf)
    out[: len(before)] = before
    return out


def _changed(before: Floats, now: Floats, much: float) -> Bools:
    """(rows,) whether any number has changed by more than ``much``."""
    return np.asarray((np.abs(now - _fill(before, now)) > much).any(axis=1))


def _differ(now: Floats, before: Floats) -> Bools:
    """(rows,) whether rates differ on any slot by more than is worth announcing."""
    return np.asarray((np.abs(now - before) > REPORT_THRESHOLD * np.abs(before)).any(axis=1))
