"""A job that knows nothing of Fairlead: it counts to the end, saves on its own and on SIGTERM.

Anything that does this much can be scheduled; its progress is judged by the time it has had.

    fairlead submit --unmanaged --steps 60 -- python examples/live/unmanaged_job.py --seconds 60
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

TICK_S = 0.05


def main() -> None:
    """Work for so many seconds in all, over as many starts as it takes."""
    options = parse()
    folder = Path(os.environ.get("FAIRLEAD_CHECKPOINT_DIR", "."))
    path = Path(options.state) if options.state else folder / "unmanaged.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    done_s = json.loads(path.read_text())["done_s"] if path.exists() else 0.0
    print(f"goes on at {done_s:.2f} s of {options.seconds:.2f} s", flush=True)
    stopped = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    saved_at = time.monotonic()
    while done_s < options.seconds and not stopped:
        began = time.monotonic()
        time.sleep(TICK_S)
        done_s += time.monotonic() - began
        if time.monotonic() > saved_at + options.save_every:
            save(path, done_s)
            saved_at = time.monotonic()
    save(path, done_s)
    if done_s < options.seconds:
        print(f"stopped at {done_s:.2f} s", flush=True)
        # Exit code 0 is for work that is done; 143 is what a shell makes of SIGTERM.
        sys.exit(143)
    print(f"done: {done_s:.2f} s", flush=True)


def save(path: Path, done_s: float) -> None:
    """Whole or not at all."""
    temporary = path.with_suffix(".partial")
    with open(temporary, "w") as file:
        json.dump({"done_s": done_s}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def parse() -> argparse.Namespace:
    """The command line."""
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = about.add_argument
    add("--seconds", type=float, default=60.0, help="of work")
    add("--save-every", type=float, default=5.0, help="seconds between two checkpoints")
    add("--state", help="file of the checkpoint; default: in the checkpoint folder of the job")
    return about.parse_args()


if __name__ == "__main__":
    main()
