"""A player against a cluster that is played itself."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cluster.play.played import OFFSET, job_view

from fairlead.cluster.play.planned_jobs import PlannedJob
from fairlead.cluster.play.player import PlayedJobs, Player, read_submitted
from fairlead.cluster.protocol.api_models import AttemptView, JobView, Sample, StatusView
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import InputError, RunError, UnreachableError
from fairlead.model.job import Arrival, Job, JobId

BEGAN_S = 500.0


class _Cluster:
    """Jobs end as soon as all are there. fails: answers that are none, before it answers again."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.keys: dict[str, list[int]] = {}
        self.submitted: list[tuple[float, str]] = []  # when, and for whom
        self.fails = 0
        self.refuses = ""
        self.name = ""  # of all jobs
        self._began = time.monotonic()

    def _answer(self) -> None:
        if self.fails:
            self.fails -= 1
            raise UnreachableError("server: cannot be reached")

    def submit(self, specs: Sequence[JobSpec], tenant: str = "", key: str = "") -> list[int]:
        self._answer()
        if self.refuses:
            raise InputError(self.refuses)
        if key not in self.keys:
            first = OFFSET + sum(map(len, self.keys.values()))
            self.keys[key] = list(range(first, first + len(specs)))
            self.submitted.append((time.monotonic() - self._began, tenant))
        return self.keys[key]

    def status(self) -> StatusView:
        self._answer()
        now_s = BEGAN_S + time.monotonic() - self._began
        return StatusView(
            version="", now_s=now_s, policy="", profile="", round=0, round_s=1.0,
            round_ends_in_s=None, jobs={}, devices={}, solve="ok", solve_s=0.5, decide_s=None,
            journal_records=0, tenants=(),
        )  # fmt: skip

    def jobs(self, state: str = "", tenant: str = "", after: int = -1) -> list[JobView]:
        self._answer()
        ids = sorted(one for ids in self.keys.values() for one in ids if one > after)
        if state == "open" and sum(map(len, self.keys.values())) == self.n:
            return []
        return [job_view(one - OFFSET, 0.0, 1.0, name=self.name) for one in ids]

    def attempts(self, job: int) -> list[AttemptView]:
        self._answer()
        return []

    def samples(self, since_s: float = 0.0) -> list[Sample]:
        self._answer()
        return []


def _planned(number: int, at_s: float, tenant: str = "") -> PlannedJob:
    job = Job(JobId(number), "x", 1, 10.0, tenant=tenant)
    return PlannedJob(at_s, Arrival(at_s, job), JobSpec(command=("x",), total_steps=1))


def _play(
    cluster: _Cluster, folder: Path, plan: list[PlannedJob], stops_after: int | None = None
) -> PlayedJobs | None:
    """stops_after: so many submissions; None = never."""
    player = Player(
        client=cluster,
        folder=folder,
        key="k",
        began_s=BEGAN_S,
        keep_tenants=True,
        stop=lambda: stops_after is not None and len(cluster.submitted) >= stops_after,
        say=lambda _: None,
    )
    return player.play(plan)


def test_jobs_are_submitted_at_their_times_for_their_tenants(tmp_path: Path) -> None:
    cluster = _Cluster(3)
    found = _play(cluster, tmp_path, [_planned(0, 0.0), _planned(5, 0.3, "t"), _planned(6, 0.6)])
    assert found is not None
    assert found.ids == {0: OFFSET, 5: OFFSET + 1, 6: OFFSET + 2}
    at_s = [at for at, _ in cluster.submitted]
    assert all(at >= due for at, due in zip(at_s, (0.0, 0.3, 0.6), strict=True))
    assert [tenant for _, tenant in cluster.submitted] == ["", "t", ""]
    assert found.solve_s
    assert not found.forgotten


def test_an_interrupted_play_goes_on_where_it_was(tmp_path: Path) -> None:
    """A line that was cut off is submitted again, under the same key."""
    cluster, plan = _Cluster(3), [_planned(0, 0.0), _planned(5, 0.05), _planned(6, 0.1)]
    assert _play(cluster, tmp_path, plan, stops_after=2) is None
    path = tmp_path / "submitted.jsonl"
    assert read_submitted(tmp_path) == {0: OFFSET, 5: OFFSET + 1}
    path.write_text(path.read_text()[:-4])
    assert read_submitted(tmp_path) == {0: OFFSET}
    found = _play(cluster, tmp_path, plan)
    assert found is not None
    assert found.ids == {0: OFFSET, 5: OFFSET + 1, 6: OFFSET + 2}
    assert len(cluster.submitted) == 3
    assert read_submitted(tmp_path) == found.ids


def test_a_server_that_is_away_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.cluster.play.player.RETRY_S", 0.01)
    cluster = _Cluster(2)
    cluster.fails = 5
    assert _play(cluster, tmp_path, [_planned(0, 0.0), _planned(1, 0.0)]) is not None


def test_what_is_refused_is_told(tmp_path: Path) -> None:
    cluster = _Cluster(1)
    cluster.refuses = "job: weight: no"
    with pytest.raises(InputError, match="weight: no"):
        _play(cluster, tmp_path, [_planned(0, 0.0)])


def test_a_server_with_another_state_is_told_from_the_one_that_was_played_on(
    tmp_path: Path,
) -> None:
    cluster, plan = _Cluster(2), [_planned(0, 0.0), _planned(1, 0.1)]
    assert _play(cluster, tmp_path, plan, stops_after=1) is None
    for others in ({}, {"theirs": [OFFSET]}):
        cluster.keys = others
        cluster.name = "theirs"
        with pytest.raises(RunError, match="does not have the jobs that were submitted"):
            _play(cluster, tmp_path, plan)
