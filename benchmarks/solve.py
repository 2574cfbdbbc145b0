"""CPU time of one heterogeneity-aware LAS solve by number of jobs. Run: python benchmarks/solve.py

Cold: without an earlier answer. Warm: one job has left and one has come since the last solve. Central: the
middle of the best shares, as the ``gavel`` profile wants it. Best of a few runs, snapshot given. The gap
is the certificate's, from the jobs themselves.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.snapshot import Snapshot
from fairlead.policies.las import Las
from fairlead.traces.throughputs import builtin_throughputs

SIZES = (32, 128, 512, 2_048, 8_192, 32_768, 100_000, 1_000_000)
SUPPLY = 1 / 3  # devices per device asked for


def snapshot(jobs: int, types: int, seed: int = 0) -> Snapshot:
    """Jobs of the catalogue's kinds, a fifth of them with weight 1.5, at three times the devices."""
    rng = np.random.default_rng(seed)
    table = builtin_throughputs().columns(tuple(SlotType(a) for a in ("k80", "p100", "v100")))
    kinds = np.flatnonzero((table.rate > 0).all(axis=1))
    while table.rate.shape[1] < types:  # further types: a mix of two real ones
        a, b, noise = (*rng.choice(3, 2, replace=False), rng.lognormal(0, 0.15, len(table.kinds)))
        mixed = np.sqrt(table.rate[:, a] * table.rate[:, b]) * noise
        slots = (*table.slots, SlotType(f"x{table.rate.shape[1]}"))
        table = replace(table, slots=slots, rate=np.column_stack([table.rate, mixed]), pair=None)
    kind = rng.choice(kinds, jobs)
    heavy = rng.random(jobs) < 0.2
    scale = np.array([scale for _, scale in table.kinds])[kind]
    devices = max(8, round(scale.sum() * SUPPLY / types))
    cluster = Cluster.of({slot.accelerator: devices for slot in table.slots})
    table = table.columns(cluster.slots)
    none = np.zeros((jobs, types))
    return Snapshot(
        now_s=0.0,
        jobs=np.arange(jobs),
        weight=np.where(heavy, 1.5, 1.0),
        steps_left=np.ones(jobs),
        age_s=np.zeros(jobs),
        deadline_s=np.full(jobs, np.inf),
        job_class=kind * 2 + heavy,
        restart_s=np.zeros(jobs),
        slots=cluster.slots,
        slot_type=np.arange(types),
        capacity=cluster.capacity,
        price=cluster.price,
        member=np.arange(jobs)[:, None],
        scale=scale,
        rate=table.rate[kind][:, :, None],
        received_s=none,
        deficit_s=none,
        handed_out_s=np.zeros(types),
        share=none,
        allocated=np.zeros(jobs, np.bool_),
        running_on=np.full(jobs, -1),
        previous=None,
    )


def one_job_later(before: Snapshot) -> Snapshot:
    """The first job has left, and one like the last has come."""
    rows = np.append(np.arange(1, len(before.jobs)), len(before.jobs) - 1)
    return replace(
        before,
        jobs=before.jobs + 1,
        weight=before.weight[rows],
        job_class=before.job_class[rows],
        scale=before.scale[rows],
        rate=before.rate[rows],
    )


def best_ms(solve: Callable[[], Allocation], jobs: int) -> float:
    """CPU milliseconds of the fastest of a few runs."""
    times = []
    for _ in range(20 if jobs < 10_000 else 3):
        begun = time.process_time()
        solve()
        times.append(time.process_time() - begun)
    return min(times) * 1e3


def main() -> None:
    print(f"{'jobs':>9} {'types':>5} {'classes':>7} {'cold':>9} {'warm':>9} {'central':>9}  gap")
    for types in (3, 10):
        for jobs in SIZES:
            now = snapshot(jobs, types)
            answer = Las().allocate(now)
            later = replace(one_job_later(now), previous=answer)
            Las(central=True).allocate(now)
            cells = (
                best_ms(lambda now=now: Las().allocate(now), jobs),  # type: ignore[misc]
                best_ms(lambda later=later: Las().allocate(later), jobs),  # type: ignore[misc]
                best_ms(lambda now=now: Las(central=True).allocate(now), jobs),  # type: ignore[misc]
            )
            classes = len(np.unique(now.job_class))
            text = " ".join(f"{cell:7.2f}ms" for cell in cells)
            print(f"{jobs:>9,} {types:>5} {classes:>7} {text}  {answer.report.gap:.1e}", flush=True)


if __name__ == "__main__":
    main()
