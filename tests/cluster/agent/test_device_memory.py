"""Whether a program may stay on its devices while the next one runs there."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.device_memory import DeviceMemory
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.protocol.messages import Assignment, Rank

ONE = Assignment(
    job=1, attempt=2, command=("x",), env={}, cwd="", checkpoint_dir="", world_size=1,
    ranks=(Rank(rank=0, devices=(0,)),), unmanaged=True, suspend=True,
)  # fmt: skip
TWO = replace(ONE, job=2)


@dataclass
class Nvml:
    """A device of 100 bytes, and what processes have there."""

    used: dict[int, int | None]

    class NVMLError(Exception):
        """As of the library."""

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index != 5:
            raise self.NVMLError
        return index

    def nvmlDeviceGetMemoryInfo(self, _: int) -> Any:  # noqa: N802
        return SimpleNamespace(free=100 - sum(one or 0 for one in self.used.values()))

    def nvmlDeviceGetComputeRunningProcesses(self, _: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.used.items()]


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process is the leader of its session."""
    found = [SimpleNamespace(pid=pid, session=pid, parent=1) for pid in (11, 22)]
    monkeypatch.setattr("fairlead.cluster.agent.device_memory.proc.processes", lambda: found)


def fits(memory: DeviceMemory, order: Assignment, pid: int, *followers: Assignment) -> bool:
    attempt = NodeAttempt(order, "token", NodeLease(10.0), 0.0)
    return memory.fits(attempt, [pid], followers)


@pytest.mark.parametrize(("first", "second", "expected"), [(60, 40, True), (60, 41, False)])
def test_both_must_fit_and_the_next_must_be_known(first: int, second: int, expected: bool) -> None:
    nvml = Nvml({11: first})
    memory = DeviceMemory((5,), nvml)
    assert not fits(memory, ONE, 11, TWO), "nothing is known of the next"
    nvml.used = {22: second}
    assert fits(memory, TWO, 22, ONE) == expected, "it was measured when it left"
    nvml.used = {11: first}
    assert fits(memory, ONE, 11, TWO) == expected
    assert not fits(memory, ONE, 11), "nobody knows what is next"


def test_what_is_parked_there_has_its_memory_already() -> None:
    memory = DeviceMemory((5,), Nvml({11: 50, 22: 50}))
    assert fits(memory, ONE, 11, replace(TWO, resumes=3))


@pytest.mark.parametrize("index", [5, 6], ids=["does not tell", "is not there"])
def test_a_device_that_does_not_tell_keeps_nothing(index: int) -> None:
    memory = DeviceMemory((index,), Nvml({11: None}))
    assert not fits(memory, ONE, 11, replace(TWO, resumes=3))
