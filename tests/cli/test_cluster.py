"""Commands for a live cluster, as a person meets them, against a real server."""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.call_command import call
from tests.cluster.served import Served, served

from fairlead.cluster.protocol.runtime import Runtime

JOB = 'command = "true"\ntotal_steps = 100\nweight = 2.0\n[rates]\nv100 = 10\n'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("state") / "s") as running:
        yield running


@pytest.fixture(autouse=True)
def _at_home(cluster: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_SERVER", cluster.url)
    monkeypatch.setenv("FAIRLEAD_TOKEN", cluster.admin)
    Path("job.toml").write_text(JOB)


def submitted(capsys: pytest.CaptureFixture[str], *arguments: str) -> int:
    """Submit one job; its id."""
    capsys.readouterr()
    assert call("submit", "--json", *arguments) == 0
    (job,) = json.loads(capsys.readouterr().out)["ids"]
    assert isinstance(job, int)
    return job


def test_a_file_is_submitted_with_options_before_what_it_says(
    cluster: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = submitted(capsys, "job.toml", "--weight", "3", "--env", "A=b=c", "--devices", "2")
    with cluster.client() as client:
        view = client.job(job)
    assert (view.name, view.weight, view.scale_factor, view.total_steps) == ("job", 3.0, 2, 100)
    row = cluster.server.service.store.job(job)
    assert row is not None
    assert row.spec.env == {"A": "b=c"}
    assert row.spec.cwd == str(tmp_path)


def test_the_environment_is_an_option_too(
    cluster: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def runtime(*options: str) -> Runtime:
        row = cluster.server.service.store.job(submitted(capsys, "job.toml", *options))
        assert row is not None
        return row.spec.runtime

    assert runtime("--venv", ".venv") == Runtime(venv=f"{tmp_path}/.venv")
    assert runtime("--conda", "vision") == Runtime(conda="vision")
    assert runtime("--container", "podman run {options} 'an image'") == Runtime(
        container=("podman", "run", "{options}", "an image")
    )
    assert call("submit", "job.toml", "--venv", "a", "--python", "/b") == 2
    assert "--python and --venv are both given" in capsys.readouterr().err


def test_paths_of_a_job_are_not_touched_where_it_is_submitted(
    cluster: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may lie on a file system that does not answer."""
    touched: list[object] = []

    def watched(look: Callable[..., Any]) -> Callable[..., Any]:
        def watch(path: Any, **more: Any) -> Any:
            if not isinstance(path, int) and "hung" in os.fsdecode(path):
                touched.append(path)
            return look(path, **more)

        return watch

    options = "--cwd hung/a/../b --checkpoint-dir /hung/c --python /hung/python"
    with monkeypatch.context() as patched:
        for name in ("stat", "lstat", "readlink"):
            patched.setattr(os, name, watched(getattr(os, name)))
        job = submitted(capsys, "job.toml", *options.split())
    assert touched == []
    row = cluster.server.service.store.job(job)
    assert row is not None
    assert row.spec.cwd.endswith("/hung/b")
    assert (row.spec.checkpoint_dir, row.spec.python) == ("/hung/c", "/hung/python")


def test_a_command_behind_dashes_keeps_its_own_options(
    cluster: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["python", "-c", "print(1)", "--steps", "5", "--", "x"]
    job = submitted(capsys, "--steps", "7", "--rate", "v100=2", "--unmanaged", "--", *command)
    row = cluster.server.service.store.job(job)
    assert row is not None
    assert row.spec.command == tuple(command)
    assert (row.spec.total_steps, row.spec.rates, row.spec.unmanaged) == (7, {"v100": 2.0}, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "true"], "--steps"),
        (["job.toml", "--", "true"], "not both"),
        (["none.toml"], "none.toml: cannot be read"),
        (["job.toml", "--weight", "nan"], "--weight: must be from"),
        (["job.toml", "--weight", "-1"], "--weight: must be from"),
        (["job.toml", "--rate", "v100"], "--rate: expected NAME=VALUE"),
        (["job.toml", "--rate", "v100=fast"], "--rate: expected NAME=VALUE"),
        (["job.toml", "--env", "X"], "--env: expected NAME=VALUE"),
        (["job.toml", "--env", "RANK=1"], "RANK is set by Fairlead"),
        (["--steps", "5", "--family", "no such family", "--", "true"], "no such family"),
        (["two.toml"], "two.toml: family: 'none' is not in"),
        (["job.toml", "two.toml"], "two.toml: family: 'none' is not in"),
        (["job.toml", "--after", "99999999"], "--after: expected ok:JOB"),
        (["job.toml", "--after", "ok:99999999"], "--after: job 99999999: there is none"),
        (["job.toml", "--array", "9-1"], "--array: the range 9-1 ends before it begins"),
        (
            ["job.toml", "--array", "1", "--checkpoint-dir", "/c"],
            "--checkpoint-dir and --array are",
        ),
    ],
)
def test_what_cannot_be_submitted_gets_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("two.toml").write_text('command = "true"\ntotal_steps = 5\nfamily = "none"\n')
    assert call("submit", *arguments) == 2
    caught = capsys.readouterr()
    assert message in caught.err
    assert caught.err.count("\n") == 1
    assert caught.out == ""


def test_a_directory_of_checkpoints_that_another_job_has_is_refused_by_file_and_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = 'command = "true"\ntotal_steps = 5\ncheckpoint_dir = "/data/own"\n'
    Path("a.toml").write_text(named + 'name = "first"\n')
    Path("b.toml").write_text(named.replace("/own", "//own/"))
    why = "they would take each other's checkpoints; name another one\n"
    assert call("submit", "a.toml", "b.toml") == 2
    said = "b.toml: checkpoint_dir: '/data//own/' of 'b' is that of a.toml ('first') as well: "
    assert capsys.readouterr().err == f"fairlead: {said}{why}"
    assert call("submit", "job.toml", "job.toml", "--checkpoint-dir", "/data/own") == 2
    said = "--checkpoint-dir: '/data/own' of 'job' is that of job.toml ('job') as well: "
    assert capsys.readouterr().err == f"fairlead: {said}{why}"
    job = submitted(capsys, "a.toml")
    assert call("submit", "b.toml", "--name", "second") == 2
    said = (
        f"b.toml: checkpoint_dir: '/data//own/' of 'second' is that of job {job} ('first'), which "
    )
    assert capsys.readouterr().err == f"fairlead: {said}has not ended: {why}"
    assert call("cancel", str(job)) == 0
    assert submitted(capsys, "b.toml") > job


def test_jobs_are_listed_steered_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    job = str(submitted(capsys, "job.toml", "--name", "[bold]mine[/]"))
    assert call("jobs") == 0
    assert "[bold]mine[/]" in capsys.readouterr().out
    assert call("pause", job) == 0
    assert call("jobs", "--state", "paused", "--json") == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert int(job) in {one["id"] for one in listed}
    assert call("resume", job) == 0
    assert call("set", "weight", job, "-1") == 2
    assert "W: must be from" in capsys.readouterr().err
    assert call("set", "weight", job, "5") == 0
    assert call("explain", job) == 0
    story = capsys.readouterr().out
    assert f"Job {job} [bold]mine[/] of admin" in story
    assert "weight 5" in story
    assert call("logs", job) == 0
    caught = capsys.readouterr()
    assert (caught.out, caught.err) == ("", f"job {job} is waiting: it has written nothing yet\n")
    assert call("cancel", job, "99999999") == 2
    caught = capsys.readouterr()
    assert f"job {job} cancelled" in caught.out
    assert "job 99999999" in caught.err
    assert call("jobs", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert int(job) not in {one["id"] for one in listed}
    assert call("logs", job) == 0
    said = (
        f"job {job} is cancelled: it wrote nothing, or its output is kept no longer (--keep-logs)\n"
    )
    assert capsys.readouterr().err == said
    assert call("jobs", "--all", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert int(job) in {one["id"] for one in listed}
    assert call("jobs", "--state", "asleep") == 2


def test_jobs_that_wait_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = submitted(capsys, "job.toml"), submitted(capsys, "job.toml")
    third = submitted(capsys, "job.toml", "--after", f"ok:{first},{second}", "--after", "any:0")
    assert call("explain", str(third)) == 0
    assert f"It waits for jobs {first}, {second} to complete" in capsys.readouterr().out
    assert call("jobs", "--json") == 0
    (view,) = [job for job in json.loads(capsys.readouterr().out) if job["id"] == third]
    assert view["after"] == [f"ok:{first}", f"ok:{second}", "any:0"]
    assert call("cancel", str(first)) == 0
    assert call("submit", "job.toml", "--after", f"ok:{first}", "--wait") == 1
    why = f"job {first}, on which it depends (ok), was cancelled"
    assert f"dropped: {why}" in capsys.readouterr().err


def test_an_array_is_submitted_listed_and_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("submit", "job.toml", "--array", "1-3,7%2", "--json") == 0
    ids = json.loads(capsys.readouterr().out)["ids"]
    assert len(ids) == 4
    assert call("submit", "job.toml", "--array", "") == 2
    assert "--array: must not be empty" in capsys.readouterr().err
    assert call("submit", "job.toml", "job.toml", "--array", "0-1%1") == 0
    caught = capsys.readouterr()
    one, two = ids[3] + 1, ids[3] + 3
    assert (
        caught.out
        == f"array {one}: jobs {one} to {one + 1}\narray {two}: jobs {two} to {two + 1}\n"
    )
    assert caught.err.count("waits") == 2  # one of each
    assert call("cancel", f"array:{one}", f"array:{two}") == 0
    capsys.readouterr()
    assert call("jobs", "--array", str(ids[0])) == 0
    listed = capsys.readouterr().out
    assert f"waits for its turn: 2 of array {ids[0]} may run at once" in listed
    assert "job[7]" in listed
    assert call("cancel", str(ids[3]), f"array:{ids[0]}") == 0
    assert capsys.readouterr().out == f"job {ids[3]} cancelled\narray {ids[0]} cancelled: 3 jobs\n"
    assert call("jobs", "--array", str(ids[0])) == 0
    assert capsys.readouterr().out == "no such jobs are open\n"
    assert call("jobs", "--array", str(ids[1])) == 2
    assert f"array {ids[1]}: there is none" in capsys.readouterr().err


@pytest.mark.parametrize("last", [False, True])
def test_what_can_be_cancelled_is_whatever_else_is_refused(
    last: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = submitted(capsys, "job.toml")
    assert call("cancel", str(ended)) == 0
    array, search = submitted_array(capsys), 999_999
    capsys.readouterr()
    named = [str(ended), f"search:{search}", f"array:{array}"]
    assert call("cancel", *(named[::-1] if last else named)) == 2
    caught = capsys.readouterr()
    assert caught.out == f"array {array} cancelled: 2 jobs\n"
    first, second = sorted(caught.err.splitlines())
    assert first.startswith(f"fairlead: job {ended}")
    assert "has ended already" in first
    assert second.startswith(f"fairlead: search {search}")


def submitted_array(capsys: pytest.CaptureFixture[str]) -> int:
    capsys.readouterr()
    assert call("submit", "job.toml", "--array", "0-1", "--json") == 0
    ids: list[int] = json.loads(capsys.readouterr().out)["ids"]
    return ids[0]


def test_jobs_are_listed_page_by_page(
    cluster: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [submitted(capsys, "job.toml", "--name", f"paged-{k}") for k in range(3)]
    begin = str(jobs[0] - 1)
    assert call("jobs", "--after", begin, "--limit", "2") == 0
    shown = capsys.readouterr().out
    assert "paged-1" in shown
    assert "paged-2" not in shown
    assert f"There are more: --after {jobs[1]}, or --limit 0 for all." in shown
    assert call("jobs", "--after", str(jobs[1]), "--limit", "2") == 0
    shown = capsys.readouterr().out
    assert "paged-2" in shown
    assert "There are more" not in shown
    assert call("jobs", "--after", begin, "--limit", "0", "--mine") == 0
    assert capsys.readouterr().out.count("paged-") == 3
    assert call("user", "add", "mia", "--tenant", "default") == 0
    monkeypatch.setenv("FAIRLEAD_TOKEN", capsys.readouterr().out.strip())
    assert call("jobs", "--after", begin) == 0
    assert capsys.readouterr().out.count("paged-") == 3
    assert call("jobs", "--after", begin, "--mine") == 0
    assert capsys.readouterr().out == "no such jobs are open\n"
    monkeypatch.setenv("FAIRLEAD_TOKEN", cluster.admin)
    for job in jobs:
        assert call("cancel", str(job)) == 0


def test_jobs_that_cannot_run_now_are_submitted_and_said(
    cluster: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("submit", "job.toml", "job.toml", "--devices", "16") == 0
    caught = capsys.readouterr()
    jobs = [int(line.removeprefix("job ")) for line in caught.out.splitlines()]
    with cluster.client() as client:
        message = [f"fairlead: job {job} waits: {client.job(job).reason}" for job in jobs]
    assert caught.err.splitlines() == message
    assert all("16 devices" in line for line in message)


def test_the_commands_of_examples_and_manual_can_be_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[2]
    manual = (root / "docs" / "live.md").read_text()
    texts = [manual, *(path.read_text() for path in (root / "examples" / "live").glob("*_*.py"))]
    lines = [line for text in texts for line in text.splitlines()]
    commands = [line for line in lines if line.strip().startswith("fairlead submit ")]
    assert len(commands) == 5
    block = manual.partition("## job.toml\n```toml\n")[2].partition("```")[0]
    (tmp_path / "manual.toml").write_text(block)
    monkeypatch.chdir(root)
    for words in [*map(shlex.split, commands), ["fairlead", "submit", f"{tmp_path}/manual.toml"]]:
        assert call(*words[1:]) == 0, (words, capsys.readouterr().err)
    scripts = {word for line in [*commands, block] for word in line.replace('"', " ").split()}
    scripts = {word for word in scripts if word.endswith(".py")}
    assert len(scripts) == 4
    assert all(Path(script).is_file() for script in scripts)


def test_without_a_terminal_the_status_is_printed_again_and_again(cluster: Served) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "status", "--watch"], stdout=subprocess.PIPE, text=True
    )
    with watching:
        assert watching.stdout is not None
        heads = (line for line in watching.stdout if line.startswith("Fairlead "))
        assert next(heads)
        assert next(heads)
        watching.terminate()


def test_waiting_ends_with_the_job_and_says_how(
    cluster: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    def cancel_soon() -> None:
        with cluster.client() as client:
            until = time.monotonic() + 180
            while time.monotonic() < until:
                for job in client.all_jobs("open"):
                    if job.name == "waited-for":
                        client.cancel(job.id)
                        return
                time.sleep(0.05)

    helper = threading.Thread(target=cancel_soon)
    helper.start()
    code = call("submit", "job.toml", "--name", "waited-for", "--wait")
    helper.join()
    assert code == 1
    assert "cancelled" in capsys.readouterr().err


def test_the_cluster_is_shown_and_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("set", "policy", "fifo") == 0
    assert call("status") == 0
    assert "policy fifo" in capsys.readouterr().out
    assert call("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "fifo"
    assert call("set", "policy", "best") == 2
    assert "best" in capsys.readouterr().err
    assert call("set", "policy", "las") == 0
    assert call("nodes", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == []
    assert call("drain", "nowhere") == 2
    assert "nowhere" in capsys.readouterr().err
    assert call("drain", "../up") == 2
    assert call("submit", "--tenant", "", "job.toml") == 2
    assert "--tenant: must not be empty" in capsys.readouterr().err
    capsys.readouterr()
    assert call("remove-node", "nowhere", "nobody") == 2
    refused = capsys.readouterr().err.splitlines()
    assert [("nowhere" in line, "nobody" in line) for line in refused] == [
        (False, True),
        (True, False),
    ]
    assert call("what-if", "--add-node", "v100") == 2
    assert "--add-node: expected TYPE=N" in capsys.readouterr().err
    for number in ("0", "999999999", "9" * 5000):
        assert call("what-if", "--add-node", f"v100={number}") == 2
        message = capsys.readouterr().err
        assert "--add-node: from 1 to 100,000 devices of a type can be added, got 'v100=" in message
        assert len(message) < 200


def test_users_come_and_go(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("user", "add", "zoe", "--tenant", "zebras") == 0
    token = capsys.readouterr().out.strip()
    Path("token").write_text(token + "\n")
    assert call("jobs", "--json", "--token-file", "token") == 0
    assert capsys.readouterr().out == "[]\n"
    assert call("user", "list", "--token-file", "token") == 2
    assert "only an admin" in capsys.readouterr().err
    assert call("user", "list", "--json") == 0
    users = json.loads(capsys.readouterr().out)
    assert {"user": "zoe", "tenant": "zebras", "role": "user", "expires_s": None} in users
    assert call("user", "remove", "zoe") == 0
    assert call("jobs", "--token-file", "token") == 2
    assert "token" in capsys.readouterr().err
    assert call("user", "add", "eve", "--role", "boss") == 2


def test_the_token_is_found_at_home(
    cluster: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("FAIRLEAD_TOKEN")
    assert call("status") == 2
    assert (
        "a token is needed; use `fairlead login`, FAIRLEAD_TOKEN or --token-file"
        in capsys.readouterr().err
    )
    (tmp_path / ".config" / "fairlead").mkdir(parents=True)
    config = tmp_path / ".config" / "fairlead" / "client.toml"
    config.write_text(f'server = "{cluster.url}"\ntoken = "{cluster.admin}"\n')
    assert call("status") == 0


@pytest.mark.parametrize(
    ("server", "code", "message"),
    [
        ("127.0.0.1:1", 1, "cannot be reached"),
        ("ftp://127.0.0.1", 2, "is no address"),
        ("http://", 2, "is no address"),
        ("AGENTS", 2, "does not look like the HTTP port of `fairlead serve`"),
    ],
)
def test_a_server_that_is_not_there_is_one_sentence(
    cluster: Served, server: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = server.replace("AGENTS", cluster.server.agent_address)
    assert call("jobs", "--server", server) == code
    caught = capsys.readouterr()
    assert message in caught.err
    assert caught.err.count("\n") == 1


def test_a_token_that_no_header_can_hold_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for token in ("hush\nhush", "hüsh", "hush hush", "hush\x7f"):
        monkeypatch.setenv("FAIRLEAD_TOKEN", token)
        assert call("jobs") == 2
        message = capsys.readouterr().err
        assert "the token: must be of printable ASCII characters" in message
        assert message.count("\n") == 1
        assert "sh" not in message.replace("without spaces", "")
