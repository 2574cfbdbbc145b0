"""An elastic job on real agents: it grows and shrinks, and each step counts once."""

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.cluster.cluster import running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

POLLUX = ("--round", "2", "--restart-cost", "0.05", "--policy", "pollux")
LAS = (*POLLUX[:-1], "las_aware")
SCRIPT = """
import json, os, sys, time
import fairlead
done = {"sum": 0, "step": 0}
def save(path): path.write_text(json.dumps(done))
def load(path): done.update(json.loads(path.read_text()))
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with fairlead.Lease(load=load, save=save, total_steps=int(sys.argv[2])) as lease:
    while lease.next():
        done["step"] += 1
        done["sum"] += done["step"]
        with open(f"{sys.argv[1]}.{rank}", "a") as file:
            file.write(f"{os.environ['FAIRLEAD_ATTEMPT']} {world} {done['step']}\\n")
        time.sleep(0.02)
if rank == 0:
    open(f"{sys.argv[1]}.end", "w").write(str(done["sum"]))
"""
STEPS = 1_000_000


def submit(client: Client, path: Path, total_steps: int = STEPS) -> int:
    (job,) = client.submit(
        [
            JobSpec(
                command=(sys.executable, "-c", SCRIPT, str(path), str(total_steps)),
                total_steps=total_steps,
                rates={"v100": 50.0},
                devices=(1, 2, 4),
                cwd="/",
            )
        ]
    )
    return job


def trained(path: Path, rank: int = 0) -> list[tuple[int, int, int]]:
    """(attempt, ranks, step) in order."""
    file = path.with_name(f"{path.name}.{rank}")
    text = file.read_text() if file.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [(int(a), int(b), int(c)) for a, b, c in map(str.split, lines)]


def numbers(path: Path) -> list[int]:
    """How many ranks its attempts had, in order."""
    return list({attempt: world for attempt, world, _ in trained(path)}.values())


@pytest.mark.parametrize(
    "options",
    [pytest.param(POLLUX, id="pollux"), pytest.param(LAS, id="las_aware", marks=pytest.mark.long)],
)
def test_a_job_grows_and_shrinks_and_does_each_step_once(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    nodes = {"node-a": "v100=2", "node-b": "v100=2"}
    paths = [tmp_path / f"job-{k}" for k in range(3)]
    with running(tmp_path, options, nodes) as cluster, cluster.client() as client:
        submit(client, paths[0])
        until(lambda: 4 in numbers(paths[0]))
        other = submit(client, paths[1])
        until(lambda: numbers(paths[0])[-1] == 2 and 2 in numbers(paths[1]))
        third = submit(client, paths[2])
        until(lambda: bool(numbers(paths[2])))
        if options is POLLUX:  # which leaves nobody without devices
            until(lambda: 1 in numbers(paths[2]) + numbers(paths[1]) + numbers(paths[0]))
        client.cancel(other)
        client.cancel(third)
        until(lambda: numbers(paths[0])[-1] == 4)
        for _, world, _ in trained(paths[0]):
            assert world in (1, 2, 4)
        steps = [step for _, _, step in trained(paths[0])]
        assert steps == list(range(1, len(steps) + 1))
        assert client.job(0).lost_steps == 0 == client.job(0).failures
        ends = {row.end for row in client.attempts(0)[:-1]}
        assert "resized" in ends
        # Least attained service first: with three jobs the one that trained the longest waits for a round.
        assert ends <= ({"resized"} if options is POLLUX else {"resized", "preempted"})


def test_steps_since_the_last_checkpoint_are_all_that_a_killed_rank_costs(tmp_path: Path) -> None:
    path = tmp_path / "job"
    with running(tmp_path, POLLUX, {"node-a": "v100=4"}) as cluster, cluster.client() as client:
        job = submit(client, path, 600)
        until(lambda: len(trained(path)) > 100)
        other = submit(client, tmp_path / "other")
        until(lambda: numbers(path)[-1] == 2)
        kept = client.attempts(job)[-1].from_step
        assert kept > 100
        pid = next(
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit() and _runs(folder, str(path), "RANK=1")
        )
        os.kill(pid, signal.SIGKILL)
        client.cancel(other)
        until(lambda: client.job(job).state == "completed")
        assert (tmp_path / "job.end").read_text() == str(600 * 601 // 2)
        by_attempt: dict[int, list[int]] = {}
        for attempt, _, step in trained(path):
            by_attempt.setdefault(attempt, []).append(step)
        done = 0
        for steps in by_attempt.values():
            assert steps == list(range(steps[0], steps[-1] + 1))
            assert steps[0] in (done + 1, kept + 1)
            done = steps[-1]
        assert done == 600


def _runs(folder: Path, word: str, variable: str) -> bool:
    try:
        command = (folder / "cmdline").read_bytes()
        environment = (folder / "environ").read_bytes()
    except OSError:
        return False
    return word.encode() + b"\0" in command and variable.encode() + b"\0" in environment
