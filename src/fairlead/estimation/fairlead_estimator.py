"""Fairlead's estimator of rates: what the table, other jobs, the user and measurements say, weighed exactly.

    log rate[job, slot] = that of its kind (``prior``, ``tree``) + what the job deviates
    log claim           = log rate + the user's bias + error (``users``)
    log measured        = log rate + noise of a round

Everything is Gaussian, so that beliefs are closed formulas on arrays over jobs. A job that nothing tells
apart from others of its kind goes by the kind's belief, so that solves can take them together. How the
parts were chosen, and how well it does: docs/estimation.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.estimation.exploration import Exploration
from fairlead.estimation.gaussian_tree import (
    GaussianTree,
    posterior,
    times,
)
from fairlead.estimation.job_table import (
    EstimatedJobs,
    EstimatorSettings,
    known_part,
    new_jobs,
)
from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.estimation.pairs import Pairs
from fairlead.estimation.prior import Prior
from fairlead.estimation.round_noise import RoundNoise
from fairlead.estimation.user_bias import COMMON, UserBias
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.job import Job
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

JOB_COMMON, JOB_OWN = (
    0.15,
    0.08,
)  # sigma of what a job deviates from its kind: on all slots, on each
MEMORY = 20.0  # rounds that count: what a job does now outweighs what it did long ago
JUMP_SIGMAS = 4.0  # sigmas by which a measurement must be off for the job to have changed for good
REPORT_THRESHOLD = 0.03  # relative change of a rate that is worth a new solve
MIN_SAMPLES = 3.0  # rounds after which a job that goes on as before tells nothing new
# change of what is believed of a kind that is not worth to look at its jobs again
CONVERGED = REPORT_THRESHOLD / 5


class FairleadEstimator:
    """See the module, and ``Estimator`` for the methods."""

    def __init__(
        self, settings: EstimatorSettings, throughputs: Throughputs, devices: float, seed: int
    ) -> None:
        """throughputs: what is known before any job has run; devices: of the cluster."""
        self.settings = settings
        self.users = UserBias()
        self._catalogue = known_part(throughputs, settings.known, seed)
        self.noise = RoundNoise()
        self._exploration = Exploration(settings.explore * devices)
        self._begin(throughputs)

    def _begin(self, throughputs: Throughputs) -> None:
        self._table = throughputs
        self.slots = throughputs.slots  # all that there ever were; those of the table at _columns
        self._columns: Ints = np.arange(len(self.slots))
        self.tree = GaussianTree(Prior(self._catalogue, self.slots))
        self.pairs = Pairs(throughputs, self._catalogue)
        self.jobs = new_jobs(len(self.slots))
        self._row: dict[int, int] = {}
        self._kind_said: Floats = np.zeros((0, len(self.slots)))
        self._kinds_were: Floats = np.zeros((0, 2 * len(self.slots)))
        self._users_were: Floats = np.zeros((0, 3))
        self._fresh = True  # is there anything that was not asked for?

    # --- what happens ------------------------------------------------------------------------------------

    def table(self, throughputs: Throughputs) -> None:
        """More kinds; or other slot types, which change nothing of what was learned."""
        same = throughputs.slots == self._table.slots
        self._table = throughputs
        self.pairs.table(throughputs)
        if same:
            return
        self._widen(throughputs.slots)
        at = {slot: i for i, slot in enumerate(self.slots)}
        self._columns = np.array([at[slot] for slot in throughputs.slots], np.int64)
        kinds = self._kinds
        jobs = self.jobs
        jobs.cannot |= self._cannot([kinds[k] for k in jobs.kind.tolist()])
        jobs.cannot &= ~self._elsewhere()
        jobs.named[:], jobs.dare[:], jobs.stale[:] = -1, -1, True
        self._kind_said[:] = -1.0
        self._fresh = True

    def _elsewhere(self) -> Bools:
        """(slots,) which are not of the table in force?"""
        away = np.ones(len(self.slots), np.bool_)
        away[self._columns] = False
        return away

    def _widen(self, slots: Sequence[SlotType]) -> None:
        """Room for slot types that were not there before; nothing is known of them yet."""
        new = tuple(slot for slot in slots if slot not in self.slots)
        if not new:
            return
        tree, old, more = self.tree, self.jobs, len(new)
        self.slots = self.slots + new
        self.tree = GaussianTree(Prior(self._catalogue, self.slots))
        for row, kind in enumerate(tree.kinds):
            self.tree.kind(kind)
            info, shift = np.pad(tree.info[row], (0, more)), np.pad(tree.shift[row], (0, more))
            self.tree.add(np.array([row]), info[None], shift[None])
        self._kind_said = np.pad(self._kind_said, ((0, 0), (0, more)), constant_values=-1.0)
        self.jobs = new_jobs(len(self.slots))
        self.jobs.grow(old.n)
        for name in EstimatedJobs.columns:
            before, now = getattr(old, name), getattr(self.jobs, name)
            now[tuple(slice(n) for n in before.shape)] = before
        self.jobs.claim[:, -more:] = np.nan

    def submitted(self, jobs: Sequence[Job], claimed: Floats | None) -> None:
        """Jobs arrive, with or without claims."""
        if not jobs:
            return
        here, at = self.jobs, self.jobs.grow(len(jobs))
        here.id[at] = [job.id for job in jobs]
        here.kind[at] = [self._kind(job.job_type) for job in jobs]
        here.user[at] = [self.users.row(job.tenant) for job in jobs]
        here.scale[at] = [job.scale_factor for job in jobs]
        here.cannot[at] = self._cannot([job.job_type for job in jobs])
        here.named[at], here.dare[at], here.claim[at], here.stale[at] = -1, -1, np.nan, True
        if claimed is not None:
            here.claim[at, self._columns] = np.log(np.where(claimed > 0, claimed, np.nan))
            here.cannot[at, self._columns] |= claimed == 0  # its user knows where it does not fit
        self._row.update(zip(here.id[at].tolist(), range(at.start, at.stop), strict=True))
        self._fresh = True

    def _kind(self, kind: JobType) -> int:
        row = self.tree.kind(kind)
        missing = len(self.tree.kinds) - len(self._kind_said)
        if missing:
            more = np.full((missing, len(self.slots)), -1.0)
            self._kind_said = np.vstack([self._kind_said, more])
        return row

    @property
    def _kinds(self) -> list[JobType]:
        return list(self.tree.kinds)

    def _cannot(self, kinds: Sequence[JobType]) -> Bools:
        """(kinds, slots) where the table has no rate; none where rates that it lacks are to be predicted."""
        out: Bools = np.zeros((len(kinds), len(self.slots)), np.bool_)
        if not self.settings.unseen and len(kinds):
            row = [self._table.row(kind) for kind in kinds]
            known = np.array([r is not None for r in row], np.bool_)
            rate = self._table.rate[np.array([r or 0 for r in row], np.int64)]
            out[:, self._columns] = (rate <= 0) & known[:, None]
        return out

    def adapted(self, jobs: Ints, batch: Ints) -> None:
        """They are of other kinds now, and begin anew."""
        kinds = self._kinds
        for job, now in zip(jobs.tolist(), batch.tolist(), strict=True):
            row = self._row.get(job)
            if row is None:
                continue
            other = kinds[self.jobs.kind[row]].measured.with_batch_size(now)
            here = self.jobs
            here.kind[row] = self._kind(other)
            here.cannot[row] = self._cannot([other])[0]
            here.weight[row], here.info[row], here.shift[row] = 0.0, 0.0, 0.0
            here.claim[row], here.held[row], here.doubted[row] = np.nan, False, False
            here.named[row], here.dare[row] = -1, -1
        self._fresh = True

    def ended(self, jobs: Ints) -> None:
        """What they have told of their kinds stays."""
        gone = [self._row.pop(job) for job in jobs.tolist() if job in self._row]
        if not gone:
            return
        self.jobs.keep(np.delete(np.arange(self.jobs.n), gone))
        self._row = {job: row for row, job in enumerate(self.jobs.id.tolist())}

    def measured(self, report: Measurement) -> None:
        """A round is over: what its jobs did alone, and beside each other."""
        row = np.array([self._row.get(job, -1) for job in report.jobs.tolist()], np.int64)
        alone = (row >= 0) & (report.partner < 0) & ~report.failed
        idle = alone & (report.steps <= 0)
        self.jobs.cannot[row[idle], self._columns[report.slot[idle]]] = True
        self._fresh = self._fresh or bool(idle.any())
        good = alone & ~idle
        slot = self._columns[report.slot]
        log_rate = np.log(np.where(good, report.steps, 1.0) / report.seconds)
        exact = self.noise.exactness(report.steps)
        if good.any():
            self._learn(row[good], slot[good], log_rate[good], exact[good])
        self._learn_pairs(report, row)
        again = self._exploration.next_round(self.jobs)
        self._fresh = self._fresh or again

    def _learn(self, row: Ints, slot: Ints, log_rate: Floats, worth: Floats) -> None:
        """Jobs were measured. Arrays are (measurements,), no job twice."""
        jobs = self.jobs
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
        self._judge(row, slot, log_rate)
        if tells.any():
            self._tell(np.unique(row[tells]))
            self._fresh = True
        taken = jobs.dare[row] == slot
        jobs.dare[row[taken]] = -1

    def _judge(self, row: Ints, slot: Ints, log_rate: Floats) -> None:
        """Hold claims against first measurements."""
        jobs = self.jobs
        first = ~jobs.held[row, slot] & ~np.isnan(jobs.claim[row, slot])
        if not first.any():
            return
        row, slot, log_rate = row[first], slot[first], log_rate[first]
        worth = np.where(jobs.held[row].any(axis=1), 1 - COMMON, 1.0)
        jobs.held[row, slot] = True
        off = jobs.claim[row, slot] - log_rate
        jobs.doubted[row] |= self.users.learn(jobs.user[row], off, worth)

    def _tell(self, rows: Ints) -> None:
        """Bring up to date what jobs tell of their kinds."""
        jobs = self.jobs
        weight = jobs.weight[rows]
        seen = weight > 0
        inverse = seen / (JOB_OWN**2 + self.noise.sigma**2 / np.where(seen, weight, 1.0))
        shared = JOB_COMMON**2 / (1 + JOB_COMMON**2 * inverse.sum(axis=1))
        info = -shared[:, None, None] * inverse[:, :, None] * inverse[:, None, :]
        every = np.arange(len(self.slots))
        info[:, every, every] += inverse
        off = np.where(seen, jobs.mean[rows] - self.tree.mean[jobs.kind[rows]], 0.0)
        shift = times(info, off)
        self.tree.add(jobs.kind[rows], info - jobs.info[rows], shift - jobs.shift[rows])
        jobs.info[rows], jobs.shift[rows] = info, shift
        jobs.stale[rows] = True

    def _learn_pairs(self, report: Measurement, row: Ints) -> None:
        """What is known of both jobs alone tells how much they slow each other; where a job was never alone
        there, what is believed of the slowing tells its rate."""
        both = np.flatnonzero(report.partner >= 0)
        if not len(both):
            return
        partner = np.array(
            [self._row.get(job, -1) for job in report.partner[both].tolist()], np.int64
        )
        there = (row[both] >= 0) & (partner >= 0)
        both, mine, other = both[there], row[both[there]], partner[there]
        if not len(both):
            return
        kind, colocated_rate, slot = self.jobs.kind[mine], self.jobs.kind[other], report.slot[both]
        names = self._kinds
        pair = self.pairs.rows([names[k] for k in kind], [names[k] for k in colocated_rate])
        stopped = report.failed[both] | (report.steps[both] <= 0)
        self.pairs.refuse(*(part[stopped] for part in (*pair, slot)))
        go = np.flatnonzero(~stopped)
        both, mine, at = both[go], mine[go], slot[go]
        slot = self._columns[at]  # pairs know those of the table only
        first, second = pair[0][go], pair[1][go]
        log_rate = np.log(report.steps[both] / report.seconds[both])
        by, sure = self.pairs.slowing(first, second)
        pick = np.arange(len(go)), at
        alone = self.jobs.weight[mine, slot] >= 0.5
        noise = self.noise.sigma**2 / self.noise.exactness(report.steps[both])
        self._fresh = True
        if alone.any():
            off = log_rate[alone] - self.jobs.mean[mine[alone], slot[alone]]
            variance = (
                noise[alone] + self.noise.sigma**2 / self.jobs.weight[mine[alone], slot[alone]]
            )
            self.pairs.learn(first[alone], second[alone], at[alone], off, variance)
        if not alone.all():
            rest = ~alone
            worth = self.noise.sigma**2 / (noise + sure[pick] ** 2)
            guess = log_rate - by[pick]
            self._learn(mine[rest], slot[rest], guess[rest], worth[rest])

    # --- what is believed ----------------------------------------------------------------------------------

    def believed(self, rows: Ints) -> tuple[Floats, Floats]:
        """(rows, slots) means and standard deviations of log rates of jobs in the system."""
        self.tree.settle()
        jobs, tree, users = self.jobs, self.tree, self.users
        kind = jobs.kind[rows]
        at, cov = posterior(
            tree.deviations.outside[kind],
            tree.deviations.outside_cov[kind],
            tree.info[kind] - jobs.info[rows],
            tree.shift[kind] - jobs.shift[rows],
        )
        n, own = len(self.slots), jobs.user[rows]
        # The last variable is what the user's claims on the job are off in common. Jobs come last in these
        # arrays, so that the updates go through memory in order.
        wide = np.zeros((n + 1, n + 1, len(rows)))
        wide[:n, :n] = cov.transpose(1, 2, 0) + JOB_COMMON**2
        wide[range(n), range(n)] += JOB_OWN**2
        wide[n, n], error = users.variance(own)
        mean = np.vstack([(tree.mean[kind] + at).T, users.bias(own)])
        told = np.where(jobs.doubted[rows, None], np.nan, jobs.claim[rows])
        for slot in range(n):
            weight = jobs.weight[rows, slot]
            seen = weight > 0
            variance = np.where(seen, self.noise.sigma**2 / np.where(seen, weight, 1.0), np.inf)
            _observe(mean, wide, [slot], jobs.mean[rows, slot], variance)
            claimed = ~np.isnan(told[:, slot])
            variance = np.where(claimed, error, np.inf)
            _observe(mean, wide, [slot, n], np.where(claimed, told[:, slot], 0.0), variance)
        variance = np.maximum(wide[range(n), range(n)], 0.0)
        return mean[:n].T, np.sqrt(variance).T

    def rates(self, job: int) -> "ReportedRates | None":
        """What is known of a job in the system; None = it is not there."""
        row = self._row.get(job)
        if row is None:
            return None
        jobs, one = self.jobs, np.array([row])
        mean, sigma = self.believed(one)
        measured = np.where(jobs.weight[row] > 0, np.exp(jobs.mean[row]), np.nan)
        believed = np.where(jobs.cannot[row], 0.0, np.exp(mean[0]))
        return ReportedRates(self.slots, np.exp(jobs.claim[row]), measured, believed, sigma[0])

    def beliefs(self) -> Beliefs | None:
        """Of whom more is believed than was said."""
        if not self._fresh or not self.jobs.n:
            return None
        self._fresh = False
        self.tree.settle()
        jobs, tree = self.jobs, self.tree
        kind_rate = np.exp(tree.mean + tree.deviations.at)
        own = self._have_own()
        again = np.flatnonzero(own & (jobs.stale | self._moved()))
        jobs.guess[again], jobs.sigma[again] = self.believed(again)
        jobs.stale[again] = False
        variance = np.einsum("kss->ks", tree.deviations.cov) + JOB_COMMON**2 + JOB_OWN**2
        rate = np.where(own[:, None], np.exp(jobs.guess), kind_rate[jobs.kind])
        sigma = np.where(own[:, None], jobs.sigma, np.sqrt(variance)[jobs.kind])
        self._exploration.explore(jobs, rate, sigma)
        return self._say(rate, kind_rate)

    def _moved(self) -> Bools:
        """(jobs,) Has what is believed of their kinds or users changed since they were worked out?"""
        tree, users = self.tree, self.users
        sigma = np.sqrt(np.einsum("kss->ks", tree.deviations.cov))
        of_kinds = np.concatenate([tree.deviations.at, sigma], axis=1)
        everyone = np.arange(len(users.names()))
        of_users = np.column_stack([users.bias(everyone), np.sqrt(users.variance(everyone)).T])
        moved = (
            _changed(self._kinds_were, of_kinds, CONVERGED),
            _changed(self._users_were, of_users, 0.1),
        )
        self._kinds_were = np.where(moved[0][:, None], of_kinds, _fill(self._kinds_were, of_kinds))
        self._users_were = np.where(moved[1][:, None], of_users, _fill(self._users_were, of_users))
        return np.asarray(moved[0][self.jobs.kind] | moved[1][self.jobs.user])

    def _have_own(self) -> Bools:
        """(jobs,) Of whom is anything known but the kind?"""
        jobs = self.jobs
        said = ~np.isnan(jobs.claim).all(axis=1) & ~jobs.doubted
        own: Bools = (jobs.weight > 0).any(axis=1) | said
        return own

    def _say(self, rate: Floats, kind_rate: Floats) -> Beliefs | None:
        """What differs from what was said. rate: (jobs, slots), kind_rate: (kinds, slots)."""
        jobs, kinds = self.jobs, self._kinds
        cannot = self._cannot(kinds)
        kind_rate = np.where(cannot, 0.0, kind_rate)
        rate = np.where(jobs.cannot, 0.0, rate)
        moved = _differ(kind_rate, self._kind_said)
        shown = np.where(moved[:, None], kind_rate, self._kind_said)
        alike = ~_differ(rate, shown[jobs.kind])
        name = np.where(alike, 2 * jobs.kind, 2 * jobs.id + 1)
        new = name != jobs.named
        used, again = np.zeros(len(kinds), np.bool_), np.zeros(len(kinds), np.bool_)
        used[jobs.kind[alike]] = True
        again[jobs.kind[new & alike]] = True  # it may have been forgotten meanwhile
        kind_rows = np.flatnonzero((moved | again) & used)
        self._kind_said[kind_rows] = shown[kind_rows]
        own = np.flatnonzero(~alike & (new | _differ(rate, jobs.said)))
        jobs.said[own], jobs.named[:] = rate[own], name
        changed = np.flatnonzero(new)
        belief = np.concatenate([2 * kind_rows, 2 * jobs.id[own] + 1])
        pair, colocated_rate = self._say_pairs(belief, kinds)
        if not len(changed) and not len(belief) and not len(pair):
            return None
        said = np.vstack([self._kind_said[kind_rows], jobs.said[own]])[:, self._columns]
        return Beliefs(jobs.id[changed], name[changed], belief, said, pair, colocated_rate)

    def _say_pairs(self, belief: Ints, kinds: Sequence[JobType]) -> tuple[Ints, Floats]:
        """Rates of pairs that are not as the table has them, of beliefs of which one is said anew or whose
        slowing is."""
        jobs = self.jobs
        names, first = np.unique(jobs.named, return_index=True)
        kind = jobs.kind[first]
        shown = np.where((names % 2 == 0)[:, None], self._kind_said[kind], jobs.said[first])
        return self.pairs.say(
            names, [kinds[k] for k in kind.tolist()], shown[:, self._columns], belief
        )

    # --- what lasts ------------------------------------------------------------

    def state_dict(self) -> Mapping[str, NDArray[Any]]:
        """What was learned of kinds and users, and the noise; pairs learn anew."""
        books, users = self.users.state_dict()
        kinds = self._kinds
        return {
            "families": np.array([kind.name for kind in kinds], np.str_),
            "scales": np.array([kind.scale_factor for kind in kinds], np.int64),
            "slots": np.array([f"{s.accelerator}|{s.locality.value}" for s in self.slots], np.str_),
            "info": self.tree.info.copy(),
            "shift": self.tree.shift.copy(),
            "prior": self.tree.mean.copy(),
            "users": np.array(users, np.str_),
            "books": books,
            "noise": self.noise.state_dict(),
        }

    def load_state_dict(self, kept: Mapping[str, NDArray[Any]]) -> None:
        """Take up what was kept; slot types that are not here are integrated out."""
        names = [str(name).rpartition("|") for name in kept["slots"]]
        theirs = [SlotType(name, Locality(locality)) for name, _, locality in names]
        self._widen(theirs)
        at = {slot: i for i, slot in enumerate(self.slots)}
        here: Ints = np.array([at[slot] for slot in theirs], np.int64)
        kinds = zip(kept["families"].tolist(), kept["scales"].tolist(), strict=True)
        for old, (family, scale) in enumerate(kinds):
            row, n = self._kind(JobType.parse(family, scale)), len(self.slots)
            info, shift = np.zeros((n, n)), np.zeros(n)
            info[np.ix_(here, here)] = kept["info"][old]
            # Deviations were from what the table then had.
            moved = kept["prior"][old] - self.tree.mean[row, here]
            shift[here] = kept["shift"][old] + kept["info"][old] @ moved
            self.tree.add(np.array([row]), info[None], shift[None])
        self.users.load_state_dict(kept["books"], kept["users"].tolist())
        self.noise.load_state_dict(kept["noise"])


@dataclass(frozen=True, slots=True)
class ReportedRates:
    """A job's rates in steps/s, by slot type; NaN = nothing said, or not measured."""

    slots: tuple[SlotType, ...]
    claimed: Floats
    measured: Floats
    believed: Floats  # 0 = cannot run there
    sigma: Floats  # of the natural logarithm of what is believed


