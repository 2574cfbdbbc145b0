"""A job that is started with one number of ranks after another, stopped or killed in between."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import data

from fairlead.client.torch import ElasticLoader, TrainingState
from fairlead.errors import ConfigError
from tests.ranks import run_ranks

SAMPLES, BATCH, EPOCHS = 203, 10, 2  # 21 batches a pass; the last has 3 samples
STEPS = 21 * EPOCHS
PREPARED = (
    "torch",
    "torch._dynamo",
    "fairlead.client.torch",
)  # what an optimizer imports takes long


class Start(NamedTuple):
    """One start of the job. end: of the ranks; "killed": one is, behind a checkpoint."""

    ranks: int
    end: str = "completed"


class NoisyPoints(data.Dataset[Any]):  # type: ignore[misc]
    """Points that are shifted at random whenever they are loaded."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.points = torch.randn(SAMPLES, 8, generator=generator, dtype=torch.float64)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        point = self.points[index] + 0.1 * torch.rand(8, dtype=torch.float64)
        return index, point, point.sum()[None]


class Job(NamedTuple):
    """What the script has to do."""

    folder: Path
    dropout: float = 0.0
    max_local_batch: int | None = None


def train(rank: int, job: Job, start: int, end: str) -> None:
    """One rank of one start."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(job.dropout), nn.Linear(16, 1))
    model = DistributedDataParallel(layers.double(), find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    torch.manual_seed(10 + rank)
    state = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler)
    loader = ElasticLoader(
        NoisyPoints(),
        batch_size=BATCH,
        shuffle=True,
        seed=3,
        max_local_batch=job.max_local_batch,
    )
    checkpoints = job.folder / "checkpoints"
    batches = state.iterator(loader, epochs=EPOCHS, checkpoint_dir=checkpoints, on_stop="return")
    first = -1
    with (job.folder / f"start-{start}-{rank}").open("w") as log:
        for _ in batches.epochs():
            for batch in batches:
                first = batches.step if first < 0 else first
                optimizer.zero_grad()
                seen, loss_of_rank = [], torch.zeros(())
                for (index, x, y), weight in batch.micro_batches(model):
                    loss: Any = nn.functional.mse_loss(model(x), y) * weight
                    loss.backward()
                    loss_of_rank = loss_of_rank + loss.detach()
                    if weight:
                        seen += [
                            [int(i), *map(float.hex, p.tolist())]
                            for i, p in zip(index, x, strict=True)
                        ]
                optimizer.step()
                assert [one[0] for one in seen] == batch.samples
                torch.distributed.all_reduce(loss_of_rank)
                loss_of_batch = float(loss_of_rank) / loader.world_size
                drawn = torch.rand(()).item()
                print(json.dumps([batches.step, seen, loss_of_batch, drawn]), file=log, flush=True)
                interrupt(batches, checkpoints, first, end)
            scheduler.step()
    if rank == 0 and batches.completed:
        torch.save(layers.state_dict(), job.folder / "weights")
    torch.distributed.destroy_process_group()


def interrupt(batches: Any, checkpoints: Path, first: int, end: str) -> None:
    """Have a checkpoint saved after some steps. Stop, or die where that leaves work that is not saved."""
    last = batches.rank == batches.world_size - 1
    if end == "stopped" and last and batches.step == first + 5:
        os.kill(os.getpid(), signal.SIGTERM)
    if end != "killed":
        return
    if batches.step == first + 2:
        batches.checkpoint()
    saved = max((int(path.name[5:]) for path in checkpoints.glob("step-*")), default=0)
    if last and saved > first and batches.step >= saved + 2:
        os.kill(os.getpid(), signal.SIGKILL)


class Ran(NamedTuple):
    """What has become of the job. By step: its samples, its loss, and what each rank drew; of the last start
    that did it."""

    samples: dict[int, list[list[Any]]]
    losses: dict[int, float]
    drawn: dict[int, list[float]]
    repeated: int  # steps that were done more than once
    weights: list[Any]


def run(job: Job, starts: Sequence[Start]) -> Ran:
    """Start it again and again. The last one of them has to come to its end."""
    job.folder.mkdir()
    ran = Ran({}, {}, {}, 0, [])
    done = 0
    for number, start in enumerate(starts):
        codes = run_ranks(start.ranks, train, job, number, start.end, prepared=PREPARED)
        if start.end == "killed":
            assert codes[-1] == -signal.SIGKILL
        else:
            assert codes == [0] * start.ranks
        assert (job.folder / "weights").exists() == (start.end == "completed")
        done += _read(job.folder, number, start.ranks, ran)
    weights = torch.load(job.folder / "weights", weights_only=True)
    return ran._replace(repeated=done - len(ran.samples), weights=list(weights.values()))


def _read(folder: Path, start: int, ranks: int, ran: Ran) -> int:
    """Take in what the ranks of a start have logged. Returns its steps."""
    logs = [(folder / f"start-{start}-{rank}").read_text().splitlines() for rank in range(ranks)]
    steps = min(map(len, logs))  # the others were in the middle of a step
    for lines in zip(*(log[:steps] for log in logs), strict=True):
        step, _, loss, _ = json.loads(lines[0])
        ran.samples[step] = [one for line in lines for one in json.loads(line)[1]]
        ran.losses[step] = loss
        ran.drawn[step] = [json.loads(line)[3] for line in lines]
    return steps


def draw(rank: int, folder: Path, start: int, until: int) -> None:
    """One rank of one start of a job without a loader; until: the step during which it is told to stop."""
    torch.manual_seed(7)
    state = TrainingState(model=nn.Linear(1, 1))
    lease = state.lease(total_steps=40, checkpoint_dir=folder / "checkpoints", on_stop="return")
    with lease, (folder / f"draws-{start}-{rank}").open("w") as log:
        while lease.next():
            print(torch.rand(()).item(), file=log)
            if rank == 0 and lease.step == until:
                os.kill(os.getpid(), signal.SIGTERM)
    assert lease.completed == (until < 0)


def share_by_sampler(rank: int, folder: Path, until: int) -> None:
    """One rank of one start of a script that is not elastic: a DistributedSampler for each rank. It writes
    down why it cannot go on."""
    points = data.TensorDataset(torch.arange(48.0))
    world_size = int(os.environ["WORLD_SIZE"])
    sampler: Any = data.DistributedSampler(points, world_size, rank)
    loader = data.DataLoader(points, batch_size=6 // world_size, sampler=sampler)
    state = TrainingState(model=nn.Linear(1, 1))
    batches = state.iterator(
        loader, epochs=10, checkpoint_dir=folder / "checkpoints", on_stop="return"
    )
    try:
        for _ in batches.epochs():
            for _ in batches:
                if rank == 0 and batches.step == until:
                    os.kill(os.getpid(), signal.SIGTERM)
    except ConfigError as problem:
        (folder / f"refused-{rank}").write_text(str(problem))
