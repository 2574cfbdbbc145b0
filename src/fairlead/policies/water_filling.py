"""Water filling: lexicographic max-min fairness, of jobs or of entities."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import (
    check_allocation,
    effective_throughput,
    tally_allocation,
)
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.pair_rates import largest_colocated_rate
from fairlead.model.plan import BasePolicy
from fairlead.model.rates import inverse_rate, proportional_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import (
    allocation,
    allocation_by_class,
    by_slot,
)
from fairlead.policies.entities import Entities
from fairlead.policies.parametric_level import PAIR_PENALTY
from fairlead.policies.solve.breakpoints import JobTypeRates
from fairlead.policies.solve.fill_by_breakpoints import BreakpointOracle, PriceCut
from fairlead.policies.solve.fill_certificate import FillCertificate, JobShares, measure
from fairlead.policies.solve.fill_in_pairs import PairOracle
from fairlead.policies.solve.fill_jobs import FillJobs
from fairlead.policies.solve.job_classes import JobClasses, group
from fairlead.policies.solve.progressive_filling import EntityTree
from fairlead.policies.solve.share_problem import ShareProblem
from fairlead.policies.solve.water_filling import Filled, Rows, Supply, fill


@dataclass(frozen=True, kw_only=True, slots=True)
class WaterFilling(BasePolicy):
    """lexmax_x sort_i  s_i / (w_i p_i) * sum_j T_ij x_ij   s.t.  time of each job, devices of each type.

    The smallest level of a job is as large as can be, then the second smallest, and so on: all rise
    together, those that cannot rise any more stop, and the rest goes on until nothing rises. T_ij rate of
    job i on slot type j, p_i = sum_j T_ij N_j / sum_j N_j, s_i its devices, w_i its weight. The levels are
    unique, and with them every job's throughput.

    With entities the levels rise at the pace of their weights: an entity's weight goes to all of its
    children that can still rise, in proportion to theirs (fairness), or to the first of them in order
    of submission (fifo). The objective is the smallest level among the root's children (without
    entities: the jobs), where an entity's is sum_i s_i t_i / p_i over its jobs by its weight. The bound
    exceeds it by the largest relative rise that is not excluded at any of the levels. Source: Gavel
    (OSDI'20), hierarchical policies; its release's water_filling, whose defects are not repeated.
    """

    entities: Entities = field(default_factory=Entities)
    name: str = "water_filling_aware"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    elastic: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified (``fairlead.policies.solve.water_filling``)."""
        table = _RowTable.of(snapshot, self.entities)
        jobs = table.jobs(snapshot)
        best = jobs.job_types.best[jobs.job_type]
        rows = Rows(table.tree, table.classes.count, inverse_rate(jobs.unit_rate) * best)
        if not rows.cap.any():
            return table.empty_allocation(snapshot)
        previous = () if snapshot.previous is None else snapshot.previous.report.basis
        oracle = BreakpointOracle(jobs, previous[:-1])
        filled = fill(rows, oracle, _initial_cuts(jobs, previous))
        prices = np.array([cut.price for cut in filled.cuts]).tobytes()
        report = SolveReport(
            "optimal",
            iterations=oracle.iterations,
            warm=oracle.warm,
            basis=(*oracle.basis, prices),
        )
        filling = Filling(snapshot=snapshot, table=table, jobs=jobs, rows=rows, filled=filled)
        return self.choose_allocation(filling, oracle.shares, report)

    def choose_allocation(
        self, filling: "Filling", shares: Callable[[], Floats], report: SolveReport
    ) -> Allocation:
        """The allocation of one of the shares with these levels: the simplex method's."""
        return filling.allocation(shares(), report)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgnosticWaterFilling:
    """lexmax_x sort_i  s_i / w_i * sum_j x_ij   s.t.  time of each job, devices of each type.

    WaterFilling with every rate 1, entities and fifo included: accelerator types are taken for equal, one
    where a job cannot run included. Only the time y_i = sum_j x_ij matters, so there is one resource, all
    devices, and the levels rise until it is used up; the shares are spread over the types as the devices
    are. Source: Gavel's water_filling.
    """

    entities: Entities = field(default_factory=Entities)
    name: str = "water_filling"
    heterogeneity_aware: bool = False
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        capacity, total = snapshot.capacity, float(snapshot.capacity.sum())
        table = _RowTable.of(snapshot, self.entities)
        if not total > 0:
            return table.empty_allocation(snapshot)
        jobs = table.jobs(snapshot, agnostic=True)
        count = table.classes.count
        rows = Rows(table.tree, count, jobs.job_types.scale[jobs.job_type])
        supply = Supply(count, total)
        filled = fill(rows, supply, [supply])
        report = SolveReport("closed-form")
        filling = Filling(snapshot=snapshot, table=table, jobs=jobs, rows=rows, filled=filled)
        share = by_slot(snapshot, np.outer(filled.height / rows.cap, capacity / total))
        return self.choose_allocation(filling, share, report)

    def choose_allocation(
        self, filling: "Filling", share: Floats, report: SolveReport
    ) -> Allocation:
        """The allocation of one of the shares with these times: spread as the devices are."""
        return filling.allocation(share, report)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceSharingWaterFilling:
    """lexmax_x sort_i  s_i / (w_i p_i) * sum_{c with i} sum_j T^i_cj x_cj   s.t.  time, devices of types.

    WaterFilling over job groups c of one job or a pair of equal scale factor, T^i_cj the rate of i in c; p_i
    from the rates alone. Of the shares that give these levels, those with the least time of devices in
    pairs. Source: Gavel (OSDI'20), space sharing; its release's water_filling_packed.
    """

    entities: Entities = field(default_factory=Entities)
    spare_pairs: bool = False  # keep pairs that the levels do not need
    name: str = "water_filling_packed"
    heterogeneity_aware: bool = True
    space_sharing: bool = True
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified (``fairlead.policies.solve.water_filling``)."""
        table = _RowTable.of(snapshot, self.entities)
        problem = ShareProblem.of(snapshot, table.key, space_sharing=True)
        per_height = proportional_rate(snapshot) / snapshot.job_scale
        unit_rate = per_height[problem.classes.representative]
        best = np.where(problem.can_run, problem.best, 0.0)
        if (
            problem.colocated_rate is not None
        ):  # should a job be faster in a pair than anywhere alone
            there = (snapshot.capacity > 0)[snapshot.accelerator_of_slot]
            paired = largest_colocated_rate(problem.colocated_rate)[:, there].max(
                axis=1, initial=0.0
            )[problem.job_type]
            best = np.where(problem.can_run, np.maximum(best, paired), 0.0)
        rows = Rows(table.tree, problem.classes.count, best * inverse_rate(unit_rate))
        if not rows.cap.any():
            return table.empty_allocation(snapshot)
        previous = () if snapshot.previous is None else snapshot.previous.report.basis
        oracle = PairOracle(problem=problem, unit_rate=unit_rate, cap=rows.cap, basis=previous)
        filled = fill(rows, oracle)
        solution = oracle.fewest_pairs(0.0 if self.spare_pairs else PAIR_PENALTY)
        report = SolveReport(
            "optimal", iterations=oracle.iterations, warm=oracle.warm, basis=oracle.basis
        )
        made = allocation_by_class(snapshot, problem, solution, report)
        height, of = (
            effective_throughput(made, snapshot) * inverse_rate(per_height),
            problem.classes.of,
        )
        least = np.full(len(unit_rate), np.inf)
        np.minimum.at(least, of, height)
        used, time = tally_allocation(made, snapshot)
        use = max(float((used / np.maximum(snapshot.capacity, 1.0)).max()), float(time.max()))
        total = np.bincount(of, height, len(unit_rate)).astype(np.float64)
        certificate = FillCertificate(least, total, use, jobs_alike=True)
        return check_allocation(
            replace(made, report=table.report(report, rows, filled, certificate)), snapshot
        )


@dataclass(frozen=True, slots=True)
class _RowTable:
    """Rows of like jobs, and the tree of entities that they are in."""

    key: Ints  # (jobs,) the same for jobs of a row
    classes: JobClasses  # the rows
    weight: Floats  # (rows,) of a job
    tree: EntityTree

    @staticmethod
    def of(snapshot: Snapshot, entities: Entities) -> "_RowTable":
        """Jobs of one class and entity are a row; in an entity with fifo every job is."""
        entity, key = entities.of(snapshot), snapshot.job_class
        if len(entities) > 1:
            key = key * len(entities) + entity
        if entities.fifo.any():
            single = np.flatnonzero(entities.fifo[entity])
            key[single] = key.max(initial=0) + 1 + np.arange(len(single))
        classes = group(key)
        weight = snapshot.weight[classes.representative]
        root = len(weight)
        inside = np.array([e.parent for e in entities.tree], np.int64)
        oldest = np.full(len(entities), len(key))
        if len(entities) > 1:
            np.minimum.at(oldest, entity, np.arange(len(key)))
        for e in range(len(entities) - 1, 0, -1):  # parents first, so children are done
            oldest[inside[e]] = min(oldest[inside[e]], oldest[e])
        tree = EntityTree(
            np.concatenate([entity[classes.representative], inside]) + root,
            np.concatenate([weight * classes.count, [e.weight for e in entities.tree]]),
            np.concatenate([classes.representative, oldest]),
            entities.fifo,
        )
        return _RowTable(key, classes, weight, tree)

    def jobs(self, snapshot: Snapshot, agnostic: bool = False) -> FillJobs:
        """The job types of the rows' jobs; a height of 1 is p_i / s_i steps/s. agnostic: with rates of 1."""
        first = self.classes.representative
        of_job_type = group(snapshot.job_type[first])
        some = first[of_job_type.representative]
        scale = snapshot.job_scale[some].astype(np.float64)
        there: Bools = (snapshot.capacity > 0)[snapshot.accelerator_of_slot]
        rate = np.ones((len(some), len(there))) if agnostic else snapshot.solo_rate[some]
        job_types = JobTypeRates.of(of_job_type.id, scale, np.where(there, rate, 0.0))
        job_type = of_job_type.of
        p = np.ones(len(first)) if agnostic else proportional_rate(snapshot)[first]
        return FillJobs(
            job_types=job_types,
            job_type=job_type,
            count=self.classes.count,
            unit_rate=p / scale[job_type],
            accelerator_of_slot=snapshot.accelerator_of_slot,
            slot_devices=snapshot.slot_devices,
            capacity=snapshot.capacity,
            agnostic=agnostic,
        )

    def report(
        self, report: SolveReport, rows: Rows, filled: Filled, certificate: FillCertificate
    ) -> SolveReport:
        """The report with the objective, its bound and the violation."""
        top, size = self.tree.child_of_root(), len(self.tree.weight)
        if len(self.tree.fifo) == 1:  # the root's children are rows: every job counts for itself
            level, can = certificate.least / self.weight, rows.cap > 0
        else:
            level = np.bincount(top, certificate.total, size) / self.tree.weight
            can = np.bincount(top, rows.cap, size) > 0
        smallest = float(level.min(where=can, initial=np.inf))
        gap = (
            filled.gap + certificate.short_of(rows, filled.height)
            if certificate.jobs_alike
            else np.inf
        )
        return replace(
            report,
            objective=smallest,
            bound=smallest * (1 + gap),
            violation=max(0.0, certificate.use - 1.0),
        )

    def empty_allocation(self, snapshot: Snapshot) -> Allocation:
        """The allocation where no job can run: no shares, objective 0."""
        share = np.zeros((len(snapshot.jobs), len(snapshot.slots)))
        return check_allocation(
            allocation(snapshot, share, SolveReport("optimal", 0.0, 0.0)), snapshot
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Filling:
    """A problem by rows, and the heights that solve it."""

    snapshot: Snapshot
    table: _RowTable
    jobs: FillJobs
    rows: Rows
    filled: Filled

    def allocation(self, share: Floats, report: SolveReport) -> Allocation:
        """An allocation from (rows, slots) shares of a job, scaled down to what there is, and measured."""
        snapshot, table, jobs = self.snapshot, self.table, self.jobs
        devices = (jobs.job_types.scale[jobs.job_type] * jobs.count) @ share * jobs.slot_devices
        used = np.bincount(jobs.accelerator_of_slot, devices, len(jobs.capacity))
        largest = float((used / jobs.capacity.clip(1.0)).max())
        share = share / max(1.0, largest, float(share.sum(axis=1).max()))
        of = table.classes.of
        expanded = share[of]
        rate = np.ones_like(expanded) if jobs.agnostic else snapshot.solo_rate
        single = JobShares(
            row=of,
            share=expanded,
            rate=np.ascontiguousarray(rate),
            scale=snapshot.job_scale,
            weight=snapshot.weight,
        )
        certificate = measure(jobs, single, table.weight)
        report = table.report(report, self.rows, self.filled, certificate)
        return check_allocation(allocation(snapshot, expanded, report), snapshot)


def _initial_cuts(jobs: FillJobs, previous: tuple[bytes, ...]) -> list[PriceCut]:
    """Cuts to begin with: at one price for all types, and at the prices of an earlier answer."""
    types = len(jobs.capacity)
    prices = [np.ones(types)]
    if previous and len(previous[-1]) % (8 * types) == 0:
        prices.extend(np.frombuffer(previous[-1]).reshape(-1, types))
    return [PriceCut.of(jobs, price) for price in prices if float(price @ jobs.capacity) > 0]
