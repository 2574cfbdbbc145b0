"""Jobs that leave the store: what they were billed stays, and nothing else is touched."""

import random
from pathlib import Path

import pytest
from tests.cluster.store.test_usage import ORIGIN, PRICES, SPEC, a_month, attempt, fill, job
from tests.deep_folder import make_deep

from fairlead.cluster.folder_removal import remove_folder
from fairlead.cluster.protocol.accounting import Grouping
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.ended_jobs import (
    EndedJob,
    ended_jobs,
    has_folder,
    remove_jobs,
)
from fairlead.cluster.store.rows import JobRow
from fairlead.cluster.store.schema import Commit
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.transaction import Transaction
from fairlead.cluster.store.usage import read_usage, usage_view

CLOCK = f'{{"now_s": 3024000.0, "boot": "", "boot_s": 0.0, "wall_s": {ORIGIN + 3024000.0}}}'
BY: tuple[Grouping, ...] = ("tenant", "user", "type", "day")


def ended_month(seed: int, directory: Path) -> Path:
    jobs, attempts, now_s = a_month(random.Random(seed))
    running = {one.job for one in attempts if one.ended_s is None}
    for row in jobs:
        if row.id not in running:
            row.state, row.ended_s = "completed" if row.id % 3 else "cancelled", now_s - row.id
    return fill(directory, jobs, attempts, now_s)


def test_accounting_is_the_same_whatever_has_left(tmp_path: Path) -> None:
    path = ended_month(0, tmp_path / "state")
    now_s = 35 * 86400.0

    def accounting() -> object:
        return usage_view(read_usage(path, ORIGIN + now_s), BY, PRICES)

    whole = accounting()
    rng = random.Random(1)
    with Store(tmp_path / "state") as store:
        ended = store.ended()
        jobs = ended_jobs(path, -1, 1000)
        assert [one.id for one in jobs] == [row.id for row in store.jobs() if not row.open][
            : len(jobs)
        ]
        while jobs:
            leaving = rng.sample(jobs, min(len(jobs), rng.randrange(1, 30)))
            remove_jobs(store, leaving, ORIGIN, CLOCK)
            jobs = [one for one in jobs if one not in leaving]
            assert accounting() == whole
            assert [one.id for one in ended_jobs(path, -1, 1000)] == [one.id for one in jobs]
            assert store.ended() == ended
            assert all(store.job(one.id) is None and not store.attempts(one.id) for one in leaving)
    with Store(tmp_path / "state") as store:  # verified when it is opened
        assert store.last_job() == 119
        assert store.ended() == ended


class KilledError(Exception):
    pass


def test_a_removal_that_is_broken_off_has_removed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ended_month(2, tmp_path / "state")
    before = read_usage(path, ORIGIN + 3024000.0)
    with Store(tmp_path / "state") as store:
        jobs = ended_jobs(path, -1, 50)

        def seal(_: Transaction) -> Commit:
            raise KilledError

        with monkeypatch.context() as patched:
            patched.setattr(Transaction, "seal", seal)
            with pytest.raises(KilledError):
                remove_jobs(store, jobs, ORIGIN, CLOCK)
        assert ended_jobs(path, -1, 50) == jobs
        assert read_usage(path, ORIGIN + 3024000.0) == before


def test_jobs_are_found_behind_an_id_and_the_newest_stays(tmp_path: Path) -> None:
    rows = [job(id_, "apes", "ann") for id_ in range(6)]
    for row in rows:
        if row.id != 2:
            row.state, row.ended_s = "completed", 1.0
    path = fill(tmp_path / "state", rows, [attempt(0, 1, "v100", 1, 0.0, ended_s=1.0)], 10.0)
    assert [one.id for one in ended_jobs(path, -1, 3)] == [0, 1, 3]
    assert [one.id for one in ended_jobs(path, 3, 3)] == [4]


def found(tmp_path: Path, **fields: object) -> EndedJob:
    row = JobRow(
        id=7, name="", tenant="t", user="u", submitted_s=0.0, total_steps=1.0, state="completed",
        ended_s=1.0, **{"spec": SPEC, "checkpoints": "/c", "folder": "7-0123abcd", **fields},  # type: ignore[arg-type]
    )  # fmt: skip
    path = fill(tmp_path / "state", [row, job(8, "t", "u")], [], 10.0)
    (one,) = ended_jobs(path, -1, 10)
    return one


def test_checkpoints_of_its_own_folder_are_fairleads(tmp_path: Path) -> None:
    assert found(tmp_path).own_checkpoints == "/c/7-0123abcd"


@pytest.mark.parametrize(
    "fields",
    [
        {"folder": ""},
        {"folder": "8-0123abcd"},
        {"folder": "7-../../x"},
        {"folder": ".."},
        {"checkpoints": ""},
        {"spec": JobSpec(command=("x",), total_steps=1, checkpoint_dir="/data/model")},
    ],
)
def test_all_others_are_not(tmp_path: Path, fields: dict[str, object]) -> None:
    assert found(tmp_path, **fields).own_checkpoints == ""


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    root = tmp_path / "root"
    (root / "7-a" / "deep").mkdir(parents=True)
    (root / "7-a" / "deep" / "link").symlink_to(outside)
    (root / "7-a" / "file").symlink_to(outside / "kept")
    (root / "8-a").symlink_to(outside)
    assert has_folder(root, "7-a")
    remove_folder(root, "7-a")
    assert not has_folder(root, "7-a")
    remove_folder(root, "8-a")
    assert not (root / "8-a").is_symlink()
    assert (outside / "kept").read_text() == "x"


def test_storage_that_is_away_is_not_taken_for_empty(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        has_folder(tmp_path / "away", "7-a")
    assert not has_folder(tmp_path, "7-a")


def test_a_folder_that_is_very_deep_is_removed(tmp_path: Path) -> None:
    make_deep(tmp_path / "7-a")
    remove_folder(tmp_path, "7-a")
    assert list(tmp_path.iterdir()) == []
