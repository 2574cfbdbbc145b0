"""``fairlead solve`` and ``fairlead policies`` as a user calls them."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fairlead.cli.policies import policies
from fairlead.cli.solve import solve
from fairlead.errors import ConfigError, InputError

RATES = "family,scale_factor,accelerator,locality,steps_per_s\nLM,1,fast,consolidated,4\n" + (
    "LM,1,slow,consolidated,1\n"
)
PROBLEM: dict[str, Any] = {
    "k": 7,
    "cluster_spec": {"fast": 1, "slow": 1},
    "jobs": [{"id": i, "job_type": "LM", "scale_factor": 1} for i in range(4)],
}

app = typer.Typer()
app.command()(solve)
app.command()(policies)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "rates.csv").write_text(RATES)
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    return [
        "--throughputs",
        str(tmp_path / "rates.csv"),
        "--instances",
        str(tmp_path / "problems.jsonl"),
    ]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_one_object_per_problem(files: list[str]) -> None:
    [line] = run("solve", *files, "--policy", "las_aware", "--shares", "--json").splitlines()
    answer = json.loads(line)
    assert list(answer) == ["k", "objective", "violation", "gap", "seconds", "shares"]
    assert answer["k"] == 7
    assert answer["objective"] == pytest.approx(0.5)  # half of a proportional share each
    assert answer["gap"] <= 1e-6
    assert answer["violation"] <= 1e-9
    assert sum(held["fast"] for held in answer["shares"].values()) == pytest.approx(1.0)


def test_shares_only_if_asked_and_no_objective_where_there_is_none(files: list[str]) -> None:
    answer = json.loads(run("solve", *files, "--policy", "isolated", "--json"))
    assert answer["objective"] is None
    assert answer["gap"] is None
    assert "shares" not in answer


def test_the_table_is_plain_text(files: list[str]) -> None:
    out = run("solve", *files, "--policy", "max_min_fairness", "--shares")
    assert "las: 1 problem" in out
    assert "7: job 3: fast 0.2500  slow 0.2500" in out
    assert "\x1b" not in out


def test_bad_input_prints_nothing(files: list[str]) -> None:
    with open(files[3], "a", encoding="utf-8") as handle:
        handle.write("{}\n")
    result = CliRunner().invoke(app, ["solve", *files, "--policy", "las", "--json"])
    assert isinstance(result.exception, InputError)
    assert result.stdout == ""


def test_an_unknown_policy(files: list[str]) -> None:
    with pytest.raises(ConfigError, match="did you mean 'las_aware'"):
        CliRunner().invoke(app, ["solve", *files, "--policy", "las_pref"], catch_exceptions=False)


def test_the_list_of_policies() -> None:
    listed = json.loads(run("policies", "--json"))
    assert {"isolated", "proportional", "fifo", "fifo_aware", "las", "las_aware", "recorded"} <= {
        one["name"] for one in listed
    }
    out = run("policies")
    assert "max_min_fairness_perf" in out
    assert "recorded:LOG" in out


def test_deadlines_that_cannot_be_met_are_named(files: list[str], tmp_path: Path) -> None:
    """1,000 steps at 4 steps/s at most: one job cannot be done in 10 s, the other in 2,000 s can."""
    jobs = [
        {**job, "num_steps_remaining": 1000, "deadline_s": due}
        for job, due in zip(PROBLEM["jobs"][:2], [10, 2_000], strict=True)
    ]
    priced = {**PROBLEM, "jobs": jobs, "prices": {"fast": 1.0, "slow": 0.2}}
    (tmp_path / "problems.jsonl").write_text(json.dumps(priced) + "\n")
    answer = json.loads(run("solve", *files, "--policy", "min_cost_slo", "--json"))
    assert answer["unmet"] == [0]
    assert "deadlines that cannot be met: jobs 0" in run(
        "solve", *files, "--policy", "min_cost_slo"
    )
