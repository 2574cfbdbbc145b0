"""The command line as a person meets it: what it prints, writes and exits with."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.call_command import call

import fairlead

JOBS = ["--generate", "gavel,jobs=25,interarrival=1500", "--cluster", "v100=3,p100=3,k80=3"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_compare_without_options_shows_which_is_better(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compare", *JOBS) == 0
    out = capsys.readouterr().out
    for policy in ("fifo", "fifo_aware", "isolated", "las", "las_aware"):
        assert policy in out
    (folder,) = Path("runs").iterdir()
    page = (folder / "report.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert len(list(folder.glob("*/journal"))) == 5


def test_compare_relates_policies_to_one_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--policies", "las, isolated", "--policy", "fifo", "--relative-to", "isolated"]
    assert call("compare", *JOBS, *asked, "--out", "c") == 0
    out = capsys.readouterr().out
    assert "x: ratio to isolated" in out
    assert "Relative to isolated" in Path("c/report.html").read_text()
    names = [path.name for path in sorted(Path("c").iterdir()) if path.is_dir()]
    assert names == ["1-las-default", "2-isolated-default", "3-fifo-default"]
    assert call("compare", *JOBS, *asked, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["relative_to"] == "isolated"
    las, isolated = (printed["runs"][name] for name in ("las", "isolated"))
    assert printed["ratios"]["las"]["makespan_s"] == las["makespan_s"] / isolated["makespan_s"]
    worst = las["worst_rho"] / isolated["worst_rho"]
    assert printed["ratios"]["las"]["rho_static_max"] == pytest.approx(worst)
    assert set(printed["ratios"]["isolated"].values()) <= {1.0, None}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--policies", "las,,fifo"], "--policies: expected names with commas between them"),
        (["--policies", "las", "--relative-to", "fifo"], "--relative-to: 'fifo' is not one of"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(
    asked: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("compare", *JOBS, *asked, "--out", "c") == 2
    assert message in capsys.readouterr().err
    assert not Path("c").exists()


def test_simulate_prints_the_rho_of_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", *JOBS, "--policy", "las", "--out", "one", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    rho = list(printed["rho"].values())
    assert printed["rho"].keys() == printed["jct_s"].keys()
    assert printed["worst_rho"] == max(rho)
    for name, limit in (("unfair_1", 1.0), ("unfair_105", 1.05), ("unfair_11", 1.1)):
        assert printed[name] == pytest.approx(sum(r > limit for r in rho) / len(rho))
    table = pl.read_parquet("one/jobs.parquet")["rho_static"]
    assert table.to_list() == rho
    assert printed["fairness"]["static"]["max"] == printed["worst_rho"]


def test_simulate_writes_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", *JOBS, "--policy", "las_aware", "--out", "one", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    keys = {"makespan_s", "avg_jct_s", "jct_s", "utilization", "cost", "n_rounds", "n_solves"}
    assert keys | {"cpu_s"} <= printed.keys()
    assert len(printed["jct_s"]) == 25
    jobs = pl.read_parquet("one/jobs.parquet")
    assert jobs["jct_s"].mean() == pytest.approx(printed["avg_jct_s"])
    rounds, intervals = (
        pl.read_parquet("one/rounds.parquet"),
        pl.read_parquet("one/placement_intervals.parquet"),
    )
    assert len(rounds) == printed["n_rounds"]
    used = intervals.select(
        ((pl.col("end_s") - pl.col("start_s")) * pl.col("devices").list.len()).sum()
    ).item()
    busy = sum(rounds[name].sum() for name in rounds.columns if name.startswith("busy_"))
    assert used == pytest.approx(
        busy, rel=0.02
    )  # a placement interval also spans the wait for a round's end
    record = json.loads(Path("one/run.json").read_text())
    assert record["status"] == "complete"
    assert record["metrics"]["makespan_s"] == printed["makespan_s"]
    assert Path("one/report.html").stat().st_size > 10_000
    assert not list(Path("one").glob("*partial*"))
    assert call("replay", "one") == 0
    assert "all commands are the same" in capsys.readouterr().out


def test_equal_commands_give_equal_runs(capsys: pytest.CaptureFixture[str]) -> None:
    hashes = set()
    for out in ("a", "b"):
        call("simulate", *JOBS, "--policy", "fifo", "--seed", "3", "--out", out, "--json")
        hashes.add(json.loads(capsys.readouterr().out)["journal_sha256"])
    assert len(hashes) == 1


def test_a_window_ends_the_run_and_measures_its_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    spec = ["--generate", "gavel,interarrival=20000", "--cluster", "v100=3,p100=3,k80=3"]
    assert call("simulate", *spec, "--policy", "las", "--window", "5:15", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["n_measured"] == 10
    of_window = [printed["jct_s"][str(job)] for job in range(5, 15)]
    assert sum(of_window) / 10 == pytest.approx(printed["avg_jct_s"])
    assert not printed.keys() & {"rho", "worst_rho", "unfair_1"}  # static rho is over all jobs


# A run that waits in the middle until it is told to go on.
HELD = """
import os, time
from fairlead.cli.main import main
from fairlead.scheduler.journal import Journal

