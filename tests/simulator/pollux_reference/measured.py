"""A small application with made-up measurements, as files."""

from collections.abc import Mapping
from pathlib import Path

STEP_S = {1: 1.0, 2: 0.7, 3: 0.6, 4: 0.55}  # by replicas, whatever the local batch


def write_application(
    folder: Path,
    *,
    epochs: int = 4,
    name: str = "app",
    accelerators: Mapping[str, float] | None = None,
) -> Path:
    """One that trains on up to 8 replicas with total batches of 32 or 64. An epoch is 100 steps at 32.
    accelerators: speed of each type that it was measured on; None = no type is named."""
    made = folder / name
    made.mkdir(parents=True)
    for suffix, speed in {f"-{k}": v for k, v in (accelerators or {}).items()}.items() or [("", 1)]:
        rows = ["placement,local_bsz,step_time,sync_time"]
        for digits, replicas in (("1", 1), ("2", 2), ("3", 3), ("4", 4), ("11", 2), ("22", 4)):
            step = f"{STEP_S[replicas] / speed},{0.1 / speed}"
            rows += [f"{digits},{local},{step}" for local in (4, 64)]
        (made / f"placements{suffix}.csv").write_text("\n".join(rows) + "\n")
        step = f"{0.5 / speed},{0.1 / speed}"
        rows = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
        rows += [f"{n},{r},{b},{step}" for n in (2, 4) for r in (6, 8) for b in (4, 64)]
        (made / f"scalability{suffix}.csv").write_text("\n".join(rows) + "\n")
    for batch in (32, 64):
        rows = ["progress,iteration,metric,grad_sqr,grad_var"]
        rows += [f"{100 * k},{100 * k * 32 // batch},0.5,1.0,3.0" for k in range(1, epochs + 1)]
        (made / f"validation-{batch}.csv").write_text("\n".join(rows) + "\n")
    return folder


def write_workload(path: Path, *rows: str) -> Path:
    """A file of jobs: NAME,TIME,APPLICATION,REPLICAS,BATCH each."""
    path.write_text("\n".join(["name,time,application,num_replicas,batch_size", *rows]) + "\n")
    return path
