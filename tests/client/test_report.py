import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fairlead
from fairlead.client.report import FULL_RATE, MAX_NAMES, VARIABLE, MetricsFile
from fairlead.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the reports of this process go."""
    path = tmp_path / "metrics"
    monkeypatch.setenv("FAIRLEAD_METRICS_FILE", str(path))
    return path


def lines(file: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, metrics) of each report."""
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [(one["step"], one["metrics"]) for one in found]


def test_a_report_is_a_line_with_step_time_and_metrics(file: Path) -> None:
    fairlead.report(step=7, loss=0.5, accuracy=1)
    fairlead.report(step=8, loss=0.25)
    assert lines(file) == [(7, {"loss": 0.5, "accuracy": 1.0}), (8, {"loss": 0.25})]
    assert json.loads(file.read_text().splitlines()[0])["time"] > 1.7e9


@pytest.mark.filterwarnings("error")
def test_a_loss_that_requires_grad_is_reported_without_a_warning(file: Path) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.tensor(2.0, requires_grad=True)
    loss = weight * 3
    fairlead.report(loss=loss, weight=weight)
    assert lines(file) == [(0, {"loss": 6.0, "weight": 2.0})]
    assert loss.requires_grad, "it is still of its graph"


def test_without_a_step_reports_are_counted(file: Path) -> None:
    fairlead.report(loss=1)
    fairlead.report(loss=2)
    assert [step for step, _ in lines(file)] == [0, 1]


def test_names_with_dots_and_slashes(file: Path) -> None:
    fairlead.report(step=1, **{"val/loss": 1.0, "top-5": 2.0})
    assert lines(file) == [(1, {"val/loss": 1.0, "top-5": 2.0})]


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        ({"loss": "0.5"}, "report: loss: expected a number, got '0.5'"),
        ({"loss": None}, "report: loss: expected a number, got None"),
        ({"loss": True}, "report: loss: expected a number, got True"),
        ({"loss": [1.0]}, "report: loss: expected a number, got \\[1.0\\]"),
        ({"a b": 1.0}, "report: the name of a metric has up to 64 letters.*got 'a b'"),
        ({"x" * 65: 1.0}, "report: the name of a metric has up to 64 letters"),
    ],
)
def test_what_is_no_metric_is_refused(
    file: Path, metrics: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        fairlead.report(step=1, **metrics)
    assert not file.exists()


@pytest.mark.parametrize("step", [-1, 0.5, "3", 1 << 53])
def test_what_is_no_step_is_refused(file: Path, step: object) -> None:
    with pytest.raises(ConfigError, match="report: step: expected"):
        fairlead.report(step=step, loss=1.0)  # type: ignore[arg-type]
    assert not file.exists()


def test_nan_and_infinity_are_said_once_and_not_kept(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for step in range(3):
        fairlead.report(step=step, loss=float("nan"), rate=float("inf"), good=1.0)
    assert lines(file) == [(step, {"good": 1.0}) for step in range(3)]
    said = capfd.readouterr().err.splitlines()
    assert said == [
        "fairlead: report: loss is nan at step 0: such values are not kept",
        "fairlead: report: rate is inf at step 0: such values are not kept",
    ]


def test_numbers_of_other_libraries_are_numbers(file: Path) -> None:
    numpy = pytest.importorskip("numpy")
    fairlead.report(step=numpy.int64(3), loss=numpy.float32(0.5), one=numpy.ones(1)[0])
    assert lines(file) == [(3, {"loss": 0.5, "one": 1.0})]


def test_other_ranks_and_scripts_without_fairlead_write_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    fairlead.report(step=1, loss=float("nan"))
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("FAIRLEAD_METRICS_FILE")
    fairlead.report(step=1, loss=float("nan"))
    assert not file.exists()
    assert capfd.readouterr() == ("", "")


def test_a_file_that_cannot_be_written_is_said_once_and_ends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no" / "metrics"
    reports = MetricsFile(str(path))
    for step in range(3):
        reports.report(step, {"loss": 1.0})
    said = capfd.readouterr().err
    assert said == f"fairlead: report: {path}: No such file or directory: metrics are not kept\n"


def test_of_many_values_fewer_and_fewer_are_written(file: Path) -> None:
    n = 7 * FULL_RATE
    reports = MetricsFile(str(file))
    for step in range(n):
        reports.report(step, {"loss": step} | ({"rare": step} if step % 1_000 == 999 else {}))
    steps = [step for step, metrics in lines(file) if "loss" in metrics]
    first, then = steps[:FULL_RATE], steps[FULL_RATE : 2 * FULL_RATE]
    assert first == list(range(FULL_RATE))
    assert then == list(range(FULL_RATE, 3 * FULL_RATE, 2))
    assert steps[2 * FULL_RATE :] == list(range(3 * FULL_RATE, n, 4))
    rare = [step for step, metrics in lines(file) if "rare" in metrics]
    assert rare == list(range(999, n, 1_000)), "each metric is counted by itself"


def test_only_so_many_metrics_are_kept(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reports = MetricsFile(str(file))
    reports.report(1, {f"m{i}": float(i) for i in range(MAX_NAMES + 5)})
    ((_, kept),) = lines(file)
    assert list(kept) == [f"m{i}" for i in range(MAX_NAMES)]
    assert "m100: only the first 100 metrics are kept" in capfd.readouterr().err


def test_it_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, fairlead; fairlead.report(step=1, loss=1.0); fairlead.parameters(); "
        "print([m for m in ('numpy', 'msgspec', 'grpc', 'httpx') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout == "[]\n"


def test_parameters_are_those_of_the_trial_over_the_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fairlead.parameters(lr=0.1, layers=2) == {"lr": 0.1, "layers": 2}
    monkeypatch.setenv("FAIRLEAD_PARAMETERS", '{"lr": 0.003, "optimiser": "adam"}')
    assert fairlead.parameters(lr=0.1, layers=2) == {
        "lr": 0.003,
        "layers": 2,
        "optimiser": "adam",
    }


@pytest.mark.parametrize("text", ["[1]", "{", "7"])
def test_parameters_that_are_no_object_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("FAIRLEAD_PARAMETERS", text)
    with pytest.raises(ConfigError, match="FAIRLEAD_PARAMETERS: expected a JSON object, got"):
        fairlead.parameters()


def test_the_last_value_is_written_when_the_process_ends(tmp_path: Path) -> None:
    script = (
        "import fairlead\nfor step in range(2503):\n"
        "    odd = {'odd': step} if step % 2 else {}\n"
        "    fairlead.report(step=step, loss=step, **odd)"
    )
    path = tmp_path / "metrics"
    subprocess.run(
        (sys.executable, "-c", script), check=True, env={**os.environ, VARIABLE: str(path)}
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    last = {name: line["step"] for line in lines for name in line["metrics"]}
    assert last == {"loss": 2502, "odd": 2501}
    steps = [line["step"] for line in lines if "loss" in line["metrics"]]
    assert len(steps) == len(set(steps)) < 2503
