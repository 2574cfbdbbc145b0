"""An array on a real cluster whose server is killed again and again: is any task lost, or run twice?

    python benchmarks/live_arrays.py [--tasks 1000 --limit 10 --kills 20 --seed 0]

A server and an agent with twice as many simulated devices as tasks may run at once. Every task appends a line
to a file when it begins and when it ends; another job waits for the whole array. Meanwhile the server is
killed (SIGKILL) at random instants and started again. Printed is what was found; the exit code is 1 if a task
has not run, has run twice, more tasks than the limit ran at once, or the job after them began too early.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from command_line import finite, parser_of, run, whole

from fairlead.cluster.http_client import Client
from fairlead.cluster.local import LocalCluster
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import UnreachableError

TASK = """
echo "begin $FAIRLEAD_ARRAY_INDEX" >> "$LEDGER"
echo "end $FAIRLEAD_ARRAY_INDEX" >> "$LEDGER"
"""
POLL_S = 0.2


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--tasks", metavar="TASKS", type=whole(1), default=1000)
    parser.add_argument("--limit", metavar="TASKS", type=whole(1), default=10)
    parser.add_argument("--kills", metavar="TIMES", type=whole(0), default=20)
    parser.add_argument("--up-s", metavar="SECONDS", type=finite(above=True), default=10.0,
                        help="between a start of the server and its end, at most")  # fmt: skip
    parser.add_argument("--limit-s", metavar="SECONDS", type=finite(above=True), default=1800.0)
    parser.add_argument("--seed", metavar="SEED", type=whole(0), default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlead-arrays-") as folder:
        ledger = Path(folder) / "ledger"
        devices = ("--devices", f"v100={2 * given.limit}", "--simulated-devices")
        cluster = LocalCluster(
            Path(folder) / "cluster",
            {"node": devices},
            ("--round", "1", "--heartbeat", "0.3", "--lease", "30"),
        )
        try:
            cluster.start()
            began = time.monotonic()
            ids, last = submit(cluster, ledger, given.tasks, given.limit)
            killed = hurt(cluster, random.Random(given.seed), given, ledger)
            with cluster.client() as client:
                completed = await_end(client, last, began + given.limit_s)
                states = Counter(job.state for job in client.all_jobs(array=ids[0]))
                starts = Counter(job.starts for job in client.all_jobs(array=ids[0]))
        finally:
            cluster.stop()
        print(f"{given.tasks} tasks, {given.limit} at once, server killed {killed} times")
        print(
            f"after {time.monotonic() - began:.0f} s: states {dict(states)}, starts {dict(starts)}"
        )
        problems = found_in(ledger.read_text().splitlines(), given.tasks, given.limit)
        if not completed:
            problems.append("the job after the array has not completed in time")
        print(
            "\n".join(problems) or "every task ran once, within the limit, and before the last job"
        )
        return bool(problems)


def submit(cluster: LocalCluster, ledger: Path, tasks: int, limit: int) -> tuple[list[int], int]:
    """Returns the ids of the tasks, and that of the job after them."""

    def job(script: str, **more: object) -> JobSpec:
        return JobSpec(
            command=("sh", "-c", script), total_steps=10_000, unmanaged=True, cwd="/",
            env={"LEDGER": str(ledger)}, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    with cluster.client() as client:
        ids = client.submit([job(TASK, array=f"1-{tasks}%{limit}")])
        after = (f"ok:array:{ids[0]}",)
        (last,) = client.submit([job('echo "last" >> "$LEDGER"', after=after)])
        return ids, last


def hurt(cluster: LocalCluster, rng: random.Random, given: argparse.Namespace, ledger: Path) -> int:
    """Kill the server again and again, each time at an instant within ``given.up_s`` after its start, and
    start it again. Returns how often, which is fewer times where all jobs have ended before."""
    for kills in range(given.kills):
        time.sleep(rng.uniform(0.0, given.up_s))
        if ledger.exists() and ledger.read_text().endswith("last\n"):
            return kills
        server = cluster.processes["server"]
        server.kill()
        server.wait()
        cluster.start_server()
    return int(given.kills)


def await_end(client: Client, job: int, until: float) -> bool:
    """Whether the job completes by then."""
    while time.monotonic() < until:
        try:
            if client.job(job).state == "completed":
                return True
        except UnreachableError as problem:
            print(problem, file=sys.stderr)
        time.sleep(POLL_S)
    return False


def found_in(lines: list[str], tasks: int, limit: int) -> list[str]:
    """Return the problems of the run's lines: tasks missing, twice, too many at once, or a wrong last job."""
    problems = []
    for word in ("begin", "end"):
        times = Counter(line for line in lines if line.startswith(word))
        lost = [index for index in range(1, tasks + 1) if not times[f"{word} {index}"]]
        twice = sorted(line for line, n in times.items() if n > 1)
        problems += [f"{word}: missing {lost}"] * bool(lost) + [f"twice: {twice}"] * bool(twice)
    at_once = most = 0
    for line in lines:
        at_once += line.startswith("begin") - line.startswith("end")
        most = max(most, at_once)
    if most > limit:
        problems.append(f"{most} tasks ran at once")
    if lines.count("last") != 1 or lines[-1] != "last":
        problems.append("the job after the array did not run last, and once")
    return problems


run(main)
