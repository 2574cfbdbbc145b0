"""Record learning curves: small convolutional networks on the digits of scikit-learn, in 12 dimensions.

python examples/search/record_curves.py curves.csv --configurations 480

Each row of the table is a configuration drawn at random: its 12 parameters, and its accuracy on images that
it was not trained on, after every 3 % of its mini-batches. Needs torch and scikit-learn; on one core a
configuration takes about a second. The table that Fairlead brings was recorded with this script's defaults.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

MINI_BATCHES = 1000  # of every configuration
EVERY = 0.03  # of the mini-batches between two points of a curve
TRAINED_ON = 300  # images; accuracy is that on all others
ACTIVATIONS = {"elu": nn.ELU, "relu": nn.ReLU, "tanh": nn.Tanh}


def draw(rng: np.random.Generator) -> dict[str, float | int | str]:
    """A point of the 12-dimensional space, independently and uniformly in each dimension or its logarithm."""

    def log_uniform(low: float, high: float) -> float:
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.4g}")

    return {
        "learning_rate": log_uniform(1e-4, 1.0),
        "momentum": round(rng.uniform(0.0, 0.99), 3),
        "batch_size": int(2 ** rng.integers(2, 7)),
        "channels_1": int(rng.integers(2, 17)),
        "channels_2": int(rng.integers(2, 17)),
        "kernel": int(rng.choice([1, 3, 5])),
        "hidden": int(2 ** rng.integers(2, 8)),
        "dropout": round(rng.uniform(0.0, 0.8), 3),
        "weight_decay": log_uniform(1e-6, 0.1),
        "initial_scale": log_uniform(0.4, 2.5),
        "final_rate": log_uniform(1e-3, 1.0),
        "activation": str(rng.choice(sorted(ACTIVATIONS))),
    }


def network(of: dict[str, float | int | str]) -> nn.Module:
    """A network with two convolutions and two dense layers."""
    channels = int(of["channels_1"]), int(of["channels_2"])
    kernel, activation = int(of["kernel"]), ACTIVATIONS[str(of["activation"])]
    made = nn.Sequential(
        nn.Conv2d(1, channels[0], kernel, padding=kernel // 2),
        activation(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels[0], channels[1], kernel, padding=kernel // 2),
        activation(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * channels[1], int(of["hidden"])),
        activation(),
        nn.Dropout(float(of["dropout"])),
        nn.Linear(int(of["hidden"]), 10),
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter *= float(of["initial_scale"])
    return made


def curve(
    of: dict[str, float | int | str], images: torch.Tensor, labels: torch.Tensor, seed: int
) -> Iterator[float]:
    """The accuracy after every 3 % of the mini-batches."""
    torch.manual_seed(seed)
    model = network(of)
    optimiser = torch.optim.SGD(
        model.parameters(),
        lr=float(of["learning_rate"]),
        momentum=float(of["momentum"]),
        weight_decay=float(of["weight_decay"]),
    )
    per_step = float(of["final_rate"]) ** (1 / MINI_BATCHES)
    rate = torch.optim.lr_scheduler.ExponentialLR(optimiser, per_step)
    due = EVERY
    for step in range(1, MINI_BATCHES + 1):
        chosen = torch.randint(TRAINED_ON, (int(of["batch_size"]),))
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        rate.step()
        if step >= round(due * MINI_BATCHES):
            yield _accuracy(model, images[TRAINED_ON:], labels[TRAINED_ON:])
            due += EVERY


def _accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).float().mean()
    model.train()
    return float(right)


def main() -> None:
    """Record a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path, help="the file to write")
    parser.add_argument("--configurations", type=int, default=480)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    digits, rng = load_digits(), np.random.default_rng(given.seed)
    order = rng.permutation(len(digits.target))
    images = torch.tensor(digits.images[order, None] / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target[order])
    with given.table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number in range(given.configurations):
            of = draw(rng)
            points = [f"{one:.3f}" for one in curve(of, images, labels, number)]
            if not number:
                percent = [f"{round(100 * EVERY * (k + 1))}%" for k in range(len(points))]
                writer.writerow(["configuration", *of, *percent])
            writer.writerow([number, *of.values(), *points])


if __name__ == "__main__":
    main()
