"""Gavel's hierarchical policies: total throughput of entities that share a small cluster."""

import random
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.experiments.published.gavel_stored_filling import stored_filling
from fairlead.analysis.report.chart import Chart, Series
from fairlead.model.allocation_checks import effective_throughput, job_times
from fairlead.model.arrays import Floats
from fairlead.model.rates import proportional_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.entities import Entities, Entity
from fairlead.policies.water_filling import AgnosticWaterFilling, WaterFilling
from fairlead.simulator.arrivals import GAVEL_FAMILIES
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from fairlead.simulator.traces.throughput_tables import read_throughputs

TABLE = "builtin:gavel"
CLUSTER = "v100=3,p100=3,k80=3"
SLOW_TO_FAST = ("k80", "p100", "v100")  # how drawn rates are put in order
ENTITIES, JOBS, EVERY = 3, 18, 4  # a job comes every 4 timesteps
SEED = 0

Rates = Literal["table", "random"]


@dataclass(frozen=True)
class Setting:
    """Source of the rates, and how entities divide their shares."""

    name: str
    rates: Rates
    policy: Literal["fairness", "fifo"]
    mean: float  # published: aware over agnostic, mean over the timesteps,
    end: float | None = None  # at the last timestep,
    most: float | None = None  # and at the best


# Computed from the totals that the release's notebook of hierarchical policies stores.
SETTINGS = (
    Setting("Fairness inside entities", "table", "fairness", 1.169, 1.162, 1.72),
    Setting("FIFO inside entities", "table", "fifo", 1.239, 1.017),
    Setting("Fairness inside entities, random rates", "random", "fairness", 1.121, 1.207, 1.257),
    Setting("FIFO inside entities, random rates", "random", "fifo", 1.119),
)


@dataclass(frozen=True)
class Totals:
    """Total normalised throughput, by number of jobs from 1 on."""

    heterogeneity_aware: Floats  # (jobs,)
    agnostic: Floats  # (jobs,)

    @property
    def gain(self) -> Floats:
        """(jobs,) aware over agnostic. Every job count lasts equally long, so means over these are means
        over timesteps."""
        return self.heterogeneity_aware / self.agnostic


def problem(setting: Setting, jobs: int) -> Snapshot:
    """The first jobs of the setting, each of one device, on the cluster."""
    rng = random.Random(SEED)
    cluster, table = parse_cluster(CLUSTER), read_throughputs(TABLE)
    rows, rates = [], []
    for job in range(jobs):
        if setting.rates == "random":
            rates.append(sorted(rng.random() for _ in SLOW_TO_FAST))
            family = GAVEL_FAMILIES[0]  # any: its rates are replaced
        else:
            family = rng.choice(GAVEL_FAMILIES)
        weight = 1.0 if setting.policy == "fifo" else 1.0 + job % 2
        rows.append(InstanceJob(job, family, weight=weight, tenant=_entity(job)))
    snapshot = snapshot_of(rows, cluster, table)
    if setting.rates == "table":
        return snapshot
    column = [SLOW_TO_FAST.index(slot.accelerator) for slot in snapshot.slots]
    rate, numbers = np.array(rates)[:, column], np.arange(jobs)
    return replace(
        snapshot, job_type=numbers, job_class=numbers, job_type_rate=rate, rate=rate[:, :, None]
    )


def entities(setting: Setting) -> Entities:
    """Three, with weights 1, 2 and 3."""
    each = (Entity(f"entity-{e}", 0, e + 1.0, setting.policy) for e in range(ENTITIES))
    return Entities((Entity("", 0), *each), setting.name)


def _entity(job: int) -> str:
    return f"entity-{job // (JOBS // ENTITIES)}"


def exact(setting: Setting) -> Totals:
    """Return the totals by our policies, whose levels are the only ones that water filling has."""
    heterogeneity_aware, agnostic = [], []
    tree = entities(setting)
    for jobs in range(1, JOBS + 1):
        snapshot = problem(setting, jobs)
        p = proportional_rate(snapshot)
        heterogeneity_aware.append(
            (
                effective_throughput(WaterFilling(entities=tree).allocate(snapshot), snapshot) / p
            ).sum()
        )
        agnostic.append(
            job_times(AgnosticWaterFilling(entities=tree).allocate(snapshot), snapshot).sum()
        )
    return Totals(np.array(heterogeneity_aware), np.array(agnostic))


