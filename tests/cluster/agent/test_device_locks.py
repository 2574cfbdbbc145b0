"""Locks of devices that processes have inherited."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cluster.agent.device_locks import DeviceLocks

SLEEPER = (sys.executable, "-c", "import sys; sys.stdin.read()")


@pytest.fixture
def device_locks(tmp_path: Path) -> DeviceLocks:
    return DeviceLocks(lambda device: tmp_path / f"{device}.lock")


@pytest.fixture
def heir(device_locks: DeviceLocks) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has inherited the lock of device 0."""
    assert device_locks.take([0]) is None
    with subprocess.Popen(
        SLEEPER, stdin=subprocess.PIPE, pass_fds=[device_locks.descriptor(0)]
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("given_back", [True, False])
def test_one_that_is_given_back_is_free_whoever_has_inherited_it(
    device_locks: DeviceLocks, heir: "subprocess.Popen[bytes]", given_back: bool
) -> None:
    assert heir.poll() is None
    device_locks.unlock_devices([0], given_back=given_back)
    assert device_locks.take([0]) == (None if given_back else 0)


def test_one_that_is_shared_is_free_when_the_last_has_given_it_back(
    device_locks: DeviceLocks, heir: "subprocess.Popen[bytes]"
) -> None:
    other = DeviceLocks(device_locks.path)
    assert device_locks.take([0]) is None  # a second job on the device
    device_locks.unlock_devices([0], given_back=True)
    assert other.take([0]) == 0
    device_locks.unlock_devices([0])
    assert heir.poll() is None
    assert other.take([0]) is None


def test_the_lock_that_a_process_has_inherited_is_taken_again_for_it(
    device_locks: DeviceLocks, heir: "subprocess.Popen[bytes]"
) -> None:
    other = DeviceLocks(device_locks.path)
    inherited = {0: os.dup(device_locks.descriptor(0))}
    device_locks.unlock_devices([0], given_back=True)
    assert other.take([0]) is None
    assert device_locks.retake(inherited) == 0, "another has it"
    other.unlock_devices([0])
    assert device_locks.retake(inherited) is None
    assert other.take([0]) == 0
    os.close(inherited[0])
    device_locks.unlock_devices([0])
    assert other.take([0]) == 0, "the process holds it"
    heir.kill()
    heir.wait()
    assert other.take([0]) is None
