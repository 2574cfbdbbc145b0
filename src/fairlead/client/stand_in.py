"""A job without a model, in place of a real one: each step takes as long as a table of rates says.

    python -m fairlead.client.stand_in --step-s v100=0.05,k80=0.2

The devices may be simulated: the accelerator type is that of the node, by what the scheduler says. Its
checkpoint is empty: all that it has to know is the step, which the iterator keeps.
"""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from fairlead.client.iterator import Iterator

EPOCH = 1_000  # steps: it needs no epochs, but the iterator has them


def main() -> None:
    """Take the steps of the job, or go on where it was stopped."""
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    about.add_argument("--step-s", required=True, help="seconds of a step, as v100=0.05,k80=0.2")
    step_s = step_seconds(about.parse_args().step_s, os.environ.get("FAIRLEAD_ACCELERATOR", ""))
    due = time.monotonic()
    for _ in Iterator(_batches, load=_load, save=_save):
        now = time.monotonic()
        due = (due if now - due < step_s else now) + step_s  # it may have been parked meanwhile
        time.sleep(max(due - time.monotonic(), 0.0))


def step_seconds(text: str, accelerator: str) -> float:
    """Return the seconds of a step on this accelerator type. text: as ``v100=0.05,k80=0.2``. SystemExit: the
    type is not there, or its number is none."""
    for part in text.split(","):
        name, _, seconds = part.partition("=")
        if name == accelerator:
            try:
                return float(seconds)
            except ValueError:
                raise SystemExit(f"--step-s: {part!r}: expected TYPE=SECONDS") from None
    raise SystemExit(f"--step-s: says nothing of {accelerator or 'no accelerator type'!r}: {text}")


def _batches(_epoch: int, _batch_size: int) -> Sequence[int]:
    return range(EPOCH)


def _load(path: Path) -> None:
    path.read_bytes()


def _save(path: Path) -> None:
    path.write_bytes(b"")


if __name__ == "__main__":
    main()
