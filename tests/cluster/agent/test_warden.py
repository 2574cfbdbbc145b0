"""What runs on a node ends when its agent and its spawner are killed, and nobody starts an agent again."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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

from fairlead.cluster.agent.machine import AgentFiles
from fairlead.cluster.agent.survivors import AttemptRecord
from fairlead.cluster.agent.warden import WardenLink, Watched
from fairlead.cluster.protocol.messages import Rank

STUBBORN = ("bash", "-c", "trap '' TERM; echo up; while true; do sleep 1000; done")
DAEMON = (
    "import os, signal, subprocess, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "subprocess.Popen(['sleep', '4321.5'], env={}, start_new_session=True)\n"
    "print('up', flush=True)\n"
    "time.sleep(1000)\n"
)
SECOND = (Rank(rank=0, devices=(1,)),)


def ranks_of(agent: RunningAgent) -> list[psutil.Process]:
    """All below the spawner but the warden."""
    mine = agent.own
    return [p for p in agent.spawner.children(recursive=True) if p.pid not in mine]


async def all_gone(agent: RunningAgent, ranks: list[psutil.Process]) -> None:
    """The agent is not started again."""
    assert ranks
    await agent.wait()
    assert await gone(lambda: not any(map(lives, ranks)) and not processes_of(agent.state))


def test_unmanaged_jobs_end_when_agent_and_spawner_are_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(
                plain(1, *STUBBORN, grace_s=1.0),
                plain(2, sys.executable, "-c", DAEMON, ranks=SECOND, grace_s=1.0),
            )
            for number in (1, 2):
                await server.until_output(number, "up")
            ranks = ranks_of(agent)
            assert any("4321.5" in p.cmdline() for p in ranks)
            begun = time.monotonic()
            kill_with_spawner(agent)
            await all_gone(agent, ranks)
            assert time.monotonic() - begun >= 1.0  # they had their grace

    asyncio.run(scenario())


def test_a_job_saves_when_agent_and_spawner_are_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            await server.order(job(1))
            await server.until_state((1, 1), "running")
            ranks = ranks_of(agent)
            kill_with_spawner(agent)
            await all_gone(agent, ranks)
            assert (state / "checkpoints" / "1" / "last-step").read_text() > ""

    asyncio.run(scenario())


def test_a_job_behind_its_loop_ends_when_agent_and_spawner_are_killed(tmp_path: Path) -> None:
    script = tmp_path / "evaluates.py"
    loop, _, _ = RANK.read_text().rpartition("train()")
    script.write_text(
        f"{loop}try:\n    train()\nexcept SystemExit:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(1000)\n"
    )

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(
                job(1, command=(sys.executable, str(script)), total_steps=9, grace_s=1.0)
            )
            await server.until(
                lambda: (1, 1) in server.statuses and server.statuses[1, 1].finishing
            )
            ranks = ranks_of(agent)
            kill_with_spawner(agent)
            await all_gone(agent, ranks)

    asyncio.run(scenario())


def test_no_file_is_needed_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    monkeypatch.setenv("FAIRLEAD_RUN_DIR", str(run))

    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            await server.order(plain(1, *STUBBORN, grace_s=0.3))
            await server.until_output(1, "up")
            ranks = ranks_of(agent)
            shutil.rmtree(run)
            shutil.rmtree(state)
            kill_with_spawner(agent)
            await all_gone(agent, ranks)

    asyncio.run(scenario())


def test_it_hears_no_signal_and_is_replaced_when_it_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(plain(1, *STUBBORN, grace_s=0.3))
            await server.until_output(1, "up")
            ranks, first = ranks_of(agent), agent.warden
            assert os.getsid(first.pid) == first.pid
            await until(lambda: ignores(first.pid, signal.SIGTERM))
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(first.pid, number)
            await asyncio.sleep(0.2)
            assert lives(first)
            first.kill()
            await until(lambda: any(warden != first for warden in wardens(agent)))
            assert server.statuses[1, 1].state == "running"
            kill_with_spawner(agent)
            await all_gone(agent, ranks)

    asyncio.run(scenario())


def test_the_spawner_does_not_wait_for_one_that_stands_still(tmp_path: Path) -> None:

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            first = agent.warden
            first.suspend()
            for attempt in range(1, 4):
                await server.order(plain(1, "true", attempt=attempt))
                await server.until_state((1, attempt), "ended")
            first.resume()
            assert agent.warden == first

    asyncio.run(scenario())


def test_nothing_of_it_is_left_where_all_end_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Server() as server:
            agent = RunningAgent(server, tmp_path / "s")
            agent.start()
            await server.until(lambda: server.registered)
            warden = agent.warden
            assert await agent.stop() == 0
            assert not lives(warden)

    asyncio.run(scenario())


def freeze(agent: RunningAgent) -> list[psutil.Process]:
    """Agent and spawner; the warden lives."""
    frozen = [psutil.Process(agent.pid), agent.spawner]
    for process in frozen:
        process.suspend()
    return frozen


def test_ranks_end_with_their_lease_where_agent_and_spawner_stand_still(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=5.0) as (server, agent):
            await server.order(
                plain(1, *STUBBORN, grace_s=1.0),
                plain(2, "sleep", "1000", ranks=SECOND, grace_s=1000.0),
            )
            await server.until_output(1, "up")
            await server.until_state((2, 1), "running")
            ranks = ranks_of(agent)
            await asyncio.sleep(5.5)
            assert all(map(lives, ranks)), "leases are renewed"
            begun = time.monotonic()
            frozen = freeze(agent)
            try:
                assert await gone(lambda: not any(map(lives, ranks)))
                assert time.monotonic() - begun >= 2.0, "not before the lease is over"
            finally:
                for process in frozen:
                    process.resume()
            for number in (1, 2):
                status = await server.until_state((number, 1), "ended")
                assert status.reason == "lease expired"
            await server.order(plain(3, "true"))
            assert (await server.until_state((3, 1), "ended")).exit_code == 0

    asyncio.run(scenario())


def test_what_was_to_be_killed_is_killed_where_the_spawner_stands_still(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(plain(1, *STUBBORN, grace_s=3.0))
            await server.until_output(1, "up")
            ranks = ranks_of(agent)
            await server.order()
            await server.until_state((1, 1), "stopping")
            await asyncio.sleep(0.5)  # the spawner has heard of it
            frozen = freeze(agent)
            try:
                assert await gone(lambda: not any(map(lives, ranks)))
            finally:
                for process in frozen:
                    process.resume()
            await server.until_state((1, 1), "ended")

    asyncio.run(scenario())


def test_a_start_that_is_being_ended_gets_no_more_time(tmp_path: Path) -> None:
    record = AttemptRecord(job=1, attempt=1, token="t", grace_s=10.0)
    assert Watched(record=record).end_s(100.0) == 110.0
    assert Watched(record=record, until_s=95.0).end_s(100.0) == 105.0
    assert Watched(record=record, until_s=130.0).end_s(100.0) == 110.0
    assert Watched(record=record, until_s=95.0, kill_s=101.0).end_s(100.0) == 101.0


@pytest.mark.parametrize("same_state", [True, False], ids=["its own", "another directory"])
def test_one_that_was_stopped_is_ended_by_the_next_agent(tmp_path: Path, same_state: bool) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            left = agent.warden
            left.suspend()
            kill_with_spawner(agent)
            await agent.wait()
            assert lives(left)
            if not same_state:
                shutil.rmtree(state)
            agent.start()
            await server.until(lambda: len(server.registered) == 2)
            assert await gone(lambda: not lives(left))
            assert lives(agent.warden)

    asyncio.run(scenario())


def test_one_that_does_not_read_is_replaced_and_told_all(tmp_path: Path) -> None:
    link = WardenLink(tmp_path, AgentFiles(tmp_path / "n.1"))
    watched = Watched(record=AttemptRecord(job=1, attempt=1, token="t" * 900, grace_s=1.0))
    link.keep([])
    first = psutil.Process(link.pid)
    first.suspend()
    limit = time.monotonic() + 60.0
    while link.pid == first.pid and time.monotonic() < limit:
        link.send(watched)
        link.keep([watched])
    assert link.pid not in (0, first.pid) or link.due_s is not None
    while link.pid == 0 and time.monotonic() < limit:
        link.keep([watched])
    second = psutil.Process(link.pid)
    link.dismiss()
    assert not lives(first)
    assert not lives(second)


LEAVES_NO_TRACE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    if sys.argv[2:] == ["closes"]:
        os.closerange(0, 1024)
    os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
print("up", flush=True)
time.sleep(1000)
"""


