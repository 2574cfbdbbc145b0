"""Backups of a cluster's state, restored: nothing that was done since runs twice, no number comes again."""

import errno
import itertools
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.call_command import call
from tests.cluster.cluster import (
    Running,
    running,
    until,
)
from tests.cluster.ledger_job import SHORT_GRACE, STEPS, ledger, ledger_job
from tests.cluster.server_nodes import ADMIN, engine_nodes
from tests.cluster.store.test_damage import Content, content, fill
from tests.cluster.store.test_store import row

from fairlead.cluster.forecasting.forecast_outcomes import Outcomes
from fairlead.cluster.server.after_restore import (
    JOBS,
    newest_trace,
    next_attempt,
    next_job,
)
from fairlead.cluster.store.backup import (
    accept_loss,
    back_up,
    last_backup,
    receive,
    restore,
)
from fairlead.cluster.store.marker import NAME as MARKER
from fairlead.cluster.store.marker import Marker
from fairlead.cluster.store.restore_note import ATTEMPTS
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.verification import DamageError, verify_file
from fairlead.errors import ConfigError, RunError


def test_a_backup_beside_a_running_server_is_one_commit_of_it(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        fill(store, range(20))
        writing, ended = threading.Event(), threading.Event()

        def write() -> None:
            number = 20
            while not ended.is_set():
                fill(store, range(number, number + 1))
                number += 1
                writing.set()
                time.sleep(0.005)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            writing.wait()
            for number in range(3):
                assert call("backup", tmp_path / "state", tmp_path / f"{number}.backup") == 0
                found = Marker(store.marker.path).read()
                assert found.mark is not None
                assert verify_file(store.path, found).newest.number >= found.mark.number
        finally:
            ended.set()
            thread.join()
    for number in range(3):
        folder = tmp_path / f"from-{number}"
        restored = restore(tmp_path / f"{number}.backup", folder, replace=False)
        with Store(folder) as store:
            jobs = store.last_job() + 1
            assert jobs >= 20
            assert store.meta("last") == str(jobs - 1)
            assert len(list(store.segment()[1])) == 2 + jobs
            assert restored.rows["jobs"] == jobs


def test_a_backup_notes_its_age_and_its_author_and_leaves_nothing_else(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        fill(store, range(3))
        assert last_backup(store.directory) is None
        before = {path.name for path in store.directory.iterdir()}
        assert call("backup", store.directory, tmp_path / "out.backup") == 0
        after = {path.name for path in store.directory.iterdir()}
    assert after - before == {"last-backup.json", "audit.jsonl"}
    last = last_backup(tmp_path / "state")
    assert last is not None
    assert abs(time.time() - last.time_s) < 600.0
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.backup"]
    assert (tmp_path / "out.backup").stat().st_mode & 0o777 == 0o600
    (tmp_path / "state" / "last-backup.json").write_bytes(b"\x00\xff{")
    assert last_backup(tmp_path / "state") is None


def test_a_restored_cluster_has_no_newer_backup_than_the_one_that_it_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted as one of that moment, which would have silenced the alert."""
    with Store(tmp_path / "state") as store:
        fill(store, range(3))
        assert call("backup", store.directory, tmp_path / "out.backup") == 0
    made = last_backup(tmp_path / "state")
    assert made is not None
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 1e6)
    assert call("restore", tmp_path / "out.backup", tmp_path / "new") == 0
    restored = last_backup(tmp_path / "new")
    assert restored is not None
    assert restored.commit == made.commit
    assert restored.time_s <= made.time_s


def test_a_damaged_state_is_not_backed_up(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        fill(store, range(30))
    with closing(sqlite3.connect(tmp_path / "state" / "state.db")) as raw:
        raw.execute("UPDATE jobs SET open = 1 - open WHERE id = 7")
        raw.commit()
    with pytest.raises(RunError, match=r"a row is damaged \(jobs, 7\); no backup was written"):
        back_up(tmp_path / "state", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_restore_refuses_what_it_must(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good"
    with Store(tmp_path / "state") as store:
        fill(store, range(5))
        back_up(store.directory, good)
        assert call("restore", good, store.directory) == 2
        assert "a server is using this state directory" in capsys.readouterr().err
        expected = content(store)
    assert call("restore", good, tmp_path / "state") == 2
    assert "has a state already (state.db); --replace sets it aside" in capsys.readouterr().err
    bad = tmp_path / "bad"
    bad.write_bytes(good.read_bytes()[:-5000])
    assert call("restore", "--replace", bad, tmp_path / "state") == 2
    assert "it cannot be restored from" in capsys.readouterr().err
    assert call("restore", "--replace", tmp_path / "none", tmp_path / "state") == 2
    assert "there is no such file" in capsys.readouterr().err
    with Store(tmp_path / "state") as store:
        assert content(store) == expected


def killed(state: Path, copy: Path, jobs: int) -> Content:
    """A copy of a state as a server that was killed leaves it: with a log. Returns what it holds."""
    with Store(state) as store:
        fill(store, range(jobs))
        shutil.copytree(state, copy)
        assert (copy / "state.db-wal").stat().st_size > 0
        return content(store)


@pytest.mark.parametrize("jobs", [1, 20])
def test_restore_takes_what_is_in_the_log_of_a_server_that_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs: int
) -> None:
    expected = killed(tmp_path / "state", tmp_path / "copy", jobs)
    copied = [tmp_path / "copy" / name for name in ("state.db", "state.db-wal", "state.mark")]
    before = [path.read_bytes() for path in copied]
    assert call("restore", tmp_path / "copy" / "state.db", tmp_path / "new") == 0
    assert f"{jobs} jobs" in capsys.readouterr().out
    assert [path.read_bytes() for path in copied] == before
    assert call("restore", "--replace", tmp_path / "copy" / "state.db", tmp_path / "copy") == 0
    for directory in ("new", "copy"):
        with Store(tmp_path / directory) as store:
            assert content(store)["jobs"] == expected["jobs"]
            assert content(store)["attempts"] == expected["attempts"]


def assert_refused(capsys: pytest.CaptureFixture[str], *command: object, sentence: str) -> None:
    """The command ends with exit code 2 and a sentence that this finds."""
    assert call(*command) == 2
    assert re.search(sentence, capsys.readouterr().err)


def test_a_state_whose_log_is_cut_is_no_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(tmp_path / "state", tmp_path / "copy", 20)
    log = tmp_path / "copy" / "state.db-wal"
    os.truncate(log, log.stat().st_size // 2)
    for command in (("check",), ("restore",)):
        to = (tmp_path / "new",) if command == ("restore",) else ()
        sentence = r"state.db: ends at commit \d+ .* missing; it cannot be restored from"
        assert_refused(capsys, *command, tmp_path / "copy" / "state.db", *to, sentence=sentence)
    assert not (tmp_path / "new").exists()


def test_a_state_without_its_log_is_said_to_lack_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that a young state has is in its log."""
    killed(tmp_path / "state", tmp_path / "copy", 1)
    path = tmp_path / "copy" / "state.db"
    path.with_name("state.db-wal").unlink()
    for command in (
        ("check", path.parent),
        ("backup", path.parent, tmp_path / "out"),
        ("check", path),
    ):
        sentence = rf"{path}: is empty, but commit \d+ was acknowledged \(.*state.db-wal"
        assert_refused(capsys, *command, sentence=sentence)
    assert not (tmp_path / "out").exists()


def test_a_state_that_was_emptied_is_not_looked_for_in_an_empty_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path) as store:
        fill(store, range(3))
    for name in ("state.db", "state.db-wal"):
        (tmp_path / name).write_bytes(b"")
    assert call("check", tmp_path) == 2
    told = capsys.readouterr().err
    assert "is empty, but commit" in told
    assert "(the newest commits may have been in state.db-wal, which is empty too)" in told


def test_check_names_a_directory_in_the_place_of_the_state_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path):
        pass
    (tmp_path / "state.db").unlink()
    (tmp_path / "state.db").mkdir()
    assert call("check", tmp_path) == 2
    assert "it is not a regular file" in capsys.readouterr().err