def make(
    options: Mapping[str, str], table: Throughputs, cluster: Cluster, seed: int
) -> FairleadEstimator:
    """The estimator of ``fairlead[:options]``: see ``EstimatorSettings``."""
    return FairleadEstimator(
        EstimatorSettings.of(options), table, float(cluster.capacity.sum()), seed
    )


def _observe(mean: Floats, cov: Floats, of: Sequence[int], value: Floats, variance: Floats) -> None:
    """One scalar observation of each job, in place: of the sum of these variables. mean: (variables, jobs),
    cov: (variables, variables, jobs), variance: (jobs,) of the observation, inf = there is none."""
    if np.isinf(variance).all():
        return
    reach = cov[list(of)].sum(axis=0)
    gain = reach / (reach[list(of)].sum(axis=0) + variance)
    mean += gain * (value - mean[list(of)].sum(axis=0))
    cov -= gain[:, None] * reach[None]


def _fill(before: Floats, now: Floats) -> Floats:
    """What was before, and infinity for rows that are new; all is new where there are other columns."""
    if before.shape[1:] != now.shape[1:]:
        before = before[:0].reshape(0, now.shape[1])
    out: Floats = np.full(now.shape, np.inf)
    out[: len(before)] = before
    return out


def _changed(before: Floats, now: Floats, much: float) -> Bools:
    """(rows,) has any number changed by so much?"""
    return np.asarray((np.abs(now - _fill(before, now)) > much).any(axis=1))


def _differ(now: Floats, before: Floats) -> Bools:
    """(rows,) by more than is worth saying, on any slot?"""
    return np.asarray((np.abs(now - before) > REPORT_THRESHOLD * np.abs(before)).any(axis=1))
