"""``python -m fairlead.cluster.switching_job MEGABYTES``: a job that trains a little, with so much state."""

import sys
import time
from pathlib import Path

import fairlead

STEP_S = 0.004


def main() -> None:
    """Train until told to stop."""
    size = int(sys.argv[1]) * 1_000_000
    try:
        import torch
    except ModuleNotFoundError:
        _train_bytes(size)
        return
    from fairlead.client.torch import TrainingState

    torch.set_num_threads(1)
    # Weights, and the two moments of Adam: three times as many numbers of four bytes.
    weights = torch.nn.Parameter(torch.zeros(size // 12))
    optimizer = torch.optim.Adam([weights])
    weights.grad = torch.ones_like(weights)
    optimizer.step()
    weights.grad = None
    counter = {"steps": 0}
    state = TrainingState(optimizer=optimizer, counter=counter)
    with state.lease() as lease:
        while lease.next():
            time.sleep(STEP_S)
            with torch.no_grad():
                weights[counter["steps"] % len(weights)] += 1
            counter["steps"] += 1


def _train_bytes(size: int) -> None:
    content = bytearray(size)

    def save(path: Path) -> None:
        path.write_bytes(content)

    def load(path: Path) -> None:
        content[:] = path.read_bytes()

    with fairlead.Lease(load=load, save=save) as lease:
        while lease.next():
            time.sleep(STEP_S)
            content[lease.step % size] ^= 1


if __name__ == "__main__":
    main()
