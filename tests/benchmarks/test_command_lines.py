"""Benchmarks say what they measure, and refuse what they cannot use in a sentence."""

import ast
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
# Those that are imported by others: a command line of their own they have not.
PARTS = ("command_line", "disk_probe", "load_users", "simulated_nodes")
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in PARTS)


def exit_code(name: str, *arguments: str) -> int:
    """Of a benchmark that is run in this process, where all that it imports is loaded already."""
    path = FOLDER / f"{name}.py"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", [str(path), *arguments])
        patched.syspath_prepend(str(FOLDER))
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_is_measured(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(name, "--help") == 0
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text()))
    assert docstring is not None
    assert docstring.splitlines()[0] in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_an_option_that_is_not_known_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(name, "--no-such-option") == 2
    assert f"{name}.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("window", ["0"], "argument ROUNDS: expected a whole number >= 1, got '0'"),
        ("store_open", ["1e3"], "argument JOBS: expected a whole number >= 1, got '1e3'"),
        ("simulate", [], "the following arguments are required: rounds|large|file"),
        ("simulate", ["rounds", "fast"], "expected one of default, gavel, shockwave, got 'fast'"),
        ("steady", ["absent.csv", "builtin", "v100=1", "0:1"], "absent.csv: there is no such file"),
        ("steady", [__file__, "absent.json", "v100=1", "0:1"], "absent.json"),
        ("steady", [__file__, "builtin", "v100", "0:1"], "argument CLUSTER: "),
        ("steady", [__file__, "builtin", "v100=1", "3:1"], "expected S:E with S < E, got '3:1'"),
        ("placement", ["level", "builtin"], "the following arguments are required: CLUSTER"),
        ("profiles", [__file__], "a TRACE needs a TABLE and a CLUSTER"),
        ("shockwave", ["sizes", "/nowhere"], "/nowhere/tacc_throughputs.json: there is no such"),
        ("shockwave", ["size", "/nowhere"], "invalid choice: 'size'"),
        ("interference", ["absent.json"], "absent.json"),
        ("live_day", ["--round", "inf"], "argument --round: expected a number > 0, got 'inf'"),
        ("live_load", ["--agents", "-1"], "argument --agents: expected a whole number >= 1"),
        ("live_fidelity", ["--limits", "1,2"], "expected 3 numbers with commas between them"),
        ("forecast_coverage", ["--seeds", "x"], "expected a whole number >= 0, got 'x'"),
        ("estimator", ["--cluster", "v100"], "cluster: expected NAME=NUMBER"),
        ("estimator", ["--errors", "--user-estimates", "x=1"], "expected KEY=VALUE of"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(
    name: str, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(name, *arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