def test_check_names_metrics_that_are_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path):
        pass
    (tmp_path / "metrics.db").write_bytes(b"nonsense" * 1000)
    assert call("check", tmp_path) == 0
    told = "metrics.db: is damaged; the next server sets it aside, and the metrics of jobs begin"
    assert told in capsys.readouterr().out


def test_a_state_that_is_no_file_of_ours_is_named_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "state") as store:
        fill(store, range(3))
    path = tmp_path / "state" / "state.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA application_id = 7")
    assert call("backup", path.parent, tmp_path / "out") == 2
    expected = f"{path}: is not a file of Fairlead's (application id 7); no backup was written"
    assert expected in capsys.readouterr().err
    with pytest.raises(RunError, match=f"^{tmp_path / 'out'}: what arrived is not a file of Fair"):
        receive([path.read_bytes()], tmp_path / "out")


@pytest.mark.parametrize("more", [b"x", bytes(4096), None], ids=["a byte", "zeros", "another one"])
def test_a_backup_with_something_behind_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: bytes | None
) -> None:
    path = tmp_path / "file"
    with Store(tmp_path / "state") as store:
        fill(store, range(3))
        back_up(store.directory, path)
    whole = path.read_bytes()
    more = whole if more is None else more
    with path.open("ab") as file:
        file.write(more)
    for command in (("check", path), ("restore", path, tmp_path / "new")):
        assert call(*command) == 2
        expected = f"{path}: is damaged ({len(more):,} bytes more than it holds)"
        assert expected in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    with pytest.raises(RunError, match="what arrived is damaged"):
        receive([whole, more], tmp_path / "out")


