"""A search in a shared cluster: its gain, and what it costs the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.experiments.published.gandiva_search import METRIC, PER_SERVER, ordered
from fairlead.analysis.simulate import simulate
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.policies.search.decide import SearchPlan
from fairlead.policies.search.stopping import CurveFit, StoppingRule
from fairlead.simulator.recording.metrics import Result
from fairlead.simulator.search.recorded_curves import RecordedCurves, read_curves
from fairlead.simulator.search.search_backend import FIRST_ID, SearchStudy
from fairlead.simulator.search.simulate_search import SearchResult, simulate_search

DEVICES = 8
TRIALS = 40
GOOD_AT = 36  # place of the first good configuration, counted from 1: the paper does not say
TRIAL_S = 3600.0  # of a whole trial on two devices of one server
ROUND_S = 20.0
SUBMITTED_S = 20_000.0  # the search begins when the others have filled the cluster
TENANTS = ("a", "b", "c")
BACKGROUND_JOBS = 80
WORK_S = 3 * 3600.0  # mean work of another job, per device; lognormal, sigma 1
MIN_WORK_S = 1800.0
TWO_DEVICES = 0.3  # part of the other jobs
MAX_RATIO = 1.05  # that a search may cost a tenant in worst rho
SEARCH_WEIGHT = 0.01  # of the search as an entity; that of each tenant is 1
LOADS = {"small": (0.75,), "paper": (0.6, 0.75, 0.9)}
SEEDS = {"small": (0, 1), "paper": (0, 1, 2, 3, 4)}
PUBLISHED = {"time-slicing alone": 7.0, "with migration": 13.6}
ENTITY = "one entity of fair shares"

_SLOTS = (SlotType("x"), SlotType("x", Locality.SCATTERED))
RATES = Throughputs(
    _SLOTS,
    tuple(JobType.parse(name, scale) for name, scale in (("trial", 2), ("job", 1), ("job", 2))),
    np.array([[1.0, 0.5], [1.0, 1.0], [1.0, 0.7]]),
)
CLUSTER = Cluster.of({"x": DEVICES}, PER_SERVER)


def background(load: float, seed: int) -> list[Arrival]:
    """Jobs of three tenants that ask for so large a part of the devices on average."""
    rng = np.random.default_rng(seed)
    gap_s = WORK_S * (1 + TWO_DEVICES) / (DEVICES * load)
    times_s = np.cumsum(rng.exponential(gap_s, BACKGROUND_JOBS))
    scales = rng.choice([1, 2], BACKGROUND_JOBS, p=[1 - TWO_DEVICES, TWO_DEVICES])
    work_s = np.maximum(rng.lognormal(np.log(WORK_S) - 0.5, 1.0, BACKGROUND_JOBS), MIN_WORK_S)
    rows = zip(times_s.tolist(), scales.tolist(), work_s.tolist(), strict=True)
    return [
        Arrival(time_s, Job(JobId(i), "job", scale, work, tenant=TENANTS[i % len(TENANTS)]))
        for i, (time_s, scale, work) in enumerate(rows)
    ]


def chosen_curves(table: RecordedCurves, seed: int) -> RecordedCurves:
    """The curves of the configurations of a search, in order."""
    return table.ordered(ordered(table, GOOD_AT, seed, TRIALS))


@dataclass(frozen=True, slots=True)
class SharedSearch:
    """A search beside the jobs of others."""

    curves: RecordedCurves
    others: Sequence[Arrival]

    def run(self, policy: str, rule: StoppingRule | None) -> SearchResult:
        """Simulate it under a policy."""
        pairs = DEVICES // 2  # trials that the cluster could run at once
        plan = SearchPlan(
            metric=METRIC,
            parallel=2 * pairs if rule else pairs,
            favoured=pairs // 2 if rule else 0,
            rule=rule,
        )
        study = SearchStudy(
            curves=self.curves,
            plan=plan,
            family="trial",
            scale_factor=2,
            steps=TRIAL_S,
            trials=TRIALS,
            submitted_s=SUBMITTED_S,
        )
        return simulate_search(
            study, CLUSTER, policy, self.others, throughputs=RATES, round_s=ROUND_S
        )

    def without(self, policy: str) -> Result:
        """Simulate the jobs of the others alone."""
        return simulate(self.others, CLUSTER, policy, throughputs=RATES, round_s=ROUND_S)


def entities(folder: Path) -> str:
    """Write the entities of fair shares; return the policy that divides by them."""
    path = folder / "entities.toml"
    weights = {**dict.fromkeys(TENANTS, 1.0), "search": SEARCH_WEIGHT}
    text = "".join(f"[{name}]\nweight = {weight}\n" for name, weight in weights.items())
    path.write_text(text, encoding="utf-8")
    return f"water_filling:{path}"


def worst_rho_ratios(alone: Result, beside: Result) -> dict[str, float]:
    """By tenant, the worst rho beside a search over the worst without it. rho is the completion time over
    that with a part of the cluster of one's own, as it is without the search, in both runs."""
    before = alone.jobs.select("job", "tenant", "jct_s", "rho_isolated")
    now = beside.jobs.filter(beside.jobs["job"] < FIRST_ID).select("job", "jct_s")
    both = before.join(now, on="job", suffix="_now", maintain_order="left")
    found: dict[str, float] = {}
    for tenant in TENANTS:
        some = both.filter(both["tenant"] == tenant)
        rho = some["rho_isolated"].to_numpy()
        rho_now = rho * some["jct_s_now"].to_numpy() / some["jct_s"].to_numpy()
        found[tenant] = float(rho_now.max() / rho.max())
    return found


