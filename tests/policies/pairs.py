"""Problems in which any two jobs may run side by side."""

from dataclasses import replace

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, table


def with_colocated_rates(snapshot: Snapshot, kept: float) -> Snapshot:
    """The same where every job keeps this part of its rate beside any other."""
    kinds = 12
    rate = np.zeros((kinds, len(snapshot.slots)))
    rate[snapshot.job_type] = snapshot.solo_rate
    colocated_rate = np.repeat(kept * rate[:, None, :], kinds, axis=1)
    return replace(snapshot, colocated_rate=colocated_rate)


def problem(
    scales: list[int], kept: float, families: list[int] | None = None, **devices: int
) -> Snapshot:
    """Jobs 0, 1, ... at 10 steps/s on every type, that keep a part of it beside another."""
    family = families or [0] * len(scales)
    jobs = [
        InstanceJob(i, FAMILIES[f], s, steps_left=1e5)
        for i, (f, s) in enumerate(zip(family, scales, strict=True))
    ]
    return with_colocated_rates(
        snapshot_of(jobs, Cluster.of(devices), table(np.full((12, 3), 10.0))), kept
    )


def group_shares(
    snapshot: Snapshot, share: np.ndarray, ids: np.ndarray
) -> dict[tuple[int, ...], dict[str, float]]:
    """{job group: {accelerator type: share}}, without zeros."""
    out: dict[tuple[int, ...], dict[str, float]] = {}
    for row, group in zip(share.tolist(), ids.tolist(), strict=True):
        held = {s.accelerator: x for s, x in zip(snapshot.slots, row, strict=True) if x > 0}
        if held:
            out[tuple(job for job in group if job >= 0)] = held
    return out


def paired(seed: int, jobs: int = 9, kinds: int = 12) -> Snapshot:
    """Random jobs of the first kinds of the table on two or three types; beside each other they keep
    between nothing and all of their rates."""
    rng = np.random.default_rng(seed)
    rate = rng.lognormal(1.0, 1.0, (12, 3)) * (rng.random((12, 3)) > 0.1)
    rate[:, 0] = np.maximum(rate[:, 0], 0.1)
    kind = rng.integers(0, kinds, jobs)
    rows = [InstanceJob(i, FAMILIES[k // 3], (1, 2, 4)[k % 3]) for i, k in enumerate(kind)]
    counts = {"a": int(rng.integers(2, 5)), "b": int(rng.integers(1, 5)), "c": 2}
    snapshot = snapshot_of(rows, Cluster.of(counts), table(rate))
    kept = rng.choice([0.0, 0.4, 0.7, 0.9], (12, 12, 3))
    return replace(snapshot, colocated_rate=kept * rate[:, None, :])
