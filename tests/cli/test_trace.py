"""``fairlead trace`` as a user calls it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli.trace import app
from fairlead.errors import ConfigError, TraceError
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import builtin_throughputs

ITP = "job_id,submission_time,duration,num_gpu\n" + "".join(
    f"j{i},{5 * i},600,{1 + i % 3}\n" for i in range(12)
)


def run(*arguments: object) -> tuple[str, str]:
    """(stdout, stderr) of a call that must go well."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout, result.stderr


def test_describe_prints_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ITP)
    out, err = run("describe", path)
    assert "\x1b" not in out
    assert "share of device time" in out
    assert "4 jobs ask for a number of devices that the throughput table lacks" in err


def test_describe_json(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ITP)
    out, err = run("describe", path, "--json", "--cluster", "h100=1")
    figures = json.loads(out)
    assert (figures["format"], figures["jobs"], figures["skipped"]) == ("ITP", 4, 8)
    assert figures["durations"]["percentiles_s"]["50"] == 600.0
    assert "needs more devices than there are (1 h100)" in err


@pytest.mark.parametrize("kind", ["gavel", "bursty", "shockwave"])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "trace"])
def test_generate_then_convert(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    out, _ = run("generate", path, "--kind", kind, "--jobs", 30, "--seed", 3)
    assert "30 jobs written" in out
    run("convert", path, tmp_path / "b.csv")
    table = builtin_throughputs()
    first, second = read_trace(path, table), read_trace(tmp_path / "b.csv", table)
    assert len(second.arrivals) == 30
    assert first.arrivals == second.arrivals


def test_generate_keeps_to_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    run("generate", path, "--cluster", "l4=2", "--jobs", 20, "--deadlines", "--full")
    trace = read_trace(path, builtin_throughputs())
    assert {a.job.family for a in trace.arrivals} == {
        "BERT-large FP32 (batch size 8)",
        "GPT-2 large FP32 (batch size 1)",
    }
    assert [a.time_s for a in trace.arrivals][:3] == [0.0] * 3
    assert all(a.job.slo_s for a in trace.arrivals)


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(ConfigError, match="--full needs --cluster"):
        run("generate", path, "--full")
    with pytest.raises(ConfigError, match="--multi-gpu cannot be used with --kind bursty"):
        run("generate", path, "--kind", "bursty", "--multi-gpu")
    with pytest.raises(ConfigError, match="--full cannot be used with --kind shockwave"):
        run("generate", path, "--kind", "shockwave", "--full")
    with pytest.raises(TraceError, match="no such file"):
        run("describe", tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []
