"""A training job in NumPy: logistic regression, under the scheduler.

The devices are simulated, so a step takes as long as ``--step-ms`` says for the accelerator type at hand. All
that the scheduler needs of a job is in ``main``: ``fairlead.Iterator`` around the batches, ``load`` and
``save``.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

import fairlead
from fairlead.model.option_text import parse_options

FEATURES, SAMPLES, BATCH, RATE = 20, 2_000, 50, 0.1


def main() -> None:
    """Train until the steps are done, or the scheduler wants the devices for another job."""
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    about.add_argument("--step-ms", default="10", help="as v100=10,k80=30")
    about.add_argument("--seed", type=int, default=0)
    options = about.parse_args()
    model, step_s = ToyModel(options.seed), step_seconds(options.step_ms)
    due = time.monotonic()
    for rows in fairlead.Iterator(model.batches, load=model.load, save=model.save):
        model.train(rows)
        due = max(due + step_s, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0.0)
    print(f"done: loss {model.loss():.4f}", flush=True)


class ToyModel:
    """Data made from a seed, and the weights."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.seed = seed
        self.x = random.normal(size=(SAMPLES, FEATURES))
        self.y = (self.x @ random.normal(size=FEATURES) > 0).astype(float)
        self.weights = np.zeros(FEATURES)

    def batches(self, epoch: int, _: int) -> list[np.ndarray]:
        """Rows of each batch of an epoch; their order depends on nothing but seed and epoch."""
        order = np.random.default_rng((self.seed, epoch)).permutation(SAMPLES)
        return [order[i : i + BATCH] for i in range(0, SAMPLES, BATCH)]

    def train(self, rows: np.ndarray) -> None:
        """One step of gradient descent."""
        x, y = self.x[rows], self.y[rows]
        error = 1 / (1 + np.exp(-x @ self.weights)) - y
        self.weights -= RATE * (x.T @ error) / len(rows)

    def loss(self) -> float:
        """Mean over all data, in nats."""
        margin = (self.x @ self.weights) * (2 * self.y - 1)
        return float(np.logaddexp(0, -margin).mean())

    def save(self, path: Path) -> None:
        """Write the state to a file."""
        with path.open("wb") as file:
            np.save(file, self.weights)

    def load(self, path: Path) -> None:
        """Read it."""
        with path.open("rb") as file:
            self.weights = np.load(file)


def step_seconds(text: str) -> float:
    """Return the seconds of a step on the accelerator type of this process; a single number holds for all
    types."""
    by_type = parse_options(text, "--step-ms", flags=True) if "=" in text else {}
    mine = os.environ.get("FAIRLEAD_ACCELERATOR", "")
    return float(by_type.get(mine, text if not by_type else next(iter(by_type.values())))) / 1e3


if __name__ == "__main__":
    main()
