import errno
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.client.checkpoint import Checkpoints, Manifest, Part, sync_parts
from fairlead.errors import DamagedError


def save(store: Checkpoints, step: int, text: str = "state") -> Path:
    partial = store.begin(step)
    (partial / "rank-0").mkdir()
    (partial / "rank-0" / "weights").write_text(text)
    parts = sync_parts(partial, partial / "rank-0")
    store.commit(partial, Manifest(step=step, parts=parts))
    return store.directory / f"step-{step:012}"


@pytest.fixture
def store(folder: Path) -> Checkpoints:
    store = Checkpoints(folder)
    assert store.lock()
    return store


def newest_step(store: Checkpoints) -> int:
    found = store.newest()
    return found.manifest.step if found else -1


def test_the_newest_two_are_kept(store: Checkpoints) -> None:
    assert newest_step(store) == -1
    for step in (5, 10, 1_000):
        save(store, step)
    assert newest_step(store) == 1_000
    assert sorted(path.name for path in store.directory.glob("step-*")) == [
        "step-000000000010",
        "step-000000001000",
    ]


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda path: (path / "rank-0" / "weights").write_text("stale"), "not as it was saved"),
        (lambda path: (path / "rank-0" / "weights").write_text("st"), "not as it was saved"),
        (lambda path: (path / "rank-0" / "weights").unlink(), "No such file"),
        (lambda path: (path / "manifest.json").unlink(), "No such file"),
        (lambda path: (path / "manifest.json").write_text('{"format": 1, '), "cannot be read"),
        (lambda path: (path / "manifest.json").write_bytes(b"\xff\xfe"), "cannot be read"),
        (lambda path: (path / "manifest.json").write_text('{"format": 2, "step": 9}'), "format"),
    ],
)
def test_one_that_does_not_hold_is_passed_over_with_a_word(
    store: Checkpoints, capfd: pytest.CaptureFixture[str], harm: object, why: str
) -> None:
    save(store, 5)
    bad = save(store, 9)
    harm(bad)  # type: ignore[operator]
    assert newest_step(store) == 5
    message = capfd.readouterr().err
    assert str(bad) in message
    assert why in message


def harm(path: Path) -> None:
    (path / "rank-0" / "weights").write_text("stale")


def test_a_job_does_not_begin_anew_because_all_its_checkpoints_are_damaged(
    store: Checkpoints, capfd: pytest.CaptureFixture[str]
) -> None:
    harm(save(store, 5))
    (save(store, 9) / "manifest.json").unlink()
    with pytest.raises(DamagedError) as refused:
        store.newest()
    assert str(refused.value).startswith(
        "none of its 2 checkpoints is whole (step-000000000009: manifest.json: No such file"
    )
    assert "step-000000000005: not used: rank-0/weights is not as it was" in capfd.readouterr().err
    assert store.steps() == [9, 5], "they are as they were"


@pytest.mark.parametrize(("whole", "begins_at"), [(True, 5), (False, -1)])
def test_damaged_checkpoints_are_set_aside_where_their_loss_is_accepted(
    store: Checkpoints, whole: bool, begins_at: int
) -> None:
    first = save(store, 5)
    if not whole:
        harm(first)
    harm(save(store, 9))
    (store.directory / "damaged-step-000000000009").mkdir()  # by an earlier start
    found = store.newest(set_aside=True)
    assert (found.manifest.step if found else -1) == begins_at
    for step in (7, 9, 20):
        save(store, step)
    assert store.steps() == [20, 9]
    aside = store.directory / "damaged-step-000000000009-2"
    assert (aside / "rank-0" / "weights").read_text() == "stale"
    assert (aside / "manifest.json").exists()
    assert (store.directory / "damaged-step-000000000005").exists() == (not whole)


def test_what_did_not_hold_gives_way_to_what_is_saved_after_it(store: Checkpoints) -> None:
    save(store, 5)
    (save(store, 20) / "manifest.json").unlink()
    save(store, 10)
    assert sorted(path.name[-2:] for path in store.directory.glob("step-*")) == ["05", "10"]
    (save(store, 20) / "manifest.json").unlink()
    save(store, 20)
    assert newest_step(store) == 20


def test_what_a_crash_left_is_removed_at_the_next_start(store: Checkpoints) -> None:
    save(store, 5)
    partial = store.begin(9)
    (partial / "rank-0").write_text("half")
    store.unlock()
    again = Checkpoints(store.directory)
    assert again.lock()
    assert not partial.exists()
    assert newest_step(again) == 5
    again.unlock()


