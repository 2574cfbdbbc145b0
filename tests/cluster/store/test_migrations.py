"""States of earlier schemas, as they were written then: ``states/schema_N.sql``."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.cli.main import main
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.store.backup import back_up, restore
from fairlead.cluster.store.marker import Mark, Marker
from fairlead.cluster.store.schema import VERSION, newest_commit
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.verification import verify_file
from fairlead.errors import RunError

STATES = Path(__file__).parent / "states"


def written(folder: Path, version: int) -> Path:
    """The state directory of a server of that version, which has ended in order."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / "state.db")) as database:
        database.executescript((STATES / f"schema_{version}.sql").read_text())
        commit = newest_commit(database)
    assert commit is not None
    marker = Marker(folder / "state.mark")
    marker.open()
    marker.reset(Mark(commit.number, commit.head))
    marker.close()
    return folder


def check_content(store: Store) -> None:
    """It is what the states of earlier schemas held."""
    done, failed_once, waiting = store.jobs()
    assert [
        (job.id, job.state, job.attempt, job.steps) for job in (done, failed_once, waiting)
    ] == [
        (3, "completed", 1, 100.0),
        (4, "running", 2, 30.0),
        (5, "waiting", 0, 0.0),
    ]
    assert [(f.job, f.attempt, f.reason) for f in failed_once.recent_failures] == [
        (4, 1, "ValueError: no")
    ]
    assert done.recent_failures == ()
    assert failed_once.spec.command == ("python", "train.py")
    assert [(a.attempt, a.end, a.lost_steps, a.devices) for a in store.attempts(4)] == [
        (1, AttemptEnd.FAILED, 2.0, (1,)),
        (2, None, 0.0, (2,)),
    ]
    assert [(a.job, a.attempt) for a in store.open_attempts()] == [(4, 2)]
    (node,) = store.nodes()
    assert node.inherited == ((4, 2, "a"),)
    assert [user.user for user in store.users()] == ["ada"]
    assert store.key("key") == [3, 4]
    assert store.meta("clock") == "12.5"
    assert store.meta("schema") == str(VERSION)
    assert list(store.segment()[1]) == [b"setup", b"state", b"event"]


@pytest.mark.parametrize(("version", "commits"), [(3, 4), (4, 5)])
def test_an_earlier_schema_becomes_the_present_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int, commits: int
) -> None:
    folder = written(tmp_path / "state", version)
    with caplog.at_level(logging.INFO), Store(folder) as store:
        assert f"brought from schema {version} to {VERSION}" in caplog.text
        check_content(store)
        assert store.searches() == []
    found = Marker(folder / "state.mark").read()
    verified = verify_file(folder / "state.db", found)
    assert verified.newest.number == commits, "the chain of commits goes on"
    assert verified.rows["attempts"] == 3
    with Store(folder) as store:
        check_content(store)
        with store.transaction() as t:
            t.put_attempts(store.open_attempts())
    verify_file(folder / "state.db", Marker(folder / "state.mark").read())


@pytest.mark.parametrize("version", [3, 4])
def test_a_server_that_died_before_it_marked_the_migration_goes_on(
    tmp_path: Path, version: int
) -> None:
    folder = written(tmp_path / "state", version)
    mark = (folder / "state.mark").read_bytes()
    Store(folder).open().close()
    (folder / "state.mark").write_bytes(mark)
    with Store(folder) as store:
        check_content(store)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE stints SET epoch = 7 WHERE job = 3", r"a row is damaged \(stints, 3, 7\)"),
        ("DELETE FROM stints WHERE job = 3", "rows of commit 3 are missing"),
        ("DELETE FROM commits WHERE number = 3", r"commit 3 was acknowledged: 1 commit is missing"),
        ("DROP INDEX stints_open", "the definition of a table is not that of its version"),
    ],
)
def test_a_damaged_state_is_not_migrated(tmp_path: Path, damage: str, message: str) -> None:
    folder = written(tmp_path / "state", 3)
    with closing(sqlite3.connect(folder / "state.db")) as database, database:
        database.execute(damage)
    before = (folder / "state.db").read_bytes()
    with pytest.raises(RunError, match=message):
        Store(folder).open()
    assert (folder / "state.db").read_bytes() == before


def test_a_marker_that_is_missing_is_told_of_before_the_migration(tmp_path: Path) -> None:
    folder = written(tmp_path / "state", 3)
    (folder / "state.mark").unlink()
    with pytest.raises(RunError, match=r"state\.mark is missing"):
        Store(folder).open()


@pytest.mark.parametrize("version", [3, 4])
def test_an_earlier_schema_is_checked_backed_up_and_restored_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    folder = written(tmp_path / "state", version)
    back_up(folder, tmp_path / "backup")
    with pytest.raises(SystemExit):
        main(["check", str(tmp_path / "backup")])
    assert "3 attempts" in capsys.readouterr().out
    restore(tmp_path / "backup", tmp_path / "new", replace=False)
    with Store(tmp_path / "new") as store:
        check_content(store)
