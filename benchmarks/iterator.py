"""The cost of the training side: per step, and from a preemption to running again.

python benchmarks/iterator.py

Per step: a loop over an iterator with an agent that renews its lease, against the bare loop, in turns. First
with steps that do nothing (so that microseconds show), then with steps of 10 ms (so that what happens between
steps is that of a real job). Preemption: the NumPy example, stopped and started again by its agent.
"""

import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from command_line import parser_of, run

import fairlead
from fairlead.client.stub_agent import StubAgent
from fairlead.cluster.measure import measure

EMPTY_STEPS, TURNS = 200_000, 7
STEP_S, REAL_STEPS, REAL_TURNS = 0.010, 200, 7
NUMPY_JOB = Path(__file__).parents[1] / "examples" / "live" / "numpy_job.py"


def busy(seconds: float) -> None:
    """A step: computes for so long by the clock of the process, which no other process can disturb."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def bare(steps: int, step_s: float) -> float:
    """CPU seconds of the bare loop."""
    began = time.thread_time()
    for _ in range(steps):
        if step_s:
            busy(step_s)
    return time.thread_time() - began


def wrapped(steps: int, step_s: float) -> float:
    """CPU seconds of the same loop over an iterator, from its first step to its last."""
    loop = fairlead.Iterator(
        range(steps), load=lambda _: None, save=Path.touch, total_steps=steps + 1, on_stop="return"
    )
    began = 0.0
    for _ in loop:
        began = began or time.thread_time()
        if step_s:
            busy(step_s)
        if loop.step == steps - 1:
            spent = time.thread_time() - began
    return spent


def compare(steps: int, step_s: float) -> float:
    """Seconds per step beyond the bare loop."""
    without = bare(steps, step_s)
    return (wrapped(steps, step_s) - without) / steps


def with_agent(work: Callable[[Path], None]) -> None:
    """Run this with an agent at hand that renews a lease of 2 s."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        host = StubAgent(folder / "agent.sock", lease_s=2.0, checkpoint_s=1e9)
        host.open()
        serving = os.fork()  # a process of its own, as a real agent is
        if serving == 0:
            while True:
                host.poll(1.0)
        os.environ.update(host.environment(checkpoint_dir=str(folder / "checkpoints")))
        try:
            work(folder)
        finally:
            os.kill(serving, signal.SIGKILL)
            os.waitpid(serving, 0)
            host.close()


def per_step(folder: Path) -> None:
    """Both comparisons, each turn in a process of its own: one has one loop."""
    forked = multiprocessing.get_context("fork")
    for steps, step_s, turns in ((EMPTY_STEPS, 0.0, TURNS), (REAL_STEPS, STEP_S, REAL_TURNS)):
        extra = []
        for turn in range(turns):
            os.environ["FAIRLEAD_CHECKPOINT_DIR"] = str(folder / f"{steps}-{turn}")
            with forked.Pool(1) as pool:
                extra.append(pool.apply(compare, (steps, step_s)))
        middle, spread = statistics.median(extra), statistics.stdev(extra)
        part = f", {middle / step_s:.3%} of the step" if step_s else ""
        print(
            f"steps of {step_s * 1e3:4.0f} ms: {middle * 1e6:7.2f} us per step more than the bare loop "
            f"(+- {spread * 1e6:.2f} over {turns} turns){part}"
        )


def preemption() -> None:
    """Where the time goes from the order to stop until the job is at full speed again."""
    command = [sys.executable, str(NUMPY_JOB), "--step-ms", "10"]
    runs = [measure(command, "v100", 1, seconds=1.0) for _ in range(5)]
    print("preempted and started again (NumPy job, steps of 10 ms; medians of 5, ms):")
    for name in ("save_s", "stop_s", "start_s", "load_s", "warm_s", "restart_s"):
        middle = statistics.median(getattr(run, name) for run in runs)
        print(f"  {name.removesuffix('_s'):8}{middle * 1e3:8.1f}")


def main() -> None:
    """All figures."""
    parser_of(__doc__).parse_args()
    with_agent(per_step)
    for name in [*os.environ]:
        if name.startswith("FAIRLEAD_"):
            del os.environ[name]
    preemption()


if __name__ == "__main__":
    run(main)
