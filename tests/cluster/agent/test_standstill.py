"""An agent, or a spawner, that stands still for a while: no job is to blame for what comes of it."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from tests.cluster.agent.cluster import cluster, gone, job, plain, processes_of

from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.lease import ReportedLease
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_watch import SpawnerWatch
from fairlead.cluster.protocol.messages import Rank

SECOND = (Rank(rank=0, devices=(1,)),)

TRAINS = """
import pathlib, time
from fairlead.client.lease import Lease

def load(path): pass
def save(path): path.write_text("state")

with Lease(load=load, save=save, total_steps=10**6) as lease:
    while lease.next():
        time.sleep(0.02)
"""


def _is_over(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_rank_whose_lease_ends_while_its_agent_stands_still_has_not_failed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "trains.py"
    script.write_text(TRAINS)

    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=6.0) as (server, agent):
            await server.order(job(1, command=(sys.executable, str(script))))
            await server.until_state((1, 1), "running")
            (rank,) = (p for p in processes_of(tmp_path / "s") if str(script) in p.cmdline())
            await asyncio.sleep(3.0)  # less than half of its lease is left, and nearly all of ours
            os.kill(agent.pid, signal.SIGSTOP)
            try:
                assert await gone(lambda: _is_over(rank))
            finally:
                os.kill(agent.pid, signal.SIGCONT)
            status = await server.until_state((1, 1), "ended")
            assert (status.reason, status.failure) == ("lease expired", None)

    asyncio.run(scenario())


def test_jobs_that_ended_in_time_while_their_agent_stood_still_have_ended_well(
    tmp_path: Path,
) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time; time.sleep(2)")
    command = (sys.executable, str(script))

    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=8.0) as (server, agent):
            await server.order(plain(1, *command), plain(2, *command, ranks=SECOND))
            for number in (1, 2):
                await server.until_state((number, 1), "running")
            ranks = [p for p in processes_of(tmp_path / "s") if str(script) in p.cmdline()]
            assert len(ranks) == 2
            os.kill(agent.pid, signal.SIGSTOP)
            try:
                assert await gone(lambda: all(map(_is_over, ranks)))
                await asyncio.sleep(9.0)  # until their leases are over
            finally:
                os.kill(agent.pid, signal.SIGCONT)
            for number in (1, 2):
                status = await server.until_state((number, 1), "ended")
                assert (status.reason, status.exit_code, status.completed) == ("", 0, True)
                assert status.ended_age_s > 5.0
                assert status.ran_s < 8.0

    asyncio.run(scenario())


def test_jobs_that_ended_in_time_while_agent_and_spawner_stood_still_have_ended_well(
    tmp_path: Path,
) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import sys, time; time.sleep(2); sys.exit(int(sys.argv[1]))")

    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=8.0) as (server, agent):
            await server.order(
                plain(1, sys.executable, str(script), "0"),
                plain(2, sys.executable, str(script), "7", ranks=SECOND),
            )
            for number in (1, 2):
                await server.until_state((number, 1), "running")
            ranks = [p for p in processes_of(tmp_path / "s") if str(script) in p.cmdline()]
            assert len(ranks) == 2
            spawner = agent.spawner
            os.kill(agent.pid, signal.SIGSTOP)
            spawner.suspend()
            try:
                assert await gone(lambda: all(map(_is_over, ranks)))
                await asyncio.sleep(9.0)  # until their leases are over
            finally:
                spawner.resume()
                os.kill(agent.pid, signal.SIGCONT)
            for number, code in ((1, 0), (2, 7)):
                status = await server.until_state((number, 1), "ended")
                assert (status.exit_code, status.completed) == (code, code == 0)
                assert "lease" not in status.reason
                assert status.ended_age_s > 5.0
                assert status.ran_s < 8.0

    asyncio.run(scenario())


def test_jobs_that_ended_while_their_spawner_stood_still_have_ended_as_they_did(
    tmp_path: Path,
) -> None:
    """Its agent kills it after a while; the exit codes of its children become the agent's to read."""
    script = tmp_path / "sleeps.py"
    script.write_text("import sys, time; time.sleep(5); sys.exit(int(sys.argv[1]))")

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(
                plain(1, sys.executable, str(script), "0"),
                plain(2, sys.executable, str(script), "7", ranks=SECOND),
            )
            for number in (1, 2):
                await server.until_state((number, 1), "running")
            await asyncio.sleep(2.5)  # it has answered since
            first = agent.spawner
            first.suspend()
            for number, code in ((1, 0), (2, 7)):
                status = await server.until_state((number, 1), "ended")
                assert (status.exit_code, status.completed) == (code, code == 0)
                assert "the process that owned" not in status.reason
            assert not first.is_running()

    asyncio.run(scenario())


