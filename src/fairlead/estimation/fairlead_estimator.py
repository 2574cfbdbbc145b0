"""Fairlead's estimator of rates: the posterior given the table, other jobs, the user and measurements.

    log rate[job, slot] = that of its job type (``prior``, ``gaussian_tree``) + what the job deviates
    log user's estimate = log rate + the user's bias + error (``user_bias``)
    log measured        = log rate + noise of a round

Everything is Gaussian, so that beliefs are closed formulas on arrays over jobs (``job_posterior``). Jobs
whose rates do not differ from those of their job type share its belief, so that solves can treat them as
equal (``announcements``). How the parts were chosen, and how well it does: docs/estimation.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.estimation.announcements import (
    CONVERGED,
    Announcements,
    KnownJobTypes,
    PosteriorChanges,
)
from fairlead.estimation.exploration import Exploration
from fairlead.estimation.gaussian_tree import GaussianTree
from fairlead.estimation.job_posterior import JOB_COMMON, JOB_SLOT, add_to_tree, job_posterior
from fairlead.estimation.job_table import EstimatedJobs
from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.estimation.pairs import Pairs
from fairlead.estimation.prior import Prior
from fairlead.estimation.round_noise import RoundNoise
from fairlead.estimation.settings import EstimatorSettings, known_part
from fairlead.estimation.user_bias import COMMON, UserBias
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.job import Job
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

MEMORY = 20.0  # rounds that count: what a job does now outweighs what it did long ago
JUMP_SIGMAS = 4.0  # sigmas by which a measurement must be off for the job to have changed for good
MIN_SAMPLES = 3.0  # rounds after which a job that goes on as before tells nothing new


class FairleadEstimator:
    """The estimator ``fairlead``; see the module, and ``Estimator`` for the methods."""

    def __init__(
        self, settings: EstimatorSettings, throughputs: Throughputs, devices: float, seed: int
    ) -> None:
        """throughputs: what is known before any job has run; devices: of the cluster."""
        self.settings = settings
        self.users = UserBias()
        self._catalogue = known_part(throughputs, settings.known, seed)
        self.noise = RoundNoise()
        self._exploration = Exploration(settings.explore * devices)
        self._table = throughputs
        self.slots = throughputs.slots  # all that there ever were; those of the table at _columns
        self._columns: Ints = np.arange(len(self.slots))
        self.tree = GaussianTree(Prior(self._catalogue, self.slots))
        self.pairs = Pairs(throughputs, self._catalogue)
        self.jobs = EstimatedJobs(len(self.slots))
        self._announced = Announcements(len(self.slots))
        self._changes = PosteriorChanges()
        self._fresh = True  # whether anything has changed since beliefs were last asked for

    @staticmethod
    def of(
        options: Mapping[str, str], table: Throughputs, cluster: Cluster, seed: int
    ) -> "FairleadEstimator":
        """The estimator of ``fairlead[:options]``: see ``EstimatorSettings``."""
        devices = float(cluster.capacity.sum())
        return FairleadEstimator(EstimatorSettings.of(options), table, devices, seed)

    # --- what happens ------------------------------------------------------------------------------------

    def table(self, throughputs: Throughputs) -> None:
        """More job types; or other slot types, which change nothing of what was learned."""
        same = throughputs.slots == self._table.slots
        self._table = throughputs
        self.pairs.table(throughputs)
        if same:
            return
        self._widen(throughputs.slots)
        at = {slot: i for i, slot in enumerate(self.slots)}
        self._columns = np.array([at[slot] for slot in throughputs.slots], np.int64)
        job_types, evidence, beliefs = self._job_types, self.jobs.evidence, self.jobs.beliefs
        evidence.cannot |= self._cannot([job_types[k] for k in evidence.job_type.tolist()])
        evidence.cannot &= ~self._elsewhere()
        beliefs.explored_slot[:], beliefs.stale[:] = -1, True
        self._announced.forget(self.jobs)
        self._fresh = True

    def _elsewhere(self) -> Bools:
        """(slots,) whether the rate is not of the table in force."""
        away = np.ones(len(self.slots), np.bool_)
        away[self._columns] = False
        return away

    def _widen(self, slots: Sequence[SlotType]) -> None:
        """Add slot types that were not there before, with nothing known of them."""
        new = tuple(slot for slot in slots if slot not in self.slots)
        if not new:
            return
        tree, more = self.tree, len(new)
        self.slots = self.slots + new
        self.tree = GaussianTree(Prior(self._catalogue, self.slots))
        for row, job_type in enumerate(tree.job_types):
            self.tree.job_type(job_type)
            info, shift = np.pad(tree.info[row], (0, more)), np.pad(tree.shift[row], (0, more))
            self.tree.add(np.array([row]), info[None], shift[None])
        self._announced.widen(more)
        self.jobs = self.jobs.with_slots(more)

    def submitted(self, jobs: Sequence[Job], user_estimates: Floats | None) -> None:
        """Jobs arrive, with or without estimates of their users."""
        if not jobs:
            return
        at, here = self.jobs.add([job.id for job in jobs]), self.jobs.evidence
        here.job_type[at] = [self._job_type_row(job.job_type) for job in jobs]
        here.user[at] = [self.users.row(job.tenant) for job in jobs]
        here.scale[at] = [job.scale_factor for job in jobs]
        here.cannot[at] = self._cannot([job.job_type for job in jobs])
        if user_estimates is not None:
            rate = np.where(user_estimates > 0, user_estimates, np.nan)
            here.user_estimate[at, self._columns] = np.log(rate)
            here.cannot[at, self._columns] |= (
                user_estimates == 0
            )  # its user knows where it does not fit
        self._fresh = True

    def _job_type_row(self, job_type: JobType) -> int:
        row = self.tree.job_type(job_type)
        self._announced.cover(len(self.tree.job_types))
        return row

    @property
    def _job_types(self) -> list[JobType]:
        return list(self.tree.job_types)

    def _cannot(self, job_types: Sequence[JobType]) -> Bools:
        """(job_types, slots) where the table has no rate; none where rates that it lacks are to be
        predicted."""
        out: Bools = np.zeros((len(job_types), len(self.slots)), np.bool_)
        if not self.settings.unseen and len(job_types):
            row = [self._table.row(job_type) for job_type in job_types]
            known = np.array([r is not None for r in row], np.bool_)
            rate = self._table.rate[np.array([r or 0 for r in row], np.int64)]
            out[:, self._columns] = (rate <= 0) & known[:, None]
        return out

    def adapted(self, jobs: Ints, batch: Ints) -> None:
        """Jobs have other batch sizes, hence other job types; what was measured of them is forgotten."""
        job_types = self._job_types
        here, beliefs = self.jobs.evidence, self.jobs.beliefs
        for job, now in zip(jobs.tolist(), batch.tolist(), strict=True):
            row = self.jobs.row(job)
            if row is None:
                continue
            other = job_types[here.job_type[row]].measured.with_batch_size(now)
            here.job_type[row] = self._job_type_row(other)
            here.cannot[row] = self._cannot([other])[0]
            here.weight[row], here.info[row], here.shift[row] = 0.0, 0.0, 0.0
            here.user_estimate[row], here.checked[row], here.doubted[row] = np.nan, False, False
            beliefs.name[row], beliefs.explored_slot[row] = -1, -1
        self._fresh = True

    def ended(self, jobs: Ints) -> None:
        """Forget jobs; what they taught of their job types stays."""
        self.jobs.remove(jobs.tolist())

    def measured(self, report: Measurement) -> None:
        """Learn from what the jobs of a round did, alone and in pairs."""
        row = self.jobs.rows(report.jobs)
        unpaired = (row >= 0) & (report.partner < 0) & ~report.failed
        idle = unpaired & (report.steps <= 0)
        self.jobs.evidence.cannot[row[idle], self._columns[report.slot[idle]]] = True
        self._fresh = self._fresh or bool(idle.any())
        good = unpaired & ~idle
        slot = self._columns[report.slot]
        log_rate = np.log(np.where(good, report.steps, 1.0) / report.seconds)
        exact = self.noise.precision(report.steps)
        if good.any():
            self._learn(row[good], slot[good], log_rate[good], exact[good])
        self._learn_pairs(report, row)
        again = self._exploration.next_round(self.jobs.beliefs)
        self._fresh = self._fresh or again

    def _learn(self, row: Ints, slot: Ints, log_rate: Floats, worth: Floats) -> None:
        """Learn from measured rates. Arrays are (measurements,), no job twice. worth: in rounds."""
        jobs = self.jobs.evidence
        weight, mean = jobs.weight[row, slot], jobs.mean[row, slot]
        again = weight > 0
        off = np.where(again, (log_rate - mean) ** 2, 0.0)
        usual_square = self.noise.sigma**2
        expected = usual_square * (1 / np.maximum(worth, 1e-9) + 1 / np.where(again, weight, 1.0))
        jumped = off > JUMP_SIGMAS**2 * expected
        usual = again & (worth > 0.5)
        squares = np.minimum(off / expected, JUMP_SIGMAS**2) * usual_square
        self.noise.learn(squares, usual)
        old = np.where(jumped, 0.0, np.minimum(weight, MEMORY - 1))
        new = np.where(jumped, log_rate, (old * mean + worth * log_rate) / (old + worth))
        jobs.weight[row, slot], jobs.mean[row, slot] = old + worth, new
        tells = jumped | (weight < MIN_SAMPLES) | (np.abs(new - mean) > CONVERGED)
        tells |= jobs.cannot[row, slot]
        jobs.cannot[row, slot] = False
        self._check_user_estimates(row, slot, log_rate)
        if tells.any():
            telling = np.unique(row[tells])
            add_to_tree(jobs, telling, self.tree, self.noise.sigma)
            self.jobs.beliefs.stale[telling] = True
            self._fresh = True
        self._exploration.measured(self.jobs.beliefs, row, slot)

    def _check_user_estimates(self, row: Ints, slot: Ints, log_rate: Floats) -> None:
        """Compare what users estimated with first measurements."""
        jobs = self.jobs.evidence
        first = ~jobs.checked[row, slot] & ~np.isnan(jobs.user_estimate[row, slot])
        if not first.any():
            return
        row, slot, log_rate = row[first], slot[first], log_rate[first]
        worth = np.where(jobs.checked[row].any(axis=1), 1 - COMMON, 1.0)
        jobs.checked[row, slot] = True
        off = jobs.user_estimate[row, slot] - log_rate
        jobs.doubted[row] |= self.users.learn(jobs.user[row], off, worth)

    def _learn_pairs(self, report: Measurement, row: Ints) -> None:
        """Learn from pairs: how much two jobs slow each other, where the rate of the job alone was measured;
        otherwise the rate of the job alone, from what is believed of the slowing."""
        both = np.flatnonzero(report.partner >= 0)
        if not len(both):
            return
        partner, jobs = self.jobs.rows(report.partner[both]), self.jobs.evidence
        there = (row[both] >= 0) & (partner >= 0)
        both, mine, other = both[there], row[both[there]], partner[there]
        if not len(both):
            return
        job_type, partner_job_type, slot = (
            jobs.job_type[mine],
            jobs.job_type[other],
            report.slot[both],
        )
        names = self._job_types
        pair = self.pairs.rows([names[k] for k in job_type], [names[k] for k in partner_job_type])
        stopped = report.failed[both] | (report.steps[both] <= 0)
        self.pairs.refuse(*(part[stopped] for part in (*pair, slot)))
        go = np.flatnonzero(~stopped)
        both, mine, at = both[go], mine[go], slot[go]
        slot = self._columns[at]  # pairs know those of the table only
        first, second = pair[0][go], pair[1][go]
        log_rate = np.log(report.steps[both] / report.seconds[both])
        by, sure = self.pairs.slowing(first, second)
        pick = np.arange(len(go)), at
        unpaired = jobs.weight[mine, slot] >= 0.5
        noise = self.noise.sigma**2 / self.noise.precision(report.steps[both])
        self._fresh = True
        if unpaired.any():
            off = log_rate[unpaired] - jobs.mean[mine[unpaired], slot[unpaired]]
            variance = (
                noise[unpaired] + self.noise.sigma**2 / jobs.weight[mine[unpaired], slot[unpaired]]
            )
            self.pairs.learn(first[unpaired], second[unpaired], at[unpaired], off, variance)
        if not unpaired.all():
            in_pair = ~unpaired
            worth = self.noise.sigma**2 / (noise + sure[pick] ** 2)
            guess = log_rate - by[pick]
            self._learn(mine[in_pair], slot[in_pair], guess[in_pair], worth[in_pair])

    # --- what is believed ----------------------------------------------------------------------------------

    def posterior(self, rows: Ints) -> tuple[Floats, Floats]:
        """(rows, slots) means and standard deviations of log rates of jobs in the system."""
        self.tree.settle()
        return job_posterior(
            self.jobs.evidence,
            rows,
            tree=self.tree,
            users=self.users,
            noise_sigma=self.noise.sigma,
        )

    def rates(self, job: int) -> "ReportedRates | None":
        """Return what is known of a job in the system; None = it is not there."""
        row = self.jobs.row(job)
        if row is None:
            return None
        known, one = self.jobs.evidence, np.array([row])
        mean, sigma = self.posterior(one)
        measured = np.where(known.weight[row] > 0, np.exp(known.mean[row]), np.nan)
        posterior = np.where(known.cannot[row], 0.0, np.exp(mean[0]))
        estimate = np.exp(known.user_estimate[row])
        return ReportedRates(self.slots, estimate, measured, posterior, sigma[0])

    def beliefs(self) -> Beliefs | None:
        """Return the beliefs that differ from those that were announced, None = none do."""
        if not self._fresh or not self.jobs.n:
            return None
        self._fresh = False
        self.tree.settle()
        evidence, beliefs, tree = self.jobs.evidence, self.jobs.beliefs, self.tree
        job_type_rate = np.exp(tree.mean + tree.deviations.at)
        individual = self._has_evidence()
        again = np.flatnonzero(individual & (beliefs.stale | self._moved()))
        beliefs.log_rate[again], beliefs.sigma[again] = self.posterior(again)
        beliefs.stale[again] = False
        variance = np.einsum("kss->ks", tree.deviations.cov) + JOB_COMMON**2 + JOB_SLOT**2
        rate = np.where(
            individual[:, None], np.exp(beliefs.log_rate), job_type_rate[evidence.job_type]
        )
        sigma = np.where(individual[:, None], beliefs.sigma, np.sqrt(variance)[evidence.job_type])
        self._exploration.explore(self.jobs, rate, sigma)
        job_types = self._job_types
        return self._announced.announce(
            self.jobs,
            np.where(evidence.cannot, 0.0, rate),
            np.where(self._cannot(job_types), 0.0, job_type_rate),
            self._columns,
            KnownJobTypes(job_types, self.pairs),
        )

    def _moved(self) -> Bools:
        """(jobs,) whether what is believed of their job types or users has changed since they were worked
        out."""
        tree, jobs = self.tree, self.jobs.evidence
        sigma = np.sqrt(np.einsum("kss->ks", tree.deviations.cov))
        job_types, users = self._changes.changed_beliefs(tree.deviations.at, sigma, self.users)
        return np.asarray(job_types[jobs.job_type] | users[jobs.user])

    def _has_evidence(self) -> Bools:
        """(jobs,) whether anything but its job type is known of a job."""
        jobs = self.jobs.evidence
        estimated = ~np.isnan(jobs.user_estimate).all(axis=1) & ~jobs.doubted
        individual: Bools = (jobs.weight > 0).any(axis=1) | estimated
        return individual

    # --- what lasts ------------------------------------------------------------

    def state_dict(self) -> Mapping[str, NDArray[Any]]:
        """Return what was learned of job types and users, and the noise; pairs learn anew."""
        biases, users = self.users.state_dict()
        job_types = self._job_types
        return {
            "families": np.array([job_type.name for job_type in job_types], np.str_),
            "scales": np.array([job_type.scale_factor for job_type in job_types], np.int64),
            "slots": np.array([f"{s.accelerator}|{s.locality.value}" for s in self.slots], np.str_),
            "info": self.tree.info.copy(),
            "shift": self.tree.shift.copy(),
            "prior": self.tree.mean.copy(),
            "users": np.array(users, np.str_),
            "books": biases,
            "noise": self.noise.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what was kept; slot types that are not here are integrated out."""
        names = [str(name).rpartition("|") for name in state["slots"]]
        theirs = [SlotType(name, Locality(locality)) for name, _, locality in names]
        self._widen(theirs)
        at = {slot: i for i, slot in enumerate(self.slots)}
        here: Ints = np.array([at[slot] for slot in theirs], np.int64)
        job_types = zip(state["families"].tolist(), state["scales"].tolist(), strict=True)
        for old, (family, scale) in enumerate(job_types):
            row, n = self._job_type_row(JobType.parse(family, scale)), len(self.slots)
            info, shift = np.zeros((n, n)), np.zeros(n)
            info[np.ix_(here, here)] = state["info"][old]
            # Deviations were from what the table then had.
            moved = state["prior"][old] - self.tree.mean[row, here]
            shift[here] = state["shift"][old] + state["info"][old] @ moved
            self.tree.add(np.array([row]), info[None], shift[None])
        self.users.load_state_dict(state["books"], state["users"].tolist())
        self.noise.load_state_dict(state["noise"])


@dataclass(frozen=True, slots=True)
class ReportedRates:
    """A job's rates in steps/s, by slot type; NaN = no estimate of its user, or not measured."""

    slots: tuple[SlotType, ...]
    user_estimate: Floats
    measured: Floats
    posterior: Floats  # 0 = cannot run there
    sigma: Floats  # of the natural logarithm of what is believed