@pytest.mark.parametrize("cut", [1, 50])
def test_a_backup_of_which_some_bytes_are_cut_off_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cut: int
) -> None:
    """Also where they are zeros: SQLite reads these for what is not there."""
    path = tmp_path / "backup"
    with Store(tmp_path / "state") as store:
        fill(store, range(5))
        back_up(store.directory, path)
    path.write_bytes(path.read_bytes()[:-cut])
    for words in (("check", path), ("restore", path, tmp_path / "new")):
        assert call(*words) == 2
        assert f"{path}: is damaged ({cut:,} bytes fewer than it holds)" in capsys.readouterr().err


def test_what_is_no_regular_file_is_told_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fifo, state = tmp_path / "fifo", tmp_path / "state"
    os.mkfifo(fifo)
    for words in (("check", fifo), ("restore", fifo, tmp_path / "new")):
        assert call(*words) == 2
        assert f"{fifo}: is not a regular file" in capsys.readouterr().err
    with Store(state) as store:
        fill(store, range(5))
    (state / MARKER).unlink()
    os.mkfifo(state / MARKER)
    for words in (("check", state), ("backup", state, tmp_path / "out")):
        assert call(*words) == 2
        expected = f"{state / MARKER}: cannot be read (it is not a regular file)"
        assert expected in capsys.readouterr().err


def test_a_backup_replaces_nothing_but_a_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "state") as store:
        fill(store, range(3))
        thesis, pipe = tmp_path / "thesis.tex", tmp_path / "pipe"
        thesis.write_text("all of it")
        os.mkfifo(pipe)
        for out, message in (
            (store.path, "is the state of a server, so no backup replaces it"),
            (thesis, "holds something else than a backup, so none replaces it"),
            (pipe, "is not a regular file, so no backup replaces it"),
            (Path("/dev/full"), "is not a regular file, so no backup replaces it"),
        ):
            assert call("backup", store.directory, out) == 2
            assert f"fairlead: {out}: {message}" in capsys.readouterr().err
            with pytest.raises(ConfigError, match=message):
                receive([b"piece"], out)
        assert thesis.read_text() == "all of it"
        old = tmp_path / "old"
        assert call("backup", store.directory, old) == 0
        fill(store, range(3, 4))
        assert call("backup", store.directory, old) == 0
        assert "4 jobs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello world\n", "is no state of a cluster, or its beginning is damaged"),
        (b"", "is not a file of Fairlead's"),
        (None, "is damaged"),
    ],
    ids=["text", "empty", "cut"],
)
def test_of_a_file_that_is_no_backup_only_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    if content is None:
        with Store(tmp_path / "state") as store:
            fill(store, range(5))
        back_up(tmp_path / "state", tmp_path / "whole")
        content = (tmp_path / "whole").read_bytes()[:-5000]
    path = tmp_path / "here" / "file"
    path.parent.mkdir()
    path.write_bytes(content)
    assert call("check", path) == 2
    out, err = capsys.readouterr()
    assert not out
    assert f"fairlead: {path}: {message}" in err
    assert err.count("\n") == 1
    assert "fairlead restore" not in err
    assert "--replace" not in err
    assert call("restore", path, tmp_path / "new") == 2
    assert f"fairlead: {path}: {message}" in capsys.readouterr().err
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]
    assert not (tmp_path / "new").exists()


def test_a_refused_state_goes_on_from_a_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, backup = tmp_path / "state", tmp_path / "backup"
    with Store(state) as store:
        fill(store, range(5))
        back_up(state, backup)
        fill(store, range(5, 9))
    (state / "state.db").write_bytes(b"\0" * 8192)
    assert call("check", state) == 2
    with pytest.raises(RunError, match="fairlead restore --replace BACKUP"):
        Store(state).open()
    assert call("restore", "--replace", backup, state) == 0
    assert (state / "replaced-1" / "state.db").read_bytes() == b"\0" * 8192
    assert (state / "replaced-1" / "state.mark").exists()
    with Store(state) as store:
        assert store.last_job() == 4
    assert "ends at commit 6 of " in capsys.readouterr().out


