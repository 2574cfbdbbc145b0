"""A rank with processes of its own saves before any of these is told to end; and all of them end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.cluster.agent.cluster import (
    RANK,
    RunningAgent,
    Server,
    cluster,
    gone,
    job,
    kill_with_spawner,
    lives,
    plain,
    processes_of,
)

from fairlead.cluster.protocol.messages import Rank

# It saves by way of a process that it has started, as a loader with workers fetches batches.
WITH_WORKER = (
    RANK.read_text().rpartition("train()")[0]
    + """
import subprocess

worker = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
save = leave


def leave(step: int, completed: bool) -> None:
    worker.stdin.write(b"batch\\n")
    worker.stdin.flush()
    if worker.stdout.readline() != b"batch\\n":
        raise RuntimeError("the worker has been killed")
    save(step, completed)


train()
"""
)
# It catches SIGTERM and has a child that does not end by itself, below a shell that would go on.
HANDLER = """
import signal, subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
def leave(*_):
    print("child", child.poll(), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
signal.pause()
"""
# It trains until its loop is over, and then writes its results.
FINISHED = """
import os, sys, time
from fairlead.client import stacks
stacks.register()
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
OTHER_NODE: dict[str, Any] = {  # of the job's rank 0
    "ranks": (Rank(rank=1, devices=(0,)),),
    "world_size": 2,
    "has_rank_0": False,
    "master": "127.0.0.9:5:6:x",
}
Break = Callable[[RunningAgent], None]


def kill_agent(agent: RunningAgent) -> None:
    os.kill(agent.pid, signal.SIGKILL)


def kill_spawner(agent: RunningAgent) -> None:
    agent.spawner.kill()


def stop_agent(agent: RunningAgent) -> None:
    os.kill(agent.pid, signal.SIGSTOP)


def stop_both(agent: RunningAgent) -> None:
    spawner = agent.spawner
    os.kill(agent.pid, signal.SIGSTOP)
    os.kill(spawner.pid, signal.SIGSTOP)


def proceed(agent: RunningAgent) -> None:
    with contextlib.suppress(psutil.Error):
        agent.spawner.resume()
    with contextlib.suppress(ProcessLookupError):
        os.kill(agent.pid, signal.SIGCONT)


async def began(server: Server, state: Path, command: tuple[str, ...]) -> None:
    await server.order(job(1, command=command, grace_s=100.0))
    await server.until_state((1, 1), "running")


@pytest.mark.parametrize(
    ("breaks", "shell"),
    [
        (kill_agent, False),
        (kill_agent, True),
        (kill_spawner, False),
        (kill_with_spawner, False),
        (kill_with_spawner, True),
        (stop_agent, False),
        (stop_both, False),
    ],
)
def test_a_rank_with_workers_saves_whatever_ends_it(
    tmp_path: Path, breaks: Break, shell: bool
) -> None:
    script, state = tmp_path / "job.py", tmp_path / "s"
    script.write_text(WITH_WORKER)
    python = (sys.executable, str(script))
    command = ("sh", "-c", f"{sys.executable} {script}; echo over") if shell else python

    async def scenario() -> None:
        lease_s = 3.0 if breaks in (stop_agent, stop_both) else 60.0
        async with cluster(state, lease_s=lease_s) as (server, agent):
            await began(server, state, command)
            saved = state / "checkpoints" / "1" / "last-step"
            ranks = agent.spawner.children(recursive=True)
            ranks = [p for p in ranks if p.pid not in agent.own]
            assert len(ranks) == 2 + shell
            breaks(agent)
            try:
                assert await gone(lambda: not any(map(lives, ranks)))
                assert saved.read_text() > ""
            finally:
                proceed(agent)

    asyncio.run(scenario())


def test_a_script_ends_with_all_its_processes_once_they_have_saved(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(HANDLER)
    shell = f"{sys.executable} {script}; echo next; sleep 1000"

    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            await server.order(plain(1, "sh", "-c", shell, grace_s=1000.0))
            await server.until_output(1, "up")
            await server.order()
            await server.until_state((1, 1), "ended")
            assert "child None" in await server.until_output(1, "child")
            assert {p.pid for p in processes_of(state)} == agent.own

    asyncio.run(scenario())


def test_a_shell_that_acts_on_the_signal_gets_it_together_with_what_it_waits_for(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            shell = "trap 'echo saved; exit 0' TERM; echo up; sleep 1000"
            await server.order(plain(1, "bash", "-c", shell, grace_s=1000.0))
            await server.until_output(1, "up")
            await server.order()
            assert (await server.until_state((1, 1), "ended")).exit_code == 0
            await server.until_output(1, "saved")

    asyncio.run(scenario())


def test_a_rank_that_has_not_begun_ends_at_once_also_where_rank_0_is_elsewhere(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            command = ("sh", "-c", "echo up; sleep 1000")
            await server.order(job(1, command=command, grace_s=1000.0, **OTHER_NODE))
            await server.until_output(1, "up", rank=1)
            await server.order()
            status = await server.until_state((1, 1), "ended")
            assert (status.reason, status.failure) == ("preempted", None)

    asyncio.run(scenario())


def test_a_rank_whose_loop_is_over_comes_to_its_end(tmp_path: Path) -> None:
    script, results = tmp_path / "job.py", tmp_path / "results"
    script.write_text(FINISHED)
    command = (sys.executable, str(script), str(results))

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            await server.order(job(1, command=command, grace_s=1000.0, **OTHER_NODE))
            await server.until_output(1, "up", rank=1)
            await server.order()
            await server.until_state((1, 1), "stopping")
            results.touch()
            assert (await server.until_state((1, 1), "ended")).exit_code == 0

    asyncio.run(scenario())


STOPPED = """
trap 'echo saved > "$0"; exit 0' TERM
echo $$ up
kill -STOP $$
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("breaks", [None, kill_agent, kill_with_spawner])
def test_a_stopped_job_saves_when_it_is_told_to_end(tmp_path: Path, breaks: Break | None) -> None:
    """The signal waited for somebody to continue it, and its grace passed."""
    saved = tmp_path / "saved"

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(plain(1, "sh", "-c", STOPPED, str(saved), grace_s=100.0))
            text = await server.until_output(1, "up")
            rank = psutil.Process(int(text.split()[0]))
            assert await gone(lambda: rank.status() == psutil.STATUS_STOPPED)
            if breaks is None:
                await server.order()
            else:
                breaks(agent)
            assert await gone(lambda: not lives(rank))
            assert saved.read_text() == "saved\n"

    asyncio.run(scenario())


def test_a_stopped_rank_saves_when_it_is_told_to_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await began(server, tmp_path / "s", (sys.executable, str(RANK)))
            await server.until_output(1, "Grant")  # it has its handler by then
            ranks = [p for p in agent.spawner.children() if p.pid not in agent.own]
            ranks[0].suspend()
            await server.order()
            await server.until_state((1, 1), "ended")
            assert (tmp_path / "s" / "checkpoints" / "1" / "last-step").exists()

    asyncio.run(scenario())


LEASE = """
import os, signal
import fairlead
with fairlead.Lease(load=lambda _: None, save=lambda path: path.touch()) as lease:
    while lease.next():
        os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_sigterm_that_did_not_come_from_here_is_told_as_that(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _agent):
            await server.order(plain(1, "sh", "-c", "kill -TERM $$; sleep 1000"))
            killed = await server.until_state((1, 1), "ended")
            assert killed.reason == (
                "killed by signal 15 (SIGTERM): that signal did not come from Fairlead"
            )
            await server.order(job(2, command=(sys.executable, "-c", LEASE)))
            saved = await server.until_state((2, 1), "ended")
            assert (saved.exit_code, saved.completed) == (0, False)
            assert saved.reason == "ended at a SIGTERM that did not come from Fairlead"

    asyncio.run(scenario())
