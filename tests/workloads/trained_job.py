"""A workload that is trained in this process, by as many starts as are asked for."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.workloads.registry import WORKLOADS

STEPS, NEVER = 30, -1


@dataclass
class TrainedJob:
    """What all starts of a job have done."""

    rows: list[list[int]] = field(default_factory=list)  # samples of each step
    losses: list[float] = field(default_factory=list)
    weights: str = ""
    steps: int = 0

    @property
    def batch_sizes(self) -> list[int]:
        return sorted({len(rows) for rows in self.rows})


def train(
    name: str, folder: Path, stops: Sequence[int] = (), parks: bool = False, **options: Any
) -> TrainedJob:
    """Run a job to its end. stops: steps after which it gets SIGTERM; new objects go on from there."""
    job = TrainedJob()
    for stop in [*stops, NEVER]:
        start(job, name, folder, stop, parks, **options)
    return job


def start(
    job: TrainedJob, name: str, folder: Path, stop: int, parks: bool = False, **options: Any
) -> None:
    """One start of a job, to this step or its end."""
    import torch

    from fairlead.workloads.training import TrainingOptions, TrainingRun

    torch.set_num_threads(1)
    workload = WORKLOADS[name]
    chosen = {"batch_size": workload.batch_sizes[0], "steps": STEPS, **options}
    run = TrainingRun(
        workload,
        TrainingOptions(small=True, on_stop="return", checkpoint_dir=folder, **chosen),
    )

    def watch(step: int, rows: Any, loss: Any) -> None:
        job.rows.append(rows.tolist())
        job.losses.append(float(loss))
        if parks:
            run.state.park()
            run.state.resume()
        if step == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    result = run.run(watch)
    assert result.completed == (stop == NEVER)
    job.weights, job.steps = result.weights, result.steps
