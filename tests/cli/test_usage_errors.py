"""Words that no command can be made of: one sentence with the value, exit code 2."""

from pathlib import Path

import pytest
from tests.call_command import call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("simulate", "--seed", "x"), ("--seed", "'x'")),
        (("simulate", "--seed", "-5"), ("--seed", "'-5'")),
        (("simulate", "--seed"), ("--seed",)),
        (("simulate", "--polcy", "las"), ("--polcy", "--policy")),
        (("simulate", "--ideal=3"), ("--ideal",)),
        (("simulat",), ("'simulat'", "'simulate'")),
        (("replay",), ("RUN",)),
        (("replay", "a", "b"), ("(b)",)),
        (("solve",), ("--instances",)),
        (("sweep", "--processes", "many"), ("--processes", "'many'")),
        (("trace", "describ"), ("'describ'", "'describe'")),
        (("trace", "generate", "t.csv", "--jobs", "many"), ("--jobs", "'many'")),
        (("cancel", "many"), ("JOB", "'many'")),
        (("jobs", "--limit", "9" * 21), ("--limit", "9" * 21)),
        (("jobs", "--tenant", "x\udcff"), ("--tenant: is not valid UTF-8, got 'x\\udcff'",)),
        (("drain", "x\udcff"), ("NODE...: is not valid UTF-8",)),
        (("submit", "--steps", "1", "--", "true", "\udcff"), ("is not valid UTF-8",)),
        (
            ("--policy", "las", "simulate", "--seed", "1"),
            ("--policy", "options of simulate come after its name (fairlead simulate --help)"),
        ),
        (("--polcy", "las"), ("--polcy", "(fairlead --help)")),
        (
            ("simulate", "--cluster", "v100=1", "--seed", "1", "--cluster", "k80=2"),
            ("--cluster: is given twice, and takes one value, got 'k80=2'",),
        ),
        (("compare", "--trace=a.csv", "--trace", "b.csv"), ("--trace: is given twice",)),
        (
            ("jobs", "--server", "http://a:1", "--server", "http://b:1"),
            ("--server: is given twice",),
        ),
    ],
)
def test_what_cannot_be_parsed_is_said_in_one_sentence(
    words: tuple[str, ...],
    message: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fairlead: ")
    assert captured.err.count("\n") == 1
    assert "--help" in captured.err
    for word in message:
        assert word in captured.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [(), ("trace",)])
def test_without_a_command_there_is_help(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words) == 2
    captured = capsys.readouterr()
    assert "Commands:" in captured.out + captured.err


def test_exit_codes_and_help_are_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert call("simulate", "--help") == 0
    assert "--policy" in capsys.readouterr().out
    assert call("replay", "nowhere") == 2


@pytest.mark.parametrize("option", ["--policies", "--policy"])
def test_policies_with_spaces_between_them_are_explained(
    option: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("compare", option, "fifo", "las", "isolated") == 2
    message = capsys.readouterr().err
    assert "--policies fifo,las,isolated" in message
    assert message.count("\n") == 1


def test_what_may_be_given_several_times_still_may(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("--restart-cost", "x", "--restart-cost", "A3C=5", "--json", "--json")
    assert call("simulate", "--policy", "las", "--generate", "gavel,jobs=2", *given) == 2
    assert "--restart-cost: expected a number of seconds" in capsys.readouterr().err
