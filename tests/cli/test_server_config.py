"""The configuration file of ``fairlead serve``."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.call_command import call

from fairlead.cli.application import COMMANDS
from fairlead.cli.serve import Rereader
from fairlead.cli.server_config import ServerConfig, file_options
from fairlead.errors import ConfigError


def context_of(*words: object) -> Any:
    (deferred,) = (one for one in COMMANDS if one.name == "serve")
    return deferred.load().make_context("serve", [str(word) for word in words])


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.toml"
    path.write_text(text)
    return path


EVERY_OPTION = """
state = "s"
cluster = "nodes.toml"
policy = "fifo"
profile = "default"
round = 30
throughputs = "builtin"
host = "::1"
port = 1
agent_port = 2
tls_cert = "c.pem"
tls_key = "k.pem"
users = "ann=vision"
lease = 5.5
heartbeat = 1
solve_limit = 9
mtbf_hours = 48
restart_cost = 3
no_early_round_end = true
checkpoints = "ckpt"
estimator = "gavel"
tenant_jobs = 7
tenant_jobs_per_minute = 8
tenant_bytes_per_minute = 9
tenant_output_bytes = 12
tenant_grace = 7.0
user_changes_per_minute = 10
log_level = "info"
keep_ended_jobs = 90
keep_logs = 30
keep_checkpoints = 60.5
audit_size = 3
audit_files = 4
prices = "v100=2.5"
ignore_witness = ["a", "b"]
open_metrics = true
seed = 11
webhook = "https://ops.example/hook"
webhook_secret = "secret"
engine = "slurm"
engine_config = "engine.toml"
compile_in_background = true
"""


def test_every_option_can_be_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, EVERY_OPTION)
    context = context_of("--config", path)
    lines = [line.split(" = ")[0] for line in EVERY_OPTION.split("\n") if line]
    assert set(lines) == set(file_options(context))
    params = context.params
    assert str(params["state"]) == "s"
    assert (params["round_s"], params["port"], params["lease"]) == (30.0, 1, 5.5)
    assert (params["no_early_round_end"], params["open_metrics"]) == (True, True)
    assert list(params["ignore_witness"]) == ["a", "b"]
    assert (params["log_level"], params["prices"], params["seed"]) == ("info", "v100=2.5", 11)


def test_the_command_line_counts_before_variables_and_these_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, 'state = "s"\nport = 1\nagent_port = 2\nround = 3\nlease = 4\n')
    monkeypatch.setenv("FAIRLEAD_SERVE_PORT", "11")
    monkeypatch.setenv("FAIRLEAD_SERVE_AGENT_PORT", "12")
    monkeypatch.setenv("FAIRLEAD_SERVE_ROUND", "13")
    params = context_of("--config", path, "--port", "21").params
    assert (params["port"], params["agent_port"], params["round_s"], params["lease"]) == (
        21, 12, 13.0, 4.0,
    )  # fmt: skip
    assert context_of("--state", "s").params["agent_port"] == 12


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("round = 30\nruond = 3\n", "server.toml:2: ruond: unknown field"),
        ('round = 30\nport = "x"\n', "server.toml:2: port: expected int, got 'x'"),
        ("round = 30\nseed = -1\n", "server.toml:2: seed: "),
        ("round = 30\n\nlease = -5\n", "server.toml:3: lease: must be from 1 to 3600 seconds, got -5"),
        ('log_level = "loud"\n', "server.toml:1: log_level: "),
        ('round = 30\nkeep_logs = 1e-300\n', "server.toml:2: keep_logs: must be 0 (for ever) or from 0.0"),
        ('keep_ended_jobs = inf\n', "server.toml:1: keep_ended_jobs: must be 0 (for ever) or from 0.0"),
        ('prices = "v100=x"\n', "server.toml:1: prices: v100: expected a number, got 'x'"),
        ("round =\n", "server.toml"),
        ('round = 30\nestimator = "x"\n', "server.toml:2: estimator: 'x' is not known (choose from"),
        ('round = 30\npolicy = "nope"\n', "server.toml:2: policy: 'nope': no such policy"),
        ('round = 30\ncluster = "no.toml"\n', "server.toml:2: cluster: no.toml: "),
        ('round = 30\nhost = "999.1.1.1"\n', "server.toml:2: host: '999.1.1.1' cannot be listened on"),
        ('round = 30\ntls_cert = "c"\n', "server.toml:2: tls_cert: is given without --tls-key"),
        ('tls_cert = "/nope"\ntls_key = "/nope"\n', "server.toml:1: tls_cert: /nope, /nope: not a"),
        ('webhook = "http://a/"\n', "server.toml:1: webhook: is given without --webhook-secret"),
        (
            'webhook = "http://a/"\nwebhook_secret = "nofile"\n',
            "server.toml:2: webhook_secret: nofile: cannot be read: No such file or directory",
        ),
        ('engine_config = "e"\n', "server.toml:1: engine_config: is given without --engine;"),
        ('new_tokens = true\n', "server.toml:1: new_tokens: unknown field"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_file_line_field_and_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    path = written(tmp_path, text)
    assert call("serve", "--config", path, "--state", tmp_path / "state", "--inside-job") == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not (tmp_path / "state").exists()


def test_a_file_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("serve", "--config", tmp_path / "no.toml", "--state", tmp_path / "s") == 2
    assert "no.toml" in capsys.readouterr().err


def test_a_pipe_cannot_be_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert call("serve", "--config", pipe, "--state", tmp_path / "s") == 2
    assert capsys.readouterr().err == (
        f"fairlead: {pipe}: is no regular file; a reload reads it again\n"
    )


def test_what_is_wrong_with_a_variable_is_said_with_its_name_and_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_SERVE_PORT", "abc")
    assert call("serve", "--state", tmp_path / "s") == 2
    err = capsys.readouterr().err
    assert err.startswith("fairlead: FAIRLEAD_SERVE_PORT: ")
    assert ", got 'abc'" in err


def reader_of(tmp_path: Path, text: str, *words: str) -> tuple[Path, Rereader]:
    path = written(tmp_path, text)
    context = context_of("--config", path, "--state", tmp_path / "s", *words)
    assert isinstance(context.obj, ServerConfig)
    return path, Rereader(context.obj)


def test_a_reload_takes_what_can_change_and_names_what_needs_a_restart(tmp_path: Path) -> None:
    path, reread = reader_of(
        tmp_path, "tenant_jobs = 5\nlease = 20\n", "--tenant-jobs-per-minute", "9"
    )
    assert reread().needs_restart == ()
    path.write_text(
        'lease = 21\nround = 12\ntenant_jobs_per_minute = 1\nlog_level = "error"\nprices = "k80=1"\n'
    )
    read = reread()
    assert read.needs_restart == ("round", "lease")
    assert read.runtime.tenant_jobs == 10_000, "no longer in the file: the default"
    assert read.runtime.tenant_jobs_per_minute == 9, "the command line counts first"
    assert (read.runtime.log_level, read.runtime.prices) == ("error", {"k80": 1.0})


@pytest.mark.parametrize("text", ["tenant_jobs = -1\n", "lease = 0\n", "x = 1\n", "=\n"])
def test_a_reload_refuses_a_bad_file(tmp_path: Path, text: str) -> None:
    path, reread = reader_of(tmp_path, "tenant_jobs = 5\n")
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"server.toml"):
        reread()


@pytest.mark.parametrize(("value", "length"), [('"auto"', "auto"), ('"45"', 45.0), ("45", 45.0)])
def test_the_length_of_rounds_is_a_number_or_auto(
    tmp_path: Path, value: str, length: float | str
) -> None:
    path = written(tmp_path, f'state = "s"\nround = {value}\n')
    assert context_of("--config", path).params["round_s"] == length


@pytest.mark.parametrize("value", ['"soon"', "true", "0.1"])
def test_a_length_that_is_none_is_named_with_its_line(
    tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, f'state = "s"\nround = {value}\n')
    assert call("serve", "--config", path) == 2
    err = capsys.readouterr().err
    assert f"{path}:2: round: " in err
    assert value.strip('"') in err.lower()
