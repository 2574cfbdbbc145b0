"""The training loop that all workloads share: exact under preemption, parkable, on one rank or several."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fairlead.client.iterator import Iterator
from fairlead.client.random_state import derive_seed
from fairlead.client.rank_environment import RankEnvironment, read_rank_environment
from fairlead.client.torch import TrainingState
from fairlead.workloads.adaptation import Mode, StaticRule, make_rule
from fairlead.workloads.parts import BuildOptions
from fairlead.workloads.registry import Workload

Watch = Callable[[int, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a workload is trained. batch_size: samples per step, of all ranks together. steps: None = one pass
    over the data, unless the scheduler says. accordion_interval: passes between two looks of Accordion."""

    batch_size: int
    mode: Mode = "static"
    steps: int | None = None
    data: Path | None = None
    small: bool = False
    seed: int = 0
    accordion_interval: int = 10
    checkpoint_dir: Path | None = None
    on_stop: Literal["exit", "return"] = "exit"


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Where the training has ended. weights: a digest that is equal for equal bits only."""

    steps: int
    batch_size: int
    weights: str
    completed: bool


class TrainingRun:
    """One process of a job, from its start to its end or its preemption."""

    def __init__(self, workload: Workload, options: TrainingOptions) -> None:
        self.environment = read_rank_environment(os.environ)
        self.options = options
        self.device = _device()
        torch.manual_seed(options.seed)
        build = BuildOptions(data=options.data, small=options.small, rank=self.environment.rank)
        self.parts = workload.build(build)
        self.network = self.parts.model.to(self.device)
        self.optimizer = self.parts.make_optimizer(self.network.parameters())
        self.rule: StaticRule = make_rule(
            options.mode,
            small=options.batch_size,
            large=workload.batch_sizes[-1],
            interval=options.accordion_interval,
        )
        self.state = TrainingState(
            model=self.network,
            optimizer=self.optimizer,
            adaptation=self.rule.memory,
            keep_gradients=False,  # each step begins without any
            **self.parts.state,
        )
        self.batches = self._iterator(workload)

    def run(self, watch: Watch) -> TrainingResult:
        """Train. watch: called after each step with its number, from 1, the samples of all ranks, and the
        loss of this one, which is still on its device."""
        model = self._connect_ranks()
        torch.manual_seed(derive_seed(self.options.seed, self.environment.rank))
        for rows in self.batches:
            loss = self._step(model, rows)
            if self._is_end_of_pass():
                self._adapt()
            watch(self.batches.step + 1, rows, loss.detach())
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        return TrainingResult(
            steps=self.batches.step,
            batch_size=self.batches.batch_size,
            weights=digest(self.network),
            completed=self.batches.completed,
        )

    def _iterator(self, workload: Workload) -> Iterator[torch.Tensor]:
        options = self.options
        return self.state.iterator(
            self._order,
            total_steps=options.steps,  # None: one pass, or what the scheduler says
            batch_size=options.batch_size,
            checkpoint_dir=options.checkpoint_dir,
            on_stop=options.on_stop,
            save_ranks=workload.save_ranks,
        )

    def _order(self, epoch: int, batch_size: int) -> list[torch.Tensor]:
        """The indices of the samples of each step of a pass. The last step is filled up from the beginning,
        so that all have the same size."""
        samples = len(self.parts.samples)
        generator = torch.Generator().manual_seed(derive_seed(self.options.seed, "order", epoch))
        order = torch.randperm(samples, generator=generator)
        rows = order[torch.arange(self._steps_of_pass(batch_size) * batch_size) % samples]
        return list(rows.split(batch_size))

    def _steps_of_pass(self, batch_size: int) -> int:
        return -(-len(self.parts.samples) // batch_size)

    def _connect_ranks(self) -> nn.Module:
        ranks = self.environment.world_size
        if ranks == 1:
            return self.network
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        # Then its buckets are never rebuilt, so that sums over three ranks or more have one order whenever
        # the job was moved (docs/live.md).
        return DistributedDataParallel(self.network, find_unused_parameters=ranks > 2)

    def _step(self, model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        parts, batch_size = self.parts, len(rows)
        share = _share(rows, self.environment)
        loss = model(*(tensor.to(self.device) for tensor in parts.samples[share]))
        self.optimizer.zero_grad()
        loss.backward()
        if self.rule.needs_gradients:
            self.rule.observe(_gradient(self.network), batch_size)
        if parts.max_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), parts.max_norm)
        growth = (batch_size / self.options.batch_size) ** parts.growth_power
        for group in self.optimizer.param_groups:
            group["lr"] = parts.learning_rate * growth * parts.warmup(self.batches.step)
        self.optimizer.step()
        return loss

    def _is_end_of_pass(self) -> bool:
        return self.batches.batch_index + 1 == self._steps_of_pass(self.batches.batch_size)

    def _adapt(self) -> None:
        """Take the batch size that the rule says. The samples that are left stay as many."""
        batches = self.batches
        before, after = batches.batch_size, self.rule.next_batch_size(batches.batch_size)
        if after != before and batches.total_steps is not None:
            done = batches.step + 1
            samples_left = (batches.total_steps - done) * before
            batches.adapt(after, done + -(-samples_left // after))


def digest(model: nn.Module) -> str:
    """Return a digest of all parameters and buffers that is equal for equal bits only."""
    hashed = hashlib.sha256()
    for tensor in model.state_dict().values():
        hashed.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()[:16]


def make_deterministic() -> None:
    """Have PyTorch take kernels that give the same bits in every run, where there are such. Call it before
    the first use of a device."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)


def _gradient(model: nn.Module) -> torch.Tensor:
    """The gradient as one vector."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _device() -> torch.device:
    """This rank's own GPU of those that the job sees, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    own = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}")
    torch.cuda.set_device(own)
    return own


def _share(rows: torch.Tensor, environment: RankEnvironment) -> torch.Tensor:
    """This rank's part of the samples of a step. Where there are more ranks than samples, several ranks have
    the same one."""
    if len(rows) < environment.world_size:
        return rows[environment.rank % len(rows)][None]
    return rows.tensor_split(environment.world_size)[environment.rank]
