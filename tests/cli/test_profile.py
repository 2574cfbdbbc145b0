"""Throughputs of the papers' workloads."""

import json
import sys
from pathlib import Path

import pytest
from tests.job_types import job_types

from fairlead.cli.main import main
from fairlead.cluster.measure import measure_pair
from fairlead.errors import ConfigError
from fairlead.simulator.traces.throughput_tables import read_throughputs

SCRIPT = """
import sys, time
import fairlead
with fairlead.Lease(load=lambda path: None, save=lambda path: path.touch()) as lease:
    while lease.next():
        time.sleep(float(sys.argv[1]))
        if lease.step == 30 and "fail" in sys.argv:
            raise SystemExit("out of patience")
"""


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["profile", "workloads", *words])
    return int(ended.value.code or 0)


LM, RECOMMENDATION = "LM (batch size 5)", "Recommendation (batch size 512)"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("only", "families"),
    [
        ("recommendation", (RECOMMENDATION,)),
        pytest.param("lm,recommendation", (LM, RECOMMENDATION), marks=pytest.mark.long),
    ],
)
def test_rates_alone_and_in_pairs_are_a_throughput_table(
    only: str, families: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    out = tmp_path / "rates.csv"
    options = ("--small", "--accelerator", "cpu", "--seconds", "1", "--out", str(out))
    assert run("--only", only, *options, "--pairs", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    pairs = [(one, other) for one in families for other in families]
    assert [(one["family"], one.get("beside", "")) for one in found] == [
        *((one, "") for one in families),
        *pairs,
    ]
    assert all(one["steps_per_s"] > 0 for one in found)
    table = read_throughputs(out)
    assert set(table.job_types) == set(job_types(*((one, 1) for one in families)))
    assert table.pair_rates is not None
    before = out.read_text()
    assert run("--only", only.partition(",")[0], *options) == 0
    assert len(out.read_text().splitlines()) == len(before.splitlines()), "rows are replaced"
    assert "rates are in" in capsys.readouterr().out


def test_a_pair_is_measured_while_both_train(tmp_path: Path) -> None:
    path = tmp_path / "sleeper.py"
    path.write_text(SCRIPT)
    slow, fast = ((sys.executable, str(path), step_s) for step_s in ("0.05", "0.01"))
    first, second = measure_pair((slow, fast), "v100", 1, 1.0)
    assert 0 < first <= 20
    assert first < second <= 100
    with pytest.raises(
        ConfigError, match="ended with exit code 1; its last words: out of patience"
    ):
        measure_pair((slow, (*fast, "fail")), "v100", 1, 5.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "lm,gpt"), "--only: expected some of resnet18, "),
        (("--devices", "1,0"), "--devices: expected numbers from 1 to 1024 as 1,2,4, got '1,0'"),
        (("--seconds", "0"), "--seconds"),
        (("--accelerator", ""), "--accelerator: NVML finds no devices here; name them"),
    ],
)
def test_bad_options(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    here = () if "--accelerator" in words else ("--accelerator", "cpu")
    assert run(*here, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