def traceless(nap: str, *more: str) -> tuple[str, ...]:
    """A command that starts ``sleep nap``: a grandchild in a session of its own, without environment."""
    return sys.executable, "-c", LEAVES_NO_TRACE, nap, *more


async def until_asleep(nap: str) -> psutil.Process:
    """Once it is nobody's child but that of who adopts it."""

    def asleep() -> list[psutil.Process]:
        everyone = psutil.process_iter(["cmdline"])
        return [p for p in everyone if p.info["cmdline"] == ["sleep", nap]]

    await until(lambda: len(asleep()) == 1)
    (found,) = asleep()
    return found


def test_what_has_left_session_and_environment_ends_when_the_spawner_is_killed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", "--health", "sleep 1000") as (server, agent):
            await server.order(plain(1, *traceless("4322.5", "closes"), grace_s=0.5))
            await server.until_output(1, "up")
            left = await until_asleep("4322.5")
            agent.spawner.kill()
            await server.until_state((1, 1), "ended")
            assert not lives(left)
            await until(lambda: not psutil.pid_exists(left.pid))  # its agent has buried it
            await server.order(plain(2, "true"))
            assert (await server.until_state((2, 1), "ended")).exit_code == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("forked", [False, True])
def test_what_has_left_session_and_environment_ends_when_agent_and_spawner_are_killed(
    tmp_path: Path, forked: bool
) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(LEAVES_NO_TRACE)
    nap = "4323.5" if forked else "4327.5"
    command = (sys.executable, str(script), nap, "closes")

    async def scenario() -> None:
        async with cluster(tmp_path / "s", "--prefork", "msgspec") as (server, agent):
            await server.order(plain(1, *command, grace_s=0.5, prefork=forked))
            await server.until_output(1, "up")
            left = await until_asleep(nap)
            kill_with_spawner(agent)
            await all_gone(agent, [left])

    asyncio.run(scenario())


