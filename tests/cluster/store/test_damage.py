"""Files of a cluster's state that were cut, deleted or changed: refused, or nothing is lost."""

import logging
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cluster.store.test_store import row

from fairlead.cluster.store.rows import (
    AttemptRow,
    NodeRow,
    UserRow,
)
from fairlead.cluster.store.store import Store
from fairlead.errors import RunError

Content = dict[str, Any]
TRIALS = 30  # of a kind


def fill(store: Store, jobs: range) -> None:
    """One acknowledged commit for each job, and more of other kinds."""
    for number in jobs:
        with store.transaction() as t:
            if number == 0:
                t.new_segment([b"setup", b"state"])
                t.put_node(NodeRow(name="n", accelerator="v100", devices=4, host="h"))
                t.put_user(UserRow(user="u", tenant="t", role="admin", token_hash=bytes(32)))
            t.put_jobs([row(number, "running" if number % 3 else "completed")])
            t.append([b"record %d" % number * 20])
            t.put_key(f"key {number}", [number])
            t.put_attempts(
                [
                    AttemptRow(
                        job=number,
                        attempt=1,
                        node="n",
                        accelerator="v100",
                        devices=(0,),
                        began_s=2.0,
                    )
                ]
            )
            t.set_meta("last", str(number))


def content(store: Store) -> Content:
    """All that a store can be asked."""
    jobs = store.jobs(limit=10**6)
    return {
        "jobs": [msgspec.msgpack.encode(job) for job in jobs],
        "open": [job.id for job in store.open_jobs()],
        "ended": store.ended(),
        "by state": [job.id for job in store.jobs("completed")],
        "by tenant": [job.id for job in store.jobs(tenant="a")],
        "last": store.last_job(),
        "records": store.records(),
        "journal": list(store.segment()[1]),
        "nodes": store.nodes(),
        "users": store.users(),
        "attempts": [store.attempts(job.id) for job in jobs],
        "open attempts": store.open_attempts(),
        "keys": [store.key(f"key {job.id}") for job in jobs],
        "meta": store.meta("last"),
    }


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """The directory of a store as a crash leaves it, part of it in the log alone, and what was in it."""
    folder = tmp_path_factory.mktemp("crashed")
    with Store(folder / "live") as store:
        fill(store, range(30))
    with Store(folder / "live") as store:
        fill(store, range(30, 60))
        shutil.copytree(folder / "live", folder / "copy")
        return folder / "copy", content(store)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """The same after an orderly end: everything is in the database."""
    folder = tmp_path_factory.mktemp("closed") / "live"
    with Store(folder) as store:
        fill(store, range(60))
        return folder, content(store)


def test_the_log_cut_in_half_is_refused_with_what_is_missing(
    crashed: tuple[Path, Content], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(crashed[0], tmp_path / "state"))
    log = folder / "state.db-wal"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    before = {path.name: path.read_bytes() for path in folder.iterdir() if "shm" not in path.name}
    with pytest.raises(RunError) as refused:
        Store(folder).open()
    message = str(refused.value)
    assert "state.db: ends at commit " in message
    assert "but commit 61 was acknowledged: " in message
    assert (
        " commits are missing; restore a backup with `fairlead restore --replace BACKUP" in message
    )
    assert "--accept-loss" in message
    after = {path.name: path.read_bytes() for path in folder.iterdir() if "shm" not in path.name}
    assert after == before | {"server.lock": b""}, "what is refused stays as it was found"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["state.db-wal"], "commit 61 was acknowledged: 30 commits are missing"),
        (["state.db", "state.db-wal"], r"state\.db: is missing, but commit 61 was acknowledged"),
        (["state.db"], r"state\.db: is missing, but commit 61 was acknowledged"),
        (["state.mark"], r"ends at commit 61 .* but state\.mark is missing"),
    ],
)
def test_deleted_files_are_refused(
    crashed: tuple[Path, Content], tmp_path: Path, names: list[str], message: str
) -> None:
    folder = Path(shutil.copytree(crashed[0], tmp_path / "state"))
    for name in names:
        (folder / name).unlink()
    for _ in range(2):  # and so is a second attempt
        with pytest.raises(RunError, match=message):
            Store(folder).open()


