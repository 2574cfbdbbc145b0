"""Image classification in PyTorch: a small CNN on generated images, on one rank or several (DDP).

It changes its batch size while it trains, as Accordion does: where the gradient hardly changes from one
epoch to the next, larger batches do no harm, so the batch size is doubled (with the learning rate) and the
scheduler is told.

    fairlead submit --steps 96 --devices 2 -- python examples/live/images_torch.py --epochs 6
    python examples/live/images_torch.py --epochs 6 --checkpoint-dir /tmp/images   (without a scheduler)
"""

import argparse
import math
from collections.abc import Iterator

import torch
from torch import nn
from torch_parts import State, device, fingerprint, join_ranks, leave_ranks, share

import fairlead

SIZE, CLASSES = 12, 4  # pixels a side


def main() -> None:
    """Train; whatever the interruptions, the weights at the end are the same."""
    options = parse()
    rank, ground_truth = join_ranks()
    torch.manual_seed(options.seed)
    x, y = images(options.images, options.dtype)
    model = cnn().to(device(), options.dtype)
    optimiser = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    state = State(model, optimiser, ground_truth)

    def epoch_of(epoch: int, batch_size: int) -> Iterator[tuple[torch.Tensor, bool]]:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        parts = order.split(batch_size)
        return ((part, i == len(parts) - 1) for i, part in enumerate(parts))

    batches = fairlead.Iterator(
        epoch_of,
        load=state.load,
        save=state.save,
        total_steps=options.epochs * math.ceil(options.images / options.batch),
        batch_size=options.batch,
        checkpoint_dir=options.checkpoint_dir,
    )
    accordion = Accordion(options, state)
    for rows, last in batches:
        mine = share(rows, rank, ground_truth)
        loss = nn.functional.cross_entropy(state.model(x[mine].to(device())), y[mine].to(device()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        accordion.see(model)
        if last and rank == 0:
            print(f"epoch {batches.epoch} batch {batches.batch_size} loss {loss:.4f}", flush=True)
        if last and accordion.may_grow(batches.batch_size):
            epochs_left = options.epochs - batches.epoch - 1
            steps = epochs_left * math.ceil(options.images / (2 * batches.batch_size))
            batches.adapt(2 * batches.batch_size, batches.step + 1 + steps)
    if rank == 0:
        print(f"done: {batches.step} steps, weights {fingerprint(model)}", flush=True)
    leave_ranks()


class Accordion:
    """Compares the gradients of an epoch with those of the one before."""

    def __init__(self, options: argparse.Namespace, state: State) -> None:
        self.options = options
        self.state = state  # its numbers are part of the checkpoint

    def see(self, model: nn.Module) -> None:
        """Add the squared norm of this step's gradient, which all ranks share."""
        norm = sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None)
        self.state.numbers["now"] = self.state.numbers.get("now", 0.0) + norm

    def may_grow(self, batch_size: int) -> bool:
        """At the end of an epoch: is it time for twice the batch? Then the learning rate is doubled too."""
        numbers = self.state.numbers
        now, before = numbers.pop("now"), numbers.get("before")
        numbers["before"] = now
        if self.options.static or before is None or 2 * batch_size > self.options.largest_batch:
            return False
        if abs(before - now) / before >= self.options.critical:
            return False
        del numbers["before"]
        for group in self.state.optimiser.param_groups:
            group["lr"] *= 2
        return True


def images(count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Bright squares, each class in its own corner, under noise."""
    label = torch.arange(count) % CLASSES
    x = torch.randn(count, 1, SIZE, SIZE)
    half = SIZE // 2
    for corner in range(CLASSES):
        top, left = divmod(corner, 2)
        x[label == corner, :, half * top : half * (top + 1), half * left : half * (left + 1)] += 0.5
    return x.to(dtype), label


def cnn() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (SIZE // 4) ** 2, CLASSES),
    )


def parse() -> argparse.Namespace:
    """The command line."""
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = about.add_argument
    add("--epochs", type=int, default=6)
    add("--images", type=int, default=512, help="in the generated data set")
    add("--batch", type=int, default=32, help="images per step, all ranks together")
    add("--largest-batch", type=int, default=128)
    add("--critical", type=float, default=0.5, help="a larger change of the gradient is critical")
    add("--static", action="store_true", help="keep the batch size")
    add("--lr", type=float, default=0.02)
    add("--dtype", type=lambda name: getattr(torch, name), default=torch.float32)
    add("--seed", type=int, default=0)
    add("--checkpoint-dir", help="where to save, unless the scheduler says")
    return about.parse_args()


if __name__ == "__main__":
    main()
