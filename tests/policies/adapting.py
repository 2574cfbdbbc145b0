"""Snapshots of jobs that change their batch size."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.adaptation import Adaptation
from fairlead.model.cluster import Cluster
from fairlead.model.job_type import JobType
from fairlead.model.snapshot import Regimes, Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.instances import fresh_snapshot


@dataclass(frozen=True)
class Row:
    """A job that has trained ``progress`` epochs as announced, at its rate in ``table``."""

    family: str
    adaptation: Adaptation
    progress: float = 0.0
    scale: int = 1
    age_s: float = 0.0
    ran_s: float = 0.0
    id: int | None = None


def snapshot_of_adapting(
    rows: list[Row],
    cluster: Cluster,
    table: Throughputs,
    now_s: float = 0.0,
    round_s: float = 120.0,
) -> Snapshot:
    """The snapshot of these jobs, each at the batch size that its schedule has at its progress."""
    table = table.on(cluster, False)
    width = max(len(row.adaptation.batches) for row in rows)
    n = len(rows)
    batch, kind = np.zeros((n, width), np.int64), np.full((n, width), -1)
    per_epoch, seen = np.ones((n, width)), np.zeros((n, width))
    now = np.zeros(n, np.int64)
    for i, row in enumerate(rows):
        announced = row.adaptation
        k = len(announced.batches)
        batch[i, :k], per_epoch[i, :k] = announced.batches, announced.steps_per_epoch
        for c, size in enumerate(announced.batches):
            found = table.row(JobType.parse(row.family, row.scale).with_batch_size(size))
            assert found is not None
            kind[i, c] = found
        for epoch in np.arange(0.0, row.progress, 1.0):
            stage = int(np.searchsorted(announced.starts, epoch, side="right")) - 1
            seen[i, announced.regimes[stage]] += min(1.0, row.progress - epoch)
        stage = int(np.searchsorted(announced.starts, row.progress, side="right")) - 1
        now[i] = announced.regimes[stage]
    epochs = np.array([row.adaptation.epochs for row in rows], np.float64)
    progress = np.array([row.progress for row in rows])
    at = np.arange(n)
    total = epochs * per_epoch[at, now]
    fresh = fresh_snapshot(
        cluster,
        table,
        kind[at, now],
        kind[at, now],
        np.ones(n),
        (epochs - progress) * per_epoch[at, now],
    )
    assert all(JobType.parse(row.family).batch_size is not None for row in rows)
    ran_s = np.array([row.ran_s for row in rows])
    received = np.zeros((n, len(table.slots)))
    received[:, 0] = ran_s
    return replace(
        fresh,
        now_s=now_s,
        round_s=round_s,
        jobs=np.array([i if row.id is None else row.id for i, row in enumerate(rows)], np.int64),
        total_steps=total,
        age_s=np.array([row.age_s for row in rows]),
        ran_s=ran_s,
        received_s=received,
        regimes=Regimes(
            batch=batch,
            job_type=kind,
            steps_per_epoch=per_epoch,
            epochs_trained=seen,
            current=now,
            epochs=epochs,
            announced=tuple(row.adaptation for row in rows),
        ),
    )