def _directory(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def _dangling(path: Path) -> None:
    path.symlink_to(path.parent / "no-such-folder" / "file")


@pytest.mark.parametrize("put", [_directory, _dangling, os.mkfifo])
@pytest.mark.parametrize(
    "name", ["state.db", "state.mark", "server.lock", "samples.db", "forecasts.db"]
)
def test_what_stands_in_the_place_of_a_file_is_told_in_a_sentence_by_check_and_by_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], put: Callable[[Path], None], name: str
) -> None:
    with Store(tmp_path):
        pass
    path = tmp_path / name
    path.unlink(missing_ok=True)
    put(path)
    needless = name in ("samples.db", "forecasts.db")
    assert call("check", tmp_path) == (0 if needless else 2)
    out, err = capsys.readouterr()
    if not needless:
        assert name in err
        assert err.count("\n") == 1
        with pytest.raises(
            RunError, match=rf"{name}.*(is not a|is missing|not a regular|is empty)"
        ):
            Store(tmp_path).open()
        return
    assert f"{path}: is damaged; the next server sets it aside" in out
    for _ in range(2):  # what was set aside before is in nobody's way
        with Store(tmp_path):
            pass
        outcomes = Outcomes(tmp_path / "forecasts.db")
        outcomes.open()
        outcomes.close()
        path.unlink()
        put(path)
    assert len(list(tmp_path.glob(f"{name}.*-2"))) == 1


