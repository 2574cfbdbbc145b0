import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.rows import (
    AttemptRow,
    JobRow,
    NodeRow,
    UserRow,
)
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.transaction import MAX_KEYS
from fairlead.errors import RunError, StoreError

SPEC = JobSpec(command=("true",), total_steps=10, env={"A": "1"}, slo_s=5.0)


def row(number: int, state: JobState = "waiting", tenant: str = "a", **more: float) -> JobRow:
    return JobRow(
        id=number,
        name=f"job-{number}",
        tenant=tenant,
        user="u",
        spec=SPEC,
        state=state,
        submitted_s=1.5,
        total_steps=10.0,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state") as opened:
        yield opened


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    job, node = row(3, steps=2.5), NodeRow(name="n", accelerator="v100", devices=4, host="h")
    attempt = AttemptRow(
        job=3, attempt=1, node="n", accelerator="v100", devices=(0, 2), began_s=2.0
    )
    user = UserRow(user="u", tenant="t", role="agent", token_hash=b"\x00\xff")
    with Store(tmp_path) as store, store.transaction() as t:
        t.put_jobs([job])
        t.put_attempts([attempt])
        t.put_node(node)
        t.put_user(user)
        t.put_key("once", [3, 4])
        t.set_meta("clock", "9")
    with Store(tmp_path) as store:
        assert store.job(3) == job
        assert store.job(4) is None
        assert store.attempts(3) == [attempt]
        assert store.nodes() == [node]
        assert store.users() == [user]
        assert store.key("once") == [3, 4]
        assert store.key("never") is None
        assert store.meta("clock") == "9"
        assert store.last_job() == 3
        with store.transaction() as t:
            t.delete_node("n")
            t.delete_user("u")
        assert store.nodes() == []
        assert store.users() == []


def test_jobs_are_found_by_state_and_tenant_in_order_of_id(store: Store) -> None:
    states: list[JobState] = ["waiting", "running", "completed", "paused", "completed"]
    with store.transaction() as t:
        t.put_jobs(row(i, states[i % 5], "ab"[i % 2]) for i in range(50))

    def ids(**query: str | int) -> list[int]:
        return [job.id for job in store.jobs(**query)]  # type: ignore[arg-type]

    assert ids() == list(range(50))
    assert ids(after=10, limit=3) == [11, 12, 13]
    assert ids(state="running") == [i for i in range(50) if i % 5 == 1]
    assert ids(state="completed", tenant="b") == [
        i for i in range(50) if i % 5 in (2, 4) and i % 2 == 1
    ]
    assert ids(state="paused", tenant="a", after=20) == [
        i for i in range(21, 50) if i % 5 == 3 and i % 2 == 0
    ]
    assert ids(tenant="b", limit=4) == [1, 3, 5, 7]
    running = [i for i in range(50) if i % 5 in (0, 1, 3)]
    assert ids(state="open") == running == [job.id for job in store.open_jobs()]


def test_a_job_that_ends_leaves_the_open_ones_and_stays_in_the_history(store: Store) -> None:
    job = row(0)
    with store.transaction() as t:
        t.put_jobs([job])
    job.state, job.ended_s = "completed", 4.0
    with store.transaction() as t:
        t.put_jobs([job])
    assert store.open_jobs() == []
    assert store.jobs("completed") == [job]


def test_many_rows_at_once_are_inserted_changed_and_found_by_what_they_are_now(
    tmp_path: Path,
) -> None:
    before = [row(i, "running", "ab"[i % 2]) for i in range(40)]
    after = [
        row(i, "preempted" if i % 4 == 0 else "running", "ab"[i % 2], steps=5.0) for i in range(60)
    ]
    ends = {0: 7.0, 1: None}
    attempts = [
        AttemptRow(
            job=i,
            attempt=e,
            node="n",
            accelerator="v100",
            devices=(0,),
            began_s=1.0,
            ended_s=ends[e],
        )
        for i in range(30)
        for e in (0, 1)
    ]
    with Store(tmp_path) as store:
        with store.transaction() as t:
            t.put_jobs(before)
            t.put_attempts(attempts[:40])
        with store.transaction() as t:
            t.put_jobs(after)
            t.put_attempts([*attempts, attempts[0]])
    with Store(tmp_path) as store:  # which is refused where the total of all checksums is another
        assert store.open_jobs() == after
        assert [job.id for job in store.jobs("preempted")] == list(range(0, 60, 4))
        assert store.jobs("running", "b", after=20, limit=3) == [after[i] for i in (21, 23, 25)]
        assert store.open_attempts() == attempts[1::2]
        assert store.attempts(7) == attempts[14:16]


def test_of_rows_with_one_key_in_a_transaction_the_last_one_counts(tmp_path: Path) -> None:
    with Store(tmp_path) as store, store.transaction() as t:
        t.put_jobs([row(1), row(2), row(1, "running")])
        t.put_jobs([row(2, "paused")])
    with Store(tmp_path) as store:
        assert [job.state for job in store.open_jobs()] == ["running", "paused"]


def test_the_newest_segment_is_read_and_old_ones_are_deleted(store: Store) -> None:
    assert store.segment()[0] == -1
    with pytest.raises(RunError, match="no segment"), store.transaction() as t:
        t.append([b"lost"])
    for number in range(5):
        with store.transaction() as t:
            assert t.new_segment([b"setup %d" % number, b"state"]) == number
        with store.transaction() as t:
            t.append([b"%d" % i for i in range(600)])
    number, records = store.segment()
    assert number == 4
    assert list(records) == [b"setup 4", b"state", *(b"%d" % i for i in range(600))]
    with sqlite3.connect(store.path) as raw:
        kept = raw.execute("SELECT DISTINCT segment FROM journal ORDER BY 1").fetchall()
    raw.close()
    assert kept == [(3,), (4,)]


def test_the_file_does_not_grow_with_the_number_of_segments(store: Store) -> None:
    sizes = []
    for _ in range(12):
        with store.transaction() as t:
            t.new_segment([os.urandom(1 << 18)])
        sizes.append(store.path.stat().st_size)
    assert max(sizes) < 6 * (1 << 18)


def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    def change() -> None:
        with store.transaction() as t:
            t.new_segment([b"x"])
            t.put_jobs([row(1)])
            raise KeyError

    with pytest.raises(KeyError):
        change()
    assert store.segment()[0] == -1
    assert store.jobs() == []


def test_other_threads_read_what_is_committed_and_nothing_else(store: Store) -> None:
    seen: list[int] = []
    with store.transaction() as t:
        t.put_jobs([row(1)])
        reader = threading.Thread(target=lambda: seen.append(len(store.jobs())))
        reader.start()
        reader.join()
    assert [*seen, len(store.jobs())] == [0, 1]


def test_the_oldest_keys_are_forgotten(store: Store) -> None:
    with store.transaction() as t:
        for number in range(MAX_KEYS + 2):
            t.put_key(f"k{number}", [number])
    assert store.key("k0") is None
    assert store.key("k1") is None
    assert store.key("k2") == [2]


# --- files that cannot be used --------------------------------------------------------------------


def test_a_second_server_is_refused_and_the_next_one_is_not(tmp_path: Path) -> None:
    with (
        Store(tmp_path),
        pytest.raises(RunError, match=f"{tmp_path}: a server is using this state directory"),
    ):
        Store(tmp_path).open()
    Store(tmp_path).open().close()


def test_nobody_else_can_read_the_state(tmp_path: Path) -> None:
    with Store(tmp_path / "a" / "state") as store, store.transaction() as t:
        t.set_meta("secret", "yes")
    assert store.directory.stat().st_mode & 0o777 == 0o700
    with store:
        modes = {path.name: path.stat().st_mode & 0o777 for path in store.directory.iterdir()}
    assert {"state.db", "state.db-wal", "samples.db", "server.lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(RunError, match="state: cannot be used as a state directory"):
        Store(tmp_path / "state").open()


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 500])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.db").write_bytes(content)
    with pytest.raises(RunError, match=r"state\.db: cannot be used as the state of a cluster"):
        Store(tmp_path).open()
    assert (tmp_path / "state.db").read_bytes() == content


