"""Limits of what attempts may use. What the kernel does with them is its own: here is what it is told, in a
directory that looks like its, and how groups of its live and end, where it has some."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import cluster, plain

from fairlead.cluster.agent.cgroups import AttemptGroup, DeviceLimits, NodeGroups
from fairlead.cluster.protocol.messages import Rank
from fairlead.errors import ConfigError

LIMITS = DeviceLimits(memory_gb=16.0, cpus=2.5)


def base(folder: Path, controllers: str = "cpuset cpu io memory pids") -> Path:
    """What a group of the kernel's looks like, as far as it is read."""
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(controllers + "\n")
    (folder / "cgroup.type").write_text("domain\n")
    return folder


def test_a_group_is_limited_by_the_devices_of_its_attempt(tmp_path: Path) -> None:
    groups = NodeGroups(LIMITS, "n1", base(tmp_path / "g"))
    groups.open()
    assert (tmp_path / "g" / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (tmp_path / "g" / "fairlead-agent" / "cgroup.procs").read_text() == "0"
    assert groups.of(7, 2, devices=0) is None, "a test rank holds none"
    group = groups.of(7, 2, devices=2)
    assert group is not None
    group.make()
    folder = tmp_path / "g" / "n1-7-2"
    told = {path.name: path.read_text() for path in folder.iterdir()}
    assert told == {
        "memory.max": "32000000000", "memory.swap.max": "0", "memory.oom.group": "1",
        "cpu.max": "500000 100000", "pids.max": "8192",
    }  # fmt: skip
    assert group.exceeded == ""
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 1\noom_kill 1\n")
    assert group.exceeded == "used more than the 32 GB that this node gives to 2 devices"


def test_only_the_limits_that_are_wanted_are_set(tmp_path: Path) -> None:
    groups = NodeGroups(DeviceLimits(cpus=1.0), "n1", base(tmp_path / "g", "cpu pids"))
    groups.open()
    group = groups.of(1, 1, devices=1)
    assert group is not None
    group.make()
    assert {path.name for path in Path(group.path).iterdir()} == {"cpu.max", "pids.max"}
    NodeGroups(DeviceLimits(), "n1", tmp_path / "nowhere").open()


def test_a_kernel_that_cannot_limit_is_told_of_at_the_start(tmp_path: Path) -> None:
    folder = base(tmp_path / "g", "cpu pids")
    with pytest.raises(ConfigError) as caught:
        NodeGroups(LIMITS, "n1", folder).open()
    assert str(caught.value) == (
        f"--memory-per-device: needs cgroup v2 with the memory controller, and {folder} has only cpu, pids "
        "(with systemd: Delegate=yes in the agent's unit)"
    )
    with pytest.raises(ConfigError, match=r"--cpus-per-device: .* has none \(with"):
        NodeGroups(DeviceLimits(cpus=1.0), "n1", tmp_path / "nowhere").open()


def test_an_agent_without_the_controllers_does_not_start(tmp_path: Path) -> None:
    folder = base(tmp_path / "g", "cpu")
    arguments = ["--server", "127.0.0.1:1", "--devices", "v100=1", "--simulated-devices"]
    limits = ["--memory-per-device", "8", "--cgroup", str(folder), "--state", str(tmp_path / "s")]
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", "agent", "--inside-job", *arguments, *limits],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--memory-per-device: needs cgroup v2 with the memory controller" in done.stderr


def test_a_job_is_in_its_group_and_its_end_says_why(tmp_path: Path) -> None:
    folder = base(tmp_path / "g")

    async def scene() -> None:
        limits = ("--memory-per-device", "16", "--cgroup", str(folder))
        async with cluster(tmp_path / "s", *limits) as (server, _):
            both = (Rank(rank=0, devices=(0, 1)),)
            await server.order(plain(1, "sh", "-c", "echo $$; exec sleep 600", ranks=both))
            pid = int(await server.until_output(1, "\n"))
            group = folder / "n1-1-1"
            assert (group / "cgroup.procs").read_text() == "0", "it has put itself there"
            assert (group / "memory.max").read_text() == "32000000000"
            (group / "memory.events").write_text(
                "oom_kill 1\n"
            )  # as the kernel says it, then does it
            os.kill(pid, signal.SIGKILL)
            ended = await server.until_state((1, 1), "ended")
            assert ended.reason == (
                "killed by signal 9 (SIGKILL): used more than the 32 GB that this node gives to 2 devices"
            )

    asyncio.run(scene())


@pytest.fixture
def real() -> Iterator[Path]:
    """A group of the kernel's, with whatever controllers it has."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    folder = Path(found[0] if found else "/nowhere", f"fairlead-test-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as problem:
        pytest.skip(f"no group of the kernel's can be made here: {problem.strerror}")
    yield folder
    NodeGroups(LIMITS, "n1", folder).remove_left()
    folder.rmdir()


def test_all_that_was_started_in_a_group_ends_with_it(real: Path) -> None:
    group = AttemptGroup(path=str(real / "n1-1-1"), limits=LIMITS, devices=1)
    Path(group.path).mkdir()
    assert not group.is_populated
    hides = "import os, time; os.fork() or os.setsid(); print(flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", hides], stdout=subprocess.PIPE, preexec_fn=group.enter
    )
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() + process.stdout.readline() == b"\n\n"
        members = list(map(int, (Path(group.path) / "cgroup.procs").read_text().split()))
        assert len(members) == 2
        assert group.is_populated
        if not (Path(group.path) / "cgroup.kill").exists():
            pytest.skip("this kernel has no cgroup.kill")
        group.kill()
        assert process.wait() == -signal.SIGKILL
    group.remove()
    assert not Path(group.path).exists()


def test_what_an_earlier_agent_has_left_is_ended(real: Path) -> None:
    group = AttemptGroup(path=str(real / "n1-9-1"), limits=LIMITS, devices=1)
    Path(group.path).mkdir()
    process = subprocess.Popen(["sleep", "600"], preexec_fn=group.enter)
    if not (Path(group.path) / "cgroup.kill").exists():
        process.kill()
        pytest.skip("this kernel has no cgroup.kill")
    NodeGroups(LIMITS, "n1", real).remove_left()
    assert process.wait() == -signal.SIGKILL
    assert not Path(group.path).exists()
