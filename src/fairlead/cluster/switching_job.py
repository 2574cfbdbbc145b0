"""``python -m fairlead.cluster.switching_job MEGABYTES [FILE]``: a job that trains, with so much state.

At its first step in each attempt that has loaded a checkpoint it adds a line to FILE: ATTEMPT SECONDS, those
since the last step of the attempt before it. Both have to be on one machine.
"""

import os
import sys
import time
from pathlib import Path

import fairlead

STEP_S = 0.004


class Gap:
    """The seconds between the steps of one attempt and those of the next."""

    def __init__(self, path: Path | None) -> None:
        """path: of the file that they are written to; None = nowhere."""
        self._path = path
        self._is_first = True
        self.state = {"last_s": 0.0}  # monotonic; saved with the job

    def step_begins(self) -> None:
        """Write the gap down, if this is the first step of an attempt that goes on from another one."""
        if self._is_first and self._path is not None and self.state["last_s"]:
            seconds = time.monotonic() - self.state["last_s"]
            with self._path.open("a") as file:
                file.write(f"{os.environ['FAIRLEAD_ATTEMPT']} {seconds}\n")
        self._is_first = False

    def step_ends(self) -> None:
        """Note the time."""
        self.state["last_s"] = time.monotonic()


def main() -> None:
    """Train until told to stop."""
    size = int(sys.argv[1]) * 1_000_000
    gap = Gap(Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    try:
        import torch
    except ModuleNotFoundError:
        _train_bytes(size, gap)
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
    state = TrainingState(optimizer=optimizer, counter=counter, gap=gap.state)
    with state.lease() as lease:
        while lease.next():
            gap.step_begins()
            time.sleep(STEP_S)
            with torch.no_grad():
                weights[counter["steps"] % len(weights)] += 1
            counter["steps"] += 1
            gap.step_ends()


def _train_bytes(size: int, gap: Gap) -> None:
    content = bytearray(size)

    def save(path: Path) -> None:
        path.mkdir()
        (path / "content").write_bytes(content)
        (path / "last_s").write_text(str(gap.state["last_s"]))

    def load(path: Path) -> None:
        content[:] = (path / "content").read_bytes()
        gap.state["last_s"] = float((path / "last_s").read_text())

    with fairlead.Lease(load=load, save=save) as lease:
        while lease.next():
            gap.step_begins()
            time.sleep(STEP_S)
            content[lease.step % size] ^= 1
            gap.step_ends()


if __name__ == "__main__":
    main()