GOES_ON_UNTIL_IT_IS_TOLD = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.write(1, b"up\\n")
time.sleep(1000)
"""


def test_ranks_that_were_ended_as_their_spawner_was_killed_have_not_completed(
    tmp_path: Path,
) -> None:
    """Their agent stands still meanwhile, and the warden tells them to end; they exit with 0."""
    script = tmp_path / "goes_on.py"
    script.write_text(GOES_ON_UNTIL_IT_IS_TOLD)

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(plain(1, sys.executable, str(script)))
            await server.until_output(1, "up")
            (rank,) = (p for p in processes_of(tmp_path / "s") if str(script) in p.cmdline())
            spawner = agent.spawner
            os.kill(agent.pid, signal.SIGSTOP)
            spawner.kill()
            try:
                assert await gone(lambda: _is_over(rank))
            finally:
                os.kill(agent.pid, signal.SIGCONT)
            status = await server.until_state((1, 1), "ended")
            assert not status.completed
            assert status.reason == "the process that owned the ranks died"

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ranks_that_end_because_somebody_ends_their_spawner_have_not_completed(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = tmp_path / "goes_on.py"
    script.write_text(GOES_ON_UNTIL_IT_IS_TOLD)

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(
                plain(1, sys.executable, str(script)), job(2, ranks=SECOND, total_steps=10**6)
            )
            await server.until_output(1, "up")
            await server.until_state((2, 1), "running")
            first = agent.spawner
            first.send_signal(number)
            for one in (1, 2):
                status = await server.until_state((one, 1), "ended")
                assert (status.completed, status.failure) == (False, None)
                assert status.reason == "the process that owned the ranks died"
            assert await gone(lambda: not first.is_running())
            await server.order(plain(3, "true"))
            assert (await server.until_state((3, 1), "ended")).completed

    asyncio.run(scenario())


def test_ranks_whose_leases_were_over_for_the_warden_have_not_ended_by_themselves(
    tmp_path: Path,
) -> None:
    """Their spawner was stopped, and heard of no renewal."""
    script = tmp_path / "goes_on.py"
    script.write_text(GOES_ON_UNTIL_IT_IS_TOLD)

    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=4.0) as (server, agent):
            await server.order(plain(1, sys.executable, str(script)))
            await server.until_output(1, "up")
            await asyncio.sleep(2.5)  # it has answered since
            agent.spawner.suspend()
            status = await server.until_state((1, 1), "ended")
            assert not status.completed

    asyncio.run(scenario())


def test_what_a_rank_knows_of_its_lease_is_what_it_was_told_last() -> None:
    told = ReportedLease(10.0)
    assert not told.is_short(5.0), "nothing was told"
    told.record(100.0, 10.0)
    assert not told.is_short(107.0)
    assert told.is_short(108.0)
    assert told.is_short(120.0)
    told.record(121.0, 10.0)  # too late for what ended before
    assert told.is_short(120.0)
    assert not told.is_short(122.0)


def test_a_job_that_stops_the_spawner_was_there_each_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            for attempt in (1, 2):
                first = agent.spawner
                evil = "sleep 0.5; kill -STOP $PPID; sleep 1000"
                await server.order(
                    plain(1, "sleep", "1000", attempt=attempt, grace_s=0.5),
                    plain(7, "sh", "-c", evil, attempt=attempt, grace_s=0.5, ranks=SECOND),
                )
                for number in (1, 7):
                    status = await server.until_state((number, attempt), "ended")
                    assert status.reason == "the process that owned the ranks died"
                    assert status.spawner_death is not None
                    assert status.spawner_death.number == attempt
                    assert status.spawner_death.jobs == (1, 7)
                assert agent.spawner != first
            assert server.newest is not None
            assert server.newest.problems == (), "the node is well"
            await server.order(plain(2, "true"))
            assert (await server.until_state((2, 1), "ended")).exit_code == 0

    asyncio.run(scenario())


def test_who_was_launched_after_the_spawner_was_stopped_was_not_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(plain(1, "sleep", "1000", grace_s=0.5))
            await server.until_state((1, 1), "running")
            await asyncio.sleep(2.5)  # it has answered since
            agent.spawner.suspend()
            await asyncio.sleep(2.5)  # and has been asked since
            late = plain(2, "sleep", "1000", ranks=SECOND)
            await server.order(server.orders.desired[0], late)
            status = await server.until_state((1, 1), "ended")
            assert status.spawner_death is not None
            assert status.spawner_death.jobs == (1,)
            assert (await server.until_state((2, 1), "ended")).spawner_death is None

    asyncio.run(scenario())


def test_an_agent_starts_though_a_job_has_stopped_the_spawner_and_killed_the_agent_before(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=30.0) as (server, agent):
            evil = f"kill -STOP $PPID; kill -9 {agent.pid}; sleep 1000"
            await server.order(plain(7, "sh", "-c", evil, grace_s=0.5))
            await agent.wait()
            await server.order()
            agent.start()
            await server.until(lambda: len(server.registered) == 2)
            await server.order(plain(8, "true"))
            assert (await server.until_state((8, 1), "ended")).exit_code == 0

    asyncio.run(scenario())


class _Spawner(SpawnerLink):
    """One that does not answer, though nobody has stopped it."""

    is_stopped = False
    killed: list[frozenset[int] | None]

    def ping(self, now: float) -> float:
        self.silent_s = now
        return now

    def kill(self, jobs_when_stopped: frozenset[int] | None = None) -> None:
        self.killed.append(jobs_when_stopped)


def test_a_spawner_that_stands_still_by_itself_is_told_of_and_replaced_and_nobody_is_suspected(
    tmp_path: Path,
) -> None:
    spawner = _Spawner(tmp_path, "", NodeDevices("v100", (0,), simulated_devices=True))
    spawner.killed = []
    watch = SpawnerWatch(spawner, tmp_path, lambda: [1], lambda: None)
    (tmp_path / "starts").mkdir()

    async def scenario() -> None:
        for now in (0.0, 1.0, 5.0):
            await watch.poll(now)
            assert watch.problem == ""
        await watch.poll(6.0)
        assert watch.problem == "the process that owns the ranks stands still"
        assert spawner.killed == []
        await watch.poll(11.0)
        assert spawner.killed == [None], "nothing runs any more"

    asyncio.run(scenario())


def test_what_ended_as_the_spawner_stood_still_has_not_failed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=2.0) as (server, agent):
            await server.order(plain(1, "sleep", "1000", grace_s=5.0))
            await server.until_state((1, 1), "running")
            spawner = agent.spawner
            (rank,) = (p for p in spawner.children() if "1000" in p.cmdline())
            spawner.suspend()
            ended = psutil.STATUS_ZOMBIE
            assert await gone(lambda: not rank.is_running() or rank.status() == ended)
            with contextlib.suppress(psutil.Error):  # on a slow machine it is replaced by now
                spawner.resume()
            status = await server.until_state((1, 1), "ended")
            reasons = [f"the process that owned the ranks {how}" for how in ("stood still", "died")]
            assert status.reason in reasons, "its agent had its lease extended all the time"
            assert status.failure is None

    asyncio.run(scenario())


def test_an_agent_leaves_though_its_spawner_stands_still(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.until(lambda: server.reports > 1)
            agent.spawner.suspend()
            assert await agent.stop() == 0

    asyncio.run(scenario())
