import itertools
import json
import math
import time
from pathlib import Path

import pytest

from fairlead.client.report import MAX_NAMES
from fairlead.cluster.store.metric_store import MetricStore, read_curves, read_lasts


def lines(*reports: tuple[int, dict[str, float]]) -> bytes:
    """Reports as a script writes them."""
    return b"".join(
        json.dumps({"step": step, "time": 1e9 + step, "metrics": metrics}).encode() + b"\n"
        for step, metrics in reports
    )


def points(folder: Path, job: int = 7, name: str = "loss") -> list[tuple[int, float]]:
    (curve,) = read_curves(folder, job, name)
    return list(zip(curve.steps, curve.values, strict=True))


def test_points_are_kept_by_metric_and_step(tmp_path: Path) -> None:
    store = MetricStore(tmp_path)
    data = lines((1, {"loss": 0.5, "rate": 10.0}), (2, {"loss": 0.25}))
    assert store.put((7, 1), 0, data) == len(data)
    assert points(tmp_path) == [(1, 0.5), (2, 0.25)]
    assert points(tmp_path, name="rate") == [(1, 10.0)]
    loss, rate = read_curves(tmp_path, 7)
    assert (loss.name, loss.last, loss.last_step, loss.times_s) == (
        "loss",
        0.25,
        2,
        [1e9 + 1, 1e9 + 2],
    )
    assert (rate.name, rate.last_step) == ("rate", 1)
    assert read_curves(tmp_path, 8) == []


def test_a_line_without_a_time_has_the_time_at_which_it_was_read(tmp_path: Path) -> None:
    store = MetricStore(tmp_path)
    before = time.time()
    store.put((7, 1), 0, b'{"step": 3, "metrics": {"loss": 0.5}}\n')
    (loss,) = read_curves(tmp_path, 7)
    assert before <= loss.times_s[0] <= time.time()
    assert read_lasts(tmp_path, [7], "loss")[7].time_s == loss.times_s[0]


def test_a_job_of_which_nothing_is_known_has_no_curves(tmp_path: Path) -> None:
    assert read_curves(tmp_path, 7) == []


def test_what_comes_twice_counts_once_and_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    store = MetricStore(tmp_path)
    first, second = lines((1, {"loss": 1.0})), lines((2, {"loss": 2.0}))
    assert store.put((7, 1), len(first), second) == 0, "the first piece is missing"
    assert store.put((7, 1), 0, first) == len(first)
    assert store.put((7, 1), 0, first) == len(first)
    assert store.put((7, 1), 0, first + second) == len(first + second)
    assert store.put((7, 1), len(first), second) == len(first + second)
    assert points(tmp_path) == [(1, 1.0), (2, 2.0)]


def test_a_store_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    first, second = lines((1, {"loss": 1.0})), lines((2, {"loss": 2.0}))
    MetricStore(tmp_path).put((7, 1), 0, first)  # not closed: its process was killed
    store = MetricStore(tmp_path)
    assert store.put((7, 1), 0, b"") == len(first)
    assert store.put((7, 1), len(first), second) == len(first + second)
    assert points(tmp_path) == [(1, 1.0), (2, 2.0)]


def test_steps_that_are_done_again_replace_what_was_reported(tmp_path: Path) -> None:
    store = MetricStore(tmp_path)
    store.put((7, 1), 0, lines(*((step, {"loss": float(step)}) for step in range(10))))
    store.put((7, 2), 0, lines((6, {"loss": -6.0}), (8, {"loss": -8.0})))
    before = [(step, float(step)) for step in range(6)]
    assert points(tmp_path) == [*before, (6, -6.0), (8, -8.0)], "no step from beyond the restart"
    late = lines(*((step, {"loss": 99.0}) for step in range(20)))
    store.put((7, 1), 0, late)  # of an attempt that is over
    assert points(tmp_path) == [*before, (6, -6.0), (8, -8.0)]
    (curve,) = read_curves(tmp_path, 7)
    assert (curve.last_step, curve.last) == (8, -8.0)


