import asyncio
import fcntl
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from tests.cluster.agent.cluster import (
    RANK,
    TOKEN,
    RunningAgent,
    Server,
    cluster,
    job,
    plain,
    processes_of,
)
from tests.cluster.agent.conftest import Play

from fairlead.client.messages import (
    FromAgent,
    Grant,
    Hello,
    Loaded,
    RankFrames,
    RankRefused,
    frame,
)
from fairlead.cluster.agent.device_claim import NOT_ENDED
from fairlead.cluster.protocol.messages import Rank

SLEEP = ("sleep", "1000")


def test_a_job_trains_stops_and_says_how_long_that_took(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(job(11))
        await server.until_state((11, 1), "running")
        await server.until(lambda: server.statuses[11, 1].step > 7)
        await server.order(reasons={11: "paused"})
        status = await server.until_state((11, 1), "ended")
        assert (status.exit_code, status.completed, status.reason) == (0, False, "paused")
        assert (status.loaded_step, status.load_s, status.save_s) == (5, 0.25, 0.5)
        assert status.step == status.saved_step > 7
        assert min(status.wait_s, status.start_s, status.stop_s) >= 0
        assert status.ran_s > 0
        output = await server.until_output(11, "leaves after step")
        assert "Grant(" in output
        assert "StopRank(reason='paused', park=False)" in output
        await server.order()
        await server.until(lambda: not server.statuses)

    play(scenario)


def test_a_job_that_has_done_its_steps_is_completed(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(job(21, total_steps=9), plain(22, "true"), plain(23, "false"))
        status = await server.until_state((21, 1), "ended")
        assert (status.completed, status.step, status.exit_code) == (True, 9, 0)
        assert (await server.until_state((22, 1), "ended")).completed
        failed = await server.until_state((23, 1), "ended")
        assert (failed.completed, failed.exit_code) == (False, 1)
        assert failed.reason == "exit code 1"

    play(scenario)


def test_ranks_get_no_secret_of_the_agent_and_know_who_they_are(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        ranks = tuple(Rank(rank=i, devices=(i,)) for i in range(2))
        show = ("sh", "-c", "env; sleep 1000")
        await server.order(
            plain(37, *show, ranks=ranks, world_size=2, env={"RANK": "9", "MINE": "yes"})
        )
        output = await server.until_output(37, "PATH=", rank=1)
        await server.until_output(37, "PATH=", rank=0)
        env = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        assert env["RANK"] == env["LOCAL_RANK"] == env["FAIRLEAD_DEVICES"] == "1"
        assert (env["WORLD_SIZE"], env["MINE"], env["CUDA_VISIBLE_DEVICES"]) == ("2", "yes", "")
        assert env["FAIRLEAD_RANK_SYNC"].split(":")[0] == env["MASTER_ADDR"] == "127.0.0.1"
        assert "FAIRLEAD_SOCKET" not in env
        assert env["FAIRLEAD_ACCELERATOR"] == "v100"
        assert env["FAIRLEAD_CHECKPOINT_DIR"] == str(agent.state / "checkpoints" / "37")
        assert TOKEN not in output
        assert "AGENT_SECRET" not in output

    play(scenario)


def test_what_cannot_be_started_says_why(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        far = (Rank(rank=0, devices=(9,)),)
        await server.order(
            plain(41, "no-such-command"),
            plain(42, "true", cwd="/no/such/folder", checkpoint_dir="/tmp"),
            plain(43, "true", ranks=far),
            plain(44, "true", env={"A": "x\0y"}),
            plain(45, "true", checkpoint_dir="/proc/none"),
        )
        why = {}
        for number in range(41, 46):
            status = await server.until_state((number, 1), "ended")
            assert status.exit_code == 127
            why[number] = status.reason
        assert why[41] == "command not found: 'no-such-command'"
        assert why[42] == "working directory '/no/such/folder': No such file or directory"
        assert why[43] == "job 43: rank 0: device 9 is not one of the 2 of this node"
        assert "null" in why[44]
        assert "checkpoint directory '/proc/none'" in why[45]

    play(scenario)


def test_a_job_that_does_not_stop_is_killed_with_all_its_children(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        naps = [100_000 + 10 * os.getpid() + n for n in range(5)]  # as no other test sleeps
        brood = (
            "trap '' TERM; setsid sleep {} & (setsid setsid sleep {} &); "
            "env -i setsid sleep {} & sleep {} & echo born; wait; sleep {}"
        ).format(*naps)
        await server.order(
            job(51, command=(sys.executable, str(RANK), "stubborn"), grace_s=0.3),
            plain(52, "bash", "-c", brood, ranks=(Rank(rank=0, devices=(1,)),), grace_s=0.3),
        )
        await server.until_state((51, 1), "running")
        await server.until_output(52, "born")
        await server.order(reasons={51: "cancelled"})
        for number, why in ((51, " (cancelled)"), (52, "")):
            status = await server.until_state((number, 1), "ended")
            assert status.exit_code == -9
            reason = f"killed: did not end within 0.3 s of being told to stop{why}"
            assert status.reason.startswith(reason)
        own = {"fairlead.cluster.agent.spawner", "fairlead.cluster.agent.warden", "agent"}
        left = [p for p in processes_of(agent.state) if not own & set(p.cmdline())]
        assert left == []
        assert not [n for n in naps if _sleeps(n)]

    play(scenario)


def test_jobs_end_when_their_lease_is_not_renewed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=3.0) as (server, _):
            await server.order(job(1), plain(2, *SLEEP, ranks=(Rank(rank=0, devices=(1,)),)))
            await server.until_state((1, 1), "running")
            await server.until_state((2, 1), "running")
            await asyncio.sleep(3.5)  # renewed by reports
            assert {status.state for status in server.statuses.values()} == {"running"}
            server.grants = False
            for number, code in ((1, 0), (2, -15)):  # the first one has saved, and left its loop
                status = await server.until_state((number, 1), "ended")
                assert (status.reason, status.exit_code) == ("lease expired", code)
            assert "StopRank(reason='lease expired', park=False)" in await server.until_output(
                1, "Stop"
            )

    asyncio.run(scenario())


def test_reports_come_as_often_as_the_newest_answer_says(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        before, often = server.reports, server.heartbeat_s
        await server.until(lambda: server.reports >= before + 3)
        server.heartbeat_s = 60.0
        await server.until(lambda: server.reports >= before + 4)
        await asyncio.sleep(0.5)
        quiet = server.reports
        await asyncio.sleep(1.5)
        assert server.reports == quiet
        server.heartbeat_s = often
        await server.order(plain(62, *SLEEP))  # what is new is told at once
        await server.until_state((62, 1), "running")
        quiet = server.reports
        await server.until(lambda: server.reports >= quiet + 3)

    play(scenario)


def test_orders_are_followed_at_once_where_news_shall_pause(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        def follows() -> bool:
            return server.newest is not None and server.newest.orders_seq == server.orders.seq

        await server.until(follows)
        server.gap_s = server.heartbeat_s = 1000.0  # longer than anybody waits here
        for number in (1, 2, 3):
            await server.order(plain(number, *SLEEP))
            await server.until(follows)
        server.gap_s, server.heartbeat_s = 0.0, 0.2
        await server.order()
        await server.until(
            lambda: {status.state for status in server.statuses.values()} == {"ended"}
        )
        await server.order()
        await server.until(lambda: not server.statuses)

    play(scenario)


def test_nothing_starts_before_its_lease_is_granted(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        server.grants = False
        await server.order(plain(61, *SLEEP))
        await server.until_state((61, 1), "starting")
        await asyncio.sleep(0.5)
        assert server.statuses[61, 1].wait_s == -1
        server.grants = True
        await server.until_state((61, 1), "running")

    play(scenario)


def test_old_and_doubled_orders_do_no_harm(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(plain(71, *SLEEP))
        await server.until_state((71, 1), "running")
        newest = server.orders
        for late in (0, 0, newest.seq, newest.seq):
            server.orders = type(newest)(seq=late, desired=newest.desired if late else ())
            await asyncio.sleep(0.3)
        assert server.statuses[71, 1].state == "running"
        server.orders = newest
        await server.order()
        await server.until_state((71, 1), "ended")
        await server.order()
        await server.until(lambda: not server.statuses)
        await server.order(plain(71, *SLEEP))  # an attempt is used once
        await asyncio.sleep(0.5)
        assert server.statuses == {}

    play(scenario)


def test_who_waits_for_a_device_says_so(play: Play) -> None:
    """It is by this that the server knows that the time is not the job's."""

    async def scenario(server: Server, agent: RunningAgent) -> None:
        stubborn = ("bash", "-c", "trap '' TERM; echo up; while :; do sleep 1; done")
        await server.order(plain(1001, *stubborn, grace_s=3.0))
        await server.until_output(1001, "up")
        await server.order(plain(1002, *SLEEP))  # in its place
        await server.until(lambda: (1002, 1) in server.statuses)
        await server.until(lambda: server.statuses[1002, 1].reason == NOT_ENDED)
        assert server.statuses[1002, 1].state == "starting"
        assert server.statuses[1002, 1].obstacle == ""
        await server.until_state((1002, 1), "running")
        assert server.statuses[1002, 1].reason == ""

    play(scenario)


def test_a_device_is_handed_over_when_its_holder_is_gone_and_shared_by_a_pair(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        slow = ("bash", "-c", "trap 'sleep 0.7; exit 0' TERM; echo up; sleep 1000 & wait")
        await server.order(plain(81, *slow))
        await server.until_output(81, "up")
        pair = plain(82, *SLEEP, colocated=((83, 1),)), plain(83, *SLEEP, colocated=((82, 1),))
        await server.order(*pair)  # in its place
        await server.until(lambda: len(server.statuses) == 3)
        assert server.statuses[82, 1].state == server.statuses[83, 1].state == "starting"
        await server.until_state((82, 1), "running")
        await server.until_state((83, 1), "running")
        assert server.statuses[81, 1].state == "ended"
        assert server.statuses[82, 1].wait_s > 0.5
        seats = [agent.state / "locks" / f"device-0-{seat}.lock" for seat in range(2)]
        assert [_is_locked(seat) for seat in seats] == [True, True]
        await server.order(plain(82, *SLEEP, attempt=2))  # the same job again, next attempt
        await server.until_state((82, 2), "running")
        await server.until_state((82, 1), "ended")

    play(scenario)


def test_two_starts_share_a_device_only_where_the_server_says_so(play: Play) -> None:
    async def scenario(server: Server, _: RunningAgent) -> None:
        await server.order(plain(86, *SLEEP))
        await server.until_state((86, 1), "running")
        await server.order(plain(86, *SLEEP), plain(87, *SLEEP))
        await server.until(lambda: (87, 1) in server.statuses)
        reports = server.reports
        await server.until(lambda: server.reports > reports + 5)
        assert server.statuses[87, 1].state == "starting", "they merely overlap"
        company = plain(88, *SLEEP, colocated=((86, 1),))
        await server.order(plain(86, *SLEEP), company)
        await server.until_state((88, 1), "running")
        assert server.statuses[86, 1].state == "running"

    play(scenario)


def test_a_lock_file_that_a_stranger_holds_keeps_the_device(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        files = [(agent.state / "locks" / f"device-0-{seat}.lock").open("w") for seat in range(2)]
        for file in files:
            fcntl.flock(file, fcntl.LOCK_EX)
        await server.order(
            plain(91, *SLEEP), plain(92, *SLEEP, ranks=(Rank(rank=0, devices=(1,)),))
        )
        await server.until_state((92, 1), "running")
        assert server.statuses[91, 1].state == "starting"
        for file in files:
            file.close()
        await server.until_state((91, 1), "running")

    play(scenario)


def test_when_one_rank_fails_the_others_end(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        ranks = tuple(Rank(rank=i, devices=(i,)) for i in range(2))
        both = "if [ $RANK = 1 ]; then echo 'error: bad luck' >&2; exit 3; fi; trap '' TERM; sleep 1000"
        await server.order(
            job(101, command=("bash", "-c", both), ranks=ranks, world_size=2, grace_s=0.3)
        )
        status = await server.until_state((101, 1), "ended")
        assert (status.exit_code, status.reason) == (3, "rank 1: exit code 3: error: bad luck")

    play(scenario)


def test_ranks_on_several_nodes_meet(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        show = (
            "sh",
            "-c",
            "echo at $MASTER_ADDR:$MASTER_PORT/$FAIRLEAD_RANK_SYNC+$FAIRLEAD_RANK_SYNC_TOKEN; sleep 1000",
        )
        second = job(
            112,
            command=show,
            ranks=(Rank(rank=1, devices=(1,)),),
            world_size=2,
            has_rank_0=False,
            grace_s=0.3,
        )
        await server.order(plain(111, *show, world_size=2), second)
        await server.until(lambda: (111, 1) in server.statuses and server.statuses[111, 1].address)
        host, port, gang, secret = server.statuses[111, 1].address.rsplit(":", 3)
        await server.until_output(111, f"at {host}:{port}/{host}:{gang}+{secret}")
        assert server.statuses[112, 1].state == "starting"  # it does not know yet where rank 0 is
        told = msgspec.structs.replace(second, master="127.0.0.9:5:6:x")
        await server.order(plain(111, *show, world_size=2), told)
        await server.until_output(112, "at 127.0.0.9:5/127.0.0.9:6+x", rank=1)

    play(scenario)


def test_strangers_on_the_socket_change_nothing(play: Play) -> None:
    async def answers(path: str, data: bytes) -> list[FromAgent]:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(data)
        async with asyncio.timeout(120):
            data = await reader.read()
        writer.close()
        await writer.wait_closed()
        frames: RankFrames[FromAgent] = RankFrames(FromAgent)
        return list(frames.feed(data))

    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(job(121))
        await server.until_state((121, 1), "running")
        path = str(agent.state / "agent.sock")
        assert os.stat(path).st_mode & 0o777 == 0o600
        half = frame(Hello(121, 1, "\ud800", 1))  # of a pair of surrogates: JSON holds it
        for data in (b"\xff" * 100, b"\x05\0\0\0hello", frame(Loaded(1, 3, -1.0)), half):
            assert await answers(path, data) in (
                [],
                [RankRefused("the first message must be Hello")],
            )
        for hello in (Hello(121, 1, "guess", 1), Hello(121, 2, "guess", 1), Hello(9, 1, "", 1)):
            (answer,) = await answers(path, frame(hello))
            assert isinstance(answer, RankRefused)
        (answer,) = await answers(path, frame(Hello(121, 1, "", 1, protocol=1, version="0.0.9")))
        assert isinstance(answer, RankRefused)
        assert answer.reason.startswith("the job's fairlead-client 0.0.9 speaks protocol 1, this")
        step = server.statuses[121, 1].step
        await server.until(lambda: server.statuses[121, 1].step > step)

    play(scenario)


def test_who_outlives_a_start_out_of_reach_may_not_go_on(play: Play) -> None:
    """As a container of a daemon does when the command that started it is killed."""

    async def scenario(server: Server, agent: RunningAgent) -> None:
        show = ("sh", "-c", "env; sleep 1000")
        await server.order(job(122, command=show, grace_s=0.0))
        output = await server.until_output(122, "FAIRLEAD_TOKEN=")
        token = output.partition("FAIRLEAD_TOKEN=")[2].splitlines()[0]
        reader, writer = await asyncio.open_unix_connection(str(agent.state / "agent.sock"))
        writer.write(frame(Hello(122, 1, token, 1)))
        frames: RankFrames[FromAgent] = RankFrames(FromAgent)
        heard: list[FromAgent] = []
        heard += frames.feed(await reader.read(4096))
        assert isinstance(heard[0], Grant)
        await server.order()
        async with asyncio.timeout(120):
            while not any(isinstance(message, RankRefused) for message in heard):
                heard += frames.feed(await reader.read(4096))
        writer.close()
        await writer.wait_closed()
        assert heard[-1] == RankRefused("this attempt of the job is over")

    play(scenario)


def test_a_long_state_directory_still_has_a_socket(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / ("d" * 120)) as (server, _):
            await server.order(job(1))
            await server.until_state((1, 1), "running")

    asyncio.run(scenario())


def test_the_newest_output_is_kept_and_all_offsets_count_from_the_start(play: Play) -> None:
    burst = "".join(f"line {i}\n" for i in range(1000))
    writer = (  # one write each, and quiet between them: a cut may lose what is written meanwhile
        "import os, time\n"
        "for _ in range(4):\n"
        "    os.write(1, ''.join(f'line {i}\\n' for i in range(1000)).encode()); time.sleep(0.8)\n"
        "os.write(1, b'end\\n'); time.sleep(1000)\n"
    )

    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(plain(131, sys.executable, "-c", writer, log_bytes=7_500))
        output = await server.until_output(131, "end\n")
        assert output == 4 * burst + "end\n"
        offsets = server.offsets[131, 1, 0]
        assert sorted(set(offsets)) == offsets
        assert offsets[-1] > 7_500
        kept = (agent.state / "logs" / "131" / "1-0.log").read_text()
        assert 7_500 <= len(kept) < len(output)
        assert output.endswith(kept)

    play(scenario)


@pytest.mark.parametrize(
    ("prefork", "rounds"),
    [(False, 20), (True, 20), pytest.param(False, 250, marks=pytest.mark.long)],
)
def test_many_starts_leave_nothing_behind(tmp_path: Path, prefork: bool, rounds: int) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        script = tmp_path / "nothing.py"
        script.write_text("pass\n")
        command = (sys.executable, str(script)) if prefork else ("true",)
        more = ("--prefork", "msgspec") if prefork else ()
        async with cluster(state, *more) as (server, agent):

            def resources() -> list[tuple[int, int]]:
                return [
                    (p.num_fds(), p.num_threads())
                    for p in (psutil.Process(agent.pid), agent.spawner)
                ]

            async def once(number: int) -> None:
                jobs = [plain(number + i, *command, prefork=prefork) for i in range(2)]
                await server.order(*jobs)
                for one in jobs:
                    assert (await server.until_state((one.job, 1), "ended")).completed

            await once(1000)
            before = resources()
            for i in range(rounds):
                await once(2000 + 2 * i)
            await server.order()
            await server.until(lambda: not server.statuses)
            assert all(
                now[0] <= then[0] and now[1] <= then[1] + 2
                for now, then in zip(resources(), before, strict=True)
            )
            assert list((state / "starts").iterdir()) == []
            assert [p for p in (state / "locks").iterdir() if p.name.startswith("job")] == []

    asyncio.run(scenario())


def _sleeps(seconds: int) -> bool:
    return any(
        p.info["cmdline"] == ["sleep", str(seconds)] for p in psutil.process_iter(["cmdline"])
    )


def _is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.parametrize(
    ("number", "named", "why"),
    [
        (181, {"command": ("python", "a" * 300 + ".py"), "prepare": True}, "can't open file"),
        (183, {"checkpoint_dir": "/".join(["a"] * 1_500)}, ""),
    ],
    ids=["a name that is too long", "too many folders"],
)
def test_what_a_job_names_cannot_end_the_agent(
    play: Play, number: int, named: dict[str, Any], why: str
) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(
            job(number, **named), plain(number + 1, *SLEEP, ranks=(Rank(rank=0, devices=(1,)),))
        )
        failed = await server.until_state((number, 1), "ended")
        assert why in failed.reason
        await server.until_state((number + 1, 1), "running")
        assert agent.process is not None
        assert agent.process.poll() is None

    play(scenario)


def test_whoever_hears_that_a_job_has_ended_has_all_its_output(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            for number in range(1, 6):
                await server.order(plain(number, "sh", "-c", "sleep 0.7; echo the last line"))
                await server.until_state((number, 1), "ended")
                assert server.output.get((number, 1, 0)) == b"the last line\n"

    asyncio.run(scenario())
