"""Input that no run can be made of: one sentence and exit code 2, at once."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.small import time_limit

from fairlead.cli.main import main

SMALL = ("simulate", "--policy", "las", "--generate", "gavel,jobs=2")


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    with time_limit(600):  # kernels may have to be compiled first
        yield


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The sentence on stderr of a call that must end with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    captured = capsys.readouterr()
    assert ended.value.code == 2, captured
    return captured.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "9" * 20), "seed"),
        (("--cluster", "v100=10000000"), "at most 1000000 devices, got 10000000"),
        (("--cluster", "v100=100000000000"), "at most 1000000 devices"),
        (("--cluster", "9" * 5000), "cluster: expected NAME=NUMBER"),
        (("--resume-cost", "1e308"), "--resume-cost: expected a number of seconds from 0 to"),
        (("--round", "short"), "--round: 'short' is not a number of seconds"),
        (("--round", "5"), "--round: must be from 10 to"),
        (("--restart-cost", "1e308"), "--restart-cost: expected a number of seconds from 0 to"),
        (("--restart-cost", "A3C=1e308"), "--restart-cost: expected a number of seconds from 0 to"),
        (
            ("--restart-cost", "5", "--restart-cost", "6"),
            "--restart-cost: that of all families is given",
        ),
        (
            ("--restart-cost", "A3C=5", "--restart-cost", "A3C=6"),
            "--restart-cost: 'A3C' is given twice, got 'A3C=6'",
        ),
        (("--round", "1e308"), "--round: must be from 10 to 1e+10 seconds, got 1e+308"),
        (("--solve-time", "1e308"), "--solve-time: must be from 0 to 1e+10 seconds"),
        (
            ("--solve-interval", "1e308"),
            "--solve-interval: must be from 0 to 1e+10 seconds",
        ),
        (
            ("--mtbf-hours", "1e-300"),
            "--mtbf-hours: must be from 0.000278 (a second) to 2.77778e+06 hours, got",
        ),
        (
            ("--mtbf-hours", "0"),
            "--mtbf-hours: must be from 0.000278 (a second) to 2.77778e+06 hours, got 0",
        ),
        (
            ("--mtbf-hours", "1", "--mttr-hours", "1e-300"),
            "--mttr-hours: must be from 0.000278 (a second) to 2.77778e+06",
        ),
        (
            ("--mttr-hours", "nan"),
            "--mttr-hours: must be from 0.000278 (a second) to 2.77778e+06 hours, got nan",
        ),
        (("--prices", "v100=1e308"), "price of 'v100': must be a number from 0 to 1e+15"),
        (("--window", "0:" + "9" * 5000), "--window: at most 2000000 jobs"),
        (("--generate", "gavel,jobs=100000000000"), "jobs must be a whole number from 1 to"),
        (("--generate", "gavel,jobs=2,interarrival=1e308"), "interarrival must be a number from 0"),
        (("--generate", "gavel,jobs=2,duration=1e308"), "duration must be a number from 0 to"),
        (("--generate", "shockwave,jobs=2,durations=1000000000"), "durations must be a whole"),
    ],
)
def test_options_out_of_range(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    small = SMALL[:3] if options[0] == "--generate" else SMALL  # it may be given once
    assert message in refused(capsys, *small, *options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["cluster", "policy", "file"])
def test_toml_that_is_nested_too_deeply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    for number, text in enumerate(
        (
            "a = " + "[" * 50_000 + "]" * 50_000,
            "a" + ".a" * 5_000 + " = 1",
            "[" + "a." * 2_000 + "b]",
        )
    ):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        call: dict[str, tuple[object, ...]] = {
            "cluster": (*SMALL, "--cluster", path),
            "policy": ("simulate", "--policy", f"shockwave:{path}", "--generate", "gavel,jobs=2"),
            "file": ("sweep", path),
        }
        assert "nested too deeply" in refused(capsys, *call[place])


def test_cluster_of_too_many_nodes_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.toml"
    path.write_text(
        '[[node]]\nname = "a"\naccelerator = "v100"\ndevices = 8\ncount = 100000000000\n'
    )
    message = refused(capsys, *SMALL, "--cluster", path)
    assert "a.toml:5: node 1: count: at most 1000000 devices in all" in message


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that says that it was interrupted."""
    folder = tmp_path_factory.mktemp("run") / "r"
    main_ok = ["simulate", *SMALL[1:], "--cluster", "v100=2", "--out", str(folder), "--json"]
    with pytest.raises(SystemExit) as ended:
        main(main_ok)
    assert ended.value.code == 0
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"status": "interrupted"}))
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"policy": ["las"]},
        {"profile": None},
        {"files": ["a"]},
        {"input": {"seed": "x"}},
        {"input": {"cluster": None}},
        {"input": {"restart_cost": 3}},
        {"input": []},
        None,
        [],
    ],
)
def test_record_that_no_run_can_go_on_from(
    tmp_path: Path, interrupted: Path, capsys: pytest.CaptureFixture[str], change: Any
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(interrupted, folder)
    path = folder / "run.json"
    record = json.loads(path.read_text())
    if isinstance(change, dict):
        for name, value in change.items():
            is_part = isinstance(value, dict)
            record["arguments"][name] = record["arguments"][name] | value if is_part else value
    path.write_text(json.dumps(change if not isinstance(change, dict) else record))
    before = path.read_bytes()
    assert "run.json" in refused(capsys, "simulate", "--resume", folder)
    assert path.read_bytes() == before


def test_zeros_behind_a_journal_are_no_record(
    interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a file system leaves where the machine went down."""
    path = tmp_path / "journal"
    path.write_bytes((interrupted / "journal").read_bytes() + bytes(100_000))
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(path)])
    assert ended.value.code == 0
    assert "cut off: the last 100000 bytes are no whole record" in capsys.readouterr().out
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(path)])
    assert ended.value.code == 2
    assert "is damaged" in capsys.readouterr().err


JOB = {"id": 1, "job_type": "A3C", "scale_factor": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_since_start": 2**70}, "time_since_start: must be <= 1e+10, got 1.18"),
        ({"time_since_start": 1e308}, "time_since_start: must be <= 1e+10"),
        ({"priority": 1e-300}, "priority: must be >= 1e-12"),
        ({"priority": 1e-9}, "priority: must be >= 1e-06"),
        ({"priority": 1e308}, "priority: must be <= 1e+06"),
        ({"num_steps_remaining": 1e308}, "num_steps_remaining: must be <= 1e+15"),
        ({"deadline_s": 1e308}, "deadline_s: must be <= 1e+10"),
    ],
)
def test_allocation_problem_out_of_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"k": 1, "cluster_spec": {"v100": 2}, "jobs": [JOB | change]}))
    assert message in refused(capsys, "solve", "--policy", "las", "--instances", path)


WINDOW = {
    "G": 2, "F": 4, "T": 120, "round": 1, "k": 0.001, "bases": [0.0, 1.0], "logs": [-10.0, 0.0],
    "nw": [1], "E": [10], "cur": [0], "d": [60.0], "R": [600.0],
}  # fmt: skip


@pytest.mark.parametrize(
    ("inst", "priorities", "message"),
    [
        ({"T": 1e308}, [1.0], "inst.T: must be <= 1e+10"),
        ({"d": [1e308]}, [1.0], "inst.d[0]: must be <= 1e+15"),
        ({"k": 1e308}, [1.0], "inst.k: must be <= 1e+15"),
        ({"bases": [0.0, 1e-310]}, [1.0], "inst.bases: expected two or more, rising"),
        ({"logs": [-1e308, 0.0]}, [1.0], "inst.logs[0]: must be >= -1e+15"),
        ({"G": 10**11}, [1.0], "inst.G: must be <= 1000000"),
        ({}, [1e308], "priorities[0]: must be <= 1e+30"),
    ],
)
def test_window_problem_out_of_range(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    inst: dict[str, Any],
    priorities: list[float],
    message: str,
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"inst": WINDOW | inst, "priorities": priorities}))
    assert message in refused(capsys, "solve-window", "--instances", path)


OWN = "job,arrival_s,family,scale_factor,total_steps"
SEVEN = "A3C\tc\ts\t1\t500\t{}\t1\n"
TEN = "A3C\tc\td\ts\t1\t500\t1\t{}\t{}\t{}\n"
PHILLY = "timestamp,duration,num_gpus,cluster\n"
ITP = "job_id,submission_time,duration,num_gpu\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{OWN},weight,weight\n", ":1: column 'weight' appears twice"),
        (f"{OWN},slo_s\n0,0,A3C,1,5,0\n", ":2: slo_s: must be > 0, got '0'"),
        (f"{OWN}\n0,1e308,A3C,1,5\n", ":2: arrival_s: must be <= 1e+10, got '1e308'"),
        (f"{OWN}\n0,0,A3C,1,1e308\n", ":2: total_steps: must be <= 1e+15"),
        (f"{OWN},weight\n0,0,A3C,1,5,1e-300\n", ":2: weight: must be >= 1e-12"),
        (SEVEN.format("1e308"), ":1: arrival_time: must be <= 1e+10"),
        (TEN.format(1, 0, 0), ":1: SLO: must be > 0, or -1 for no deadline, got 0"),
        (TEN.format(1e-300, -1, 0), ":1: priority_weight: must be >= 1e-12"),
        (ITP + "a,-5,60,1\n", ":2: submission_time: must be >= 0, got '-5'"),
        (ITP + "a,5,60,1\na,6,60,1\n", ":3: job_id: appears twice, got 'a'"),
        (PHILLY + "0001-01-01 00:00:00,60,1,vc\n", ":2: timestamp: must not be before 1970"),
        (PHILLY + "0001-01-01 00:00:00+14:00,60,1,vc\n", ":2: timestamp: "),
    ],
)
def test_trace_with_values_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "a.trace"
    path.write_text(text)
    assert f"a.trace{message}" in refused(capsys, "trace", "describe", path)


def test_an_overloaded_run_says_so_and_of_what_its_averages_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--generate", "gavel,jobs=400,interarrival=60,duration=50000", "--cluster", "v100=2"]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "simulate",
                "--policy",
                "fifo",
                *given,
                "--stop-at",
                "30000",
                "--out",
                str(tmp_path / "r"),
            ]
        )
    assert ended.value.code == 0
    message = capsys.readouterr().err
    assert "fairlead: the queue grows without bound: " in message
    assert " jobs have not ended: averages are of the 0 that were completed" in message
    given[1] = "gavel,jobs=3,duration=500"
    with pytest.raises(SystemExit):
        main(["simulate", "--policy", "fifo", *given, "--out", str(tmp_path / "s")])
    assert "averages" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("submit --env A=1 --env A=2 -- true", "--env: A is given twice"),
        ("submit --rate v100=1 --rate v100=2 -- true", "--rate: v100 is given twice"),
        (
            "submit --no-park --park-stopped --unmanaged --steps 9 -- true",
            "--no-park and --park-stopped exclude each other",
        ),
        (
            "submit --park-stopped --steps 9 -- true",
            "--park-stopped: 'stop' is for jobs with unmanaged = true",
        ),
        ("play --resume {} --speed 2", "it takes no other option but --json"),
        ("play --resume {}", "there is no play to go on with"),
        ("play", "give the jobs: fairlead play TRACE"),
        ("play {}/nope.csv", "nope.csv: cannot be read (No such file or directory)"),
        ("play {} --speed 0", "--speed: must be from 1e-06 to 1e+06, got 0.0"),
        ("play {} --scale-steps nan", "--scale-steps: must be from 1e-09 to 1e+06, got nan"),
        ("serve --state {} --round 0", "--round: must be from 0.5 to 86400"),
        ("up --demo --devices v100=2", "--devices: the demo has devices and jobs of its own"),
        ("up --demo --prefork numpy", "--prefork: the demo has devices and jobs of its own"),
    ],
)
def test_what_would_be_ignored_is_refused(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *arguments.format(tmp_path).split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["90m", "2026-11-26T12:00", "12h"])
def test_accounts_are_kept_by_day(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "accounting", "--since", given)
    assert (
        f"--since: expected a day (2026-01-31; UTC), or as 7d ago: accounts are kept by day, got '{given}'"
        in told
    )