def test_one_process_at_a_time(store: Checkpoints) -> None:
    code = (
        "import sys; from fairlead.client.checkpoint import Checkpoints;"
        "sys.exit(0 if Checkpoints(sys.argv[1]).lock() else 3)"
    )
    run = [sys.executable, "-c", code, str(store.directory)]
    assert subprocess.run(run, check=False).returncode == 3
    store.unlock()
    assert subprocess.run(run, check=False).returncode == 0


def test_one_that_an_earlier_version_has_written_is_read(store: Checkpoints) -> None:
    """As msgspec laid it out; the state of a loader was msgpack."""
    folder = store.directory / "step-000000000020"
    folder.mkdir()
    (folder / "rank-0").write_bytes(b"state")
    (folder / "manifest.json").write_text(
        '{\n "format": 1,\n "step": 20,\n "loader_epoch": 1,\n "position": 3,\n'
        ' "loader_state": "gqFhAaFikgEC",\n "batch_size": 8,\n "total_steps": 90,\n'
        ' "adapted": false,\n "world_size": 1,\n "lease_epoch": 0,\n'
        f' "parts": {{\n  "rank-0": {{\n   "bytes": 5,\n   "crc32": {zlib.crc32(b"state")}\n  }}\n }}\n}}'
    )
    found = store.newest()
    assert found is not None
    assert found.manifest == Manifest(
        step=20,
        loader_epoch=1,
        position=3,
        loader_state=b"\x82\xa1a\x01\xa1b\x92\x01\x02",
        batch_size=8,
        total_steps=90,
        parts={"rank-0": Part(5, zlib.crc32(b"state"))},
    )


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ENOTCONN, errno.EACCES, errno.EIO])
def test_checkpoints_that_storage_does_not_give_are_not_passed_over(
    store: Checkpoints, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Else the job would begin anew, or do work again, because of an outage."""
    save(store, 5)
    save(store, 9)
    away = {"step-000000000009", "step-000000000005"}
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.parent.name in away:
            raise OSError(number, "gone", str(path))
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(OSError, match="gone"):
        store.newest()
    away.remove("step-000000000005")
    if number == errno.EIO:  # a bad place on a disk takes one of them
        assert newest_step(store) == 5
    else:
        with pytest.raises(OSError, match="gone"):
            store.newest()
    away.clear()
    assert newest_step(store) == 9


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(store: Checkpoints) -> None:
    save(store, 5)
    store.directory.rename(store.directory.with_suffix(".away"))
    with pytest.raises(FileNotFoundError):
        store.newest()
    store.unlock()


@pytest.fixture
def mounted(folder: Path) -> Iterator[Callable[[], None]]:
    """Mounts a small file system on the folder. Skips where that is not permitted."""
    folder.mkdir(exist_ok=True)
    count = 0

    def mount() -> None:
        nonlocal count
        words = ("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
        if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")
        count += 1

    yield mount
    for _ in range(count):
        subprocess.run(("umount", "-l", str(folder)), capture_output=True)


def test_nothing_is_saved_below_a_mount_point(folder: Path, mounted: Callable[[], None]) -> None:
    mounted()
    store = Checkpoints(folder)
    assert store.lock()
    save(store, 5)
    subprocess.run(("umount", "-l", str(folder)), check=True)
    for refused in (lambda: store.begin(9), store.steps):
        with pytest.raises(OSError, match="is not mounted any more"):
            refused()
    assert list(folder.iterdir()) == []
    mounted()  # another one, in which the job has been
    (folder / "lock").touch()
    save(store, 9)
    assert store.steps() == [9]
    assert not Checkpoints(folder).lock(), "it holds the lock that others look at"
    store.unlock()


def test_a_newer_checkpoint_on_storage_that_is_back_is_not_replaced(
    folder: Path, mounted: Callable[[], None]
) -> None:
    """A process that began below the mount point, with an older one, would remove it."""
    store = Checkpoints(folder)
    assert store.lock()
    save(store, 5)
    mounted()
    elsewhere = Checkpoints(folder)
    assert elsewhere.lock()
    save(elsewhere, 20)
    elsewhere.unlock()
    for _ in range(2):
        with pytest.raises(OSError, match="with a newer checkpoint"):
            store.begin(10)
    assert store.steps() == [20]
    save(store, 30)
    assert store.steps() == [30, 20]
    store.unlock()
