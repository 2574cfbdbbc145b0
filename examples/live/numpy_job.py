"""Logistic regression on generated data, in NumPy: a job that starts at once and needs no accelerator.

It behaves as if it ran on real devices: a step takes as long as ``--step-ms`` says for the accelerator type
that the scheduler has put it on. Its checkpoint holds a digest of every state that it went through, so that
two runs with the same digest have done exactly the same steps in the same order.

    fairlead submit --steps 1000 -- python examples/live/numpy_job.py --step-ms v100=10,k80=30
    python examples/live/numpy_job.py --steps 200 --checkpoint-dir /tmp/job   (without a scheduler)
"""

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

import numpy as np

import fairlead

FEATURES, SAMPLES, RATE = 20, 2_000, 0.1


def main() -> None:
    """Train until the steps are done, or the scheduler wants the devices for another job."""
    options = parse()
    job = Job(options.seed, options.save_ms / 1e3)
    step_s = step_seconds(options.step_ms)
    batches = fairlead.Iterator(
        job.batches,
        load=job.load,
        save=job.save,
        total_steps=options.steps,
        batch_size=options.batch,
        checkpoint_dir=options.checkpoint_dir,
        checkpoint_s=options.checkpoint_s,
    )
    began = time.monotonic()
    start = None
    for rows in batches:
        start = batches.step if start is None else start
        job.train(rows)
        if batches.step + 1 == options.crash_at and start < options.crash_at - 1:
            os.abort() if options.crash_hard else sys.exit(1)
        began = rest(began, step_s)
        if options.log_every and (batches.step + 1) % options.log_every == 0:
            print(f"step {batches.step + 1} loss {job.loss():.4f}", flush=True)
    print(
        f"done: {batches.step} steps, digest {job.digest.hex()}, loss {job.loss():.4f}", flush=True
    )


class Job:
    """Data, weights, and the digest of all weights so far."""

    def __init__(self, seed: int, save_s: float) -> None:
        random = np.random.default_rng(seed)
        self.seed = seed
        self.save_s = save_s
        self.x = random.normal(size=(SAMPLES, FEATURES))
        self.y = (self.x @ random.normal(size=FEATURES) > 0).astype(float)
        self.weights = np.zeros(FEATURES)
        self.digest = b""

    def batches(self, epoch: int, batch_size: int) -> list[np.ndarray]:
        """Rows of each batch of an epoch; their order depends on nothing but seed and epoch."""
        order = np.random.default_rng((self.seed, epoch)).permutation(SAMPLES)
        return [order[i : i + batch_size] for i in range(0, SAMPLES, batch_size)]

    def train(self, rows: np.ndarray) -> None:
        """One step of gradient descent."""
        x, y = self.x[rows], self.y[rows]
        error = 1 / (1 + np.exp(-x @ self.weights)) - y
        self.weights -= RATE * (x.T @ error) / len(rows)
        self.digest = hashlib.sha256(self.digest + self.weights.tobytes()).digest()

    def loss(self) -> float:
        """Mean over all data, in nats."""
        margin = (self.x @ self.weights) * (2 * self.y - 1)
        return float(np.logaddexp(0, -margin).mean())

    def save(self, path: Path) -> None:
        """Write the state to a file; a large one takes its time."""
        time.sleep(self.save_s)
        with open(path, "wb") as file:
            np.savez(file, weights=self.weights, digest=np.frombuffer(self.digest, np.uint8))

    def load(self, path: Path) -> None:
        """Read it."""
        with np.load(path) as state:
            self.weights = state["weights"]
            self.digest = state["digest"].tobytes()


def step_seconds(text: str) -> float:
    """``v100=10,k80=30`` (ms) for the accelerator type at hand; a number alone is for all types."""
    by_type = dict(part.split("=") for part in text.split(",") if "=" in part)
    mine = os.environ.get("FAIRLEAD_ACCELERATOR", "")
    if not by_type:
        return float(text) / 1e3
    return float(by_type.get(mine, next(iter(by_type.values())))) / 1e3


def rest(began: float, step_s: float) -> float:
    """Sleep until the step has taken its time; when the next one begins."""
    until = began + step_s
    now = time.monotonic()
    if now < until:
        time.sleep(until - now)
        return until
    return now


def parse() -> argparse.Namespace:
    """The command line."""
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = about.add_argument
    add("--steps", type=int, default=1000, help="of the whole job, unless the scheduler says")
    add("--batch", type=int, default=50, help="samples per step")
    add("--step-ms", default="10", help="how long a step takes: 10, or v100=10,k80=30")
    add("--save-ms", type=float, default=0.0, help="how long saving takes, beside the writing")
    add("--seed", type=int, default=0)
    add("--checkpoint-dir", help="where to save, unless the scheduler says")
    add("--checkpoint-s", type=float, default=60.0, help="save this often without a scheduler")
    add("--crash-at", type=int, help="fail at this step, in a start that began before it")
    add("--crash-hard", action="store_true", help="by a signal instead of exit code 1")
    add("--log-every", type=int, default=100, help="steps between two lines of output")
    return about.parse_args()


if __name__ == "__main__":
    main()
