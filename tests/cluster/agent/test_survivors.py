import errno
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fairlead.cluster.agent import locks, survivors
from fairlead.cluster.agent.device_claim import SpawnerStorage
from fairlead.cluster.agent.device_locks import DeviceLocks
from fairlead.cluster.agent.machine import AgentFiles
from fairlead.cluster.agent.proc import process, tag_of, tag_process, token_tag
from fairlead.cluster.agent.spawner_takeover import take_over
from fairlead.cluster.agent.survivors import (
    AttemptRecord,
    boot_id,
    end_survivors,
    make_token,
    read_records,
    write_record,
)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as child:
        yield child
        child.kill()


def record(pid: int, start_time: int, boot: str, token: str = "a" * 32) -> AttemptRecord:
    return AttemptRecord(
        job=1, attempt=1, token=token, grace_s=0.1, leaders=((pid, start_time),), boot=boot
    )


def test_a_bare_pid_proves_nothing(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    known = process(bystander.pid)
    assert known is not None
    other_time = record(known.pid, known.start_time - 1, boot_id())
    other_boot = record(known.pid, known.start_time, "an earlier one")
    assert end_survivors(tmp_path, [other_time, other_boot]) == 0
    assert bystander.poll() is None
    write_record(tmp_path, record(known.pid, known.start_time, boot_id()))
    assert end_survivors(tmp_path, read_records(tmp_path)) == 1
    assert bystander.wait(120) == -15
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_enough_where_the_pids_were_not_written(tmp_path: Path) -> None:
    token = os.urandom(16).hex()
    env = {"FAIRLEAD_TOKEN": token, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True) as child:
        assert end_survivors(tmp_path, [record(1, 1, "", token)]) == 1
        assert child.wait(120) == -15


def test_what_shows_no_environment_is_found_by_a_limit_that_it_inherited(tmp_path: Path) -> None:
    token = make_token("mine.1")
    with (
        subprocess.Popen(["sleep", "1000"], env={}, preexec_fn=partial(tag_process, token)) as mine,
        subprocess.Popen(["sleep", "1000"], env={}) as bystander,
    ):
        assert tag_of(mine.pid) == token_tag(token)
        assert tag_of(bystander.pid) == ""
        assert end_survivors(tmp_path, [record(1, 1, "", make_token("mine.1"))]) == 0
        assert end_survivors(tmp_path, [record(1, 1, "", token)]) == 1
        assert mine.wait(120) == -15
        assert bystander.poll() is None
        bystander.kill()


def test_a_process_that_cannot_be_tagged_runs_nevertheless() -> None:
    tag_process("no digits")
    assert tag_of(os.getpid()) == ""


def test_what_is_no_record_is_removed(tmp_path: Path) -> None:
    (tmp_path / "1-1.json").write_bytes(b'{"job": 1')
    assert read_records(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_two_share_a_device_and_a_third_gets_nothing(tmp_path: Path) -> None:
    first = locks.lock_slots(tmp_path, 1, [0, 1])
    second = locks.lock_slots(tmp_path, 2, [0])
    assert first is not None
    assert second is not None
    before = len(os.listdir("/proc/self/fd"))
    assert locks.lock_slots(tmp_path, 3, [0]) is None
    assert locks.lock_slots(tmp_path, 1, [5]) is None  # a job never runs beside itself
    assert len(os.listdir("/proc/self/fd")) == before
    locks.release(second.values())
    third = locks.lock_slots(tmp_path, 3, [0])
    assert third is not None
    locks.release([*first.values(), *third.values()])


def test_a_lock_on_a_removed_file_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "job-1.lock"
    old = locks.take(path)
    assert old is not None
    locks.forget_job(tmp_path, 1)
    new = locks.take(path)
    assert new is not None
    assert locks.take(path) is None
    locks.release([old, new])


def test_processes_of_a_run_are_found_without_any_record(tmp_path: Path) -> None:
    env = {"FAIRLEAD_TOKEN": make_token("mine.1"), "PATH": "/usr/bin:/bin"}
    other = env | {"FAIRLEAD_TOKEN": make_token("mine.2")}
    with (
        subprocess.Popen(["sleep", "1000"], env=env) as child,
        subprocess.Popen(["sleep", "1000"], env=other) as bystander,
    ):
        assert end_survivors(tmp_path, [], "mine.1") == 1
        assert child.wait(120) == -15
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b'{"job": 1', b"\xff\xfe\x00"])
def test_a_damaged_record_is_told_of(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "1-1.json").write_bytes(damage)
    assert read_records(tmp_path) == []
    assert "1-1.json: is damaged" in caplog.text


def test_no_half_of_a_record_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "2-1.partial").write_bytes(b"{")  # of a spawner that was killed
    assert read_records(tmp_path) == []
    assert list(tmp_path.iterdir()) == []

    def full(path: Path, data: bytes) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(survivors, "write_anew", full)
        with pytest.raises(OSError, match="No space left"):
            write_record(tmp_path, record(1, 1, ""))
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_an_earlier_agent_is_read(tmp_path: Path) -> None:
    """Which called the number of an attempt its epoch."""
    (tmp_path / "4-7.json").write_bytes(
        b'{"job": 4, "epoch": 7, "token": "ab", "grace_s": 5.0, "leaders": [[12, 34]], "boot": "b"}'
    )
    (found,) = read_records(tmp_path)
    assert (found.job, found.attempt, found.grace_s) == (4, 7, 5.0)
    assert found.leaders == ((12, 34),)


def test_a_spawner_without_a_file_descriptor_waits_for_one_and_then_takes_over(
    tmp_path: Path, bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = process(bystander.pid)
    assert known is not None
    agent = AgentFiles(tmp_path / "run" / "nodes" / "n" / "i")
    (tmp_path / "run" / "nodes" / "n").mkdir(parents=True)
    lock = agent.make()
    write_record(agent.attempt_records, record(known.pid, known.start_time, boot_id()))
    boot_id.cache_clear()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waits = iter(range(3))

    def sleep(seconds: float) -> None:
        if next(waits, None) is None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        real_sleep(seconds)

    real_sleep = time.sleep
    monkeypatch.setattr(time, "sleep", sleep)
    storage = SpawnerStorage(
        tmp_path, (agent.attempt_records,), DeviceLocks(lambda d: tmp_path / str(d))
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        status, ready = take_over(tmp_path, agent, storage, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ready.survivors == 1
    assert bystander.wait(10.0) != 0
    locks.release([*status, lock])


def test_a_record_that_cannot_be_opened_for_want_of_a_descriptor_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(tmp_path, record(1, 1, "b"))

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        with pytest.raises(OSError, match="Too many"):
            read_records(tmp_path)
    assert len(read_records(tmp_path)) == 1


def test_the_boot_id_is_known_when_no_file_can_be_opened_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = survivors.boot_id()

    def fail(*_: object, **__: object) -> str:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_text", fail)
    assert survivors.boot_id() == known
