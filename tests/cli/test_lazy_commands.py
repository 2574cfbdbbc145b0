"""Commands are imported when they are called."""

import subprocess
import sys

import pytest

from fairlead.cli.application import COMMANDS

HEAVY = ("numba", "polars", "scipy", "numpy", "highspy", "fastapi", "grpc", "torch")


@pytest.mark.parametrize("name", [one.name for one in COMMANDS])
def test_the_list_of_commands_says_what_they_say_themselves(name: str) -> None:
    (deferred,) = (one for one in COMMANDS if one.name == name)
    command = deferred.load()
    assert command.name == name
    assert command.help
    paragraph = " ".join(command.help.split("\n\n")[0].split())
    assert paragraph.startswith(deferred.help.removesuffix("."))


def loaded_by(arguments: list[str]) -> list[str]:
    """Which of the heavy modules a command imports."""
    program = (
        "import sys\n"
        "from fairlead.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["jobs", "--server", "http://127.0.0.1:1"], ["submit", "--help"]]
)
def test_asking_a_server_loads_no_solver(arguments: list[str]) -> None:
    assert loaded_by(arguments) == []


@pytest.mark.parametrize("name", ["simulate", "sweep", "report", "replay", "bench", "compare"])
def test_help_of_what_simulates_loads_neither_tables_nor_policies(name: str) -> None:
    loaded = loaded_by([name, "--help"])
    assert set(loaded) <= {"numpy"}, loaded


@pytest.mark.parametrize(
    "arguments", [["figure"], ["trace"], ["trace", "generate"], ["solve"], ["reproduce"]]
)
def test_help_loads_neither_kernels_nor_tables(arguments: list[str]) -> None:
    assert loaded_by([*arguments, "--help"]) == []


@pytest.mark.parametrize("name", ["serve", "status", "solve"])
def test_help_compiles_nothing_and_loads_no_solver(name: str) -> None:
    loaded = loaded_by([name, "--help"])
    assert not {"numba", "highspy", "scipy", "fastapi", "torch"}.intersection(loaded), loaded


def test_the_policies_are_listed_without_any_solver() -> None:
    assert loaded_by(["policies"]) == ["numpy"]
