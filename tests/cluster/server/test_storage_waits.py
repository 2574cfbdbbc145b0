"""When the storage of checkpoints is taken to be well again, and what the operator is told meanwhile."""

import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.server.attempt_orders import ranks_on
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.storage_waits import StorageWaits
from fairlead.cluster.store.failures import FailureRecord
from fairlead.cluster.store.rows import AttemptRow, JobRow

READ_ONLY, FULL = "Read-only file system", "No space left on device"
GONE = "is gone, with 9 steps (put it back)"


def row_of(job: int, why: str = "", directory: str = "/c", wrong: str = "") -> JobRow:
    """why: it waits for its checkpoints. wrong: the directory that is out of order."""
    row = JobRow(
        id=job,
        name="",
        tenant="t",
        user="u",
        spec=JobSpec(command=("true",), total_steps=1000, cwd="/"),
        state="waiting",
        submitted_s=0.0,
        total_steps=1000.0,
    )
    row.checkpoints = directory
    if why:
        reason = f"checkpoint directory '{row.checkpoint_dir}': {why}"
        known = {"job": job, "attempt": 1, "node": "a", "time_s": 0.0, "kind": "exit"}
        own = {"directory": "out_of_order", "of_checkpoints": why == GONE}
        record = FailureRecord(**known, **own, reason=reason)  # type: ignore[arg-type]
        row.recent_failures = (record,)
        row.failure = Failure(directory="wrong_path", path=wrong)
    return row


def waits(*rows: JobRow) -> StorageWaits:
    made = StorageWaits()
    for row in rows:
        made.add(row)
    return made


def start(row: JobRow, attempt: int = 2) -> Attempt:
    record = AttemptRow(
        job=row.id, attempt=attempt, node="a", accelerator="v100", devices=(0,), began_s=0.0
    )
    return Attempt(row, record, ranks_on({"a": (0,)}), 10.0, 0.0, ordered=True)


@pytest.mark.parametrize(("why", "is_over"), [(READ_ONLY, True), (FULL, False), (GONE, False)])
def test_a_job_that_finds_its_checkpoints_shows_that_an_outage_is_over(
    why: str, is_over: bool
) -> None:
    """Those who wait may have to wait long for devices. That there is room for more, or that the folder of
    another one is back, it does not show."""
    other = row_of(1, why)
    storage = waits(other)
    assert storage.begun(start(row_of(2))) == ([other] if is_over else [])
    assert bool(storage.trouble) is not is_over
    assert storage.begun(start(row_of(3, directory="/d"))) == []


@pytest.mark.parametrize("why", [READ_ONLY, FULL, GONE])
def test_a_job_that_waited_for_the_same_shows_it_of_anything(why: str) -> None:
    rows = [row_of(job, why) for job in (1, 2, 3)]
    storage = waits(*rows)
    assert storage.begun(start(rows[0])) == rows[1:]
    assert storage.trouble == ""


def test_all_that_wait_are_counted() -> None:
    same = waits(*[row_of(job, READ_ONLY) for job in (1, 2)])
    assert same.trouble == f"/c: {READ_ONLY}; 2 jobs wait for it"
    different = waits(row_of(1, READ_ONLY), row_of(2, READ_ONLY), row_of(3, GONE))
    assert different.trouble == f"/c: {READ_ONLY}; 3 jobs wait for checkpoints, 2 of them for these"
    assert waits(row_of(3, GONE)).trouble == f"/c/3: {GONE}; 1 job waits for it"


@pytest.mark.parametrize(
    ("wrong", "is_own"),
    [("", False), ("/", False), ("/c", False), ("/c/1", True), ("/c/1/deep", True), ("/d", True)],
)
def test_what_is_below_the_directory_of_all_is_a_matter_of_one_job(
    wrong: str, is_own: bool
) -> None:
    row = row_of(1, "Not a directory", wrong=wrong)
    storage = waits(row)
    assert (storage.trouble == "", storage.count == 0, storage.reasons() == {}) == (is_own,) * 3
    assert storage.begun(start(row_of(2), 1)) == ([] if is_own else [row])


@pytest.mark.parametrize(("why", "is_over"), [(READ_ONLY, True), (FULL, True), (GONE, False)])
def test_who_has_saved_shows_that_there_is_room(why: str, is_over: bool) -> None:
    other = row_of(1, why)
    storage = waits(other)
    assert storage.saved(start(row_of(3, directory="/d"))) == []
    assert storage.saved(start(row_of(2))) == ([other] if is_over else [])
    assert (storage.trouble == "") is is_over