def test_within_an_attempt_the_last_report_of_a_step_counts(tmp_path: Path) -> None:
    store = MetricStore(tmp_path)
    store.put((7, 1), 0, lines((1, {"loss": 1.0}), (2, {"loss": 2.0}), (1, {"loss": 3.0})))
    assert points(tmp_path) == [(1, 3.0), (2, 2.0)]


@pytest.mark.parametrize("size", [1, 7, 100, 5_000])
def test_many_points_are_thinned_out_evenly(tmp_path: Path, size: int) -> None:
    store = MetricStore(tmp_path, max_points=100)
    offset = 0
    for begin in range(0, 5_000, size):
        piece = lines(*((s, {"loss": float(s)}) for s in range(begin, min(begin + size, 5_000))))
        offset = store.put((7, 1), offset, piece)
        if size == 1 and begin > 1_200:  # a transaction each
            break
    found = points(tmp_path)
    last = found.pop()
    assert last[0] == (1_201 if size == 1 else 4_999), "the newest is always there"
    steps = [step for step, _ in found]
    gaps = {b - a for a, b in itertools.pairwise(steps)}
    assert len(gaps) == 1, "however they came, they are as far apart"
    assert 50 <= len(steps) <= 100
    assert all(value == step for step, value in found)


def test_a_thinned_curve_takes_steps_that_are_done_again(tmp_path: Path) -> None:
    store = MetricStore(tmp_path, max_points=100)
    store.put((7, 1), 0, lines(*((s, {"loss": 1.0}) for s in range(1_000))))
    store.put((7, 2), 0, lines(*((s, {"loss": 2.0}) for s in range(501, 1_000))))
    found = points(tmp_path)
    assert {value for step, value in found if step > 500} == {2.0}
    assert {value for step, value in found if step <= 500} == {1.0}
    assert len(found) <= 101


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1, 2]",
        b'{"step": -1, "metrics": {"loss": 1}}',
        b'{"step": 1, "metrics": {"lo ss": 1}}',
        b'{"step": 1, "metrics": {"loss": "high"}}',
        b'{"step": 1, "metrics": {"loss": NaN}}',
        b'{"step": 1, "metrics": {"loss": 1e999}}',
        b'{"step": 9007199254740992, "metrics": {"loss": 1}}',
        b"\xff\xfe\x00",
    ],
)
def test_lines_that_are_no_reports_are_passed_over(tmp_path: Path, line: bytes) -> None:
    store = MetricStore(tmp_path)
    data = line + b"\n" + lines((3, {"loss": 3.0}))
    assert store.put((7, 1), 0, data) == len(data)
    assert points(tmp_path) == [(3, 3.0)]


def test_a_job_has_only_so_many_metrics(tmp_path: Path) -> None:
    store = MetricStore(tmp_path)
    store.put((7, 1), 0, lines((1, {f"m{i}": 1.0 for i in range(150)})))
    assert len(read_curves(tmp_path, 7)) == MAX_NAMES


def test_what_is_removed_is_gone_and_nothing_else(tmp_path: Path) -> None:
    store = MetricStore(tmp_path)
    store.remove([7])  # there is no file yet
    for job in (7, 8):
        store.put((job, 1), 0, lines((1, {"loss": float(job)})))
    store.remove([7])
    assert read_curves(tmp_path, 7) == []
    assert points(tmp_path, 8) == [(1, 8.0)]
    assert math.isclose(read_curves(tmp_path, 8)[0].last, 8.0)


def test_a_file_that_is_no_database_any_more_is_set_aside_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.db"
    path.write_bytes(b"nonsense" * 1000)
    store = MetricStore(tmp_path)
    store.open()
    assert path.with_name("metrics.db.damaged-1").read_bytes() == b"nonsense" * 1000
    assert "it is now metrics.db.damaged-1, and metrics begin anew" in caplog.text
    line = b'{"step": 1, "metrics": {"loss": 0.5}}\n'
    assert store.put((7, 1), 0, line) == len(line)
    store.close()
    MetricStore(tmp_path).open()
    assert [curve.name for curve in read_curves(tmp_path, 7)] == ["loss"]
