"""The time that a prepared process saves at the start of a PyTorch job.

python benchmarks/prepared_start.py

A script that imports torch and makes one step of an optimizer is started in turns by exec, and forked from a
process that has imported what was found in the script. Seconds from the order until that step is done.
"""

import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from command_line import parser_of, run

from fairlead.cluster.agent.environment import base_environment
from fairlead.cluster.agent.proc import TOKEN
from fairlead.cluster.agent.script_imports import find_imports
from fairlead.cluster.agent.zygote import Fork, Zygote

TURNS = 7
LIMIT_S = 120.0
SCRIPT = """
import time
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(1, 8)).sum().backward()
optimizer.step()
print(time.monotonic(), flush=True)
"""


def told(output: Path) -> float:
    """The time that the script wrote as its step was done."""
    until = time.monotonic() + LIMIT_S
    while not (text := output.read_text()).endswith("\n"):
        if time.monotonic() > until:
            raise TimeoutError(f"nothing was said within {LIMIT_S:g} s")
        time.sleep(0.001)
    return float(text)


def by_exec(script: Path, output: Path) -> float:
    """Seconds."""
    began = time.monotonic()
    with output.open("w") as log:
        subprocess.run(
            [sys.executable, str(script)], env=base_environment(), stdout=log, check=True
        )
    return told(output) - began


def by_fork(zygote: Zygote, number: int, script: Path, output: Path) -> float:
    """Seconds."""
    request = Fork(
        job=number,
        attempt=1,
        rank=0,
        argv=(sys.executable, str(script)),
        env={**base_environment(), TOKEN: secrets.token_hex(16)},
        cwd="/",
    )
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        began = time.monotonic()
        if not zygote.fork(request, [log]):
            raise RuntimeError("the prepared process cannot be reached")
    finally:
        os.close(log)
    return told(output) - began


def wait_until_ready(zygote: Zygote) -> None:
    """Until it has imported everything."""
    until = time.monotonic() + LIMIT_S
    while not zygote.ready:
        if zygote.answers() is None or time.monotonic() > until:
            raise RuntimeError("the prepared process is not ready")
        time.sleep(0.01)


def main() -> None:
    """Medians and ranges of both."""
    parser_of(__doc__).parse_args()
    modules = ",".join(find_imports(SCRIPT.encode()))
    zygote = Zygote(modules, for_script=True)
    with tempfile.TemporaryDirectory() as folder:
        script, output = Path(folder, "job.py"), Path(folder, "output")
        script.write_text(SCRIPT)
        zygote.start(base_environment())
        try:
            wait_until_ready(zygote)
            pages = int(Path(f"/proc/{zygote.pid}/statm").read_text().split()[1])
            print(f"prepared: {modules}, {pages * os.sysconf('SC_PAGE_SIZE') >> 20} MiB")
            pairs = [
                (by_exec(script, output), by_fork(zygote, turn, script, output))
                for turn in range(TURNS)
            ]
        finally:
            zygote.stop()
    for name, figures in zip(("exec'd", "forked"), zip(*pairs, strict=True), strict=True):
        print(
            f"{name}: {statistics.median(figures):.3f} s "
            f"({min(figures):.3f} to {max(figures):.3f}, {TURNS} in turns)"
        )


if __name__ == "__main__":
    run(main)