def gandiva_shared(context: ExperimentContext) -> Findings:
    """Gains of a search at several loads, and the worst rho of every other tenant."""
    table, fair = read_curves(), entities(context.folder)
    tables = []
    for load in LOADS[context.scale]:
        gains: dict[str, list[float]] = {name: [] for name in (*PUBLISHED, ENTITY)}
        ratios: list[float] = []
        for seed in SEEDS[context.scale]:
            one = SharedSearch(chosen_curves(table, seed), background(load, seed))
            base_s = one.run("fifo", None).reached_s
            slicing = one.run("gandiva:no-packing,no-migration", CurveFit())
            moving = one.run("gandiva:no-packing", CurveFit())
            entity = one.run(fair, CurveFit())
            for name, made in zip(gains, (slicing, moving, entity), strict=True):
                gains[name].append(_gain(base_s, made.reached_s))
            ratios.append(max(worst_rho_ratios(one.without(fair), entity.result).values()))
        tables.append(_table(load, gains, ratios))
    return Findings(
        tuple(tables),
        (),
        (
            f"{TRIALS} trials on two devices each, of which the first good one is at place {GOOD_AT}, on "
            f"{DEVICES} devices beside {BACKGROUND_JOBS} jobs of three tenants; means over "
            f"{len(SEEDS[context.scale])} seeds. The load is that of the others. The paper states "
            "neither the place nor the load. The baseline is FIFO: trials wait behind the jobs of others, "
            "run to their ends, and the search goes on until one reaches the target.",
            f"As one entity, the search has a weight of {SEARCH_WEIGHT} beside 1 of each tenant (policy "
            "water_filling): it gets what the others leave, and little more. The worst rho is the largest "
            "of a tenant's jobs, over that of the same jobs without the search; the worst tenant is shown.",
        ),
    )


def _gain(base_s: float | None, ours_s: float | None) -> float:
    """Return how many times sooner the target is reached; 0 where it is not."""
    return 0.0 if base_s is None or ours_s is None else base_s / ours_s


def _table(
    load: float, gains: Mapping[str, Sequence[float]], ratios: Sequence[float]
) -> FindingTable:
    rows = [
        FindingRow(f"gain, {name}", float(np.mean(some)), PUBLISHED.get(name), "x")
        for name, some in gains.items()
    ]
    within = sum(ratio <= MAX_RATIO for ratio in ratios)
    what = f"worst rho of a tenant over that without the search, {ENTITY}"
    remark = f"at most {MAX_RATIO} in {within} of {len(ratios)} seeds"
    rows += [
        FindingRow(f"{what}, mean of the seeds", float(np.mean(ratios)), None, "x"),
        FindingRow(f"{what}, worst seed", float(np.max(ratios)), None, "x", remark),
    ]
    return FindingTable(f"A search beside jobs that ask for {load:.0%} of the devices", tuple(rows))


REPRODUCTIONS = (
    Reproduction(
        "gandiva-shared",
        "A search in a shared cluster: its gain, and what it costs the others",
        "Gandiva (OSDI'18), section 6.4; what it costs the others is not in the paper",
        gandiva_shared,
    ),
)
