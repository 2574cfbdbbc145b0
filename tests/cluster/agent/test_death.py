"""Whoever dies, nothing is left running, and what comes after starts clean."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.cluster.agent.cluster import (
    RunningAgent,
    Server,
    cluster,
    gone,
    job,
    lives,
    plain,
    processes_of,
)

from fairlead.cluster.protocol.messages import Rank

STUBBORN = ("bash", "-c", "trap '' TERM; echo up; sleep 1000 & wait; sleep 1000")
SECOND = (Rank(rank=0, devices=(1,)),)


async def two_jobs(server: Server) -> None:
    """One that saves when asked to, one that never ends by itself."""
    await server.order(job(1, grace_s=5.0), plain(2, *STUBBORN, ranks=SECOND, grace_s=0.5))
    await server.until_state((1, 1), "running")
    await server.until_output(2, "up")


def test_a_leaving_agent_lets_its_jobs_save_and_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            await two_jobs(server)
            assert server.newest is not None
            assert not server.newest.leaving
            assert await agent.stop() == 0
            assert server.newest.leaving
            first, second = server.statuses[1, 1], server.statuses[2, 1]
            assert (first.state, first.exit_code, first.reason) == ("ended", 0, "agent leaves")
            assert first.step == first.saved_step
            assert second.state == "ended"
            assert not (state / "agent.sock").exists()

    asyncio.run(scenario())


def test_an_agent_says_at_once_that_it_is_being_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(plain(1, *STUBBORN, grace_s=1000.0))
            await server.until_output(1, "up")
            assert not server.registered[0].ending
            os.kill(agent.pid, signal.SIGTERM)
            await server.until(lambda: server.newest is not None and server.newest.ending)
            assert server.newest is not None
            assert not server.newest.leaving
            assert server.statuses[1, 1].state == "stopping"
            await server.order(plain(1, *STUBBORN), plain(2, "true"))
            await server.until(
                lambda: server.newest is not None and server.newest.orders_seq == server.orders.seq
            )
            assert (2, 1) not in server.statuses, "it begins nothing"
            wanted = server.orders.desired
            server.registered.clear()  # the server has forgotten all
            server.orders = type(server.orders)(seq=0, desired=wanted)
            await server.until(lambda: server.registered)
            assert server.registered[0].ending
            os.kill(agent.pid, signal.SIGTERM)
            assert await agent.wait() == 0
            assert server.newest.leaving

    asyncio.run(scenario())


def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(plain(1, *STUBBORN, grace_s=1000.0))
            await server.until_output(1, "up")
            os.kill(agent.pid, signal.SIGTERM)
            await server.until_state((1, 1), "stopping")
            os.kill(agent.pid, signal.SIGTERM)
            assert await agent.wait() == 0

    asyncio.run(scenario())


def test_jobs_save_and_end_when_the_agent_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            await two_jobs(server)
            os.kill(agent.pid, signal.SIGKILL)
            await agent.wait()
            agent.start()  # at once: it waits until the last one's jobs have ended
            await server.until(lambda: len(server.registered) == 2)
            assert (state / "checkpoints" / "1" / "last-step").read_text() > ""
            assert server.registered[1].holds == ()
            await server.order(job(1, attempt=2))
            await server.until_state((1, 2), "running")

    asyncio.run(scenario())


def test_survivors_are_ended_when_agent_and_spawner_are_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            await two_jobs(server)
            spawner = agent.spawner
            os.kill(spawner.pid, signal.SIGSTOP)  # so that it cannot act between the two
            os.kill(agent.pid, signal.SIGKILL)
            os.kill(spawner.pid, signal.SIGKILL)
            await agent.wait()
            assert len(processes_of(state)) >= 3  # they still run
            agent.start()
            await server.until(lambda: len(server.registered) == 2)
            assert {p.pid for p in processes_of(state)} == agent.own
            assert (state / "checkpoints" / "1" / "last-step").read_text() > ""
            await server.order(plain(1, "true", attempt=2))
            await server.until_state((1, 2), "ended")

    asyncio.run(scenario())


def test_the_agent_replaces_a_spawner_that_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await two_jobs(server)
            agent.spawner.kill()
            for key in ((1, 1), (2, 1)):
                status = await server.until_state(key, "ended")
                assert status.reason == "the process that owned the ranks died"
            await server.order(plain(1, "true", attempt=2))
            assert (await server.until_state((1, 2), "ended")).completed

    asyncio.run(scenario())


def test_only_one_agent_per_state_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, _):
            second = RunningAgent(server, state)
            second.start()
            assert await second.wait() == 2

    asyncio.run(scenario())


def test_a_restarted_server_finds_running_jobs_running(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            await server.order(job(1))
            await server.until_state((1, 1), "running")
            wanted = server.orders.desired
            server.registered.clear()  # it has forgotten all
            server.orders = type(server.orders)(seq=0, desired=wanted)
            await server.until(lambda: server.registered)
            (status,) = server.registered[0].holds
            assert (status.job, status.attempt, status.state) == (1, 1, "running")
            step = status.step
            await server.until(lambda: server.statuses[1, 1].step > step)

    asyncio.run(scenario())


def test_jobs_outlast_a_server_that_is_away_shorter_than_their_leases(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, _):
            await server.order(job(1))
            status = await server.until_state((1, 1), "running")
            port = int(server.address.rpartition(":")[2])
            await server._agents.stop(0.0)
            await asyncio.sleep(1.0)
            server._agents.port = port
            await server._agents.start()
            await server.until(lambda: server.statuses[1, 1].step > status.step)
            assert server.statuses[1, 1].state == "running"

    asyncio.run(scenario())


def test_an_agent_that_is_refused_says_why_and_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Server() as server:
            agent = RunningAgent(server, tmp_path / "s")
            (tmp_path / "s.token").write_text("wrong")
            agent.start()
            assert await agent.wait() == 2
            assert await gone(lambda: not processes_of(tmp_path / "s"))

    asyncio.run(scenario())


def test_a_prepared_process_forks_ranks_that_are_like_new(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import os, random, sys, time, msgspec\n"
        "print(sys.argv[1:], os.environ['FAIRLEAD_JOB'], os.getsid(0) == os.getpid(),"
        " os.getcwd(), __name__, sys.path[0], os.environ.get('AGENT_SECRET'))\n"
        "print('random', random.random())\n"
        "print('tokens', open('/proc/self/environ').read().count(os.environ['FAIRLEAD_TOKEN']))\n"
        "if os.fork(): time.sleep(1000)\n"
        "os.setsid(); time.sleep(1001)\n"
    )

    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state, "--prefork", "msgspec,random") as (server, agent):
            command = (sys.executable, str(script), "--lr", "0.1")
            more = {"prefork": True, "env": {"PATH": "/bin"}}
            jobs = [
                plain(n, *command, cwd=str(tmp_path), **more, colocated=((3 - n, 1),))
                for n in (1, 2)
            ]
            await server.order(*jobs)
            message = [await server.until_output(n, "tokens") for n in (1, 2)]
            expected = f"['--lr', '0.1'] 1 True {tmp_path} __main__ {tmp_path} None"
            assert expected in message[0]
            assert "tokens 1" in message[0]
            assert message[0].splitlines()[1] != message[1].splitlines()[1]
            below = agent.spawner.children(recursive=True)
            forks = [p for p in below if "fairlead.cluster.agent.zygote" in p.cmdline()]
            assert len(forks) == 1 + 4  # the prepared process, and those that look like it
            await server.order(plain(3, "sh", "-c", "exit 4", prefork=True))  # not Python: exec'd
            assert (await server.until_state((3, 1), "ended")).exit_code == 4
            for n in (1, 2):
                assert (await server.until_state((n, 1), "ended")).exit_code == -15
            assert len(agent.spawner.children(recursive=True)) == 2  # and the warden
            raises = tmp_path / "raises.py"
            raises.write_text("raise ValueError('no luck')\n")
            await server.order(plain(4, sys.executable, str(raises), prefork=True))
            status = await server.until_state((4, 1), "ended")
            assert (status.exit_code, status.reason) == (1, "ValueError: no luck (raises.py:1)")

    asyncio.run(scenario())


def test_forked_ranks_too_are_found_when_all_above_them_are_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        script = tmp_path / "fork.py"
        script.write_text(
            "import os, time\nprint('up')\nif not os.fork(): os.setsid()\ntime.sleep(99)\n"
        )
        async with cluster(state, "--prefork", "msgspec") as (server, agent):
            await server.order(plain(1, sys.executable, str(script), prefork=True, grace_s=0.5))
            await server.until_output(1, "up")
            spawner = agent.spawner
            below = spawner.children(recursive=True)
            os.kill(spawner.pid, signal.SIGSTOP)
            os.kill(agent.pid, signal.SIGKILL)
            os.kill(spawner.pid, signal.SIGKILL)
            await agent.wait()
            agent.start()
            await server.until(lambda: len(server.registered) == 2)
            assert await gone(lambda: not any(map(lives, below)))

    asyncio.run(scenario())


def test_a_full_disk_delays_starts_and_ends_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        (state / "starts").mkdir(parents=True)
        async with cluster(state) as (server, _):
            await server.order(plain(1, "sleep", "1000"))
            await server.until_state((1, 1), "running")
            hidden = state / "hidden"
            (state / "starts").rename(hidden)  # records cannot be written, as on a full disk
            await server.order(plain(1, "sleep", "1000"), plain(2, "true", ranks=SECOND))
            await server.until(lambda: (2, 1) in server.statuses and server.statuses[2, 1].reason)
            assert server.statuses[2, 1].state == "starting"
            assert "No such file" in server.statuses[2, 1].reason
            assert server.statuses[1, 1].state == "running"
            hidden.rename(state / "starts")
            assert (await server.until_state((2, 1), "ended")).completed

    asyncio.run(scenario())


def test_jobs_end_with_their_leases_when_the_agent_hangs(tmp_path: Path) -> None:
    """The server counts on it: it starts them elsewhere then."""

    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state, lease_s=2.0) as (server, agent):
            await two_jobs(server)
            own = agent.own
            os.kill(agent.pid, signal.SIGSTOP)
            try:
                assert await gone(lambda: {p.pid for p in processes_of(state)} == own)
            finally:
                os.kill(agent.pid, signal.SIGCONT)
            for key in ((1, 1), (2, 1)):
                status = await server.until_state(key, "ended")
                assert (status.reason, status.failure) == ("lease expired", None)

    asyncio.run(scenario())
