"""Whether a node is fit for jobs: each check finds what it is for, and nothing else."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cluster.agent.cluster import (
    cluster,
    gone,
    plain,
)

from fairlead.cluster.agent import health
from fairlead.cluster.agent.checkpoint_root import MARK
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.gpu_health import GpuHealth
from fairlead.cluster.agent.health import (
    ClockSkew,
    HealthChecks,
    HealthOptions,
    disk_problems,
    job_directory_problems,
    memory_problems,
    try_start,
)
from fairlead.cluster.protocol.messages import StartCheck

FAKE = NodeDevices("v100", (0,), simulated_devices=True)


def health_checks(
    command: str = "", folder: Path | None = None, interval_s: float = 60.0
) -> HealthChecks:
    """interval_s: between checks; what the command has ended within, if not within health.LIMIT_S."""
    folders = {folder} if folder is not None else set()
    return HealthChecks(HealthOptions(command, interval_s), FAKE, lambda: folders, list)


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    assert disk_problems(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    gone = tmp_path / "gone"
    assert disk_problems(gone) == [f"cannot write to {gone}: No such file or directory"]
    full = disk_problems(Path("/dev/full"))
    assert full == ["cannot write to /dev/full: Not a directory"]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    monkeypatch.setattr(health, "MIN_DISK_BYTES", 2 * free)
    (problem,) = disk_problems(tmp_path)
    assert problem.startswith(f"the disk of {tmp_path} is full: ")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MemTotal: 1024000 kB\nMemAvailable: 512000 kB\n", []),
        (
            "MemTotal: 1024000 kB\nMemAvailable: 10240 kB\n",
            ["memory is exhausted: 10 of 1000 MB available"],
        ),
        ("something else\n", []),
    ],
)
def test_exhausted_memory_is_told(tmp_path: Path, text: str, found: list[str]) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert memory_problems(tmp_path / "meminfo") == found


def test_a_clock_that_is_off_is_told() -> None:
    clock = ClockSkew()
    assert clock.problems() == []
    clock.learn(time.time(), 0.0)
    assert clock.problems() == []
    clock.learn(time.time() + 60.0, 0.0)
    assert clock.problems() == ["the clock is 60 s behind the server's"]
    clock.learn(0.0, 0.0)
    assert clock.problems() == ["the clock is 60 s behind the server's"], "nothing new was said"
    clock.learn(time.time() - 60.0, 0.0)
    assert clock.problems() == ["the clock is 60 s ahead of the server's"]


def test_a_clock_is_not_off_because_an_answer_was_late() -> None:
    clock = ClockSkew()
    clock.learn(time.time() - 9.0, 10.0)
    assert clock.problems() == []
    clock.learn(time.time() - 9.0, 2.0)
    assert clock.problems() == ["the clock is 8 s ahead of the server's"]


def test_a_node_is_well_again_when_the_server_s_clock_is_right_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", "--health-interval", "1") as (server, _):
            await server.until(lambda: server.newest is not None)
            server.ahead_s = 600.0
            await server.until(lambda: server.newest and server.newest.problems)
            assert server.newest is not None
            assert server.newest.problems == ("the clock is 600 s behind the server's",)
            server.ahead_s = 0.0
            await server.until(lambda: server.newest and not server.newest.problems)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("command", "interval_s", "problem"),
    [
        ("exit 0", 60.0, ()),
        ("echo fine; echo fan 3 stands still; exit 4", 60.0, "ended with 4: fan 3 stands still"),
        ("exit 1", 60.0, "ended with 1"),
        ("sleep 1000 & sleep 1000", 1.0, "has not ended within 1 s"),
    ],
)
def test_what_the_operators_command_says(command: str, interval_s: float, problem: str) -> None:
    found = asyncio.run(health_checks(command, interval_s=interval_s).check())
    assert found.problems == ((f"the health command {problem}",) if problem else ())


def test_a_check_that_hangs_is_told_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(health, "LIMIT_S", 2.0)
    monkeypatch.setattr(health, "memory_problems", lambda: ["" * hangs.wait(600.0)])
    checks = health_checks("exit 1")
    found = asyncio.run(checks.check())
    assert found.problems[0].startswith("memory: no answer for ")
    assert found.problems[1] == "the health command ended with 1"
    hangs.set()


def test_a_directory_of_a_job_that_hangs_is_told_of_that_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, own, dead = threading.Event(), tmp_path / "own", tmp_path / "dead"
    own.mkdir()
    dead.mkdir()

    def check(path: Path, *, of_job: bool = False) -> list[str]:
        if path == dead:
            hangs.wait(600.0)
        return disk_problems(path, of_job=of_job)

    monkeypatch.setattr(health, "LIMIT_S", 2.0)
    monkeypatch.setattr(health, "disk_problems", check)
    told: list[Mapping[Path, str]] = []
    checks = HealthChecks(
        HealthOptions("", 1.0), FAKE, lambda: {own}, list,
        of_jobs=lambda: {p: partial(job_directory_problems, p) for p in (own, dead)},
        on_job_directories=told.append,
    )  # fmt: skip

    async def until(dead_answers: bool) -> None:
        async with asyncio.timeout(180.0):
            while not told or (dead not in told[-1]) != dead_answers:
                assert (await checks.check()).problems == (), "the node is well"
                await asyncio.sleep(0.05)

    asyncio.run(until(dead_answers=False))
    assert list(told[-1]) == [dead]
    assert told[-1][dead].startswith(f"checkpoint directory '{dead}': no answer for ")
    hangs.set()
    asyncio.run(until(dead_answers=True))


class _NvmlError(Exception):
    pass


class _Gpus:
    """Two devices, as NVML would tell of them."""

    def __init__(self) -> None:
        self.answers = {4: True, 6: True}
        self.errors = {4: 0, 6: 0}
        self.xids: list[tuple[int, int]] = []

    def memory(self, handle: int) -> None:
        if not self.answers[handle]:
            raise _NvmlError("GPU is lost")

    def event(self, *_: object) -> SimpleNamespace:
        if not self.xids:
            raise _NvmlError("Timeout")
        device, xid = self.xids.pop(0)
        return SimpleNamespace(device=device, eventData=xid)

    def nvml(self) -> SimpleNamespace:
        """The functions of pynvml that are used."""
        return SimpleNamespace(
            NVMLError=_NvmlError,
            NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
            NVML_VOLATILE_ECC=0,
            nvmlEventTypeXidCriticalError=8,
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetMemoryInfo=self.memory,
            nvmlDeviceGetTotalEccErrors=lambda handle, *_: self.errors[handle],
            nvmlEventSetCreate=lambda: self,
            nvmlDeviceRegisterEvents=lambda *_: None,
            nvmlDeviceGetIndex=lambda device: device,
            nvmlEventSetWait_v2=self.event,
        )


def test_devices_that_nvml_says_are_broken() -> None:
    nvml = _Gpus()
    gpus = GpuHealth((4, 6), nvml.nvml())
    assert gpus.problems() == []
    nvml.xids = [(4, 13), (6, 79)]
    assert gpus.problems() == ["device 1: Xid 79"], "13 is what a job does to itself"
    assert gpus.problems() == ["device 1: Xid 79"], "it stays"
    nvml.answers[4] = False
    nvml.errors[6] = 3
    assert gpus.problems() == [
        "device 0: does not answer: GPU is lost",
        "device 1: 3 uncorrected memory errors",
    ]
    assert gpus.dead == (0, 1)


def test_a_test_start_finds_a_broken_path(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    assert try_start(StartCheck(number=1, programs=("sh", "no-such-thing")), env, tmp_path) == ""
    assert try_start(StartCheck(number=1), env, tmp_path) == ""
    missing = try_start(StartCheck(number=1, programs=("no-such-thing",)), env, tmp_path)
    assert missing == "command not found: 'no-such-thing'"
    broken = try_start(StartCheck(number=1), {"PATH": "/nowhere"}, tmp_path)
    assert broken.startswith("a test start failed: ")


def test_an_agent_tells_what_it_finds_and_makes_test_starts(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = f"import os, sys; sys.exit('it burns' if os.path.exists('{tmp_path}/ill') else 0)"
        command = f'{sys.executable} -S -c "{script}"'
        options = ("--health", command, "--health-interval", "0.2")
        async with cluster(tmp_path / "s", *options) as (server, _):
            await server.until(lambda: server.newest is not None)
            (tmp_path / "ill").touch()
            await server.until(lambda: server.newest and server.newest.problems)
            assert server.newest is not None
            assert server.newest.problems == ("the health command ended with 1: it burns",)
            (tmp_path / "ill").unlink()
            await server.until(lambda: server.newest and not server.newest.problems)
            server.check = StartCheck(number=7, programs=("no-such-thing",))
            await server.until(lambda: server.newest and server.newest.checked == 7)
            assert server.newest.check_problem == "command not found: 'no-such-thing'"

    asyncio.run(scenario())


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_node_where_a_rank_cannot_do_its_work_does_not_pass(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, _):
            await server.until(lambda: server.newest is not None)

            async def problem(number: int, checkpoints: str = "") -> str:
                server.check = StartCheck(number=number, checkpoints=checkpoints)
                await server.until(lambda: server.newest and server.newest.checked == number)
                assert server.newest is not None
                return server.newest.check_problem

            assert await problem(1, str(tmp_path / "all")) == ""
            assert os.listdir(tmp_path / "all") == [MARK], "nothing else of it stays"
            assert list((state / "logs").glob("*")) == []
            assert not server.statuses, "the server is told of no such job"
            (state / "agent.sock").unlink()
            (state / "agent.sock").mkdir()
            (state / "agent.sock" / "file").touch()
            assert await gone(lambda: (state / "agent.sock").is_socket()), "it is made anew"
            (tmp_path / "file").touch()
            assert "Not a directory" in await problem(2, str(tmp_path / "file"))
            (client,) = state.glob("client-*/fairlead/client")
            _edit(client / "agent_link.py", "CONNECT_TIMEOUT_S = 30.0", "CONNECT_TIMEOUT_S = 1.0")
            _edit(client / "agent_connection.py", "made.connect(self._path)", "raise OSError")
            assert "exit code 75: the agent does not answer at /" in await problem(3)
            (client / "lease.py").write_text("raise OSError('the disk is worn out')")
            assert "a test rank failed: OSError: the disk is worn out" in await problem(4)

    asyncio.run(scenario())


def test_a_start_that_finds_no_room_says_why_and_begins_once_there_is_some(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state, "--health-interval", "1") as (server, _):
            (state / "starts").rename(tmp_path / "starts")
            (state / "starts").write_text("in the way")
            await server.order(plain(1, "true"))
            await server.until(lambda: (1, 1) in server.statuses and server.statuses[1, 1].obstacle)
            status = server.statuses[1, 1]
            assert (status.state, status.reason) == ("starting", status.obstacle)
            assert "Not a directory" in status.obstacle
            told = f"cannot write to {state / 'starts'}: Not a directory"
            await server.until(lambda: server.newest and told in server.newest.problems)
            reports = server.reports
            await server.until(lambda: server.reports > reports + 10)  # it is tried meanwhile
            (state / "starts").unlink()
            (tmp_path / "starts").rename(state / "starts")
            status = await server.until_state((1, 1), "ended")
            assert (status.exit_code, status.obstacle) == (0, "")
            await server.until(lambda: server.newest and not server.newest.problems)

    asyncio.run(scenario())
    assert capfd.readouterr().err.count("job 1 cannot start yet: ") == 1


def test_what_stands_in_place_of_the_folder_of_output_is_put_aside_by_the_checks(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state, "--health-interval", "1"):
            assert await gone(lambda: (state / "logs").is_dir())
            (state / "logs").rmdir()
            os.mkfifo(state / "logs")
            assert await gone(lambda: (state / "logs").is_dir())

    asyncio.run(scenario())


def test_before_the_first_check_an_agent_does_not_say_that_all_is_well(tmp_path: Path) -> None:
    async def scenario() -> None:
        checked = tmp_path / "checked"
        command = f"while [ ! -e {checked} ]; do sleep 0.05; done; echo it burns; exit 1"
        options = ("--health", command, "--health-interval", "20")
        async with cluster(tmp_path / "s", *options) as (server, _):
            await server.until(lambda: server.reports > 2)
            assert server.newest is not None
            assert not server.newest.health_known
            checked.touch()
            await server.until(lambda: server.newest and server.newest.health_known)
            assert server.newest.problems == ("the health command ended with 1: it burns",)

    asyncio.run(scenario())