def test_a_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.db") as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(RunError, match=r"state\.db: is not a file of Fairlead's"):
        Store(tmp_path).open()


def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store, store.transaction() as t:
        t.set_meta("schema", "6")
    with pytest.raises(RunError, match=r"another version of Fairlead \(schema 6, known is 5\)"):
        store.open()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store, store.transaction() as t:
        t.put_jobs(row(i) for i in range(2000))
    data = bytearray(store.path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8192] = os.urandom(8192)
    store.path.write_bytes(data)
    with pytest.raises(RunError, match=r"state\.db: "):
        store.open()


def test_a_damaged_row_is_named(store: Store) -> None:
    with store.transaction() as t:
        t.put_jobs([row(1)])
    with sqlite3.connect(store.path) as raw:
        raw.execute("UPDATE jobs SET row = x'93'")
    raw.close()
    with pytest.raises(RunError, match="a row is damaged"):
        store.job(1)


# --- kill -9 and full disks -----------------------------------------------------------------------

WRITER = """
import sys
from tests.cluster.store.test_store import row
from fairlead.cluster.store.store import Store
with Store(sys.argv[1]) as store:
    first = store.last_job() + 1
    if not first:
        with store.transaction() as t:
            t.new_segment([])
    print(flush=True)
    for number in range(first, first + 100_000):
        with store.transaction() as t:
            t.put_jobs([row(number)])
            t.append([b"%d" % number, bytes(5000), b"end"])
            t.set_meta("last", str(number))
        print(number, flush=True)
"""


