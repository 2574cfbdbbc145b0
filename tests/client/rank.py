"""One rank of a job: python rank.py SAVE_RANKS STEP_S [STEPS]. Prints its steps and digest at its end."""

import hashlib
import sys
import time
from pathlib import Path

from fairlead import Lease


def main(save_ranks: str, step_s: str, steps: str = "0") -> None:
    digest = ""

    def save(path: Path) -> None:
        path.mkdir()
        (path / "state").write_text(digest)

    def load(path: Path) -> None:
        nonlocal digest
        digest = (path / "state").read_text()

    lease = Lease(
        load=load,
        save=save,
        total_steps=int(steps) or None,
        save_ranks=save_ranks,  # type: ignore[arg-type]
        on_stop="return",
    )
    with lease:
        own = lease.rank if save_ranks == "all" else 0
        while lease.next():
            digest = hashlib.sha256(f"{digest}{lease.step}/{own}".encode()).hexdigest()
            time.sleep(float(step_s))
    print(lease.step, lease.reason or "completed", digest)


if __name__ == "__main__":
    main(*sys.argv[1:])
