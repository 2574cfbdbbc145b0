"""Common parts of both PyTorch examples: a job's ranks, and a checkpoint of a model and its optimiser."""

import hashlib
import os
from pathlib import Path

import torch
from torch import nn


def join_ranks() -> tuple[int, int]:
    """(rank, world size); with several ranks they are connected."""
    rank, ground_truth = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ground_truth > 1:
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return rank, ground_truth


def leave_ranks() -> None:
    """The other way round."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def device() -> torch.device:
    """This rank's own GPU of those that the scheduler has made visible to the job, or the CPU."""
    own = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    return torch.device(own if torch.cuda.is_available() else "cpu")


class State:
    """A model, its optimiser and a few numbers, as a checkpoint."""

    def __init__(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, ground_truth: int
    ) -> None:
        self.bare = model
        self.model = nn.parallel.DistributedDataParallel(model) if ground_truth > 1 else model
        self.optimiser = optimiser
        self.numbers: dict[str, float] = {}

    def save(self, path: Path) -> None:
        """To a file. The same for one rank and for several."""
        state = {
            "model": self.bare.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "numbers": self.numbers,
        }
        torch.save(state, path)

    def load(self, path: Path) -> None:
        """From a file."""
        state = torch.load(path, weights_only=True, map_location=device())
        self.bare.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.numbers = state["numbers"]


def share(rows: torch.Tensor, rank: int, ground_truth: int) -> torch.Tensor:
    """This rank's part of a batch."""
    return rows.tensor_split(ground_truth)[rank]


def fingerprint(model: nn.Module) -> str:
    """Norm of all weights, and a digest that is the same for the same bits only."""
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).double().cpu()
    return (
        f"{weights.norm().item():.12g} {hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]}"
    )
