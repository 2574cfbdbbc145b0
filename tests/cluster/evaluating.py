"""A job of a few quick steps, and an evaluation that lasts until it may end: ``evaluating.py FOLDER``."""

import os
import sys
import time
from pathlib import Path

from fairlead import Lease

here = Path(sys.argv[1])
rank, attempt = os.environ["RANK"], os.environ["FAIRLEAD_ATTEMPT"]


def save(path: Path) -> None:
    path.write_text(attempt)


lease = Lease(
    load=lambda _: None,
    save=save,
    on_stop=os.environ.get("ON_STOP", "exit"),  # type: ignore[arg-type]
)
with lease:
    while lease.next():
        if rank == "0":
            with (here / "steps").open("a") as file:
                file.write(f"{lease.step + 1}\n")
        time.sleep(0.01)
if lease.preempted:
    (here / "returned").write_text(f"finished: {lease.finished}")
    sys.exit(0)
partial = here / f".evaluates-{attempt}-{rank}"
partial.write_text(str(os.getpid()))
partial.rename(here / f"evaluates-{attempt}-{rank}")
while not (here / f"go-{rank}").exists():
    time.sleep(0.02)
if (here / "fail").exists():
    (here / "fail").unlink()
    sys.exit("the evaluation failed")
(here / f"final-{rank}.txt").touch()