def test_after_kill_9_every_acknowledged_transaction_is_there_and_none_in_halves(
    tmp_path: Path,
) -> None:
    acknowledged = -1
    for lines in (3, 17, 40):
        with _python(WRITER, str(tmp_path), stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(lines):
                line = child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            rest = [line, *child.stdout]
        acknowledged = max(acknowledged, *(int(x) for x in rest if x.endswith("\n") and x.strip()))
        with Store(tmp_path) as store:  # at once: the dead leave no lock
            last = store.last_job()
            assert last >= acknowledged
            assert [job.id for job in store.jobs(limit=10**6)] == list(range(last + 1))
            assert store.meta("last") == str(last)
            records = list(store.segment()[1])
        assert records[::3] == [b"%d" % number for number in range(last + 1)]
        assert records[2::3] == [b"end"] * (last + 1)


LIMITED = """
import resource, sys
from tests.cluster.store.test_store import fails_then_goes_on
from fairlead.cluster.store.store import Store
def limit(bytes_):
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, resource.RLIM_INFINITY))
with Store(sys.argv[1]) as store:
    fails_then_goes_on(store, lambda: limit(1 << 20), lambda: limit(resource.RLIM_INFINITY))
"""


def fails_then_goes_on(store: Store, fill: object, empty: object) -> None:
    """fill(): there is no more space; empty(): there is again."""
    assert callable(fill)
    assert callable(empty)
    with store.transaction() as t:
        t.new_segment([b"first"])
    fill()
    with pytest.raises(StoreError, match=r"state\.db: cannot be written"):
        _too_much(store)
    assert store.jobs() == []
    assert store.meta("last") is None
    empty()
    with store.transaction() as t:
        t.append([b"second"])
        t.put_jobs([row(2)])
    assert list(store.segment()[1]) == [b"first", b"second"]
    assert [job.id for job in store.jobs()] == [2]


def _too_much(store: Store) -> None:
    with store.transaction() as t:
        t.set_meta("last", "no")
        t.append([os.urandom(1 << 20)])
        t.put_jobs([row(1)])


def test_a_file_that_may_not_grow_undoes_the_transaction_and_the_store_goes_on(
    tmp_path: Path,
) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    with _python(LIMITED, str(tmp_path), stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        message = child.stderr.read()
    assert child.returncode == 0, message


def test_a_full_disk_undoes_the_transaction_and_the_store_goes_on(tmp_path: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("a file system cannot be mounted here")
    filler = tmp_path / "filler"

    def fill() -> None:
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(5 << 20))

    with ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", str(tmp_path)], check=True)
        store = stack.enter_context(Store(tmp_path))
        fails_then_goes_on(store, fill, filler.unlink)


def _python(code: str, *arguments: str, **pipes: int) -> "subprocess.Popen[str]":
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, text=True, cwd=root, **pipes)  # type: ignore[call-overload,no-any-return]
