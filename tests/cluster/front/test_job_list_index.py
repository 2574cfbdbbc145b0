"""The index of all jobs that lists are searched in, beside a store that changes."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cluster.front.job_list_index import JobListIndex
from fairlead.cluster.front.recent_results import MAX_AGE_S
from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.job_search import JOB_ORDERS, JobOrder, JobQuery
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.ended_jobs import ended_jobs, remove_jobs
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.cluster.store.store import Store
from fairlead.errors import StoreError

EVERYTHING = 1 << 20


class Clock:
    """Each look is at a store that may have changed."""

    now = 0.0

    def __call__(self) -> float:
        self.now += MAX_AGE_S + 1.0
        return self.now


def row(number: int, state: JobState = "waiting", **more: object) -> JobRow:
    fields: dict[str, object] = {
        "name": f"train-{number}", "tenant": "ab"[number % 2], "user": "uvw"[number % 3],
        "spec": JobSpec(command=("x",), total_steps=100, family="ResNet-18"), "submitted_s": 0.0,
        "total_steps": 100.0,
    }  # fmt: skip
    return JobRow(id=number, state=state, **(fields | more))  # type: ignore[arg-type]


def attempt(job: int, number: int = 1, **more: object) -> AttemptRow:
    fields: dict[str, object] = {"node": "n1", "accelerator": "v100", "devices": (0,)}
    return AttemptRow(job=job, attempt=number, began_s=0.0, **(fields | more))  # type: ignore[arg-type]


def put(store: Store, *rows: JobRow | AttemptRow) -> None:
    with store.transaction() as t:
        t.put_jobs(one for one in rows if isinstance(one, JobRow))
        t.put_attempts(one for one in rows if isinstance(one, AttemptRow))


def remove(store: Store, *numbers: int) -> None:
    leaving = [one for one in ended_jobs(store.path, -1, EVERYTHING) if one.id in numbers]
    assert len(leaving) == len(numbers)
    remove_jobs(store, leaving, 0.0, "0")


def make_index(**more: int) -> JobListIndex:
    return JobListIndex(lambda job, _: job.steps, lambda: 50.0, Clock(), **more)


def ids(index: JobListIndex, store: Store, **query: object) -> list[int]:
    asked = JobQuery(**({"limit": EVERYTHING} | query))  # type: ignore[arg-type]
    return index.find(store, asked, {}).ids


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state") as opened:
        yield opened


def test_words_are_found_in_all_that_people_know_of_a_job(store: Store) -> None:
    put(
        store,
        row(7, name="BERT large", user="ada", tenant="vision"),
        row(70, "running", name="x7", attempt=1),
        row(8, reason="failed: OSError: no space"),
        attempt(70, node="rack-3", accelerator="h100"),
    )
    index = make_index()

    def found(words: str) -> list[int]:
        return ids(index, store, search=words)

    assert found("bert") == found("ada VISION") == found(" LARGE  vision ") == [7]
    assert found("rack-3") == found("H100") == [70]
    assert found("no space") == found("oserror") == [8]
    assert found("resnet") == found("") == [7, 8, 70]
    assert found("7") == [7, 70]  # as an id, and in a name
    assert found("8") == [7, 8, 70]  # as an id, and in the family ResNet-18
    assert found("bert no") == []


def test_counts_by_state_are_of_all_that_fit_but_for_their_state(store: Store) -> None:
    put(store, *(row(i, ("waiting", "paused", "completed")[i % 3]) for i in range(30)))
    index = make_index()
    found = index.find(store, JobQuery(state="open", tenant="a", limit=4, offset=2), {})
    wanted = [i for i in range(0, 30, 2) if i % 3 != 2]
    assert found.ids == wanted[2:6]
    assert found.found == len(wanted)
    assert found.states == {"waiting": 5, "paused": 5, "completed": 5}
    mine = index.find(store, JobQuery(user="v", limit=EVERYTHING), {})
    assert mine.ids == list(range(1, 30, 3))


def test_a_job_is_listed_in_the_state_in_which_it_is_shown(store: Store) -> None:
    put(store, row(0, "running"), row(1, "running"))
    index = make_index()
    found = index.find(store, JobQuery(state="completed"), {1: "completed"})
    assert (found.ids, found.states) == ([1], {"running": 1, "completed": 1})
    put(store, row(1, "cancelled"))  # what was published may be older than the row
    assert index.find(store, JobQuery(), {1: "completed"}).states == {"running": 1, "cancelled": 1}


def test_lists_are_sorted_by_each_column_with_the_unknown_last(store: Store) -> None:
    spec = JobSpec(command=("x",), total_steps=100, slo_s=60.0, rates={"v100": 2.0})
    put(
        store,
        row(0, "running", name="b", steps=50.0, attempt=1, spec=spec, measured_rate=1.0),
        row(1, "waiting", name="C", tenant="z", reason="waits"),
        row(2, "running", name="a", steps=90.0, attempt=1, spec=spec),
        row(3, "completed", name="", steps=100.0, spec=spec, ended_s=90.0),
        attempt(0, node="n9"),
        attempt(2, node="n2"),
    )
    index = make_index()
    ascending: dict[JobOrder, list[int]] = {
        "id": [0, 1, 2, 3],
        "name": [2, 0, 1, 3],
        "tenant": [0, 2, 3, 1],
        "state": [1, 0, 2, 3],
        "place": [2, 0, 1, 3],
        "progress": [1, 0, 2, 3],
        "left": [2, 0, 1, 3],
        "deadline": [3, 0, 2, 1],  # it ended 30 s late; the others have 10 s left
        "reason": [1, 0, 2, 3],
    }
    known = {"name": 3, "place": 2, "left": 2, "deadline": 3, "reason": 1}
    assert set(ascending) == set(JOB_ORDERS)
    for sort, order in ascending.items():
        assert ids(index, store, sort=sort) == order, sort
        turned = ids(index, store, sort=sort, descending=True)
        several = known.get(sort, 4)
        assert turned[several:] == order[several:], sort
        if sort in ("id", "name", "place", "progress", "left"):
            assert turned[:several] == order[:several][::-1], sort


def test_an_index_beside_a_store_that_changes_is_one_that_was_made_anew(store: Store) -> None:
    rng = random.Random(3)
    index, rows, attempts = make_index(), dict[int, JobRow](), dict[int, AttemptRow]()
    removed = set[int]()
    states: list[JobState] = ["waiting", "running", "preempted", "completed", "cancelled"]
    for step in range(150):
        changed: list[JobRow | AttemptRow] = []
        for _ in range(rng.randrange(4)):  # new ones, which may have ended before anyone looked
            number = len(rows)
            rows[number] = row(number, rng.choice(states))
            changed.append(rows[number])
        for number in rng.sample(sorted(rows), min(len(rows), 3)):
            if rows[number].open:
                rows[number].state = rng.choice(states)
                rows[number].name = f"changed in {step}"
                changed.append(rows[number])
                if rows[number].state == "running":
                    last = attempts.get(number)
                    if last is not None:
                        last.ended_s = 1.0
                        changed.append(last)
                    rows[number].attempt += 1
                    attempts[number] = attempt(
                        number, rows[number].attempt, node=f"n{step}", ordered=rng.random() < 0.7
                    )
                    changed.append(attempts[number])
        for number in rng.sample(sorted(attempts), min(len(attempts), 2)):
            if number not in removed:
                attempts[number].ordered = True
                changed.append(attempts[number])
        put(store, *changed)
        ended = [
            one for one in sorted(rows)[:-1] if not rows[one].open and rows[one].id not in removed
        ]
        if leaving := rng.sample(ended, min(len(ended), rng.randrange(3))):
            remove(store, *leaving)
            removed.update(leaving)
        query = JobQuery(
            search=rng.choice(["", "changed", f"n{step - 1}"]), sort=rng.choice(JOB_ORDERS),
            descending=rng.random() < 0.5, limit=EVERYTHING,
        )  # fmt: skip
        assert index.find(store, query, {}) == make_index().find(store, query, {})
    everything = index.find(store, JobQuery(limit=EVERYTHING), {})
    assert everything.ids == sorted(rows.keys() - removed)
    left = (one for one in rows.values() if one.id not in removed)
    assert everything.states == Counter(one.state for one in left)


def test_an_index_is_whole_again_after_the_store_has_failed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, row(0, "running", attempt=1), row(1))
    index = make_index()
    assert ids(index, store) == [0, 1]
    put(store, attempt(0, node="late"), row(1, "completed"), row(2))

    def fail(_: object) -> list[JobRow]:
        raise StoreError("the disk does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(store, "jobs_of", fail)
        with pytest.raises(StoreError):
            ids(index, store)
    assert ids(index, store, search="late") == [0]
    assert index.find(store, JobQuery(), {}) == make_index().find(store, JobQuery(), {})


def test_of_jobs_that_have_ended_the_newest_are_kept(store: Store) -> None:
    put(store, row(0), *(row(i, "completed") for i in range(1, 9)))
    index = make_index(max_ended=5)
    found = index.find(store, JobQuery(), {})
    assert (found.ids, found.is_cut) == ([0, 4, 5, 6, 7, 8], True)
    put(store, row(0, "cancelled"), row(9, "completed"), row(10))
    assert index.find(store, JobQuery(), {}).ids == [5, 6, 7, 8, 9, 10]
    assert not make_index(max_ended=50).find(store, JobQuery(), {}).is_cut


def test_jobs_that_retention_has_removed_are_neither_found_nor_counted(store: Store) -> None:
    put(store, *(row(i, "completed", name=f"old-{i}") for i in range(6)), row(6), row(7))
    index = make_index()
    assert index.find(store, JobQuery(limit=2), {}).found == 8
    remove(store, 0, 1, 4)
    found = index.find(store, JobQuery(limit=2), {})
    assert (found.ids, found.found) == ([2, 3], 5)
    assert found.states == {"completed": 3, "waiting": 2}
    assert ids(index, store, search="old-1") == ids(index, store, search="old-4") == []
    put(store, row(6, "cancelled"))  # ends, and is removed, between two looks
    remove(store, 2, 6)
    assert index.find(store, JobQuery(), {}) == make_index().find(store, JobQuery(), {})
    assert ids(index, store) == [3, 5, 7]


def test_jobs_that_are_removed_while_the_index_is_read_are_gone_at_the_next_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, *(row(i, "completed") for i in range(4)), row(4, "running", attempt=1), row(5))
    index = make_index()

    def and_remove(method: str, *numbers: int) -> None:
        read = getattr(store, method)

        def reads(*given: object, **named: object) -> object:
            found = read(*given, **named)
            if there := [one for one in numbers if store.job(one) is not None]:
                remove(store, *there)
            return found

        with monkeypatch.context() as beside:
            beside.setattr(store, method, reads)
            ids(index, store)

    and_remove("last_job", 0)
    and_remove("jobs_of", 1)
    assert ids(index, store) == [2, 3, 4, 5]
    put(store, row(4, "completed"))
    and_remove("open_job_sums", 4)
    assert ids(index, store) == [2, 3, 5]
    put(store, row(5, "completed"), row(6))
    and_remove("jobs", 5)
    assert index.find(store, JobQuery(), {}) == make_index().find(store, JobQuery(), {})
    assert ids(index, store) == [2, 3, 6]


def test_older_jobs_come_into_the_lists_as_newer_ones_are_removed(store: Store) -> None:
    put(store, *(row(i, "completed") for i in range(8)), row(8))
    index = make_index(max_ended=5)
    assert index.find(store, JobQuery(), {}).ids == [3, 4, 5, 6, 7, 8]
    remove(store, 4, 6)
    found = index.find(store, JobQuery(), {})
    assert (found.ids, found.is_cut) == ([1, 2, 3, 5, 7, 8], True)
    remove(store, 0)
    assert not index.find(store, JobQuery(), {}).is_cut