command = Journal.command

def hold(self, record):
    command(self, record)
    if self.records > 400 and not os.path.exists("go"):
        print("here", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)

Journal.command = hold
main()
"""


def test_an_interrupted_run_goes_on_to_the_same_journal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = ["--generate", "gavel,jobs=150,interarrival=1500", "--cluster", "v100=9,p100=9,k80=9"]
    spec += ["--policy", "las_aware"]
    child = subprocess.Popen(
        [sys.executable, "-c", HELD, "simulate", *spec, "--out", "part"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    child.send_signal(signal.SIGINT)
    Path("go").touch()
    message = child.communicate(timeout=300)[1]
    assert child.returncode == 130
    assert "fairlead simulate --resume part" in message
    assert json.loads(Path("part/run.json").read_text())["status"] == "interrupted"
    assert call("simulate", *spec, "--out", "whole", "--json") == 0
    whole = json.loads(capsys.readouterr().out)
    cut = Path("part/journal").stat().st_size
    assert 0 < cut < Path("whole/journal").stat().st_size
    assert call("simulate", "--resume", "part", "--json") == 0
    resumed = json.loads(capsys.readouterr().out)
    assert resumed["journal_sha256"] == whole["journal_sha256"]
    assert resumed["jct_s"] == whole["jct_s"]
    assert call("simulate", "--resume", "part") == 2
    assert "this run is complete" in capsys.readouterr().err


def interrupted(trace: str) -> None:
    """A run in the folder ``part`` that was stopped."""
    assert call("simulate", "--trace", trace, "--policy", "las", "--out", "part") == 0
    record = json.loads(Path("part/run.json").read_text())
    Path("part/run.json").write_text(json.dumps(record | {"status": "interrupted"}))


def test_a_run_does_not_go_on_with_changed_input_or_other_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = "job,arrival_s,family,scale_factor,total_steps\n0,0,A3C,1,1000\n"
    Path("t.csv").write_text(rows)
    interrupted("t.csv")
    assert call("simulate", "--resume", "part", "--policy", "fifo") == 2
    assert "takes no other option" in capsys.readouterr().err
    Path("t.csv").write_text(rows + "1,9,A3C,1,1000\n")
    assert call("simulate", "--resume", "part") == 2
    assert "t.csv: has changed since the run" in capsys.readouterr().err
    Path("t.csv").write_text(rows)
    assert call("simulate", "--resume", "part") == 0


class OnlyFew:
    """An admission rule and an observer: it lets in jobs until five have come."""

    seen = 0

    def admit(self, job: fairlead.Job, state: fairlead.AdmissionState) -> bool:
        del state
        return job.id < 5

    def event(self, event: object) -> None:
        OnlyFew.seen += event is not None

    def command(self, command: object) -> None:
        del command


def test_rules_are_chosen_by_name_and_a_run_that_goes_on_keeps_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = Path("few-0.1.dist-info")
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: few\nVersion: 0.1\n")
    here = "tests.cli.test_commands:OnlyFew"
    info.joinpath("entry_points.txt").write_text(
        f"[fairlead.observers]\nfew = {here}\n[fairlead.admission]\nfew = {here}\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    chosen = ["--placement", "by_device_id", "--admission", "few", "--observer", "few"]
    assert call("simulate", *JOBS, "--policy", "las", *chosen, "--out", "few", "--json") == 0
    whole = json.loads(capsys.readouterr().out)
    assert (whole["config"]["placement"], len(whole["jct_s"])) == ("by_device_id", 5)
    assert whole["n_refused"] > 0
    record = json.loads(Path("few/run.json").read_text())
    Path("few/run.json").write_text(json.dumps(record | {"status": "interrupted"}))
    OnlyFew.seen = 0
    assert call("simulate", "--resume", "few", "--json") == 0
    assert json.loads(capsys.readouterr().out)["jct_s"] == whole["jct_s"]
    assert OnlyFew.seen > 0
    for option in ("--placement", "--admission", "--observer"):
        assert call("simulate", *JOBS, "--policy", "las", option, "fwe", "--out", "no") == 2
        assert "'fwe': no such entry point" in capsys.readouterr().err
    assert not Path("no").exists()


def test_a_journal_that_is_not_the_runs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", *JOBS, "--policy", "las", "--out", "one") == 0
    whole = Path("one/journal").read_bytes()
    Path("one/journal").write_bytes(whole[:-3])
    assert call("replay", "one") == 2
    assert "sha256" in capsys.readouterr().err
    assert call("replay", "one/journal") == 0
    assert "cut off: the last" in capsys.readouterr().out


def test_a_trace_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text("mine")
    assert call("trace", "generate", "t.csv", "--jobs", "3") == 2
    assert "t.csv: is there already" in capsys.readouterr().err
    assert Path("t.csv").read_text() == "mine"
    assert call("trace", "generate", "t.csv", "--jobs", "3", "--force") == 0


def test_rows_that_cannot_run_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text(
        "job,arrival_s,family,scale_factor,total_steps\n"
        "0,0,A3C,1,1000\n1,5,LM (batch size 5),8,1000\n2,9,A3C,1,1000\n"
    )
    assert call("simulate", "--trace", "t.csv", "--cluster", "v100=4", "--policy", "las") == 0
    message = capsys.readouterr().err
    assert "1 row skipped" in message
    assert "line 3" in message


BAD = [
    (["--policy", "best"], "'best'"),
    (["--policy", "las", "--profile", "fast"], "--profile: 'fast' is not known"),
    (["--policy", "las", "--round", "5"], "from 10 to 1e+10 seconds, got 5.0"),
    (["--policy", "las", "--round", "nan"], "from 10 to 1e+10 seconds, got nan"),
    (["--policy", "las", "--window", "5"], "--window: expected S:E, two whole numbers, got '5'"),
    (["--policy", "las", "--window", "9:5"], "window 9:5"),
    (["--policy", "las", "--window", "0:26"], "only 25 jobs of the trace can run here"),
    (
        ["--policy", "las", "--stop-at", "-1"],
        "--stop-at: must be a number of seconds > 0",
    ),
    (["--policy", "las", "--restart-cost", "x=y"], "--restart-cost: expected a number"),
    (["--policy", "las", "--restart-cost", "GPT-9=5"], "restart cost: 'GPT-9' is not in"),
    (
        ["--policy", "las", "--mtbf-hours", "0"],
        "--mtbf-hours: must be from 0.000278 (a second) to 2.77778e+06 hours, got 0",
    ),
    (
        ["--policy", "las", "--rate-noise", "nan"],
        "rate noise must be a number from 0 to 2, got nan",
    ),
    (["--policy", "recorded:absent.json"], "absent.json"),
    (["--policy", "las", "--throughputs", "absent.json"], "absent.json"),
    (["--policy", "las", "--cluster", "v100=0"], "the cluster has no devices"),
    (["--policy", "las", "--cluster", "abacus=4"], "'abacus'"),
    (["--policy", "las", "--cluster", "absent.toml"], "absent.toml"),
    (["--policy", "las", "--expect-rounds", "absent.json.gz"], "absent.json.gz"),
    ([], "give a policy"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options_get_one_sentence_and_leave_nothing(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = JOBS[:2] if "--cluster" in options else JOBS  # it may be given once
    assert call("simulate", *jobs, *options, "--out", "run") == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("poisson", "'poisson' is not known"),
        ("gavel,jobs=0", "jobs must be a whole number from 1 to 2000000, got '0'"),
        ("gavel,jobs=2.5", "jobs must be a whole number from 1 to 2000000, got '2.5'"),
        ("gavel,interarrival=abc", "interarrival must be a number from 0 to 1e+10, got 'abc'"),
        ("bursty,full", "bursty does not take 'full'"),
        ("gavel,what", "gavel does not take 'what'"),
        ("gavel", "an endless stream of jobs needs --window, --stop-at or jobs=N"),
    ],
)
def test_bad_generators_are_named(
    spec: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("simulate", "--generate", spec, "--policy", "las") == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_run_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    assert call("simulate", *JOBS, "--policy", "las", "--out", "mine") == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert os.listdir("mine") == ["thesis.txt"]


def test_no_jobs_and_two_kinds_of_jobs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--policy", "las") == 2
    assert "either --trace FILE or --generate SPEC" in capsys.readouterr().err
    assert call("simulate", *JOBS, "--trace", "x", "--policy", "las") == 2


def test_what_cannot_be_resumed_or_replayed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--resume", "nowhere") == 2
    assert "nowhere" in capsys.readouterr().err
    Path("odd").mkdir()
    Path("odd/run.json").write_text("{}")
    assert call("simulate", "--resume", "odd") == 2
    assert call("replay", "odd") == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_the_recorded_answers_of_another_run_are_refused(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = shared / "golden" / "gavel" / "static" / "small_test__fifo_perf__8-16-24.log.json.gz"
    assert call("simulate", *JOBS, "--policy", f"recorded:{log}", "--out", "run") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("run").exists()
