"""Results are kept by what was run and by which code; what is there is what would be computed."""

from pathlib import Path

import pytest
from tests.analysis.experiments.small_points import point

from fairlead.analysis.experiments import result_store as module
from fairlead.analysis.experiments.point import Status
from fairlead.analysis.experiments.result_store import (
    PointAnswer,
    PointTiming,
    ResultStore,
    code_version,
)

TIMING = PointTiming(1.5, "2026-01-01T00:00:00+00:00")
DONE = PointAnswer(Status.COMPLETE, {"avg_jct_s": 1.0}, jobs=b"table")


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    assert store.find(point()) is None
    kept = store.keep(point(), DONE, TIMING)
    assert store.find(point()) == kept
    assert kept.seconds == 1.5
    assert Path(kept.jobs).read_bytes() == b"table"
    assert store.find(point(seed=1)) is None
    Path(kept.jobs).unlink()
    assert store.find(point()) is None, "a point whose table is lost is made again"


def test_a_point_is_equal_bytes_whenever_it_is_kept(tmp_path: Path) -> None:
    key = ResultStore(tmp_path).key(point())
    texts: list[bytes] = []
    for when in ("2026-01-01", "2027-01-01"):
        ResultStore(tmp_path / when).keep(point(), DONE, PointTiming(len(texts), when))
        texts.append((tmp_path / when / "points" / f"{key}.json").read_bytes())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMED_OUT])
def test_what_did_not_end_is_no_result(tmp_path: Path, status: Status) -> None:
    store = ResultStore(tmp_path)
    store.keep(point(), PointAnswer(status, reason="why"), TIMING)
    assert store.find(point()) is None
    last = store.last(point())
    assert last is not None
    assert (last.status, last.reason) == (status, "why")


def test_a_trace_that_was_changed_is_another(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("one")
    before = ResultStore(tmp_path).key(point(generate=None, trace=str(trace)))
    trace.write_text("another")
    assert ResultStore(tmp_path).key(point(generate=None, trace=str(trace))) != before


def test_results_of_other_code_are_taken_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "code_version", lambda: "0.0.9+old")
    old = ResultStore(tmp_path).keep(point(), DONE, TIMING)
    monkeypatch.undo()
    assert ResultStore(tmp_path).find(point()) is None
    store = ResultStore(tmp_path, any_version=True)
    assert store.find(point()) == old
    assert store.foreign == {"0.0.9+old": 1}
    assert store.find(point(seed=1)) is None


def test_a_file_that_was_torn_is_none(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.keep(point(), DONE, TIMING)
    (tmp_path / "points" / f"{store.key(point())}.json").write_text('{"version": ')
    assert store.find(point()) is None


def test_the_version_names_the_sources_that_decide() -> None:
    root = Path(module.__file__).parents[2]
    for name in module.SOURCES:
        assert (root / name).exists(), name
    assert code_version() == code_version()
