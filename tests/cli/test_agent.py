from pathlib import Path

import pytest

from fairlead.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--devices", "v100=2"], "--server: expected HOST:PORT, and none is given"),
        (["--server", "here", "--devices", "v100=2"], "--server: expected HOST:PORT, got 'here'"),
        (["--server", "a:1", "--node", "../x"], "--node: expected letters"),
        (["--server", "a:1", "--node", "n", "--devices", "v100"], "--devices: expected nvml or"),
        (
            ["--server", "a:1", "--devices", "k80=1", "--prefork", "a b"],
            "--prefork: expected modules",
        ),
        (
            ["--server", "a:1", "--devices", "k80=1", "--prefork", "json.decoder,fairlead.nothing"],
            "--prefork: there is no module fairlead.nothing",
        ),
        (
            ["--server", "a:1", "--devices", "k80=1", "--prefork", "nosuchmodule.part"],
            "--prefork: there is no module nosuchmodule.part",
        ),
        (
            ["--server", "a:1", "--devices", "k80=1", "--health-interval", "0"],
            "--health-interval: must be from 0.1 to 86400 s, got 0",
        ),
        (["--config", "/no/such.toml"], "/no/such.toml: cannot be read (No such file"),
        (
            ["--server", "a:1", "--devices", "k80=1", "--token-file", "/no/t"],
            "--token-file /no/t: there is no such file; `fairlead serve` writes admin.token and agent.token",
        ),
    ],
)
def test_bad_options_are_named(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["agent", "--simulated-devices", *arguments])
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_an_unknown_key_of_the_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('server = "a:1"\ngpus = 4\n')
    with pytest.raises(SystemExit) as ended:
        main(["agent", "--config", str(file)])
    assert ended.value.code == 2
    assert "gpus" in capsys.readouterr().err
