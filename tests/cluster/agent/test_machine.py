"""What agents leave on a machine, and what those that come after make of it."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from fairlead.cluster.agent import locks
from fairlead.cluster.agent.client_files import is_offered
from fairlead.cluster.agent.device_locks import DeviceLocks
from fairlead.cluster.agent.machine import (
    OVERRIDE,
    AgentFiles,
    clear,
    record_of,
    run_directory,
)
from fairlead.cluster.agent.state_directory import make_again
from fairlead.cluster.agent.survivors import (
    AttemptRecord,
    make_token,
    write_record,
)
from fairlead.errors import ConfigError


def _dead_run(folder: Path, **more: object) -> AgentFiles:
    """The record of an agent that has died, with one start."""
    record = AgentFiles(folder / "nodes" / "n" / "old.1")
    (folder / "nodes").mkdir(parents=True)
    os.close(record.make())
    fields: dict[str, object] = {"job": 1, "attempt": 1, "token": "a" * 32, "grace_s": 0.1}
    write_record(record.attempt_records, AttemptRecord(**(fields | more)))  # type: ignore[arg-type]
    return record


def test_what_a_dead_agent_left_is_ended_and_then_it_is_cleared(tmp_path: Path) -> None:
    token = os.urandom(16).hex()
    record = _dead_run(tmp_path, token=token)
    env = {"FAIRLEAD_TOKEN": token, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True) as child:
        assert clear(record) == 1
        assert child.wait(120) == -15
    assert clear(record) == 0, "it can be said again"


def test_an_agent_that_lives_is_not_cleared(tmp_path: Path) -> None:
    record = _dead_run(tmp_path)
    lock = locks.take(record.path / "agent.lock")
    assert lock is not None
    assert clear(record) is None
    assert clear(record) is None, "it can be said again"
    os.close(lock)
    assert clear(record) == 0
    assert clear(record) == 0


def test_a_device_that_somebody_holds_on_to_is_no_proof(tmp_path: Path) -> None:
    """Whoever inherited its lock has shed both token and session."""
    device = tmp_path / "0.lock"
    record = _dead_run(tmp_path, locks=(str(device),))
    status = locks.take(device)
    assert status is not None
    assert clear(record) is None
    os.close(status)


def test_one_agents_starts_share_a_device_and_another_agent_gets_nothing(tmp_path: Path) -> None:
    mine, theirs = (DeviceLocks(lambda d: tmp_path / f"{d}.lock") for _ in range(2))
    assert mine.take([0, 1]) is None
    assert mine.take([0]) is None
    assert theirs.take([2, 1]) == 1
    assert theirs.take([2]) is None, "what it had taken before it failed it gave back"
    mine.unlock_devices([0, 1])
    assert theirs.take([0]) == 0
    mine.unlock_devices([0])
    assert theirs.take([0, 1]) is None


def test_real_devices_are_the_machines_and_fake_ones_the_nodes(tmp_path: Path) -> None:
    one, two = (AgentFiles(tmp_path / "nodes" / node / "x.1") for node in ("a", "b"))
    assert one.device_lock(3, simulated_devices=False) == two.device_lock(
        3, simulated_devices=False
    )
    assert one.device_lock(3, simulated_devices=True) != two.device_lock(3, simulated_devices=True)


def test_nodes_of_one_name_in_two_clusters_do_not_meet() -> None:
    one, two = (record_of("n", server, "x.1") for server in ("h:1", "h:2"))
    assert one.path.parent != two.path.parent


def test_a_server_is_known_by_all_its_names() -> None:
    names = ("127.0.0.1:1", "localhost:1", "LOCALHOST:1", f"{socket.gethostname()}:1", "[::1]:1")
    assert len({record_of("n", server, "x.1").path for server in names}) == 1
    assert (
        record_of("n", "nobody.invalid:1", "x.1").path != record_of("n", "localhost:1", "x.1").path
    )


def test_a_directory_that_others_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "d"
    open_to_all.mkdir(mode=0o777)
    open_to_all.chmod(0o777)
    monkeypatch.setenv("FAIRLEAD_RUN_DIR", str(open_to_all))
    why = "must be a directory that belongs to this user alone"
    with pytest.raises(ConfigError, match=rf"{why}: its mode is 777 \(chmod 700 {open_to_all}\)$"):
        run_directory()
    open_to_all.chmod(0o755)
    with pytest.raises(ConfigError, match="its mode is 755 "):
        run_directory()
    open_to_all.chmod(0o700)
    assert run_directory() == open_to_all
    monkeypatch.setattr(os, "getuid", lambda: 4711)  # of another user than its owner
    owner = open_to_all.stat().st_uid
    with pytest.raises(ConfigError, match=f"{why}: it is user {owner}'s, and this is user 4711$"):
        run_directory()
    link = tmp_path / "link"
    link.symlink_to(open_to_all)
    monkeypatch.setenv("FAIRLEAD_RUN_DIR", str(link))
    with pytest.raises(ConfigError, match=f"{why}: it is none$"):
        run_directory()


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b'{"job": 1', None])
def test_a_damaged_or_deleted_record_hides_nothing(tmp_path: Path, damage: bytes | None) -> None:
    record = _dead_run(tmp_path)
    (path,) = record.attempt_records.iterdir()
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    env = {"FAIRLEAD_TOKEN": make_token(record.incarnation), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True) as child:
        assert clear(record) == 1
        assert child.wait(120) == -15


def test_a_damaged_record_and_a_device_that_is_held_are_not_cleared(tmp_path: Path) -> None:
    """A process that shows no token holds the device."""
    record = _dead_run(tmp_path)
    (path,) = record.attempt_records.iterdir()
    path.write_bytes(b"")
    lock = locks.take(record.device_lock(0, simulated_devices=True))
    assert lock is not None
    assert clear(record) is None
    assert clear(record) is None, "it can be said again"
    os.close(lock)
    assert clear(record) == 0


def test_directories_that_were_removed_are_made_again_once_no_lock_of_them_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    monkeypatch.setenv(OVERRIDE, str(root))
    record = record_of("n", "server:1", "me.1")
    os.close(record.make())
    device = locks.take(record.device_lock(0, False))
    assert device is not None
    shutil.rmtree(root)
    record.make_again()
    assert not root.exists(), "the device would be given to two"
    os.close(device)
    record.make_again()
    assert record.attempt_records.is_dir()
    for simulated_devices in (False, True):
        lock = locks.take(record.device_lock(0, simulated_devices))
        assert lock is not None
        os.close(lock)
    assert run_directory() == root, "for this user alone, as before"


def test_a_state_directory_that_was_removed_is_made_again_once_no_lock_of_it_is_held(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    (state / "locks").mkdir(parents=True)
    held = locks.lock_slots(state / "locks", 1, [0])
    assert held is not None
    shutil.rmtree(state)
    make_again(state)
    assert is_offered(state)
    assert (state / "starts").is_dir()
    assert not (state / "locks").exists(), "the job could be started twice"
    locks.release(held.values())
    make_again(state)
    again = locks.lock_slots(state / "locks", 1, [0])
    assert again is not None
    locks.release(again.values())