def test_its_device_is_free_again_once_an_agent_is_started_though_the_warden_was_killed_too(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        with subprocess.Popen(["sleep", "4325.5"], start_new_session=True) as stranger:
            async with cluster(state) as (server, agent):
                await server.order(plain(1, *traceless("4324.5"), grace_s=0.5))
                await server.until_output(1, "up")
                left = await until_asleep("4324.5")
                agent.warden.suspend()  # so that it cannot act after the others
                warden = agent.warden
                kill_with_spawner(agent)
                warden.kill()
                await agent.wait()
                assert lives(left)
                agent.start()
                await server.until(lambda: len(server.registered) == 2)
                assert not lives(left)
                await server.order(plain(1, "true", attempt=2))
                assert (await server.until_state((1, 2), "ended")).exit_code == 0
            assert stranger.poll() is None
            stranger.kill()

    asyncio.run(scenario())


def test_what_a_running_job_has_sent_off_lives_when_another_job_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            daemon = plain(1, *traceless("4326.5", "closes"), grace_s=0.5)
            await server.order(daemon)
            await server.until_output(1, "up")
            sent_off = await until_asleep("4326.5")
            await server.order(daemon, plain(2, "true", ranks=SECOND))
            await server.until_state((2, 1), "ended")
            assert lives(sent_off)
            await server.order()
            await server.until_state((1, 1), "ended")
            assert not lives(sent_off)

    asyncio.run(scenario())


def wardens(agent: RunningAgent) -> list[psutil.Process]:
    found = []
    for process in agent.spawner.children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if "fairlead.cluster.agent.warden" in process.cmdline():
                found.append(process)
    return found


def ignores(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


async def until(done: Callable[[], bool]) -> None:
    assert await gone(done)