def stored(setting: Setting) -> Totals:
    """Return the totals computed as for the published figure."""
    heterogeneity_aware, agnostic = [], []
    for jobs in range(1, JOBS + 1):
        snapshot = problem(setting, jobs)
        heterogeneity_aware.append(_stored(setting, snapshot, snapshot.solo_rate))
        agnostic.append(_stored(setting, snapshot, np.ones_like(snapshot.solo_rate)))
    return Totals(np.array(heterogeneity_aware), np.array(agnostic))


def _stored(setting: Setting, snapshot: Snapshot, rate: Floats) -> float:
    by_name = sorted(range(len(snapshot.slots)), key=lambda slot: snapshot.slots[slot].accelerator)
    got = stored_filling(
        rate[:, by_name],
        snapshot.capacity[by_name],
        np.arange(len(rate)) // (JOBS // ENTITIES),
        np.arange(1.0, ENTITIES + 1),
        snapshot.weight,
        setting.policy == "fifo",
    )
    return float(got.sum())


# --- findings ------------------------------------------------------------------------------------

REMARKS = (
    "Three entities of weights 1, 2 and 3 with six jobs each share 3 V100, 3 P100 and 3 K80; a job comes "
    "every 4 timesteps, 72 in all; job weights alternate between 1 and 2 (with FIFO all are 1). Totals are "
    "of throughputs over those at equal shares, for the agnostic policy of time over that at equal shares. "
    "All scales are the same: it takes seconds.",
    "The published totals are those of water filling whose integer program, which finds the jobs that can "
    "still rise, finds none, as the release has it where that program fails: with fairness it stops after "
    "the first turn, and devices stay unused under both policies that jobs could use. "
    "Run so, with the same program and the same kind of interior-point solver, ours gives the published "
    "numbers, rows 'as stored'. With FIFO inside entities later turns leave no room at all to move in, the "
    "solver ends where rounding lets it, and the last digits are its own.",
    "Exact water filling gives each job the only level that it has; rows 'exact' are what the policies of "
    "Fairlead do. Once all devices are in use (18 jobs) both agree.",
)


def run(context: ExperimentContext) -> Findings:
    """Gavel, figure 11: hierarchical policies."""
    del context  # the same at every scale
    tables, charts = [], []
    for setting in SETTINGS:
        as_stored, ours = stored(setting), exact(setting)
        tables.append(FindingTable(setting.name, (*_rows(setting, as_stored), *_exact_rows(ours))))
        charts.append(_chart(setting, as_stored, ours))
    return Findings(tuple(tables), tuple(charts), REMARKS)


def _rows(setting: Setting, totals: Totals) -> tuple[FindingRow, ...]:
    gain = totals.gain
    return (
        FindingRow("Aware over agnostic, mean, as stored", float(gain.mean()), setting.mean, "x"),
        FindingRow("Aware over agnostic, at the end, as stored", float(gain[-1]), setting.end, "x"),
        FindingRow("Aware over agnostic, at most, as stored", float(gain.max()), setting.most, "x"),
    )


def _exact_rows(totals: Totals) -> tuple[FindingRow, ...]:
    gain = totals.gain
    return (
        FindingRow("Aware over agnostic, mean, exact", float(gain.mean()), None, "x"),
        FindingRow("Aware over agnostic, at the end, exact", float(gain[-1]), None, "x"),
        FindingRow("Aware over agnostic, at most, exact", float(gain.max()), None, "x"),
        FindingRow(
            "Aware over agnostic, totals of all timesteps, exact",
            float(totals.heterogeneity_aware.sum() / totals.agnostic.sum()),
            None,
            "x",
        ),
    )


def _chart(setting: Setting, as_stored: Totals, ours: Totals) -> Chart:
    begins = np.arange(1.0, JOBS * EVERY, EVERY)
    series = [
        Series(name, begins, values, steps=True)
        for name, values in (
            ("Gavel, exact", ours.heterogeneity_aware),
            ("Agnostic, exact", ours.agnostic),
            ("Gavel, as stored", as_stored.heterogeneity_aware),
            ("Agnostic, as stored", as_stored.agnostic),
        )
    ]
    return Chart(setting.name, "Timestep", "Total normalised throughput", tuple(series))


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "gavel-hierarchical",
        "Total throughput under hierarchical policies",
        "Gavel (OSDI'20), figure 11; the release's notebook of hierarchical policies",
        run,
    ),
)
