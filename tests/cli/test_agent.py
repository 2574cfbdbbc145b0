import os
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
        (
            ["--server", "a:1", "--devices", "k80=1", "--ends-in", "soon"],
            "--ends-in: expected a time as 30s, 90m, 12h or 7d, got 'soon'",
        ),
        (
            ["--server", "a:1", "--devices", "k80=1", "--ends-in", "0s"],
            "--ends-in: expected a time as 30s, 90m, 12h or 7d, got '0s'",
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


def test_a_run_directory_that_others_may_read_is_named_before_anything_is_announced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o755)
    run.chmod(0o755)
    monkeypatch.setenv("FAIRLEAD_RUN_DIR", str(run))
    token = tmp_path / "token"
    token.write_text("fl_x")
    token.chmod(0o600)
    options = ["--server", "127.0.0.1:1", "--devices", "v100=2", "--token-file", str(token)]
    with pytest.raises(SystemExit) as ended:
        main(["agent", "--simulated-devices", "--state", str(tmp_path / "state"), *options])
    assert ended.value.code == 2
    told = capfd.readouterr()
    assert f"its mode is 755 (chmod 700 {run})" in told.err
    assert "node " not in told.out + told.err


def test_an_end_that_slurm_does_not_tell_of_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", "tomorrow")
    with pytest.raises(SystemExit) as ended:
        main(["agent", "--simulated-devices", "--server", "a:1", "--devices", "k80=1"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert (
        "SLURM_JOB_END_TIME: expected seconds since 1970, as Slurm sets it, got 'tomorrow'" in said
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as other users")
@pytest.mark.parametrize(
    ("lines", "more", "expected"),
    [
        ('run_as = "no-such-user"', [], "run_as: default: this node has no OS user 'no-such-user'"),
        ('[run_as]\n"apes" = "nobody"', [], "run_as: expected default, tenant:NAME or user:NAME"),
        ('[run_as]\n"user:ann" = 7', [], "run_as"),
        (
            "",
            ["--run-as", "user:ann=nobody,user:ann=daemon"],
            "each key once, got 'user:ann=daemon'",
        ),
        ("", ["--run-as", "nobody", "--prefork", "json"], "--prefork: ranks that run as others"),
        (
            "",
            ["--run-as", "nobody", "--token-file", "TOKEN"],
            "others than root may read it (mode 644",
        ),
        (
            "memory_per_device = -1.0",
            [],
            "memory_per_device: must be from 0.01 to 1000000, got -1",
        ),
        (
            'cgroup = "/sys/fs/cgroup"',
            [],
            "cgroup: needs --memory-per-device or --cpus-per-device",
        ),
    ],
)
def test_what_is_wrong_with_how_jobs_are_kept_apart_is_named(
    lines: str, more: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, token = tmp_path / "agent.toml", tmp_path / "token"
    file.write_text(f'server = "a:1"\ndevices = "k80=1"\nsimulated_devices = true\n{lines}\n')
    token.write_text("x")
    token.chmod(0o644)
    words = [str(token) if word == "TOKEN" else word for word in more]
    with pytest.raises(SystemExit) as ended:
        main(["agent", "--config", str(file), *words])
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


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('devices = "v100=0"', "agent.toml:3: devices: v100=0: the number must be 1 to"),
        ("health_interval = 1e9", "agent.toml:3: health_interval: must be from 0.1 to 86400 s"),
        ("memory_per_device = -4.0", "agent.toml:3: memory_per_device: "),
    ],
)
def test_a_value_of_the_file_that_cannot_be_used_is_named_with_its_line(
    line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.toml"
    devices = "" if line.startswith("devices") else 'devices = "v100=1"'
    file.write_text(f'server = "127.0.0.1:1"\n{devices}\n{line}\n')
    with pytest.raises(SystemExit) as ended:
        main(["agent", "--simulated-devices", "--config", str(file)])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