def test_an_older_copy_of_the_database_is_refused(
    crashed: tuple[Path, Content], tmp_path: Path
) -> None:
    with Store(tmp_path / "a") as store:
        fill(store, range(5))
    shutil.copy(tmp_path / "a" / "state.db", tmp_path / "old")
    with Store(tmp_path / "a") as store:
        fill(store, range(5, 8))
    shutil.copy(tmp_path / "old", tmp_path / "a" / "state.db")
    with pytest.raises(RunError, match=r"ends at commit 6 .*commit 9 was .* 3 commits are missing"):
        Store(tmp_path / "a").open()


def test_another_clusters_database_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        with Store(tmp_path / name) as store:
            fill(store, range(5))
    shutil.copy(tmp_path / "a" / "state.db", tmp_path / "b" / "state.db")
    with pytest.raises(RunError, match="commit 6 is not the one that was acknowledged"):
        Store(tmp_path / "b").open()


def flip(data: bytearray, random_: random.Random) -> None:
    for _ in range(random_.choice((1, 1, 20))):
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)


def overwrite(data: bytearray, random_: random.Random) -> None:
    length = random_.choice((1, 16, 512, 4096))
    at = random_.randrange(max(len(data) - length, 1))
    data[at : at + length] = random_.randbytes(length) if random_.random() < 0.5 else bytes(length)


def cut(data: bytearray, random_: random.Random) -> None:
    del data[random_.randrange(len(data)) :]


def drop(data: bytearray, random_: random.Random) -> None:
    at = random_.randrange(len(data))
    del data[at : at + random_.choice((1, 100, 4096))]


@pytest.mark.parametrize("damage", [flip, overwrite, cut, drop])
@pytest.mark.parametrize(
    "name", ["state.db", "state.db-wal", "state.db-shm", "state.mark", "closed"]
)
def test_damage_anywhere_is_refused_or_loses_nothing(
    crashed: tuple[Path, Content],
    closed: tuple[Path, Content],
    tmp_path: Path,
    name: str,
    damage: Callable[[bytearray, random.Random], None],
) -> None:
    source, expected = closed if name == "closed" else crashed
    name = "state.db" if name == "closed" else name
    random_ = random.Random(f"{name} {damage.__name__}")
    refused: list[str] = []
    for number in range(TRIALS):
        folder = Path(shutil.copytree(source, tmp_path / str(number)))
        data = bytearray((folder / name).read_bytes())
        damage(data, random_)
        (folder / name).write_bytes(data)
        try:
            with Store(folder) as store:
                assert content(store) == expected
        except RunError as problem:
            refused.append(str(problem))
        shutil.rmtree(folder)
    assert not any("\n" in message for message in refused)
    if name not in ("state.db-shm", "state.mark"):  # made anew, and mostly empty
        assert refused


