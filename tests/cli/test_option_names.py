"""What is wrong with an option is said of the option, by the name that was typed."""

from pathlib import Path

import pytest
from tests.call_command import call

from fairlead.cli.option_errors import by_option

NUMBERS = ("-3", "0", "nan", "inf", "1e400", "9" * 30, "abc", "")
TIMES = ("-3", "nan", "inf", "1e400", "9" * 30, "abc", "")
COUNTS = ("-3", "0", "1.5", "nan", "9" * 30, "abc", "")
TEXTS = ("x" * 300, "a\x01")
BAD: dict[str, tuple[str, ...]] = {
    "--steps": COUNTS,
    "--devices": COUNTS,
    "--weight": NUMBERS,
    "--deadline": NUMBERS,
    "--grace": TIMES,
    "--finish-grace": TIMES,
    "--log-bytes": COUNTS,
    "--max-retries": ("-3", "1.5", "nan", "9" * 30, "abc", ""),
    "--retry-on": COUNTS,
    "--no-retry-on": COUNTS,
    "--start-timeout": TIMES,
    "--stall-timeout": TIMES,
    "--on-stall": ("", "never", "0"),
    "--family": TEXTS,
    "--name": TEXTS,
    "--cwd": ("a\x01",),
    "--python": ("a\x01",),
    "--venv": ("a\x01",),
    "--checkpoint-dir": ("a\x01",),
    "--conda": ("a b", "-x"),
    "--container": ("docker", "'"),
    "--progress-url": ("abc",),
    "--rate": ("v100", "v100=x", "v100=-1", "v100=nan", "v100=0", "=3", ""),
    "--env": ("A", "1=2", "RANK=0", ""),
    "--key": ("", "\u00e9", "a\x01"),
    "--tenant": ("",),
}


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on stderr of a call that has to be refused before any server is asked."""
    assert call(*words) == 2
    said = capsys.readouterr().err
    assert said.startswith("fairlead: ")
    assert said.count("\n") == 1
    return said.removeprefix("fairlead: ")


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRLEAD_SERVER", "http://127.0.0.1:1")


@pytest.mark.parametrize("option", BAD)
def test_submit_names_the_option(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    steps = () if option == "--steps" else ("--steps", "5")
    file = Path("job.toml")
    file.write_text('command = "true"\ntotal_steps = 5\n')
    for value in BAD[option]:
        for rest in ((*steps, "--", "true"), ("job.toml",)):
            said = refused(capsys, "submit", f"{option}={value}", *rest)
            assert said.startswith(option), (value, said)


def test_a_field_of_the_file_is_not_said_to_be_an_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("job.toml").write_text('command = "true"\ntotal_steps = 5\nslo_s = 0\n')
    assert "job.toml:3: " in (said := refused(capsys, "submit", "--weight", "2", "job.toml"))
    assert "slo_s: must be from" in said
    assert "--" not in said


def test_two_options_that_exclude_each_other_are_both_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("submit", "--steps", "5", "--python", "a", "--venv", "b", "--", "true")
    assert refused(capsys, *words).startswith("--python and --venv are both given")


@pytest.mark.parametrize("value", NUMBERS[:-2])
def test_the_weight_is_named_as_it_was_typed(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "set", "weight", "3", value).startswith("W: ")


@pytest.mark.parametrize("command", ["cancel", "pause", "resume", "logs", "explain", "set weight"])
def test_a_negative_number_is_no_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, *command.split(), "-3", *(["1"] if "weight" in command else []))
    assert said.startswith("JOB")
    assert "'-3'" in said


@pytest.mark.parametrize("command", ["compare", "simulate", "jobs", "submit"])
def test_an_option_that_is_none_is_named_also_before_a_negative_number(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, command, "--foo", "-3").startswith("no such option: --foo")


@pytest.mark.parametrize("value", ["", "-3", "abc", "nowhere.txt"])
def test_what_if_names_the_option(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--add-job", "--add-node"):
        assert refused(capsys, "what-if", f"{option}={value}").startswith(f"{option}: ")


@pytest.mark.parametrize("option", ["--add-node", "--remove-node"])
def test_what_a_server_refuses_of_a_what_if_names_the_option(option: str) -> None:
    field = f"{option[2:].replace('-', '_')}s"
    said = f"{field}: there is no node 'zz'"
    assert by_option(said, ["what-if", option, "zz"]) == f"{option}: there is no node 'zz'"
    assert by_option(said, ["what-if"]) == said


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--round", NUMBERS),
        ("--stop-at", ("-3", "0", "nan", "abc", "")),
        ("--solve-time", TIMES),
        ("--solve-interval", TIMES),
        ("--preemption-hysteresis", TIMES),
        ("--rate-noise", TIMES),
        ("--rate-bias", TIMES),
        ("--mtbf-hours", NUMBERS),
        ("--mttr-hours", NUMBERS),
        ("--early-termination", TIMES),
        ("--window", ("5:2", "0:99", "x", "")),
        ("--seed", ("-3", "1.5", "nan", "9" * 30, "abc", "")),
    ],
)
def test_simulate_names_the_option(
    option: str, values: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("simulate", "--policy", "las", "--generate", "gavel,jobs=2")
    more = ("--mtbf-hours", "1") if option == "--mttr-hours" else ()
    for value in values:
        said = refused(capsys, *given, *more, f"{option}={value}")
        assert said.startswith(option), (value, said)


@pytest.mark.parametrize(
    "command",
    [
        "submit --steps 5 -- true", "status", "status --json", "jobs", "logs 1", "logs -f 1", "explain 1",
        "cancel 1", "pause 1", "resume 1", "set weight 1 2", "set policy las", "nodes", "drain a",
        "undrain a", "remove-node a", "revoke-node a", "what-if", "user add a --tenant t",
        "user remove a", "user list",
        "backup out.backup --server http://127.0.0.1:1",
    ],
)  # fmt: skip
def test_a_server_that_cannot_be_reached_is_no_bad_input(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*command.split()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fairlead: server http://127.0.0.1:1: cannot be reached: ")
    assert captured.err.count("\n") == 1
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--cluster", ("v100=x", "", "v100", "=4", "9" * 5000)),
        ("--prices", ("v100=x", "k80=1", "v100")),
        ("--generate", ("x", "gavel:x=1", "gavel,jobs=x", "gavel,jobs=3,jobs=3")),
        ("--devices-per-server", ("x", "k80=2")),
        ("--policy", ("nope", "")),
        ("--profile", ("nope",)),
        ("--estimator", ("nope",)),
        ("--placement", ("nope",)),
        ("--admission", ("nope",)),
        ("--observer", ("nope",)),
        ("--window", ("5:2", "x")),
        ("--round", ("0", "nan", "x")),
        ("--restart-cost", ("x",)),
    ],
)
def test_simulate_names_the_option_of_a_text(
    option: str, values: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"--policy": "las", "--generate": "gavel,jobs=3", "--cluster": "v100=2"}
    for value in values:
        words = [f"{name}={given}" for name, given in (good | {option: value}).items()]
        assert refused(capsys, "simulate", *words).startswith(option), value
        assert not list(Path().iterdir()), value


@pytest.mark.parametrize("command", ["audit", "accounting"])
def test_what_ends_before_it_begins_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (command, "--since", "2026-01-31", "--until", "2026-01-31")
    assert refused(capsys, *words).startswith("--until: must be after --since, got '2026-01-31'")


def test_options_of_retries_that_exclude_each_other_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("submit", "--steps", "1", "--retry-on", "1", "--no-retry-on", "2", "--", "true")
    said = "--retry-on and --no-retry-on are both given; at most one can be"
    assert refused(capsys, *words).startswith(said)