def test_jobs_say_that_a_loss_was_accepted_and_not_that_there_was_a_backup(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        job = cluster.submit()
        cluster.until(lambda: cluster.service.attempts(ADMIN, job))
    accept_loss(tmp_path)
    what = "the cluster goes on from a state whose newest commits may be lost"
    for _ in range(2):  # also a server that is started while nothing may be yet
        with engine_nodes(tmp_path) as cluster:
            (ended,) = cluster.service.attempts(ADMIN, job)
            assert (ended.end, ended.why) == ("restored", f"stopped: {what}"), "no node was lost"
            reason = cluster.job(job).reason
            assert reason.startswith(f"{what}; the newest that it has is of 20")
            assert reason.endswith("; the job starts again from its newest checkpoint")
            cluster.node("one").register()
            assert cluster.view("one").reason.startswith(f"{what}; for ")


def test_a_restore_that_was_killed_is_refused_until_it_is_done_again(tmp_path: Path) -> None:
    """Between the database's new name and the marker."""
    with Store(tmp_path / "a") as store:
        fill(store, range(3))
        back_up(store.directory, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "b", replace=False)
    (tmp_path / "b" / "state.mark").unlink()
    with pytest.raises(RunError, match=r"state\.mark is missing"):
        Store(tmp_path / "b").open()
    restore(tmp_path / "backup", tmp_path / "b", replace=True)
    with Store(tmp_path / "b") as store:
        assert store.last_job() == 2
    assert Marker(tmp_path / "b" / "state.mark").read().damaged is False


def killed_at(operation: int, action: Callable[[], object]) -> bool:
    """Do it in a process that dies before its n-th change of a name or sync of a file. Returns whether it
    died."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = operation

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)
            return function(*arguments, **options)

        return call

    for name in ("fsync", "rename", "replace", "unlink", "mkdir", "pwrite"):
        setattr(os, name, counted(getattr(os, name)))
    try:
        action()
        os._exit(0)
    finally:
        os._exit(1)


def test_a_restore_killed_anywhere_leaves_no_state_that_a_server_takes_for_a_new_one(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "before") as store:
        fill(store, range(3))
        back_up(store.directory, tmp_path / "backup")
        fill(store, range(3, 5))
    died = True
    for operation in itertools.count():
        state = tmp_path / str(operation)
        shutil.copytree(tmp_path / "before", state)
        again = partial(restore, tmp_path / "backup", state, replace=True)
        died = killed_at(operation, again)
        if not died:
            break
        try:
            with Store(state) as store:
                assert store.last_job() in (2, 4), operation
        except DamageError:  # which says how to restore
            pass
        again()
        with Store(state) as store:
            assert store.last_job() == 2
    assert operation > 8


def test_a_restore_that_fails_after_the_state_was_set_aside_leaves_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "state") as store:
        fill(store, range(3))
        back_up(store.directory, tmp_path / "backup")

    def refused(path: Path, target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for _ in range(2):  # the second time no state is there any more
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", refused)
            with pytest.raises(RunError, match="cannot be written"):
                restore(tmp_path / "backup", tmp_path / "state", replace=True)
        with pytest.raises(RunError, match="a restore was begun, and not completed"):
            Store(tmp_path / "state").open()
    restore(tmp_path / "backup", tmp_path / "state", replace=False)
    with Store(tmp_path / "state") as store:
        assert store.last_job() == 2


def test_numbers_of_a_restored_cluster_are_above_all_that_may_have_been_given_out(
    tmp_path: Path,
) -> None:
    assert next_job(last=13, taken=-1) == 2 * JOBS
    assert next_job(last=13, taken=2 * JOBS + 5) == 3 * JOBS
    now_s = 1_800_000_000.0
    assert next_attempt(7, now_s) > next_attempt(7, now_s - 60.0) + 50
    assert next_attempt(10**9, now_s) == 10**9 + 10_000
    (tmp_path / "a" / "16").mkdir(parents=True)
    (tmp_path / "a" / "17-0badcafe").mkdir()
    (tmp_path / "b" / "x").mkdir(parents=True)
    assert newest_trace(tmp_path / "a", tmp_path / "b", tmp_path / "c") == 17
    assert newest_trace(tmp_path / "c") == -1


def test_the_state_of_another_version_is_no_backup(tmp_path: Path) -> None:
    with Store(tmp_path / "a") as store, store.transaction() as t:
        t.put_jobs([row(1)])
        t.set_meta("schema", "1")
    wanted = r"was written by another version of Fairlead \(schema 1, known is 5\)"
    with pytest.raises(RunError, match=wanted):
        restore(tmp_path / "a" / "state.db", tmp_path / "b", replace=False)


def test_a_cluster_goes_on_from_a_backup_while_agents_hold_newer_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cluster.cluster.FAIRLEAD", SHORT_GRACE)
    with running(tmp_path, agents={"one": "v100=1", "two": "v100=1"}) as cluster:
        with cluster.client() as client:
            (old,) = client.submit([ledger_job(tmp_path)])
            until(lambda: client.job(old).steps > 5)
            receive(client.backup(), tmp_path / "backup")
            until(lambda: client.status().backup_age_s is not None)
            assert call("check", cluster.state) == 0
            client.pause(old)
            until(lambda: client.job(old).node == "")
            client.resume(old)
            until(lambda: client.job(old).attempt > 1 and client.job(old).steps > 10)
            (new,) = client.submit([ledger_job(tmp_path)])  # of which the backup knows nothing
            until(lambda: client.job(new).steps > 5)
        cluster.kill()
        with (cluster.state / "state.db-wal").open("r+b") as log:
            log.truncate(log.seek(0, 2) // 2)
        with pytest.raises(AssertionError, match="fairlead restore --replace BACKUP"):
            cluster.start()
        assert call("restore", "--replace", tmp_path / "backup", cluster.state) == 0
        restored_at = time.monotonic()
        cluster.start()
        _check_restored(cluster, tmp_path, (old, new), restored_at)


def _check_restored(
    cluster: Running, folder: Path, jobs: tuple[int, int], restored_at: float
) -> None:
    old, new = jobs
    with cluster.client() as client:
        reason = client.job(old).reason
        assert reason.startswith("the cluster was restored from a backup of 20")
        assert reason.endswith("; the job starts again from its newest checkpoint")
        (third,) = client.submit([ledger_job(folder, 20)])
        assert third >= JOBS, "the number of a job that is not known is not given out again"
        until(lambda: any(a > ATTEMPTS for job, a, _, _ in ledger(folder) if job == old), 120.0)
        until(lambda: client.job(old).reason == "", 120.0)
        (folder / "ledger.hurry").touch()
        until(lambda: client.job(old).state == client.job(third).state == "completed", 120.0)
        assert client.job(old).steps == STEPS
    assert "nothing is started for 7 s" in cluster.log()
    steps = ledger(folder)
    mine = [(attempt, at, step) for job, attempt, at, step in steps if job == old]
    attempts = list(dict.fromkeys(attempt for attempt, _, _ in mine))
    assert attempts[0] == 1
    assert 1 < attempts[1] < ATTEMPTS < attempts[-1], (
        "no attempt of the time since is given out again"
    )
    assert [step for _, _, step in mine] == list(range(STEPS)), "no step lost, none done twice"
    assert [attempt for attempt, _, _ in mine] == sorted(attempt for attempt, _, _ in mine)
    held_s = min(at for job, _, at, _ in steps if job == third) - restored_at
    assert held_s > 4.0 + 3.0, "nothing is started while what is not known may still run"
    assert max(at for job, _, at, _ in steps if job == new) < restored_at + 7.0