def test_damage_under_a_running_server_is_found_when_the_row_is_read(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill(store, range(3))
        with closing(sqlite3.connect(store.path)) as raw:
            (data,) = raw.execute("SELECT row FROM users").fetchone()
            raw.execute("UPDATE users SET row = ?", (data.replace(b"admin", b"agent"),))
            raw.commit()
        with pytest.raises(RunError, match=r"a row is damaged \(users, u\)"):
            store.users()


def test_the_database_may_be_ahead_of_its_marker(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill(store, range(3))
        before = (tmp_path / "state.mark").read_bytes()
        fill(store, range(3, 4))
    (tmp_path / "state.mark").write_bytes(before)  # killed between the commit and its mark
    with Store(tmp_path) as store:
        assert store.last_job() == 3
        fill(store, range(4, 6))
    with Store(tmp_path) as store:
        assert store.last_job() == 5


def test_a_torn_record_of_the_marker_is_no_obstacle(tmp_path: Path) -> None:
    """Power was lost in the middle of it, so the commit is there."""
    with Store(tmp_path) as store:
        fill(store, range(3))
        assert store.marker.read().mark is not None
        newest = store.marker.read().mark.number  # type: ignore[union-attr]
    data = bytearray((tmp_path / "state.mark").read_bytes())
    at = newest % 2 * 4096
    data[at + 10 : at + 40] = bytes(30)
    (tmp_path / "state.mark").write_bytes(data)
    for _ in range(3):
        with Store(tmp_path) as store:
            assert store.last_job() == 2


def test_a_marker_that_cannot_be_written_does_not_stop_the_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with Store(tmp_path) as store:
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            patch.setattr(store.marker, "write", fails)
            fill(store, range(3))
        assert [
            record.message.count("state.mark: cannot be written") for record in caplog.records
        ] == [1]
    with Store(tmp_path) as store:
        assert store.last_job() == 2


@pytest.mark.parametrize("name", ["state.db", "state.mark"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    with Store(tmp_path):
        pass
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(RunError, match=r"not a regular file|is empty, but commit"):
        Store(tmp_path).open()


def test_plots_that_are_no_file_are_set_aside(tmp_path: Path) -> None:
    with Store(tmp_path):
        pass
    (tmp_path / "samples.db").unlink()
    os.mkfifo(tmp_path / "samples.db")
    with Store(tmp_path) as store:
        assert store.samples() == []
    assert (tmp_path / "samples.db.damaged-1").is_fifo()


def copy_over(source: Path, target: Path) -> None:
    """As ``cp -a source/. target``: into the files that are there."""
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize("when", ["in use", "closed"])
def test_a_state_that_is_overwritten_while_it_is_open_is_not_written_to(
    tmp_path: Path, when: str
) -> None:
    with Store(tmp_path / "state") as store:
        fill(store, range(5))
        if when == "in use":
            shutil.copytree(store.directory, tmp_path / "older")
    if when == "closed":
        shutil.copytree(store.directory, tmp_path / "older")
    with Store(tmp_path / "state") as store:
        fill(store, range(5, 9))
        copy_over(tmp_path / "older", store.directory)
        for _ in range(2):
            with pytest.raises(RunError) as refused:
                fill(store, range(9, 10))
            assert str(refused.value).startswith(f"{store.directory}: was replaced while this ")
    with Store(tmp_path / "state") as store:
        assert store.job(9) is None


@pytest.mark.parametrize("later", [5, 50])
def test_a_database_alone_that_is_overwritten_while_it_is_open_is_not_written_to(
    tmp_path: Path, later: int
) -> None:
    """SQLite knows its pages, and acknowledged what nobody found again after a restart."""
    with Store(tmp_path / "state") as store:
        fill(store, range(300))
    older = (tmp_path / "state" / "state.db").read_bytes()
    with Store(tmp_path / "state") as store:
        fill(store, range(300, 300 + later))
    with Store(tmp_path / "state") as store:
        fill(store, range(400, 405))
        store.path.write_bytes(older)
        for _ in range(2):
            with pytest.raises(RunError, match=r"state\.db was written to by another process"):
                fill(store, range(405, 406))


def test_a_state_that_is_moved_away_is_not_written_to_until_it_is_back(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        fill(store, range(5))
        shutil.copytree(store.directory, tmp_path / "older")
        store.directory.rename(tmp_path / "away")
        with pytest.raises(RunError, match=r"state\.db is not the file that it opened"):
            fill(store, range(5, 6))
        shutil.copytree(tmp_path / "older", store.directory)
        with pytest.raises(RunError, match=r"state\.db is not the file that it opened"):
            fill(store, range(5, 6))
        shutil.rmtree(store.directory)
        (tmp_path / "away").rename(store.directory)
        fill(store, range(5, 6))
        assert store.job(5) is not None
